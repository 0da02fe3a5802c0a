//! The only place that prints. Results go to stdout, everything else to stderr.

mod frame;
pub mod json;
pub mod live;
mod tail;
pub mod terminal;
pub mod timings;
pub mod view;

use std::io::Write as _;

use anstyle::{AnsiColor, Style};

use crate::error::Error;
use crate::text::{Tone, visible};

pub use json::Json;
pub use live::Live;
pub use timings::Timings;
pub use view::{Plain, View};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();
const STATUS: Style = AnsiColor::Green.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors and results only.
    Quiet,
    /// One line per thing done.
    Normal,
}

/// The terminal. Shared between threads: every call writes whole lines, above those of a live view.
#[derive(Debug)]
pub struct Shell {
    verbosity: Verbosity,
}

impl Shell {
    /// Colour follows the terminal, `NO_COLOR` and `CLICOLOR_FORCE`.
    pub fn new(verbosity: Verbosity) -> Self {
        Shell { verbosity }
    }

    /// A result, on stdout, exactly as given.
    ///
    /// A closed pipe (`bm list | head`) ends the process quietly, as other tools do; any other failure
    /// to write ends it with an error.
    pub fn result(&self, text: impl AsRef<str>) {
        let written = terminal::aside(|| {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_ref().as_bytes())
                .and_then(|()| out.write_all(b"\n"))
                .and_then(|()| out.flush())
        });
        let Err(e) = written else { return };
        terminal::restore();
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        // Whoever reads a file of results must not take half of them for all.
        let error = Error::io("cannot write the output", &e);
        self.error(&error);
        std::process::exit(error.exit().code().into());
    }

    /// Lines of a result, on stdout. Colour follows stdout as it follows stderr elsewhere.
    pub fn toned(&self, lines: &[(Tone, String)]) {
        let plain = anstream::AutoStream::choice(&std::io::stdout()) == anstream::ColorChoice::Never;
        let painted = lines.iter().map(|(tone, line)| {
            let style = if plain { Style::new() } else { style(*tone) };
            format!("{style}{line}{style:#}")
        });
        self.result(painted.collect::<Vec<_>>().join("\n"));
    }

    /// What is being done: a verb in a column of its own, then the thing.
    pub fn status(&self, verb: &str, text: impl AsRef<str>) {
        if self.verbosity >= Verbosity::Normal {
            terminal::print(&format!("{STATUS}{verb:>12}{STATUS:#} {}", text.as_ref()));
        }
    }

    /// Like [`Shell::status`] for things that went wrong.
    pub fn failed(&self, verb: &str, text: impl AsRef<str>) {
        terminal::print(&format!("{ERROR}{verb:>12}{ERROR:#} {}", text.as_ref()));
    }

    /// Something that concerns trust in the result.
    pub fn warning(&self, text: impl AsRef<str>) {
        terminal::print(&format!("{WARNING}warning:{WARNING:#} {}", text.as_ref()));
    }

    /// A plain line on stderr.
    pub fn note(&self, text: impl AsRef<str>) {
        if self.verbosity >= Verbosity::Normal {
            terminal::print(text.as_ref());
        }
    }

    /// An error with its details, causes and hint.
    pub fn error(&self, error: &Error) {
        terminal::print(&render(error));
    }
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Title => NOTE,
        Tone::Minus => AnsiColor::Red.on_default(),
        Tone::Plus => AnsiColor::Green.on_default(),
        Tone::Dim => DIM,
    }
}

/// An error as it is printed, with colour codes (stripped by the stream where there is no terminal).
pub fn render(error: &Error) -> String {
    let mut out = match error.rendered_snippet() {
        Some(snippet) => snippet.trim_end().to_owned(),
        None => format!("{ERROR}error{ERROR:#}: {}", visible(error.headline(), &[])),
    };
    let width = error.details().iter().map(|(l, _)| l.len()).max().unwrap_or(0).max(6);
    for (label, value) in error.details() {
        let indented = visible(value, &['\n', '\t']).replace('\n', &format!("\n{:width$}  ", ""));
        out.push_str(&format!("\n{label:>width$}: {indented}"));
    }
    for cause in error.causes() {
        out.push_str(&format!("\n{DIM}caused by:{DIM:#} {}", visible(cause, &['\n', '\t'])));
    }
    if let Some(hint) = error.hint_text() {
        out.push_str(&format!("\n{NOTE}hint:{NOTE:#} {}", visible(hint, &[])));
    }
    out
}

/// Rows in columns, two spaces apart, nothing after the last.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|i| {
            rows.iter()
                .filter_map(|r| r.get(i))
                .map(|c| c.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(c, w)| format!("{c:w$}")).collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}
