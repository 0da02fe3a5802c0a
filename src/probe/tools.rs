//! Programs by name on bm's own PATH, and a memory of what was learned about them.
//!
//! Owns the cache file. A program is hashed and asked once; afterwards a `stat` is enough, so that a
//! run that finds everything up to date starts no process. Knows nothing of compilers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs_err as fs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::digest::sha256_of;
use crate::error::{Error, Exit, IoContext, Result};
use crate::model::manifest::Tool;
use crate::process::capture;

/// Version of the cache file's format; another one is ignored.
const SCHEMA: u32 = 1;

/// A probe answers at once or is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compiler caches that stand on a PATH under a compiler's name.
const SHIMS: [&str; 2] = ["ccache", "sccache"];

/// A program that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where PATH has it. This is what to run: many compilers act by the name they are called by
    /// (`clang++` and `llvm-ranlib` are links to `clang` and `llvm-ar`).
    pub path: PathBuf,
    /// The file itself, all links followed.
    pub real: PathBuf,
    stat: Stat,
}

impl Found {
    /// The path to run, as a word of a command line.
    pub fn word(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stat {
    dev: u64,
    inode: u64,
    size: u64,
    mtime: i64,
    mtime_ns: i64,
}

/// What is remembered of one path; void as soon as its stat differs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    stat: Stat,
    facts: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct CacheFile {
    schema: u32,
    tools: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Default)]
struct Memory {
    tools: BTreeMap<PathBuf, Entry>,
    changed: BTreeSet<PathBuf>,
}

/// Looks programs up and remembers what it learned. Saves when dropped; see [`Prober::save`].
#[derive(Debug)]
pub struct Prober {
    cache_file: PathBuf,
    path: Vec<PathBuf>,
    memory: Mutex<Memory>,
}

impl Prober {
    /// `path` is bm's PATH for children, in order. Entries that are not absolute, not UTF-8, or hold
    /// a colon cannot stand on a PATH safely and are left out. A damaged cache file counts as empty.
    pub fn new(cache_file: &Path, path: Vec<PathBuf>) -> Self {
        let mut seen = BTreeSet::new();
        let usable = |p: &PathBuf| p.is_absolute() && p.to_str().is_some_and(|s| !s.contains(':'));
        Prober {
            cache_file: cache_file.to_owned(),
            path: path
                .into_iter()
                .filter(|p| usable(p) && seen.insert(p.clone()))
                .collect(),
            memory: Mutex::new(Memory {
                tools: read_cache(cache_file),
                changed: BTreeSet::new(),
            }),
        }
    }

    /// The value of `PATH` for children.
    pub fn path_variable(&self) -> String {
        let words: Vec<_> = self.path.iter().map(|p| p.to_string_lossy()).collect();
        words.join(":")
    }

    /// The first program of that name on bm's PATH that is no compiler cache in disguise; an absolute
    /// path stands for itself.
    pub fn program(&self, name: &str) -> Option<Found> {
        self.candidates(name).into_iter().find(|f| !is_shim(name, f))
    }

    /// Path, version and content of a program.
    ///
    /// # Errors
    /// Exit 3 when PATH does not have it or it cannot be read.
    pub fn tool(&self, name: &str) -> Result<Tool> {
        let found = self.program(name).ok_or_else(|| self.missing(name))?;
        self.describe(&found)
    }

    /// The error for a program that [`Prober::program`] does not find; the caller adds the hint.
    pub fn missing(&self, name: &str) -> Error {
        let error = Error::new(Exit::Host, format!("program `{name}` is not on bm's PATH"))
            .detail("PATH", self.path_variable());
        match self.candidates(name).first() {
            Some(shim) => error.detail(
                "passed over",
                format!("{} (it is {})", shim.path.display(), shim.real.display()),
            ),
            None => error,
        }
    }

