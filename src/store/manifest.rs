//! The manifest on disk: canonical text, its seal, and whether a tree's manifest counts.
//!
//! Knows nothing of how a prefix came to its place.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::disk;
use crate::digest::{canonical, sha256};
use crate::layout::manifest_file;
use crate::model::manifest::{Glance, Manifest, SCHEMA};

/// What a tree says about itself, whole or in part.
#[derive(Debug, Clone, PartialEq)]
pub enum ManifestState<T = Manifest> {
    /// Parses, its own hash fits, and so do name and place.
    Valid(Box<T>),
    /// There is none.
    Absent,
    /// There is one that does not count, and why.
    Torn(String),
}

impl<T> ManifestState<T> {
    /// The manifest, if it counts.
    pub fn valid(self) -> Option<Box<T>> {
        match self {
            ManifestState::Valid(manifest) => Some(manifest),
            ManifestState::Absent | ManifestState::Torn(_) => None,
        }
    }
}

const SEAL_KEY: &str = "\"self_sha256\":\"";

/// Fills in `self_sha256`: the hash of the canonical text without that field.
#[must_use]
pub fn seal(mut manifest: Manifest) -> Manifest {
    let mut value = to_value(&manifest);
    value
        .as_object_mut()
        .expect("a manifest is an object")
        .remove("self_sha256");
    manifest.self_sha256 = sha256(canonical(&value).as_bytes());
    manifest
}

/// The bytes of `manifest.json`.
pub fn text(sealed: &Manifest) -> String {
    canonical(&to_value(sealed)) + "\n"
}

fn to_value(manifest: &Manifest) -> Value {
    serde_json::to_value(manifest).expect("a manifest has text keys only")
}

/// Reads the text of a sealed manifest, wherever it is kept.
///
/// The seal is checked over the bytes, not over parsed values: a number that changes its last digit
/// in reading must not break it, and any edit must.
///
/// # Errors
/// Why it does not count.
pub fn parse(text: &str) -> Result<Manifest, String> {
    parse_part(text)
}

fn parse_part<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // The schema first: a newer one may seal differently. The rest is skipped, not kept: evidence makes
    // manifests long, and a second run of many builds reads them all.
    let head: Head = serde_json::from_str(text).map_err(|e| format!("it is not whole: {e}"))?;
    match head.schema.as_ref().and_then(Value::as_u64) {
        Some(schema) if schema > u64::from(SCHEMA) => {
            return Err(format!(
                "its schema {schema} is newer than {SCHEMA}, the newest that this bm reads"
            ));
        }
        Some(_) => {}
        None => return Err("it has no `schema`".into()),
    }
    check_seal(text)?;
    serde_json::from_str(text).map_err(|e| format!("it lacks something: {e}"))
}

#[derive(Deserialize)]
struct Head {
    schema: Option<Value>,
}

fn check_seal(text: &str) -> Result<(), String> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    // Inside a JSON string its quotes would be escaped, so this finds keys only.
    let mut parts = text.split(SEAL_KEY);
    let (Some(before), Some(after), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err("it is not sealed".into());
    };
    let (seal, after) = after.split_once("\",").ok_or("it is not sealed")?;
    if sha256(format!("{before}{after}").as_bytes()) == seal {
        return Ok(());
    }
    Err("it was changed after bm sealed it: its own hash does not fit".into())
}

/// What the tree at `prefix` says about itself.
pub fn read(prefix: &Path) -> ManifestState {
    read_moved(prefix, prefix)
}

/// Like [`read`], but only what tells whether the build is there and up to date. A repeated run looks at
/// every prefix it was asked for, so this must cost little.
pub fn glance(prefix: &Path) -> ManifestState<Glance> {
    read_part(prefix, prefix)
}

/// Like [`read`], for a tree that was moved away from `prefix` and is at `tree` now.
pub(super) fn read_moved(tree: &Path, prefix: &Path) -> ManifestState {
    read_part(tree, prefix)
}

/// A manifest, or a part of one, that says which build it is of.
trait Placed: DeserializeOwned {
    fn name(&self) -> &str;
    fn prefix(&self) -> &str;
}

