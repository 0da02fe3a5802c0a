//! Compile calls through a compiler cache: which calls may go through it, what decides on a hit, and what the cache
//! says it did.
//!
//! Owns the rules. What comes out of the cache must be the bytes the call would have made, so everything the bytes
//! depend on is in the key. Starts nothing; knows no builds.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::record::{self, Kind};
use crate::digest;
use crate::model::manifest::CacheUse;
use crate::model::recipe::Family;

/// File in the record directory to which the cache appends what it did.
const LOG: &str = "ccache.log";
/// File in the record directory that says that the cache failed, and how.
const FAULT: &str = "ccache.fault";

/// ccache, ready for use. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerCache {
    /// The program.
    pub program: PathBuf,
    /// Where it keeps its results.
    pub dir: PathBuf,
    /// Its settings; no other file of settings is read.
    pub config: PathBuf,
    /// What decides on hits besides the call: content of the tools, environment, meaning of `native`.
    pub tools: String,
    /// Names of the launchers whose compiler's content is in `tools`.
    pub of: BTreeSet<String>,
}

/// Words that make a compile read or write something beside source and object, which no cache gives back: profiles,
/// coverage, listings, dumps, programs of the call's own.
const NEVER: [&str; 22] = [
    "-fprofile",
    "-fno-profile",
    "-fauto-profile",
    "-fcs-profile",
    "-fbranch-probabilities",
    "-ftest-coverage",
    "-fcoverage",
    "--coverage",
    "-coverage",
    "-save-temps",
    "--save-temps",
    "-fdump",
    "-fstack-usage",
    "-fcallgraph-info",
    "-fopt-info",
    "-aux-info",
    // Programs whose content is not known.
    "-fplugin",
    "-fpass-plugin",
    "-specs",
    "--specs",
    "-wrapper",
    "-B",
];

impl CompilerCache {
    /// Whether the call may go through the cache: one source to one object, with nothing else read or written.
    /// `name` is the launcher's, `words` has the program first.
    pub fn takes(&self, name: &str, words: &[String]) -> bool {
        let never = |w: &String| NEVER.iter().any(|n| w.starts_with(n));
        self.of.contains(name)
            && record::kind_of(words) == Kind::Compile
            && record::sources_of(words) == 1
            && !words.iter().any(never)
    }

    /// The variables of one call: `words` those that decide (see [`deciding`]), `place` the compile directory's name.
    pub fn variables(&self, place: &str, words: &[&str], record: &Path) -> [(&'static str, String); 4] {
        let start = format!("{}\0{place}", self.tools);
        let text = words.iter().fold(start, |text, w| text + "\0" + w);
        let shown = |p: &Path| p.to_string_lossy().into_owned();
        [
            ("CCACHE_DIR", shown(&self.dir)),
            ("CCACHE_CONFIGPATH", shown(&self.config)),
            ("CCACHE_COMPILERCHECK", format!("string:{}", digest::sha256(text))),
            ("CCACHE_STATSLOG", shown(&record.join(LOG))),
        ]
    }

    /// The file of settings: exactly what a compile would have made, no more than `max_size`.
    pub fn settings(dir: &Path, max_size: &str) -> String {
        [
            "# Written by bm before each run.".to_owned(),
            format!("max_size = {max_size}"),
            // By its preprocessed text alone: what is looked up by header files would miss a new header that hides
            // one of them.
            "direct_mode = false".to_owned(),
            "depend_mode = false".to_owned(),
            "sloppiness =".to_owned(),
            "base_dir =".to_owned(),
            "hash_dir = true".to_owned(),
            "run_second_cpp = true".to_owned(),
            // A file that a build changes in place must not change in the cache.
            "hard_link = false".to_owned(),
            "read_only = false".to_owned(),
            "recache = false".to_owned(),
            format!("temporary_dir = {}", dir.join("tmp").display()),
        ]
        .join("\n")
            + "\n"
    }
}

/// The words of a compile that decide on its object, besides its preprocessed text; `words` with the program first.
///
/// What only gcc's preprocessor reads has all its effect in that text: a macro with the prefix in it, which many files
/// get and few use, decides on those few. clang writes all its words into debug information, so all of them decide, and
/// so they do where gcc writes down macros or words.
pub fn deciding(words: &[String], family: Family) -> Vec<&str> {
    const PREPROCESSOR: [&str; 3] = ["-D", "-U", "-I"];
    let written = |w: &String| {
        let debug = w.starts_with("-g") && w.ends_with('3');
        debug || w.starts_with("-frecord") || w.starts_with("-fdebug-cpp")
    };
    let all = family != Family::Gcc || words.iter().any(written);
    let mut found = vec![];
    let mut words = words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match PREPROCESSOR.iter().find(|o| word.starts_with(*o)) {
            Some(option) if !all => {
                if word == *option {
                    words.next();
                }
            }
            _ => {
                found.push(word);
                // The value of another option, however it looks.
                if record::takes_value(word) {
                    found.extend(words.next());
                }
            }
        }
    }
    found
}

/// Notes that the cache failed where the compiler did not; the rest of the build goes past it.
///
/// # Errors
/// When the record directory cannot be written.
pub fn note_fault(record: &Path, said: &str) -> std::io::Result<()> {
    fs::write(record.join(FAULT), said)?;
    note_passed(record)
}

/// Counts a call that goes past a cache that failed.
///
/// # Errors
/// When the record directory cannot be written.
pub fn note_passed(record: &Path) -> std::io::Result<()> {
    let mut log = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(record.join(LOG))?;
    log.write_all(b"# past the cache\n")
}

