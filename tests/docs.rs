//! The documents against the program: every command line, every example file, every documented field.
//!
//! A document that shows a command the program does not take, a key the schema does not know, or leaves
//! a field of the JSON out, fails here.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bm::cli::args::Cli;
use bm::error::Exit;
use bm::model::event::{BuildResult, Event, What};
use bm::model::manifest::Manifest;
use clap::{CommandFactory as _, Parser as _};
use fs_err as fs;
use serde_json::Value;

#[path = "../src/store/fixture.rs"]
#[allow(dead_code)]
mod fixture;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All documents, by their path below the project.
fn documents() -> BTreeMap<String, String> {
    let mut files = vec![PathBuf::from("README.md"), PathBuf::from("ARCHITECTURE.md")];
    for entry in fs::read_dir(project().join("docs")).unwrap() {
        let name = entry.unwrap().file_name();
        files.push(Path::new("docs").join(name));
    }
    files.retain(|f| f.extension().is_some_and(|e| e == "md"));
    let read = |f: PathBuf| (f.display().to_string(), fs::read_to_string(project().join(f)).unwrap());
    files.into_iter().map(read).collect()
}

fn document(name: &str) -> String {
    fs::read_to_string(project().join(name)).unwrap()
}

/// A fenced block: the words after the fence's backticks, its text, and where it begins.
struct Block {
    info: String,
    text: String,
    place: String,
}

