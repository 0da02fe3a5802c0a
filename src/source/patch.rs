//! Applying a recipe's patches to a fresh source tree, in order, exactly.
//!
//! Owns the judgement of what a patch touches and the proof that it did. Fuzz is never used; lines by
//! which a hunk was off are recorded. Knows no recipe: names and texts are given.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Log, Ran, sha256, start, tree};
use crate::error::{Error, Exit, IoContext, Result};
use crate::model::manifest::PatchRecord;
use crate::process::Cancel;

/// A patch to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Path below `patches/`, for messages and the manifest.
    pub name: String,
    /// Unified diff.
    pub text: Vec<u8>,
    /// Leading parts to take off the file names in it, as `-p`.
    pub strip: usize,
}

/// A patch that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// [`Patch::name`].
    pub name: String,
    /// Of the patch text.
    pub sha256: String,
    /// Files it changed, below the tree, sorted.
    pub files: Vec<String>,
    /// Hunks that did not sit where the patch says: `src/x.c: hunk 1 at line 12 (offset 3 lines)`.
    pub offsets: Vec<String>,
}

impl From<Applied> for PatchRecord {
    fn from(a: Applied) -> Self {
        PatchRecord {
            file: a.name,
            sha256: a.sha256,
            offsets: a.offsets,
        }
    }
}

/// Applies `patches` in order to the tree at `src`. `env` is the complete environment of git.
///
/// # Errors
/// Exit 4 for a patch that holds nothing, reaches outside the tree, does not apply exactly, or
/// changes less than it lists. The tree is then of no further use.
pub fn apply(src: &Path, patches: &[Patch], env: &BTreeMap<String, String>, log: &Log) -> Result<Vec<Applied>> {
    let src = fs::canonicalize(src).doing(|| "cannot patch the source tree".into())?;
    let applier = Applier {
        env: applier_env(&src, env),
        src: &src,
        log,
    };
    patches.iter().map(|patch| applier.apply(patch)).collect()
}

/// Without a ceiling, `git apply` below some other repository takes that one for its own and skips
/// every file outside it, with success.
fn applier_env(src: &Path, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut env = super::repository::hardened_env(env);
    let above = src.parent().unwrap_or(src);
    env.insert("GIT_CEILING_DIRECTORIES".into(), above.to_string_lossy().into_owned());
    env
}

struct Applier<'a> {
    src: &'a Path,
    env: BTreeMap<String, String>,
    log: &'a Log,
}

impl Applier<'_> {
    fn apply(&self, patch: &Patch) -> Result<Applied> {
        let list = self.git(patch, &["--numstat", "-z"])?;
        if !list.ok {
            return Err(failed(patch, "cannot read the patch").caused_by(list.complaint()));
        }
        let mut files =
            touched(&list.stdout).ok_or_else(|| failed(patch, "cannot read the list of files of the patch"))?;
        // git lists a rename by its new name alone, but takes the old one away too.
        files.extend(from_lines(&patch.text, "rename from ", patch.strip));
        files.sort();
        files.dedup();
        if files.is_empty() {
            return Err(
                failed(patch, "the patch changes no file").hint("give a unified diff with `---` and `+++` lines")
            );
        }
        for file in files.iter().chain(&from_lines(&patch.text, "copy from ", patch.strip)) {
            self.judge(file).map_err(|why| leaves(patch, file, &why))?;
        }
        let before = self.states(&files)?;
        let ran = self.git(patch, &["-v"])?;
        if !ran.ok {
            return Err(self.does_not_apply(patch, &ran));
        }
        let after = self.states(&files)?;
        if let Some(file) = files.iter().zip(before.iter().zip(&after)).find(|(_, (b, a))| b == a) {
            return Err(failed(patch, "the patch left a file of its list unchanged").detail("file", file.0));
        }
        self.judge_links(patch, &files)?;
        Ok(Applied {
            name: patch.name.clone(),
            sha256: sha256(&patch.text),
            offsets: offsets(&ran.stderr),
            files,
        })
    }

    fn git(&self, patch: &Patch, options: &[&str]) -> Result<Ran> {
        let mut argv = super::repository::hardened_argv();
        argv.extend(["apply", "--whitespace=nowarn"].map(String::from));
        argv.push(format!("-p{}", patch.strip));
        argv.extend(options.iter().map(|o| (*o).to_owned()));
        argv.push("-".into());
        start(&argv, &self.env, self.src, &patch.text, &Cancel::default(), self.log)
    }

    /// Whether writing `file` stays in the tree: by its name, and by what lies on its way.
    fn judge(&self, file: &str) -> Result<(), String> {
        let path = tree::inside(file)?;
        if path.as_os_str().is_empty() {
            return Err("it names no file".into());
        }
        let mut at = self.src.to_owned();
        for part in path.parent().unwrap_or(Path::new("")).components() {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_symlink() => return Err(format!("it goes through the link `{}`", at.display())),
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(())
    }

    /// A patch may make links too.
    fn judge_links(&self, patch: &Patch, files: &[String]) -> Result<()> {
        for file in files {
            let full = self.src.join(file);
            let Ok(target) = fs::read_link(&full) else { continue };
            if !tree::link_stays_inside(Path::new(file), &target) {
                let _ = fs::remove_file(&full);
                let why = format!("it makes a link to `{}`", target.display());
                return Err(leaves(patch, file, &why));
            }
        }
        Ok(())
    }

    fn states(&self, files: &[String]) -> Result<Vec<String>> {
        files.iter().map(|f| state(&self.src.join(f))).collect()
    }

    fn does_not_apply(&self, patch: &Patch, ran: &Ran) -> Error {
        let mut error = failed(patch, "the patch does not apply");
        for line in ran.stderr.lines() {
            if let Some(at) = line.strip_prefix("error: patch failed: ") {
                error = error.detail("failed at", at);
            } else if let Some(why) = line
                .strip_prefix("error: ")
                .filter(|l| !l.starts_with("while searching for:"))
            {
                error = error.caused_by(why);
            }
        }
        error = error.detail("tree", self.src.display());
        let reversed = self.git(patch, &["-R", "--check"]);
        if reversed.is_ok_and(|r| r.ok) {
            return error.hint("the tree has this change already: narrow the patch's `versions` in the recipe");
        }
        error.hint("adapt the patch to this version, or narrow its `versions` in the recipe")
    }
}

