//! Where a URL is really fetched from: the map of `BM_MIRROR` and of the configuration.
//!
//! Pure text, but for asking whether a mapped directory exists. A mapped place is tried first and
//! the original one after it (not offline); commits and checksums decide, never the place.

use std::path::{Path, PathBuf};

use crate::error::{Error, Exit, Result};
use crate::text::public_url;

/// Prefixes of URLs and what stands for them; the longest prefix wins, then the later entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirrorMap {
    entries: Vec<(String, String)>,
}

/// What a URL was mapped to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapped<'a> {
    value: &'a str,
    rest: &'a str,
}

/// One concrete place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// A file or directory of this host.
    Local(PathBuf),
    /// Somewhere on the network; `mapped` when the user's map names it, so that its protocol is the
    /// user's choice.
    Remote {
        /// With whatever user name the user gave: never recorded as it is.
        url: String,
        /// Named by the map.
        mapped: bool,
    },
}

impl Spot {
    /// How the place is called in errors and logs.
    pub fn label(&self) -> String {
        match self {
            Spot::Local(path) => path.display().to_string(),
            Spot::Remote { url, .. } => public_url(url),
        }
    }

    /// How the place is recorded: a mirror's own path says nothing to a reader of a manifest.
    pub fn recorded(&self) -> String {
        match self {
            Spot::Local(_) | Spot::Remote { mapped: true, .. } => "mirror".into(),
            Spot::Remote { url, .. } => public_url(url),
        }
    }
}

impl MirrorMap {
    /// Reads `URL-PREFIX=DIRECTORY-OR-URL` entries parted by white space.
    ///
    /// # Errors
    /// Exit 2 with the entry that cannot be read.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for entry in text.split_whitespace() {
            let bad = |why: &str| {
                Error::new(Exit::Usage, format!("cannot read the mirror `{}`", public_url(entry)))
                    .detail("reason", why)
                    .hint("BM_MIRROR is a list of URL-PREFIX=DIRECTORY-OR-URL, parted by spaces or newlines")
            };
            let (prefix, value) = entry.split_once('=').ok_or_else(|| bad("there is no `=`"))?;
            if prefix.is_empty() || value.is_empty() {
                return Err(bad("one side of `=` is empty"));
            }
            let value = value.strip_prefix("file://").unwrap_or(value);
            if !value.starts_with('/') && !is_url(value) {
                return Err(bad("the place is neither an absolute directory nor a URL"));
            }
            entries.push((prefix.to_owned(), value.to_owned()));
        }
        Ok(MirrorMap { entries })
    }

    /// The map of a config file, which has checked its places.
    pub fn of_config(pairs: &std::collections::BTreeMap<String, String>) -> Self {
        MirrorMap {
            entries: pairs
                .iter()
                .map(|(prefix, place)| (prefix.clone(), place.clone()))
                .collect(),
        }
    }

    /// This map with the entries of `later` after it.
    #[must_use]
    pub fn merge(mut self, later: MirrorMap) -> Self {
        self.entries.extend(later.entries);
        self
    }

    /// The place that stands for `url`: the value of the longest prefix with the rest appended.
    pub fn map(&self, url: &str) -> Option<String> {
        self.find(url).map(|m| appended(m.value, m.rest))
    }

    fn find<'a>(&'a self, url: &'a str) -> Option<Mapped<'a>> {
        self.entries
            .iter()
            .filter_map(|(prefix, value)| {
                Some((
                    prefix.len(),
                    Mapped {
                        value,
                        rest: rest_of(url, prefix)?,
                    },
                ))
            })
            .max_by_key(|(length, _)| *length)
            .map(|(_, mapped)| mapped)
    }

    /// Places of a git repository, in the order to try them.
    ///
    /// A mapped directory is read in two ways: it is the repository itself (the prefix was its whole
    /// URL), or the rest of the URL is below it, with or without `.git`.
    pub fn git_spots(&self, url: &str, offline: bool) -> Vec<Spot> {
        let mapped = self.find(url).map(|m| match m.value.strip_prefix('/') {
            None => remote(&appended(m.value, m.rest), true),
            Some(_) => {
                let whole = appended(m.value, m.rest);
                let bare = whole.strip_suffix(".git").unwrap_or(&whole).to_owned();
                let readings = [whole.clone(), bare.clone(), format!("{bare}.git"), m.value.to_owned()];
                let found = readings.into_iter().find(|p| is_git(Path::new(p))).unwrap_or(whole);
                Spot::Local(found.into())
            }
        });
        mapped.into_iter().chain(original(url, offline)).collect()
    }

    /// Places of a single file, in the order to try them. A mapped directory may repeat the rest of
    /// the URL or hold just the file.
    pub fn file_spots(&self, url: &str, offline: bool) -> Vec<Spot> {
        let mapped = self.find(url).map(|m| {
            let whole = appended(m.value, m.rest);
            if !m.value.starts_with('/') {
                return remote(&whole, true);
            }
            let flat = Path::new(m.value).join(file_name(url));
            let flat_only = !Path::new(&whole).is_file() && flat.is_file();
            Spot::Local(if flat_only { flat } else { whole.into() })
        });
        mapped.into_iter().chain(original(url, offline)).collect()
    }
}

fn remote(url: &str, mapped: bool) -> Spot {
    Spot::Remote {
        url: url.to_owned(),
        mapped,
    }
}

