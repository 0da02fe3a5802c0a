//! The audit in the whole way of a build: what is true is sealed, what is not is refused, and nothing
//! of the caller's surroundings reaches a compiler.
#![allow(clippy::unwrap_used)]

#[path = "support/run.rs"]
mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::{Run, Space, has};

/// Builds, and checks that the prefix is sealed and runs.
fn truthful(space: &Space, name: &str) -> Value {
    space.ok(&["build", name]).assert(0, &[&["Built", name]]);
    let manifest = space.manifest(name);
    let audit = &manifest["audit"];
    assert_eq!(audit["findings"], serde_json::json!([]), "{audit}");
    let units = manifest["evidence"]["units"].as_array().unwrap();
    assert!(units.len() >= 4, "{units:?}");
    assert!(!manifest["evidence"]["links"].as_array().unwrap().is_empty());
    space.assert_tidy();
    let said = space.ok(&["exec", name, "--", "fakedb", "--version"]);
    assert_eq!(said.out, "fakedb 1.0\n");
    manifest
}

#[test]
fn truthful_builds_of_gcc_are_sealed() {
    let space = Space::new();
    for variant in ["o2", "o3", "o3_native", "o3_native_lto"] {
        truthful(&space, &format!("fk10_{variant}"));
    }
}

#[test]
fn truthful_builds_of_clang_are_sealed() {
    if !has("clang-14") || !has("ld.lld-14") {
        return;
    }
    let space = Space::new();
    for variant in ["o2", "o3_native", "o3_native_lto"] {
        let manifest = truthful(&space, &format!("fk10_{variant}_clang14"));
        assert!(
            manifest["toolchain"]["tools"]["cc"]["version"]
                .as_str()
                .unwrap()
                .contains("clang")
        );
    }
}

/// A lie in the recipe, and what the refusal must say: one line of these words.
fn refused(name: &str, lie: impl FnOnce(&mut Space), words: &[&str]) {
    let mut space = Space::new();
    lie(&mut space);
    space.run(&["build", name]).assert(
        5,
        &[
            &["error: ", name, "is not what its name says"],
            words,
            &["nothing was installed"],
        ],
    );
    assert!(!space.prefix(name).exists());
    assert_eq!(space.names_in(".bm/history"), Vec::<String>::new());
    assert_eq!(space.run(&["path", name]).code, 2);
}

fn compile(space: &mut Space, words: &[&str]) {
    space.recipe.compile = words.iter().map(|w| (*w).to_owned()).collect();
}

#[test]
fn a_late_o0_is_refused() {
    refused(
        "fk10_o3",
        |s| compile(s, &["all", "LATE=-O0"]),
        &["asked -O3", "found -O0"],
    );
}

#[test]
fn a_late_o0_of_the_source_itself_is_refused() {
    refused(
        "fk10_o2",
        |s| {
            let makefile = s.tree.get_mut("Makefile.in").unwrap();
            *makefile = makefile.replace("LATE =\n", "LATE = -O0\n");
            s.release("1.0");
        },
        &["asked -O2", "found -O0"],
    );
}

#[test]
fn one_unit_of_another_level_is_refused() {
    refused(
        "fk10_o3",
        |s| {
            s.tree
                .get_mut("Makefile.in")
                .unwrap()
                .push_str("\npage.o: LATE = -O1\n");
            s.release("1.0");
        },
        &["page.c", "asked -O3", "found -O1"],
    );
}

#[test]
fn lost_lto_is_refused() {
    refused(
        "fk10_o3_native_lto",
        |s| compile(s, &["all", "CFLAGS=-g -O3 -march=native -mtune=native", "LDFLAGS="]),
        &["asked", "found", "lto"],
    );
}

#[test]
fn lto_of_the_link_alone_is_refused() {
    refused(
        "fk10_o3_native_lto",
        |s| compile(s, &["all", "LATE=-fno-lto"]),
        &["asked", "found", "lto"],
    );
}

#[test]
fn lto_that_nobody_asked_for_is_refused() {
    refused(
        "fk10_o3",
        |s| compile(s, &["all", "LATE=-flto"]),
        &["asked", "found", "lto"],
    );
}

