//! Names of the catalogue (its 21 Postgres rows) against the shipped recipes, through the real
//! program. Every expectation was written by hand from the catalogue, the flags and the pins; none is
//! derived from a recipe.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

use serde_json::Value;

const LTO: &[&str] = &["-O3", "-march=native", "-mtune=native", "-flto"];

/// Name, version, number, variant, first digits of the tarball's sha256, first digits of the commit
/// (empty: not known), CFLAGS, LDFLAGS, lz4, ICU needed.
type Row = (
    &'static str,
    &'static str,
    u64,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    bool,
    bool,
);

const FLTO: &[&str] = &["-flto"];

const ROWS: [Row; 21] = [
    (
        "pg1119_o3_native_lto",
        "11.19",
        110019,
        "o3_native_lto",
        "13109e2b71f1",
        "",
        LTO,
        FLTO,
        false,
        false,
    ),
    (
        "pg1214_o3_native_lto",
        "12.14",
        120014,
        "o3_native_lto",
        "785610237d38",
        "",
        LTO,
        FLTO,
        false,
        false,
    ),
    (
        "pg1310_o3_native_lto",
        "13.10",
        130010,
        "o3_native_lto",
        "5bbcf5a56d85",
        "20aba55fae83",
        LTO,
        FLTO,
        false,
        false,
    ),
    (
        "pg147_o3_native_lto",
        "14.7",
        140007,
        "o3_native_lto",
        "cef60f0098fa",
        "e4c4e6258c74",
        LTO,
        FLTO,
        true,
        false,
    ),
    (
        "pg151_def",
        "15.1",
        150001,
        "def",
        "64fdf23d734a",
        "c5dc80c1bc21",
        &[],
        &[],
        true,
        false,
    ),
    (
        "pg151_o2_nofp",
        "15.1",
        150001,
        "o2_nofp",
        "64fdf23d734a",
        "c5dc80c1bc21",
        &["-O2", "-fno-omit-frame-pointer"],
        &[],
        true,
        false,
    ),
    (
        "pg151_o3",
        "15.1",
        150001,
        "o3",
        "64fdf23d734a",
        "c5dc80c1bc21",
        &["-O3"],
        &[],
        true,
        false,
    ),
    (
        "pg151_o3_native",
        "15.1",
        150001,
        "o3_native",
        "64fdf23d734a",
        "c5dc80c1bc21",
        &["-O3", "-march=native", "-mtune=native"],
        &[],
        true,
        false,
    ),
    (
        "pg151_o3_native_lto",
        "15.1",
        150001,
        "o3_native_lto",
        "64fdf23d734a",
        "c5dc80c1bc21",
        LTO,
        FLTO,
        true,
        false,
    ),
    (
        "pg152_o3_native_lto",
        "15.2",
        150002,
        "o3_native_lto",
        "99a2171fc3d6",
        "78ec02d612a9",
        LTO,
        FLTO,
        true,
        false,
    ),
    (
        "pg1121_o3_native_lto",
        "11.21",
        110021,
        "o3_native_lto",
        "07b0837471d5",
        "",
        LTO,
        FLTO,
        false,
        false,
    ),
    (
        "pg1216_o3_native_lto",
        "12.16",
        120016,
        "o3_native_lto",
        "c5f1fff7a0f9",
        "",
        LTO,
        FLTO,
        false,
        false,
    ),
    (
        "pg1312_o3_native_lto",
        "13.12",
        130012,
        "o3_native_lto",
        "0da1edcee351",
        "c9d50b21a72d",
        LTO,
        FLTO,
        false,
        false,
    ),
    (
        "pg149_o3_native_lto",
        "14.9",
        140009,
        "o3_native_lto",
        "b1fe3ba9b1a7",
        "86648dcdaec6",
        LTO,
        FLTO,
        true,
        false,
    ),
    (
        "pg153_o3_native_lto",
        "15.3",
        150003,
        "o3_native_lto",
        "ffc7d4891f00",
        "8382864eb5c9",
        LTO,
        FLTO,
        true,
        false,
    ),
    (
        "pg154_o3_native_lto",
        "15.4",
        150004,
        "o3_native_lto",
        "baec5a4bdc44",
        "83ed1f71c88a",
        LTO,
        FLTO,
        true,
        false,
    ),
    (
        "pg16beta1_o3_native_lto",
        "16beta1",
        160000,
        "o3_native_lto",
        "59e248d434aa",
        "e0b82fc8e831",
        LTO,
        FLTO,
        true,
        true,
    ),
    (
        "pg16beta2_o3_native_lto",
        "16beta2",
        160000,
        "o3_native_lto",
        "ba6531974651",
        "19508f4763b6",
        LTO,
        FLTO,
        true,
        true,
    ),
    (
        "pg16beta3_o3_native_lto",
        "16beta3",
        160000,
        "o3_native_lto",
        "ffcf44e27266",
        "0dd5545378d7",
        LTO,
        FLTO,
        true,
        true,
    ),
    (
        "pg16rc1_o3_native_lto",
        "16rc1",
        160000,
        "o3_native_lto",
        "ce97b3f4199a",
        "d94dadcc5020",
        LTO,
        FLTO,
        true,
        true,
    ),
    (
        "pg160_o3_native_lto",
        "16.0",
        160000,
        "o3_native_lto",
        "df9e823eb223",
        "2439153f4477",
        LTO,
        FLTO,
        true,
        true,
    ),
];

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

