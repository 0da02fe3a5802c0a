//! The recording launcher: bm under a compiler's name, first on the children's PATH.
//!
//! Owns the links, their description (`.launcher.json`) and what one call does: append a record,
//! then become the real compiler, or let a compiler cache answer. Reads no environment variable but
//! PATH and, behind a cache, its own call; changes nothing of the call but the number of parts an LTO link runs at once, the seed of
//! gcc's names inside LTO objects, and how paths into the work directory are written. Knows no builds.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::cached::{self, CompilerCache};
use super::flags::{Lto, effective, is_lto};
use super::neutral::{HERE, Neutral};
use super::record::{self, Kind};
use super::room;
use crate::digest;
use crate::error::{Error, Exit, IoContext, Result};
use crate::exec::jobs::{self, Borrowed};
use crate::model::recipe::Family;

/// Beside the links: what they stand for.
const DESCRIPTION: &str = ".launcher.json";

/// Name of the launcher that a compiler cache starts for what it does not have.
const EXACT: &str = "bm-exact";

/// The call that [`EXACT`] makes, as a JSON list.
const EXACT_CALL: &str = "LAUNCHER_CALL";

/// Longest call that a variable can carry; Linux takes 128 KiB.
const LONGEST: usize = 100 << 10;

/// The job budget an LTO link may borrow from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFifo {
    /// The fifo.
    pub path: PathBuf,
    /// Most parts of one link at once, the link's own token included.
    pub at_most: usize,
    /// Bytes of memory that the largest process of the build is expected to need.
    pub memory: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Description {
    family: Family,
    record: PathBuf,
    jobs: Option<JobFifo>,
    #[serde(default)]
    cache: Option<CompilerCache>,
    tools: BTreeMap<String, PathBuf>,
}

/// Makes `bin` a directory of launchers: for each tool a link of that name to `bm_exe`, which
/// records every call below `record` and becomes the real program. All paths must be absolute.
///
/// # Errors
/// A real program that is missing, not executable or a launcher itself; a directory that cannot be
/// written.
pub fn install_launchers(
    bin: &Path,
    record: &Path,
    jobs: Option<&JobFifo>,
    cache: Option<&CompilerCache>,
    family: Family,
    tools: &[(&str, &Path)],
    bm_exe: &Path,
) -> Result<()> {
    for (name, real) in tools {
        check_tool(name, real, bm_exe)?;
    }
    record::prepare(record)?;
    fs::create_dir_all(bin).doing(|| "cannot make the directory of compiler launchers".to_owned())?;
    let description = Description {
        family,
        record: record.to_owned(),
        jobs: jobs.cloned(),
        cache: cache.cloned(),
        tools: tools
            .iter()
            .map(|(name, real)| ((*name).to_owned(), (*real).to_owned()))
            .collect(),
    };
    let text = serde_json::to_vec_pretty(&description).expect("names and paths given as text become JSON");
    fs::write(bin.join(DESCRIPTION), text).doing(|| "cannot describe the compiler launchers".to_owned())?;
    for name in tools.iter().map(|(name, _)| *name).chain([EXACT]) {
        link(bm_exe, &bin.join(name)).doing(|| format!("cannot make the launcher `{name}`"))?;
    }
    Ok(())
}

fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    match fs::remove_file(at) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs_err::os::unix::fs::symlink(to, at)
}

