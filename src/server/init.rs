//! Making a data directory: a fresh cluster with bm's and the user's settings, or nothing at all.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};
use crate::model::recipe::Driver;
use crate::process::{Account, Cancel};
use crate::smoke::account::{self, Need};
use crate::smoke::child::make_dir;
use crate::smoke::socket;

use super::call::Programs;
use super::config::{self, Record};
use super::{State, allow, as_text, server_program};

/// How a data directory is set up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerOpts {
    /// TCP port on 127.0.0.1, also part of the socket's name.
    pub port: u16,
    /// Settings that win over bm's; the file is copied into the data directory.
    pub config: Option<PathBuf>,
    /// Name of the superuser; by default our own, `postgres` for root.
    pub superuser: Option<String>,
    /// As root, the user the server runs as; by default the data directory's owner, else `nobody`.
    pub user: Option<String>,
    /// Further words for `initdb`, such as `--wal-segsize=64`.
    pub initdb: Vec<String>,
}

/// Makes a cluster in `datadir`, which must not exist or be empty: UTF-8, locale C, data checksums,
/// no passwords for local users. As root it belongs to an unprivileged user afterwards.
///
/// # Errors
/// [`Exit::Store`] when there is something in `datadir`, [`Exit::Usage`] for options that do not fit,
/// [`Exit::Host`] when `initdb` fails or the server does not understand its settings. After a failure
/// `datadir` is as it was.
pub fn init(prefix: &Path, driver: &Driver, datadir: &Path, opts: &ServerOpts, cancel: &Cancel) -> Result<State> {
    let server = server_program(prefix, driver)?;
    let site = Site::look(datadir)?;
    let text = as_text(&site.path)?;
    check_socket(&site.path, opts.port)?;
    let user_settings = opts.config.as_deref().map(read_settings).transpose()?;
    let account = choose(opts.user.as_deref(), site.found)?;
    if let Some(account) = account {
        allow(account, &server, Need::Execute)?;
        allow(account, site.parent(), Need::Enter)?;
    }
    let superuser = superuser(opts)?;
    let undo = site.prepare(account)?;
    let programs = Programs::new(prefix, account, &site.path);
    let mut args = vec![
        "-D",
        &text,
        "-U",
        &superuser,
        "--auth=trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-k",
    ];
    args.extend(opts.initdb.iter().map(String::as_str));
    programs.supervised("cannot create a cluster", "bin/initdb", &args, cancel)?;
    let record = Record {
        schema: 1,
        superuser,
        port: opts.port,
    };
    let own = config::own(&text, opts.port);
    config::write(&site.path, &own, user_settings.as_deref(), &record, account)?;
    check_settings(&programs, driver, &text, opts, cancel)?;
    undo.keep();
    State::read(&site.path)
}

/// Lets the server read its settings, and compares the port with the one asked for.
fn check_settings(
    programs: &Programs,
    driver: &Driver,
    datadir: &str,
    opts: &ServerOpts,
    cancel: &Cancel,
) -> Result<()> {
    let server = driver.server.as_deref().unwrap_or("bin/postgres");
    let what = "the server does not understand its settings";
    let text = programs
        .supervised(what, server, &["-D", datadir, "-C", "port"], cancel)
        .map_err(|error| match &opts.config {
            Some(file) if error.exit() == Exit::Host => error.detail("settings", file.display()),
            _ => error,
        })?;
    let port = text.lines().last().unwrap_or("").trim();
    if port == opts.port.to_string() {
        return Ok(());
    }
    let error = Error::new(Exit::Usage, "the port asked for is not the one in the settings")
        .detail("--port", opts.port)
        .detail("settings", port);
    Err(match &opts.config {
        Some(file) => error.hint(format!("take `port` out of {}, or use `--port {port}`", file.display())),
        None => error,
    })
}

fn check_socket(datadir: &Path, port: u16) -> Result<()> {
    if port == 0 {
        return Err(Error::new(Exit::Usage, "`0` is no port: expected 1 to 65535"));
    }
    let socket = socket::path(datadir, port);
    let length = socket.as_os_str().len();
    if length <= socket::LONGEST {
        return Ok(());
    }
    Err(
        Error::new(Exit::Usage, format!("the path `{}` is too long", datadir.display()))
            .detail(
                "socket",
                format!("{length} bytes, and the system allows {}", socket::LONGEST),
            )
            .hint("choose a shorter path with `--datadir`"),
    )
}

fn read_settings(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|e| Error::new(Exit::Usage, "cannot read the settings").caused_by(e))
}

