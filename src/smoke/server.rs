//! The server under test: started under supervision, watched until it takes connections, stopped.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::error::{Error, Exit, Result};
use crate::process::{self, Ended, Running};

use super::Terms;
use super::child::{Programs, describe};
use super::parse::{self, Readiness};

/// Time between two looks at a starting server.
const GLANCE: Duration = Duration::from_millis(20);

/// How long it may live when nothing else ends it. The parts of the test have their own bounds.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Grace of a server that is no longer wanted. Ended this way it removes its shared memory, which a
/// kill would leave to the next reboot.
const ABANDON: Duration = Duration::from_secs(5);

/// A running server; dropping it ends it with all its processes.
#[derive(Debug)]
pub(super) struct Server {
    /// Taken when it is stopped.
    running: Option<Running>,
    pid: i32,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // There is a failure in hand that matters more; the supervisor leaves nothing behind.
            let _ = abandon(running);
        }
    }
}

/// Immediate shutdown, then a kill.
fn abandon(running: Running) -> Result<()> {
    running.stop(libc::SIGQUIT, ABANDON).map(drop)
}

impl Server {
    /// Starts `bin/postgres` on the cluster `data` and waits until it takes connections.
    ///
    /// Its own pid file says so; a client that tries too early would leave errors in the log.
    pub(super) fn start(programs: &Programs<'_>, args: &[&str], data: &Path, terms: &Terms) -> Result<Self> {
        let command = programs.command("bin/postgres", args, programs.log, LIFETIME);
        programs.note_call(&command.argv)?;
        let mut running = process::spawn(&command, programs.cancel, None, terms.stop)?;
        let deadline = Instant::now() + terms.start;
        loop {
            if running.has_ended()? {
                let outcome = running.wait()?;
                return Err(ended_early(programs, &outcome.ended));
            }
            if let Some((pid, Readiness::Ready)) = read_pid(data)
                && Some(pid) == running.pid()
            {
                return Ok(Server {
                    running: Some(running),
                    pid,
                });
            }
            if Instant::now() >= deadline {
                abandon(running)?;
                let seconds = terms.start.as_secs_f64();
                return Err(programs.failure(format!("the server took no connections within {seconds} s")));
            }
            sleep(GLANCE);
        }
    }

    /// Process id of the server's first process.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Fast shutdown; what remains after `bound` is killed, and that is a failure.
    pub(super) fn stop(mut self, programs: &Programs<'_>, bound: Duration) -> Result<()> {
        let running = self
            .running
            .take()
            .expect("only `stop` and `drop` take it, and both end it");
        let outcome = running.stop(libc::SIGINT, bound)?;
        match outcome.ended {
            Ended::Exited(0) if outcome.strays.is_empty() => Ok(()),
            Ended::Exited(0) => Err(programs
                .failure("the server left processes behind")
                .detail("processes", outcome.strays.join(", "))),
            Ended::Limit(_) => {
                let seconds = bound.as_secs_f64();
                Err(programs.failure(format!("the server did not stop within {seconds} s")))
            }
            Ended::Interrupted => Err(interrupted()),
            ended => Err(programs.failure(format!("the server did not stop cleanly: it {}", describe(&ended)))),
        }
    }
}

fn ended_early(programs: &Programs<'_>, ended: &Ended) -> Error {
    match ended {
        Ended::Interrupted => interrupted(),
        ended => programs
            .failure("the server ended before it took connections")
            .detail("bin/postgres", describe(ended)),
    }
}

fn interrupted() -> Error {
    Error::new(Exit::Interrupted, "interrupted: smoke test")
}

fn read_pid(data: &Path) -> Option<(i32, Readiness)> {
    parse::postmaster_pid(&fs::read_to_string(data.join("postmaster.pid")).ok()?)
}