fn check_tool(name: &str, real: &Path, bm_exe: &Path) -> Result<()> {
    let bad = |why: &str| {
        Error::new(
            Exit::Host,
            format!("cannot use `{}` as `{name}`: {why}", real.display()),
        )
    };
    if name.contains('/') || ["", "bm", EXACT].contains(&name) {
        return Err(bad("the name of a launcher is a plain file name, and not bm's own"));
    }
    if !real.is_absolute() {
        return Err(bad("its path is not absolute"));
    }
    if !is_executable(real) {
        return Err(bad("it is not an executable file"));
    }
    if same_file(real, bm_exe) {
        return Err(bad("it is bm itself"));
    }
    Ok(())
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// A call that came in under a compiler's name.
#[derive(Debug)]
pub struct Launch {
    name: String,
    real: PathBuf,
    record: PathBuf,
    jobs: Option<JobFifo>,
    cache: Option<CompilerCache>,
    family: Family,
}

/// A call, recorded and ready.
struct Prepared {
    command: Command,
    /// Tokens it holds.
    held: Option<Borrowed>,
    /// The same call through the compiler cache.
    cached: Option<Command>,
    /// Its turn among links that had to wait for memory.
    _room: Option<File>,
}

/// Whether this process was started as a launcher. Costs nothing when started as `bm`.
///
/// # Errors
/// A description that is there but cannot be read.
pub fn launched_as() -> Result<Option<Launch>> {
    let Some(argv0) = std::env::args_os().next() else {
        return Ok(None);
    };
    find_launch(&argv0, std::env::var_os("PATH").as_deref())
}

fn find_launch(argv0: &OsStr, path: Option<&OsStr>) -> Result<Option<Launch>> {
    let called = Path::new(argv0);
    let Some(name) = called.file_name().and_then(OsStr::to_str).filter(|n| *n != "bm") else {
        return Ok(None);
    };
    let Some(dir) = directory_of(called, path) else {
        return Ok(None);
    };
    let file = dir.join(DESCRIPTION);
    let text = match std::fs::read(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(format!("cannot read `{}`", file.display()), &e)),
    };
    let mut description: Description = serde_json::from_slice(&text)
        .map_err(|e| Error::new(Exit::Host, format!("cannot understand `{}`", file.display())).caused_by(e))?;
    Ok(description.tools.remove(name).map(|real| Launch {
        name: name.to_owned(),
        real,
        record: description.record,
        jobs: description.jobs,
        cache: description.cache,
        family: description.family,
    }))
}

/// The directory a program was started from: named by itself, or the first on PATH that has it.
fn directory_of(called: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    match called.parent() {
        Some(dir) if dir != Path::new("") => Some(dir.to_owned()),
        _ => std::env::split_paths(path?).find(|dir| is_executable(&dir.join(called))),
    }
}

/// Acts as the launcher and does not return, if this process was started as one. To be called
/// before anything else.
pub fn run_if_launched() {
    let failure = match launched_as() {
        _ if called_as(EXACT) => make_exact_call(),
        Ok(None) => return,
        Ok(Some(launch)) => launch.run(std::env::args_os().skip(1).collect()),
        Err(e) => e,
    };
    // There is no `ui` in a launcher: its stderr is the step's log.
    let _ = writeln!(std::io::stderr(), "bm: {failure}");
    std::process::exit(i32::from(failure.exit().code()));
}

fn called_as(name: &str) -> bool {
    std::env::args_os()
        .next()
        .is_some_and(|argv0| Path::new(&argv0).file_name().is_some_and(|n| n == name))
}

/// Becomes the compiler with the words the build gave it. A cache sorts them and adds some of its own, and clang writes
/// all of them into debug information. Comes back only with a failure.
fn make_exact_call() -> Error {
    let call = std::env::var(EXACT_CALL).unwrap_or_default();
    let words: Vec<String> = serde_json::from_str(&call).unwrap_or_default();
    let Some((program, args)) = words.split_first() else {
        return Error::new(
            Exit::Bug,
            format!("`{EXACT}` was started by something else than a compiler cache"),
        );
    };
    let mut command = Command::new(program);
    command.args(args).env_remove(EXACT_CALL);
    without_cache(&mut command);
    Error::new(Exit::Host, format!("cannot start `{program}`")).caused_by(command.exec())
}

/// Whatever the build steps were told of a compiler cache of the user's.
fn without_cache(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"CCACHE_") {
            command.env_remove(name);
        }
    }
}

