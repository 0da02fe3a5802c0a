//! The user's wish to stop or pause, from the terminal's signals to every running child.
//!
//! Owns bm's signal handlers. Children never see the terminal's signals: they live in sessions of their own
//! and are told by their supervisors.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::protocol::{Control, Order};
use crate::error::{IoContext, Result};

/// How a stop is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Children may clean up within their grace; nothing new starts.
    Orderly = 1,
    /// Children are killed at once.
    Kill = 2,
}

/// Stop request shared by all steps of a run. First Ctrl-C: orderly, second: at once.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    urgency: AtomicU8,
    children: Mutex<Vec<Weak<Control>>>,
    around_sleep: OnceLock<[fn(); 2]>,
}

impl Cancel {
    /// Whether, and how, everything is to stop.
    pub fn requested(&self) -> Option<Urgency> {
        match self.0.urgency.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Urgency::Orderly),
            _ => Some(Urgency::Kill),
        }
    }

    /// Asks for a stop; never weakens an earlier request.
    pub fn request(&self, urgency: Urgency) {
        self.0.urgency.fetch_max(urgency as u8, Ordering::Relaxed);
    }

    /// One more signal from the user: the first asks for an orderly stop, the next ones to kill.
    pub fn escalate(&self) {
        match self.requested() {
            None => self.request(Urgency::Orderly),
            Some(_) => self.request(Urgency::Kill),
        }
    }

    /// Makes a child known, so that it is suspended with bm. Waits while bm is being suspended, so that no
    /// child starts behind its back.
    pub(super) fn register(&self, child: &Arc<Control>) {
        let mut children = self.0.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|known| known.strong_count() > 0);
        children.push(Arc::downgrade(child));
    }

    /// Has `before` called when bm is about to be suspended, and `after` when it goes on: whoever changed the
    /// terminal puts it back in between. Only the first call counts.
    pub fn around_sleep(&self, before: fn(), after: fn()) {
        let _ = self.0.around_sleep.set([before, after]);
    }

    /// Suspends all children, calls `sleep`, which returns when bm may go on, and resumes them.
    fn suspend(&self, sleep: impl FnOnce()) {
        let children = self.0.children.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = |order: &Order| {
            children
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|child| child.tell(order))
        };
        tell(&Order::Suspend);
        if let Some([before, _]) = self.0.around_sleep.get() {
            before();
        }
        sleep();
        if let Some([_, after]) = self.0.around_sleep.get() {
            after();
        }
        tell(&Order::Resume);
    }
}

/// Turns INT, TERM and HUP into requests to stop, and TSTP (Ctrl-Z) into a pause of the children and of bm.
/// Signals that bm was started to ignore (`nohup bm ...`, `bm ... &` in a script) stay ignored.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn install_handlers(cancel: &Cancel) -> Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGTSTP]
        .into_iter()
        .filter(|&signal| !is_ignored(signal));
    let mut signals = Signals::new(wanted).doing(|| "cannot install signal handlers".to_owned())?;
    let cancel = cancel.clone();
    let handle = move || {
        for signal in signals.forever() {
            match signal {
                SIGTSTP => cancel.suspend(stop_self),
                _ => cancel.escalate(),
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(handle)
        .doing(|| "cannot start the signal thread".to_owned())?;
    Ok(())
}

/// Stops this process as Ctrl-Z would; returns when it is continued.
fn stop_self() {
    // `raise` signals this very thread, so the stop takes effect before the call returns; a signal to the
    // process could be taken by another thread while this one goes on to resume the children.
    let _ = signal_hook::low_level::raise(libc::SIGSTOP);
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: with a null action sigaction only writes the current one to `now`, which is plain data.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_second_signal_kills_and_nothing_weakens_it() {
        let cancel = Cancel::default();
        let same = cancel.clone();
        assert_eq!(cancel.requested(), None);
        same.escalate();
        assert_eq!(cancel.requested(), Some(Urgency::Orderly));
        cancel.request(Urgency::Orderly);
        assert_eq!(
            cancel.requested(),
            Some(Urgency::Orderly),
            "a repeated request is no second signal"
        );
        same.escalate();
        assert_eq!(cancel.requested(), Some(Urgency::Kill));
        cancel.request(Urgency::Orderly);
        cancel.escalate();
        assert_eq!(cancel.requested(), Some(Urgency::Kill));
    }

    #[test]
    fn children_are_suspended_before_and_resumed_after() {
        let cancel = Cancel::default();
        let mut cat = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let control = Arc::new(Control::new(cat.stdin.take().unwrap()));
        cancel.register(&control);
        let mut lines = super::super::protocol::Lines::new(cat.stdout.take().unwrap());
        let mut line = || {
            loop {
                if let Some(line) = lines.next() {
                    return String::from_utf8(line).unwrap();
                }
                lines.fill().unwrap();
            }
        };
        let mut slept = false;
        cancel.suspend(|| {
            assert_eq!(line(), r#""suspend""#);
            slept = true;
        });
        assert!(slept);
        assert_eq!(line(), r#""resume""#);
        drop(control);
        cat.wait().unwrap();
        cancel.suspend(|| ());
    }
}
