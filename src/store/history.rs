//! What was ever built: an append-only copy of every manifest, kept when the prefix is gone.

use std::path::PathBuf;

use fs_err as fs;

use super::{disk, manifest};
use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::Layout;
use crate::model::manifest::Manifest;
use crate::model::name::BuildName;

/// One remembered build.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// The copy.
    pub path: PathBuf,
    /// What it says, or why it does not count.
    pub manifest: Result<Box<Manifest>, String>,
}

/// Adds a sealed manifest, byte for byte. Doing so again is fine.
pub(super) fn append(layout: &Layout, name: &BuildName, sealed: &Manifest, text: &str) -> Result<()> {
    let dir = layout.history().join(name.as_str());
    disk::make_dir(&dir)?;
    let id8: String = sealed.identity.chars().take(8).collect();
    let seal8: String = sealed.self_sha256.chars().take(8).collect();
    let plain = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    let stem: String = format!("{}-{id8}", sealed.built_at).chars().map(plain).collect();
    // A second build within the same second gets a longer name; nothing is ever replaced.
    for file in [format!("{stem}.json"), format!("{stem}-{seal8}.json")] {
        let path = dir.join(file);
        // A crash leaves what it was writing where a sweep finds it, and need not look below every name.
        if disk::write_new(&layout.state(), &path, text.as_bytes())? {
            return disk::sync_dir(&layout.history());
        }
        if fs::read(&path).doing(|| "cannot read the history".into())? == text.as_bytes() {
            return Ok(());
        }
    }
    Err(
        Error::new(Exit::Store, format!("cannot remember the build of `{name}`"))
            .detail("history", dir.display())
            .caused_by("another manifest has its name there"),
    )
}

/// All builds of a name, oldest first.
pub fn history(layout: &Layout, name: &BuildName) -> Result<Vec<Remembered>> {
    let dir = layout.history().join(name.as_str());
    let mut found = Vec::new();
    for file in disk::names_in(&dir)? {
        if !file.to_string_lossy().ends_with(".json") {
            continue;
        }
        let path = dir.join(file);
        let text = fs::read_to_string(&path).map_err(|e| e.to_string());
        let manifest = text.and_then(|text| manifest::parse(&text)).map(Box::new);
        found.push(Remembered { path, manifest });
    }
    Ok(found)
}

/// All names ever built, sorted.
pub fn remembered_names(layout: &Layout) -> Result<Vec<BuildName>> {
    let names = disk::names_in(&layout.history())?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::fixture;

    #[test]
    fn nothing_is_replaced_and_a_repeat_adds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().into(), dir.path().join("cache"));
        let name: BuildName = "pg".parse().unwrap();
        let sample = |size: u64| {
            let mut value = fixture::manifest(&layout.prefix(&name), &"ab".repeat(32), "", 1);
            value["size"] = size.into();
            manifest::seal(serde_json::from_value(value).unwrap())
        };
        for size in [1, 1, 2, 1, 2] {
            let sealed = sample(size);
            append(&layout, &name, &sealed, &manifest::text(&sealed)).unwrap();
        }
        let found = history(&layout, &name).unwrap();
        let sizes: Vec<_> = found.iter().map(|r| r.manifest.as_ref().unwrap().size).collect();
        assert_eq!(sizes.len(), 2, "{found:?}");
        assert!(sizes.contains(&1) && sizes.contains(&2));
        assert_eq!(remembered_names(&layout).unwrap(), std::slice::from_ref(&name));
        fs::write(&found[0].path, "{}").unwrap();
        assert!(history(&layout, &name).unwrap()[0].manifest.is_err());
    }
}