impl Launch {
    /// Records the call and becomes the compiler; comes back only with a failure.
    fn run(self, args: Vec<OsString>) -> Error {
        match self.prepare(args) {
            Ok(Prepared {
                command,
                held: Some(tokens),
                _room,
                ..
            }) => self.run_and_give_back(command, tokens),
            Ok(Prepared {
                command,
                cached: Some(cached),
                ..
            }) => self.ask_cache(cached, command),
            Ok(Prepared { command, _room, .. }) => self.become_compiler(command),
            Err(e) => e,
        }
    }

    /// The call to make, recorded.
    fn prepare(&self, mut args: Vec<OsString>) -> Result<Prepared> {
        let cwd = std::env::current_dir().doing(|| "cannot tell the working directory".to_owned())?;
        let neutral = self.neutral(&mut args, &cwd);
        let mut words = self.words(&args, &cwd);
        let mut lto_jobs = 0;
        let mut held = None;
        let room = self.jobs.as_ref().and_then(|jobs| {
            let links = matches!(record::kind_of(&words), Kind::Link);
            links.then(|| room::wait(&jobs.path.with_file_name("large-link"), jobs.memory))?
        });
        if let (Some(fifo), Some(how)) = (&self.jobs, self.parallel_link(&words, &args)) {
            let tokens = jobs::borrow(&fifo.path, fifo.at_most.saturating_sub(1));
            lto_jobs = 1 + tokens.tokens();
            held = Some(tokens).filter(|t| t.tokens() > 0);
            if held.is_some() || how == Parallel::Thin {
                how.apply(&mut args, lto_jobs);
                words = self.words(&args, &cwd);
            }
        }
        if let Some(seed) = self.seed(&words, &cwd) {
            args.push(seed.into());
            words = self.words(&args, &cwd);
        }
        let mut command = Command::new(&self.real);
        command.args(&args);
        if neutral.is_some() {
            command.env("PWD", HERE);
        }
        let cached = neutral.and_then(|place| self.through_cache(&args, &words, &place));
        record::append(
            &self.record,
            &record::now(words, cwd, u32::try_from(lto_jobs).unwrap_or(u32::MAX)),
        )
        .doing(|| "cannot record a compiler call".to_owned())?;
        Ok(Prepared {
            command,
            held,
            cached,
            _room: room,
        })
    }

    /// Makes a call that leaves something in the prefix say the same in every work directory.
    fn neutral(&self, args: &mut Vec<OsString>, cwd: &Path) -> Option<Neutral> {
        let words = self.words(args, cwd);
        let (compiles, links) = match record::kind_of(&words) {
            Kind::Probe => return None,
            Kind::Compile => (true, false),
            Kind::CompileAndLink => (true, true),
            Kind::Link => (false, true),
        };
        // An LTO link compiles, and writes debug information of its own.
        let lto = links && effective(words.iter().map(String::as_str)).lto.on();
        let place = Neutral::of(self.work(), cwd).filter(|_| compiles || lto)?;
        if compiles {
            place.apply(args);
        }
        args.push(place.word().into());
        Some(place)
    }

    fn work(&self) -> &Path {
        self.record.parent().unwrap_or(&self.record)
    }

    fn through_cache(&self, args: &[OsString], words: &[String], place: &Neutral) -> Option<Command> {
        let cache = self.cache.as_ref()?;
        // The cache reads response files by rules of its own.
        let plain = !args.iter().any(|a| a.as_encoded_bytes().starts_with(b"@"));
        if !plain || !cache.takes(&self.name, words) {
            return None;
        }
        if cached::has_fault(&self.record) {
            // Only counts: it is no reason to fail a compile.
            let _ = cached::note_passed(&self.record);
            return None;
        }
        let exact: Option<Vec<&str>> = [self.real.as_os_str()]
            .into_iter()
            .chain(args.iter().map(OsString::as_os_str))
            .map(OsStr::to_str)
            .collect();
        let exact = serde_json::to_string(&exact?).expect("words become JSON");
        if exact.len() > LONGEST {
            return None;
        }
        let mut command = Command::new(&cache.program);
        command.arg(&self.real).args(args).env("PWD", HERE);
        without_cache(&mut command);
        command.env(EXACT_CALL, exact).env("CCACHE_PREFIX", EXACT);
        command.envs(cache.variables(&place.name(), &cached::deciding(words, self.family), &self.record));
        Some(command)
    }

