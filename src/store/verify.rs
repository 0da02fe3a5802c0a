//! Compares a prefix with its own list of files.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::files::{self, FileEntry};
use super::manifest::{self, ManifestState};
use super::{disk, prefix};
use crate::error::{Error, Result};
use crate::model::manifest::Manifest;

/// One difference; a path may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Relative to the prefix.
    pub path: String,
    /// `kind`, `mode`, `size`, `sha256` or `target`.
    pub what: &'static str,
    /// As listed.
    pub expected: String,
    /// As found.
    pub got: String,
}

/// What differs.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifyReport {
    /// Listed and not there.
    pub missing: Vec<String>,
    /// Listed and different.
    pub changed: Vec<Changed>,
    /// There and not listed: normal. A directory stands for all that is in it.
    pub extra: Vec<PathBuf>,
    /// The manifest the prefix was checked by.
    pub manifest: Box<Manifest>,
}

impl VerifyReport {
    /// Whether every installed file is as bm sealed it.
    pub fn is_intact(&self) -> bool {
        self.missing.is_empty() && self.changed.is_empty()
    }
}

/// Reads and hashes every installed file of a prefix.
///
/// # Errors
/// [`crate::error::Exit::Store`] when it is no prefix of bm's; a file that cannot be read. A list of
/// files that is not the sealed one is a change like any other.
pub fn verify(prefix: &Path) -> Result<VerifyReport> {
    let manifest = match manifest::read(prefix) {
        ManifestState::Valid(manifest) => manifest,
        ManifestState::Absent => return Err(prefix::foreign(prefix, "it has no manifest")),
        ManifestState::Torn(why) => return Err(prefix::foreign(prefix, &why)),
    };
    let mut report = VerifyReport {
        missing: vec![],
        changed: vec![],
        extra: vec![],
        manifest,
    };
    let list = match files::read(prefix, &report.manifest.files_sha256) {
        Ok(list) => list,
        Err(why) => {
            report.changed.push(Changed {
                path: ".bm/files.json".into(),
                what: "sha256",
                expected: report.manifest.files_sha256.clone(),
                got: why,
            });
            return Ok(report);
        }
    };
    let found = list
        .files
        .par_iter()
        .map(|expected| compare(prefix, expected))
        .collect::<Result<Vec<_>>>()?;
    for (entry, found) in list.files.iter().zip(found) {
        match found {
            None => report.missing.push(entry.path.clone()),
            Some(changes) => report.changed.extend(changes),
        }
    }
    let listed: HashSet<&Path> = list.files.iter().map(|file| Path::new(&file.path)).collect();
    report.extra = extra(prefix, &listed)?;
    Ok(report)
}

/// `None` when it is missing.
fn compare(prefix: &Path, expected: &FileEntry) -> Result<Option<Vec<Changed>>> {
    let got = match files::observe(prefix, &expected.path) {
        // A parent that became a file hides what was below it.
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => return Ok(None),
        Err(e) => return Err(Error::io(format!("cannot verify `{}`", expected.path), &e)),
        Ok(got) => got,
    };
    let changed = |what, expected_value: String, got| Changed {
        path: expected.path.clone(),
        what,
        expected: expected_value,
        got,
    };
    let kind = |entry: &FileEntry| format!("{:?}", entry.kind).to_lowercase();
    let Some(got) = got else {
        return Ok(Some(vec![changed(
            "kind",
            kind(expected),
            "device, fifo or socket".into(),
        )]));
    };
    if got.kind != expected.kind {
        return Ok(Some(vec![changed("kind", kind(expected), kind(&got))]));
    }
    let size = |entry: &FileEntry| entry.size.map(|size| size.to_string());
    let parts = [
        ("mode", Some(expected.mode.clone()), Some(got.mode.clone())),
        ("size", size(expected), size(&got)),
        ("sha256", expected.sha256.clone(), got.sha256.clone()),
        ("target", expected.target.clone(), got.target.clone()),
    ];
    let changes = parts.into_iter().filter(|(_, expected, got)| expected != got);
    Ok(Some(
        changes
            .map(|(what, expected, got)| changed(what, expected.unwrap_or_default(), got.unwrap_or_default()))
            .collect(),
    ))
}

/// What is not listed, sorted; nothing below an extra directory is looked at.
fn extra(prefix: &Path, listed: &HashSet<&Path>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(below) = todo.pop() {
        for name in disk::names_in(&prefix.join(&below))? {
            let path = below.join(name);
            if path == Path::new(".bm") {
                continue;
            }
            if !listed.contains(path.as_path()) {
                found.push(path);
            } else if fs_err::symlink_metadata(prefix.join(&path)).is_ok_and(|meta| meta.is_dir()) {
                todo.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use fs_err as fs;

    use super::*;
    use crate::store::fixture;

    #[test]
    fn every_kind_of_change_is_named_and_extras_are_normal() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("pg");
        fs::create_dir_all(prefix.join("bin")).unwrap();
        for file in ["same", "edited", "longer", "mode", "gone", "kind"] {
            fs::write(prefix.join("bin").join(file), "text").unwrap();
        }
        fs::os::unix::fs::symlink("same", prefix.join("bin/link")).unwrap();
        let summary = files::write(&prefix, &files::hash_tree(&prefix).unwrap()).unwrap();
        let value = fixture::manifest(&prefix, "id", &summary.files_sha256, 1);
        let sealed = manifest::seal(serde_json::from_value(value).unwrap());
        assert!(verify(&prefix).is_err(), "not sealed yet");
        fs::write(crate::layout::manifest_file(&prefix), manifest::text(&sealed)).unwrap();
        fs::create_dir(prefix.join("data")).unwrap();
        fs::write(prefix.join("data/1"), "").unwrap();
        fs::write(prefix.join("bin/mine"), "").unwrap();
        let report = verify(&prefix).unwrap();
        assert!(report.is_intact(), "{report:?}");
        assert_eq!(report.extra, [Path::new("bin/mine"), Path::new("data")]);

        fs::write(prefix.join("bin/edited"), "TEXT").unwrap();
        fs::write(prefix.join("bin/longer"), "text and more").unwrap();
        fs::set_permissions(prefix.join("bin/mode"), std::fs::Permissions::from_mode(0o4711)).unwrap();
        fs::remove_file(prefix.join("bin/gone")).unwrap();
        fs::remove_file(prefix.join("bin/kind")).unwrap();
        fs::create_dir(prefix.join("bin/kind")).unwrap();
        fs::remove_file(prefix.join("bin/link")).unwrap();
        fs::os::unix::fs::symlink("edited", prefix.join("bin/link")).unwrap();
        let report = verify(&prefix).unwrap();
        assert_eq!(report.missing, ["bin/gone"]);
        let got: Vec<_> = report.changed.iter().map(|c| (c.path.as_str(), c.what)).collect();
        assert_eq!(
            got,
            [
                ("bin/edited", "sha256"),
                ("bin/kind", "kind"),
                ("bin/link", "target"),
                ("bin/longer", "size"),
                ("bin/longer", "sha256"),
                ("bin/mode", "mode"),
            ]
        );
        fs::write(crate::layout::files_file(&prefix), "{}").unwrap();
        assert_eq!(verify(&prefix).unwrap().changed[0].path, ".bm/files.json");
    }
}