#[test]
fn a_dropped_march_is_refused() {
    refused(
        "fk10_o3_native",
        |s| compile(s, &["all", "CFLAGS=-g -O3"]),
        &["asked", "march", "found"],
    );
}

#[test]
fn asserts_in_an_installed_header_are_refused() {
    refused(
        "fk10_o3",
        |s| s.recipe.configure = vec!["--enable-cassert".into()],
        &["USE_ASSERT_CHECKING", "asked", "found"],
    );
}

/// Identity and files of a build, and the modes the environment could change.
fn outcome(space: &Space, name: &str) -> (Value, BTreeMap<String, Value>) {
    (space.manifest(name)["identity"].clone(), space.files_of(name))
}

const POISON: [(&str, &str); 30] = [
    ("CFLAGS", "-O0 -DPOISON"),
    ("CXXFLAGS", "-O0"),
    ("CPPFLAGS", "-DPOISON"),
    ("LDFLAGS", "-L/nowhere -lpoison"),
    ("COPT", "-O0"),
    ("PROFILE", "-O0"),
    ("CC", "/bin/false"),
    ("CXX", "/bin/false"),
    ("AR", "/bin/false"),
    ("DESTDIR", "/nowhere"),
    ("MAKEFILES", "/nowhere/poison.mk"),
    ("LD_PRELOAD", "/nowhere/poison.so"),
    ("LD_LIBRARY_PATH", "/nowhere"),
    ("CDPATH", ".:/tmp"),
    ("BASH_ENV", "/nowhere/poison.sh"),
    ("ENV", "/nowhere/poison.sh"),
    ("CONFIG_SITE", "/nowhere/poison.site"),
    ("PGDATA", "/nowhere"),
    ("GIT_DIR", "/nowhere"),
    ("GIT_CONFIG_COUNT", "x"),
    ("TAR_OPTIONS", "--poison"),
    ("GREP_OPTIONS", "--poison"),
    ("LANG", "de_DE.UTF-8"),
    ("LC_ALL", "tr_TR.UTF-8"),
    ("TZ", "Asia/Kathmandu"),
    ("SOURCE_DATE_EPOCH", "1"),
    ("GCC_EXEC_PREFIX", "/nowhere/"),
    ("COMPILER_PATH", "/nowhere"),
    ("CPATH", "/nowhere"),
    ("TMPDIR", "/tmp"),
];

/// `make` reads one variable, so each poison in it is a run of its own.
const MAKEFLAGS: [&str; 3] = ["-n", "CFLAGS=-O0", "--jobserver-auth=3,4 -j9"];

fn poisoned(name: &str, from: &str) {
    let mut space = Space::new();
    let commit = space.commit("fakedb.git", "main", "1.0");
    space.tag("fakedb.git", "v1.0", &commit);
    space.recipe.versions[0].1.push_str(&format!(", commit = {commit:?}"));
    let build = ["build", name, "--from", from, "--rebuild"];
    space.ok(&build);
    let clean = outcome(&space, name);
    for makeflags in MAKEFLAGS {
        space.ok(&["rm", name]);
        assert!(!space.prefix(name).exists());
        let mut sh = std::process::Command::new("/bin/sh");
        space.bm(&[]); // writes the recipe
        space.dress(&mut sh);
        // The loader complains about the preload to bm itself; only children could be harmed.
        sh.args(["-c", "umask 077; exec \"$0\" \"$@\"", support::BM])
            .args(build);
        sh.envs(POISON).env("MAKEFLAGS", makeflags);
        Run::start(sh).wait().assert(0, &[&["Built", name]]);
        assert_eq!(outcome(&space, name), clean, "MAKEFLAGS={makeflags}");
    }
    // And once more over itself, in its own place.
    space.ok(&build);
    assert_eq!(outcome(&space, name), clean, "a repeat");
}

#[test]
fn the_callers_environment_changes_no_byte() {
    poisoned("fk10_o3", "tarball");
}

#[test]
fn the_callers_environment_changes_no_byte_of_a_build_from_git_with_lto() {
    poisoned("fk10_o3_native_lto", "git");
}

#[test]
fn the_callers_environment_changes_no_byte_of_a_build_by_clang() {
    if has("clang-14") && has("ld.lld-14") {
        poisoned("fk10_o3_native_lto_clang14", "tarball");
    }
}