    /// The call as it is recorded: the real program, response files read.
    fn words(&self, args: &[OsString], cwd: &Path) -> Vec<String> {
        let mut words = vec![self.real.to_string_lossy().into_owned()];
        words.extend(args.iter().map(|a| a.to_string_lossy().into_owned()));
        record::expand_response_files(words, cwd)
    }

    /// gcc names the sections of an LTO object by chance, and static libraries carry them into the
    /// prefix. A seed of the call's own words, other for every unit, gives the same bytes each time
    /// and changes no code. The words say the same in every work directory, and those that only the preprocessor reads
    /// are left out, so that builds can share objects.
    fn seed(&self, words: &[String], cwd: &Path) -> Option<String> {
        let compiles = matches!(record::kind_of(words), Kind::Compile | Kind::CompileAndLink);
        let lto = effective(words.iter().map(String::as_str)).lto != Lto::Off;
        let seeded = words.iter().any(|w| w.starts_with("-frandom-seed="));
        if self.family != Family::Gcc || !compiles || !lto || seeded {
            return None;
        }
        let work = std::fs::canonicalize(self.work()).unwrap_or_else(|_| self.work().to_owned());
        let place = cwd.strip_prefix(work).unwrap_or(cwd).to_string_lossy();
        let words = cached::deciding(words, self.family);
        let text = words.iter().fold(place.into_owned(), |text, w| text + "\0" + w);
        Some(format!("-frandom-seed=0x{}", &digest::sha256(text.as_bytes())[..16]))
    }

    /// How the parts of this call are told to run at once, if it is a link that has parts.
    fn parallel_link(&self, words: &[String], args: &[OsString]) -> Option<Parallel> {
        let links = matches!(record::kind_of(words), Kind::Link | Kind::CompileAndLink);
        let shown = |test: fn(&str) -> bool| args.iter().any(|a| a.to_str().is_some_and(test));
        match (effective(words.iter().map(String::as_str)).lto, self.family) {
            (Lto::Full, Family::Gcc) if links && shown(is_lto) => Some(Parallel::Gcc),
            // lld's full LTO is one unit and hence serial; its ThinLTO would take every core.
            (Lto::Thin, Family::Clang) if links && !shown(|w| w.starts_with("-flto-jobs=")) => Some(Parallel::Thin),
            _ => None,
        }
    }

    fn become_compiler(&self, mut command: Command) -> Error {
        self.not_started(&command.exec())
    }

    fn run_and_give_back(&self, mut command: Command, tokens: Borrowed) -> Error {
        // A signal to the group reaches the compiler by itself; this process must outlive it, or
        // the tokens would be lost. Handlers, unlike "ignored", do not reach the child.
        outlive_signals();
        let ended = command.status();
        drop(tokens);
        match ended {
            Ok(status) => end_like(status),
            Err(e) => self.not_started(&e),
        }
    }

