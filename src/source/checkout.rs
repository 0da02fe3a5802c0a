//! From a commit in a repository to a plain source tree.
//!
//! Owns writing the tree: blob by blob as git stores them, with no filters, no attributes, no hooks
//! and no `.git`. (`git checkout` in a repository that lacks a blob leaves the file out and exits 0.)
//! Modification times are the commit's, so that no file looks newer than another to make.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use git2::{ObjectType, Oid, Repository};

use super::{repository, tree};
use crate::error::{Error, Exit, IoContext, Result};

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkout {
    /// Id of the tree, 40 hex digits.
    pub tree: String,
    /// Files and links written.
    pub files: u64,
    /// Submodules: path below the tree and commit. Their directories are there, empty.
    pub submodules: Vec<(String, String)>,
}

/// Writes the tree of `commit` into `dest`, an existing empty directory.
///
/// # Errors
/// Exit 4 for a commit, tree or blob that the repository lacks, naming the file; exit 3 if the disk
/// fails. What `dest` holds then is of no use.
pub fn checkout(repository: &Path, commit: &str, dest: &Path) -> Result<Checkout> {
    let doing = || "cannot check out the source tree".to_owned();
    if fs::read_dir(dest).doing(doing)?.next().is_some() {
        return Err(
            Error::new(Exit::Bug, "a commit was to be checked out over other files").detail("tree", dest.display())
        );
    }
    let repo = repository::open(repository)?;
    let lacks = |what: String, e: git2::Error| {
        Error::new(Exit::Source, format!("cannot check out commit `{commit}`"))
            .detail("missing", what)
            .detail("repository", repository.display())
            .caused_by(e.message())
    };
    let oid = Oid::from_str(commit).map_err(|e| lacks("no commit id".into(), e))?;
    let found = repo.find_commit(oid).map_err(|e| lacks("the commit".into(), e))?;
    let root = found.tree().map_err(|e| lacks("its tree".into(), e))?;
    let seconds = u64::try_from(found.time().seconds()).unwrap_or(0);
    let mut writer = Writer {
        repo: &repo,
        dest,
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        done: Checkout {
            tree: root.id().to_string(),
            ..Checkout::default()
        },
        lacks: &lacks,
    };
    writer.tree(&root, Path::new(""))?;
    Ok(writer.done)
}

/// Files of a commit's tree that the repository lacks, at most `limit`; none if it lacks the commit.
pub(super) fn missing_files(repo: &Repository, commit: &str, limit: usize) -> Vec<String> {
    let mut missing = Vec::new();
    let root = Oid::from_str(commit).and_then(|oid| repo.find_commit(oid)?.tree());
    let (Ok(root), Ok(odb)) = (root, repo.odb()) else {
        return missing;
    };
    let mut open = vec![(root, String::new())];
    while let Some((tree, at)) = open.pop() {
        for entry in &tree {
            let name = format!("{at}{}", String::from_utf8_lossy(entry.name_bytes()));
            match entry.kind() {
                Some(ObjectType::Tree) => match repo.find_tree(entry.id()) {
                    Ok(below) => open.push((below, format!("{name}/"))),
                    Err(_) => missing.push(name),
                },
                Some(ObjectType::Blob) if !odb.exists(entry.id()) => missing.push(name),
                _ => {}
            }
            if missing.len() >= limit {
                return missing;
            }
        }
    }
    missing
}

struct Writer<'a> {
    repo: &'a Repository,
    dest: &'a Path,
    time: SystemTime,
    done: Checkout,
    lacks: &'a dyn Fn(String, git2::Error) -> Error,
}

