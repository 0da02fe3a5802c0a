//! Reports over manifests written by hand, as they are shown.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::{Value, json};

use super::show::{Fold, lines};
use super::*;
use crate::store::fixture;
use crate::text::Tone;

fn manifest(name: &str, serial: u64, identity: &str, more: &Value) -> Manifest {
    let prefix = format!("/srv/bm/{name}");
    let mut value = fixture::manifest(Path::new(&prefix), &identity.repeat(64), "", serial);
    let map = value.as_object_mut().unwrap();
    for (key, part) in more.as_object().unwrap() {
        map.insert(key.clone(), part.clone());
    }
    serde_json::from_value(value).unwrap()
}

fn tool(version: &str, content: &str) -> Value {
    json!({ "path": "/usr/bin/x", "version": version, "sha256": content.repeat(64) })
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// MySQL 5.7.18 without LTO.
fn old() -> Manifest {
    let work = "/srv/bm/.bm/work/my5718_rel-aaaaaaaa";
    let more = json!({
        "product": "mysql", "version": "5.7.18", "variant": "rel",
        "inputs": { "dependencies": { "boost-1.59.0": "b".repeat(64), "openssl-1.0.2u": "c".repeat(64) } },
        "sources": [{ "kind": "git", "url": "https://example.org/mysql.git", "ref": "mysql-5.7.18", "commit": "1".repeat(40),
            "pinned_by": "recipe", "obtained_from": "mirror", "time": 1 }],
        "patches": [
            { "file": "mysql/row0sel.patch", "sha256": "2".repeat(64), "offsets": [] },
            { "file": "mysql/both.patch", "sha256": "3".repeat(64), "offsets": [] },
        ],
        "flags": { "cflags": words("-g -O2"), "cxxflags": words("-g -O2 -std=gnu++98"), "ldflags": [] },
        "steps": [
            { "name": "unpack", "argv": [], "env": {}, "dir": null },
            { "name": "configure", "argv": ["cmake", "../src", "-DCMAKE_INSTALL_PREFIX=/srv/bm/my5718_rel", "-DWITH_RAPID=0",
                "-DCMAKE_C_FLAGS=-g -O2", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-O1 -Wl,-z,now"],
              "env": { "HOME_OF": "/srv/bm/my5718_rel", "ONLY": "here" }, "dir": "{build}" },
            { "name": "compile", "argv": ["make", "mysqld"], "env": {}, "dir": "{build}" },
        ],
        "toolchain": { "name": "gcc", "native": "", "defaults": { "pie": "yes", "std": "gnu17" }, "tools": {
            "cc": tool("gcc 12.2.0", "4"), "ld": tool("GNU ld 2.40", "5") } },
        "tools": { "cmake": tool("cmake version 3.25.1", "6") },
        "evidence": { "units": [], "sample_compile": [],
            "compiles": [{ "source": "sql/mysqld.cc", "dir": "build/sql", "argv": [
                "g++", "-I", format!("{work}/src/include"), "-DHOME=\"/srv/bm/my5718_rel\"", "-g", "-O2", "-std=gnu++98", "-c",
                "../../src/sql/mysqld.cc"] }],
            "links": [{ "file": "bin/mysqld", "argv": ["g++", "-O2", "-o", format!("{work}/build/sql/mysqld"), "a.o", "-lcrypt",
                "-lz"], "lto": false }] },
        "libraries": [
            { "soname": "libcrypt.so.1", "path": "/lib/libcrypt.so.1", "package": "libcrypt1 1:4.4.33-2" },
            { "soname": "libz.so.1", "path": "/lib/libz.so.1", "package": "zlib1g 1:1.2.13" },
        ],
        "host": { "os": "Debian 12", "os_id": "debian-12", "kernel": "6.1", "libc": "glibc 2.36", "cpu": "x",
            "cpu_flags": ["avx2", "sse2"] },
        "driver": { "server": "bin/mysqld" },
        "times": [{ "name": "compile", "wall": 9.0, "cpu": 1000.0, "max_rss_kib": 1_000_000 }],
        "size": 200_000_000,
    });
    manifest("my5718_rel", 1, "a", &more)
}

/// MySQL 5.7.32 with LTO, elsewhere.
fn new() -> Manifest {
    let work = "/other/root/.bm/work/my5732_rel_lto-dddddddd";
    let more = json!({
        "product": "mysql", "version": "5.7.32", "variant": "rel_lto",
        "inputs": { "dependencies": { "boost-1.59.0": "b".repeat(64) } },
        "dependencies": { "openssl-1.1.1w": "e".repeat(64) },
        "sources": [{ "kind": "git", "url": "https://example.org/mysql.git", "ref": "mysql-5.7.32", "commit": "7".repeat(40),
            "pinned_by": "command-line", "obtained_from": "mirror", "time": 2 }],
        "patches": [{ "file": "mysql/both.patch", "sha256": "8".repeat(64), "offsets": ["hunk 1: 3 lines"] }],
        "flags": { "cflags": words("-g -O2 -flto"), "cxxflags": words("-O2 -g -flto"), "ldflags": words("-flto") },
        "steps": [
            { "name": "configure", "argv": ["cmake", "../src", "-DCMAKE_INSTALL_PREFIX=/srv/bm/my5732_rel_lto",
                "-DCMAKE_C_FLAGS=-g -O2 -flto", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-O1", "-DWITH_SSL=/x y"],
              "env": { "HOME_OF": "/srv/bm/my5732_rel_lto" }, "dir": "{build}" },
            { "name": "compile", "argv": ["make", "mysqld"], "env": {}, "dir": "{build}" },
        ],
        "toolchain": { "name": "gcc", "native": "", "defaults": { "pie": "yes", "std": "gnu17" }, "tools": {
            "cc": tool("gcc 12.2.0", "9"), "ld": tool("GNU ld 2.42", "5") } },
        "tools": { "cmake": tool("cmake version 3.25.1", "6") },
        "evidence": { "units": [], "sample_compile": [],
            "compiles": [{ "source": "sql/mysqld.cc", "dir": "build/sql", "argv": [
                "g++", "-I", format!("{work}/src/include"), "-DHOME=\"/srv/bm/my5732_rel_lto\"", "-O2", "-g", "-flto", "-c",
                "../../src/sql/mysqld.cc", "-frandom-seed=0x1"] }],
            "links": [{ "file": "bin/mysqld", "argv": ["g++", "-O2", "-o", format!("{work}/build/sql/mysqld"), "a.o", "-flto=7",
                "-lz"], "lto": true, "lto_jobs": 7 }] },
        "libraries": [
            { "soname": "libz.so.1", "path": "/lib/libz.so.1", "package": "zlib1g 1:1.3.1" },
        ],
        "host": { "os": "Debian 12", "os_id": "debian-12", "kernel": "6.1", "libc": "glibc 2.36", "cpu": "x",
            "cpu_flags": ["sse2"] },
        "driver": { "server": "bin/mysqld" },
        "times": [{ "name": "compile", "wall": 9.0, "cpu": 1500.0, "max_rss_kib": 1_000_000 }],
        "size": 200_000_000, "compiler_cache": { "hits": 3, "misses": 1, "errors": 0 },
    });
    manifest("my5732_rel_lto", 2, "d", &more)
}

fn shown(report: &Report, fold: Fold) -> String {
    let lines: Vec<String> = lines(report, fold).into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}

const GOLDEN: &str = r#"- my5718_rel  mysql 5.7.18, built 2024-01-01T00:00:01Z, identity aaaaaaaaaaaa…
+ my5732_rel_lto  mysql 5.7.32, built 2024-01-01T00:00:02Z, identity dddddddddddd…
recipe
  version  5.7.18 -> 5.7.32
  variant  rel -> rel_lto
source
  pin  commit 111111111111… -> commit 777777777777…
  ref  mysql-5.7.18 -> mysql-5.7.32
  pinned by  recipe -> command-line
  proved by  upstream commit -> unproven copy
patches
  mysql/both.patch  333333333333… -> 888888888888…  (same name, other content)
  mysql/both.patch offsets  exact -> hunk 1: 3 lines
  applied  (1 word in both)
    - mysql/row0sel.patch
dependencies
  - openssl-1.0.2u  cccccccccccc…
  + openssl-1.1.1w  eeeeeeeeeeee…
flags
  cflags  (2 words in both)
    + -flto
  cxxflags  (2 words in both)
    - -std=gnu++98
    + -flto
    ~ -g  (in both, in another place)
  ldflags  (0 words in both)
    + -flto
commands
  configure  (4 words in both)
    - -DWITH_RAPID=0
    + '-DWITH_SSL=/x y'
  configure -DCMAKE_EXE_LINKER_FLAGS  (1 word in both)
    - -Wl,-z,now
environment
  - ONLY  here
toolchain
  cc  444444444444… -> 999999999999…  (same version, other content: gcc 12.2.0)
  ld  GNU ld 2.40 -> GNU ld 2.42
lines
  compile sql/mysqld.cc  (7 words in both)
    - -std=gnu++98
    + -flto -frandom-seed={seed}
    ~ -g  (in both, in another place)
  link bin/mysqld  (5 words in both)
    - -lcrypt
    + -flto={jobs}
libraries
  - libcrypt.so.1  libcrypt1 1:4.4.33-2
  libz.so.1  zlib1g 1:1.2.13 -> zlib1g 1:1.3.1
host
  cpu flags  (1 word in both)
    - avx2
costs
  CPU  1000.0 s -> 1500.0 s, 3 of 4 objects from the cache  (1.50 times)"#;

#[test]
fn what_differs_is_shown_and_the_rest_is_folded() {
    let report = diff(&old(), &new());
    assert!(report.differs);
    assert_eq!(shown(&report, Fold::Equal), GOLDEN);
    let all = shown(&report, Fold::Nothing);
    for line in [
        "\n  equal (product, toolchain)\n",
        "\n  equal (boost-1.59.0)\n",
        "\n  equal (compile)\n",
        "\n  equal (HOME_OF)\n",
        "\n  equal (cmake)\n",
        "\ndefaults: equal (pie, std)\n",
        "\n  equal (size, files, largest process)",
    ] {
        assert!(all.contains(line), "{line:?} in {all}");
    }
}

#[test]
fn the_other_way_round_signs_change_and_nothing_else() {
    let (there, back) = (diff(&old(), &new()), diff(&new(), &old()));
    for (x, y) in there.sections.iter().zip(&back.sections) {
        assert_eq!((x.name, x.differs, &x.equal), (y.name, y.differs, &y.equal));
        let count = |s: &Section| (s.values.len(), s.words.len());
        assert_eq!(count(x), count(y), "{}", x.name);
        for change in &x.values {
            let other = y.values.iter().find(|c| c.key == change.key).unwrap();
            assert_eq!((&change.a, &change.b), (&other.b, &other.a));
        }
    }
}

#[test]
fn two_builds_that_differ_in_places_and_cost_alone_differ_in_nothing() {
    let one = old();
    let text = serde_json::to_string(&one).unwrap();
    let moved = text
        .replace("my5718_rel", "again")
        .replace("aaaaaaaa\"", "0\"")
        .replace("/srv/bm", "/mnt/r");
    let mut again: Manifest = serde_json::from_str(&moved).unwrap();
    let report = diff(&one, &again);
    assert!(!report.differs, "{report:#?}");
    assert_eq!(
        shown(&report, Fold::Equal),
        "nothing differs between `my5718_rel` and `again`"
    );
    again.times[0].cpu = 900.0;
    let report = diff(&one, &again);
    let want = "nothing differs between `my5718_rel` and `again` but what they cost: \
                CPU 1000.0 s -> 900.0 s (0.90 times)";
    assert_eq!(shown(&report, Fold::Equal), want);
    let all = shown(&report, Fold::Nothing);
    assert!(all.starts_with("- my5718_rel") && all.ends_with(want), "{all}");
    assert!(
        all.contains("\nsource: equal (kind, pin, ref, url, obtained from, pinned by, proved by)\n"),
        "{all}"
    );
}

#[test]
fn manifests_of_an_older_bm_are_compared_by_the_one_line_they_have() {
    let sample = |m: Manifest, line: &str| {
        let mut m = m;
        m.evidence.compiles.clear();
        m.evidence.sample_compile = words(line).into_iter().map(str::to_owned).collect();
        m
    };
    let lines_of = |a: &Manifest, b: &Manifest| {
        let report = diff(a, b);
        let section = report.sections.into_iter().find(|s| s.name == "lines").unwrap();
        section
            .words
            .into_iter()
            .map(|w| (w.key, w.only_b.join(" ")))
            .collect::<Vec<_>>()
    };
    let (a, b) = (sample(old(), "gcc -c x/main.c"), sample(new(), "gcc -O3 -c y/main.c"));
    assert_eq!(
        lines_of(&a, &b)[0],
        ("compile main.c".to_owned(), "-O3 y/main.c".to_owned())
    );
    // Lines of two sources tell nothing about each other.
    let b = sample(new(), "gcc -O3 -c other.c");
    assert_eq!(lines_of(&a, &b)[0].0, "link bin/mysqld");
}

#[test]
fn long_lists_are_cut_and_control_characters_are_spelled_out() {
    let (one, mut other) = (old(), old());
    other
        .flags
        .insert("cflags".into(), (0..400).map(|n| format!("-DNUMBER_{n}=1")).collect());
    other.version = "5.7\u{1b}[31m".into();
    let report = diff(&one, &other);
    let text = shown(&report, Fold::Equal);
    assert!(text.contains("  version  5.7.18 -> 5.7\\u{1b}[31m\n"), "{text}");
    // Eight words fit into each of the first two lines, seven into each of the other ten.
    assert!(
        text.contains("    + ... 314 words more; `--all` shows them\n"),
        "{text}"
    );
    assert!(shown(&report, Fold::Nothing).contains("-DNUMBER_399=1"));
    let tones: Vec<Tone> = lines(&report, Fold::Equal).into_iter().map(|(tone, _)| tone).collect();
    assert_eq!(tones[..4], [Tone::Minus, Tone::Plus, Tone::Title, Tone::Plain]);
}
