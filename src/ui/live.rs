//! The live view: what is at work now, at the foot of the terminal; what is through, above it, where it stays.
//!
//! Owns the time of painting and the keys. What the lines are is `frame`'s, how they get to the terminal and leave
//! it again `terminal`'s.

use std::io::{self, IsTerminal as _, PipeReader, PipeWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{IoContext as _, Result};
use crate::model::event::{Event, What};
use crate::model::name::BuildName;

use super::frame::{Asked, Board};
use super::{Plain, Shell, View, tail, terminal};

/// Time between two paintings: logs seem to run, and bm's own share of the processor does not show.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Lines of a log that are kept ready; as many as a frame ever shows.
const LOG_LINES: usize = 40;

/// The view on a terminal. While it lives it has the terminal's foot and, where stdin is a terminal too, its keys;
/// dropping it gives both back.
#[derive(Debug)]
pub struct Live<'a> {
    shell: &'a Shell,
    state: Arc<Mutex<State>>,
    /// Closed to end the painter.
    alive: Option<PipeWriter>,
    painter: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    board: Board,
    help: bool,
    /// Whose log is shown.
    log_of: Option<BuildName>,
    /// When the run began.
    began: Option<Instant>,
}

/// What the painter may ask and tell of the run.
pub struct Stop {
    /// Asks for an orderly stop, as the first Ctrl-C does.
    pub ask: Box<dyn Fn() + Send>,
    /// Whether a stop was asked for.
    pub asked: Box<dyn Fn() -> bool + Send>,
}

/// Whether stderr is a terminal that can do what the live view needs.
pub fn possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stderr().is_terminal() && !dumb
}

/// Whether output is kept rather than watched, although a terminal may be there.
pub fn is_kept() -> bool {
    std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false" && ci != "0")
}

impl<'a> Live<'a> {
    /// Starts painting.
    ///
    /// # Errors
    /// When there are no threads or file descriptors left.
    pub fn start(shell: &'a Shell, stop: Stop) -> Result<Self> {
        let doing = || "cannot start the live view".to_owned();
        let state = Arc::new(Mutex::new(State::default()));
        let (wake, alive) = io::pipe().doing(doing)?;
        let painter = {
            let state = Arc::clone(&state);
            let thread = std::thread::Builder::new().name("live view".to_owned());
            thread.spawn(move || paint(&state, &wake, &stop)).doing(doing)?
        };
        Ok(Live {
            shell,
            state,
            alive: Some(alive),
            painter: Some(painter),
        })
    }
}

