//! What is remembered of manifests, so that a run that finds everything up to date reads none of them.
//!
//! Owns `<root>/.bm/index.json`. It is made from the manifests alone and never trusted against the disk: an
//! entry holds for one state of one manifest file, told by its `stat`, and only says what the whole text said
//! when it was read. Without the file, or with one that cannot be read, all is read again. Knows nothing of
//! plans.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::disk;
use super::manifest::{self, ManifestState};
use crate::error::{IoContext, Result};
use crate::layout::{Layout, manifest_file};
use crate::model::manifest::{Glance, SCHEMA};
use crate::model::name::BuildName;

/// Version of the file's format, and of what makes a manifest count; another one is ignored.
const FORMAT: u32 = 1;

/// Times of files come from a clock that ticks a hundred times a second, at worst. A file that was changed
/// less than this before it was read may change once more and keep its times.
const TICK: Duration = Duration::from_millis(50);

/// The same where whole seconds are all that a file system keeps.
const WHOLE_SECONDS: Duration = Duration::from_secs(2);

/// What tells one state of a file from every other: device, inode, size, then the times of the last write
/// and of the last change of any kind, each in seconds and nanoseconds. The last one cannot be set by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp(u64, u64, u64, i64, i64, i64, i64);

impl Stamp {
    fn of(file: &Path) -> Option<Stamp> {
        // Not of `fs_err`: a build that is not there is no error worth words.
        let meta = std::fs::metadata(file).ok()?;
        Some(Stamp(
            meta.dev(),
            meta.ino(),
            meta.size(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        ))
    }

    /// Whether a change after `now` would show.
    fn settled(self, now: SystemTime) -> bool {
        let Stamp(.., seconds, nanoseconds) = self;
        let since_epoch = |s: i64, n: i64| Some(Duration::new(u64::try_from(s).ok()?, u32::try_from(n).ok()?));
        let changed = since_epoch(seconds, nanoseconds).map(|since| SystemTime::UNIX_EPOCH + since);
        let margin = if nanoseconds == 0 { WHOLE_SECONDS } else { TICK };
        changed
            .and_then(|changed| now.duration_since(changed).ok())
            .is_some_and(|age| age > margin)
    }
}

/// What is remembered of one manifest that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    stat: Stamp,
    identity: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct IndexFile {
    format: u32,
    /// Newest schema of manifests that was read: an older bm takes fewer of them.
    manifests: u32,
    /// As it was spelled: a manifest is held against the path of its prefix.
    root: PathBuf,
    prefixes: HashMap<String, Entry>,
}

#[derive(Debug, Default)]
struct Memory {
    prefixes: HashMap<String, Entry>,
    /// Learned by this process.
    changed: BTreeSet<String>,
    /// What was read by this process, for whoever asks again.
    glances: BTreeMap<String, (Stamp, Box<Glance>)>,
}

/// The memory of a root's manifests. Nothing is read before the first question; what was learned is kept when
/// it is dropped.
#[derive(Debug)]
pub struct Index {
    root: PathBuf,
    file: PathBuf,
    memory: Mutex<Option<Memory>>,
}

impl Index {
    /// Looks at nothing yet.
    pub fn new(layout: &Layout) -> Self {
        Index {
            root: layout.root().to_owned(),
            file: layout.index(),
            memory: Mutex::new(None),
        }
    }

    /// Whether a build is there, sealed, under this identity, as far as one `stat` can tell. No answer but
    /// yes means anything: [`Index::glance`] looks.
    pub fn knows(&self, name: &BuildName, identity: &str) -> bool {
        self.remembered(name).is_some_and(|of| of == identity)
    }

    /// Whether a build is there, sealed.
    pub fn sealed(&self, name: &BuildName) -> bool {
        self.remembered(name).is_some() || self.glance(name).valid().is_some()
    }

