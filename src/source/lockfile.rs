//! The lockfile: commits, checksums and aliases that were resolved once and hold from then on.
//!
//! Owns the format of `<root>/.bm/lock.toml`. Readers skip keys they do not know; a file that cannot
//! be read is an error, never an empty lock, since a pin that is silently forgotten may move.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Result};
use crate::process::Cancel;

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// Everything that was locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lockfile {
    schema: u32,
    /// Releases and revisions of git repositories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git: Vec<GitLock>,
    /// Release archives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tarball: Vec<TarballLock>,
    /// Names that stand for what the distribution has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alias: Vec<AliasLock>,
}

/// A version or revision, and the commit it was found to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GitLock {
    /// Product id.
    pub product: String,
    /// Version, or the revision as the user gave it.
    pub version: String,
    /// Repository, without user name and query.
    pub url: String,
    /// Full commit id.
    pub commit: String,
    /// RFC 3339, UTC.
    pub locked_at: String,
}

/// A version, and the checksum its archive was found to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TarballLock {
    /// Product id.
    pub product: String,
    /// Version.
    pub version: String,
    /// Of the archive.
    pub sha256: String,
    /// File name.
    pub file: String,
    /// Where it came from: a URL, `mirror`, or `distro:<package>=<version>`.
    pub from: String,
    /// RFC 3339, UTC.
    pub locked_at: String,
}

/// A name that stands for the newest release a distribution has, and the release it was found to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AliasLock {
    /// `pgdistro`.
    pub name: String,
    /// Product id.
    pub product: String,
    /// The release it stands for.
    pub version: String,
    /// Of its archive.
    pub sha256: String,
    /// Distribution and suite, `debian:bookworm`.
    pub platform: String,
    /// Newer releases the index lists but the pool did not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
    /// RFC 3339, UTC.
    pub locked_at: String,
}

#[derive(Deserialize)]
struct Header {
    schema: u32,
}

impl Default for Lockfile {
    fn default() -> Self {
        Lockfile {
            schema: SCHEMA,
            git: vec![],
            tarball: vec![],
            alias: vec![],
        }
    }
}

impl Lockfile {
    /// Reads the lockfile; one that does not exist is empty.
    ///
    /// # Errors
    /// Exit 6 for a damaged file or one written by a newer bm.
    pub fn load(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => return Err(damaged(path, "it is not UTF-8 text")),
            Err(e) => return Err(Error::io("cannot read the lockfile", &e)),
        };
        let header: Header = toml::from_str(&text).map_err(|e| damaged(path, e))?;
        if header.schema > SCHEMA {
            return Err(Error::new(Exit::Store, "the lockfile was written by a newer bm")
                .detail("file", path.display())
                .detail("schema", format!("{}, this bm knows {SCHEMA}", header.schema))
                .hint("use that bm, or another root with `--root`"));
        }
        let lock: Lockfile = toml::from_str(&text).map_err(|e| damaged(path, e))?;
        lock.check(path)?;
        Ok(lock)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let commits = self.git.iter().map(|g| (&g.version, "commit", &g.commit, 40));
        let archives = self.tarball.iter().map(|t| (&t.version, "sha256", &t.sha256, 64));
        let aliases = self.alias.iter().map(|a| (&a.name, "sha256", &a.sha256, 64));
        for (name, key, value, length) in commits.chain(archives).chain(aliases) {
            if !is_hex(value, length) {
                return Err(damaged(
                    path,
                    format!("`{key}` of `{name}` is not {length} hex digits: `{value}`"),
                ));
            }
        }
        Ok(())
    }

    /// Writes the lockfile: a crash leaves the old one or this one.
    ///
    /// # Errors
    /// Exit 3 if it cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let body =
            toml::to_string(self).map_err(|e| Error::new(Exit::Bug, "cannot write the lockfile").caused_by(e))?;
        let text = format!(
            "# Written by bm: what versions and revisions were resolved to. Delete an entry to resolve it anew.\n{body}"
        );
        super::write_atomically(path, text.as_bytes())
    }

    /// The commit a version or revision of a product was locked to.
    pub fn find_git(&self, product: &str, version: &str) -> Option<&GitLock> {
        self.git.iter().find(|g| g.product == product && g.version == version)
    }

    /// The archive a version of a product was locked to.
    pub fn find_tarball(&self, product: &str, version: &str) -> Option<&TarballLock> {
        self.tarball
            .iter()
            .find(|t| t.product == product && t.version == version)
    }

    /// What a name was locked to on a platform.
    pub fn find_alias(&self, name: &str, platform: &str) -> Option<&AliasLock> {
        self.alias.iter().find(|a| a.name == name && a.platform == platform)
    }

    /// Locks a commit; an entry for the same product and version is replaced.
    pub fn add_git(&mut self, entry: GitLock) {
        self.git
            .retain(|g| (&g.product, &g.version) != (&entry.product, &entry.version));
        self.git.push(entry);
        self.git
            .sort_by(|a, b| (&a.product, &a.version).cmp(&(&b.product, &b.version)));
    }

    /// Locks an archive; an entry for the same product and version is replaced.
    pub fn add_tarball(&mut self, entry: TarballLock) {
        self.tarball
            .retain(|t| (&t.product, &t.version) != (&entry.product, &entry.version));
        self.tarball.push(entry);
        self.tarball
            .sort_by(|a, b| (&a.product, &a.version).cmp(&(&b.product, &b.version)));
    }

    /// Locks an alias; an entry for the same name and platform is replaced.
    pub fn add_alias(&mut self, entry: AliasLock) {
        self.alias
            .retain(|a| (&a.name, &a.platform) != (&entry.name, &entry.platform));
        self.alias.push(entry);
        self.alias
            .sort_by(|a, b| (&a.name, &a.platform).cmp(&(&b.name, &b.platform)));
    }
}