    /// Writes what was learned since the last save; does nothing when nothing was. Writers at the
    /// same time are harmless: the file is replaced whole, and what the last one did not know is
    /// asked again.
    ///
    /// # Errors
    /// Exit 3 when the cache directory cannot be written; bm works on without it.
    pub fn save(&self) -> Result<()> {
        let mut memory = self.memory();
        if memory.changed.is_empty() {
            return Ok(());
        }
        let mut tools = read_cache(&self.cache_file);
        for path in &memory.changed {
            tools.insert(path.clone(), memory.tools[path].clone());
        }
        let text = serde_json::to_vec(&CacheFile { schema: SCHEMA, tools })
            .expect("keys are UTF-8, as `keep` sees to, and values are JSON");
        let doing = || format!("cannot write the cache of tools `{}`", self.cache_file.display());
        replace(&self.cache_file, &text).doing(doing)?;
        memory.changed.clear();
        Ok(())
    }

    /// [`Tool`] of a program that says its version with `--version`. One that does not has none.
    pub(super) fn describe(&self, found: &Found) -> Result<Tool> {
        let version = self.remember(found, "version", || {
            let said = self.run(&[&found.word(), "--version"], Path::new("/"), "")?;
            let first = said.stdout.lines().map(str::trim).find(|l| !l.is_empty());
            Ok(first.filter(|_| said.ok()).unwrap_or_default().to_owned())
        })?;
        self.describe_part(found, &version)
    }

    /// [`Tool`] of a part that has the version of the program it belongs to.
    pub(super) fn describe_part(&self, found: &Found, version: &str) -> Result<Tool> {
        Ok(Tool {
            path: found.real.to_string_lossy().into_owned(),
            version: version.to_owned(),
            sha256: self.sha256(found)?,
        })
    }

    /// A file by its path.
    pub(super) fn at(path: &Path) -> Option<Found> {
        let real = fs::canonicalize(path).ok()?;
        let meta = fs::metadata(&real).ok().filter(|m| m.is_file())?;
        Some(Found {
            path: path.to_owned(),
            real,
            stat: Stat {
                dev: meta.dev(),
                inode: meta.ino(),
                size: meta.size(),
                mtime: meta.mtime(),
                mtime_ns: meta.mtime_nsec(),
            },
        })
    }

    /// `fact` of a program as remembered, else as `learn` says it, which is then remembered for as
    /// long as the file stays the same.
    pub(super) fn remember<T: Serialize + DeserializeOwned>(
        &self,
        found: &Found,
        fact: &str,
        learn: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Some(value) = self.recall(found, fact) {
            return Ok(value);
        }
        // Not under the lock: learning may take a while, and may itself remember.
        let value = learn()?;
        self.keep(found, fact, &value);
        Ok(value)
    }

    /// Remembers a fact, in place of an older one.
    pub(super) fn keep<T: Serialize>(&self, found: &Found, fact: &str, value: &T) {
        let (Ok(value), true) = (serde_json::to_value(value), found.path.to_str().is_some()) else {
            return;
        };
        let mut memory = self.memory();
        let fresh = Entry {
            stat: found.stat,
            facts: BTreeMap::new(),
        };
        let entry = memory.tools.entry(found.path.clone()).or_insert_with(|| fresh.clone());
        if entry.stat != found.stat {
            *entry = fresh;
        }
        entry.facts.insert(fact.to_owned(), value);
        memory.changed.insert(found.path.clone());
    }

    /// Runs a probe with nothing of bm's environment but its PATH, and waits for it.
    pub(super) fn run(&self, argv: &[&str], dir: &Path, stdin: &str) -> Result<Answer> {
        let dir_word = dir.to_string_lossy().into_owned();
        let env = BTreeMap::from([
            ("HOME".to_owned(), dir_word.clone()),
            ("LC_ALL".to_owned(), "C".to_owned()),
            ("PATH".to_owned(), self.path_variable()),
            // A directory of bm's own, or `/`, which makes a tool fall back to the system's.
            ("TMPDIR".to_owned(), dir_word),
        ]);
        let input = (!stdin.is_empty()).then_some(stdin.as_bytes());
        let said = capture(argv, &env, dir, input, PATIENCE)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Answer {
            status: said.status,
            stdout: text(&said.stdout),
            stderr: text(&said.stderr),
        })
    }

