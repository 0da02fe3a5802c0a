//! Which paths may be written below a source tree. Text only: nothing here touches the disk.

use std::path::{Component, Path, PathBuf};

/// The parts of a path below a tree, `.` left out.
///
/// # Errors
/// Why the path must not be written: absolute, `..`, `.git`, or characters no source file has.
pub fn inside(path: &str) -> Result<PathBuf, &'static str> {
    if path.contains(['\0', '\n']) {
        return Err("its name has a control character");
    }
    let mut kept = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) if name.eq_ignore_ascii_case(".git") => return Err("it is inside `.git`"),
            Component::Normal(name) => kept.push(name),
            Component::ParentDir => return Err("it leaves the tree with `..`"),
            Component::RootDir | Component::Prefix(_) => return Err("it is absolute"),
        }
    }
    Ok(kept)
}

/// Whether a symbolic link at `link` (below the tree, in real directories) may point to `target`.
///
/// Only leading `..` are followed: after a name, `..` may mean something else than the text says,
/// because the name may be a link itself.
pub fn link_stays_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    let mut named = false;
    for part in target.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => named = true,
            Component::ParentDir if !named && depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    !target.as_os_str().is_empty()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_tree_are_inside() {
        assert_eq!(inside("./a//b/").unwrap(), Path::new("a/b"));
        assert_eq!(inside("a..b/.gitignore").unwrap(), Path::new("a..b/.gitignore"));
        assert_eq!(inside("./").unwrap(), Path::new(""));
        for bad in ["/etc/passwd", "../x", "a/../b", ".git/hooks/x", "a/.GIT/config", "a\nb"] {
            assert!(inside(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn links_may_go_up_only_as_far_as_the_tree() {
        for (link, target, stays) in [
            ("a/l", "../b", true),
            ("a/b/l", "../../c/d", true),
            ("l", "b", true),
            ("l", "../b", false),
            ("a/l", "../../b", false),
            ("a/l", "/b", false),
            ("a/b/m", "l/..", false),
            ("l", "", false),
        ] {
            assert_eq!(
                link_stays_inside(Path::new(link), Path::new(target)),
                stays,
                "{link} -> {target}"
            );
        }
    }
}
