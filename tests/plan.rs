//! What a recipe's words and compiler ranges come to in a plan, through the real program and a recipe
//! of the user's own.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

use fs_err as fs;
use serde_json::Value;

const RECIPE: &str = r#"
product = "demo"
description = "a demonstration"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/demo", "{version}"]
configure = [
  { args = ["--sysconfdir={prefix}/etc", "--with-extra-version=-{variant}_{toolchain}", "{release}/{version}/{version.compact}/{version.series}/{version.tag}"] },
]
env = [{ set = { DEMO_NAME = "{release}-{variant}" } }]
flags = [{ cflags = ["-DDEMO={version.tag}"] }]
compile = [{ args = ["VERSION={version}"] }]
install = [{ args = ["install", "SERIES={version.series}"] }]
atoms = [{ name = "o3", cflags = ["-O3"] }]
variants = { def = [], o3 = ["o3"] }
versions = [
  { id = "1.1", commit = "0123456789abcdef0123456789abcdef01234567" },
  { id = "2.5", commit = "0123456789abcdef0123456789abcdef01234567" },
]
[[compilers]]
when = { versions = "<2" }
family = "gcc"
works = "<2"
reason = "K&R only"
[[compilers]]
family = "clang"
works = "<1"
[names]
release = "demo{version.compact}"
series = "demo{version.series}"
build = "{release}_{variant}{_toolchain}"
git = "demo_git_{commit9}"
[source.git]
url = "https://example.org/demo.git"
tag = "v{version}"
"#;

/// `bm show --json` with the recipe laid over what is shipped.
fn show(words: &[&str]) -> Value {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::create_dir_all(dir.join("mine/recipes")).unwrap();
    fs::write(dir.join("mine/recipes/demo.toml"), RECIPE).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_bm"))
        .args(["show", "--json", "--recipes"])
        .arg(dir.join("mine"))
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", dir)
        .env("BM_ROOT", "/srv/bm")
        .env("BM_CACHE", dir.join("cache"))
        .output()
        .unwrap();
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

fn argv(plan: &Value, step: &str) -> Vec<String> {
    let steps = plan["steps"].as_array().unwrap();
    let step = steps.iter().find(|s| s["name"] == step).unwrap();
    serde_json::from_value(step["argv"].clone()).unwrap()
}

#[test]
fn words_of_a_recipe_get_their_fields_and_words_of_the_user_do_not() {
    let plan = show(&["demo25_o3", "--name", "mine", "--cflags", "-DMINE={version}"]);
    let configure = argv(&plan, "configure");
    assert_eq!(
        configure[2..5],
        [
            "--sysconfdir=/srv/bm/mine/etc",
            "--with-extra-version=-o3_gcc",
            "demo25/2.5/25/2/2_5",
        ]
    );
    assert!(
        configure.contains(&"CFLAGS=-DDEMO=2_5 -O3 -DMINE={version}".to_owned()),
        "{configure:?}"
    );
    assert_eq!(argv(&plan, "compile"), ["make", "VERSION=2.5"]);
    assert_eq!(
        argv(&plan, "install"),
        ["make", "install", "SERIES=2", "DESTDIR={stage}"]
    );
    assert_eq!(plan["steps"][3]["env"]["DEMO_NAME"], "demo25-o3");
}

/// The tests need a gcc of the host, which is newer than 2.
#[test]
fn a_compiler_outside_the_recipes_range_is_not_resolved() {
    let plan = show(&["demo11_o3"]);
    assert_eq!(plan["identity"], Value::Null);
    let why = plan["unresolved"][0].as_str().unwrap();
    assert!(why.starts_with("build `demo11_o3` cannot be made with gcc "), "{why}");
    assert_eq!(plan["obstacles"][0], why);

    let other = show(&["demo25_o3"]);
    assert_eq!(
        other["unresolved"],
        serde_json::json!([]),
        "the range is of versions before 2"
    );
    assert!(other["identity"].is_string());
}
