//! Carries a driver's extra files (ini.sh, my.cnf, data) from the old tree of a rebuild to the new one.
//!
//! Every move is one rename, and what was moved is no longer in the old tree: doing it all again after
//! a crash moves the rest.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{disk, files, manifest};
use crate::error::{Error, IoContext, Result};
use crate::layout::prefix_state;

/// What became of the extra files; paths relative to the prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// At the same place in the new tree; a directory stands for all that is in it.
    pub moved: Vec<PathBuf>,
    /// The new tree installs something of that name; the user's file is below `.bm/replaced/` now.
    pub set_aside: Vec<PathBuf>,
    /// Could not be moved, with the reason; still in the old tree.
    pub stuck: Vec<String>,
}

/// Moves everything that bm did not install. `prefix` is the final path, which `old` was moved from.
pub(super) fn carry_over(old: &Path, new: &Path, prefix: &Path) -> Result<Carried> {
    let listed = manifest::read_moved(old, prefix)
        .valid()
        .ok_or_else(|| "the old manifest does not count".to_owned())
        .and_then(|manifest| files::read(old, &manifest.files_sha256));
    let mut carrier = Carrier {
        old,
        new,
        installed: HashSet::new(),
        carried: Carried::default(),
    };
    match listed {
        Ok(list) => {
            carrier.installed = list.files.into_iter().map(|file| file.path.into()).collect();
            carrier.visit(Path::new(""))?;
        }
        // Without the list the user's files cannot be told from installed ones.
        Err(reason) => carrier.carried.stuck.push(reason),
    }
    Ok(carrier.carried)
}

struct Carrier<'a> {
    old: &'a Path,
    new: &'a Path,
    installed: HashSet<PathBuf>,
    carried: Carried,
}

impl Carrier<'_> {
    fn visit(&mut self, below: &Path) -> Result<()> {
        for name in disk::names_in(&self.old.join(below))? {
            let path = below.join(name);
            if path == Path::new(".bm") {
                continue;
            }
            let dir = is_dir(&self.old.join(&path))?;
            if self.installed.contains(&path) {
                if dir {
                    self.visit(&path)?;
                }
                continue;
            }
            let there = self.new.join(&path);
            if !disk::exists(&there)? {
                self.carry(&path)?;
            } else if dir && is_dir(&there)? {
                self.visit(&path)?;
            } else {
                self.set_aside(&path)?;
            }
        }
        Ok(())
    }

    fn carry(&mut self, path: &Path) -> Result<()> {
        if !self.make_parents(path)? {
            return self.set_aside(path);
        }
        if self.rename(path, &self.new.join(path))? {
            self.carried.moved.push(path.to_owned());
        }
        Ok(())
    }

    fn set_aside(&mut self, path: &Path) -> Result<()> {
        let aside = prefix_state(self.new).join("replaced").join(path);
        disk::make_dir(aside.parent().expect("it is below `.bm`"))?;
        if self.rename(path, &aside)? {
            self.carried.set_aside.push(path.to_owned());
        }
        Ok(())
    }

    /// Whether it was moved. Mount points, and directories of another user, are left where they are.
    fn rename(&mut self, path: &Path, to: &Path) -> Result<bool> {
        match disk::rename_new(&self.old.join(path), to) {
            Ok(()) => Ok(true),
            Err(e) => match e.kind() {
                ErrorKind::CrossesDevices | ErrorKind::ResourceBusy | ErrorKind::PermissionDenied => {
                    self.carried.stuck.push(format!("`{}`: {e}", path.display()));
                    Ok(false)
                }
                _ => Err(Error::io(format!("cannot carry over `{}`", path.display()), &e)),
            },
        }
    }

    /// Makes the directories above `path` in the new tree, with the old ones' modes. `false` when a
    /// file or a link is in the way.
    fn make_parents(&self, path: &Path) -> Result<bool> {
        let mut parents: Vec<_> = path.ancestors().skip(1).filter(|p| *p != Path::new("")).collect();
        parents.reverse();
        for parent in parents {
            let to = self.new.join(parent);
            if !disk::exists(&to)? {
                let make = || {
                    fs::create_dir(&to)?;
                    fs::set_permissions(&to, fs::metadata(self.old.join(parent))?.permissions())
                };
                make().doing(|| format!("cannot create `{}`", to.display()))?;
            } else if !is_dir(&to)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether it is a directory; a link to one is none, for what is moved must not leave the tree.
fn is_dir(path: &Path) -> Result<bool> {
    let meta = fs::symlink_metadata(path).doing(|| "cannot look at a file to carry over".into())?;
    Ok(meta.is_dir())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::fixture;

    /// A tree with these files, all listed and sealed for `prefix`.
    fn tree(at: &Path, prefix: &Path, installed: &[&str]) {
        for file in installed {
            write(at, file, "installed");
        }
        let summary = files::write(at, &files::hash_tree(at).unwrap()).unwrap();
        let value = fixture::manifest(prefix, "id", &summary.files_sha256, 1);
        let sealed = manifest::seal(serde_json::from_value(value).unwrap());
        fs::write(crate::layout::manifest_file(at), manifest::text(&sealed)).unwrap();
    }

    fn write(at: &Path, file: &str, text: &str) {
        let path = at.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn extras_move_and_installed_files_stay_and_nothing_of_the_users_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new, prefix) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("pg"));
        tree(&old, &prefix, &["bin/a", "bin/gone", "share/only-old/x"]);
        tree(&new, &prefix, &["bin/a", "etc/new.conf", "lib/x"]);
        fs::os::unix::fs::symlink("lib", new.join("lib64")).unwrap();
        let extras = [
            "ini.sh",
            "data/base/1",
            "bin/mine",
            "share/only-old/mine",
            "etc/new.conf",
            "etc/my.cnf",
            "lib64/mine",
        ];
        for extra in extras {
            write(&old, extra, "mine");
        }
        let carried = carry_over(&old, &new, &prefix).unwrap();
        let paths = |list: &[PathBuf]| list.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            paths(&carried.moved),
            ["bin/mine", "data", "etc/my.cnf", "ini.sh", "share/only-old/mine"]
        );
        // `lib64` is a link in the new tree: nothing is moved through it.
        assert_eq!(paths(&carried.set_aside), ["etc/new.conf", "lib64"]);
        assert!(carried.stuck.is_empty());
        for extra in carried.moved {
            assert!(new.join(&extra).exists() && !old.join(&extra).exists(), "{extra:?}");
        }
        assert_eq!(fs::read_to_string(new.join("data/base/1")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(new.join("etc/new.conf")).unwrap(), "installed");
        assert_eq!(
            fs::read_to_string(new.join(".bm/replaced/etc/new.conf")).unwrap(),
            "mine"
        );
        assert_eq!(fs::read_to_string(new.join(".bm/replaced/lib64/mine")).unwrap(), "mine");
        assert!(!new.join("bin/gone").exists() && !new.join("share/only-old/x").exists());
        assert_eq!(
            carry_over(&old, &new, &prefix).unwrap(),
            Carried::default(),
            "once more is fine"
        );
    }

    #[test]
    fn without_a_list_nothing_moves() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new, prefix) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("pg"));
        tree(&old, &prefix, &["bin/a"]);
        tree(&new, &prefix, &["bin/a"]);
        write(&old, "mine", "");
        fs::write(crate::layout::files_file(&old), "{}").unwrap();
        let carried = carry_over(&old, &new, &prefix).unwrap();
        assert_eq!((carried.moved.len(), carried.stuck.len()), (0, 1));
        assert!(old.join("mine").exists());
    }
}