    /// What the prefix of a build says of itself, from the manifest itself, which is then remembered.
    pub fn glance(&self, name: &BuildName) -> ManifestState<Glance> {
        let prefix = self.root.join(name.as_str());
        let file = manifest_file(&prefix);
        let before = Stamp::of(&file);
        if let Some((stamp, glance)) = self.with(|m| m.glances.get(name.as_str()).cloned())
            && before == Some(stamp)
        {
            return ManifestState::Valid(glance);
        }
        let now = SystemTime::now();
        let state = manifest::glance(&prefix);
        if let (ManifestState::Valid(glance), Some(stat)) = (&state, before)
            // Where the root is spelled otherwise, more than the file decides.
            && Path::new(&glance.prefix) == prefix
            && stat.settled(now)
            && Stamp::of(&file) == before
        {
            self.with(|memory| {
                let entry = Entry {
                    stat,
                    identity: glance.identity.clone(),
                };
                memory.glances.insert(name.to_string(), (stat, glance.clone()));
                if memory.prefixes.get(name.as_str()) != Some(&entry) {
                    memory.prefixes.insert(name.to_string(), entry);
                    memory.changed.insert(name.to_string());
                }
            });
        }
        state
    }

    /// Writes what was learned since the last time; does nothing when nothing was. Of writers at the same time
    /// the last one wins, and what it did not know is read again by whoever needs it.
    ///
    /// # Errors
    /// When the state directory cannot be written; bm works on without the file.
    pub fn save(&self) -> Result<()> {
        let mut guard = self.memory();
        let Some(memory) = guard.as_mut().filter(|m| !m.changed.is_empty()) else {
            return Ok(());
        };
        let mut prefixes = read(&self.file, &self.root);
        for name in std::mem::take(&mut memory.changed) {
            if let Some(entry) = memory.prefixes.get(&name) {
                prefixes.insert(name, entry.clone());
            }
        }
        let there: BTreeSet<_> = disk::names_in(&self.root)?.into_iter().collect();
        prefixes.retain(|name, _| there.contains(AsRef::<std::ffi::OsStr>::as_ref(name)));
        let text = serde_json::to_vec(&IndexFile {
            format: FORMAT,
            manifests: SCHEMA,
            root: self.root.clone(),
            prefixes,
        });
        // A root that is not UTF-8 has no index.
        let Ok(text) = text else { return Ok(()) };
        disk::write_unsynced(&self.file, &text).doing(|| format!("cannot write `{}`", self.file.display()))
    }

    /// The identity remembered for the manifest as it is now on the disk.
    fn remembered(&self, name: &BuildName) -> Option<String> {
        let entry = self.with(|memory| memory.prefixes.get(name.as_str()).cloned())?;
        let stat = Stamp::of(&manifest_file(&self.root.join(name.as_str())))?;
        (stat == entry.stat).then_some(entry.identity)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memory = self.memory();
        f(memory.get_or_insert_with(|| Memory {
            prefixes: read(&self.file, &self.root),
            ..Memory::default()
        }))
    }

    fn memory(&self) -> MutexGuard<'_, Option<Memory>> {
        // Every change is an insert, so a panic elsewhere leaves nothing half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // What could not be written is read again next time.
        let _ = self.save();
    }
}