fn failed(patch: &Patch, what: &str) -> Error {
    Error::new(Exit::Source, format!("cannot apply patch `{}`", patch.name)).detail("reason", what)
}

fn leaves(patch: &Patch, file: &str, why: &str) -> Error {
    failed(patch, "the patch reaches outside the source tree")
        .detail("file", file)
        .caused_by(why)
}

/// The files of `--numstat -z`: `added TAB deleted TAB path NUL` each.
fn touched(list: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(list).ok()?;
    text.split_terminator('\0')
        .map(|line| {
            line.splitn(3, '\t')
                .nth(2)
                .filter(|path| !path.is_empty())
                .map(str::to_owned)
        })
        .collect()
}

/// The files named in extended header lines (`rename from `, `copy from `), which lack the `a/` that
/// the first stripped part stands for. Lines of hunks begin with a blank, `+` or `-`.
fn from_lines(patch: &[u8], start: &str, strip: usize) -> Vec<String> {
    String::from_utf8_lossy(patch)
        .lines()
        .filter_map(|line| line.strip_prefix(start))
        .map(|name| name.splitn(strip.max(1), '/').last().unwrap_or(name).to_owned())
        .collect()
}

/// Everything of a file that a patch can change, as text to compare.
fn state(path: &Path) -> Result<String> {
    let doing = || "cannot read a file to be patched".to_owned();
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok("absent".into());
        }
        Err(e) => return Err(e).doing(doing),
    };
    if meta.is_symlink() {
        let target: PathBuf = fs::read_link(path).doing(doing)?;
        return Ok(format!("link {}", target.display()));
    }
    if meta.is_dir() {
        return Ok("directory".into());
    }
    let content = fs::read(path).doing(doing)?;
    Ok(format!("{:o} {}", meta.permissions().mode() & 0o111, sha256(&content)))
}