/// Loads, changes and saves the lockfile while no other bm does.
///
/// # Errors
/// As [`Lockfile::load`] and [`Lockfile::save`]; those of `change` leave the file as it was.
pub fn update<T>(path: &Path, cancel: &Cancel, change: impl FnOnce(&mut Lockfile) -> Result<T>) -> Result<T> {
    let _held = super::lock(&path.with_extension("toml.lock"), cancel)?;
    let mut lock = Lockfile::load(path)?;
    let before = lock.clone();
    let result = change(&mut lock)?;
    if lock != before {
        lock.save(path)?;
    }
    Ok(result)
}

/// Whether `text` is `length` lower-case hex digits.
pub(super) fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn damaged(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Exit::Store, "the lockfile is damaged")
        .detail("file", path.display())
        .caused_by(why.to_string().trim_end())
        .hint(format!(
            "repair it, or move it away and let bm resolve again: mv {0} {0}.damaged",
            path.display()
        ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn git(version: &str, digit: char) -> GitLock {
        GitLock {
            product: "postgres".into(),
            version: version.into(),
            url: "https://x.org/pg.git".into(),
            commit: digit.to_string().repeat(40),
            locked_at: "2024-01-01T00:00:00Z".into(),
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_replaced_by_version() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state/lock.toml");
        assert_eq!(Lockfile::load(&path).unwrap(), Lockfile::default());
        update(&path, &Cancel::default(), |lock| {
            lock.add_git(git("14.17", 'a'));
            lock.add_git(git("14.16", 'b'));
            lock.add_git(git("14.17", 'c'));
            lock.add_tarball(TarballLock {
                product: "postgres".into(),
                version: "15.18".into(),
                sha256: "d".repeat(64),
                file: "postgresql-15.18.tar.bz2".into(),
                from: "distro:postgresql-15=15.18-0+deb12u1".into(),
                locked_at: "2024-01-01T00:00:00Z".into(),
            });
            lock.add_alias(AliasLock {
                name: "pgdistro".into(),
                product: "postgres".into(),
                version: "15.18".into(),
                sha256: "d".repeat(64),
                platform: "debian:bookworm".into(),
                passed_over: vec!["15.20".into()],
                locked_at: "2024-01-01T00:00:00Z".into(),
            });
            Ok(())
        })
        .unwrap();
        let lock = Lockfile::load(&path).unwrap();
        assert_eq!(lock.git, [git("14.16", 'b'), git("14.17", 'c')]);
        assert_eq!(lock.find_git("postgres", "14.17").unwrap().commit, "c".repeat(40));
        assert!(lock.find_git("mysql", "14.17").is_none());
        assert_eq!(
            lock.find_tarball("postgres", "15.18").unwrap().file,
            "postgresql-15.18.tar.bz2"
        );
        assert_eq!(
            lock.find_alias("pgdistro", "debian:bookworm").unwrap().passed_over,
            ["15.20"]
        );
        assert!(lock.find_alias("pgdistro", "debian:trixie").is_none());
    }

    #[test]
    fn unknown_keys_are_skipped() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock.toml");
        fs::write(&path, "schema = 1\nnews = true\n[[other]]\nx = 1\n").unwrap();
        assert_eq!(Lockfile::load(&path).unwrap(), Lockfile::default());
    }

    #[test]
    fn damage_is_an_error_and_the_file_stays() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock.toml");
        let short = "schema = 1\n[[git]]\nproduct='p'\nversion='1'\nurl='u'\ncommit='abc'\nlocked-at='t'\n";
        for (text, said) in [
            ("schema = ", "the lockfile is damaged"),
            ("", "the lockfile is damaged"),
            ("schema = 1\n[[git]]\nproduct = 'p'\n", "the lockfile is damaged"),
            (short, "the lockfile is damaged"),
            (
                "schema = 99\ngit = 'other shape'\n",
                "the lockfile was written by a newer bm",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let error = update(&path, &Cancel::default(), |lock| {
                lock.add_git(git("1", 'a'));
                Ok(())
            })
            .unwrap_err();
            assert_eq!((error.headline(), error.exit()), (said, Exit::Store), "{text}");
            assert!(error.hint_text().is_some());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_failed_change_leaves_the_file() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock.toml");
        let result: Result<()> = update(&path, &Cancel::default(), |lock| {
            lock.add_git(git("1", 'a'));
            Err(Error::new(Exit::Source, "no"))
        });
        assert!(result.is_err());
        assert!(!path.exists());
    }
}
