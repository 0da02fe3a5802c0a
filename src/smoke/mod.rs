//! The smoke test: a finished prefix shows at its real place that it works.
//!
//! Owns what is tried and what counts as success. Knows neither how the prefix was built nor where
//! the store keeps it; leaves no process and no directory behind, however it ends.

pub mod account;
pub(crate) mod child;
#[cfg(test)]
mod fake;
mod mysql;
mod own;
mod parse;
mod postgres;
mod server;
pub mod socket;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};
use crate::model::manifest;
use crate::model::recipe::Smoke;
use crate::process::{Account, Cancel};

use account::Need;
use child::{Programs, Scratch};

/// What the prefix must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmokeExpect {
    /// Version as the server must spell it: `15.18`, `16beta1`, `8.0.33-25`.
    pub version: String,
    /// Storage engine of the tables of a MySQL server, in any case: `innodb`.
    pub engine: String,
    /// Extensions to create; `pgstattuple` is also called.
    pub extensions: Vec<String>,
    /// Trees besides the prefix whose libraries may be mapped: private dependencies.
    pub libraries: Vec<PathBuf>,
    /// How long the load lasts; rounded up to whole seconds.
    pub load: Duration,
    /// argv of [`Smoke::Command`], the program relative to the prefix.
    pub command: Vec<String>,
}

impl SmokeExpect {
    /// The usual test of a server of this version.
    pub fn version(version: impl Into<String>) -> Self {
        SmokeExpect {
            version: version.into(),
            engine: "innodb".into(),
            extensions: vec!["pgstattuple".into()],
            libraries: vec![],
            load: Duration::from_secs(3),
            command: vec![],
        }
    }
}

/// Bounds and places that only tests change.
#[derive(Debug, Clone)]
struct Terms {
    /// Where the system shows processes.
    proc: PathBuf,
    /// Where the socket's directory is made.
    sockets: PathBuf,
    /// Time to make a data directory, where the server's own program does it.
    init: Duration,
    /// Time until the server takes connections.
    start: Duration,
    /// Time from the request to stop until the server is gone.
    stop: Duration,
    /// Time for one call of a client.
    call: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            proc: "/proc".into(),
            sockets: socket::BASE.into(),
            // Some hundred tables, each synced to a disk that builds may be writing to.
            init: Duration::from_secs(300),
            start: Duration::from_secs(60),
            stop: Duration::from_secs(30),
            call: Duration::from_secs(60),
        }
    }
}

/// One smoke test: everything it is given.
#[derive(Debug, Clone, Copy)]
struct Test<'a> {
    prefix: &'a Path,
    expect: &'a SmokeExpect,
    scratch: &'a Path,
    log: &'a Path,
    cancel: &'a Cancel,
    terms: &'a Terms,
}

/// Tries out `prefix`. `scratch` is an existing directory that others may pass through (0711);
/// everything is written to `log`. As root the programs run as an unprivileged account.
///
/// # Errors
/// [`Exit::Proof`] when the prefix does not do what it should, [`Exit::Host`] when this machine does
/// not let the test run (no account, a directory the account cannot enter), [`Exit::Interrupted`].
pub fn run(
    prefix: &Path,
    kind: Smoke,
    expect: &SmokeExpect,
    scratch: &Path,
    log: &Path,
    cancel: &Cancel,
) -> Result<manifest::Smoke> {
    let terms = Terms::default();
    // Litter of killed runs must not keep a good prefix from being tested.
    let _ = socket::sweep(&terms.sockets);
    let prefix = fs::canonicalize(prefix).doing(|| format!("no prefix at `{}`", prefix.display()))?;
    let test = Test {
        prefix: &prefix,
        expect,
        scratch,
        log,
        cancel,
        terms: &terms,
    };
    match kind {
        Smoke::Postgres => postgres::run(test),
        Smoke::Mysql => mysql::run(test),
        Smoke::Command => test.command(),
        Smoke::Files => Ok(manifest::Smoke::default()),
    }
}

impl Test<'_> {
    /// Runs the recipe's own command.
    fn command(self) -> Result<manifest::Smoke> {
        let Some((program, args)) = self.expect.command.split_first() else {
            return Err(Error::new(
                Exit::Usage,
                "the recipe asks for a smoke test by command and gives no `smoke-command`",
            ));
        };
        let account = account::choose()?;
        self.reach(account, &[program])?;
        let scratch = Scratch::create(self.scratch.join("smoke"))?;
        // The command may want to write, so its directory is its own.
        let dir = scratch.path().join("home");
        child::make_dir(&dir, 0o700, account)?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.programs(account, &dir).call("smoke test", program, &args)?;
        scratch.close()?;
        Ok(manifest::Smoke {
            did: vec![format!("ran {}", self.expect.command.join(" "))],
            uid: account.map_or_else(account::own_uid, |a| a.uid),
            ..Default::default()
        })
    }

    fn programs<'a>(&'a self, account: Option<Account>, dir: &'a Path) -> Programs<'a> {
        Programs {
            prefix: self.prefix,
            dir,
            log: self.log,
            account,
            bound: self.terms.call,
            cancel: self.cancel,
        }
    }

    /// Checks that the programs are there, and that the account can run them and enter the scratch
    /// directory.
    fn reach(self, account: Option<Account>, programs: &[&str]) -> Result<()> {
        for program in programs {
            let path = self.prefix.join(program);
            if !path.is_file() {
                return Err(Error::new(Exit::Proof, format!("the prefix has no `{program}`"))
                    .detail("prefix", self.prefix.display()));
            }
            if let Some(account) = account {
                self.allow(account, &path, Need::Execute)?;
            }
        }
        match account {
            Some(account) => self.allow(account, self.scratch, Need::Enter),
            None => Ok(()),
        }
    }

    fn allow(self, account: Account, path: &Path, need: Need) -> Result<()> {
        account::reach(account, path, need)?.map_err(|blocked| {
            blocked.into_error(
                path,
                "choose another root with `--root` or `BM_ROOT`, such as /var/lib/bm",
            )
        })
    }
}