impl Writer<'_> {
    fn tree(&mut self, tree: &git2::Tree<'_>, at: &Path) -> Result<()> {
        for entry in tree {
            let path = self.judged(at, entry.name_bytes())?;
            let full = self.dest.join(&path);
            match entry.filemode() {
                0o040_000 => {
                    self.directory(&full)?;
                    let below = self
                        .repo
                        .find_tree(entry.id())
                        .map_err(|e| (self.lacks)(shown(&path), e))?;
                    self.tree(&below, &path)?;
                }
                0o160_000 => {
                    self.directory(&full)?;
                    self.done.submodules.push((shown(&path), entry.id().to_string()));
                }
                mode => {
                    let blob = self
                        .repo
                        .find_blob(entry.id())
                        .map_err(|e| (self.lacks)(shown(&path), e))?;
                    self.file(&path, &full, mode, blob.content())?;
                    self.done.files += 1;
                }
            }
        }
        Ok(())
    }

    /// git refuses such names too, but a tree object can hold any bytes.
    fn judged(&self, at: &Path, name: &[u8]) -> Result<PathBuf> {
        let hostile = |why: &str| {
            Error::new(Exit::Source, "the commit holds a file that may not be written")
                .detail("file", shown(&at.join(std::ffi::OsStr::from_bytes(name))))
                .detail("reason", why)
        };
        let text = std::str::from_utf8(name).map_err(|_| hostile("its name is not UTF-8"))?;
        let inside = tree::inside(text).map_err(hostile)?;
        if inside.as_os_str() != text {
            return Err(hostile("its name is no plain name"));
        }
        Ok(at.join(inside))
    }

    fn directory(&self, full: &Path) -> Result<()> {
        fs::create_dir(full)
            .and_then(|()| fs::set_permissions(full, std::fs::Permissions::from_mode(0o755)))
            .doing(|| "cannot check out the source tree".into())
    }

    fn file(&self, path: &Path, full: &Path, mode: i32, content: &[u8]) -> Result<()> {
        let doing = || "cannot check out the source tree".to_owned();
        if mode == 0o120_000 {
            let target = Path::new(std::ffi::OsStr::from_bytes(content));
            if !tree::link_stays_inside(path, target) {
                return Err(
                    Error::new(Exit::Source, "the commit holds a link that leads out of the tree")
                        .detail("file", shown(path))
                        .detail("target", target.display()),
                );
            }
            return fs_err::os::unix::fs::symlink(target, full).doing(doing);
        }
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let mut options = fs::OpenOptions::new();
        fs_err::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        let mut file = options.write(true).create_new(true).open(full).doing(doing)?;
        file.write_all(content).doing(doing)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))
            .doing(doing)?;
        file.file().set_modified(self.time).doing(doing)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A commit with a file, a program, a link, a folder, attributes that filters would obey, and a submodule.
    fn fixture(dir: &Path) -> (Repository, String) {
        let repo = Repository::init_bare(dir).unwrap();
        let blob = |text: &str| repo.blob(text.as_bytes()).unwrap();
        let sub = {
            let mut b = repo.treebuilder(None).unwrap();
            b.insert("deep.c", blob("deep $Id$\r\n"), 0o100_644).unwrap();
            b.insert("up", blob("../run"), 0o120_000).unwrap();
            b.write().unwrap()
        };
        let mut b = repo.treebuilder(None).unwrap();
        b.insert(".gitattributes", blob("* text=auto ident export-subst\n"), 0o100_644)
            .unwrap();
        b.insert("run", blob("#!/bin/sh\n"), 0o100_755).unwrap();
        b.insert("sub", sub, 0o040_000).unwrap();
        b.insert("vendor", Oid::from_str(&"a".repeat(40)).unwrap(), 0o160_000)
            .unwrap();
        let tree = repo.find_tree(b.write().unwrap()).unwrap();
        let who = git2::Signature::new("a", "a@b", &git2::Time::new(1_234_567, 0)).unwrap();
        let commit = repo.commit(None, &who, &who, "m", &tree, &[]).unwrap().to_string();
        drop(b);
        drop(tree);
        (repo, commit)
    }

    #[test]
    fn the_tree_is_written_exactly() {
        let temp = tempfile::tempdir().unwrap();
        let (repo, commit) = fixture(&temp.path().join("r.git"));
        let dest = temp.path().join("src");
        fs::create_dir(&dest).unwrap();
        let done = checkout(repo.path(), &commit, &dest).unwrap();
        assert_eq!(done.files, 4);
        assert_eq!(done.submodules, [("vendor".to_owned(), "a".repeat(40))]);
        assert_eq!(fs::read(dest.join("sub/deep.c")).unwrap(), b"deep $Id$\r\n");
        assert_eq!(fs::read_link(dest.join("sub/up")).unwrap(), Path::new("../run"));
        let run = fs::metadata(dest.join("run")).unwrap();
        assert_eq!(run.permissions().mode() & 0o777, 0o755);
        assert_eq!(
            run.modified().unwrap(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567)
        );
        assert!(!dest.join(".git").exists());
        assert_eq!(checkout(repo.path(), &commit, &dest).unwrap_err().exit(), Exit::Bug);
    }

    #[test]
    fn a_missing_blob_is_an_error_that_names_the_file() {
        let temp = tempfile::tempdir().unwrap();
        let (repo, commit) = fixture(&temp.path().join("r.git"));
        let id = repo.blob(b"deep $Id$\r\n").unwrap().to_string();
        fs::remove_file(repo.path().join("objects").join(&id[..2]).join(&id[2..])).unwrap();
        let dest = temp.path().join("src");
        fs::create_dir(&dest).unwrap();
        let error = checkout(repo.path(), &commit, &dest).unwrap_err();
        assert_eq!(error.exit(), Exit::Source);
        assert!(error.to_string().contains("missing: sub/deep.c"), "{error}");
        let fresh = Repository::open(repo.path()).unwrap();
        assert_eq!(missing_files(&fresh, &commit, 9), ["sub/deep.c"]);
    }

    #[test]
    fn links_out_of_the_tree_and_unknown_commits_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (repo, _) = fixture(&temp.path().join("r.git"));
        let mut b = repo.treebuilder(None).unwrap();
        b.insert("l", repo.blob(b"../../etc").unwrap(), 0o120_000).unwrap();
        let tree = repo.find_tree(b.write().unwrap()).unwrap();
        let who = git2::Signature::now("a", "a@b").unwrap();
        let commit = repo.commit(None, &who, &who, "m", &tree, &[]).unwrap().to_string();
        for (commit, says) in [(commit.as_str(), "leads out"), (&"b".repeat(40), "missing: the commit")] {
            let dest = tempfile::tempdir().unwrap();
            let error = checkout(repo.path(), commit, dest.path()).unwrap_err();
            assert_eq!(error.exit(), Exit::Source);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