/// What `git apply -v` says of hunks that were found elsewhere.
fn offsets(said: &str) -> Vec<String> {
    let mut file = "";
    let mut found = Vec::new();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("Checking patch ") {
            file = name.trim_end_matches('.');
        } else if let Some(hunk) = line.strip_prefix("Hunk #").filter(|h| h.contains("(offset ")) {
            found.push(format!(
                "{file}: hunk {}",
                hunk.replace("succeeded at", "at line").trim_end_matches('.')
            ));
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::source::testing::net;

    const OLD: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";

    fn patch(text: &str) -> Patch {
        Patch {
            name: "postgres/fix.patch".into(),
            text: text.as_bytes().to_vec(),
            strip: 1,
        }
    }

    const GOOD: &str = "--- a/src/x.c\n+++ b/src/x.c\n@@ -3,5 +3,5 @@\n three\n four\n-five\n+FIVE\n six\n seven\n";

    /// The tree lies inside another repository, where a careless `git apply` does nothing.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        git2::Repository::init(temp.path()).unwrap();
        let src = temp.path().join("work/src");
        fs::create_dir_all(src.join("src")).unwrap();
        fs::write(src.join("src/x.c"), OLD).unwrap();
        fs_err::os::unix::fs::symlink("/tmp", src.join("out")).unwrap();
        (temp, src)
    }

    fn run(src: &Path, patches: &[Patch]) -> Result<Vec<Applied>> {
        apply(src, patches, &net().env, &Log::none())
    }

    #[test]
    fn patches_apply_in_order_and_say_what_they_changed() {
        let (_temp, src) = tree();
        let second = "diff --git a/src/x.c b/src/y.c\nsimilarity index 100%\nrename from src/x.c\nrename to src/y.c\n\
                      diff --git a/run.sh b/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+#!/bin/sh\n";
        let applied = run(&src, &[patch(GOOD), patch(second)]).unwrap();
        assert_eq!(applied[0].files, ["src/x.c"]);
        assert_eq!(applied[0].offsets, Vec::<String>::new());
        assert_eq!(applied[0].sha256, sha256(GOOD));
        assert_eq!(applied[1].files, ["run.sh", "src/x.c", "src/y.c"]);
        assert_eq!(
            fs::read_to_string(src.join("src/y.c")).unwrap(),
            OLD.replace("five", "FIVE")
        );
        assert_ne!(
            fs::metadata(src.join("run.sh")).unwrap().permissions().mode() & 0o111,
            0
        );
        let record = PatchRecord::from(applied[0].clone());
        assert_eq!(record.file, "postgres/fix.patch");
    }

    #[test]
    fn offsets_are_recorded() {
        let (_temp, src) = tree();
        fs::write(src.join("src/x.c"), format!("zero\nzero\n{OLD}")).unwrap();
        let applied = run(&src, &[patch(GOOD)]).unwrap();
        assert_eq!(applied[0].offsets, ["src/x.c: hunk 1 at line 5 (offset 2 lines)"]);
    }

    #[test]
    fn what_cannot_be_applied_exactly_is_refused() {
        let fuzzy = GOOD.replace(" three\n", " THREE\n");
        let elsewhere = GOOD.replace("five\n+", "fünf\n+");
        let made_link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n";
        for (name, text, says) in [
            ("fuzz", fuzzy.as_str(), "failed at: src/x.c:3"),
            ("content", elsewhere.as_str(), "does not apply"),
            ("no such file", &GOOD.replace("x.c", "none.c"), "src/none.c"),
            ("empty", "", "reason"),
            ("prose", "nothing to see\n", "reason"),
            (
                "up",
                &GOOD.replace("a/src/x.c", "a/../x.c").replace("b/src/x.c", "b/../x.c"),
                "reason",
            ),
            (
                "through a link",
                "--- /dev/null\n+++ b/out/evil\n@@ -0,0 +1 @@\n+x\n",
                "through the link",
            ),
            (
                "git dir",
                "--- /dev/null\n+++ b/.git/config\n@@ -0,0 +1 @@\n+x\n",
                "reason",
            ),
            (
                "rename through a link",
                "diff --git a/out/evil b/got\nsimilarity index 100%\nrename from out/evil\nrename to got\n",
                "through the link",
            ),
            ("link out", made_link, "makes a link to `/etc`"),
        ] {
            let (_temp, src) = tree();
            let error = run(&src, &[patch(text)]).unwrap_err();
            assert_eq!(error.exit(), Exit::Source, "{name}: {error}");
            assert_eq!(error.headline(), "cannot apply patch `postgres/fix.patch`", "{name}");
            assert!(error.to_string().contains(says), "{name}: {error}");
            assert_eq!(fs::read_to_string(src.join("src/x.c")).unwrap(), OLD, "{name}");
            assert!(
                !src.join("l").is_symlink() && !Path::new("/tmp/evil").exists(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_change_that_is_there_already_is_said_to_be() {
        let (_temp, src) = tree();
        let error = run(&src, &[patch(GOOD), patch(GOOD)]).unwrap_err();
        assert!(
            error.hint_text().unwrap().contains("has this change already"),
            "{error}"
        );
    }

    #[test]
    fn lists_of_files_are_read_with_odd_names() {
        assert_eq!(touched(b"1\t2\ta b.c\0-\t-\tq\tr\0").unwrap(), ["a b.c", "q\tr"]);
        assert_eq!(touched(b"no tabs\0"), None);
        assert_eq!(touched(b"1\t1\t\0"), None);
        let header = b"rename from x/y/z.c\n rename from no\n+rename from no\n";
        assert_eq!(from_lines(header, "rename from ", 1), ["x/y/z.c"]);
        assert_eq!(from_lines(header, "rename from ", 2), ["y/z.c"]);
    }
}