fn bm(args: &[&str]) -> Run {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bm"))
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("BM_ROOT", "/r")
        .env("BM_CACHE", home.path().join("cache"))
        .output()
        .unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn show(name: &str, more: &[&str]) -> Value {
    let mut args = vec!["show", "--json", name];
    args.extend(more);
    let run = bm(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect()
}

fn configure(build: &Value) -> Vec<&str> {
    let steps = build["steps"].as_array().unwrap();
    strings(&steps.iter().find(|s| s["name"] == "configure").unwrap()["argv"])
}

#[test]
fn every_row_of_the_catalogue_plans_exactly() {
    for (name, version, number, variant, sha256, commit, cflags, ldflags, lz4, icu) in ROWS {
        let build = show(name, &[]);
        assert_eq!(build["schema"], 1);
        assert_eq!(build["name"], name);
        assert_eq!(build["product"], "postgres");
        assert_eq!(build["version"], version);
        assert_eq!(build["version_num"], number);
        assert_eq!(build["variant"], variant);
        assert_eq!(build["toolchain"], "gcc");
        assert_eq!(build["prefix"], format!("/r/{name}"));
        assert_eq!(strings(&build["flags"]["cflags"]), cflags, "{name}");
        assert_eq!(strings(&build["flags"]["ldflags"]), ldflags, "{name}");
        let source = &build["sources"][0];
        assert_eq!(
            source["kind"], "tarball",
            "{name}: a pinned checksum makes it a tarball"
        );
        assert!(source["sha256"].as_str().unwrap().starts_with(sha256), "{name}");
        let argv = configure(&build);
        assert!(argv.contains(&"--enable-debug"), "{name}");
        assert!(argv.contains(&format!("--prefix=/r/{name}").as_str()), "{name}");
        assert_eq!(argv.contains(&"--with-lz4"), lz4, "{name}");
        assert!(!argv.iter().any(|a| a.contains("cassert")), "{name}");
        let given = argv.iter().find_map(|a| a.strip_prefix("CFLAGS="));
        assert_eq!(
            given.map(str::to_owned),
            (!cflags.is_empty()).then(|| cflags.join(" ")),
            "{name}"
        );
        let needs = build["needs_system"].to_string();
        assert_eq!(needs.contains("icu"), icu, "{name}: ICU is on by default from 16");
        if !commit.is_empty() {
            let git = show(name, &["--from", "git"]);
            assert_eq!(git["sources"][0]["kind"], "git");
            assert!(
                git["sources"][0]["commit"].as_str().unwrap().starts_with(commit),
                "{name}"
            );
            assert!(
                git["needs_system"].to_string().contains("bison"),
                "{name}: a git tree has no generated parsers"
            );
        }
    }
}

#[test]
fn other_spellings_lead_to_one_build_and_a_link() {
    for (asked, name) in [
        ("pg151_o2nofp", "pg151_o2_nofp"),
        // The newest 15.x of the pins is 15.17, of 16.x 16.13.
        ("pg15_o3_native_lto", "pg1517_o3_native_lto"),
        ("pg16_def", "pg1613_def"),
    ] {
        let build = show(asked, &[]);
        assert_eq!(build["name"], name);
        assert_eq!(strings(&build["aliases"]), [asked]);
    }
}

#[test]
fn toolchains_bring_their_own_tools() {
    let build = show("pg151_o3_native_lto_clang15", &[]);
    assert_eq!(build["toolchain"], "clang15");
    let argv = configure(&build);
    for word in ["CC=clang-15", "AR=llvm-ar-15"] {
        assert!(argv.contains(&word), "{argv:?}");
    }
    let ldflags = strings(&build["flags"]["ldflags"]);
    assert!(
        ldflags.contains(&"-flto") && ldflags.contains(&"-fuse-ld=lld"),
        "{ldflags:?}"
    );
    assert!(strings(&build["flags"]["cflags"]).contains(&"-grecord-command-line"));
}

#[test]
fn atoms_compose_variants_that_no_recipe_lists() {
    let build = show("pg151_o2_native", &[]);
    assert_eq!(
        strings(&build["flags"]["cflags"]),
        ["-O2", "-march=native", "-mtune=native"]
    );
    // Atoms keep one order, and a group is used once.
    for bad in ["pg151_native_o2", "pg151_o2_o3", "pg151_o2_o2"] {
        assert_eq!(bm(&["show", bad]).code, 2, "{bad}");
    }
}

#[test]
fn a_flag_list_without_a_level_does_not_lose_the_default_one() {
    let build = show("pg151_def_clang15", &[]);
    assert_eq!(strings(&build["flags"]["cflags"]), ["-O2", "-grecord-command-line"]);
}

#[test]
fn unlisted_releases_resolve_by_their_tag() {
    let build = show("pg1799_o3", &["--offline"]);
    assert_eq!(
        (build["version"].as_str(), build["sources"][0]["kind"].as_str()),
        (Some("17.99"), Some("git"))
    );
    assert_eq!(build["sources"][0]["ref"], "REL_17_99");
    assert_eq!(build["identity"], Value::Null);
    assert!(build["unresolved"].to_string().contains("REL_17_99"));
}

#[test]
fn sets_and_patterns_pick_what_they_say() {
    let names = |args: &[&str]| -> Vec<String> {
        let mut all = vec!["show", "--json"];
        all.extend(args);
        let run = bm(&all);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
            .lines()
            .map(|l| {
                serde_json::from_str::<Value>(l).unwrap()["name"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    let set = names(&["@pg151_flags"]);
    assert_eq!(
        set,
        [
            "pg151_def",
            "pg151_o2_nofp",
            "pg151_o3",
            "pg151_o3_native",
            "pg151_o3_native_lto"
        ]
    );
    assert_eq!(
        names(&["pg16{0,1}_o3_native_lto"]),
        ["pg160_o3_native_lto", "pg161_o3_native_lto"]
    );
    // Pre-releases and other toolchains take part only where they are spelled.
    assert!(
        names(&["pg16*_def"])
            .iter()
            .all(|n| !n.contains("beta") && !n.contains("clang"))
    );
    assert_eq!(
        names(&["pg16beta*_def"]),
        ["pg16beta1_def", "pg16beta2_def", "pg16beta3_def"]
    );
    // clang, clang13 to clang16 and clang19, and the plain one.
    assert_eq!(names(&["pg16rc1_def_clang*", "pg16rc1_def"]).len(), 7);
}

#[test]
fn wrong_names_get_the_nearest_right_ones() {
    let run = bm(&["build", "pg160_o3_natve_lto"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("unknown build `pg160_o3_natve_lto`"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("pg160_o3_native_lto"), "{}", run.stderr);
    let run = bm(&["build", "@pg_11_to_61"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("@pg_11_to_16"), "{}", run.stderr);
}

#[test]
fn many_builds_from_a_pattern_need_a_yes() {
    let run = bm(&["build", "--dry-run", "pg*"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--yes"), "{}", run.stderr);
}
