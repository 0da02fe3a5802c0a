//! Disk operations that survive a crash: durable writes, renames that never replace, exchange,
//! removal of trees, free space.
//!
//! Knows the layout's trash directory and nothing else of the store.

use std::ffi::{CStr, CString, OsStr};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::Layout;

/// First characters of every temporary name; no build name begins with a dot.
const TEMP: &str = ".bm-";

/// Prefix of temporary names made by this process; the sweep reads the pid back.
fn temp_prefix() -> String {
    format!("{TEMP}{}-", std::process::id())
}

/// The process that made a temporary file; `None` for other files.
pub(super) fn temp_owner(name: &OsStr) -> Option<u32> {
    let (pid, _) = name.to_str()?.strip_prefix(TEMP)?.split_once('-')?;
    pid.parse().ok()
}

/// Creates a directory and its parents.
pub(super) fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).doing(|| format!("cannot create `{}`", dir.display()))
}

/// Whether something has this name; links are not followed.
pub(super) fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io(format!("cannot look at `{}`", path.display()), &e)),
    }
}

/// Removes one file; absent is fine.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(format!("cannot remove `{}`", path.display()), &e)),
        _ => Ok(()),
    }
}

/// Whole content of a file, `None` when there is none, also when a file is where a directory should be.
pub(super) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => Ok(None),
        Err(e) => Err(Error::io(format!("cannot read `{}`", path.display()), &e)),
    }
}

/// Names in a directory, sorted; a directory that does not exist has none.
pub fn names_in(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let read = || -> io::Result<Vec<_>> { fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect() };
    match read() {
        Ok(mut names) => {
            names.sort();
            Ok(names)
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(vec![]),
        Err(e) => Err(Error::io(format!("cannot list `{}`", dir.display()), &e)),
    }
}

/// Where a temporary file for `path` is made: beside it, so that the rename stays on one file system.
fn dir_of(path: &Path) -> &Path {
    path.parent().expect("paths of the store have a parent")
}

/// A temporary file with its content on the disk: a rename must never become durable before the
/// bytes it names.
fn temp_with(dir: &Path, bytes: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let mut temp = tempfile::Builder::new()
        .prefix(&temp_prefix())
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(dir)?;
    temp.write_all(bytes)?;
    temp.as_file().sync_all()?;
    Ok(temp)
}

/// Replaces `path` by `bytes`: a reader, and a crash, finds the old content or the new one.
///
/// # Errors
/// The old content is then still there, unless only the last step, making the rename durable, failed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        temp_with(dir_of(path), bytes)?
            .persist(path)
            .map_err(|e| e.error)
            .map(drop)
    };
    write().doing(|| format!("cannot write `{}`", path.display()))?;
    sync_dir(dir_of(path))
}

/// Replaces `path` by `bytes` for readers, not for crashes: what may come out torn, since it can be made again.
pub(super) fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temp = tempfile::Builder::new()
        .prefix(&temp_prefix())
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(dir_of(path))?;
    temp.write_all(bytes)?;
    temp.persist(path).map_err(|e| e.error).map(drop)
}

/// Writes `path` unless something has that name already; says whether it wrote. `scratch` is on the same file system.
pub fn write_new(scratch: &Path, path: &Path, bytes: &[u8]) -> Result<bool> {
    let write = || match temp_with(scratch, bytes)?.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e.error),
    };
    let written = write().doing(|| format!("cannot write `{}`", path.display()))?;
    sync_dir(dir_of(path))?;
    Ok(written)
}

/// Creates or replaces a symbolic link in one step. `scratch` is on the same file system.
pub(super) fn link_atomic(scratch: &Path, link: &Path, target: &Path) -> Result<()> {
    let make = || {
        tempfile::Builder::new()
            .prefix(&temp_prefix())
            .make_in(scratch, |path| fs::os::unix::fs::symlink(target, path))?
            .persist(link)
            .map_err(|e| e.error)
            .map(drop)
    };
    make().doing(|| format!("cannot make the link `{}`", link.display()))?;
    sync_dir(dir_of(link))
}

