//! The journal: one durable record per build name whose prefix is in motion.
//!
//! A record is written before the first rename and removed after the last, so that whoever finds one
//! without the prefix lock being held knows that a process died in between. Knows what a record says,
//! not what to do about it; that is `recover`.

use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::disk;
use crate::error::{Error, Exit, Result};
use crate::layout::{Layout, prefix_state};
use crate::model::name::BuildName;

/// Version of the record's format.
const SCHEMA: u32 = 1;

/// How far a placement has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Until the manifest is written, everything is undone after a crash.
    Placing,
    /// The manifest is there; what is left is done again after a crash.
    Sealed,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the format.
    pub schema: u32,
    /// Build name.
    pub name: BuildName,
    /// Identity of the new tree.
    pub identity: String,
    /// How far it came.
    pub phase: Phase,
    /// Also written into the new tree, so that it is known from the old one and from a stranger's,
    /// wherever a crash left it.
    pub token: String,
}

impl Record {
    /// A record for a placement that begins now.
    pub fn new(name: &BuildName, identity: &str) -> Self {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        Record {
            schema: SCHEMA,
            name: name.clone(),
            identity: identity.to_owned(),
            phase: Phase::Placing,
            token: format!("{name} {} {now}", std::process::id()),
        }
    }

    /// Marks a tree as the one this record is about.
    pub(super) fn mark(&self, tree: &Path) -> Result<()> {
        disk::write_atomic(&mark_file(tree), self.token.as_bytes())
    }

    /// Whether a tree is the one this record is about.
    pub(super) fn marks(&self, tree: &Path) -> Result<bool> {
        Ok(disk::read_if_there(&mark_file(tree))?.as_ref() == Some(&self.token))
    }
}

/// The mark of a tree in motion, inside it.
pub(super) fn mark_file(tree: &Path) -> std::path::PathBuf {
    prefix_state(tree).join("placing")
}

/// Writes or replaces the record, durably.
pub(super) fn write(layout: &Layout, record: &Record) -> Result<()> {
    let text = serde_json::to_string(record).expect("a record has text keys only");
    disk::write_atomic(&layout.journal_record(&record.name), text.as_bytes())
}

/// The record of a name, if it is in motion.
pub fn read(layout: &Layout, name: &BuildName) -> Result<Option<Record>> {
    let path = layout.journal_record(name);
    let Some(text) = disk::read_if_there(&path)? else {
        return Ok(None);
    };
    // Records are written by rename, so no crash leaves half of one.
    let bad = |why: String| {
        Error::new(Exit::Store, format!("cannot use the journal record of `{name}`"))
            .detail("record", path.display())
            .caused_by(why)
    };
    let record: Record = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    if record.schema > SCHEMA {
        return Err(
            bad(format!("its schema {} is newer than {SCHEMA}", record.schema)).hint("use the bm that wrote it")
        );
    }
    if record.name != *name {
        return Err(bad(format!("it is about `{}`", record.name)));
    }
    Ok(Some(record))
}

/// Removes the record, durably: the placement is over.
pub(super) fn remove(layout: &Layout, name: &BuildName) -> Result<()> {
    disk::remove_file(&layout.journal_record(name))?;
    disk::sync_dir(&layout.journal())
}

/// All names in motion, sorted.
pub fn names(layout: &Layout) -> Result<Vec<BuildName>> {
    let names = disk::names_in(&layout.journal())?;
    let parse = |name: &std::ffi::OsString| name.to_str()?.strip_suffix(".json")?.parse().ok();
    Ok(names.iter().filter_map(parse).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fs_err as fs;

    use super::*;

    #[test]
    fn a_record_comes_back_as_written_and_a_strange_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().into(), dir.path().join("cache"));
        let name: BuildName = "je-5.2.1.prod".parse().unwrap();
        fs::create_dir_all(layout.journal()).unwrap();
        assert_eq!(read(&layout, &name).unwrap(), None);
        let record = Record::new(&name, "abc");
        write(&layout, &record).unwrap();
        assert_eq!(read(&layout, &name).unwrap(), Some(record.clone()));
        assert_eq!(names(&layout).unwrap(), std::slice::from_ref(&name));
        let other = serde_json::to_string(&Record::new(&"pg".parse().unwrap(), "abc")).unwrap();
        for text in [
            "{",
            &other,
            &serde_json::to_string(&Record { schema: 9, ..record }).unwrap(),
        ] {
            fs::write(layout.journal_record(&name), text).unwrap();
            assert_eq!(read(&layout, &name).unwrap_err().exit(), Exit::Store, "{text}");
        }
        remove(&layout, &name).unwrap();
        assert!(names(&layout).unwrap().is_empty());
    }
}
