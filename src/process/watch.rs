//! The bounds and orders of one supervised program, from its start to the verdict on its end.
//!
//! Owns the clock, the size of the log, and the reason for a stop. Does not start, reap or report.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus};

use super::protocol::{Lines, Order, Start, wait_readable};
use super::{Ended, Limits, tree};

/// How often the log is looked at when one of its bounds is set.
const LOG_GLANCE: Duration = Duration::from_millis(50);

/// The state of the one supervised program.
pub(super) struct Watch {
    leader: Pid,
    log: File,
    limits: Limits,
    grace: Duration,
    /// Start, moved forward by the time spent suspended.
    since: Instant,
    log_start: u64,
    log_size: u64,
    log_grew: Instant,
    suspended: Option<Instant>,
    /// Why it was told to end; the first reason stays.
    reason: Option<Ended>,
    /// When everything is to be killed, and the reason if there is none yet.
    kill_at: Option<(Instant, String)>,
    /// Whether bm can still speak.
    connected: bool,
}

impl Watch {
    pub(super) fn new(leader: Pid, log: File, log_start: u64, start: &Start) -> Self {
        let now = Instant::now();
        Watch {
            leader,
            log,
            limits: start.command.limits,
            grace: start.grace,
            since: now,
            log_start,
            log_size: log_start,
            log_grew: now,
            suspended: None,
            reason: None,
            kill_at: None,
            connected: true,
        }
    }

    /// Acts on passed bounds; gives the time until the next look, `None` for no bound.
    pub(super) fn check_bounds(&mut self, now: Instant) -> io::Result<Option<Duration>> {
        if self.suspended.is_some() {
            return Ok(None);
        }
        if let Some((_, why)) = self.kill_at.take_if(|(at, _)| *at <= now) {
            self.reason.get_or_insert(Ended::Limit(why));
            tree::signal_all(self.leader, Signal::KILL);
        }
        if self.reason.is_none() {
            self.check_limits(now)?;
        }
        Ok(self.next_look(now))
    }

    fn check_limits(&mut self, now: Instant) -> io::Result<()> {
        let limits = self.limits;
        if limits.silent.is_some() || limits.log_bytes.is_some() {
            let size = self.log.metadata()?.len();
            if size != self.log_size {
                (self.log_size, self.log_grew) = (size, now);
            }
        }
        let written = self.log_size.saturating_sub(self.log_start);
        if let Some(limit) = limits.log_bytes.filter(|&limit| written > limit) {
            // At once: a grace would let it fill the disk.
            self.reason = Some(Ended::Limit(format!("its log grew beyond {limit} bytes")));
            tree::signal_all(self.leader, Signal::KILL);
        } else if let Some(limit) = limits.wall.filter(|&limit| now - self.since >= limit) {
            self.end_orderly(
                Ended::Limit(format!("it ran longer than {}", humantime::format_duration(limit))),
                now,
            );
        } else if let Some(limit) = limits.silent.filter(|&limit| now - self.log_grew >= limit) {
            self.end_orderly(
                Ended::Limit(format!("it wrote nothing for {}", humantime::format_duration(limit))),
                now,
            );
        }
        Ok(())
    }

    fn next_look(&self, now: Instant) -> Option<Duration> {
        let kill = self.kill_at.as_ref().map(|(at, _)| at.saturating_duration_since(now));
        if self.reason.is_some() {
            return kill;
        }
        let log = (self.limits.silent.is_some() || self.limits.log_bytes.is_some()).then_some(LOG_GLANCE);
        let wall = self.limits.wall.map(|limit| limit.saturating_sub(now - self.since));
        [kill, log, wall].into_iter().flatten().min()
    }

    /// Waits for an order, the end of a child, or the next look at the bounds.
    pub(super) fn wait_and_obey(
        &mut self,
        orders: &mut Lines<File>,
        children: &OwnedFd,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.connected {
            let [order, child] = wait_readable([orders.as_fd(), children.as_fd()], timeout)?;
            if order {
                orders.fill()?;
            }
            if child {
                forget(children);
            }
        } else if wait_readable([children.as_fd()], timeout)? == [true] {
            forget(children);
        }
        while let Some(line) = orders.next() {
            self.obey(&serde_json::from_slice(&line)?, Instant::now());
        }
        if self.connected && orders.ended() {
            self.connected = false;
            self.obey(&Order::Kill, Instant::now());
        }
        Ok(())
    }

    fn obey(&mut self, order: &Order, now: Instant) {
        match *order {
            // A second start is a bug of bm that does no harm.
            Order::Start(_) => {}
            Order::Interrupt => self.end_orderly(Ended::Interrupted, now),
            Order::Kill => {
                self.reason.get_or_insert(Ended::Interrupted);
                tree::signal_all(self.leader, Signal::KILL);
            }
            Order::Suspend if self.suspended.is_none() => {
                self.suspended = Some(now);
                tree::signal_all(self.leader, Signal::STOP);
            }
            Order::Suspend => {}
            Order::Resume => self.resume(now),
            Order::Quit { signal, grace } => self.quit(signal, grace, now),
        }
    }

    fn end_orderly(&mut self, reason: Ended, now: Instant) {
        self.resume(now);
        self.reason.get_or_insert(reason);
        self.kill_after(self.grace, "it did not end when asked to".to_owned(), now);
        let _ = rustix::process::kill_process_group(self.leader, Signal::TERM);
    }

    fn quit(&mut self, signal: i32, grace: Duration, now: Instant) {
        self.resume(now);
        // The bounds of a server end with the wish to stop it; from now on the grace is the bound.
        self.limits = Limits::default();
        let shown = humantime::format_duration(grace);
        self.kill_after(grace, format!("it still ran {shown} after signal {signal}"), now);
        // SAFETY: a plain system call; the leader has not been reaped, so its id is its own.
        unsafe {
            libc::kill(self.leader.as_raw_nonzero().get(), signal);
        }
    }

    /// Sets the time of the kill, unless an earlier one is set.
    fn kill_after(&mut self, grace: Duration, why: String, now: Instant) {
        let at = now.checked_add(grace);
        if let Some(at) = at.filter(|at| self.kill_at.as_ref().is_none_or(|(earlier, _)| at < earlier)) {
            self.kill_at = Some((at, why));
        }
    }

    fn resume(&mut self, now: Instant) {
        let Some(suspended) = self.suspended.take() else { return };
        let lost = now - suspended;
        self.since += lost;
        self.log_grew += lost;
        if let Some((at, _)) = &mut self.kill_at {
            *at += lost;
        }
        tree::signal_all(self.leader, Signal::CONT);
    }

    /// How it ended, and the last word on the log.
    pub(super) fn verdict(&mut self, status: WaitStatus) -> io::Result<Ended> {
        if let Some(limit) = self.limits.log_bytes {
            let bound = self.log_start.saturating_add(limit);
            if self.log.metadata()?.len() > bound {
                self.log.set_len(bound)?;
                self.reason
                    .get_or_insert(Ended::Limit(format!("its log grew beyond {limit} bytes")));
            }
        }
        Ok(self.reason.take().unwrap_or_else(|| match status.exit_status() {
            Some(code) => Ended::Exited(code),
            None => Ended::Signaled(status.terminating_signal().unwrap_or(libc::SIGKILL)),
        }))
    }
}

/// Clears the notice that a child ended; who it was is asked elsewhere.
fn forget(children: &OwnedFd) {
    // One notice stands for any number of children.
    let mut notice = [0u8; size_of::<libc::signalfd_siginfo>()];
    let _ = rustix::io::read(children, &mut notice);
}
