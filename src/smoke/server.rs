//! The server under test: started under supervision, watched until it takes connections, stopped.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, Exit, Result};
use crate::process::{self, Ended, Outcome, Running};

use super::Terms;
use super::child::{Programs, describe};

/// Time between two looks at a server that starts or stops.
const GLANCE: Duration = Duration::from_millis(20);

/// How long it may live when nothing else ends it. The parts of the test have their own bounds.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Grace of a server that is no longer wanted, between its signal and a kill.
const ABANDON: Duration = Duration::from_secs(5);

/// One kind of server: how it is started, seen to be ready, and given up.
pub(super) struct Launch<'a> {
    /// Its program, below the prefix.
    pub(super) program: &'static str,
    /// Arguments.
    pub(super) args: &'a [&'a str],
    /// Whether the server with this process id takes connections; looked at without a client, since one that
    /// comes too early would leave errors in the log.
    pub(super) ready: &'a dyn Fn(i32) -> bool,
    /// Signal that ends it soon, when the test is over before its time; `None` for a kill.
    pub(super) abandon: Option<i32>,
}

/// A running server; dropping it ends it with all its processes.
#[derive(Debug)]
pub(super) struct Server {
    /// Taken when it is stopped.
    running: Option<Running>,
    pid: i32,
    abandon: Option<i32>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // There is a failure in hand that matters more; the supervisor leaves nothing behind.
            let _ = abandon(running, self.abandon);
        }
    }
}

/// Its signal and then a kill, or the kill alone.
fn abandon(running: Running, signal: Option<i32>) -> Result<()> {
    let outcome = match signal {
        Some(signal) => running.stop(signal, ABANDON),
        None => running.kill(),
    };
    outcome.map(drop)
}

impl Server {
    /// Starts it and waits until it takes connections.
    pub(super) fn start(programs: &Programs<'_>, launch: &Launch<'_>, terms: &Terms) -> Result<Self> {
        let command = programs.command(launch.program, launch.args, programs.log, LIFETIME);
        programs.note_call(&command.argv)?;
        let mut running = process::spawn(&command, programs.cancel, None, terms.stop)?;
        let deadline = Instant::now() + terms.start;
        loop {
            if running.has_ended()? {
                let outcome = running.wait()?;
                return Err(ended_early(programs, launch.program, &outcome.ended));
            }
            if let Some(pid) = running.pid().filter(|pid| (launch.ready)(*pid)) {
                return Ok(Server {
                    running: Some(running),
                    pid,
                    abandon: launch.abandon,
                });
            }
            if Instant::now() >= deadline {
                abandon(running, launch.abandon)?;
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

    /// Asks it to end by `signal`; what remains after `bound` is killed, and that is a failure.
    pub(super) fn stop(self, programs: &Programs<'_>, signal: i32, bound: Duration) -> Result<()> {
        let outcome = self.into_running().stop(signal, bound)?;
        judge_end(programs, outcome, bound)
    }

    /// Has a client ask it to end; what remains `bound` after that began is given up, and that is a failure.
    ///
    /// # Errors
    /// Also when the client fails while the server still has time.
    pub(super) fn stop_by(
        mut self,
        programs: &Programs<'_>,
        client: &str,
        args: &[&str],
        bound: Duration,
    ) -> Result<()> {
        let what = "cannot ask the server to stop";
        let deadline = Instant::now() + bound;
        let (ended, _) = programs.attempt(what, client, args)?;
        // A client that waits for the server's end gives up after the same time, and then the server is to blame.
        if ended != Ended::Exited(0) && Instant::now() < deadline {
            return Err(programs.failed_call(what, client, &ended));
        }
        loop {
            let running = self
                .running
                .as_mut()
                .expect("it is taken below, and there the loop ends");
            if running.has_ended()? {
                let outcome = self.into_running().wait()?;
                return judge_end(programs, outcome, bound);
            }
            if Instant::now() >= deadline {
                abandon(self.into_running(), None)?;
                return Err(too_slow(programs, bound));
            }
            sleep(GLANCE);
        }
    }

    fn into_running(mut self) -> Running {
        self.running
            .take()
            .expect("only those that end the server take it, and `drop`")
    }
}

fn judge_end(programs: &Programs<'_>, outcome: Outcome, bound: Duration) -> Result<()> {
    match outcome.ended {
        Ended::Exited(0) if outcome.strays.is_empty() => Ok(()),
        Ended::Exited(0) => Err(programs
            .failure("the server left processes behind")
            .detail("processes", outcome.strays.join(", "))),
        Ended::Limit(_) => Err(too_slow(programs, bound)),
        Ended::Interrupted => Err(interrupted()),
        ended => Err(programs.failure(format!("the server did not stop cleanly: it {}", describe(&ended)))),
    }
}

fn too_slow(programs: &Programs<'_>, bound: Duration) -> Error {
    let seconds = bound.as_secs_f64();
    programs.failure(format!("the server did not stop within {seconds} s"))
}

fn ended_early(programs: &Programs<'_>, program: &str, ended: &Ended) -> Error {
    match ended {
        Ended::Interrupted => interrupted(),
        ended => programs
            .failure("the server ended before it took connections")
            .detail(program, describe(ended)),
    }
}

fn interrupted() -> Error {
    Error::new(Exit::Interrupted, "interrupted: smoke test")
}
