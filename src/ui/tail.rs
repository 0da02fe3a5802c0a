//! The last lines of a log that is being written, cheaply: only its end is read.
//!
//! Owns what of a program's output may reach a terminal: printable text, no more. Does not know whose log it is.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use fs_err as fs;

/// Bytes looked at for the very last line. Compilers are called with long lines, but only their beginning is shown.
pub(super) const ONE_LINE: u64 = 8 << 10;
/// Bytes looked at for a page of lines.
pub(super) const PAGE: u64 = 64 << 10;

/// The last lines of the last `window` bytes of a file, at most `lines`, oldest first. Of a file that cannot be
/// read, none.
pub(super) fn tail(log: &Path, window: u64, lines: usize) -> Vec<String> {
    end_of(log, window)
        .map(|bytes| last_lines(&bytes, lines))
        .unwrap_or_default()
}

fn end_of(log: &Path, window: u64) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(window)))?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn last_lines(bytes: &[u8], lines: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let shown = text.lines().rev().map(printable).filter(|l| !l.is_empty());
    let mut found: Vec<String> = shown.take(lines).collect();
    found.reverse();
    found
}

/// A line as it may be shown: of a line that was drawn over and over, the last state; tabs as blanks; colours of
/// the program's own left out, and whatever else steers a terminal spelled out.
pub(super) fn printable(line: &str) -> String {
    let last = line.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut out = String::with_capacity(last.len());
    let mut rest = last.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\t' => out.push(' '),
            '\u{1b}' if is_colour(rest.clone()) => {
                rest.by_ref().find(|c| *c == 'm');
            }
            c if c.is_control() || is_hidden(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.trim_end().to_owned()
}

/// Whether `[...m` follows.
fn is_colour(mut rest: impl Iterator<Item = char>) -> bool {
    rest.next() == Some('[') && rest.find(|c| !c.is_ascii_digit() && *c != ';') == Some('m')
}

/// Characters that turn the direction of what follows, or take no place.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_log_steers_the_terminal() {
        for (line, want) in [
            ("plain", "plain"),
            ("a\tb  ", "a b"),
            ("\u{1b}[01;31merror\u{1b}[0m: x", "error: x"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("10%\r20%\r30%\r", "30%"),
            ("ab\u{202e}cd", "ab\\u{202e}cd"),
        ] {
            assert_eq!(printable(line), want, "{line:?}");
        }
    }

    #[test]
    fn the_end_of_a_log_is_read_and_blank_lines_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "one\ntwo\n\nthree\n\n").unwrap();
        assert_eq!(tail(&log, PAGE, 2), ["two", "three"]);
        // A window that begins inside a line shows the rest of it, and a character cut in two is no error.
        fs::write(&log, "äbc\n").unwrap();
        assert_eq!(tail(&log, 4, 1), ["\u{fffd}bc"]);
        assert_eq!(tail(&dir.path().join("none"), PAGE, 2), [""; 0]);
    }
}
