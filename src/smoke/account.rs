//! The account a server runs as: servers refuse root, so root steps down to an unprivileged user.
//!
//! Owns the choice and the question whether that account can reach a path. Knows nothing of servers.
//! Reads `/etc/passwd` only: the chroots bm must work in have no other source of names.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};
use crate::process::Account;

/// Where accounts are listed.
const PASSWD: &str = "/etc/passwd";

/// Uid that means "nobody" wherever the name itself is missing.
const NOBODY: u32 = 65534;

/// One line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    account: Account,
}

/// Lines that cannot be read are none of bm's business and are left out.
fn parse_passwd(text: &str) -> Vec<Entry> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some(Entry {
                name: name.to_owned(),
                account: Account { uid, gid },
            })
        })
        .collect()
}

fn entries() -> Result<Vec<Entry>> {
    let text = fs::read(PASSWD).doing(|| "cannot read the list of accounts".into())?;
    Ok(parse_passwd(&String::from_utf8_lossy(&text)))
}

/// Whether bm runs as root and must step down.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The uid bm runs as.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The account for servers: `None` (run as ourselves) unless bm is root, then `nobody`.
///
/// # Errors
/// [`Exit::Host`] when there is no such account: `initdb` insists on one that has a name.
pub fn choose() -> Result<Option<Account>> {
    if !is_root() {
        return Ok(None);
    }
    nobody(&entries()?).map(Some)
}

fn nobody(entries: &[Entry]) -> Result<Account> {
    entries
        .iter()
        .find(|e| e.name == "nobody" && e.account.uid != 0)
        .or_else(|| entries.iter().find(|e| e.account.uid == NOBODY))
        .map(|e| e.account)
        .ok_or_else(|| {
            Error::new(
                Exit::Host,
                "no unprivileged account to run a server as: servers refuse root",
            )
            .detail("looked for", format!("`nobody` or uid {NOBODY} in {PASSWD}"))
            .hint("create it: useradd --system --no-create-home --shell /usr/sbin/nologin nobody")
        })
}

/// The account of a user that was named.
///
/// # Errors
/// [`Exit::Usage`] for an unknown name, and for root under any name.
pub fn named(user: &str) -> Result<Account> {
    find(&entries()?, user)
}

fn find(entries: &[Entry], user: &str) -> Result<Account> {
    let entry = entries
        .iter()
        .find(|e| e.name == user)
        .ok_or_else(|| Error::new(Exit::Usage, format!("no user `{user}` in {PASSWD}")))?;
    if entry.account.uid == 0 {
        return Err(Error::new(
            Exit::Usage,
            format!("a server cannot run as `{user}`: servers refuse root"),
        )
        .hint("name an unprivileged user with `--user`"));
    }
    Ok(entry.account)
}

/// The name of a uid, where it has one.
///
/// # Errors
/// [`Exit::Host`] when the list of accounts cannot be read.
pub fn name_of(uid: u32) -> Result<Option<String>> {
    Ok(entries()?.into_iter().find(|e| e.account.uid == uid).map(|e| e.name))
}

/// What an account must be able to do with a path, besides reaching it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Pass through a directory.
    Enter,
    /// Read and run a program.
    Execute,
}

impl Need {
    fn bits(self) -> u32 {
        match self {
            Need::Enter => 0o1,
            Need::Execute => 0o5,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Need::Enter => "enter",
            Need::Execute => "run",
        }
    }
}

/// The first place on a path where an account is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The directory or file that stops it.
    pub at: PathBuf,
    /// Permission bits of `at`.
    pub mode: u32,
    /// The account.
    pub account: Account,
    /// What it could not do.
    pub need: Need,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the unprivileged uid {} cannot {} `{}` (mode {:04o})",
            self.account.uid,
            self.need.word(),
            self.at.display(),
            self.mode
        )
    }
}

impl Blocked {
    /// The failure for a user who asked for `path`; `hint` is the way out.
    pub fn into_error(self, path: &Path, hint: impl Into<String>) -> Error {
        Error::new(Exit::Host, self.to_string())
            .detail("on the way to", path.display())
            .hint(hint)
    }
}

/// Whether `account` can reach `path` and has the `need`ed rights on it, judged by owner and mode
/// bits. Both the path as given and the one without symbolic links are walked.
///
/// # Errors
/// [`Exit::Host`] when a part of the path cannot be looked at.
pub fn reach(account: Account, path: &Path, need: Need) -> Result<std::result::Result<(), Blocked>> {
    let real = fs::canonicalize(path).doing(|| format!("cannot look at `{}`", path.display()))?;
    for (path, need) in steps(path, need).chain(steps(&real, need)) {
        let meta = fs::metadata(path).doing(|| format!("cannot look at `{}`", path.display()))?;
        if !may(account, meta.uid(), meta.gid(), meta.mode(), need) {
            return Ok(Err(Blocked {
                at: path.to_owned(),
                mode: meta.mode() & 0o7777,
                account,
                need,
            }));
        }
    }
    Ok(Ok(()))
}

