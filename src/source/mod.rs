//! Getting sources: git mirrors and checkouts, release archives, the distribution's pristine
//! archives, patches, and the lockfile that remembers what was resolved.
//!
//! Owns everything between a URL and a source tree. Knows no recipe, no plan and no build: it is told
//! places and pins, and answers with bytes that match the pins, or with an error that names every
//! place tried. Only this module reaches the network.

mod apt_index;
mod apt_sources;
pub mod archive;
pub mod checkout;
pub mod distro;
pub mod git;
mod http;
pub mod local;
pub mod lockfile;
pub mod mirror;
pub mod patch;
mod repository;
pub mod tarball;
mod tree;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
pub use mirror::MirrorMap;

use crate::digest::sha256;
use crate::error::{Error, Exit, IoContext, Result};
use crate::process::{self, Cancel};
use crate::text::public_url;

/// Longest a single fetching child may take.
const CHILD_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// How this run may reach sources.
#[derive(Debug, Clone, Default)]
pub struct Net {
    /// Nothing but caches and local directories.
    pub offline: bool,
    /// Places to try before the original ones.
    pub mirrors: MirrorMap,
    /// The complete environment of fetching children (PATH, HOME, proxies, certificates, `SSH_AUTH_SOCK`).
    pub env: BTreeMap<String, String>,
    /// The user's wish to stop; looked at between children and while a download runs.
    pub cancel: Cancel,
}

/// Log of a fetch step: what was asked of whom, and what the children said.
#[derive(Debug, Clone, Default)]
pub struct Log(Option<PathBuf>);

impl Log {
    /// Appends to `path`, which is created when the first line comes.
    pub fn to(path: impl Into<PathBuf>) -> Self {
        Log(Some(path.into()))
    }

    /// Keeps nothing.
    pub fn none() -> Self {
        Log(None)
    }

    /// Appends one line. A log that cannot be written never fails a fetch: the fetch itself will
    /// meet the same full disk and report it with its own context.
    pub fn line(&self, text: impl AsRef<str>) {
        let Some(path) = &self.0 else { return };
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        if let Ok(mut file) = file {
            let _ = file.write_all(format!("{}\n", text.as_ref().trim_end()).as_bytes());
        }
    }
}

/// How a child ended and what it said.
#[derive(Debug)]
struct Ran {
    ok: bool,
    status: String,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    /// The last telling lines of what the child said, for an error.
    fn complaint(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let telling: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|l| ["fatal:", "error:", "E:", "remote:"].iter().any(|p| l.starts_with(p)))
            .collect();
        let chosen = if telling.is_empty() { lines } else { telling };
        match chosen.len() {
            0 => self.status.clone(),
            n => chosen[n.saturating_sub(3)..].join("; "),
        }
    }
}

/// The one place of `source` that starts a program. The environment is complete, stdin is `stdin`.
fn start(
    argv: &[String],
    env: &BTreeMap<String, String>,
    dir: &Path,
    stdin: &[u8],
    cancel: &Cancel,
    log: &Log,
) -> Result<Ran> {
    log.line(format!("+ {}", shown(argv)));
    let stdin = (!stdin.is_empty()).then_some(stdin);
    let captured =
        process::capture_until(argv, env, dir, stdin, CHILD_LIMIT, Some(cancel)).map_err(|e| match e.exit() {
            Exit::Interrupted => interrupted(),
            _ => disguised(&e, argv),
        })?;
    let ran = Ran {
        ok: captured.status.success(),
        status: captured.status.to_string(),
        stdout: captured.stdout,
        stderr: String::from_utf8_lossy(&captured.stderr).into_owned(),
    };
    log.line(&ran.stderr);
    if !ran.ok {
        log.line(format!("= {}", ran.status));
    }
    Ok(ran)
}

/// An argv as it goes to a log: quoted for a shell, without user names in URLs.
fn shown(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|w| public_url(w)).collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// An error of a child without the user names and passwords that URLs in its argv may hold.
fn disguised(e: &Error, argv: &[String]) -> Error {
    let public = |text: &str| text.replace(&argv.join(" "), &shown(argv));
    let error = Error::new(e.exit(), public(e.headline()));
    let error = e
        .details()
        .iter()
        .fold(error, |error, (k, v)| error.detail(k, public(v)));
    let error = e.causes().iter().fold(error, |error, c| error.caused_by(public(c)));
    match e.hint_text() {
        Some(hint) => error.hint(hint),
        None => error.hint("see what this host lacks: bm doctor"),
    }
}

