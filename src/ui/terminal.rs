//! The terminal on stderr: the lines that stay at its foot while all others go above them, and the modes of its
//! keyboard.
//!
//! Owns cursor, erasing, and what has to be put back at every end. Does not know what the lines say.
//!
//! A painter of our own and not a crate of progress bars: what is shown is lines made from state, which tests read
//! as text; what such crates bring (bars with tickers and templates of their own) would stand between. And they
//! leave alone what is most of the work here: keys, Ctrl-Z, the background, and lines of others above.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use unicode_width::UnicodeWidthChar as _;

/// The one terminal of this process. Not a part of [`super::Shell`]: the report of a panic comes from a shell of
/// its own, and it, too, has to go above the foot.
static SCREEN: Mutex<Screen> = Mutex::new(Screen {
    foot: Vec::new(),
    painted: false,
    away: false,
    before_keys: None,
});

struct Screen {
    /// Lines at the foot, styled, and their widths in columns.
    foot: Vec<(String, usize)>,
    /// Whether they stand on the screen now.
    painted: bool,
    /// Suspended: nothing is painted until [`resume`].
    away: bool,
    /// The keyboard's modes as they were, while keys are read one by one.
    before_keys: Option<Termios>,
}

/// Size where the terminal does not tell one.
const USUAL: (usize, usize) = (80, 24);

/// Columns and rows of the terminal on stderr.
pub(super) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// Writes a block of lines to stderr, above the foot. Colour codes are taken out where they are not wanted.
pub(super) fn print(text: &str) {
    let text = tinted(text);
    let Some(mut screen) = lock() else {
        return write(&format!("{text}\n"));
    };
    let erase = screen.erase();
    write(&if erase.is_empty() {
        format!("{text}\n")
    } else {
        format!("{HOLD}{erase}{text}\n{}{RELEASE}", screen.paint())
    });
}

/// Runs `f`, which writes to stdout, with the foot gone where that is a terminal, the same one most likely. The foot
/// comes back afterwards. A pipe may keep its writer waiting for long, and nobody else is to wait with it.
pub(super) fn aside<T>(f: impl FnOnce() -> T) -> T {
    if !io::stdout().is_terminal() {
        return f();
    }
    let Some(mut screen) = lock() else { return f() };
    let erase = screen.erase();
    write(&erase);
    let result = f();
    if !erase.is_empty() {
        write(&screen.paint());
    }
    result
}

/// Puts lines at the foot, in place of those that are there.
pub(super) fn set_foot(lines: Vec<String>) {
    let Some(mut screen) = lock() else { return };
    if screen.away {
        return;
    }
    let lines: Vec<(String, usize)> = lines.into_iter().map(|l| (tinted(&l), columns(&l))).collect();
    if screen.painted && screen.foot == lines {
        return;
    }
    let up = screen.up();
    screen.foot = lines;
    let paint = screen.paint();
    write(&format!("{HOLD}{up}{paint}{RELEASE}"));
}

/// The foot is no longer ours to erase: others have written since, as a shell does while bm is in its background.
pub(super) fn forget_foot() {
    if let Some(mut screen) = lock() {
        screen.painted = false;
        screen.foot.clear();
    }
}

/// The end of all painting: no foot, and the keyboard as it was. May be called at any time, and twice.
pub(super) fn restore() {
    if let Some(mut screen) = lock() {
        screen.leave();
    }
}

/// Before bm is stopped by Ctrl-Z: leaves the terminal to the shell.
pub fn pause() {
    if let Some(mut screen) = lock() {
        screen.away = true;
        screen.leave();
    }
}

/// After bm was continued. What is to be seen comes with the next painting.
pub fn resume() {
    if let Some(mut screen) = lock() {
        screen.away = false;
    }
}

/// Whether this process is the one its terminal listens to. A terminal that does not tell belongs to nobody else.
pub(super) fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stderr()).map_or(true, |group| group == rustix::process::getpgrp())
}