    /// Lets the cache answer. It reports a failure of the compiler as its own, so after a failure the compiler says
    /// itself how it is: a broken or full cache must not fail a build.
    fn ask_cache(&self, mut cached: Command, mut command: Command) -> Error {
        let asked = cached
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::piped())
            .output();
        let said = match asked {
            Ok(done) if done.status.success() => {
                // Warnings; the build's log may be gone, as with any compiler.
                let _ = std::io::stderr().write_all(&done.stderr);
                std::process::exit(0);
            }
            Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
            Err(e) => format!("{}: {e}", cached.get_program().to_string_lossy()),
        };
        match command.status() {
            Ok(status) => {
                if status.success() {
                    // Failing, the next call finds out by itself.
                    let _ = cached::note_fault(&self.record, said.trim());
                }
                end_like(status)
            }
            Err(e) => self.not_started(&e),
        }
    }

    fn not_started(&self, e: &std::io::Error) -> Error {
        Error::new(Exit::Host, format!("cannot start `{}`", self.real.display())).caused_by(e)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parallel {
    Gcc,
    Thin,
}

impl Parallel {
    /// Puts the number into the words. make before 4.4 offers its budget to no link rule, so the
    /// number is written down.
    fn apply(self, args: &mut Vec<OsString>, jobs: usize) {
        match self {
            Parallel::Gcc => {
                let last = args.iter().rposition(|a| a.to_str().is_some_and(is_lto));
                args[last.expect("`parallel_link` saw it")] = format!("-flto={jobs}").into();
            }
            Parallel::Thin => args.push(format!("-flto-jobs={jobs}").into()),
        }
    }
}

/// Catches the signals that end a group, but those the caller had ignored.
fn outlive_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        if !is_ignored(signal) {
            let nobody_looks = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            // Failing, the signal ends this process as it would have: tokens are lost, nothing else.
            let _ = signal_hook::flag::register(signal, nobody_looks);
        }
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null action only asks; `now` is written when the call succeeds.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Ends this process as the child ended: same status, or same signal.
fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        // Returns only for signals that end nothing.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::exec::jobs::JobPool;

    /// With a work directory of its own, which this process does not run in wherever it was started.
    fn launch(work: &Path, family: Family) -> Launch {
        let record = work.join("record");
        record::prepare(&record).unwrap();
        Launch {
            name: "cc".into(),
            real: "/usr/bin/cc".into(),
            record,
            jobs: None,
            cache: None,
            family,
        }
    }

    /// What the compiler would get and the recorded number of parts, with a budget of so many free tokens.
    fn prepared(family: Family, line: &str, free: usize) -> (String, u32) {
        let dir = tempfile::tempdir().unwrap();
        let (pool, _) = JobPool::open(&dir.path().join("jobs"), free).unwrap();
        let fifo = pool.fifo().to_owned();
        let launch = Launch {
            jobs: Some(JobFifo {
                path: fifo,
                at_most: 4,
                memory: 0,
            }),
            ..launch(dir.path(), family)
        };
        let Prepared { command, held, .. } = launch.prepare(line.split(' ').map(OsString::from).collect()).unwrap();
        let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let calls = record::read_all(&dir.path().join("record")).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].record.argv[1..], args, "the record shows what ran");
        let parts = calls[0].record.lto_jobs;
        assert_eq!(
            pool.free().unwrap() + parts.saturating_sub(1) as usize,
            free,
            "each part has its token"
        );
        drop(held);
        assert_eq!(pool.free().unwrap(), free, "all are given back");
        (args.join(" "), parts)
    }

    #[test]
    fn only_an_lto_link_gets_parts() {
        use Family::{Clang, Gcc};
        for (family, free, line, want, parts) in [
            (Gcc, 2, "-flto -O2 -flto a.o -o p", "-flto -O2 -flto=3 a.o -o p", 3),
            (Gcc, 9, "-flto=auto a.o", "-flto=4 a.o", 4),
            (Gcc, 2, "-O2 -c a.c", "-O2 -c a.c", 0),
            (
                Gcc,
                2,
                "-flto -c a.c -frandom-seed=1",
                "-flto -c a.c -frandom-seed=1",
                0,
            ),
            (Clang, 2, "-flto -c a.c", "-flto -c a.c", 0),
            (Gcc, 2, "-flto -fno-lto a.o", "-flto -fno-lto a.o", 0),
            (
                Gcc,
                2,
                "-flto conftest.c -o conftest",
                "-flto conftest.c -o conftest",
                0,
            ),
            (Clang, 2, "-flto a.o -o p", "-flto a.o -o p", 0),
            (Clang, 2, "-flto=thin a.o", "-flto=thin a.o -flto-jobs=3", 3),
            (
                Clang,
                2,
                "-flto=thin -flto-jobs=2 a.o",
                "-flto=thin -flto-jobs=2 a.o",
                0,
            ),
        ] {
            assert_eq!(prepared(family, line, free), (want.to_owned(), parts), "{line}");
        }
    }

    #[test]
    fn gcc_names_nothing_in_lto_objects_by_chance() {
        let seeded = |line: &str| {
            let (args, parts) = prepared(Family::Gcc, line, 2);
            let seed = args
                .strip_prefix(line)
                .unwrap()
                .strip_prefix(" -frandom-seed=0x")
                .unwrap();
            assert!(seed.len() == 16 && parts == 0, "{args}");
            u64::from_str_radix(seed, 16).unwrap()
        };
        assert_eq!(seeded("-flto -c a.c"), seeded("-flto -c a.c"));
        assert_ne!(seeded("-flto -c a.c"), seeded("-flto -c b.c"));
    }

    #[test]
    fn without_a_free_token_a_link_is_one_part() {
        let dir = tempfile::tempdir().unwrap();
        for (family, line, want) in [
            (Family::Gcc, "-flto a.o -o p", "-flto a.o -o p"),
            (Family::Clang, "-flto=thin a.o", "-flto=thin a.o -flto-jobs=1"),
        ] {
            let launch = Launch {
                jobs: Some(JobFifo {
                    path: dir.path().join("absent"),
                    at_most: 4,
                    memory: 0,
                }),
                ..launch(dir.path(), family)
            };
            let Prepared { command, held, .. } = launch.prepare(line.split(' ').map(OsString::from).collect()).unwrap();
            let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
            assert_eq!((args.join(" ").as_str(), held.is_none()), (want, true));
        }
        assert!(
            record::read_all(&dir.path().join("record"))
                .unwrap()
                .iter()
                .all(|c| c.record.lto_jobs == 1)
        );
    }

    #[test]
    fn a_launcher_is_known_by_the_directory_it_was_found_in() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, record) = (dir.path().join("bin"), dir.path().join("record"));
        let exe = std::env::current_exe().unwrap();
        // A second attempt in the same work directory finds the links there already.
        for _ in 0..2 {
            let tools = [("cc1", Path::new("/bin/sh"))];
            install_launchers(&bin, &record, None, None, Family::Gcc, &tools, &exe).unwrap();
        }
        let found = |argv0: &OsStr, path: &OsStr| find_launch(argv0, Some(path)).unwrap().map(|l| l.real);
        let path = std::env::join_paths([Path::new("/nonexistent"), &bin, Path::new("/bin")]).unwrap();
        let real = Some(PathBuf::from("/bin/sh"));
        assert_eq!(found(OsStr::new("cc1"), &path), real);
        assert_eq!(found(bin.join("cc1").as_os_str(), OsStr::new("")), real);
        assert_eq!(found(OsStr::new("cc1"), OsStr::new("/bin")), None);
        assert_eq!(found(OsStr::new("sh"), &path), None);
        assert_eq!(found(OsStr::new("bm"), &path), None);
        fs::write(bin.join(DESCRIPTION), "{").unwrap();
        assert!(find_launch(OsStr::new("cc1"), Some(&path)).is_err());
    }

    #[test]
    fn tools_that_cannot_work_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        for (name, real) in [
            ("gcc", Path::new("bin/gcc")),
            ("gcc", Path::new("/nonexistent/gcc")),
            ("gcc", Path::new("/etc/passwd")),
            ("gcc", exe.as_path()),
            ("bm", Path::new("/bin/sh")),
            ("a/b", Path::new("/bin/sh")),
        ] {
            let error =
                install_launchers(dir.path(), dir.path(), None, None, Family::Gcc, &[(name, real)], &exe).unwrap_err();
            assert_eq!(error.exit(), Exit::Host, "{name} {}", real.display());
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing is made before all is checked"
        );
    }
}
