//! The private directory of a test server's socket.
//!
//! A socket's path has at most 107 bytes, less than many a root, so the directory lies in `/tmp`. It
//! is the one thing a killed run can leave behind: a live run holds a lock on its directory, and
//! [`sweep`] removes those that nobody holds.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::error::{Error, Exit, IoContext, Result};
use crate::process::Account;

/// Where the directories are made.
pub const BASE: &str = "/tmp";

/// How their names begin.
const NAME: &str = "bm-smoke-";

/// The largest path of a socket in bytes: `sun_path` without the final zero.
pub const LONGEST: usize = 107;

/// Younger directories are left alone: their owner may not have taken the lock yet.
const YOUNG: Duration = Duration::from_secs(60);

/// How the names of Postgres' sockets and their lock files begin.
const POSTGRES: &str = ".s.PGSQL.";

/// Name of a MySQL server's socket. Since 5.7 there is a lock file of this name with `.lock` beside it.
pub(super) const MYSQL: &str = "mysql.sock";

/// Name of the socket of a Postgres server.
pub(super) fn postgres(port: u16) -> String {
    format!("{POSTGRES}{port}")
}

/// The path of a Postgres socket in `dir`.
pub fn path(dir: &Path, port: u16) -> PathBuf {
    dir.join(postgres(port))
}

/// A directory for one socket, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketDir {
    dir: tempfile::TempDir,
    /// Locked as long as the directory is in use.
    _lock: File,
}

impl SocketDir {
    /// Makes the directory below `base`, for `account` alone, and checks that the socket `name` fits in.
    pub(super) fn create(base: &Path, account: Option<Account>, name: &str) -> Result<Self> {
        let doing = || format!("cannot make a socket directory in `{}`", base.display());
        let dir = tempfile::Builder::new()
            .prefix(NAME)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(base)
            .doing(doing)?;
        let lock = File::open(dir.path()).doing(doing)?;
        lock.try_lock().map_err(std::io::Error::from).doing(doing)?;
        if let Some(account) = account {
            std::os::unix::fs::lchown(dir.path(), Some(account.uid), Some(account.gid)).doing(doing)?;
        }
        let socket = dir.path().join(name);
        let length = socket.as_os_str().len();
        if length > LONGEST {
            return Err(Error::new(
                Exit::Host,
                format!(
                    "the path of a socket may have {LONGEST} bytes, and `{}` has {length}",
                    socket.display()
                ),
            ));
        }
        Ok(SocketDir { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the socket directories that killed runs left in `base`, and says which. Others' files are
/// never touched: only directories of bm's name that no live run holds, with nothing but sockets in
/// them, go. What cannot be removed is left; it is a few bytes.
///
/// # Errors
/// [`Exit::Host`] when `base` cannot be listed.
pub fn sweep(base: &Path) -> Result<Vec<PathBuf>> {
    sweep_older(base, YOUNG)
}

fn sweep_older(base: &Path, young: Duration) -> Result<Vec<PathBuf>> {
    let listing = fs::read_dir(base).doing(|| "cannot look for old socket directories".into())?;
    let mut swept = Vec::new();
    for entry in listing.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(NAME));
        if ours && is_old(&entry.path(), young) && remove(&entry.path()).is_ok() {
            swept.push(entry.path());
        }
    }
    swept.sort();
    Ok(swept)
}

fn is_old(dir: &Path, young: Duration) -> bool {
    let age = |meta: std::fs::Metadata| SystemTime::now().duration_since(meta.modified().ok()?).ok();
    fs::symlink_metadata(dir)
        .ok()
        .and_then(age)
        .is_some_and(|age| age >= young)
}

/// `/tmp` is everybody's: no link is followed, and only names a server makes are unlinked.
fn remove(dir: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd: OwnedFd = rustix::fs::open(dir, flags, Mode::empty())?;
    rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    for entry in rustix::fs::Dir::read_from(fd.as_fd())? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(POSTGRES.as_bytes()) || name.starts_with(MYSQL.as_bytes()) {
            rustix::fs::unlinkat(&fd, entry.file_name(), AtFlags::empty())?;
        }
    }
    rustix::fs::rmdir(dir)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_directory_is_private_and_goes_when_dropped() {
        let base = tempfile::tempdir().unwrap();
        let dir = SocketDir::create(base.path(), None, &postgres(5432)).unwrap();
        let path = dir.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn a_base_that_is_too_deep_is_refused_and_nothing_stays() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(100));
        fs::create_dir(&deep).unwrap();
        let error = SocketDir::create(&deep, None, &postgres(5432)).unwrap_err();
        assert!(error.headline().contains("107 bytes"), "{error}");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }

    #[test]
    fn only_abandoned_directories_are_swept() {
        let base = tempfile::tempdir().unwrap();
        let held = SocketDir::create(base.path(), None, &postgres(5432)).unwrap();
        let at = |name: &str| base.path().join(name);
        for name in ["bm-smoke-dead", "bm-smoke-foreign", "other"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("bm-smoke-dead/.s.PGSQL.5432"), "").unwrap();
        fs::write(at("bm-smoke-dead/.s.PGSQL.5432.lock"), "").unwrap();
        fs::write(at("bm-smoke-dead/mysql.sock.lock"), "").unwrap();
        fs::write(at("bm-smoke-foreign/precious"), "").unwrap();
        std::os::unix::fs::symlink(at("other"), at("bm-smoke-link")).unwrap();

        assert_eq!(sweep(base.path()).unwrap(), Vec::<PathBuf>::new(), "all are young");
        assert_eq!(sweep_older(base.path(), Duration::ZERO).unwrap(), [at("bm-smoke-dead")]);
        assert!(held.path().exists() && at("bm-smoke-foreign/precious").exists() && at("other").exists());
    }
}