/// Makes renames and removals in `dir` durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    match fs::File::open(dir).and_then(|dir| dir.sync_all()) {
        // Some network and user-space file systems have no fsync for directories; they order
        // renames themselves.
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(()),
        done => done.doing(|| format!("cannot sync `{}`", dir.display())),
    }
}

/// Makes everything written so far to the file system of `path` durable: one call for a tree of
/// thousands of files.
pub fn sync_file_system(path: &Path) -> Result<()> {
    let sync = || -> io::Result<()> { Ok(rustix::fs::syncfs(fs::File::open(path)?.as_fd())?) };
    sync().doing(|| format!("cannot sync the file system of `{}`", path.display()))
}

/// Renames, and fails with `AlreadyExists` when something has the new name: a plain rename would
/// silently replace an empty directory.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::symlink_metadata(to) {
            // No such flag here. The caller holds the lock of the name, so only a stranger can
            // come between the look and the rename.
            Err(e) if e.kind() == ErrorKind::NotFound => fs::rename(from, to),
            Err(e) => Err(e),
            Ok(_) => Err(Errno::EXIST.into()),
        },
        done => Ok(done?),
    }
}

/// [`rename_new`] with bm's error.
pub(super) fn move_tree(from: &Path, to: &Path) -> Result<()> {
    rename_new(from, to).map_err(|e| {
        let doing = format!("cannot move `{}` to `{}`", from.display(), to.display());
        match e.kind() {
            ErrorKind::CrossesDevices => Error::new(Exit::Host, doing)
                .caused_by(&e)
                .hint("work directories and prefixes must be on one file system: see `--root`"),
            ErrorKind::AlreadyExists => Error::new(Exit::Store, doing).caused_by(&e),
            _ => Error::io(doing, &e),
        }
    })
}

/// Exchanges two directories. Where the file system cannot do it in one step, three renames by way
/// of `via`, which must not exist; whoever finds `via` after a crash knows that one was cut short.
pub(super) fn exchange(a: &Path, b: &Path, via: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rename_new(a, via)?;
            if let Err(e) = rename_new(b, a) {
                // Best effort: the next recovery does the same.
                let _ = rename_new(via, a);
                return Err(e);
            }
            rename_new(via, b)
        }
        done => Ok(done?),
    }
}

/// Moves a tree out of sight, to be deleted in peace by the caller or by the next sweep.
pub(super) fn discard(layout: &Layout, tree: &Path) -> Result<PathBuf> {
    let to = trash_name(layout, tree)?;
    move_tree(tree, &to)?;
    Ok(to)
}

/// A free name in the trash for `tree`.
pub(super) fn trash_name(layout: &Layout, tree: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    make_dir(&layout.trash())?;
    let name = tree.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let free = layout.trash().join(format!("{}-{n}-{name}", std::process::id()));
        // An earlier process may have had this pid.
        if !exists(&free)? {
            return Ok(free);
        }
    }
}

/// Deletes a tree, or a single file or link. Follows no link, makes read-only directories of our own
/// writable, and stops at mount points. Something that is already gone is fine.
pub fn remove_tree(path: &Path) -> Result<()> {
    let name = CString::new(path.as_os_str().as_bytes()).expect("paths of the store hold no zero byte");
    let mut shown = path.to_path_buf();
    remove_at(CWD, &name, FileType::Unknown, None, &mut shown).doing(|| format!("cannot remove `{}`", shown.display()))
}

