//! Compiler calls that say the same in every work directory: paths become relative, and the compile
//! directory in debug information is named from the top of the work directory.
//!
//! Owns the words the launcher changes for it. Flags are left alone. Knows no builds and no caches.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use super::record;

/// What compilers take for their working directory when `PWD` says so. It is the same text everywhere, so the word
/// that maps it holds no path of this build: gcc and clang write their words into LTO objects and debug information.
pub const HERE: &str = "/proc/self/cwd";

/// Options whose value is a path that is only read. Outputs stay as they are written: they are named again in
/// dependency files.
const READ: [&str; 6] = ["-I", "-iquote", "-isystem", "-idirafter", "-include", "-imacros"];

/// The place of a call in its work directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neutral {
    /// The work directory as it is spelled, and as it is.
    work: [PathBuf; 2],
    /// Working directory of the call, below the work directory; empty for that itself.
    below: PathBuf,
}

impl Neutral {
    /// `None` for a call from elsewhere, or without `/proc`. `cwd` must be free of links.
    pub fn of(work: &Path, cwd: &Path) -> Option<Self> {
        let real = std::fs::canonicalize(work).ok()?;
        let below = cwd.strip_prefix(&real).ok()?.to_owned();
        Path::new(HERE).is_dir().then(|| Neutral {
            work: [work.to_owned(), real],
            below,
        })
    }

    /// The working directory from the top of the work directory: `./build/src`.
    pub fn name(&self) -> String {
        let parts = [Component::CurDir].into_iter().chain(self.below.components());
        parts.collect::<PathBuf>().to_string_lossy().into_owned()
    }

    /// The word that writes [`Neutral::name`] into debug information in place of the real directory.
    pub fn word(&self) -> String {
        format!("-fdebug-prefix-map={HERE}={}", self.name())
    }

    /// Makes paths into the work directory relative where they are read.
    pub fn apply(&self, args: &mut [OsString]) {
        let mut value_is_read = None;
        for arg in args {
            match value_is_read.take() {
                Some(false) => continue,
                Some(true) => {}
                None if READ.iter().any(|o| arg == o) => {
                    value_is_read = Some(true);
                    continue;
                }
                None if arg.to_str().is_some_and(record::takes_value) => {
                    value_is_read = Some(false);
                    continue;
                }
                None => {}
            }
            let (option, path) = split(arg);
            if let Some(relative) = self.relative(Path::new(path)) {
                let mut word = option.as_bytes().to_vec();
                word.extend_from_slice(relative.as_os_str().as_bytes());
                *arg = OsString::from_vec(word);
            }
        }
    }

    /// A path into the work directory as it is called from here. Only its beginning is looked at: `..` later in
    /// it goes where it went before.
    fn relative(&self, path: &Path) -> Option<PathBuf> {
        let rest = self.work.iter().find_map(|work| path.strip_prefix(work).ok())?;
        let mut up = self.below.components();
        let mut down = rest.components();
        // Equal beginnings are left out, as a person would write it; `..` is not understood here.
        while let (Some(Component::Normal(a)), Some(Component::Normal(b))) = (up.clone().next(), down.clone().next())
            && a == b
        {
            up.next();
            down.next();
        }
        let out: PathBuf = up.map(|_| Component::ParentDir).chain(down).collect();
        Some(if out.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            out
        })
    }
}

/// An option and the path joined to it; no option for a plain path.
fn split(arg: &OsStr) -> (&OsStr, &OsStr) {
    let bytes = arg.as_bytes();
    let option = READ
        .iter()
        .find(|o| bytes.starts_with(o.as_bytes()))
        .map_or(0, |o| o.len());
    let (option, path) = bytes.split_at(option);
    (OsStr::from_bytes(option), OsStr::from_bytes(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn neutral(below: &str) -> Neutral {
        Neutral {
            work: ["/r/w".into(), "/real/w".into()],
            below: below.into(),
        }
    }

    #[test]
    fn paths_that_are_read_become_relative() {
        for (line, want) in [
            ("-c /r/w/src/a/x.c -o x.o", "-c ../../src/a/x.c -o x.o"),
            ("-I/r/w/build/inc -I /real/w/src -c x.c", "-I../inc -I ../../src -c x.c"),
            (
                "-I. -I/r/w/build/sub -include /r/w/build/sub/c.h",
                "-I. -I. -include c.h",
            ),
            ("-isystem/r/w/src/../y -I/r/w", "-isystem../../src/../y -I../.."),
            // Outputs, macros and linker words keep what they say, and so do other directories.
            (
                "-o /r/w/build/x.o -MF /r/w/x.d -MT /r/w/x",
                "-o /r/w/build/x.o -MF /r/w/x.d -MT /r/w/x",
            ),
            (
                "-DP=\"/r/w\" -D /r/w -L/r/w/lib -Wl,-rpath,/r/w",
                "-DP=\"/r/w\" -D /r/w -L/r/w/lib -Wl,-rpath,/r/w",
            ),
            (
                "-I/r/w2 /usr/x.c -O2 -include-pch /r/w2/x",
                "-I/r/w2 /usr/x.c -O2 -include-pch /r/w2/x",
            ),
        ] {
            let mut args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            neutral("build/sub").apply(&mut args);
            let got: Vec<_> = args.iter().map(|a| a.to_str().unwrap()).collect();
            assert_eq!(got.join(" "), want);
        }
    }

    #[test]
    fn a_place_is_named_from_the_top_of_the_work_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (work, link) = (dir.path().join("w"), dir.path().join("link"));
        fs_err::create_dir_all(work.join("build/sub")).unwrap();
        fs_err::os::unix::fs::symlink(&work, &link).unwrap();
        let real = fs_err::canonicalize(&work).unwrap();
        let name = |cwd: &Path| Neutral::of(&link, cwd).map(|p| p.name());
        assert_eq!(name(&real.join("build/sub")).as_deref(), Some("./build/sub"));
        assert_eq!(name(&real).as_deref(), Some("."));
        assert_eq!(name(dir.path()), None);
        assert_eq!(neutral("build").word(), "-fdebug-prefix-map=/proc/self/cwd=./build");
    }
}