/// Stops between two steps of a fetch when the user asked for it.
fn check_interrupt(cancel: &Cancel) -> Result<()> {
    match cancel.requested() {
        Some(_) => Err(interrupted()),
        None => Ok(()),
    }
}

fn interrupted() -> Error {
    Error::new(Exit::Interrupted, "interrupted while fetching sources")
}

/// Time between two looks at a lock that is held.
const POLL: Duration = Duration::from_millis(20);

/// Holds `path` as a lock until the value is dropped; waits for another holder, unless the user wishes
/// to stop. The file stays.
fn lock(path: &Path, cancel: &Cancel) -> Result<fs::File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).doing(|| "cannot create the cache".into())?;
    }
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .doing(|| "cannot open a lock file".into())?;
    loop {
        match file.file().try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(std::fs::TryLockError::Error(e)) => {
                return Err(Error::io(format!("cannot lock `{}`", path.display()), &e));
            }
        }
        check_interrupt(cancel)?;
        std::thread::sleep(POLL);
    }
}

/// Makes the entries of `dir` durable.
fn sync_dir(dir: &Path) -> Result<()> {
    fs::File::open(dir)
        .and_then(|d| d.sync_all())
        .doing(|| "cannot make a file durable".into())
}

/// Writes a small file so that a crash leaves the old text or the new one.
fn write_atomically(path: &Path, text: &[u8]) -> Result<()> {
    let doing = || format!("cannot write `{}`", path.display());
    let dir = path.parent().expect("files of the store have a parent directory");
    fs::create_dir_all(dir).doing(doing)?;
    let mut temp = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(dir)
        .doing(doing)?;
    temp.write_all(text).doing(doing)?;
    temp.as_file().sync_all().doing(doing)?;
    temp.persist(path).map_err(|e| e.error).doing(doing)?;
    sync_dir(dir)
}

/// Why one place did not serve (the next one is tried), or a failure that no other place can mend.
type Attempt<T> = Result<std::result::Result<T, String>>;

/// An error that lists each place tried with its failure.
fn all_failed(headline: String, failures: &[(String, String)]) -> Error {
    failures
        .iter()
        .fold(Error::new(Exit::Source, headline), |e, (place, why)| {
            e.detail("tried", format!("{place}: {why}"))
        })
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the tests of `source` share.

    use super::Net;

    /// Offline, with the test's own PATH only.
    pub fn net() -> Net {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
        Net {
            offline: true,
            env: [("PATH".into(), path), ("LC_ALL".into(), "C".into())].into(),
            ..Net::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_child_gets_only_its_environment_and_its_stdin() {
        let mut env = testing::net().env;
        env.insert("WORD".into(), "x".into());
        let argv = [
            "sh",
            "-c",
            "cat; env | grep -c -E '^(WORD|HOME|USER)='; echo oops >&2; exit 3",
        ]
        .map(String::from);
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("log");
        let ran = start(&argv, &env, temp.path(), b"in\n", &Cancel::default(), &Log::to(&log)).unwrap();
        assert!(!ran.ok);
        assert_eq!(ran.stdout, b"in\n1\n");
        assert_eq!(ran.complaint(), "oops");
        let logged = fs::read_to_string(&log).unwrap();
        assert!(
            logged.starts_with("+ sh -c ") && logged.contains("\noops\n"),
            "{logged}"
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_the_hosts_fault() {
        let error = start(
            &["/no/such/program".into()],
            &BTreeMap::new(),
            Path::new("/"),
            b"",
            &Cancel::default(),
            &Log::none(),
        )
        .unwrap_err();
        assert_eq!(error.exit(), Exit::Host);
        assert!(error.to_string().contains("/no/such/program"), "{error}");
        assert!(error.hint_text().is_some());
    }

    #[test]
    fn errors_and_logs_of_children_hide_passwords() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("log");
        let argv = ["/no/such/git".into(), "https://me:secret@x.org/a".into()];
        let error = start(
            &argv,
            &BTreeMap::new(),
            temp.path(),
            b"",
            &Cancel::default(),
            &Log::to(&log),
        )
        .unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "+ /no/such/git https://x.org/a\n");
    }

    #[test]
    fn complaints_prefer_lines_that_say_error() {
        let ran = Ran {
            ok: false,
            status: "exit status: 128".into(),
            stdout: vec![],
            stderr: "Cloning\nfatal: not found\nbye\n".into(),
        };
        assert_eq!(ran.complaint(), "fatal: not found");
        let silent = Ran {
            stderr: String::new(),
            ..ran
        };
        assert_eq!(silent.complaint(), "exit status: 128");
    }
}
