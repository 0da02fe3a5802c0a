//! Child processes: one supervised step at a time, its output in a log file, nothing left behind.
//!
//! Owns spawning, signals to children, and the user's wish to stop. Knows nothing of builds or recipes.
//!
//! A step does not run as a direct child of bm but under a small supervisor process (bm itself, started
//! again with [`SUPERVISE`]), which adopts every descendant of the step and ends only after all of them.
//! If bm dies, the supervisor sees its control pipe close and kills everything. `supervisor` is the inside
//! of that process, `running` is bm's end of it, `protocol` is what they say to each other.

mod capture;
mod environment;
mod launch;
mod protocol;
mod running;
mod signals;
mod supervisor;
mod tree;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;

pub use capture::{Captured, capture, capture_until};
pub use environment::{base, fetch_extra, host_path, redo_by_hand};
pub use launch::unignore;
pub use protocol::Jobserver;
pub use running::{Running, set_supervisor, spawn};
pub use signals::{Cancel, Urgency, install_handlers};
pub use supervisor::{own_cpu, supervise};

/// First argument with which bm becomes the supervisor of one step; `main` passes it to [`supervise`].
pub const SUPERVISE: &str = "__supervise";

/// Time between asking a child to end and killing it, unless said otherwise.
pub const GRACE: Duration = Duration::from_secs(10);

/// An unprivileged account children may be started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id; supplementary groups are dropped.
    pub gid: u32,
}

/// Bounds of one child and its descendants. `None` is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Whole duration; time while suspended (Ctrl-Z) does not count.
    pub wall: Option<Duration>,
    /// Time without the log growing.
    pub silent: Option<Duration>,
    /// Bytes of log this child may add; what it wrote beyond them is cut off.
    pub log_bytes: Option<u64>,
}

/// A child before it runs. The environment is complete: nothing is inherited.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Command {
    /// Program (absolute path, or looked up on `env["PATH"]`) and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub dir: PathBuf,
    /// stdout and stderr are appended here.
    pub log: PathBuf,
    /// Bounds.
    pub limits: Limits,
    /// Account to run as, when bm is root.
    pub run_as: Option<Account>,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Exit status.
    Exited(i32),
    /// Killed by a signal that bm did not send.
    Signaled(i32),
    /// Stopped by bm: which bound was passed.
    Limit(String),
    /// Stopped by bm because the user asked.
    Interrupted,
    /// The program could not be started.
    NotStarted(String),
}

/// What a finished child cost, descendants included.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// Seconds of wall time.
    pub wall: f64,
    /// Seconds of user plus system CPU time.
    pub cpu: f64,
    /// Largest resident size of a single process, KiB.
    pub max_rss_kib: u64,
    /// Processes that outlived the leader and were killed: `pid name`.
    pub strays: Vec<String>,
}

impl Outcome {
    /// Whether the child exited with status 0.
    pub fn ok(&self) -> bool {
        self.ended == Ended::Exited(0)
    }
}

/// Runs `command` under a supervisor and waits for it and all its descendants.
///
/// `jobs` is the fifo of the job budget: where given, the child inherits it as a make jobserver and
/// `MAKEFLAGS` is set for it.
///
/// # Errors
/// Only for failures of bm or the host (log not writable, no more processes); a failing child is an
/// `Ok` with its [`Ended`].
pub fn run(command: &Command, cancel: &Cancel, jobs: Option<&Jobserver>) -> Result<Outcome> {
    spawn(command, cancel, jobs, GRACE)?.wait()
}