fn blocks(file: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (i, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                open = Some(Block {
                    info: info.trim().to_owned(),
                    text: String::new(),
                    place: format!("{file}:{}", i + 1),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{file}: a fenced block is not closed");
    found
}

/// One call of bm in a document.
#[derive(Debug)]
struct Line {
    words: Vec<String>,
    place: String,
}

/// Every command that starts with `bm` in `sh` blocks, also inside `$(...)`, after a pipe, after
/// assignments, and behind `cargo run --release --`.
fn command_lines() -> Vec<Line> {
    let mut found = Vec::new();
    for (file, text) in documents() {
        for block in blocks(&file, &text).into_iter().filter(|b| b.info == "sh") {
            let joined = block.text.replace("\\\n", " ");
            for line in joined.lines() {
                found.extend(calls(line).into_iter().map(|words| Line {
                    words,
                    place: format!("{}: {line}", block.place),
                }));
            }
        }
    }
    found
}

fn calls(line: &str) -> Vec<Vec<String>> {
    const STOPS: [&str; 9] = ["|", ";", "&&", "||", ">", ">>", "<", "2>&1", "done"];
    let mut found = Vec::new();
    // `$(bm path ...)` and `<(...)`: each is a line of its own.
    let mut rest = line;
    while let Some(at) = rest.find("$(bm ") {
        let inner = &rest[at + 2..];
        let end = inner.find(')').expect("a document closes what it opens");
        found.extend(calls(&inner[..end]));
        rest = &inner[end..];
    }
    let outer = line.replace("$(bm ", "$(inner ");
    let spaced = outer.replace("; ", " ; ");
    let words = shlex::split(&spaced).unwrap_or_else(|| panic!("not a shell line: {line}"));
    for part in words.split(|w| STOPS.contains(&w.as_str())) {
        let assignment = |w: &&String| {
            w.split_once('=')
                .is_some_and(|(n, _)| n.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        };
        let skip = part
            .iter()
            .take_while(|w| assignment(w) || *w == "do" || *w == "time")
            .count();
        let part = &part[skip..];
        let cargo = ["cargo", "run", "--release", "--"];
        if part.len() > 4 && part[..4].iter().eq(cargo.iter()) {
            found.push(
                std::iter::once("bm".to_owned())
                    .chain(part[4..].iter().cloned())
                    .collect(),
            );
        } else if part.first().is_some_and(|w| w == "bm") {
            found.push(part.to_vec());
        }
    }
    found
}

/// bm with roots of its own, no network and no config of the user's.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Home(tempfile::tempdir().unwrap())
    }

    fn bm(&self, words: &[&str]) -> Output {
        let dir = self.0.path();
        Command::new(env!("CARGO_BIN_EXE_bm"))
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", dir)
            .env("BM_ROOT", dir.join("root"))
            .env("BM_CACHE", dir.join("cache"))
            .current_dir(dir)
            .output()
            .unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let out = self.bm(words);
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}\n{}", said(&out)))
    }
}

fn said(out: &Output) -> String {
    format!(
        "status {:?}\n{}{}",
        out.status.code(),
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

#[test]
fn calls_are_found_wherever_a_shell_would_run_them() {
    let cases: [(&str, &[&[&str]]); 6] = [
        ("bm list --built", &[&["bm", "list", "--built"]]),
        (
            "for p in $(bm path 'pg*'); do my.sh $p; done",
            &[&["bm", "path", "pg*"]],
        ),
        (
            "BM_ROOT=/srv/bm bm plan pg160_o3 | less",
            &[&["bm", "plan", "pg160_o3"]],
        ),
        (
            "cargo run --release -- build pgdistro_o3",
            &[&["bm", "build", "pgdistro_o3"]],
        ),
        (
            "eval \"$(bm env pg160_o3)\" && bm list",
            &[&["bm", "env", "pg160_o3"], &["bm", "list"]],
        ),
        ("psql -c 'bm is not a command here'", &[]),
    ];
    for (line, want) in cases {
        assert_eq!(calls(line), want, "{line}");
    }
}

#[test]
fn the_program_takes_every_command_line_shown() {
    let lines = command_lines();
    assert!(
        lines.len() > 60,
        "only {} command lines found in the documents",
        lines.len()
    );
    let mut wrong = Vec::new();
    for line in &lines {
        if let Err(e) = Cli::try_parse_from(&line.words) {
            wrong.push(format!("{}\n{e}", line.place));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The lines that plan are really planned: names, patterns, sets, variants and toolchains exist.
#[test]
fn every_build_shown_can_be_planned() {
    const PLANNING: [&str; 5] = ["build", "show", "plan", "list", "deps"];
    let home = Home::new();
    let tree = home.0.path().join("postgres");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("configure"), "PACKAGE_VERSION='17devel'\n").unwrap();
    let mut planned = 0;
    for line in command_lines() {
        let words: Vec<&str> = line.words[1..].iter().map(String::as_str).collect();
        if !PLANNING.contains(&words[0]) || words.contains(&"--built") {
            continue;
        }
        let mut words: Vec<String> = words
            .iter()
            .map(|w| w.replace("~/src/postgres", tree.to_str().unwrap()))
            .collect();
        if words[0] == "build" && !words.iter().any(|w| w == "-n" || w == "--dry-run") {
            words.push("--dry-run".to_owned());
        }
        // A check of packages does not change what is read here, and would depend on this host.
        words.retain(|w| w != "--install" && w != "--install-deps");
        if words[0] != "list" && !words.iter().any(|w| w == "--offline") {
            words.push("--offline".to_owned());
        }
        let overlay = words.iter().position(|w| w == "--recipes");
        if let Some(at) = overlay {
            fs::create_dir_all(home.0.path().join("overlay")).unwrap();
            words[at + 1] = home.0.path().join("overlay").display().to_string();
        }
        let out = home.bm(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let code = out.status.code().unwrap();
        // Without network the distribution's newest and a bare revision cannot be known, and a host may
        // lack packages; a name, a pattern, a set or an option that is wrong is a usage error.
        let far = words.iter().any(|w| w.starts_with("pgdistro") || w == "--rev");
        let fine = code == 0 || (far && [3, 4].contains(&code)) || (words[0] == "deps" && code == 3);
        assert!(fine, "{}\n{words:?}\n{}", line.place, said(&out));
        planned += 1;
    }
    assert!(planned > 25, "only {planned} lines were planned");
}

#[test]
fn every_command_of_the_program_is_shown_somewhere() {
    let shown: BTreeSet<String> = command_lines()
        .into_iter()
        .filter_map(|l| l.words.get(1).cloned())
        .collect();
    for command in Cli::command().get_subcommands() {
        assert!(
            shown.contains(command.get_name()),
            "no document shows `bm {}`",
            command.get_name()
        );
    }
}

/// Blocks marked `toml recipe NAME`, `toml toolchain NAME`, `toml set NAME` and `toml config`.
#[test]
fn every_example_file_is_taken_by_the_program() {
    let mut kinds = BTreeSet::new();
    for (file, text) in documents() {
        for block in blocks(&file, &text) {
            let info: Vec<&str> = block.info.split_whitespace().collect();
            let home = Home::new();
            let overlay = home.0.path().join("overlay");
            let overlay_text = overlay.display().to_string();
            let put = |path: PathBuf, text: &str| {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            let words = match info.as_slice() {
                ["toml", kind @ ("recipe" | "toolchain" | "set"), name] => {
                    let dir = match *kind {
                        "recipe" => "recipes",
                        "toolchain" => "toolchains",
                        _ => "recipes/sets",
                    };
                    put(overlay.join(dir).join(format!("{name}.toml")), &block.text);
                    if block.text.contains("demo/fix.patch") {
                        put(overlay.join("patches/demo/fix.patch"), "--- a/x\n+++ b/x\n");
                    }
                    vec!["--recipes", &overlay_text, "list", "--all"]
                }
                ["toml", "config"] => {
                    let config = home.0.path().join(".config/bm/config.toml");
                    // Directories that an example names do not exist here.
                    put(config, &block.text.replace("/srv/bm-recipes", "/"));
                    vec!["list", "--all"]
                }
                ["toml", ..] => panic!("{}: say what the example is: `toml recipe NAME`, ...", block.place),
                _ => continue,
            };
            let out = home.bm(&words);
            assert!(out.status.success(), "{}\n{}", block.place, said(&out));
            if let [_, "recipe", _] = info.as_slice() {
                let all = String::from_utf8_lossy(&out.stdout).into_owned();
                assert!(
                    all.contains("demo"),
                    "{}: the recipe makes no build `demo...`\n{all}",
                    block.place
                );
            }
            kinds.insert(info[1].to_owned());
        }
    }
    let want = ["config", "recipe", "set", "toolchain"].map(str::to_owned);
    assert_eq!(kinds, BTreeSet::from(want), "each kind of file has an example");
}

/// A document without its fenced blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Words in backticks in the running text: an example alone explains nothing.
fn spoken(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for piece in prose(text).split('`').skip(1).step_by(2) {
        words.extend(
            piece
                .split([' ', '.', '[', ']', '=', '"', '{', '}', ',', ':'])
                .map(str::to_owned),
        );
        words.insert(piece.to_owned());
    }
    words
}

#[test]
fn every_key_of_recipes_toolchains_sets_and_config_is_explained() {
    let mut wanted = BTreeSet::new();
    for kind in ["recipe", "toolchain", "set", "config"] {
        let schema = bm::schema::json_schema(kind).unwrap();
        let tables = schema["$defs"].as_object().into_iter().flat_map(|d| d.values());
        for table in tables.chain([&schema]) {
            let keys = table["properties"].as_object().into_iter().flat_map(|p| p.keys());
            wanted.extend(keys.map(|k| (kind, k.clone())));
        }
    }
    let text = document("docs/recipes.md") + &document("README.md");
    let spoken = spoken(&text);
    let silent: Vec<_> = wanted.iter().filter(|(_, key)| !spoken.contains(key)).collect();
    assert!(silent.is_empty(), "docs/recipes.md does not explain {silent:?}");
    assert!(wanted.len() > 60);
}

/// Every key of a JSON value, however deep; `open` are objects whose keys are data, not fields.
fn keys(value: &Value, open: &[&str], out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                out.insert(key.clone());
                if !open.contains(&key.as_str()) {
                    keys(inner, open, out);
                } else if let Value::Object(named) = inner {
                    named.values().for_each(|v| keys(v, open, out));
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| keys(v, open, out)),
        _ => {}
    }
}

fn explained(json: &Value, open: &[&str], what: &str) {
    let mut fields = BTreeSet::new();
    keys(json, open, &mut fields);
    assert!(!fields.is_empty(), "{what}");
    let spoken = spoken(&document("docs/manifest.md"));
    let silent: Vec<_> = fields.iter().filter(|f| !spoken.contains(*f)).collect();
    assert!(
        silent.is_empty(),
        "docs/manifest.md does not explain {silent:?} of {what}"
    );
}

/// Objects whose keys are names of things.
const OPEN: [&str; 8] = [
    "packages",
    "defaults",
    "server",
    "tools",
    "env",
    "inputs",
    "dependencies",
    "flags",
];

#[test]
fn every_field_of_the_json_is_explained() {
    let home = Home::new();
    for words in [
        &["show", "--json", "pg160_o3_native_lto"][..],
        &["plan", "--json", "pg160_o3"],
        &["list", "--json", "pg160_*"],
        &["list", "--built", "--json"],
        &["deps", "--json", "pg160_o3"],
        &["history", "--json"],
        &["verified", "list", "--json"],
    ] {
        explained(&home.json(words), &OPEN, &words.join(" "));
    }
}

/// A manifest with an element in every list, so that no field hides in an empty one.
fn full_manifest(prefix: &Path, files_sha256: &str) -> Value {
    let mut json = fixture::manifest(prefix, &"0".repeat(64), files_sha256, 1);
    let tool = serde_json::json!({"path": "/usr/bin/gcc", "version": "gcc 12", "sha256": "0"});
    let source = serde_json::json!({"kind": "git", "url": "u", "ref": "r", "commit": "c", "sha256": "s",
        "pinned_by": "recipe", "obtained_from": "mirror", "time": 1});
    let more = serde_json::json!({
        "sources": [source],
        "patches": [{"file": "f", "sha256": "0", "offsets": ["1"]}],
        "steps": [{"name": "configure", "argv": [], "env": {}, "dir": null}],
        "flags": {"cflags": [], "cxxflags": [], "ldflags": []},
        "libraries": [{"soname": "s", "path": "p", "package": "k"}],
        "tools": {"make": tool},
        "evidence": {
            "units": [{"file": "f", "from": "dwarf", "compiler": "c", "optimisation": "3", "march": "", "lto": true,
                "frame_pointer": false, "units": 1}],
            "links": [{"file": "f", "argv": [], "lto": true, "lto_jobs": 2}],
            "sample_compile": [],
            "compiles": [{"source": "src/main.c", "dir": "build", "argv": ["gcc"]}]},
        "audit": {"findings": [{"subject": "s", "asked": "a", "found": "f", "evidence": "e"}], "files": 1, "units": 1,
            "links": 1, "exempt": []},
        "driver": {"init": "initdb", "socket": "/tmp", "port": 5432, "engine": "pg", "server": "bin/postgres",
            "client": "bin/psql", "client-library": "lib/libpq.so.5", "extensions": []},
        "times": [{"name": "compile", "wall": 1.0, "cpu": 1.0, "max_rss_kib": 1}],
    });
    let map = json.as_object_mut().unwrap();
    map.extend(more.as_object().unwrap().clone());
    json
}

#[test]
fn every_field_of_the_manifest_is_explained() {
    let json = full_manifest(Path::new("/srv/bm/pg154_o3"), "0");
    let manifest: Manifest = serde_json::from_value(json).unwrap();
    // Through the type, so that a field the sample lacks cannot hide.
    let written = serde_json::to_value(&manifest).unwrap();
    explained(&written, &OPEN, "manifest.json");
    let list = bm::store::files::FileList {
        schema: 1,
        files: vec![bm::store::files::FileEntry {
            path: "bin/postgres".into(),
            kind: bm::store::files::FileKind::File,
            mode: "0755".into(),
            size: Some(1),
            sha256: Some("0".into()),
            target: Some("x".into()),
        }],
    };
    explained(&serde_json::to_value(&list).unwrap(), &[], "files.json");
}

/// One of each event, with all that may be absent.
fn every_event() -> Vec<What> {
    let build: bm::model::name::BuildName = "pg154_o3".parse().unwrap();
    let (step, log) = (bm::plan::StepName::Compile, PathBuf::from("/logs/compile.log"));
    let all = vec![
        What::RunBegun {
            builds: vec![build.clone()],
            jobs: 1,
            parallel: 1,
            began: "2024-01-01T00:00:00Z".into(),
        },
        What::StepBegun {
            build: build.clone(),
            step,
            log: log.clone(),
            estimate: Some(1.0),
        },
        What::StepEnded {
            build: build.clone(),
            step,
            ok: true,
            wall: 1.0,
            cpu: 1.0,
            max_rss_kib: 1,
            cache: Some(bm::model::manifest::CacheUse::default()),
        },
        What::Waiting {
            build: build.clone(),
            reason: "why".into(),
        },
        What::BuildEnded {
            build,
            result: BuildResult::Failed,
            wall: 1.0,
            reason: Some("why".into()),
            log: Some(log),
        },
        What::Load {
            tokens: 1,
            jobs: 1,
            memory_kib: 1,
            free_disk: 1,
            left: Some(1.0),
        },
        What::RunEnded {
            wall: 1.0,
            own_cpu: 1.0,
        },
    ];
    // An event that is new belongs into the list above, and its number here.
    let number = |what: &What| match what {
        What::RunBegun { .. } => 0,
        What::StepBegun { .. } => 1,
        What::StepEnded { .. } => 2,
        What::Waiting { .. } => 3,
        What::BuildEnded { .. } => 4,
        What::Load { .. } => 5,
        What::RunEnded { .. } => 6,
    };
    assert!(all.iter().map(number).eq(0..7));
    all
}

#[test]
fn every_event_is_explained() {
    let text = document("docs/manifest.md");
    for what in every_event() {
        let json = serde_json::to_value(Event { at: 1.0, what }).unwrap();
        explained(&json, &[], "build --message-format json");
        // Each in a row of its own, with its fields beside it.
        let event = json["event"].as_str().unwrap();
        let row = text.lines().find(|l| l.starts_with(&format!("| `{event}` |")));
        let row = spoken(row.unwrap_or_else(|| panic!("docs/manifest.md has no row for `{event}`")));
        let fields = json.as_object().unwrap().keys();
        let silent: Vec<_> = fields
            .filter(|f| !["at", "event"].contains(&f.as_str()) && !row.contains(*f))
            .collect();
        assert!(silent.is_empty(), "the row of `{event}` does not explain {silent:?}");
    }
    let spoken = spoken(&text);
    for result in [
        BuildResult::Built,
        BuildResult::Fresh,
        BuildResult::Kept,
        BuildResult::Skipped,
        BuildResult::Failed,
    ] {
        let word = serde_json::to_value(result).unwrap();
        assert!(spoken.contains(word.as_str().unwrap()), "{word}");
    }
    assert!(text.contains(&format!("{{\"schema\":{},\"event\":\"stream\"", bm::ui::json::SCHEMA)));
}

/// A sealed prefix, made by the store itself.
fn sealed(home: &Home, name: &str) -> PathBuf {
    let layout = bm::layout::Layout::new(home.0.path().join("root"), home.0.path().join("cache"));
    let name: bm::model::name::BuildName = name.parse().unwrap();
    let staged = layout.work_root().join(format!("{name}-00000000/stage/{name}"));
    fs::create_dir_all(staged.join("bin")).unwrap();
    fs::write(staged.join("bin/psql"), "#!/bin/sh\n").unwrap();
    let list = bm::store::files::hash_tree(&staged).unwrap();
    let summary = bm::store::files::write(&staged, &list).unwrap();
    let placed = bm::store::prefix::place(&layout, &name, &staged, &"0".repeat(64)).unwrap();
    let json = full_manifest(&layout.prefix(&name), &summary.files_sha256);
    placed.commit(serde_json::from_value(json).unwrap()).unwrap();
    layout.prefix(&name)
}

/// What docs/drivers.md says of `bm each`.
#[test]
fn each_runs_one_after_another_and_keeps_logs_and_codes_apart() {
    let home = Home::new();
    let names = ["pg154_def", "pg154_o2", "pg154_o3"];
    let prefixes = names.map(|name| sealed(&home, name));
    // The middle one fails; a second that began before the first ended would find its mark.
    let script = "mkdir busy && echo \"$1 $BM_NAME $2\" && rmdir busy && test \"$BM_NAME\" != pg154_o2";
    let each = |logs: &str, more: &[&str]| {
        let driver = ["--", "sh", "-c", script, "driver", "{prefix}", "{version}"];
        home.bm(&[&["each", "--logs", logs, "pg154_*"], more, &driver].concat())
    };
    let out = each("all", &[]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("2 of 3 ran well"), "{}", said(&out));
    let read = |file: String| fs::read_to_string(home.0.path().join(file)).unwrap();
    for (name, prefix) in names.iter().zip(&prefixes) {
        let want = format!("{} {name} 15.4\n", prefix.display());
        assert_eq!(read(format!("all/{name}.log")), want);
        let code = if *name == "pg154_o2" { "1\n" } else { "0\n" };
        assert_eq!(read(format!("all/{name}.exit")), code);
    }
    let out = each("fast", &["--fail-fast"]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("1 of 3 ran well"), "{}", said(&out));
    assert!(
        !home.0.path().join("fast/pg154_o3.log").exists(),
        "the third is not begun"
    );
}

#[test]
fn the_json_and_the_variables_of_built_prefixes_are_explained() {
    let home = Home::new();
    let prefix = sealed(&home, "pg154_o3");
    fs::remove_file(prefix.join("bin/psql")).unwrap();
    fs::write(prefix.join("ini.sh"), "").unwrap();
    explained(&home.json(&["list", "--built", "--json"]), &OPEN, "list --built --json");
    explained(&home.json(&["history", "--json"]), &OPEN, "history --json");
    let verify = home.bm(&["verify", "--json", "pg154_o3"]);
    assert_eq!(verify.status.code(), Some(5), "{}", said(&verify));
    let report: Value = serde_json::from_slice(&verify.stdout).unwrap();
    assert_eq!(report["builds"][0]["missing"], serde_json::json!(["bin/psql"]));
    assert_eq!(report["builds"][0]["extra"], serde_json::json!(["ini.sh"]));
    explained(&report, &OPEN, "verify --json");

    let json = full_manifest(Path::new("/srv/bm/pg154_o3"), "0");
    let one: Manifest = serde_json::from_value(json).unwrap();
    let mut other = one.clone();
    other.version = "15.5".to_owned();
    other.flags.insert("cflags".to_owned(), vec!["-O2".to_owned()]);
    let report = bm::diff::diff(&one, &other);
    explained(&serde_json::to_value(&report).unwrap(), &OPEN, "diff --json");
    let told = spoken(&document("docs/manifest.md"));
    for section in &report.sections {
        assert!(
            told.contains(section.name),
            "docs/manifest.md does not explain `{}`",
            section.name
        );
    }

    let env = home.json(&["env", "--json", "pg154_o3"]);
    let spoken = spoken(&document("docs/drivers.md"));
    for variable in env["env"].as_object().unwrap().keys() {
        assert!(
            spoken.contains(variable),
            "docs/drivers.md does not explain `{variable}`"
        );
    }
}

#[test]
fn the_readme_lists_every_exit_code() {
    let readme = document("README.md");
    let codes = [
        Exit::Ok,
        Exit::Build,
        Exit::Usage,
        Exit::Host,
        Exit::Source,
        Exit::Proof,
        Exit::Store,
        Exit::Bug,
        Exit::Interrupted,
    ];
    for code in codes {
        let row = format!("\n| {} |", code.code());
        assert!(
            readme.contains(&row),
            "README.md has no row for exit code {}",
            code.code()
        );
    }
}

/// bm's own variables: those the command line reads, and those the program reads besides.
#[test]
fn the_readme_lists_every_variable_of_bm() {
    let spoken = spoken(&document("README.md"));
    let command = Cli::command();
    let declared = command
        .get_arguments()
        .filter_map(|a| a.get_env())
        .map(|e| e.to_str().unwrap());
    let all: BTreeSet<&str> = declared.chain(["BM_FROM", "BM_MIRROR"]).collect();
    assert!(all.len() >= 6, "{all:?}");
    for variable in all {
        assert!(spoken.contains(variable), "README.md does not explain `{variable}`");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut followed = 0;
    for (file, text) in documents() {
        let dir = project().join(&file).parent().unwrap().to_owned();
        for piece in text.split("](").skip(1) {
            let target = piece.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let at = if path.is_empty() {
                project().join(&file)
            } else {
                dir.join(path)
            };
            assert!(at.exists(), "{file} links to `{target}`, which is not there");
            if !anchor.is_empty() {
                let headings = fs::read_to_string(&at).unwrap();
                let has = headings
                    .lines()
                    .filter(|l| l.starts_with('#'))
                    .any(|l| slug(l) == anchor);
                assert!(has, "{file} links to `{target}`, and there is no such heading");
            }
            followed += 1;
        }
    }
    assert!(followed > 8, "{followed}");
}

/// The anchor that renderers give a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The code map has a row for every module of the crate, and no document names a source file that is gone.
#[test]
fn the_code_map_has_every_module() {
    let text = document("ARCHITECTURE.md");
    let named: BTreeSet<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|w| w.starts_with("src/"))
        .collect();
    for path in &named {
        assert!(
            project().join(path).exists(),
            "ARCHITECTURE.md speaks of `{path}`, which is gone"
        );
    }
    let map = text.split("## Code map").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut rows = 0;
    for line in document("src/lib.rs").lines() {
        let Some(module) = line.strip_prefix("pub mod ").and_then(|l| l.strip_suffix(';')) else {
            continue;
        };
        let row = [format!("\n| `src/{module}/` |"), format!("\n| `src/{module}.rs` |")];
        assert!(
            row.iter().any(|r| map.contains(r.as_str())),
            "the code map has no row for `{module}`"
        );
        rows += 1;
    }
    assert!(rows > 15);
}

/// Options named in running text exist, but for those that are said not to be there yet.
#[test]
fn options_named_in_the_text_exist() {
    fn options(command: &clap::Command, out: &mut BTreeSet<String>) {
        for arg in command.get_arguments() {
            out.extend(arg.get_long().map(|l| format!("--{l}")));
        }
        command.get_subcommands().for_each(|c| options(c, out));
    }
    let mut known = BTreeSet::new();
    let mut command = Cli::command();
    command.build();
    options(&command, &mut known);
    // Of configure, and of compilers and programs in general.
    const OTHERS: [&str; 4] = ["--prefix", "--version", "--enable-debug", "--with-lz4"];
    for (file, text) in documents() {
        for piece in prose(&text).split('`').skip(1).step_by(2) {
            let option = piece.split([' ', '=']).next().unwrap();
            if option.starts_with("--") && !OTHERS.contains(&option) && !(piece.starts_with("--set")) {
                assert!(
                    known.contains(option),
                    "{file} speaks of `{option}`, which bm does not have"
                );
            }
        }
    }
}