impl Placed for Manifest {
    fn name(&self) -> &str {
        &self.name
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl Placed for Glance {
    fn name(&self) -> &str {
        &self.name
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn read_part<T: Placed>(tree: &Path, prefix: &Path) -> ManifestState<T> {
    let text = match disk::read_if_there(&manifest_file(tree)) {
        Ok(Some(text)) => text,
        Ok(None) => return ManifestState::Absent,
        Err(e) => return ManifestState::Torn(e.causes().join(": ")),
    };
    match parse_part(&text).and_then(|part: T| fits(&part, prefix).map(|()| part)) {
        Ok(manifest) => ManifestState::Valid(Box::new(manifest)),
        Err(reason) => ManifestState::Torn(reason),
    }
}

fn fits(part: &impl Placed, prefix: &Path) -> Result<(), String> {
    if prefix.file_name().and_then(|name| name.to_str()) != Some(part.name()) {
        return Err(format!("it is of build `{}`, not of this directory", part.name()));
    }
    let said = Path::new(part.prefix());
    // The root may be reached by another spelling (a link); what counts is the place.
    let same = || Some(fs_err::canonicalize(said).ok()? == fs_err::canonicalize(prefix).ok()?);
    if said == prefix || same().unwrap_or(false) {
        return Ok(());
    }
    Err(format!("it was built for `{}`, not for this place", part.prefix()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fs_err as fs;
    use serde_json::json;

    use super::*;
    use crate::store::fixture;

    fn sample(prefix: &Path) -> Manifest {
        serde_json::from_value(fixture::manifest(prefix, "aa".repeat(32).as_str(), "", 1)).unwrap()
    }

    proptest::proptest! {
        #[test]
        fn seals_hold_for_any_text_and_number(text in ".*", wall in proptest::num::f64::NORMAL) {
            let mut manifest = sample(Path::new("/r/pg"));
            manifest.version = text;
            manifest.inputs = json!({"self_sha256 ": "x", "t": "\"self_sha256\":\""});
            manifest.smoke.tps = wall;
            let sealed = seal(manifest);
            let read = parse(&super::text(&sealed)).unwrap();
            proptest::prop_assert_eq!(read.version, sealed.version);
            proptest::prop_assert_eq!(read.self_sha256, sealed.self_sha256);
        }
    }

    #[test]
    fn only_a_whole_untouched_manifest_in_its_own_place_counts() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("pg");
        fs::create_dir_all(prefix.join(".bm")).unwrap();
        assert_eq!(read(&prefix), ManifestState::Absent);
        let good = text(&seal(sample(&prefix)));
        let elsewhere = text(&seal(sample(Path::new("/elsewhere/pg"))));
        let other = text(&seal(sample(&dir.path().join("other"))));
        let cases = [
            (good.clone(), None),
            (good.replace("postgres", "postgras"), Some("own hash")),
            (good.replacen(':', ": ", 1), Some("own hash")),
            (good[..good.len() / 2].to_owned(), Some("not whole")),
            (String::new(), Some("not whole")),
            (format!("{good}{good}"), Some("not whole")),
            (good.replace("\"schema\":1", "\"schema\":9"), Some("schema 9 is newer")),
            ("{\"schema\":1}".into(), Some("not sealed")),
            ("[]".into(), Some("not whole")),
            ("{}".into(), Some("no `schema`")),
            (elsewhere, Some("built for `/elsewhere/pg`")),
            (other, Some("build `other`")),
        ];
        for (text, want) in cases {
            fs::write(manifest_file(&prefix), &text).unwrap();
            match (read(&prefix), want) {
                (ManifestState::Valid(m), None) => assert_eq!(m.name, "pg"),
                (ManifestState::Torn(reason), Some(want)) => assert!(reason.contains(want), "{reason}"),
                (got, want) => panic!("{got:?} where {want:?} was expected, of {text}"),
            }
        }
    }

    #[test]
    fn fields_of_a_later_bm_are_skipped() {
        let mut value = to_value(&seal(sample(Path::new("/r/pg"))));
        let map = value.as_object_mut().unwrap();
        map.insert("added_later".into(), json!([1, 2]));
        map.remove("self_sha256");
        let hash = sha256(canonical(&value).as_bytes());
        value["self_sha256"] = hash.into();
        assert_eq!(parse(&canonical(&value)).unwrap().name, "pg");
    }

    #[test]
    fn a_root_reached_by_a_link_is_the_same_place() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("real/pg");
        fs::create_dir_all(prefix.join(".bm")).unwrap();
        fs::write(manifest_file(&prefix), text(&seal(sample(&prefix)))).unwrap();
        fs::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        assert!(read(&dir.path().join("link/pg")).valid().is_some());
    }
}
