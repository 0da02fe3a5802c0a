//! Servers for a benchmark's use: make a data directory with a built prefix, start, stop and ask.
//!
//! Touches nothing but the data directory and what is in it. Knows neither store nor manifest: it is
//! given the prefix and what the manifest says for drivers. Only Postgres so far.
//!
//! The cluster trusts every local user, over the socket and 127.0.0.1: it is for benchmarks, not for
//! data that matters.

mod call;
mod config;
#[cfg(test)]
mod fake;
mod init;
mod state;

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};
use crate::model::recipe::Driver;
use crate::process::{Account, Cancel};
use crate::smoke::account::{self, Need};
use crate::smoke::child::with_tail;

use call::Programs;
pub use init::{ServerOpts, init};
pub use state::State;

/// The way of making a data directory that is known here, as `driver.init` says it.
pub const INIT: &str = "initdb";

/// Name of the server's log in the data directory.
const LOG: &str = "server.log";

/// Seconds `pg_ctl` waits for a start or a stop; a start may have to recover first.
const PATIENCE: &str = "300";

/// What an order found to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was carried out.
    Done(State),
    /// The server was in that state before.
    Already(State),
}

/// Starts the server of `datadir`, detached, and waits until it takes connections.
///
/// # Errors
/// [`Exit::Host`] when it does not start (with the end of its log) or its port is in use;
/// [`Exit::Store`] when `datadir` is no data directory, or a server of another prefix runs in it.
pub fn start(prefix: &Path, driver: &Driver, datadir: &Path, cancel: &Cancel) -> Result<Change> {
    let place = Place::open(prefix, driver, datadir)?;
    let before = place.status()?;
    if before.pid.is_some() {
        place.refuse_foreign(&before)?;
        return Ok(Change::Already(before));
    }
    let log = place.datadir.join(LOG);
    let begin = fs::metadata(&log).map_or(0, |meta| meta.len());
    let args = [
        "-D",
        place.text(),
        "-l",
        &log.display().to_string(),
        "-t",
        PATIENCE,
        "-w",
        "start",
    ];
    let output = place.programs.detached("bin/pg_ctl", &args, cancel)?;
    let after = place.status()?;
    if output.status.success() && after.pid.is_some() {
        return Ok(Change::Done(after));
    }
    Err(start_failure(&place.datadir, &log, begin, &output.text))
}

/// Says why a server did not start, from what it wrote to its log since `begin`.
fn start_failure(datadir: &Path, log: &Path, begin: u64, said: &str) -> Error {
    let bytes = fs::read(log).unwrap_or_default();
    let fresh = &bytes[usize::try_from(begin).unwrap_or(0).min(bytes.len())..];
    let fresh = String::from_utf8_lossy(fresh);
    let in_use = fresh
        .lines()
        .find(|line| line.contains("could not bind") && line.contains("in use"));
    if let Some(line) = in_use {
        let message = line.split_once("] ").map_or(line, |(_, rest)| rest);
        let file = datadir.join(config::OWN);
        return Error::new(Exit::Host, "the server's port is in use")
            .detail("server", message)
            .detail("log", log.display())
            .hint(format!(
                "stop the other server, or set another `port` in {}",
                file.display()
            ));
    }
    let error = Error::new(
        Exit::Host,
        format!("the server of `{}` did not start", datadir.display()),
    );
    if fresh.is_empty() {
        return error.detail("pg_ctl", said.trim());
    }
    with_tail(error, log)
}

/// Stops the server of `datadir` in an orderly way: sessions are ended, everything is written.
///
/// # Errors
/// [`Exit::Host`] when it does not stop; [`Exit::Store`] as for [`start`].
pub fn stop(prefix: &Path, driver: &Driver, datadir: &Path, cancel: &Cancel) -> Result<Change> {
    let place = Place::open(prefix, driver, datadir)?;
    let before = place.status()?;
    if before.pid.is_none() {
        return Ok(Change::Already(before));
    }
    place.refuse_foreign(&before)?;
    let args = ["-D", place.text(), "-m", "fast", "-t", PATIENCE, "-w", "stop"];
    let what = format!("cannot stop the server of `{}`", datadir.display());
    place.programs.supervised(&what, "bin/pg_ctl", &args, cancel)?;
    place.status().map(Change::Done)
}

/// Looks at the server of `datadir`.
///
/// # Errors
/// [`Exit::Store`] when `datadir` is no data directory, [`Exit::Host`] when it may not be read.
pub fn status(prefix: &Path, driver: &Driver, datadir: &Path) -> Result<State> {
    Place::open(prefix, driver, datadir)?.status()
}

