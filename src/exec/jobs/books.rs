//! The books of a shared budget: how many tokens there are, how many there should be, and what each bm holds.
//!
//! Owns a directory: `lock` (held for the moment of a change), `size`, and one `held-*` file per bm that draws on
//! the budget, locked by it as long as it lives. Everything is plain text, and rebuilt when nobody is there.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Tokens in existence, and how many there should be. They differ while somebody holds what is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) now: usize,
    pub(super) wanted: usize,
}

/// The directory, while its lock is held.
#[derive(Debug)]
pub(super) struct Books<'a> {
    dir: &'a Path,
    _lock: File,
}

/// What one bm says of itself: tokens its steps hold, its process id.
#[derive(Debug)]
pub(super) struct Entry {
    path: PathBuf,
    file: File,
}

/// Another bm that draws on the same budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharer {
    pub(super) held: usize,
    pub(super) pid: u32,
}

impl<'a> Books<'a> {
    /// Waits for the lock, which nobody holds for longer than a few file operations.
    pub(super) fn open(dir: &'a Path) -> io::Result<Books<'a>> {
        let lock = File::options().create(true).append(true).open(dir.join("lock"))?;
        lock.lock()?;
        Ok(Books { dir, _lock: lock })
    }

    /// Nothing where it cannot be read: then there was no budget.
    pub(super) fn size(&self) -> Option<Size> {
        let text = fs::read_to_string(self.dir.join("size")).ok()?;
        let mut words = text.split_whitespace().map(|w| w.parse().ok());
        let (now, wanted) = (words.next()??, words.next()??);
        (wanted > 0).then_some(Size { now, wanted })
    }

    /// The same for those who are in it: a budget whose size was lost is the smallest there is.
    pub(super) fn size_or_one(&self) -> Size {
        self.size().unwrap_or(Size { now: 1, wanted: 1 })
    }

    pub(super) fn set_size(&self, size: Size) -> io::Result<()> {
        fs::write(self.dir.join("size"), format!("{} {}\n", size.now, size.wanted))
    }

    /// Those that live, but for `own`; the files of the dead are removed.
    pub(super) fn others(&self, own: Option<&Entry>) -> io::Result<Vec<Sharer>> {
        let mut sharers = Vec::new();
        for entry in fs::read_dir(self.dir)? {
            let path = entry?.path();
            let held = path
                .file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.starts_with("held-"));
            if !held || own.is_some_and(|own| own.path == path) {
                continue;
            }
            let Ok(mut file) = File::open(&path) else { continue };
            if file.try_lock().is_ok() {
                fs::remove_file(&path)?;
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let mut words = text.split_whitespace();
            let mut number = || words.next().and_then(|w| w.parse().ok());
            let held = number().unwrap_or(0);
            sharers.push(Sharer {
                held: held as usize,
                pid: number().unwrap_or(0),
            });
        }
        Ok(sharers)
    }

    /// Tokens that the builds of all others hold.
    pub(super) fn held_by_others(&self, own: &Entry) -> io::Result<usize> {
        Ok(self.others(Some(own))?.iter().map(|o| o.held).sum())
    }

    /// This process among them.
    pub(super) fn enter(&self) -> io::Result<Entry> {
        let (file, path) = tempfile::Builder::new()
            .prefix("held-")
            .tempfile_in(self.dir)?
            .keep()
            .map_err(|e| e.error)?;
        file.lock()?;
        let mut entry = Entry { path, file };
        entry.set(0)?;
        Ok(entry)
    }
}

impl Entry {
    pub(super) fn set(&mut self, held: usize) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        writeln!(self.file, "{held:6} {:10}", std::process::id())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
