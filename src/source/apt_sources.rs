//! The texts apt keeps: lists of sources in both forms, and stanzas of key and value.
//!
//! Text in, values out. Owns the judgement which entries are the distribution's own: a third party's
//! archive may carry another product under the same package name.

use std::collections::BTreeMap;

/// Components whose packages the distribution's own archive keeps as upstream released them.
const COMPONENTS: &[&str] = &["main", "universe"];

/// What follows the code name in suites of the distribution itself.
const POCKETS: &[&str] = &[
    "",
    "-updates",
    "-security",
    "-proposed-updates",
    "-proposed",
    "-backports",
    "/updates",
];

/// Suites that every Debian knows beside code names.
const DEBIAN_SUITES: &[&str] = &["stable", "testing", "unstable", "sid", "oldstable", "oldoldstable"];

/// One entry of a list of sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Base URIs.
    pub uris: Vec<String>,
    /// Suites.
    pub suites: Vec<String>,
    /// Components.
    pub components: Vec<String>,
    /// Keyring, fingerprints or an embedded key, as written; continuation lines keep their blank.
    pub signed_by: Option<String>,
}

/// Which distribution this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `debian`, `ubuntu`.
    pub id: String,
    /// `bookworm`; empty where the system does not say (Debian's unstable).
    pub codename: String,
}

impl Release {
    /// Reads `/etc/os-release`.
    pub fn read(text: &str) -> Option<Release> {
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
            Some(line.trim().trim_matches(['"', '\'']).to_ascii_lowercase())
        };
        Some(Release {
            id: field("ID")?,
            codename: field("VERSION_CODENAME").unwrap_or_default(),
        })
    }

    /// Distribution and suite in one word, `debian:bookworm`.
    pub fn platform(&self) -> String {
        match self.codename.as_str() {
            "" => self.id.clone(),
            codename => format!("{}:{codename}", self.id),
        }
    }

    fn owns(&self, suite: &str) -> bool {
        let of_release = !self.codename.is_empty()
            && suite
                .strip_prefix(&self.codename)
                .is_some_and(|pocket| POCKETS.contains(&pocket));
        let base = POCKETS
            .iter()
            .filter(|p| !p.is_empty())
            .find_map(|p| suite.strip_suffix(p))
            .unwrap_or(suite);
        of_release || (self.id == "debian" && DEBIAN_SUITES.contains(&base))
    }

    /// The part of an entry that is this distribution's own.
    pub fn own(&self, entry: &Entry) -> Option<Entry> {
        let own = Entry {
            suites: entry.suites.iter().filter(|s| self.owns(s)).cloned().collect(),
            components: entry
                .components
                .iter()
                .filter(|c| COMPONENTS.contains(&c.as_str()))
                .cloned()
                .collect(),
            ..entry.clone()
        };
        (!own.suites.is_empty() && !own.components.is_empty() && !own.uris.is_empty()).then_some(own)
    }
}

impl Entry {
    /// As an entry for source packages. No other option is taken over: `Trusted: yes` would be a way
    /// around signatures.
    pub fn render(&self) -> String {
        let signed = self.signed_by.as_ref().map(|s| format!("Signed-By: {s}\n"));
        format!(
            "Types: deb-src\nURIs: {}\nSuites: {}\nComponents: {}\n{}\n",
            self.uris.join(" "),
            self.suites.join(" "),
            self.components.join(" "),
            signed.unwrap_or_default()
        )
    }
}

/// Reads a `.list` file: `deb [options] URI suite component...`.
pub fn one_line(text: &str) -> Vec<Entry> {
    text.lines().filter_map(one_line_entry).collect()
}