    fn candidates(&self, name: &str) -> Vec<Found> {
        if name.contains('/') && !name.starts_with('/') {
            // bm's working directory says nothing about the host.
            return vec![];
        }
        let path: Option<OsString> = std::env::join_paths(&self.path).ok();
        which::which_in_all(name, path, "/")
            .map(|hits| hits.filter_map(|p| Self::at(&p)).collect())
            .unwrap_or_default()
    }

    /// sha256 of the file, remembered by its real path, so that all its names share it.
    fn sha256(&self, found: &Found) -> Result<String> {
        let file = Found {
            path: found.real.clone(),
            ..found.clone()
        };
        self.remember(&file, "sha256", || {
            fs::File::open(&file.real)
                .and_then(|mut program| sha256_of(&mut program))
                .doing(|| format!("cannot read program `{}`", file.real.display()))
        })
    }

    fn recall<T: DeserializeOwned>(&self, found: &Found, fact: &str) -> Option<T> {
        let memory = self.memory();
        let entry = memory.tools.get(&found.path).filter(|e| e.stat == found.stat)?;
        T::deserialize(entry.facts.get(fact)?).ok()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Every change is one insert, so a panic elsewhere leaves nothing half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        // Only a cache: what could not be written is asked again next time.
        let _ = self.save();
    }
}

fn is_shim(name: &str, found: &Found) -> bool {
    let of = |p: &Path| p.file_name().map(|n| n.to_string_lossy().into_owned());
    let real = of(&found.real).unwrap_or_default();
    SHIMS.contains(&real.as_str()) && of(Path::new(name)).is_none_or(|asked| asked != real)
}

fn read_cache(file: &Path) -> BTreeMap<PathBuf, Entry> {
    fs::read(file)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<CacheFile>(&bytes).ok())
        .filter(|cache| cache.schema == SCHEMA)
        .map(|cache| cache.tools)
        .unwrap_or_default()
}

