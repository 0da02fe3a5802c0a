//! A source tree of the user's: copied, never built in. Its identity is the hash of its content.

use std::path::{Path, PathBuf};

use fs_err as fs;
use sha2::{Digest as _, Sha256};

use crate::digest::hex;
use crate::error::{Error, Exit, IoContext as _, Result};

/// Version control's own directories, which are no part of the source.
const SKIPPED: [&str; 4] = [".git", ".hg", ".svn", ".bzr"];

/// One entry below a tree.
struct Entry {
    path: PathBuf,
    meta: std::fs::Metadata,
}

fn entries(tree: &Path) -> Result<Vec<Entry>> {
    fn walk(dir: &Path, below: &Path, out: &mut Vec<Entry>) -> std::io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if below.as_os_str().is_empty() && SKIPPED.iter().any(|s| name == *s) {
                continue;
            }
            let path = below.join(&name);
            let meta = fs::symlink_metadata(entry.path())?;
            let is_dir = meta.is_dir();
            out.push(Entry {
                path: path.clone(),
                meta,
            });
            if is_dir {
                walk(&entry.path(), &path, out)?;
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(tree, Path::new(""), &mut out).map_err(|e| {
        Error::new(
            Exit::Source,
            format!("cannot read the source tree `{}`", tree.display()),
        )
        .caused_by(e)
    })?;
    out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

/// sha256 over paths, kinds, executable bits and contents, in order of path.
///
/// # Errors
/// Exit 4 for a tree that cannot be read or holds something that is no file, directory or link.
pub fn hash(tree: &Path) -> Result<String> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    let mut sum = Sha256::new();
    let mut field = |bytes: &[u8]| {
        sum.update((bytes.len() as u64).to_le_bytes());
        sum.update(bytes);
    };
    for Entry { path, meta } in entries(tree)? {
        let full = tree.join(&path);
        field(path.as_os_str().as_bytes());
        let kind = meta.file_type();
        if kind.is_dir() {
            field(b"dir");
        } else if kind.is_symlink() {
            field(b"link");
            field(
                fs::read_link(&full)
                    .doing(|| "cannot read the source tree".to_owned())?
                    .as_os_str()
                    .as_bytes(),
            );
        } else if kind.is_file() {
            field(if meta.permissions().mode() & 0o111 == 0 {
                b"file"
            } else {
                b"exec"
            });
            field(&fs::read(&full).doing(|| "cannot read the source tree".to_owned())?);
        } else {
            return Err(odd(&full));
        }
    }
    Ok(hex(sum.finalize()))
}

fn odd(path: &Path) -> Error {
    Error::new(
        Exit::Source,
        format!("`{}` is no file, directory or link", path.display()),
    )
    .hint("take it out of the source tree")
}

/// Copies a tree into an existing empty directory, with times; gives the hash of what was copied.
///
/// # Errors
/// As [`hash`]; exit 3 if the disk fails.
pub fn copy(tree: &Path, dest: &Path) -> Result<String> {
    let doing = || format!("cannot copy the source tree to `{}`", dest.display());
    for Entry { path, meta } in entries(tree)? {
        let (from, to) = (tree.join(&path), dest.join(&path));
        if meta.is_dir() {
            fs::create_dir_all(&to).doing(doing)?;
        } else if meta.file_type().is_symlink() {
            let target = fs::read_link(&from).doing(doing)?;
            fs_err::os::unix::fs::symlink(target, &to).doing(doing)?;
        } else if meta.is_file() {
            fs::copy(&from, &to).doing(doing)?;
            // Generated files must stay newer than what they were made from. Opened for reading: the
            // owner may set the time of a file that nobody may write to.
            let time = meta.modified().doing(doing)?;
            fs::File::open(&to)
                .doing(doing)?
                .file()
                .set_modified(time)
                .doing(doing)?;
        } else {
            // Copying a fifo would wait for ever.
            return Err(odd(&from));
        }
    }
    hash(dest)
}

/// Newest modification time below a tree, seconds since the epoch.
///
/// # Errors
/// As [`hash`].
pub fn newest(tree: &Path) -> Result<u64> {
    let times = entries(tree)?
        .into_iter()
        .filter_map(|e| e.meta.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(times.map(|d| d.as_secs()).max().unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_hash_of_its_source_without_version_control() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir_all(a.join("sub/.git")).unwrap();
        fs::create_dir_all(a.join(".git")).unwrap();
        fs::create_dir(&b).unwrap();
        fs::write(a.join("sub/f"), "x").unwrap();
        fs::write(a.join(".git/HEAD"), "x").unwrap();
        fs_err::os::unix::fs::symlink("sub/f", a.join("l")).unwrap();
        let (file, old) = (fs::File::open(a.join("sub/f")).unwrap(), std::time::UNIX_EPOCH);
        file.file().set_modified(old).unwrap();
        let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        fs::set_permissions(a.join("sub/f"), read_only).unwrap();
        assert_eq!(copy(&a, &b).unwrap(), hash(&a).unwrap());
        assert_eq!(fs::metadata(b.join("sub/f")).unwrap().modified().unwrap(), old);
        let read_write = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(a.join("sub/f"), read_write).unwrap();
        assert!(!b.join(".git").exists() && b.join("sub/.git").exists());
        let before = hash(&a).unwrap();
        fs::write(a.join("sub/f"), "y").unwrap();
        assert_ne!(before, hash(&a).unwrap());
        let fifo = a.join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::create_dir(dir.path().join("c")).unwrap();
        for error in [hash(&a).unwrap_err(), copy(&a, &dir.path().join("c")).unwrap_err()] {
            assert_eq!(error.exit(), Exit::Source);
            assert!(error.headline().contains("fifo` is no file"), "{error}");
        }
    }
}
