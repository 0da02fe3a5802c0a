//! Starting a program: finding it, and the state it starts in (signals, umask, account, descriptors).
//!
//! Shared by the supervisor and by `capture`. Knows nothing of logs or limits.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use fs_err as fs;

use super::Account;
use super::protocol::{JOBS_READ, JOBS_WRITE};

/// Permissions that new files get: nobody else may write.
const UMASK: libc::mode_t = 0o022;

/// Finds the program `name` means: itself if it holds a slash (relative to `dir`), else the first executable
/// file on `path`, of which only absolute entries count.
pub(super) fn find_program(name: &str, path: Option<&str>, dir: &Path) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("the name of the program is empty".to_owned());
    }
    if name.contains('/') {
        let program = dir.join(name);
        return match is_program(&program) {
            Ok(true) => Ok(program),
            Ok(false) => Err(format!("`{name}` is not an executable file")),
            Err(e) => Err(format!("cannot find `{name}`: {e}")),
        };
    }
    let Some(path) = path else {
        return Err(format!("cannot look up `{name}`: its environment has no PATH"));
    };
    let mut places = path.split(':').map(Path::new).filter(|entry| entry.is_absolute());
    places
        .find_map(|entry| Some(entry.join(name)).filter(|p| is_program(p).unwrap_or(false)))
        .ok_or_else(|| format!("`{name}` is not on PATH `{path}`"))
}

/// What to start for the program found for `name`: a name with a slash as it is written, since the new
/// process is in its directory by then and a script sees in `$0` the path it was started by; so a
/// `../src/configure` finds its sources by that same relative path.
pub(super) fn as_called<'a>(name: &'a str, found: &'a Path) -> &'a Path {
    if name.contains('/') { Path::new(name) } else { found }
}

fn is_program(path: &Path) -> io::Result<bool> {
    // Not fs_err: its message repeats the path that ours names.
    let meta = path.metadata()?;
    Ok(meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What the new process does to itself before the program starts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Setup {
    /// Account to become.
    pub account: Option<Account>,
    /// Descriptors that the program finds at [`JOBS_READ`] and [`JOBS_WRITE`].
    pub jobs: Option<(i32, i32)>,
}

/// Starts `command` in its own process group, with default signals, our umask, and bound to the life of the
/// calling thread: when that ends, the program is killed.
pub(super) fn start(command: &mut Command, setup: Setup) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: the closure calls only async-signal-safe functions and does not allocate.
    unsafe {
        command.pre_exec(move || {
            reset_signals();
            libc::umask(UMASK);
            if let Some((read, write)) = setup.jobs {
                check(libc::dup2(read, JOBS_READ))?;
                check(libc::dup2(write, JOBS_WRITE))?;
            }
            if let Some(account) = setup.account {
                check(libc::setgroups(0, std::ptr::null()))?;
                check(libc::setgid(account.gid))?;
                check(libc::setuid(account.uid))?;
            }
            // After the change of account, which would clear it.
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have died before that line.
            if rustix::process::getppid() != Some(parent) {
                libc::_exit(127);
            }
            Ok(())
        });
    }
    spawn_patiently(command)
}

/// Spawns; an executable that bm wrote a moment ago is "busy" while another thread's fork still holds the
/// descriptor it was written through, for the short time until that fork's exec.
fn spawn_patiently(command: &mut Command) -> io::Result<Child> {
    let mut left = 20;
    loop {
        match command.spawn() {
            Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) && left > 0 => left -= 1,
            result => return result,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// For a program that takes bm's place or is run in the user's name: SIGXFSZ, which bm ignores for itself, is
/// as bm was given it. (SIGPIPE the standard library sees to.)
pub fn unignore(command: &mut Command) {
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            Ok(())
        });
    }
}

/// Default action for every signal, none blocked. Ignored signals would otherwise survive exec: SIGINT that a
/// background shell ignored for bm, SIGPIPE and SIGXFSZ that bm ignores for itself.
fn reset_signals() {
    // SAFETY: plain system calls on local values, at least as large as the kernel reads; numbers that cannot be set are refused without effect.
    unsafe {
        // Past libc, which refuses the two signals it uses itself. All zeroes is "default" on every machine.
        let default = [0u64; 8];
        for signal in 1..=64 {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                8,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Explains why `program` could not be started.
pub(super) fn explain(program: &Path, e: &io::Error) -> String {
    let shown = program.display();
    match e.raw_os_error() {
        // The file is there (it was looked up), so it is what the file names that is missing.
        Some(libc::ENOENT) => match interpreter(program) {
            Some(interpreter) => format!("cannot start `{shown}`: its interpreter `{interpreter}` is missing"),
            None => format!("cannot start `{shown}`: its dynamic loader is missing"),
        },
        Some(libc::EACCES) => format!("cannot start `{shown}`: {e} (is its file system mounted noexec?)"),
        Some(libc::E2BIG) => format!("cannot start `{shown}`: its arguments and environment are too long"),
        _ => format!("cannot start `{shown}`: {e}"),
    }
}

fn interpreter(program: &Path) -> Option<String> {
    let bytes = fs::read(program).ok()?;
    let line = bytes.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    String::from_utf8_lossy(line)
        .split_ascii_whitespace()
        .next()
        .map(str::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [
            ("a/tool", 0o755),
            ("b/tool", 0o755),
            ("b/data", 0o644),
            ("b/script", 0o755),
        ] {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "#!/no/such/shell -e\n").unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        }
        fs::create_dir(dir.path().join("a/script")).unwrap();
        dir
    }

    #[test]
    fn programs_are_found_as_execvp_would_but_on_absolute_entries_only() {
        let dir = tree();
        let root = dir.path().to_str().unwrap();
        let path = format!(":b:{root}/none:{root}/a:{root}/b");
        let cases = [
            ("tool", Some(&*path), Ok("a/tool")),
            ("script", Some(&*path), Ok("b/script")),
            ("./b/tool", None, Ok("./b/tool")),
            ("data", Some(&*path), Err("is not on PATH")),
            ("tool", Some(""), Err("is not on PATH")),
            ("tool", None, Err("has no PATH")),
            ("./b/data", None, Err("not an executable file")),
            ("./b", None, Err("not an executable file")),
            ("b/none", None, Err("No such file")),
            ("", Some(&*path), Err("empty")),
        ];
        for (name, path, want) in cases {
            match (find_program(name, path, dir.path()), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, dir.path().join(want), "{name}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{name}: {got}"),
                (got, want) => panic!("{name}: got {got:?}, want {want:?}"),
            }
        }
    }

    #[test]
    fn a_missing_interpreter_is_named() {
        let dir = tree();
        let program = dir.path().join("b/script");
        let e = start(&mut Command::new(&program), Setup::default()).unwrap_err();
        assert!(explain(&program, &e).ends_with("its interpreter `/no/such/shell` is missing"));
    }
}