/// The path's parents, outermost first, then the path itself with its own need.
fn steps(path: &Path, need: Need) -> impl Iterator<Item = (&Path, Need)> {
    let mut parents: Vec<_> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
    parents.reverse();
    parents
        .into_iter()
        .map(|parent| (parent, Need::Enter))
        .chain(std::iter::once((path, need)))
}

/// The kernel's rule: only the first class that fits counts.
fn may(account: Account, uid: u32, gid: u32, mode: u32, need: Need) -> bool {
    let class = if account.uid == uid {
        6
    } else if account.gid == gid {
        3
    } else {
        0
    };
    (mode >> class) & need.bits() == need.bits()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const STRANGER: Account = Account {
        uid: 4_000_000_001,
        gid: 4_000_000_001,
    };

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Below a directory that strangers may enter, whatever TMPDIR's own mode.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::Builder::new()
            .prefix("bm-account-")
            .tempdir_in("/tmp")
            .unwrap();
        chmod(dir.path(), 0o755);
        fs::create_dir_all(dir.path().join("a/b/bin")).unwrap();
        fs::write(dir.path().join("a/b/bin/postgres"), "").unwrap();
        for (path, mode) in [
            ("a", 0o755),
            ("a/b", 0o755),
            ("a/b/bin", 0o755),
            ("a/b/bin/postgres", 0o755),
        ] {
            chmod(&dir.path().join(path), mode);
        }
        dir
    }

    #[test]
    fn a_closed_parent_is_named() {
        let tree = tree();
        let program = tree.path().join("a/b/bin/postgres");
        assert_eq!(reach(STRANGER, &program, Need::Execute).unwrap(), Ok(()));
        for (path, mode, need) in [
            ("a", 0o700, Need::Enter),
            ("a/b", 0o750, Need::Enter),
            ("a/b/bin/postgres", 0o711, Need::Execute),
            ("a/b/bin/postgres", 0o644, Need::Execute),
        ] {
            let at = tree.path().join(path);
            chmod(&at, mode);
            let blocked = reach(STRANGER, &program, Need::Execute).unwrap().unwrap_err();
            assert_eq!((&blocked.at, blocked.mode, blocked.need), (&at, mode, need));
            let error = blocked.into_error(&program, "hint");
            assert_eq!(error.exit(), Exit::Host);
            assert!(error.headline().contains(&format!("`{}`", at.display())), "{error}");
            chmod(&at, 0o755);
        }
    }

    #[test]
    fn the_way_through_a_symbolic_link_is_walked_too() {
        let tree = tree();
        let link = tree.path().join("link");
        std::os::unix::fs::symlink(tree.path().join("a/b"), &link).unwrap();
        chmod(&tree.path().join("a"), 0o700);
        let blocked = reach(STRANGER, &link.join("bin/postgres"), Need::Execute).unwrap();
        assert_eq!(blocked.unwrap_err().at, tree.path().canonicalize().unwrap().join("a"));
    }

    #[test]
    fn a_missing_path_is_an_error_that_names_it() {
        let error = reach(STRANGER, Path::new("/nonexistent/bm"), Need::Enter).unwrap_err();
        assert!(error.headline().contains("`/nonexistent/bm`"), "{error}");
    }

    #[test]
    fn only_the_first_class_that_fits_counts() {
        let account = Account { uid: 10, gid: 20 };
        for (uid, gid, mode, want) in [
            (10, 20, 0o077, false),
            (10, 99, 0o100, true),
            (99, 20, 0o707, false),
            (99, 20, 0o010, true),
            (99, 99, 0o001, true),
            (99, 99, 0o770, false),
        ] {
            assert_eq!(may(account, uid, gid, mode, Need::Enter), want, "{uid} {gid} {mode:o}");
        }
    }

    #[test]
    fn accounts_are_read_from_passwd() {
        let text = "root:x:0:0:root:/root:/bin/sh\n+nis\nbad:x:many:1::/:\npg:x:101:103:a:b:c:d\n\
                    nobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin\n";
        let entries = parse_passwd(text);
        let names: Vec<_> = entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["root", "pg", "nobody"]);
        assert_eq!(find(&entries, "pg").unwrap(), Account { uid: 101, gid: 103 });
        assert_eq!(nobody(&entries).unwrap(), Account { uid: 65534, gid: 65533 });
        for (user, want) in [("root", "refuse root"), ("mysql", "no user `mysql`")] {
            let error = find(&entries, user).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage);
            assert!(error.headline().contains(want), "{error}");
        }
    }

    #[test]
    fn without_an_unprivileged_account_the_host_is_not_fit() {
        assert_eq!(
            nobody(&parse_passwd("root:x:0:0::/:\nnobody:x:0:0::/:\n"))
                .unwrap_err()
                .exit(),
            Exit::Host
        );
        let other = parse_passwd("overflow:x:65534:65534::/:\n");
        assert_eq!(nobody(&other).unwrap(), Account { uid: 65534, gid: 65534 });
    }
}
