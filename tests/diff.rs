//! `bm diff` through the real program, over real builds of a small product.
#![allow(clippy::unwrap_used)]

#[path = "support/run.rs"]
mod support;

use fs_err as fs;
use serde_json::{Value, json};
use support::Space;

fn section<'a>(report: &'a Value, name: &str) -> &'a Value {
    let sections = report["sections"].as_array().unwrap();
    sections.iter().find(|s| s["name"] == name).unwrap()
}

#[test]
fn real_builds_are_compared_by_name_directory_and_file() {
    let mut space = Space::new();
    space.recipe.tail = "[[expect]]\ncompile-lines = [\"src/main.c\", \"src/page.c\"]\n".into();
    space.ok(&["build", "fk10_o2", "fk10_o3"]);
    let kept = &space.manifest("fk10_o2")["evidence"]["compiles"];
    assert_eq!(kept[1]["source"], "src/page.c");
    assert_eq!(kept[1]["dir"], "build");
    let argv = kept[1]["argv"].as_array().unwrap();
    assert!(
        argv.contains(&json!("-O2")) && argv.contains(&json!("../src/src/page.c")),
        "{argv:?}"
    );

    let said = space.ok(&["diff", "fk10_o2", "fk10_o3"]);
    for line in [
        "\n  variant  o2 -> o3\n",
        "\nflags\n  cflags  (0 words in both)\n    - -O2\n    + -O3\n",
        "\n  compile src/main.c  (",
        "\n  link bin/fakedb  (",
    ] {
        assert!(said.out.contains(line), "{line:?} in {}", said.out);
    }
    assert!(
        !said.out.contains(".bm/work") && !said.out.contains('\u{1b}'),
        "{}",
        said.out
    );
    let all = space.ok(&["diff", "--all", "fk10_o2", "fk10_o3"]).out;
    assert!(
        all.contains("\nhost: equal (os, kernel, libc, cpu, cpu flags)\n"),
        "{all}"
    );

    let report = space.ok(&["diff", "--json", "fk10_o2", "fk10_o3"]).json();
    assert_eq!(report["differs"], true);
    let lines = section(&report, "lines")["words"].as_array().unwrap();
    assert_eq!(lines.len(), 3, "two sources and a link: {lines:?}");
    for line in lines {
        assert_eq!(
            (&line["only_a"], &line["only_b"]),
            (&json!(["-O2"]), &json!(["-O3"])),
            "{line}"
        );
    }

    // By a directory, and by a file of the history when the prefix is gone.
    let dir = space.prefix("fk10_o2").display().to_string();
    assert_eq!(space.ok(&["diff", &dir, "fk10_o3"]).out, said.out);
    space.ok(&["rm", "fk10_o2"]);
    let gone = space.run(&["diff", "fk10_o2", "fk10_o3"]);
    gone.assert(
        2,
        &[
            &["error: nothing built matches `fk10_o2`"],
            &["hint:", "was built once"],
        ],
    );
    let file = gone.err.split(' ').next_back().unwrap().trim();
    assert_eq!(space.ok(&["diff", file, "fk10_o3"]).out, said.out);
}

#[test]
fn the_same_again_under_another_name_differs_in_nothing() {
    let space = Space::new();
    space.ok(&["build", "fk10_o3_native_lto"]);
    space.ok(&["build", "fk10_o3_native_lto", "--name", "fk10_again"]);
    let said = space.ok(&["diff", "fk10_o3_native_lto", "fk10_again"]).out;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("nothing differs between `fk10_o3_native_lto` and `fk10_again`"),
        "{said}"
    );
    let report = space.ok(&["diff", "--json", "fk10_o3_native_lto", "fk10_again"]).json();
    assert_eq!(report["differs"], false);
}

#[test]
fn a_source_whose_line_cannot_be_kept_is_a_finding() {
    let mut space = Space::new();
    space.recipe.tail = "[[expect]]\ncompile-lines = [\"src/main.c\", \"src/gone.c\"]\n".into();
    space.run(&["build", "fk10_o2"]).assert(
        5,
        &[&[
            "compile-line",
            "`src/gone.c`",
            "no recorded call",
            "recipes/fakedb.toml:",
        ]],
    );
    assert!(!space.prefix("fk10_o2").exists());
}

#[test]
fn wrong_words_are_told_with_the_documented_codes() {
    let space = Space::new();
    space.ok(&["build", "fk1_o2"]);
    space
        .run(&["diff", "fk10_o2", "fk10_o2"])
        .assert(2, &[&["error: `fk10_o2` and `fk10_o2` are the same build"]]);
    // The series is a link to the same prefix.
    space
        .run(&["diff", "fk10_o2", "fk1_o2"])
        .assert(2, &[&["are the same build"], &["build: fk10_o2"]]);
    // Both are told at once.
    space.run(&["diff", "fk10_o3", "./nowhere"]).assert(
        2,
        &[
            &["error: nothing built matches `fk10_o3`"],
            &["did you mean `fk10_o2`"],
            &["error: there is no manifest at `./nowhere`"],
        ],
    );
    assert_eq!(space.run(&["diff", "fk10_o2"]).code, 2);

    let file = space.prefix("fk10_o2").join(".bm/manifest.json");
    let text = fs::read_to_string(&file).unwrap();
    for (name, damaged) in [
        ("cut.json", &text[..text.len() / 2]),
        ("edited.json", &text.replace("\"1.0\"", "\"1.1\"")),
    ] {
        fs::write(space.path("work").join(name), damaged).unwrap();
        space
            .run(&["diff", name, "fk10_o2"])
            .assert(6, &[&["error: `", name, "is no manifest that counts"], &["reason:"]]);
    }
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    space
        .run(&["diff", "fk10_o2", "cut.json"])
        .assert(6, &[&["`fk10_o2` is there and does not count as built"]]);
}