/// A prefix and a data directory, checked.
struct Place {
    programs: Programs,
    datadir: PathBuf,
    text: String,
    server: PathBuf,
}

impl Place {
    fn open(prefix: &Path, driver: &Driver, datadir: &Path) -> Result<Self> {
        let server = server_program(prefix, driver)?;
        let real = fs::canonicalize(datadir)
            .ok()
            .filter(|dir| dir.join("PG_VERSION").is_file() || closed(dir))
            .ok_or_else(|| {
                Error::new(Exit::Store, format!("`{}` is no data directory", datadir.display())).hint(format!(
                    "make one: bm server init NAME --datadir {} --port PORT",
                    datadir.display()
                ))
            })?;
        let account = owner(&real)?;
        if let Some(account) = account {
            allow(account, &server, Need::Execute)?;
            allow(account, &real, Need::Enter)?;
        }
        Ok(Place {
            programs: Programs::new(prefix, account, &real),
            text: as_text(&real)?,
            datadir: real,
            server,
        })
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn status(&self) -> Result<State> {
        State::read(&self.datadir)
    }

    /// Orders go to servers of this prefix only.
    fn refuse_foreign(&self, state: &State) -> Result<()> {
        let own = fs::canonicalize(&self.server).doing(|| "cannot look at the server program".into())?;
        match &state.program {
            Some(program) if *program != own => Err(Error::new(
                Exit::Store,
                format!("another server runs in `{}`", self.datadir.display()),
            )
            .detail("expected", own.display())
            .detail(
                "running",
                format!("{} (pid {})", program.display(), state.pid.unwrap_or_default()),
            )),
            _ => Ok(()),
        }
    }
}

/// Whether we may not look into a directory, so that its owner's check has to speak first.
fn closed(dir: &Path) -> bool {
    dir.is_dir() && fs::read_dir(dir).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The server program, of a product that we can serve.
fn server_program(prefix: &Path, driver: &Driver) -> Result<PathBuf> {
    if driver.init.as_deref() != Some(INIT) {
        let said = driver.init.as_deref().unwrap_or("nothing");
        return Err(Error::new(
            Exit::Usage,
            "`bm server` can serve only builds that are set up with `initdb`",
        )
        .detail("the recipe says", said));
    }
    let program = prefix.join(driver.server.as_deref().unwrap_or("bin/postgres"));
    if !program.is_file() {
        return Err(Error::new(
            Exit::Store,
            format!("there is no server program `{}`", program.display()),
        )
        .hint("check the prefix: bm verify NAME"));
    }
    Ok(program)
}

/// The account a data directory's server runs as: `None` for our own.
fn owner(datadir: &Path) -> Result<Option<Account>> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(datadir).doing(|| "cannot look at the data directory".into())?;
    if meta.uid() == 0 && account::is_root() {
        return Err(Error::new(
            Exit::Host,
            format!("`{}` belongs to root, and servers refuse root", datadir.display()),
        )
        .hint(format!("give it to another user: chown -R USER {}", datadir.display())));
    }
    if account::is_root() {
        return Ok(Some(Account {
            uid: meta.uid(),
            gid: meta.gid(),
        }));
    }
    if meta.uid() != account::own_uid() {
        let owner = account::name_of(meta.uid())?.unwrap_or_else(|| format!("uid {}", meta.uid()));
        return Err(
            Error::new(Exit::Host, format!("`{}` belongs to `{owner}`", datadir.display()))
                .hint(format!("run bm as `{owner}` or as root")),
        );
    }
    Ok(None)
}

fn allow(account: Account, path: &Path, need: Need) -> Result<()> {
    account::reach(account, path, need)?.map_err(|blocked| {
        let at = blocked.at.display().to_string();
        blocked.into_error(
            path,
            format!("open it to others (chmod o+x {at}), choose another place, or use `--user`"),
        )
    })
}

/// The path as the programs can take it: `pg_ctl` puts it into a shell's double quotes as it is, and
/// clients read a host with a comma as two hosts.
fn as_text(path: &Path) -> Result<String> {
    let refuse = |why: &str| {
        Error::new(Exit::Usage, format!("`{}` cannot be a data directory", path.display()))
            .detail("why", why)
            .hint("choose a plain path with `--datadir`")
    };
    let text = path.to_str().ok_or_else(|| refuse("it is not UTF-8"))?;
    match text.chars().find(|c| c.is_control() || "\"$`\\,".contains(*c)) {
        Some(c) => Err(refuse(&format!("Postgres' programs cannot take {c:?} in it"))),
        None => Ok(text.to_owned()),
    }
}
