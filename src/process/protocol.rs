//! What bm and a supervisor say to each other: one JSON value per line, orders down, reports up.
//!
//! Owns the wire types and the framing. Knows nothing of processes.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};

use super::{Command, Outcome};

/// File descriptors at which a child finds the jobserver. High, because shell scripts (configure above
/// all) redirect the single-digit ones at will, and shells keep their own copies from 10 on.
pub(super) const JOBS_READ: i32 = 98;
/// See [`JOBS_READ`].
pub(super) const JOBS_WRITE: i32 = 99;

/// The job budget as a child sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Jobserver {
    /// The fifo that holds the tokens, absolute.
    pub fifo: PathBuf,
    /// Size of the whole budget.
    pub tokens: usize,
    /// Load of the machine from which make starts nothing new.
    pub load: Option<f64>,
}

impl Jobserver {
    /// What `MAKEFLAGS` must hold. The pipe form, since GNU make 4.3 dies on the fifo form; the leading
    /// space says that no single-letter options come first.
    pub fn makeflags(&self) -> String {
        let load = self.load.map(|load| format!(" -l{load}")).unwrap_or_default();
        format!(" -j{}{load} --jobserver-auth={JOBS_READ},{JOBS_WRITE}", self.tokens)
    }
}

/// From bm to the supervisor. The end of the stream means that bm died: kill everything at once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Always the first one.
    Start(Box<Start>),
    /// The user asked to stop: TERM to the group, KILL after the grace.
    Interrupt,
    /// KILL to everything.
    Kill,
    /// Stop the clock and all processes.
    Suspend,
    /// Go on.
    Resume,
    /// End a server: `signal` to the leader alone, KILL to all after `grace`.
    Quit { signal: i32, grace: Duration },
}

/// What to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub command: Command,
    pub jobs: Option<Jobserver>,
    pub grace: Duration,
}

/// From the supervisor to bm.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// The program runs; left out when it could not be started.
    Started { pid: i32 },
    /// Nothing is left of it.
    Ended(Outcome),
}

/// Writes one message.
pub(super) fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// bm's end of the control pipe, shared by the thread that waits for the step and the one that handles
/// signals. Dropping the last reference tells the supervisor to kill everything.
#[derive(Debug)]
pub(super) struct Control(Mutex<ChildStdin>);

impl Control {
    pub(super) fn new(pipe: ChildStdin) -> Self {
        Control(Mutex::new(pipe))
    }

    /// Sends an order.
    pub(super) fn send(&self, order: &Order) -> io::Result<()> {
        send(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), order)
    }

    /// Sends an order to a supervisor that may just have ended by itself; its report tells the rest.
    pub(super) fn tell(&self, order: &Order) {
        let _ = self.send(order);
    }
}

/// Messages read from a pipe, without blocking longer than the caller wants.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: Read + AsFd> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Lines {
            from,
            buffer: Vec::new(),
            ended: false,
        }
    }

    /// Reads what is there; blocks if there is nothing.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 8192];
        match self.from.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// The next whole line, without its end.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.iter().position(|&b| b == b'\n')?;
        let rest = self.buffer.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.pop();
        Some(line)
    }

    /// Whether the other end is closed and everything whole has been taken.
    pub(super) fn ended(&self) -> bool {
        self.ended && !self.buffer.contains(&b'\n')
    }
}

impl<R: AsFd> AsFd for Lines<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}

/// Waits until one of `fds` can be read (or its other end is closed); says which. `None` waits forever.
pub(super) fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.map(|fd| !fd.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok([false; N]),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_the_bytes_arrive() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut lines = Lines::new(reader);
        for (bytes, want) in [
            ("ab", vec![]),
            ("c\nd", vec!["abc"]),
            ("\n\nef\n", vec!["d", "", "ef"]),
            ("g", vec![]),
        ] {
            writer.write_all(bytes.as_bytes()).unwrap();
            lines.fill().unwrap();
            let got: Vec<_> = std::iter::from_fn(|| lines.next())
                .map(|l| String::from_utf8(l).unwrap())
                .collect();
            assert_eq!(got, want, "after {bytes:?}");
            assert!(!lines.ended());
        }
        drop(writer);
        lines.fill().unwrap();
        assert!(lines.ended(), "an unfinished line is not a message");
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn waiting_names_the_readable_end() {
        let (first, _keep) = io::pipe().unwrap();
        let (second, mut writer) = io::pipe().unwrap();
        let both = [first.as_fd(), second.as_fd()];
        assert_eq!(wait_readable(both, Some(Duration::ZERO)).unwrap(), [false, false]);
        writer.write_all(b"x").unwrap();
        assert_eq!(wait_readable(both, None).unwrap(), [false, true]);
    }

    #[test]
    fn makeflags_use_the_pipe_form() {
        let jobs = Jobserver {
            fifo: "/x".into(),
            tokens: 8,
            load: None,
        };
        assert_eq!(jobs.makeflags(), " -j8 --jobserver-auth=98,99");
    }
}