fn replace(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir)?;
    // Readable by all: a build as another user profits from it, and there is nothing secret in it.
    let mut temporary = tempfile::Builder::new()
        .prefix(".tools-")
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(dir)?;
    temporary.write_all(text)?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::testing::{Bench, calls};
    use super::*;

    #[test]
    fn a_tool_is_hashed_and_asked_once_over_two_runs() {
        let bench = Bench::new();
        bench.script("thing", "echo; echo 'thing 1.2'; echo more");
        let first = bench.prober().tool("thing").unwrap();
        assert_eq!(first.version, "thing 1.2");
        assert_eq!(
            first.sha256,
            crate::digest::sha256(fs::read(bench.bin("thing")).unwrap())
        );
        assert_eq!(calls(&bench), ["thing --version"]);
        assert_eq!(bench.prober().tool("thing").unwrap(), first);
        assert_eq!(calls(&bench).len(), 1);
    }

    #[test]
    fn a_changed_tool_is_asked_again() {
        let bench = Bench::new();
        bench.script("thing", "echo 'thing 1'");
        let first = bench.prober().tool("thing").unwrap();
        bench.script("thing", "echo 'thing 2.0'");
        let second = bench.prober().tool("thing").unwrap();
        assert_eq!(
            (first.version.as_str(), second.version.as_str()),
            ("thing 1", "thing 2.0")
        );
        assert_ne!(first.sha256, second.sha256);
    }

    #[test]
    fn a_tool_without_a_version_has_none() {
        let bench = Bench::new();
        bench.script("mute", "echo 'unknown option'; exit 2");
        assert_eq!(bench.prober().tool("mute").unwrap().version, "");
    }

    #[test]
    fn the_cache_file_is_only_written_when_something_was_learned() {
        let bench = Bench::new();
        bench.script("thing", "echo 1");
        bench.prober().tool("thing").unwrap();
        let inode = |b: &Bench| fs::metadata(b.cache_file()).unwrap().ino();
        let before = inode(&bench);
        bench.prober().tool("thing").unwrap();
        assert_eq!(inode(&bench), before, "a second run replaced the file");
        assert_eq!(fs::read_dir(bench.cache_file().parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_or_foreign_cache_file_is_ignored_and_replaced() {
        for text in ["", "{", "[]", r#"{"schema":99,"tools":{}}"#, "\u{fffd}\0"] {
            let bench = Bench::new();
            bench.script("thing", "echo 7");
            fs::create_dir_all(bench.cache_file().parent().unwrap()).unwrap();
            fs::write(bench.cache_file(), text).unwrap();
            assert_eq!(bench.prober().tool("thing").unwrap().version, "7", "{text:?}");
            assert_eq!(read_cache(&bench.cache_file()).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn writers_at_the_same_time_keep_what_both_learned() {
        let bench = Bench::new();
        bench.script("one", "echo 1");
        bench.script("two", "echo 2");
        let (a, b) = (bench.prober(), bench.prober());
        a.tool("one").unwrap();
        b.tool("two").unwrap();
        a.save().unwrap();
        b.save().unwrap();
        assert_eq!(read_cache(&bench.cache_file()).len(), 2);
    }

    #[test]
    fn an_unwritable_cache_is_no_obstacle() {
        let bench = Bench::new();
        bench.script("thing", "echo 1");
        let prober = Prober::new(Path::new("/proc/none/tools.json"), vec![bench.bin_dir()]);
        assert_eq!(prober.tool("thing").unwrap().version, "1");
        assert_eq!(prober.save().unwrap_err().exit(), Exit::Host);
    }

    #[test]
    fn a_ccache_shim_is_passed_over() {
        let bench = Bench::new();
        let shims = bench.dir("shims");
        fs::copy("/bin/true", shims.join("ccache")).unwrap();
        symlink("ccache", shims.join("gcc")).unwrap();
        symlink("ccache", shims.join("onlyhere")).unwrap();
        bench.script("gcc", "echo gcc");
        let prober = bench.prober_with(vec![shims.clone(), bench.bin_dir()]);
        assert_eq!(prober.program("gcc").unwrap().path, bench.bin("gcc"));
        assert_eq!(prober.program("ccache").unwrap().path, shims.join("ccache"));
        let error = prober.tool("onlyhere").unwrap_err();
        assert_eq!(error.headline(), "program `onlyhere` is not on bm's PATH");
        let (label, shim) = &error.details()[1];
        assert_eq!(label, "passed over");
        assert!(shim.contains("shims/onlyhere (it is "), "{shim}");
    }

    #[test]
    fn unsafe_path_entries_are_left_out() {
        let bench = Bench::new();
        let path = ["relative", "/usr/bin", "", "/odd:one", "/usr/bin"].map(PathBuf::from);
        assert_eq!(bench.prober_with(path.into()).path_variable(), "/usr/bin");
    }

    #[test]
    fn only_names_and_absolute_paths_stand_for_programs() {
        let bench = Bench::new();
        let prober = bench.over_system();
        assert_eq!(prober.program("/bin/sh").unwrap().path, Path::new("/bin/sh"));
        for name in ["bin/sh", "./sh", "", "no-such-program", "/bin", "/etc/passwd"] {
            assert_eq!(prober.program(name), None, "{name:?}");
        }
    }

    #[test]
    fn probes_see_no_environment_of_bm() {
        let bench = Bench::new();
        bench.script(
            "show",
            "/usr/bin/env | /usr/bin/sort | /usr/bin/cut -d= -f1 | /usr/bin/tr '\\n' ' '",
        );
        let version = bench.prober().tool("show").unwrap().version;
        let names: Vec<_> = version
            .split(' ')
            .filter(|n| !["PWD", "_", "SHLVL", "OLDPWD"].contains(n))
            .collect();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH", "TMPDIR"]);
    }
}