/// What the cache said when it failed; `None` while it works.
pub fn fault(record: &Path) -> Option<String> {
    let said = fs::read(record.join(FAULT)).ok()?;
    Some(String::from_utf8_lossy(&said).into_owned())
}

/// Whether it failed, at the cost of one `stat`.
pub fn has_fault(record: &Path) -> bool {
    record.join(FAULT).exists()
}

/// Forgets a failure, at the start of an attempt.
pub fn clear_fault(record: &Path) {
    let _ = fs::remove_file(record.join(FAULT));
}

/// What the cache did for the calls of a record; `None` if none went through it.
pub fn usage(record: &Path) -> Option<CacheUse> {
    let log = fs::read_to_string(record.join(LOG)).unwrap_or_default();
    let used = count(&log);
    (used != CacheUse::default()).then_some(used)
}

/// One paragraph a call: `# SOURCE`, then the names of what happened, one a line.
fn count(log: &str) -> CacheUse {
    let mut used = CacheUse::default();
    let mut calls: Vec<(bool, bool)> = vec![];
    for line in log.lines() {
        match (line.trim(), calls.last_mut()) {
            (line, _) if line.starts_with("# ") => calls.push((false, false)),
            ("direct_cache_hit" | "preprocessed_cache_hit", Some(call)) => call.0 = true,
            ("cache_miss", Some(call)) => call.1 = true,
            _ => {}
        }
    }
    for call in calls {
        match call {
            (true, _) => used.hits += 1,
            (false, true) => used.misses += 1,
            (false, false) => used.errors += 1,
        }
    }
    used
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cache() -> CompilerCache {
        CompilerCache {
            program: "/usr/bin/ccache".into(),
            dir: "/c".into(),
            config: "/c/ccache.conf".into(),
            tools: "gcc 12".into(),
            of: BTreeSet::from(["gcc".to_owned()]),
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_plain_compiles_are_taken() {
        for (name, line, want) in [
            ("gcc", "gcc -O2 -g -c -o a.o a.c", true),
            ("gcc", "gcc -flto -frandom-seed=0x1 -MMD -MF a.d -c a.c", true),
            ("g++", "g++ -c a.cc", false),
            ("gcc", "gcc -c a.c b.c", false),
            ("gcc", "gcc a.o -o p", false),
            ("gcc", "gcc a.c -o p", false),
            ("gcc", "gcc -E a.c", false),
            ("gcc", "gcc -c conftest.c", false),
            ("gcc", "gcc -fprofile-generate -c a.c", false),
            ("gcc", "gcc -fprofile-use=/p -c a.c", false),
            ("gcc", "gcc -fauto-profile=/p -c a.c", false),
            ("gcc", "gcc --coverage -c a.c", false),
            ("gcc", "gcc -fdump-tree-all -c a.c", false),
        ] {
            let words = words(line);
            let taken = cache().takes(name, &words);
            assert_eq!(taken, want, "{line}");
        }
    }

    #[test]
    fn everything_that_decides_is_in_the_key() {
        let key = |tools: &str, place: &str, line: &str| {
            let cache = CompilerCache {
                tools: tools.into(),
                ..cache()
            };
            let [.., check, _] = cache.variables(place, &deciding(&words(line), Family::Gcc), Path::new("/r"));
            assert!(check.1.starts_with("string:"), "{check:?}");
            check.1
        };
        let one = key("gcc 12", "./build", "/usr/bin/gcc -O2 -c a.c");
        assert_eq!(one, key("gcc 12", "./build", "/opt/bin/gcc -O2 -c a.c"));
        for other in [
            key("gcc 13", "./build", "/usr/bin/gcc -O2 -c a.c"),
            key("gcc 12", "./build/x", "/usr/bin/gcc -O2 -c a.c"),
            key("gcc 12", "./build", "/usr/bin/gcc -O3 -c a.c"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn what_only_the_preprocessor_reads_decides_where_it_is_written_down() {
        for (family, line, want) in [
            (
                Family::Gcc,
                "gcc -DA=1 -D B -I x -Iy -UC -O2 -o -D -c a.c",
                "-O2 -o -D -c a.c",
            ),
            (Family::Gcc, "gcc -DA -include -Dh.h -c a.c", "-include -Dh.h -c a.c"),
            (Family::Gcc, "gcc -DA -g3 -c a.c", "-DA -g3 -c a.c"),
            (
                Family::Gcc,
                "gcc -DA -frecord-gcc-switches -c a.c",
                "-DA -frecord-gcc-switches -c a.c",
            ),
            (Family::Clang, "clang -DA -Ix -c a.c", "-DA -Ix -c a.c"),
        ] {
            assert_eq!(deciding(&words(line), family).join(" "), want);
        }
    }

    #[test]
    fn hits_misses_and_the_rest_are_counted_by_call() {
        let log = "# a.c\ncache_miss\nlocal_storage_write\npreprocessed_cache_miss\n\
                   # b.c\nlocal_storage_hit\npreprocessed_cache_hit\n# c.s\nunsupported_source_language\n\
                   # d.c\ndirect_cache_hit\n";
        let want = CacheUse {
            hits: 2,
            misses: 1,
            errors: 1,
        };
        assert_eq!(count(log), want);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(usage(dir.path()), None);
        fs::write(dir.path().join(LOG), log).unwrap();
        note_fault(dir.path(), "disk full").unwrap();
        assert_eq!(usage(dir.path()), Some(CacheUse { errors: 2, ..want }));
        assert_eq!(fault(dir.path()).as_deref(), Some("disk full"));
        clear_fault(dir.path());
        assert_eq!(fault(dir.path()), None);
    }
}