fn original(url: &str, offline: bool) -> Option<Spot> {
    let local = url.strip_prefix("file://").unwrap_or(url);
    if local.starts_with('/') {
        return Some(Spot::Local(local.into()));
    }
    (!offline).then(|| remote(url, false))
}

/// What follows `prefix` in `url`, if the prefix ends where a part of the URL ends.
fn rest_of<'a>(url: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = url.strip_prefix(prefix)?;
    let at_a_border = prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/') || rest == ".git";
    at_a_border.then_some(rest)
}

fn appended(value: &str, rest: &str) -> String {
    let rest = rest.trim_start_matches('/');
    match rest {
        "" | ".git" => value.to_owned(),
        _ => format!("{}/{rest}", value.trim_end_matches('/')),
    }
}

fn is_url(text: &str) -> bool {
    ["https://", "http://", "ssh://", "git://"]
        .iter()
        .any(|p| text.starts_with(p))
}

fn is_git(dir: &Path) -> bool {
    dir.join(".git").exists() || (dir.join("HEAD").is_file() && dir.join("objects").is_dir())
}

/// The last part of a URL's path, without its query.
pub fn file_name(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fs_err as fs;

    #[test]
    fn the_longest_prefix_wins_and_ends_at_a_border() {
        let map = MirrorMap::parse(
            "https://github.com=/m/hub\nhttps://github.com/postgres/postgres.git=/m/pg https://ftp.x.org/=https://mirror/ftp",
        )
        .unwrap();
        for (url, expected) in [
            ("https://github.com/postgres/postgres.git", Some("/m/pg")),
            (
                "https://github.com/postgres/postgres.github",
                Some("/m/hub/postgres/postgres.github"),
            ),
            ("https://github.com.evil.org/x", None),
            (
                "https://ftp.x.org/pub/a.tar.gz",
                Some("https://mirror/ftp/pub/a.tar.gz"),
            ),
            ("https://elsewhere.org/", None),
        ] {
            assert_eq!(map.map(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_later_entry_for_the_same_prefix_replaces_an_earlier_one() {
        let config = MirrorMap::parse("https://a.org=/one").unwrap();
        let merged = config.merge(MirrorMap::parse("https://a.org=/two").unwrap());
        assert_eq!(merged.map("https://a.org/x").as_deref(), Some("/two/x"));
    }

    #[test]
    fn entries_that_cannot_be_meant_are_refused_without_showing_passwords() {
        for bad in ["https://a.org", "=x", "https://a.org=", "https://a.org=relative/dir"] {
            let error = MirrorMap::parse(bad).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage, "{bad}");
        }
        let error = MirrorMap::parse("https://me:secret@a.org/x").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_git_mapping_is_the_repository_or_a_folder_of_repositories() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        for repo in ["whole", "hub/acme/tool.git", "hub/acme/other", "plain/.git"] {
            fs::create_dir_all(home.join(repo).join("objects")).unwrap();
            fs::write(home.join(repo).join("HEAD"), "").unwrap();
        }
        let dir = home.display();
        let map = MirrorMap::parse(&format!(
            "https://w.org/r.git={dir}/whole https://hub.org={dir}/hub https://p.org/p={dir}/plain"
        ))
        .unwrap();
        let local = |p: &str| Spot::Local(home.join(p));
        for (url, expected) in [
            ("https://w.org/r.git", local("whole")),
            ("https://hub.org/acme/tool.git", local("hub/acme/tool.git")),
            ("https://hub.org/acme/tool", local("hub/acme/tool.git")),
            ("https://hub.org/acme/other.git", local("hub/acme/other")),
            ("https://hub.org/acme/absent.git", local("hub/acme/absent.git")),
            ("https://p.org/p.git", local("plain")),
        ] {
            assert_eq!(map.git_spots(url, true), [expected], "{url}");
        }
        let online = map.git_spots("https://w.org/r.git", false);
        assert_eq!(
            online[1],
            remote("https://w.org/r.git", false),
            "the original place comes second"
        );
    }

    #[test]
    fn a_file_mapping_repeats_the_path_or_holds_just_the_file() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("pub")).unwrap();
        fs::write(temp.path().join("pub/a.tar"), "").unwrap();
        fs::write(temp.path().join("b.tar"), "").unwrap();
        let map = MirrorMap::parse(&format!("https://x.org={}", temp.path().display())).unwrap();
        for (url, expected) in [
            ("https://x.org/pub/a.tar", "pub/a.tar"),
            ("https://x.org/pub/b.tar?mirror=1", "b.tar"),
            ("https://x.org/pub/c.tar", "pub/c.tar"),
        ] {
            assert_eq!(
                map.file_spots(url, true),
                [Spot::Local(temp.path().join(expected))],
                "{url}"
            );
        }
        assert_eq!(map.file_spots("https://other.org/x", true), []);
    }

    #[test]
    fn recorded_urls_hold_no_user_and_no_query() {
        for (url, expected) in [
            ("https://me:pw@x.org/a/b.git?token=1#f", "https://x.org/a/b.git"),
            ("ssh://git@x.org", "ssh://x.org"),
            ("https://x.org/a@b/c", "https://x.org/a@b/c"),
            ("--depth=1", "--depth=1"),
        ] {
            assert_eq!(public_url(url), expected);
        }
        assert_eq!(Spot::Local("/m/x".into()).recorded(), "mirror");
        assert_eq!(remote("https://u@x.org/a", false).recorded(), "https://x.org/a");
    }
}