impl View for Live<'_> {
    fn on(&self, event: &Event) {
        {
            let mut state = lock(&self.state);
            let now = Instant::now();
            let at = std::time::Duration::try_from_secs_f64(event.at).unwrap_or_default();
            state.began.get_or_insert_with(|| now.checked_sub(at).unwrap_or(now));
            state.board.on(event);
        }
        if matches!(event.what, What::BuildEnded { .. }) {
            Plain(self.shell).on(event);
        }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(painter) = self.painter.take() {
            // If it panicked that was reported; the run goes on without a picture.
            let _ = painter.join();
        }
        terminal::restore();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn paint(state: &Mutex<State>, wake: &PipeReader, stop: &Stop) {
    let mut hung_up = false;
    loop {
        let foreground = terminal::in_foreground();
        let keys = foreground && !hung_up && terminal::listen_to_keys();
        if foreground {
            read_logs(state);
            let (width, height) = terminal::size();
            terminal::set_foot(lines(state, keys, (stop.asked)(), width, height));
        } else {
            terminal::forget_foot();
        }
        let keyboard = terminal::keyboard();
        let mut ready = vec![PollFd::new(wake, PollFlags::IN)];
        if keys {
            ready.push(PollFd::from_borrowed_fd(keyboard, PollFlags::IN));
        }
        if poll(&mut ready, Some(&TICK)).is_err() {
            continue; // a signal
        }
        if !ready[0].revents().is_empty() {
            return;
        }
        match ready.get(1).map(PollFd::revents) {
            Some(what) if what.intersects(PollFlags::HUP | PollFlags::ERR) => hung_up = true,
            Some(what) if what.contains(PollFlags::IN) => match terminal::keys() {
                Some(pressed) => on_keys(&mut lock(state), &pressed, stop),
                None => hung_up = true,
            },
            _ => {}
        }
    }
}

/// Reads the ends of logs, without keeping those waiting who tell of events meanwhile.
fn read_logs(state: &Mutex<State>) {
    let logs: Vec<_> = lock(state).board.active().map(|(_, a)| a.log.clone()).collect();
    for log in logs {
        let line = tail::tail(&log, tail::ONE_LINE, 1).pop().unwrap_or_default();
        let mut state = lock(state);
        if let Some(active) = state.board.active_mut().find(|a| a.log == log) {
            if !line.is_empty() {
                active.written = log;
            }
            active.last_line = line;
        }
    }
}

fn lines(state: &Mutex<State>, keys: bool, stopping: bool, width: usize, height: usize) -> Vec<String> {
    let log = {
        let state = lock(state);
        let of = |name: &BuildName| {
            let mut active = state.board.active();
            active.find_map(|(_, a)| (a.build == *name).then(|| (name.clone(), a.written.clone())))
        };
        state.log_of.as_ref().and_then(of)
    };
    let log = log.map(|(name, path)| (name, tail::tail(&path, tail::PAGE, LOG_LINES)));
    let state = lock(state);
    let Some(began) = state.began else { return Vec::new() };
    let asked = Asked {
        keys,
        help: state.help && keys,
        log,
        stopping,
    };
    state.board.frame(&asked, began.elapsed().as_secs_f64(), width, height)
}

fn on_keys(state: &mut State, pressed: &[u8], stop: &Stop) {
    const ESCAPE: u8 = 0x1b;
    // Arrows and the like begin with an escape, too; they mean nothing here.
    if pressed.len() > 1 && pressed[0] == ESCAPE {
        return;
    }
    for key in pressed {
        match key {
            b'q' => (stop.ask)(),
            b'?' => state.help = !state.help,
            b'l' => {
                let at_work = state.board.active().filter(|(place, _)| *place > 0);
                let names: Vec<BuildName> = at_work.map(|(_, a)| a.build.clone()).collect();
                let at = names.iter().position(|n| Some(n) == state.log_of.as_ref());
                // After the last one comes none.
                state.log_of = names.get(at.map_or(0, |at| at + 1)).cloned();
            }
            b'1'..=b'9' => {
                let place = usize::from(key - b'0');
                let mut active = state.board.active();
                let chosen = active.find_map(|(n, a)| (n == place).then(|| a.build.clone()));
                drop(active);
                state.log_of = chosen.filter(|name| Some(name) != state.log_of.as_ref());
            }
            &ESCAPE | b'0' => state.log_of = None,
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::model::step::StepName;

    #[test]
    fn keys_choose_a_log_and_ask_for_a_stop() {
        let mut state = State::default();
        for name in ["a", "b"] {
            state.board.on(&Event {
                at: 0.0,
                what: What::StepBegun {
                    build: name.parse().unwrap(),
                    step: StepName::Compile,
                    log: PathBuf::new(),
                    estimate: None,
                },
            });
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let stop = Stop {
            ask: Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            }),
            asked: Box::new(|| false),
        };
        let mut press = |keys: &str| {
            on_keys(&mut state, keys.as_bytes(), &stop);
            (state.log_of.as_ref().map(ToString::to_string), state.help)
        };
        assert_eq!(press("l").0.as_deref(), Some("a"));
        assert_eq!(press("l").0.as_deref(), Some("b"));
        assert_eq!(press("l").0, None);
        assert_eq!(press("2").0.as_deref(), Some("b"));
        assert_eq!(press("1").0.as_deref(), Some("a"));
        assert_eq!(press("1").0, None, "the same key closes it");
        assert_eq!(press("7").0, None);
        assert_eq!(press("ll\u{1b}").0.as_deref(), None);
        press("2");
        assert_eq!(press("\u{1b}[A").0.as_deref(), Some("b"), "an arrow is no escape");
        assert!(press("?").1 && !press("?").1);
        press("q");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
