//! Cheap repeats: objects from a compiler cache and configure's cached answers, by the real program. What comes out of
//! a cache is what would have been made without, and every proof is as complete.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "support/run.rs"]
mod support;

use fs_err as fs;
use serde_json::{Value, json};
use support::{Space, has, program};

/// Objects of fakedb: three of the program, one of the library.
const OBJECTS: usize = 4;

/// Builds under a name of its own and gives the manifest.
fn build(space: &Space, build: &str, name: &str, more: &[&str]) -> Value {
    space.ok(&[&["build", build, "--name", name], more].concat());
    space.manifest(name)
}

fn used(hits: usize, misses: usize) -> Value {
    json!({ "hits": hits, "misses": misses, "errors": 0 })
}

/// The installed programs and libraries, by content.
fn compiled(space: &Space, name: &str) -> Vec<Value> {
    let files = space.files_of(name);
    ["bin/fakedb", "lib/libfk.a"].map(|f| files[f]["sha256"].clone()).into()
}

/// Evidence with what differs by nature left out.
fn evidence(manifest: &Value) -> Value {
    let prefix = manifest["prefix"].as_str().unwrap();
    let text = json!([manifest["evidence"], manifest["audit"]]).to_string();
    serde_json::from_str(&text.replace(prefix, "PREFIX")).unwrap()
}

#[test]
fn a_build_under_another_name_takes_all_objects_from_the_cache_and_proves_as_much() {
    if !has("ccache") {
        return;
    }
    let mut space = Space::new();
    // Many products name their sources by absolute paths.
    space.recipe.compile.push("srcdir=$(abspath ../src)".into());
    // Whatever a user's own ccache is told: bm's is told by bm alone.
    let config = space.path("config.toml");
    fs::write(&config, "[env]\npass = [\"CCACHE_DISABLE\"]\n").unwrap();
    let run = |words: &[&str]| {
        let mut bm = space.bm(words);
        bm.env("CCACHE_DISABLE", "1").arg("--config").arg(&config);
        let ran = support::Run::start(bm).wait();
        assert_eq!(ran.code, 0, "{}", ran.all());
        ran
    };
    for variant in ["o2", "o3_native_lto"] {
        let [plain, first, second] = ["plain", "first", "second"].map(|n| format!("{n}_{variant}"));
        let of = format!("fk10_{variant}");
        run(&["build", &of, "--name", &plain, "--ccache", "off"]);
        run(&["build", &of, "--name", &first]);
        let ran = run(&["build", &of, "--name", &second]);
        ran.assert(0, &[&["Cached", &second, "4 of 4 objects from the compiler cache"]]);
        let [plain, first, second] =
            [plain, first, second].map(|name| (compiled(&space, &name), space.manifest(&name)));
        assert_eq!(plain.1.get("compiler_cache"), None);
        assert_eq!(
            first.1["compiler_cache"],
            used(0, OBJECTS),
            "other flags are another object"
        );
        assert_eq!(second.1["compiler_cache"], used(OBJECTS, 0));
        assert_eq!(plain.0, first.0, "the cache changes no byte of {variant}");
        assert_eq!(
            plain.0, second.0,
            "what comes from the cache is what would have been compiled"
        );
        assert_eq!(
            evidence(&plain.1),
            evidence(&second.1),
            "and every unit and link is proved"
        );
        assert!(second.1["audit"]["units"].as_u64().unwrap() >= OBJECTS as u64);
    }
    let root = space.root().display().to_string();
    for file in ["bin/fakedb", "lib/libfk.a"] {
        let bytes = fs::read(space.prefix("second_o2").join(file)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(&root), "{file} names a work directory");
        assert!(text.contains("./build"), "{file} has debug information");
    }
}

#[test]
fn clang_builds_share_objects_too() {
    if !has("ccache") || !has("clang-14") {
        return;
    }
    let space = Space::new();
    let plain = build(&space, "fk10_o2_clang14", "plain", &["--ccache", "off"]);
    build(&space, "fk10_o2_clang14", "first", &[]);
    let second = build(&space, "fk10_o2_clang14", "second", &[]);
    assert_eq!(second["compiler_cache"], used(OBJECTS, 0));
    assert_eq!(compiled(&space, "plain"), compiled(&space, "second"));
    assert_eq!(evidence(&plain), evidence(&second));
}

