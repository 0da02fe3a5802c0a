//! What a failure looks like to the user, and the exit code it ends with.
//!
//! Every module builds [`Error`]s; only `ui` prints them.

use std::fmt;
use std::io::ErrorKind;

/// Process exit codes, documented in README.md. When several failures happen the worst wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// All good.
    Ok = 0,
    /// A build failed: compiler, make, killed for memory.
    Build = 1,
    /// Usage, recipe, unknown name.
    Usage = 2,
    /// The host is not fit: tool or package missing, disk full, permission.
    Host = 3,
    /// The source is not what it should be: checksum, moved tag, unreachable, hostile archive, patch.
    Source = 4,
    /// Built, but the audit, the smoke test or verify failed.
    Proof = 5,
    /// Store conflict: lock held, foreign or stale prefix, running server.
    Store = 6,
    /// A bug in bm.
    Bug = 70,
    /// Interrupted.
    Interrupted = 130,
}

impl Exit {
    /// Place in the order "worst first": 70, 130, 2, 6, 4, 3, 5, 1, then 0.
    fn rank(self) -> u8 {
        match self {
            Exit::Bug => 8,
            Exit::Interrupted => 7,
            Exit::Usage => 6,
            Exit::Store => 5,
            Exit::Source => 4,
            Exit::Host => 3,
            Exit::Proof => 2,
            Exit::Build => 1,
            Exit::Ok => 0,
        }
    }

    /// The worse of two outcomes.
    pub fn worst(self, other: Exit) -> Exit {
        if self.rank() >= other.rank() { self } else { other }
    }

    /// The number given to the system.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// A failure: one headline, labelled details, causes from the outermost inwards, at most one hint.
#[derive(Debug, Clone)]
pub struct Error(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    exit: Exit,
    headline: String,
    details: Vec<(String, String)>,
    causes: Vec<String>,
    snippet: Option<String>,
    hint: Option<String>,
}

/// Result with bm's own error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure with its exit code; `headline` is lower case, without a final period, names in backticks.
    pub fn new(exit: Exit, headline: impl Into<String>) -> Self {
        Error(Box::new(Parts {
            exit,
            headline: headline.into(),
            details: vec![],
            causes: vec![],
            snippet: None,
            hint: None,
        }))
    }

    /// Adds a labelled line below the headline (`log`, `tree`, `expected`, ...).
    #[must_use]
    pub fn detail(mut self, label: impl Into<String>, value: impl fmt::Display) -> Self {
        self.0.details.push((label.into(), value.to_string()));
        self
    }

    /// Adds a `caused by:` line.
    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.0.causes.push(cause.to_string());
        self
    }

    /// Sets the one hint; a command where one exists.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// A rendered piece of the file the error is in (recipe errors); printed in place of the headline.
    #[must_use]
    pub fn snippet(mut self, rendered: impl Into<String>) -> Self {
        self.0.snippet = Some(rendered.into());
        self
    }

    /// The exit code of this failure.
    pub fn exit(&self) -> Exit {
        self.0.exit
    }

    /// The first line.
    pub fn headline(&self) -> &str {
        &self.0.headline
    }

    /// Labelled lines, in order.
    pub fn details(&self) -> &[(String, String)] {
        &self.0.details
    }

    /// Causes, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.0.causes
    }

    /// Rendered recipe text with carets, if the error points into a file.
    pub fn rendered_snippet(&self) -> Option<&str> {
        self.0.snippet.as_deref()
    }

    /// The hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// An I/O failure outside any more telling context: full disk and permission are the host's
    /// (exit 3), anything else too, since bm cannot go on. `fs_err` errors already name the path.
    pub fn io(doing: impl Into<String>, e: &std::io::Error) -> Self {
        let error = Error::new(Exit::Host, doing.into()).caused_by(e);
        // Not `raw_os_error`: errors of `fs_err` are wrapped and keep only their kind.
        match e.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                error.hint("free some space, or choose another place with `--root` or `BM_ROOT`")
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                error.hint("choose a place you may write to with `--root` or `BM_ROOT`")
            }
            _ => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.headline)?;
        for (label, value) in &self.0.details {
            write!(f, "\n{label}: {value}")?;
        }
        for cause in &self.0.causes {
            write!(f, "\ncaused by: {cause}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Turns an I/O result into bm's error with what was being done.
pub trait IoContext<T> {
    /// `doing` reads as "cannot ...".
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::io(doing(), &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_exit_wins() {
        // Order of DESIGN: 70, 130, 2, 6, 4, 3, 5, 1.
        let order = [
            Exit::Bug,
            Exit::Interrupted,
            Exit::Usage,
            Exit::Store,
            Exit::Source,
            Exit::Host,
            Exit::Proof,
            Exit::Build,
            Exit::Ok,
        ];
        for pair in order.windows(2) {
            assert_eq!(pair[0].worst(pair[1]), pair[0]);
            assert_eq!(pair[1].worst(pair[0]), pair[0]);
        }
        assert_eq!(order.map(Exit::code), [70, 130, 2, 6, 4, 3, 5, 1, 0]);
    }
}
