//! The configuration bm writes into a data directory.
//!
//! `postgresql.conf` includes `bm.conf` (port, socket, address) and then, if given, `user.conf`, a copy
//! of the user's file, so that its words win. `bm.json` remembers what no server setting says.

use std::io::Write;
use std::os::unix::fs::fchown;
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, Result};
use crate::process::Account;

/// bm's own settings.
pub(super) const OWN: &str = "bm.conf";

/// Copy of the user's settings.
pub(super) const USER: &str = "user.conf";

/// What `init` remembers for the commands after it.
const RECORD: &str = "bm.json";

/// Name of the superuser and of the port asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) schema: u32,
    pub(super) superuser: String,
    pub(super) port: u16,
}

/// Text of `bm.conf`.
pub(super) fn own(datadir: &str, port: u16) -> String {
    format!(
        "# Written by `bm server init`.\n\
         port = {port}\n\
         listen_addresses = '127.0.0.1'\n\
         unix_socket_directories = {}\n",
        quoted_list_entry(datadir)
    )
}

/// A list with one entry, as a string of a configuration file. The entry has double quotes of its own,
/// lest a blank end it; what double quotes cannot hold is no path of a data directory (`as_text`).
fn quoted_list_entry(text: &str) -> String {
    format!("'\"{}\"'", text.replace('\'', "''"))
}

/// Writes all of it into a fresh cluster.
pub(super) fn write(
    datadir: &Path,
    own: &str,
    user: Option<&str>,
    record: &Record,
    account: Option<Account>,
) -> Result<()> {
    create(&datadir.join(OWN), own, account)?;
    let mut includes = format!("\n# Added by `bm server init`.\ninclude '{OWN}'\n");
    if let Some(user) = user {
        create(&datadir.join(USER), user, account)?;
        includes += &format!("include '{USER}'\n");
    }
    let json = serde_json::to_string_pretty(record).expect("a record of strings and numbers is JSON");
    create(&datadir.join(RECORD), &format!("{json}\n"), account)?;
    // The directory is another account's, so bm as root follows no link in it.
    fs::OpenOptions::new()
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(datadir.join("postgresql.conf"))
        .and_then(|mut file| file.write_all(includes.as_bytes()))
        .doing(|| "cannot add to the server's configuration".into())
}

fn create(path: &Path, text: &str, account: Option<Account>) -> Result<()> {
    let doing = || format!("cannot write `{}`", path.display());
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .doing(doing)?;
    file.write_all(text.as_bytes()).doing(doing)?;
    match account {
        Some(a) => fchown(file.file(), Some(a.uid), Some(a.gid)).doing(doing),
        None => Ok(()),
    }
}

/// What `init` remembered; `None` for a data directory that bm did not make.
pub(super) fn read(datadir: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(datadir.join(RECORD)).ok()?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_odd_characters_stays_one_entry() {
        for (dir, want) in [("/data/pg", r#"'"/data/pg"'"#), ("/it's here", r#"'"/it''s here"'"#)] {
            assert_eq!(quoted_list_entry(dir), want);
        }
    }

    #[test]
    fn the_users_words_come_last() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("postgresql.conf"), "port = 1").unwrap();
        let record = Record {
            schema: 1,
            superuser: "me".into(),
            port: 5999,
        };
        write(dir.path(), &own("/d", 5999), Some("work_mem = 1MB\n"), &record, None).unwrap();
        let text = fs::read_to_string(dir.path().join("postgresql.conf")).unwrap();
        let lines: Vec<_> = text.lines().filter(|l| l.starts_with("include")).collect();
        assert_eq!(lines, ["include 'bm.conf'", "include 'user.conf'"]);
        assert!(
            text.starts_with("port = 1\n"),
            "a last line without its end is not glued to: {text}"
        );
        assert_eq!(read(dir.path()), Some(record));
    }

    #[test]
    fn a_link_in_the_cluster_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("postgresql.conf")).unwrap();
        let record = Record {
            schema: 1,
            superuser: "me".into(),
            port: 1,
        };
        assert!(write(dir.path(), "", None, &record, None).is_err());
        assert_eq!(fs::read_to_string(target).unwrap(), "mine");
    }
}