#[test]
fn other_flags_hit_nothing_and_profiles_do_not_use_the_cache() {
    if !has("ccache") {
        return;
    }
    let mut space = Space::new();
    assert_eq!(build(&space, "fk10_o2", "one", &[])["compiler_cache"], used(0, OBJECTS));
    let other = build(&space, "fk10_o2", "two", &["--cflags", "-fno-plt"]);
    assert_eq!(other["compiler_cache"], used(0, OBJECTS));
    // A macro that no source reads changes no byte of gcc's; clang writes it down.
    let unused = ["--cflags", "-DUNUSED"];
    assert_eq!(
        build(&space, "fk10_o2", "macro", &unused)["compiler_cache"],
        used(OBJECTS, 0)
    );
    build(
        &space,
        "fk10_o2",
        "plain",
        &[&unused[..], &["--ccache", "off"]].concat(),
    );
    assert_eq!(compiled(&space, "macro"), compiled(&space, "plain"));
    if has("clang-14") {
        build(&space, "fk10_o2_clang14", "clang", &[]);
        let written = build(&space, "fk10_o2_clang14", "clang_macro", &unused);
        assert_eq!(written["compiler_cache"], used(0, OBJECTS));
    }
    let profile = build(
        &space,
        "fk10_o2",
        "three",
        &["--cflags", "-fprofile-use -Wno-missing-profile"],
    );
    assert_eq!(profile.get("compiler_cache"), None);
    // One changed source of the next release is one miss.
    space.tree.insert(
        "src/page.c".into(),
        "int page(const char *row, int n) { return n * row[0]; }\n".into(),
    );
    space.release("1.1");
    let next = build(&space, "fk11_o2", "next", &[]);
    // The version is in the header that main.c reads.
    assert_eq!(next["compiler_cache"], used(2, 2));
}

#[test]
fn a_cache_that_cannot_be_used_is_said_once_and_fails_no_build() {
    let mut space = Space::new();
    // Its directory is none.
    let [bin, cache] = ["tools", "cache"].map(|sub| space.path(sub));
    fs::create_dir_all(&cache).unwrap();
    fs::write(cache.join("ccache"), "").unwrap();
    let fails = "#!/bin/sh\ncase $1 in --get-config) exit 0 ;; esac\necho 'ccache: error: no more room' >&2\nexit 1\n";
    program(&bin.join("ccache"), fails);
    space.first_on_path = Some(bin);
    let warnings = |ran: &support::Ran| ran.err.lines().filter(|l| l.contains("compiler cache")).count();
    let ran = space.ok(&["build", "fk10_o2", "fk10_o3"]);
    ran.assert(0, &[&["warning:", "compiler cache", "go on without it"], &["2 built"]]);
    assert_eq!(warnings(&ran), 1, "{}", ran.all());
    assert_eq!(space.manifest("fk10_o2").get("compiler_cache"), None);
    // It fails in the middle.
    fs::remove_file(cache.join("ccache")).unwrap();
    let ran = space.ok(&["build", "fk10_o2", "fk10_o3", "--rebuild"]);
    ran.assert(0, &[&["warning:", "no more room"], &["2 built"]]);
    assert_eq!(warnings(&ran), 1, "{}", ran.all());
    let want = json!({ "hits": 0, "misses": 0, "errors": OBJECTS });
    assert_eq!(space.manifest("fk10_o3")["compiler_cache"], want);
    // A source that does not compile is the compiler's to report, once, and no fault of the cache's.
    space.tree.insert("src/util.c".into(), "int sum( {\n".into());
    space.release("1.1");
    let ran = space.run(&["build", "fk11_o2"]);
    ran.assert(1, &[&["first error:", "util.c"]]);
    let log = fs::read_to_string(space.root().join(".bm/logs/fk11_o2/compile.log")).unwrap();
    assert_eq!(
        log.matches("util.c:1:").count() - log.matches("In function").count(),
        1,
        "{log}"
    );
}

#[test]
fn asking_for_a_cache_that_is_not_there_is_an_error_with_a_hint() {
    let space = Space::new();
    let bin = space.path("without");
    fs::create_dir(&bin).unwrap();
    for dir in ["/bin", "/usr/bin", "/usr/local/bin"] {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "ccache" {
                // A name may be in several.
                let _ = fs_err::os::unix::fs::symlink(entry.path(), bin.join(entry.file_name()));
            }
        }
    }
    let run = |words: &[&str]| {
        let mut bm = space.bm(words);
        bm.env("PATH", &bin);
        support::Run::start(bm).wait()
    };
    run(&["build", "fk10_o2", "--ccache", "on"]).assert(
        3,
        &[&["`ccache` is not on bm's PATH"], &["hint:", "apt install ccache"]],
    );
    assert!(!space.prefix("fk10_o2").exists());
    run(&["build", "fk10_o2"]).assert(0, &[&["Built"]]);
    assert_eq!(space.manifest("fk10_o2").get("compiler_cache"), None);
}

