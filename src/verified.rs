//! `recipes/verified.toml`: the builds that were made from real source, audited and smoke-tested.
//! Written only from sealed manifests; it never says more than a manifest does.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Result};
use crate::model::manifest::{Manifest, SourceRecord};

const HEADER: &str = "# Builds made from real source, audited and smoke-tested. Written by `bm verified add NAME` from sealed\n# manifests; not edited by hand. What is not here has not been proved.\n\n";

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Format.
    pub schema: u32,
    /// Builds, sorted by product, version, variant, toolchain, platform.
    #[serde(default, rename = "build")]
    pub builds: Vec<Entry>,
}

/// One proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Entry {
    /// Build name.
    pub name: String,
    /// `debian-12`.
    pub platform: String,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// Day of the build, UTC.
    pub date: String,
    /// `upstream checksum`, `upstream commit`, `distribution checksum`, `unproven copy`.
    pub source: String,
    /// The checksum or the commit.
    pub pin: String,
    /// Builds that it stands on, each with how its source is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// What the audit looked at.
    pub audit: String,
    /// What the smoke test did.
    pub smoke: String,
    /// Identity of the build.
    pub identity: String,
}

impl Verified {
    /// Reads the file's text.
    ///
    /// # Errors
    /// When it is not what bm writes.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let parsed: Verified = toml::from_str(text)
            .map_err(|e| Error::new(Exit::Usage, format!("cannot read `{file}`")).caused_by(e.message()))?;
        if parsed.schema > 1 {
            return Err(Error::new(
                Exit::Usage,
                format!("`{file}` has schema {}, this bm reads 1", parsed.schema),
            )
            .hint("use a newer bm"));
        }
        Ok(parsed)
    }

    /// The text as it is written.
    pub fn render(&self) -> String {
        let body = toml::to_string(self).expect("texts and numbers always serialise");
        format!("{HEADER}{body}")
    }

    /// Adds a proof; one of the same build on the same platform is replaced.
    pub fn add(&mut self, entry: Entry) {
        self.schema = 1;
        self.builds
            .retain(|b| (&b.name, &b.platform) != (&entry.name, &entry.platform));
        self.builds.push(entry);
        self.builds
            .sort_by(|a, b| (natural(&a.name), &a.platform).cmp(&(natural(&b.name), &b.platform)));
    }

    /// Platforms a build is proved on.
    pub fn platforms(&self, name: &str) -> Vec<&str> {
        self.builds
            .iter()
            .filter(|b| b.name == name)
            .map(|b| b.platform.as_str())
            .collect()
    }
}

/// Digits compare as numbers, so that pg99 comes before pg110.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut out = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(text);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, after) = tail.split_at(digits);
        out.push((number.parse().unwrap_or(0), word.to_owned()));
        rest = after;
    }
    out
}

/// How a source is known, in the words of [`Entry::source`], and what pins it. A local tree is pinned by its own
/// checksum, which proves nothing of where it came from. Only the pins of the shipped recipes are upstream's.
pub fn proof(source: &SourceRecord) -> Option<(&'static str, &str)> {
    match (source.kind.as_str(), source.commit.as_deref(), source.sha256.as_deref()) {
        ("local", _, Some(sha256)) => Some(("local tree", sha256)),
        ("git", Some(commit), _) if source.pinned_by == "recipe" => Some(("upstream commit", commit)),
        ("git", Some(commit), _) => Some(("unproven copy", commit)),
        (_, _, Some(sha256)) if source.pinned_by == "recipe" => Some(("upstream checksum", sha256)),
        (_, _, Some(sha256)) if source.obtained_from.starts_with("distro:") => Some(("distribution checksum", sha256)),
        (_, _, Some(sha256)) => Some(("unproven copy", sha256)),
        _ => None,
    }
}

/// The proof that a sealed manifest gives. `needed` gives the manifest of a build that it stands on.
///
/// # Errors
/// A local tree, an audit with findings or a smoke test that did nothing prove nothing.
pub fn entry(manifest: &Manifest, needed: impl Fn(&str) -> Option<Manifest>) -> Result<Entry> {
    let refuse = |why: &str| {
        Err(Error::new(
            Exit::Proof,
            format!("`{}` cannot be recorded as verified: {why}", manifest.name),
        ))
    };
    let Some(source) = manifest.sources.first() else {
        return refuse("it has no source");
    };
    if manifest.sources.iter().any(|s| s.kind == "local") {
        return refuse("it was built from a local tree");
    }
    if !manifest.audit.findings.is_empty() || manifest.audit.units == 0 {
        return refuse("its audit proves nothing");
    }
    if manifest.smoke.did.is_empty() {
        return refuse("it was not smoke-tested");
    }
    let Some((kind, pin)) = proof(source) else {
        return refuse("its source is not pinned");
    };
    let mut needs = Vec::new();
    for (name, identity) in &manifest.dependencies {
        let found = needed(name).filter(|m| m.identity == *identity);
        let Some(by) = found.as_ref().and_then(|m| m.sources.first()).and_then(proof) else {
            return refuse(&format!(
                "`{name}`, which it was built on, is not here any more to say what it is"
            ));
        };
        needs.push(format!("{name} ({})", by.0));
    }
    let compiler = manifest
        .toolchain
        .tools
        .get("cc")
        .map_or_else(String::new, |t| t.version.clone());
    Ok(Entry {
        name: manifest.name.clone(),
        platform: manifest.host.os_id.clone(),
        compiler,
        date: manifest.built_at.chars().take(10).collect(),
        source: kind.to_owned(),
        pin: pin.to_owned(),
        needs,
        audit: format!(
            "{} units, {} links, {} files",
            manifest.audit.units, manifest.audit.links, manifest.audit.files
        ),
        smoke: format!(
            "{} rows read back, {} steps",
            manifest.smoke.rows,
            manifest.smoke.did.len()
        ),
        identity: manifest.identity.clone(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn proof(name: &str, platform: &str) -> Entry {
        let text = |s: &str| s.to_owned();
        Entry {
            name: text(name),
            platform: text(platform),
            compiler: text("gcc 12.2.0"),
            date: text("2026-01-02"),
            source: text("upstream commit"),
            pin: text("abc"),
            needs: vec![],
            audit: text("1 units, 1 links, 1 files"),
            smoke: text("10 rows read back, 3 steps"),
            identity: text("00"),
        }
    }

    #[test]
    fn one_entry_per_build_and_platform_in_natural_order() {
        let mut file = Verified::default();
        for (name, platform) in [
            ("pg1310_def", "debian-12"),
            ("pg99_def", "debian-12"),
            ("pg1310_def", "debian-13"),
            ("pg1310_def", "debian-12"),
        ] {
            file.add(proof(name, platform));
        }
        let got: Vec<_> = file
            .builds
            .iter()
            .map(|b| (b.name.as_str(), b.platform.as_str()))
            .collect();
        assert_eq!(
            got,
            [
                ("pg99_def", "debian-12"),
                ("pg1310_def", "debian-12"),
                ("pg1310_def", "debian-13")
            ]
        );
        assert_eq!(Verified::parse(&file.render(), "f").unwrap(), file);
        assert_eq!(file.platforms("pg1310_def"), ["debian-12", "debian-13"]);
    }
}