/// Has keys read one by one, and not shown, where stdin is a terminal that listens to this process. Looked at anew
/// at every call, since a shell sets the modes as it likes while bm is stopped or in the background.
pub(super) fn listen_to_keys() -> bool {
    let stdin = io::stdin();
    let ours = || rustix::termios::tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp());
    // Setting modes from the background would stop this process.
    if !stdin.is_terminal() || !ours() {
        return false;
    }
    let (Some(mut screen), Ok(now)) = (lock(), rustix::termios::tcgetattr(&stdin)) else {
        return false;
    };
    if screen.away {
        return false;
    }
    if !now.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO) {
        return screen.before_keys.is_some();
    }
    let mut keys = now.clone();
    // Signals of keys (Ctrl-C, Ctrl-Z) stay.
    keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    keys.special_codes[SpecialCodeIndex::VMIN] = 0;
    keys.special_codes[SpecialCodeIndex::VTIME] = 0;
    let set = rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &keys).is_ok();
    if set {
        screen.before_keys.get_or_insert(now);
    }
    set
}

/// The keys pressed so far; `None` when the terminal is gone.
pub(super) fn keys() -> Option<Vec<u8>> {
    let mut bytes = [0; 64];
    match rustix::io::read(io::stdin(), &mut bytes) {
        Ok(n) => Some(bytes[..n].to_vec()),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// What keys come from.
pub(super) fn keyboard() -> BorrowedFd<'static> {
    static STDIN: std::sync::LazyLock<io::Stdin> = std::sync::LazyLock::new(io::stdin);
    STDIN.as_fd()
}

/// Columns that a text takes, without its colour codes.
pub(super) fn columns(text: &str) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The beginning of a text that fits into so many columns; colour codes are none, and stay.
pub(super) fn cut(text: &str, width: usize) -> String {
    let (mut out, mut used, mut chars) = (String::new(), 0, text.chars());
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            out.push(c);
            // Ours are all of the form ESC [ ... m.
            for c in chars.by_ref() {
                out.push(c);
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
            continue;
        }
        let wide = c.width().unwrap_or(0);
        if used + wide <= width {
            out.push(c);
            used += wide;
        } else {
            used = width;
        }
    }
    out
}

/// Terminals that know it show what comes in between at once; others pass over it.
const HOLD: &str = "\x1b[?2026h";
const RELEASE: &str = "\x1b[?2026l";

/// While this thread panics it may hold the lock itself; its report then goes wherever the cursor is.
fn lock() -> Option<MutexGuard<'static, Screen>> {
    if !std::thread::panicking() {
        return Some(SCREEN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match SCREEN.try_lock() {
        Ok(screen) => Some(screen),
        Err(TryLockError::Poisoned(screen)) => Some(screen.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn write(text: &str) {
    if !text.is_empty() {
        let mut err = io::stderr().lock();
        // Nothing sensible is left to do when stderr itself is gone.
        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    }
}

fn tinted(text: &str) -> String {
    if anstream::AutoStream::choice(&io::stderr()) == anstream::ColorChoice::Never {
        anstream::adapter::strip_str(text).to_string()
    } else {
        text.to_owned()
    }
}

impl Screen {
    /// To the first line of the foot. A line that has become wider than the terminal takes several rows, since
    /// terminals wrap anew when they are resized.
    fn up(&self) -> String {
        if !self.painted || self.foot.is_empty() {
            return String::new();
        }
        let (width, _) = size();
        let rows: usize = self.foot.iter().map(|(_, used)| used.div_ceil(width).max(1)).sum();
        format!("\r\x1b[{rows}A")
    }

    fn erase(&mut self) -> String {
        let up = self.up();
        self.painted = false;
        if up.is_empty() { up } else { up + "\x1b[J" }
    }

    fn paint(&mut self) -> String {
        self.painted = true;
        let mut out: String = self.foot.iter().map(|(line, _)| format!("{line}\x1b[K\n")).collect();
        out.push_str("\x1b[J");
        out
    }

    fn leave(&mut self) {
        write(&self.erase());
        self.foot.clear();
        if let Some(before) = self.before_keys.take() {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &before);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_columns_and_keep_their_colours() {
        assert_eq!(cut("\x1b[1mabc\x1b[0mdef", 4), "\x1b[1mabc\x1b[0md");
        assert_eq!(cut("\x1b[1mabc\x1b[0m", 2), "\x1b[1mab\x1b[0m");
        // A wide character takes two columns or none, and nothing narrower slips in behind it.
        assert_eq!(cut("a表b", 2), "a");
        assert_eq!(columns("\x1b[1ma表\x1b[0m"), 3);
    }
}