fn read(file: &Path, root: &Path) -> HashMap<String, Entry> {
    let index = fs::read(file)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<IndexFile>(&bytes).ok());
    index
        .filter(|index| index.format == FORMAT && index.manifests == SCHEMA && index.root == root)
        .map(|index| index.prefixes)
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::fixture;

    struct Store {
        _dir: tempfile::TempDir,
        layout: Layout,
        name: BuildName,
    }

    impl Store {
        /// One sealed prefix, its manifest old enough to be remembered.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path().join("root"), dir.path().join("cache"));
            let name: BuildName = "pg".parse().unwrap();
            fs::create_dir_all(layout.state()).unwrap();
            fs::create_dir_all(layout.prefix(&name).join(".bm")).unwrap();
            let store = Store {
                _dir: dir,
                layout,
                name,
            };
            store.seal(&"aa".repeat(32));
            store
        }

        fn manifest(&self) -> PathBuf {
            manifest_file(&self.layout.prefix(&self.name))
        }

        fn seal(&self, identity: &str) {
            let value = fixture::manifest(&self.layout.prefix(&self.name), identity, "", 1);
            let sealed = manifest::seal(serde_json::from_value(value).unwrap());
            fs::write(self.manifest(), manifest::text(&sealed)).unwrap();
            self.settle();
        }

        /// Until a change from now on would show in the file's times.
        fn settle(&self) {
            while !Stamp::of(&self.manifest()).unwrap().settled(SystemTime::now()) {
                std::thread::yield_now();
            }
        }

        fn index(&self) -> Index {
            Index::new(&self.layout)
        }

        /// Whether a new process would know the build under this identity without reading its manifest.
        fn knows(&self, identity: &str) -> bool {
            self.index().knows(&self.name, &identity.repeat(32))
        }

        fn look(&self) -> ManifestState<Glance> {
            self.index().glance(&self.name)
        }
    }

    #[test]
    fn what_was_read_once_is_known_until_the_file_changes() {
        let store = Store::new();
        assert!(!store.knows("aa"), "nothing was read yet");
        assert!(store.look().valid().is_some() && store.knows("aa") && !store.knows("bb"));
        store.seal(&"bb".repeat(32));
        assert!(!store.knows("aa") && !store.knows("bb"), "another manifest");
        assert!(store.look().valid().is_some() && store.knows("bb"));
    }

    #[test]
    fn an_edit_that_keeps_size_and_time_of_writing_is_seen() {
        let store = Store::new();
        store.look().valid().unwrap();
        let file = store.manifest();
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("postgres", "postgras")).unwrap();
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .file()
            .set_modified(written)
            .unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.len(), meta.modified().unwrap()), (text.len() as u64, written));
        assert!(!store.knows("aa"));
        assert!(matches!(store.look(), ManifestState::Torn(_)));
        assert!(!store.knows("aa"));
    }

    #[test]
    fn a_moved_root_a_torn_file_and_another_format_count_for_nothing() {
        let store = Store::new();
        store.look().valid().unwrap();
        let file = store.layout.index();
        let text = fs::read_to_string(&file).unwrap();
        let root = store.layout.root().display().to_string();
        for broken in [
            text[..text.len() / 2].to_owned(),
            String::new(),
            text.replace("\"format\":1", "\"format\":2"),
            text.replace("\"manifests\":1", "\"manifests\":2"),
            text.replace(&root, "/elsewhere"),
        ] {
            assert_ne!(broken, text);
            fs::write(&file, &broken).unwrap();
            assert!(!store.knows("aa"), "{broken}");
            assert!(store.look().valid().is_some() && store.knows("aa"), "{broken}");
        }
        let moved = store.layout.root().with_file_name("moved");
        fs::rename(store.layout.root(), &moved).unwrap();
        let there = Layout::new(moved, store.layout.cache().to_owned());
        let index = Index::new(&there);
        assert!(!index.knows(&store.name, &"aa".repeat(32)));
        assert!(matches!(index.glance(&store.name), ManifestState::Torn(_)));
    }

    #[test]
    fn a_manifest_that_may_still_change_unseen_is_not_remembered() {
        let now = SystemTime::UNIX_EPOCH + Duration::new(1_000, 500_000_000);
        let check = |seconds: i64, nanoseconds: i64, want: bool| {
            let stamp = Stamp(1, 2, 3, 0, 0, seconds, nanoseconds);
            assert_eq!(stamp.settled(now), want, "{seconds}.{nanoseconds:09}");
        };
        check(1_000, 449_000_000, true);
        check(1_000, 451_000_000, false);
        check(1_001, 1, false);
        check(998, 0, true);
        check(999, 0, false);
        check(-1, 1, false);
    }

    #[test]
    fn writers_at_the_same_time_keep_what_both_learned_and_drop_what_is_gone() {
        let store = Store::new();
        let other: BuildName = "pg2".parse().unwrap();
        let prefix = store.layout.prefix(&other);
        fs::create_dir_all(prefix.join(".bm")).unwrap();
        let value = fixture::manifest(&prefix, &"cc".repeat(32), "", 1);
        let sealed = manifest::seal(serde_json::from_value(value).unwrap());
        fs::write(manifest_file(&prefix), manifest::text(&sealed)).unwrap();
        while !Stamp::of(&manifest_file(&prefix)).unwrap().settled(SystemTime::now()) {
            std::thread::yield_now();
        }
        let (a, b) = (store.index(), store.index());
        assert!(a.sealed(&store.name) && b.sealed(&other));
        drop((a, b));
        assert!(store.knows("aa") && store.index().knows(&other, &"cc".repeat(32)));
        fs::remove_dir_all(&prefix).unwrap();
        store.seal(&"bb".repeat(32));
        store.look().valid().unwrap();
        assert!(!fs::read_to_string(store.layout.index()).unwrap().contains("pg2"));
        assert_eq!(disk::names_in(&store.layout.state()).unwrap(), ["index.json"]);
    }
}
