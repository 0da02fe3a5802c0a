//! Programs of one prefix, run one after the other under the same account, environment and log.
//!
//! Owns what a failed call looks like. Knows nothing of what the programs do.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};
use crate::process::{self, Account, Cancel, Command, Ended, Limits};

/// Lines of the log that a failure shows.
const TAIL: usize = 20;

/// Bytes a single program may write before it is stopped.
const LOG_BYTES: u64 = 32 << 20;

/// The environment of a tested program: nothing of the caller's, so no `PG*`, no `MYSQL_*` and no `LD_*`.
pub fn environment(home: &Path) -> BTreeMap<String, String> {
    [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .chain([("HOME".to_owned(), home.display().to_string())])
        .collect()
}

/// Programs of a prefix and how they are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Programs<'a> {
    /// The prefix.
    pub(super) prefix: &'a Path,
    /// Working directory and HOME; outputs are kept here for a moment.
    pub(super) dir: &'a Path,
    /// Everything is written here.
    pub(super) log: &'a Path,
    /// Account to run as.
    pub(super) account: Option<Account>,
    /// Time one call may take.
    pub(super) bound: Duration,
    /// The user's wish to stop.
    pub(super) cancel: &'a Cancel,
}

impl Programs<'_> {
    /// `program` below the prefix, as data; its output goes to `log`.
    pub(super) fn command(&self, program: &str, args: &[&str], log: &Path, wall: Duration) -> Command {
        let program = self.prefix.join(program).display().to_string();
        Command {
            argv: std::iter::once(program)
                .chain(args.iter().map(|arg| (*arg).to_owned()))
                .collect(),
            env: environment(self.dir),
            dir: self.dir.to_owned(),
            log: log.to_owned(),
            limits: Limits {
                wall: Some(wall),
                silent: None,
                log_bytes: Some(LOG_BYTES),
            },
            run_as: self.account,
        }
    }

    /// Runs `program` and returns what it printed, which is also added to the log.
    ///
    /// # Errors
    /// [`Exit::Proof`] when it does not end with status 0 in time; `what` begins the headline.
    pub(super) fn call(&self, what: &str, program: &str, args: &[&str]) -> Result<String> {
        match self.attempt(what, program, args)? {
            (Ended::Exited(0), text) => Ok(text),
            (ended, _) => Err(self.failed_call(what, program, &ended)),
        }
    }

    /// Runs `program` and returns how it ended and what it printed, which is also added to the log.
    ///
    /// # Errors
    /// [`Exit::Interrupted`], and failures of the host.
    pub(super) fn attempt(&self, what: &str, program: &str, args: &[&str]) -> Result<(Ended, String)> {
        let output = self.dir.join("output");
        let command = self.command(program, args, &output, self.bound);
        self.note_call(&command.argv)?;
        match fs::remove_file(&output) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("cannot remove the output of the program before", &e));
            }
            _ => {}
        }
        let outcome = process::run(&command, self.cancel, None)?;
        // A program that could not be started has written nothing, perhaps not even the file.
        let text = match fs::read(&output) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io("cannot read a program's output", &e)),
        };
        self.note(&text)?;
        // A client may end by itself, for its server ends too.
        if !outcome.ok() && self.cancel.requested().is_some() {
            return Err(Error::new(Exit::Interrupted, format!("interrupted: {what}")));
        }
        Ok((outcome.ended, text))
    }

    /// The failure of a call that ended otherwise than with status 0.
    pub(super) fn failed_call(&self, what: &str, program: &str, ended: &Ended) -> Error {
        self.failure(format!("{what}: `{program}` {}", describe(ended)))
    }

    /// Adds a command line to the log.
    pub(super) fn note_call(&self, argv: &[String]) -> Result<()> {
        self.note(&format!("$ {}\n", shown(argv)))
    }

    /// Adds to the log.
    fn note(&self, text: &str) -> Result<()> {
        let newline = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log)
            .and_then(|mut file| file.write_all(format!("{text}{newline}").as_bytes()))
            .doing(|| "cannot write the log of the smoke test".into())
    }

    /// Bytes in the log so far.
    pub(super) fn log_length(&self) -> u64 {
        fs::metadata(self.log).map_or(0, |meta| meta.len())
    }

    /// What was written to the log since it had `before` bytes.
    pub(super) fn log_since(&self, before: u64) -> Result<String> {
        let bytes = fs::read(self.log).doing(|| "cannot read the log of the smoke test".into())?;
        let start = usize::try_from(before).unwrap_or(0).min(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
    }

    /// A failed proof, with the log's path and its last lines.
    pub(super) fn failure(&self, headline: impl Into<String>) -> Error {
        with_tail(Error::new(Exit::Proof, headline), self.log)
    }

    /// A failed proof named `what` unless the server said what it should.
    pub(super) fn expect(&self, what: &str, expected: &str, actual: &str) -> Result<()> {
        if expected == actual {
            return Ok(());
        }
        Err(self.failure(what).detail("expected", expected).detail("actual", actual))
    }

    /// A failed proof where the server's log has an error, or does not say that the server was shut down.
    pub(super) fn ended_well(&self, error: Option<&str>, says_shut_down: bool) -> Result<()> {
        if let Some(line) = error {
            return Err(self.failure("the server's log has an error").detail("line", line));
        }
        if !says_shut_down {
            return Err(self.failure("the server's log does not say that it was shut down"));
        }
        Ok(())
    }
}

/// Adds a log's path and last lines to a failure.
pub fn with_tail(error: Error, log: &Path) -> Error {
    // The failure matters more than a log that cannot be read.
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL)..];
    if tail.is_empty() {
        return error.detail("log", log.display());
    }
    let shown = tail.iter().map(|line| format!("\n  {line}")).collect::<String>();
    let count = tail.len();
    error.detail("log", format!("{} (last {count} lines follow){shown}", log.display()))
}

/// How a program ended, as the end of a sentence that begins with its name.
pub fn describe(ended: &Ended) -> String {
    match ended {
        Ended::Exited(status) => format!("exited with status {status}"),
        Ended::Signaled(signal) => format!("was killed by signal {signal}"),
        Ended::Limit(bound) => format!("was stopped: {bound}"),
        Ended::Interrupted => "was interrupted".into(),
        Ended::NotStarted(why) => format!("could not be started: {why}"),
    }
}

/// argv as a shell would read it.
fn shown(argv: &[String]) -> String {
    shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_else(|_| format!("{argv:?}"))
}

/// A directory that is removed when dropped, whoever owns what is in it.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes `path` anew; what a killed run left there goes first.
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        remove_tree(&path).doing(|| "cannot remove what an earlier smoke test left".into())?;
        let scratch = Scratch(path);
        make_dir(&scratch.0, 0o711, None)?;
        Ok(scratch)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it now, and says so when that fails.
    pub(super) fn close(self) -> Result<()> {
        remove_tree(&self.0).doing(|| "cannot remove the directory of the smoke test".into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only reached with a failure in hand that matters more; the next run tries again.
        let _ = remove_tree(&self.0);
    }
}

fn remove_tree(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Makes a directory with exactly this mode, and gives it to `account`.
pub fn make_dir(path: &Path, mode: u32, account: Option<Account>) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let doing = || format!("cannot make the directory `{}`", path.display());
    fs::create_dir(path).doing(doing)?;
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).doing(doing)?;
    match account {
        Some(a) => std::os::unix::fs::lchown(path, Some(a.uid), Some(a.gid)).doing(doing),
        None => Ok(()),
    }
}
