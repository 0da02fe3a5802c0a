//! The list of installed files, `.bm/files.json`: what is in a tree, by content.
//!
//! Everything but `.bm/` is listed. Extra files that appear later are not its business; `verify`
//! and `carry` compare.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::disk;
use crate::digest::{sha256, sha256_of};
use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::files_file;

/// Version of the list's format.
pub const SCHEMA: u32 = 1;

/// What a listed path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
}

/// One listed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the prefix, parts joined by `/`.
    pub path: String,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky, in octal: `0755`, `4755`.
    pub mode: String,
    /// Bytes (files).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Hash of the content (files).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where it points (symbolic links).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The content of `.bm/files.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Sorted by path.
    pub files: Vec<FileEntry>,
}

/// What the manifest says about the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSummary {
    /// Regular files and symbolic links, in number.
    pub files: usize,
    /// Bytes of all regular files; a file with two names counts twice.
    pub size: u64,
    /// sha256 of `.bm/files.json`.
    pub files_sha256: String,
}

/// sha256 of a file's content, in hex.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    sha256_of(&mut fs::File::open(path)?)
}

/// Lists a tree with the hash of every file, in parallel.
///
/// # Errors
/// [`Exit::Proof`] for what no server installs and no list could hold: devices, fifos, sockets,
/// names that are not text.
pub fn hash_tree(dir: &Path) -> Result<FileList> {
    let paths = walk(dir)?;
    let files = paths
        .into_par_iter()
        .map(|path| {
            let text = path.to_str().ok_or_else(|| odd(dir, &path, "its name is not UTF-8"))?;
            observe(dir, text)
                .doing(|| format!("cannot read `{}`", dir.join(&path).display()))?
                .ok_or_else(|| odd(dir, &path, "it is neither a file nor a directory nor a link"))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(FileList { schema: SCHEMA, files })
}

fn odd(dir: &Path, path: &Path, why: &str) -> Error {
    Error::new(Exit::Proof, format!("cannot list `{}`: {why}", path.display())).detail("tree", dir.display())
}

/// All paths below `dir` without `.bm`, relative, sorted; links are not followed.
fn walk(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(below) = todo.pop() {
        for name in disk::names_in(&dir.join(&below))? {
            let path = below.join(&name);
            if path == Path::new(".bm") {
                continue;
            }
            let meta = fs::symlink_metadata(dir.join(&path)).doing(|| "cannot list a tree".into())?;
            if meta.is_dir() {
                todo.push(path.clone());
            }
            found.push(path);
        }
    }
    // By the bytes of the path, as the list is sorted, not part by part.
    found.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(found)
}

/// The entry for a path as it is now; `None` for a device, fifo or socket.
pub(super) fn observe(dir: &Path, path: &str) -> io::Result<Option<FileEntry>> {
    let full = dir.join(path);
    let meta = fs::symlink_metadata(&full)?;
    let kind = meta.file_type();
    let mut entry = FileEntry {
        path: path.to_owned(),
        kind: FileKind::Dir,
        mode: format!("{:04o}", meta.mode() & 0o7777),
        size: None,
        sha256: None,
        target: None,
    };
    if kind.is_symlink() {
        entry.kind = FileKind::Symlink;
        let target = fs::read_link(&full)?;
        let target = target
            .to_str()
            .ok_or_else(|| io::Error::other("a link's target is not UTF-8"))?;
        entry.target = Some(target.to_owned());
    } else if kind.is_file() {
        entry.kind = FileKind::File;
        entry.size = Some(meta.len());
        entry.sha256 = Some(sha256_file(&full)?);
    } else if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        return Ok(None);
    }
    Ok(Some(entry))
}

/// Writes the list into the tree and says what the manifest has to say about it.
pub fn write(dir: &Path, list: &FileList) -> Result<ListSummary> {
    let mut text = serde_json::to_string(list).expect("a list has text keys only");
    text.push('\n');
    let path = files_file(dir);
    disk::make_dir(path.parent().expect("the list is in `.bm`"))?;
    disk::write_atomic(&path, text.as_bytes())?;
    Ok(ListSummary {
        files: list.files.iter().filter(|f| f.kind != FileKind::Dir).count(),
        size: list.files.iter().filter_map(|f| f.size).sum(),
        files_sha256: sha256(&text),
    })
}

/// Reads the list of a tree if it is the one its manifest speaks of (`files_sha256`).
///
/// # Errors
/// Why it does not count.
pub fn read(dir: &Path, files_sha256: &str) -> Result<FileList, String> {
    let text = fs::read(files_file(dir)).map_err(|e| e.to_string())?;
    if sha256(&text) != files_sha256 {
        return Err("`.bm/files.json` is not the list that the manifest speaks of".into());
    }
    let list: FileList = serde_json::from_slice(&text).map_err(|e| format!("`.bm/files.json`: {e}"))?;
    if list.schema > SCHEMA {
        return Err(format!(
            "`.bm/files.json` has schema {}, newer than {SCHEMA}",
            list.schema
        ));
    }
    Ok(list)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_tree_is_listed_by_path_kind_mode_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("lib/sub")).unwrap();
        fs::create_dir_all(root.join(".bm/logs")).unwrap();
        fs::write(root.join("lib-x"), "").unwrap();
        fs::write(root.join("lib/a"), "abc").unwrap();
        fs::hard_link(root.join("lib/a"), root.join("lib/b")).unwrap();
        fs::os::unix::fs::symlink("nowhere", root.join("lib/link")).unwrap();
        fs::set_permissions(root.join("lib/a"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        let list = hash_tree(root).unwrap();
        let paths: Vec<_> = list.files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["lib", "lib-x", "lib/a", "lib/b", "lib/link", "lib/sub"]);
        assert!(paths.is_sorted());
        let a = &list.files[2];
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            (a.mode.as_str(), a.size, a.sha256.as_deref()),
            ("4755", Some(3), Some(abc))
        );
        assert_eq!(list.files[4].target.as_deref(), Some("nowhere"));

        let summary = write(root, &list).unwrap();
        assert_eq!((summary.files, summary.size), (4, 6));
        assert_eq!(read(root, &summary.files_sha256).unwrap(), list);
        assert!(read(root, "00").unwrap_err().contains("not the list"));
    }

    #[test]
    fn odd_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let error = hash_tree(dir.path()).unwrap_err();
        assert_eq!(error.exit(), Exit::Proof);
        assert!(error.headline().contains("`fifo`"), "{error}");
    }
}
