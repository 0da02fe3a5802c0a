//! Processes that use a directory, as `/proc` shows them.
//!
//! What other users' processes do is visible to root only; of those, an unprivileged bm sees the
//! command line, and takes its first word for the program.

use std::fmt;
use std::io::BufRead as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::disk;
use crate::error::{Error, Exit, Result};

/// A process and how it uses the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Short name of the program.
    pub program: String,
    /// `runs`, `maps`, `works in`, `has open`, and the path.
    pub uses: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (`{}`) {}", self.pid, self.program, self.uses)
    }
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Programs, libraries and working directories.
    Running,
    /// Open files too.
    Holding,
}

/// Processes that run from below `prefix`, map a file of it or work in it; bm itself does not count.
pub fn in_use(prefix: &Path) -> Result<Vec<Process>> {
    scan(prefix, Look::Running)
}

/// [`in_use`], and processes that have a file below `dir` open.
pub(super) fn holders(dir: &Path) -> Result<Vec<Process>> {
    scan(dir, Look::Holding)
}

/// Refuses to go on while a process runs from the prefix.
///
/// # Errors
/// [`Exit::Store`] with each process named.
pub fn refuse_if_in_use(prefix: &Path) -> Result<()> {
    let users = in_use(prefix)?;
    let Some(first) = users.first() else { return Ok(()) };
    let error = Error::new(Exit::Store, format!("prefix `{}` is in use", prefix.display()));
    let error = users.iter().fold(error, |error, user| error.detail("process", user));
    Err(error.hint(format!("stop it first: kill {}", first.pid)))
}

fn scan(dir: &Path, look: Look) -> Result<Vec<Process>> {
    // `/proc` shows real paths.
    let Ok(dir) = fs::canonicalize(dir) else {
        return Ok(vec![]);
    };
    let mut found = Vec::new();
    for name in disk::names_in(Path::new("/proc"))? {
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        // A process that ends meanwhile uses nothing.
        if let Some(uses) = use_of(pid, &dir, look) {
            let program = fs::read_to_string(proc_file(pid, "comm")).unwrap_or_default();
            found.push(Process {
                pid,
                program: program.trim_end().to_owned(),
                uses,
            });
        }
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

fn proc_file(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn use_of(pid: u32, dir: &Path, look: Look) -> Option<String> {
    let says = |verb: &str, path: &Path| Some(format!("{verb} `{}`", path.display()));
    let link = |file: &str| {
        fs::read_link(proc_file(pid, file))
            .ok()
            .filter(|path| path.starts_with(dir))
    };
    if let Some(path) = link("exe") {
        return says("runs", &path);
    }
    if let Some(path) = first_word(pid).filter(|path| path.starts_with(dir)) {
        return says("runs", &path);
    }
    if let Some(path) = link("cwd").or_else(|| link("root")) {
        return says("works in", &path);
    }
    if let Some(path) = mapped(pid, dir) {
        return says("maps", &path);
    }
    if look == Look::Holding {
        let fds = fs::read_dir(proc_file(pid, "fd")).ok()?;
        let open = fds
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .find(|path| path.starts_with(dir));
        return says("has open", &open?);
    }
    None
}

/// The first word of the command line, where the process is not ours to look into.
fn first_word(pid: u32) -> Option<PathBuf> {
    let line = fs::read(proc_file(pid, "cmdline")).ok()?;
    let word = line.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

fn mapped(pid: u32, dir: &Path) -> Option<PathBuf> {
    let maps = std::io::BufReader::new(fs::File::open(proc_file(pid, "maps")).ok()?);
    maps.split(b'\n').map_while(|line| line.ok()).find_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        let path = Path::new(std::ffi::OsStr::from_bytes(&line[start..]));
        path.starts_with(dir).then(|| path.to_path_buf())
    })
}

/// Whether a process was started with one of these `NAME=VALUE` in its environment.
pub(super) fn started_with(pid: u32, variables: &[String]) -> bool {
    let Ok(environment) = fs::read(proc_file(pid, "environ")) else {
        return false;
    };
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variables.iter().any(|wanted| wanted.as_bytes() == variable))
}

/// Kills a process and waits until it is gone. `still` is asked again once the process cannot be
/// mistaken for another one that got its id.
pub(super) fn kill(pid: u32, still: impl FnOnce() -> bool) -> Result<()> {
    let failed = |e: rustix::io::Errno| {
        Error::new(
            Exit::Store,
            format!("cannot end process {pid}, left over by a bm that died"),
        )
        .caused_by(e)
    };
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    let fd = match rustix::process::pidfd_open(id, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        fd => fd.map_err(failed)?,
    };
    if !still() {
        return Ok(());
    }
    match rustix::process::pidfd_send_signal(&fd, Signal::KILL) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        sent => sent.map_err(failed)?,
    }
    // Bounded: a process in an uninterruptible wait (a dead network disk) cannot be killed.
    let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    let mut gone = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    match rustix::event::poll(&mut gone, Some(&limit)).map_err(failed)? {
        0 => Err(failed(rustix::io::Errno::TIMEDOUT)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::store::fixture::Idle;

    const CAT: &str = "/bin/cat";

    #[test]
    fn a_process_is_found_by_its_program_its_place_and_its_open_files() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("pg");
        fs::create_dir_all(prefix.join("bin")).unwrap();
        refuse_if_in_use(&prefix).unwrap();

        let log = fs::File::create(prefix.join("log")).unwrap().into_parts().0;
        let child = Idle::start(CAT.as_ref(), |c| c.stderr(Stdio::from(log)));
        assert!(in_use(&prefix).unwrap().is_empty());
        assert!(holders(&prefix).unwrap()[0].uses.starts_with("has open"));
        drop(child);

        let child = Idle::start(CAT.as_ref(), |c| c.current_dir(prefix.join("bin")));
        let users = in_use(&prefix).unwrap();
        assert_eq!((users[0].pid, users[0].program.as_str()), (child.0.id(), "cat"));
        assert!(users[0].uses.starts_with("works in"), "{users:?}");
        // A sibling whose name begins alike is another directory.
        fs::create_dir(dir.path().join("p")).unwrap();
        assert!(in_use(&dir.path().join("p")).unwrap().is_empty());
        drop(child);
        assert!(in_use(&prefix).unwrap().is_empty());
    }

    #[test]
    fn a_killed_process_is_gone_afterwards() {
        let mut child = Idle::start(CAT.as_ref(), |c| c.env("MARK", "x"));
        assert!(started_with(child.0.id(), &["MARK=x".into()]));
        assert!(!started_with(child.0.id(), &["MARK=".into()]));
        kill(child.0.id(), || false).unwrap();
        assert_eq!(child.0.try_wait().unwrap(), None);
        kill(child.0.id(), || true).unwrap();
        assert!(!child.0.wait().unwrap().success());
    }
}
