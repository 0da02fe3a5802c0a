//! Short probes (`gcc --version`): output in memory, no supervisor, no log.
//!
//! Never inherits bm's environment or terminal. For programs that end in seconds; a build step goes through
//! [`super::run`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::Cancel;
use super::launch::{self, Setup};
use crate::error::{Error, Exit, IoContext, Result};

/// Most bytes of each stream a probe may print.
const CAP: usize = 8 << 20;

/// Longest wait for an event: how late the end of a program is seen where the kernel has no pidfd.
const TICK: Duration = Duration::from_millis(20);

/// What a probe printed, and how it ended.
#[derive(Debug)]
pub struct Captured {
    /// Exit status.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a short program with exactly the environment `env` in directory `dir`, and gives what it printed. Its
/// process group is killed when it ends, after `timeout`, and when it prints more than 8 MiB.
///
/// # Errors
/// [`Exit::Host`] if it cannot be started, does not end in time, or prints too much. A failing program is an
/// `Ok` with its status.
pub fn capture<S: AsRef<OsStr>>(
    argv: &[S],
    env: &BTreeMap<String, String>,
    dir: &Path,
    stdin: Option<&[u8]>,
    timeout: Duration,
) -> Result<Captured> {
    capture_until(argv, env, dir, stdin, timeout, None)
}

/// Like [`capture`], for a program that may take long: it is also killed when a stop is asked for.
///
/// # Errors
/// As [`capture`]; [`Exit::Interrupted`] after a stop.
pub fn capture_until<S: AsRef<OsStr>>(
    argv: &[S],
    env: &BTreeMap<String, String>,
    dir: &Path,
    stdin: Option<&[u8]>,
    timeout: Duration,
    cancel: Option<&Cancel>,
) -> Result<Captured> {
    let words: Vec<&OsStr> = argv.iter().map(AsRef::as_ref).collect();
    let shown = words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut probe = Probe {
        child: start(&words, env, dir, stdin.is_some(), &shown)?,
        stdin: stdin.unwrap_or_default(),
    };
    let outcome = probe.collect(timeout, cancel);
    // The group goes while the dead leader still reserves its number.
    let _ = kill_process_group(Pid::from_child(&probe.child), Signal::KILL);
    let status = probe.child.wait().doing(|| format!("cannot wait for `{shown}`"))?;
    let (stdout, stderr) = match outcome.doing(|| format!("cannot read from `{shown}`"))? {
        Collected::All { stdout, stderr } => (stdout, stderr),
        Collected::Stopped => {
            return Err(Error::new(
                Exit::Interrupted,
                format!("interrupted while `{shown}` ran"),
            ));
        }
        Collected::TimedOut => {
            let limit = humantime::format_duration(timeout);
            return Err(Error::new(Exit::Host, format!("`{shown}` did not end within {limit}")));
        }
        Collected::TooMuch => {
            return Err(Error::new(
                Exit::Host,
                format!("`{shown}` printed more than {} MiB", CAP >> 20),
            ));
        }
    };
    Ok(Captured { status, stdout, stderr })
}

fn start(words: &[&OsStr], env: &BTreeMap<String, String>, dir: &Path, with_stdin: bool, shown: &str) -> Result<Child> {
    let failed = |why: String| Error::new(Exit::Host, format!("cannot run `{shown}`")).caused_by(why);
    let name = words
        .first()
        .ok_or_else(|| Error::new(Exit::Bug, "a command without a program"))?;
    if !dir.is_dir() {
        return Err(failed(format!("its directory `{}` does not exist", dir.display())));
    }
    let dir = std::path::absolute(dir).doing(|| format!("cannot use directory `{}`", dir.display()))?;
    let path = env.get("PATH").map(String::as_str);
    let called = name.to_string_lossy();
    let program = launch::find_program(&called, path, &dir).map_err(failed)?;
    let mut command = Command::new(launch::as_called(&called, &program));
    command
        .arg0(name)
        .args(&words[1..])
        .env_clear()
        .envs(env)
        .current_dir(&dir);
    command.stdin(if with_stdin { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    launch::start(&mut command, Setup::default()).map_err(|e| failed(launch::explain(&program, &e)))
}

enum Collected {
    All { stdout: Vec<u8>, stderr: Vec<u8> },
    Stopped,
    TimedOut,
    TooMuch,
}

/// One end of a pipe and what has come out of it.
struct Stream<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> Stream<R> {
    fn new(pipe: Option<R>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            unblock(pipe)?;
        }
        Ok(Stream {
            pipe,
            bytes: Vec::new(),
        })
    }

    /// Takes what is there now.
    fn drain(&mut self) -> io::Result<()> {
        let mut chunk = [0; 65536];
        while let Some(pipe) = &mut self.pipe
            && self.bytes.len() <= CAP
        {
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn unblock(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

struct Probe<'a> {
    child: Child,
    stdin: &'a [u8],
}

impl Probe<'_> {
    /// Feeds and reads until the program has ended. The end of the streams is no criterion: a process it left
    /// behind may hold them open for ever.
    fn collect(&mut self, timeout: Duration, cancel: Option<&Cancel>) -> io::Result<Collected> {
        let mut stdout = Stream::new(self.child.stdout.take())?;
        let mut stderr = Stream::new(self.child.stderr.take())?;
        if let Some(pipe) = &self.child.stdin {
            unblock(pipe)?;
        }
        let pid = Pid::from_child(&self.child);
        let ending = pidfd_open(pid, PidfdFlags::empty()).ok();
        let began = Instant::now();
        loop {
            let ended = super::tree::is_dead(pid)?;
            self.feed();
            stdout.drain()?;
            stderr.drain()?;
            if stdout.bytes.len() > CAP || stderr.bytes.len() > CAP {
                return Ok(Collected::TooMuch);
            }
            if ended {
                return Ok(Collected::All {
                    stdout: stdout.bytes,
                    stderr: stderr.bytes,
                });
            }
            if cancel.is_some_and(|c| c.requested().is_some()) {
                return Ok(Collected::Stopped);
            }
            let mut left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(Collected::TimedOut);
            }
            if cancel.is_some() {
                // Nothing wakes this thread when another one takes the signal.
                left = left.min(TICK);
            }
            self.wait(stdout.pipe.as_ref(), stderr.pipe.as_ref(), ending.as_ref(), left)?;
        }
    }

    /// Writes what the program takes now; closes its input after the last byte or when it no longer reads.
    fn feed(&mut self) {
        while let Some(pipe) = &mut self.child.stdin {
            match pipe.write(self.stdin) {
                Ok(n) if n < self.stdin.len() => self.stdin = &self.stdin[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => self.child.stdin = None,
            }
        }
    }

    fn wait(
        &self,
        stdout: Option<&impl AsFd>,
        stderr: Option<&impl AsFd>,
        ending: Option<&OwnedFd>,
        left: Duration,
    ) -> io::Result<()> {
        let mut fds = Vec::with_capacity(4);
        fds.extend(stdout.map(|p| PollFd::new(p, PollFlags::IN)));
        fds.extend(stderr.map(|p| PollFd::new(p, PollFlags::IN)));
        fds.extend(ending.map(|p| PollFd::new(p, PollFlags::IN)));
        fds.extend(self.child.stdin.as_ref().map(|p| PollFd::new(p, PollFlags::OUT)));
        let longest = if ending.is_some() { left } else { left.min(TICK) };
        let timeout = Timespec::try_from(longest).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn env() -> BTreeMap<String, String> {
        [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into()
    }

    fn sh(script: &str, stdin: Option<&[u8]>, timeout: Duration) -> Result<Captured> {
        capture(&["sh", "-c", script], &env(), Path::new("/"), stdin, timeout)
    }

    #[test]
    fn output_status_and_input_are_the_programs_own() {
        let got = sh("cat; echo err >&2; exit 3", Some(b"in\0put"), LONG).unwrap();
        assert_eq!(
            (got.stdout, got.stderr, got.status.code()),
            (b"in\0put".to_vec(), b"err\n".to_vec(), Some(3))
        );
        let got = sh("cat; pwd; kill -9 $$", None, LONG).unwrap();
        assert_eq!(got.stdout, b"/\n", "without input there is /dev/null");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&got.status), Some(9));
    }

    #[test]
    fn the_environment_is_exactly_the_given_one() {
        let env = [("A".to_owned(), "1 2".to_owned())].into();
        let got = capture(&["/usr/bin/env"], &env, Path::new("/"), None, LONG).unwrap();
        assert_eq!(got.stdout, b"A=1 2\n");
    }

    #[test]
    fn a_stop_ends_a_program_that_would_go_on() {
        let cancel = Cancel::default();
        let until = |script: &str| {
            let argv = ["sh", "-c", script];
            capture_until(&argv, &env(), Path::new("/"), None, LONG, Some(&cancel))
        };
        assert!(until("exit 0").unwrap().status.success());
        let dir = tempfile::tempdir().unwrap();
        let begun = dir.path().join("begun");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &begun,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let result = std::thread::scope(|scope| {
            let run = scope.spawn(|| until(&format!("echo $$ > '{}'; exec cat < '{0}'", begun.display())));
            let pid = std::fs::read_to_string(&begun).unwrap();
            cancel.request(crate::process::Urgency::Orderly);
            (pid, run.join().unwrap())
        });
        assert_eq!(result.1.unwrap_err().exit(), Exit::Interrupted);
        assert!(
            !Path::new("/proc").join(result.0.trim()).exists(),
            "it is gone and reaped"
        );
    }

    #[test]
    fn much_input_and_much_output_do_not_block_each_other() {
        let input = vec![b'x'; 3 << 20];
        let got = sh("tee /dev/stderr", Some(&input), LONG).unwrap();
        assert!(got.stdout == input && got.stderr == input);
        let got = sh("exit 0", Some(&input), LONG).unwrap();
        assert!(got.status.success(), "a program need not read its input");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("alive");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), libc::O_NONBLOCK);
        let mut alive = options.open(&fifo).unwrap();
        let script = "exec 9>alive; echo started >&9; sleep 1000 & exec sleep 1000";
        let e = capture(&["sh", "-c", script], &env(), dir.path(), None, Duration::from_secs(1)).unwrap_err();
        assert_eq!(e.headline(), format!("`sh -c {script}` did not end within 1s"));
        assert_eq!(e.exit(), Exit::Host);
        // The end of the stream is the end of both.
        let mut said = Vec::new();
        let long = Timespec { tv_sec: 30, tv_nsec: 0 };
        while said.is_empty() || alive.read_to_end(&mut said).is_err() {
            assert_eq!(
                poll(&mut [PollFd::new(&alive, PollFlags::IN)], Some(&long)),
                Ok(1),
                "something lives on"
            );
            let _ = alive.read_to_end(&mut said);
        }
        assert_eq!(said, b"started\n");
    }

    #[test]
    fn a_background_process_that_holds_the_output_delays_nothing() {
        let began = Instant::now();
        let got = sh("setsid sleep 30 & echo $!; exit 0", None, LONG).unwrap();
        assert!(began.elapsed() < Duration::from_secs(20));
        let pid: i32 = String::from_utf8(got.stdout).unwrap().trim().parse().unwrap();
        // Outside its group only by setsid; not a thing a probe does, and the test cleans up after itself.
        let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }

    #[test]
    fn endless_output_is_cut() {
        let e = sh("exec cat /dev/zero", None, LONG).unwrap_err();
        assert_eq!(e.headline(), "`sh -c exec cat /dev/zero` printed more than 8 MiB");
    }

    #[test]
    fn a_missing_program_or_directory_is_said() {
        let cases = [
            (
                vec!["no-such-tool", "-v"],
                "/",
                "cannot run `no-such-tool -v`",
                "`no-such-tool` is not on PATH",
            ),
            (
                vec!["sh"],
                "/no/such",
                "cannot run `sh`",
                "its directory `/no/such` does not exist",
            ),
        ];
        for (argv, dir, headline, cause) in cases {
            let e = capture(&argv, &env(), Path::new(dir), None, LONG).unwrap_err();
            assert_eq!((e.headline(), e.exit()), (headline, Exit::Host));
            assert!(e.causes()[0].starts_with(cause), "{e}");
        }
    }
}
