//! Rules of the tree that the compiler does not check: who may import whom, who may touch the disk, print or start
//! programs, and what every file has.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

struct File {
    /// Below the package, with `/`.
    path: String,
    text: String,
    /// The text without unit tests and comments.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn below(dir: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in fs_err::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else {
                out.push(path);
            }
        }
    }
    let mut out = Vec::new();
    if root().join(dir).is_dir() {
        walk(&root().join(dir), &mut out);
    }
    out.sort();
    out
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// Source files that are not compiled for tests alone.
fn sources() -> Vec<File> {
    let files = below("src").into_iter().map(|path| {
        let text = fs_err::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        let code = code.split("\n#[cfg(test)]\n#[allow").next().unwrap();
        let code = code.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        let path = relative(&path);
        File { path, text, code }
    });
    let for_tests = |path: &str| {
        let stem = path.trim_end_matches(".rs");
        ["tests", "fake", "fixture", "sample"]
            .iter()
            .any(|end| stem.ends_with(end))
    };
    files
        .filter(|f| f.path.ends_with(".rs") && !for_tests(&f.path))
        .collect()
}

/// The module a file belongs to: `exec` for `src/exec/mod.rs` and all below it.
fn module(path: &str) -> &str {
    let inner = path.strip_prefix("src/").unwrap();
    inner.split(['/', '.']).next().unwrap()
}

/// Modules of ours that code names.
fn imports(file: &File) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, rest) in file
        .code
        .match_indices("crate::")
        .map(|(at, m)| file.code.split_at(at + m.len()))
    {
        let groups = rest.strip_prefix('{').and_then(|g| g.split_once('}'));
        let words = groups.map_or(rest, |(inner, _)| inner);
        for word in words.split(", ").take(if groups.is_some() { usize::MAX } else { 1 }) {
            let name: String = word
                .trim()
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            found.insert(name);
        }
    }
    found.remove("");
    found.remove(module(&file.path));
    found
}

/// What each module may name, besides `error`. A module that is not here may name everything.
const MAY_IMPORT: [(&str, &[&str]); 16] = [
    ("error", &[]),
    ("text", &[]),
    ("digest", &[]),
    ("model", &[]),
    ("layout", &["model"]),
    ("matrix", &["model", "text"]),
    ("schema", &["model", "text"]),
    ("select", &["matrix", "model", "text"]),
    ("plan", &["digest", "matrix", "model", "text"]),
    ("process", &[]),
    ("probe", &["digest", "model", "process", "text"]),
    ("store", &["digest", "layout", "model"]),
    ("source", &["digest", "layout", "model", "process", "text"]),
    ("verified", &["model"]),
    ("diff", &["audit", "model", "text", "verified"]),
    ("ui", &["model", "text"]),
];

#[test]
fn imports_point_one_way() {
    let files = sources();
    let known: BTreeSet<&str> = files.iter().map(|f| module(&f.path)).collect();
    for (module_name, allowed) in MAY_IMPORT {
        assert!(
            known.contains(module_name),
            "there is no module `{module_name}` any more"
        );
        for file in files.iter().filter(|f| module(&f.path) == module_name) {
            for import in imports(file) {
                assert!(
                    import == "error" || allowed.contains(&import.as_str()),
                    "{} may not name `crate::{import}`",
                    file.path
                );
            }
        }
    }
    // The command line is above all; only what it starts from knows its options.
    for file in &files {
        let above = ["cli", "context", "main", "lib"].contains(&module(&file.path));
        assert!(
            above || !imports(file).contains("cli"),
            "{} may not name `crate::cli`",
            file.path
        );
    }
}

#[test]
fn pure_modules_touch_nothing() {
    const PURE: [&str; 9] = [
        "error", "text", "model", "layout", "matrix", "schema", "select", "plan", "diff",
    ];
    const EFFECTS: [&str; 10] = [
        "std::fs",
        "fs_err",
        "std::process",
        "std::env",
        "std::net",
        "std::thread",
        "Instant::now",
        "SystemTime::now",
        "rustix::",
        "libc::",
    ];
    for file in sources().iter().filter(|f| PURE.contains(&module(&f.path))) {
        for effect in EFFECTS {
            assert!(
                !file.code.contains(effect),
                "{} is pure and names `{effect}`",
                file.path
            );
        }
    }
}

#[test]
fn only_the_terminal_prints_and_only_few_start_programs() {
    const PRINT: [&str; 5] = ["println!", "eprintln!", "print!(", "eprint!(", "dbg!("];
    // Besides `process`: what takes bm's place or is run in the user's name, the launcher that becomes the compiler,
    // and a server that outlives bm.
    const START: [&str; 3] = ["src/cli/drive.rs", "src/audit/launcher.rs", "src/server/call.rs"];
    for file in sources() {
        for word in PRINT {
            assert!(!file.code.contains(word), "{} prints with `{word}`", file.path);
        }
        let spawns = file.code.contains("std::process::Command") || file.code.contains("use std::process::{Command");
        let may = module(&file.path) == "process" || START.contains(&file.path.as_str());
        assert!(may || !spawns, "{} starts programs by itself", file.path);
    }
}

#[test]
fn modules_say_what_they_own() {
    for file in sources() {
        let first = file.text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! "), "{} does not begin with `//!`", file.path);
    }
    for path in below("tests")
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
    {
        let text = fs_err::read_to_string(path).unwrap();
        assert!(text.starts_with("//! "), "{} does not begin with `//!`", relative(path));
    }
}

#[test]
fn every_patch_is_used_and_every_toolchain_and_set_is_read() {
    let library = bm::library::Library::load(&[]).unwrap();
    let used: BTreeSet<String> = library
        .recipes
        .values()
        .flat_map(|r| r.patches.iter().map(|p| p.value.file.clone()))
        .collect();
    let shipped: BTreeSet<String> = below("patches")
        .iter()
        .map(|p| relative(p).trim_start_matches("patches/").to_owned())
        .filter(|p| p != ".gitkeep")
        .collect();
    assert_eq!(shipped, used);
}

/// Files that git tracks; all of them where there is no git.
fn tracked() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    match listed {
        Ok(out) if out.status.success() => {
            let text = String::from_utf8(out.stdout).unwrap();
            let names = text.split('\0').filter(|n| !n.is_empty());
            names.map(|n| root().join(n)).filter(|p| p.is_file()).collect()
        }
        _ => ["src", "tests", "recipes", "patches", "toolchains", "docs"]
            .into_iter()
            .flat_map(below)
            .collect(),
    }
}

#[test]
fn no_file_names_the_place_where_it_was_written() {
    // Spelled in parts, so that this file does not hold them.
    let places = [
        ["/work", "/"].concat(),
        ["/bm", "root"].concat(),
        ["/bm", "cache"].concat(),
    ];
    let files = tracked();
    assert!(files.len() > 50, "the list of files is not whole");
    for path in files {
        let Ok(text) = fs_err::read_to_string(&path) else {
            continue;
        };
        for (n, line) in text.lines().enumerate() {
            for place in &places {
                let own = line.match_indices(place.as_str()).any(|(at, _)| {
                    // A path of its own, not the end of another one such as `.bm/work/`.
                    !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "./{}<>_-\"`".contains(c))
                });
                assert!(!own, "{}:{}: `{place}`: {line}", relative(&path), n + 1);
            }
        }
    }
}