fn superuser(opts: &ServerOpts) -> Result<String> {
    match &opts.superuser {
        Some(name) => Ok(name.clone()),
        None if account::is_root() => Ok("postgres".into()),
        None => account::name_of(account::own_uid())?.ok_or_else(|| {
            Error::new(
                Exit::Host,
                format!("our own uid {} has no name in /etc/passwd", account::own_uid()),
            )
            .hint("run bm as a user that has a name: `initdb` insists on it")
        }),
    }
}

/// The account for a new server, see [`ServerOpts::user`].
fn choose(user: Option<&str>, found: Option<Owner>) -> Result<Option<Account>> {
    if account::is_root() {
        return match (user, found) {
            (Some(user), _) => account::named(user).map(Some),
            (None, Some(owner)) if owner.account.uid != 0 => Ok(Some(owner.account)),
            (None, _) => account::choose(),
        };
    }
    match user {
        Some(user) if account::named(user)?.uid != account::own_uid() => Err(Error::new(
            Exit::Usage,
            format!("only root can run a server as `{user}`"),
        )
        .hint("leave `--user` out to run it as yourself")),
        _ => Ok(None),
    }
}

/// Owner and mode of a directory that was there before.
#[derive(Debug, Clone, Copy)]
struct Owner {
    account: Account,
    mode: u32,
}

/// The place of a new data directory.
struct Site {
    /// Absolute, without symbolic links.
    path: PathBuf,
    /// Whose it was, if it was there: an empty directory.
    found: Option<Owner>,
}

impl Site {
    fn look(datadir: &Path) -> Result<Self> {
        let absolute = std::path::absolute(datadir).doing(|| "cannot find the data directory's place".into())?;
        let doing = || format!("cannot look at `{}`", absolute.display());
        match fs::symlink_metadata(&absolute) {
            Ok(_) => Site::existing(&fs::canonicalize(&absolute).doing(doing)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Site::missing(&absolute),
            Err(e) => Err(Error::io(doing(), &e)),
        }
    }

    fn existing(path: &Path) -> Result<Self> {
        let meta = fs::metadata(path).doing(|| format!("cannot look at `{}`", path.display()))?;
        let refuse = |what: &str| {
            Error::new(Exit::Store, format!("`{}` {what}", path.display()))
                .hint("choose a directory that is empty or does not exist")
        };
        if !meta.is_dir() {
            return Err(refuse("is no directory"));
        }
        let mut entries = fs::read_dir(path).doing(|| format!("cannot list `{}`", path.display()))?;
        if entries.next().is_some() {
            return Err(refuse("is not empty"));
        }
        Ok(Site {
            path: path.to_owned(),
            found: Some(Owner {
                account: Account {
                    uid: meta.uid(),
                    gid: meta.gid(),
                },
                mode: meta.mode() & 0o7777,
            }),
        })
    }

    fn missing(path: &Path) -> Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(
                Exit::Usage,
                format!("`{}` cannot be a data directory", path.display()),
            ));
        };
        let parent = fs::canonicalize(parent).map_err(|e| {
            Error::new(
                Exit::Host,
                format!("no directory `{}` to make the data directory in", parent.display()),
            )
            .caused_by(e)
            .hint(format!("make it first: mkdir -p {}", parent.display()))
        })?;
        Ok(Site {
            path: parent.join(name),
            found: None,
        })
    }

    fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Makes the directory, or takes over the empty one; undone unless kept.
    fn prepare(&self, account: Option<Account>) -> Result<Undo> {
        match self.found {
            None => {
                make_dir(&self.path, 0o700, account)?;
            }
            Some(_) => give(&self.path, account, 0o700)?,
        }
        Ok(Undo {
            path: self.path.clone(),
            found: self.found,
            armed: true,
        })
    }
}

fn give(path: &Path, account: Option<Account>, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let doing = || format!("cannot take over the directory `{}`", path.display());
    if let Some(a) = account {
        std::os::unix::fs::chown(path, Some(a.uid), Some(a.gid)).doing(doing)?;
    }
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).doing(doing)
}

/// Puts the place of a failed data directory back as it was.
struct Undo {
    path: PathBuf,
    found: Option<Owner>,
    armed: bool,
}

impl Undo {
    fn keep(mut self) {
        self.armed = false;
    }

    fn run(&self) -> Result<()> {
        let doing = || format!("cannot clear `{}`", self.path.display());
        let Some(owner) = self.found else {
            return fs::remove_dir_all(&self.path).doing(doing);
        };
        for entry in fs::read_dir(&self.path).doing(doing)? {
            let entry = entry.doing(doing)?;
            if entry.file_type().doing(doing)?.is_dir() {
                fs::remove_dir_all(entry.path()).doing(doing)?;
            } else {
                fs::remove_file(entry.path()).doing(doing)?;
            }
        }
        let account = account::is_root().then_some(owner.account);
        give(&self.path, account, owner.mode)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.armed {
            // There is a failure in hand that matters more.
            let _ = self.run();
        }
    }
}