fn one_line_entry(line: &str) -> Option<Entry> {
    let line = line.split('#').next()?.trim();
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    if kind != "deb" && kind != "deb-src" {
        return None;
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(open) => open.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let signed_by = options
        .split_whitespace()
        .find_map(|o| o.strip_prefix("signed-by="))
        .map(|s| s.replace(',', " "));
    Some(Entry {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by,
    })
}

/// Reads a `.sources` file; disabled entries are left out.
pub fn deb822(text: &str) -> Vec<Entry> {
    stanzas(text)
        .into_iter()
        .filter(|s| {
            s.get("enabled")
                .is_none_or(|v| !matches!(v.to_ascii_lowercase().as_str(), "no" | "false" | "off" | "0"))
        })
        .filter_map(|s| {
            let words = |key: &str| -> Option<Vec<String>> {
                Some(s.get(key)?.split_whitespace().map(str::to_owned).collect())
            };
            words("types")?.iter().find(|t| t.starts_with("deb"))?;
            Some(Entry {
                uris: words("uris")?,
                suites: words("suites")?,
                components: words("components").unwrap_or_default(),
                signed_by: s.get("signed-by").cloned(),
            })
        })
        .collect()
}

/// Stanzas parted by empty lines; keys in lower case. A value keeps the lines that continue it, with
/// their leading blank. Comment lines may stand anywhere.
pub fn stanzas(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    let mut key = String::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let stanza = all.last_mut().expect("there is one from the start");
        if line.trim().is_empty() {
            key.clear();
            if !stanza.is_empty() {
                all.push(BTreeMap::new());
            }
        } else if line.starts_with([' ', '\t']) {
            if let Some(value) = stanza.get_mut(&key) {
                let value: &mut String = value;
                value.push('\n');
                value.push_str(line.trim_end());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            key = name.to_ascii_lowercase();
            stanza.insert(key.clone(), value.trim().to_owned());
        }
    }
    all.retain(|s| !s.is_empty());
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn bookworm() -> Release {
        Release::read("NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n").unwrap()
    }

    fn rendered(entries: &[Entry], release: &Release) -> Vec<String> {
        entries
            .iter()
            .filter_map(|e| release.own(e))
            .map(|e| e.render())
            .collect()
    }

    #[test]
    fn entries_of_the_distribution_are_kept_in_both_forms() {
        let list = "\
# deb http://old.example.org bookworm main
deb http://deb.example.org/debian bookworm main contrib # with a comment
deb-src [ arch=amd64 signed-by=/usr/k.gpg trusted=yes ] http://sec.example.org bookworm-security main
deb https://cloud.example.org/apt cloud-sdk-bookworm main
deb https://pg.example.org/pub/repos/apt bookworm-pgdg main
deb https://docker.example.org bookworm stable
rpm nonsense
deb
";
        assert_eq!(
            rendered(&one_line(list), &bookworm()),
            [
                "Types: deb-src\nURIs: http://deb.example.org/debian\nSuites: bookworm\nComponents: main\n\n",
                "Types: deb-src\nURIs: http://sec.example.org\nSuites: bookworm-security\nComponents: main\nSigned-By: /usr/k.gpg\n\n",
            ]
        );
        let sources = "\
Types: deb
# a comment between fields
URIs: http://deb.example.org/debian
Suites: bookworm bookworm-updates other
Components: main non-free
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Enabled: no
Types: deb
URIs: http://off.example.org
Suites: bookworm
Components: main

Types: deb
URIs: https://deb.node.example.org
Suites: nodistro
Components: main
";
        assert_eq!(
            rendered(&deb822(sources), &bookworm()),
            [
                "Types: deb-src\nURIs: http://deb.example.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
              Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n"
            ]
        );
    }

    #[test]
    fn suites_belong_to_their_distribution() {
        let noble = Release::read("ID=ubuntu\nVERSION_CODENAME=noble\n").unwrap();
        let sid = Release::read("ID=debian\n").unwrap();
        for (release, suite, owned) in [
            (&noble, "noble-updates", true),
            (&noble, "stable", false),
            (&noble, "jammy", false),
            (&bookworm(), "stable-security", true),
            (&bookworm(), "bookworm/updates", true),
            (&bookworm(), "bookworm-pgdg", false),
            (&sid, "sid", true),
            (&sid, "", false),
        ] {
            assert_eq!(release.owns(suite), owned, "{suite} on {}", release.platform());
        }
        assert_eq!(
            (noble.platform(), sid.platform()),
            ("ubuntu:noble".into(), "debian".into())
        );
        assert_eq!(Release::read("NAME=x"), None);
    }
}