/// `shown` is the path of the entry; after an error, of the entry that failed.
fn remove_at(
    dir: BorrowedFd<'_>,
    name: &CStr,
    kind: FileType,
    device: Option<u64>,
    shown: &mut PathBuf,
) -> io::Result<()> {
    if kind != FileType::Directory {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let opened = match open_for_removal(dir, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let stat = rustix::fs::fstat(&opened)?;
    if device.is_some_and(|d| d != stat.st_dev) {
        return Err(io::Error::other("it is a mount point; unmount it first"));
    }
    if stat.st_mode & 0o700 != 0o700 {
        // Fails where we are not the owner; then the removal itself says so.
        let _ = rustix::fs::fchmod(&opened, Mode::RWXU);
    }
    // All names first: entries must not vanish under the iteration.
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(&opened)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            entries.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    for (entry, kind) in entries {
        shown.push(OsStr::from_bytes(entry.to_bytes()));
        remove_at(opened.as_fd(), &entry, kind, Some(stat.st_dev), shown)?;
        shown.pop();
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn open_for_removal(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(dir, name, flags | OFlags::RDONLY, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            // Not readable. `chmod` by name could be led astray by a link put in its place, so it
            // goes through a descriptor that was opened without following links.
            let path = rustix::fs::openat(dir, name, flags | OFlags::PATH, Mode::empty())?;
            let by_fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
            rustix::fs::chmod(by_fd.as_str(), Mode::RWXU)?;
            open()
        }
        opened => opened,
    }
}

/// Bytes that a tree takes on its file system; what cannot be looked at counts nothing.
pub fn usage(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let below = meta
        .is_dir()
        .then(|| fs::read_dir(path).into_iter().flatten().flatten());
    meta.blocks() * 512 + below.into_iter().flatten().map(|e| usage(&e.path())).sum::<u64>()
}

/// Bytes that an unprivileged user can still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)
        .map_err(io::Error::from)
        .doing(|| format!("cannot read the free space of `{}`", path.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Refuses early when less than `needed` bytes are free, with the same error as a disk that fills up late.
pub fn require_free(path: &Path, needed: u64) -> Result<()> {
    let free = free_bytes(path)?;
    if free >= needed {
        return Ok(());
    }
    let full = io::Error::from(ErrorKind::StorageFull);
    Err(Error::io(format!("not enough space at `{}`", path.display()), &full)
        .detail("needed", format!("{} MiB", needed.div_ceil(1 << 20)))
        .detail("free", format!("{} MiB", free >> 20)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_empty_directory_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        assert_eq!(rename_new(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert!(from.exists());
    }

    #[test]
    fn removal_follows_no_link_and_opens_read_only_directories() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/locked")).unwrap();
        fs::write(tree.join("a/locked/file"), "").unwrap();
        fs::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        for (path, mode) in [("a/locked", 0o000), ("a", 0o555)] {
            fs::set_permissions(tree.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn removal_copes_with_paths_longer_than_the_kernel_takes() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("deep");
        fs::create_dir(&top).unwrap();
        let mut here: OwnedFd = fs::File::open(&top).unwrap().into_parts().0.into();
        let name = "d".repeat(200);
        for _ in 0..30 {
            rustix::fs::mkdirat(&here, name.as_str(), Mode::RWXU).unwrap();
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            here = rustix::fs::openat(&here, name.as_str(), flags, Mode::empty()).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn write_new_never_replaces_and_write_atomic_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        assert!(write_new(dir.path(), &path, b"one").unwrap());
        assert!(!write_new(dir.path(), &path, b"two").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        write_atomic(&path, b"three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(names_in(dir.path()).unwrap(), ["record"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o400, 0o400);
    }

    #[test]
    fn too_little_space_is_the_hosts_fault() {
        let dir = tempfile::tempdir().unwrap();
        require_free(dir.path(), 1).unwrap();
        let error = require_free(dir.path(), u64::MAX).unwrap_err();
        assert_eq!(error.exit(), Exit::Host);
        assert!(error.hint_text().unwrap().contains("--root"), "{error}");
    }

    #[test]
    fn temporary_names_tell_their_owner() {
        assert_eq!(
            temp_owner(OsStr::new(&format!("{}x", temp_prefix()))),
            Some(std::process::id())
        );
        assert_eq!(temp_owner(OsStr::new("bm-1-x.json")), None);
        assert_eq!(temp_owner(OsStr::new(".bm")), None);
    }
}