/// A space whose configure asks the host, and the host's answer.
fn asking() -> (Space, std::path::PathBuf) {
    let mut space = Space::empty();
    let answer = space.path("answer");
    fs::write(&answer, "8\n").unwrap();
    space
        .tree
        .insert("hooks/answer".into(), format!("cat {}\n", answer.display()));
    space.release("1.0");
    (space, answer)
}

fn kept(space: &Space) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(space.path("cache/configure")).into_iter().flatten();
    entries.map(|e| e.unwrap().path()).collect()
}

fn configure_log(space: &Space, name: &str) -> String {
    space.ok(&["log", name, "configure"]).out
}

#[test]
fn answers_of_configure_are_used_again_for_the_same_question_only() {
    let (space, answer) = asking();
    let first = build(&space, "fk10_o2", "first", &[]);
    assert_eq!(
        (&first["configure_cache"]["used"], &first["configure_cache"]["checked"]),
        (&json!(false), &json!(false))
    );
    // Whoever asks again hears something else; nobody does.
    fs::write(&answer, "4\n").unwrap();
    let second = build(&space, "fk10_o2", "second", &[]);
    assert_eq!(second["configure_cache"]["used"], true);
    assert_eq!(second["configure_cache"]["key"], first["configure_cache"]["key"]);
    assert!(configure_log(&space, "second").contains("loading cache"));
    let header = |name: &str| fs::read_to_string(space.prefix(name).join("include/fk_config.h")).unwrap();
    assert_eq!(header("first"), header("second"));
    // Never across flags, source, or when it is not wanted.
    let o3 = build(&space, "fk10_o3", "o3", &[]);
    assert_eq!(o3["configure_cache"]["used"], false);
    assert_ne!(o3["configure_cache"]["key"], first["configure_cache"]["key"]);
    assert_eq!(
        build(&space, "fk10_o2", "more", &["--cflags", "-DX"])["configure_cache"]["used"],
        false
    );
    assert_eq!(
        build(&space, "fk10_o2", "off", &["--configure-cache", "off"]).get("configure_cache"),
        None
    );
    assert!(header("off").contains("FK_LONG 4"));
    // Nor where a directory is named whose content nobody looks at; unless that is vouched for.
    let opt = ["--cflags", "-I/opt/none"];
    assert_eq!(build(&space, "fk10_o2", "opt", &opt).get("configure_cache"), None);
    let vouched = [&opt[..], &["--configure-cache", "on"]].concat();
    assert_eq!(
        build(&space, "fk10_o2", "vouched", &vouched)["configure_cache"]["used"],
        false
    );
}

#[test]
fn a_check_runs_configure_both_ways_and_finds_what_differs() {
    let (space, answer) = asking();
    let check = ["--configure-cache", "check"];
    let first = build(&space, "fk10_o2", "first", &check);
    assert_eq!(
        (&first["configure_cache"]["used"], &first["configure_cache"]["checked"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(kept(&space).len(), 1);
    fs::write(&answer, "4\n").unwrap();
    space
        .run(&["build", "fk10_o2", "--name", "second", "--configure-cache", "check"])
        .assert(
            5,
            &[
                &["configure of `second` makes something else"],
                &[
                    "differs: fk_config.h",
                    "without `#define FK_LONG 4`, with `#define FK_LONG 8`",
                ],
            ],
        );
    assert!(!space.prefix("second").exists());
    assert_eq!(kept(&space).len(), 0, "nobody meets these answers again");
    let third = build(&space, "fk10_o2", "third", &[]);
    assert_eq!(third["configure_cache"]["used"], false);
}

#[test]
fn a_configure_that_fails_by_cached_answers_is_run_again_without() {
    let (space, answer) = asking();
    build(&space, "fk10_o2", "first", &[]);
    let [file] = kept(&space).try_into().unwrap();
    fs::write(&file, "fk_cv_sizeof_long=${fk_cv_sizeof_long=none}\n").unwrap();
    let ran = space.ok(&["build", "fk10_o2", "--name", "second"]);
    ran.assert(
        0,
        &[
            &["warning:", "`second` failed with the answers of an earlier build"],
            &["Built", "second"],
        ],
    );
    assert_eq!(space.manifest("second").get("configure_cache"), None);
    assert_eq!(kept(&space).len(), 0);
    // A configure that fails by itself fails once, and leaves no answers.
    fs::write(&answer, "none\n").unwrap();
    space
        .run(&["build", "fk10_o2", "--name", "third"])
        .assert(1, &[&["first error:", "a long of none"]]);
    assert_eq!(kept(&space).len(), 0);
    // A tree that is gone on with asks by itself, and its answers are not handed on.
    fs::write(&answer, "8\n").unwrap();
    let third = build(&space, "fk10_o2", "third", &["--from", "configure"]);
    assert_eq!((third.get("configure_cache"), kept(&space).len()), (None, 0));
}
