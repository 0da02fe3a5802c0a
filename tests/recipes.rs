//! The recipes, toolchains and sets that are shipped, and the messages about bad ones.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bm::error::Error;
use bm::library::Library;
use bm::model::recipe::{Cell, Family, Need, Recipe, SourceKind};
use bm::model::version::Version;
use bm::schema::recipe::recipe;
use bm::schema::{Kind, Paint, Source};

fn library() -> Library {
    Library::load(&[]).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn postgres(library: &Library) -> &Recipe {
    &library.recipes[&"postgres".parse().unwrap()]
}

fn configure_words(recipe: &Recipe, version: &str) -> Vec<String> {
    let version: Version = version.parse().unwrap();
    let cell = Cell {
        version: &version,
        family: Family::Gcc,
        compiler: None,
        source: SourceKind::Tarball,
        atoms: &[],
        choices: &BTreeMap::new(),
    };
    let holding = recipe.configure.iter().filter(|c| c.when.holds(&cell));
    holding.flat_map(|c| c.value.iter().map(|w| w.text.clone())).collect()
}

fn needs(recipe: &Recipe, version: &str, source: SourceKind) -> BTreeSet<Need> {
    let version: Version = version.parse().unwrap();
    let cell = Cell {
        version: &version,
        family: Family::Gcc,
        compiler: None,
        source,
        atoms: &[],
        choices: &BTreeMap::new(),
    };
    recipe
        .requires
        .iter()
        .filter(|c| c.when.holds(&cell))
        .map(|c| c.value.need.clone())
        .collect()
}

#[test]
fn every_shipped_file_is_in_the_library() {
    let library = library();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stems = |dir: &str| -> BTreeSet<String> {
        let entries = fs_err::read_dir(root.join(dir)).unwrap().map(|e| e.unwrap().path());
        let toml = entries.filter(|p| p.extension().is_some_and(|e| e == "toml"));
        toml.map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned())
            .filter(|s| s != "verified")
            .collect()
    };
    let names = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(
        names(library.recipes.keys().map(ToString::to_string).collect()),
        stems("recipes")
    );
    assert_eq!(
        names(library.toolchains.keys().map(ToString::to_string).collect()),
        stems("toolchains")
    );
    assert_eq!(
        names(library.sets.keys().map(ToString::to_string).collect()),
        stems("recipes/sets")
    );
}

/// Copied by hand from the published pins; empty where none is known.
const PINS: &[(&str, &str, &str)] = &[
    (
        "11beta4",
        "df8b5f3eb8a7c477156d0ad9d83e7297912cfe79",
        "bb0b21f7f551cf5b3e13c05fdf8266fd0ce14db1f62e9c8d21b395ddbaf68fe4",
    ),
    (
        "11.1",
        "d06fe6ce2c79420fd19ac89ace81b66579f08493",
        "90815e812874831e9a4bf6e1136bf73bc2c5a0464ef142e2dfea40cda206db08",
    ),
    (
        "11.19",
        "",
        "13109e2b71f1139405c27201da3733a61ace72ee1c228d9c9f0320e06aee14c2",
    ),
    (
        "11.21",
        "",
        "07b0837471d5dd77b25166b34718f3ba10816b6ad61e691e6fc547cf3fcff850",
    ),
    (
        "12.14",
        "",
        "785610237d382c842d356e347138e58c06ffeae240e6cc0b52ac5ebcc30d043e",
    ),
    (
        "12.16",
        "",
        "c5f1fff7a0f93e1ec3746417b0594290ece617b4995ed95b8d527af0ba0e38f3",
    ),
    (
        "13.10",
        "20aba55fae83cd0b6f7511365d172da8cd7e0135",
        "5bbcf5a56d85c44f3a8b058fb46862ff49cbc91834d07e295d02e6de3c216df2",
    ),
    (
        "13.12",
        "c9d50b21a72d2bbc092ea9d7de4d4c044d8f8275",
        "0da1edcee3514b7bc7ba6dbaf0c00499e8ac1590668e8789c50253a6249f218b",
    ),
    (
        "14.7",
        "e4c4e6258c747d440e161f387d2eff84a835ca08",
        "cef60f0098fa8101c1546f4254e45b722af5431337945b37af207007630db331",
    ),
    (
        "14.9",
        "86648dcdaec67b83cec20a9d25b45ec089a7c624",
        "b1fe3ba9b1a7f3a9637dd1656dfdad2889016073fd4d35f13b50143cbbb6a8ef",
    ),
    (
        "15.1",
        "c5dc80c1bc216f0e21a2f79f5e0415c2d4cfb35d",
        "64fdf23d734afad0dfe4077daca96ac51dcd697e68ae2d3d4ca6c45cb14e21ae",
    ),
    (
        "15.2",
        "78ec02d612a9b69039ec2610740f738968fe144d",
        "99a2171fc3d6b5b5f56b757a7a3cb85d509a38e4273805def23941ed2b8468c7",
    ),
    (
        "15.3",
        "8382864eb5c9f9ebe962ac20b3392be5ae304d23",
        "ffc7d4891f00ffbf5c3f4eab7fbbced8460b8c0ee63c5a5167133b9e6599d932",
    ),
    (
        "15.4",
        "83ed1f71c88ae948a5b6ec6d2a4802cc54470102",
        "baec5a4bdc4437336653b6cb5d9ed89be5bd5c0c58b94e0becee0a999e63c8f9",
    ),
    (
        "16beta1",
        "e0b82fc8e8317881ecdd1e28bece55ea0db952da",
        "59e248d434aa515fa2d31c0d161c4148f30d511dcde91f6e888684823b6849a8",
    ),
    (
        "16beta2",
        "19508f4763b6e55baae788af000ee47e74d24370",
        "ba653197465180c93775b4949a89dc6fbfebae2a44587ae7168fdfd24f519b50",
    ),
    (
        "16beta3",
        "0dd5545378d79bc0080dd34824f428458cf7448d",
        "ffcf44e272662f6ac451a8d6d6ff951715db651c8d4907ec659cbde46abd52d3",
    ),
    (
        "16rc1",
        "d94dadcc5020f6746203896dba5a9627872ba2ee",
        "ce97b3f4199a702a19ced11f86d0b93bb1fa55e869129e1435210ed8d505fa84",
    ),
    (
        "16.0",
        "2439153f4477892b5af0f05e1c95eb0a048608bd",
        "df9e823eb22330444e1d48e52cc65135a652a6fdb3ce325e3f08549339f51b99",
    ),
    (
        "16.13",
        "",
        "dc2ddbbd245c0265a689408e3d2f2f3f9ba2da96bd19318214b313cdd9797287",
    ),
];

#[test]
fn pins_are_the_published_ones() {
    let library = library();
    for (id, commit, sha256) in PINS {
        let recipe = postgres(&library);
        let pinned = recipe
            .versions
            .iter()
            .find(|v| v.version.to_string() == *id)
            .unwrap_or_else(|| panic!("{id}"));
        assert_eq!(pinned.commit.as_deref().unwrap_or(""), *commit, "{id}");
        assert_eq!(pinned.sha256.as_deref().unwrap_or(""), *sha256, "{id}");
    }
}

#[test]
fn every_minor_release_of_postgres_11_to_16_is_pinned() {
    let library = library();
    let ids: BTreeSet<_> = postgres(&library)
        .versions
        .iter()
        .map(|v| v.version.to_string())
        .collect();
    for (series, last) in [(11, 22), (12, 22), (13, 23), (14, 22), (15, 17), (16, 13)] {
        for minor in 0..=last {
            assert!(ids.contains(&format!("{series}.{minor}")), "{series}.{minor}");
        }
    }
    for id in ["16beta1", "16beta2", "16beta3", "16rc1"] {
        assert!(ids.contains(id), "{id}");
    }
    assert!(postgres(&library).versions.iter().all(|v| v.sha256.is_some()));
}

#[test]
fn every_postgres_build_of_the_catalogue_is_in_a_set() {
    let mut catalogue: BTreeSet<String> = [
        "1119", "1214", "1310", "147", "151", "152", "1121", "1216", "1312", "149", "153", "154", "160",
    ]
    .into_iter()
    .chain(["16beta1", "16beta2", "16beta3", "16rc1"])
    .map(|release| format!("pg{release}_o3_native_lto"))
    .collect();
    catalogue.extend(["def", "o2_nofp", "o3", "o3_native"].map(|variant| format!("pg151_{variant}")));
    let library = library();
    let listed = library
        .sets
        .values()
        .flat_map(|set| set.builds.iter().map(|b| b.text.clone()))
        .filter(|name| name.starts_with("pg"))
        .collect();
    assert_eq!(catalogue, listed);
}

#[test]
fn sets_hold_one_study_each() {
    let library = library();
    let check = |name: &str, want: &[&str]| {
        let set = &library.sets[&name.parse().unwrap()];
        assert_eq!(
            set.builds.iter().map(|b| b.text.as_str()).collect::<Vec<_>>(),
            want,
            "{name}"
        );
    };
    check(
        "pg151_flags",
        &[
            "pg151_def",
            "pg151_o2_nofp",
            "pg151_o3",
            "pg151_o3_native",
            "pg151_o3_native_lto",
        ],
    );
    check(
        "pg_11_to_16",
        &[
            "pg1121_o3_native_lto",
            "pg1216_o3_native_lto",
            "pg1312_o3_native_lto",
            "pg149_o3_native_lto",
            "pg154_o3_native_lto",
            "pg160_o3_native_lto",
        ],
    );
}

#[test]
fn options_and_needs_follow_the_version() {
    let library = library();
    let recipe = postgres(&library);
    assert_eq!(configure_words(recipe, "13.23"), ["--enable-debug"]);
    assert_eq!(configure_words(recipe, "14beta2"), ["--enable-debug", "--with-lz4"]);
    let icu = Need::PkgConfig("icu-uc".into());
    let bison = Need::Program("bison".into());
    let check = |version: &str, source, want_icu: bool, want_bison: bool| {
        let needs = needs(recipe, version, source);
        assert_eq!(
            (needs.contains(&icu), needs.contains(&bison)),
            (want_icu, want_bison),
            "{version} {source}"
        );
    };
    check("15.17", SourceKind::Tarball, false, false);
    check("15.17", SourceKind::Git, false, true);
    check("16beta1", SourceKind::Tarball, true, false);
    check("17.0", SourceKind::Tarball, true, true);
}

#[test]
fn atoms_carry_the_flags_their_names_stand_for() {
    let library = library();
    let recipe = postgres(&library);
    let flags = |variant: &str| {
        let atoms = &recipe.variants[&variant.parse().unwrap()].atoms;
        let named = atoms
            .iter()
            .map(|name| recipe.atoms.iter().find(|a| a.name == *name).unwrap());
        let (mut words, mut lto) = (vec![], false);
        for atom in named {
            words.extend(atom.flags.cflags.iter().map(|w| w.text.as_str()));
            lto |= atom.lto;
        }
        (words.join(" "), lto)
    };
    let check = |variant: &str, want: &str, lto: bool| assert_eq!(flags(variant), (want.to_owned(), lto), "{variant}");
    check("def", "", false);
    check("o2_nofp", "-O2 -fno-omit-frame-pointer", false);
    check("o3", "-O3", false);
    check("o3_native", "-O3 -march=native -mtune=native", false);
    check("o3_native_lto", "-O3 -march=native -mtune=native", true);
    check(
        "o3_native_lto_nofp",
        "-O3 -march=native -mtune=native -fno-omit-frame-pointer",
        true,
    );
}

#[test]
fn a_versioned_toolchain_is_all_of_one_version() {
    let library = library();
    let names: Vec<_> = library.toolchains.keys().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "clang", "clang13", "clang14", "clang15", "clang16", "clang19", "gcc", "gcc11", "gcc12"
        ]
    );
    for toolchain in library.toolchains.values() {
        let number = toolchain
            .name
            .as_str()
            .trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let programs = [
            &toolchain.cc,
            &toolchain.cxx,
            &toolchain.ar,
            &toolchain.nm,
            &toolchain.ranlib,
        ];
        if number.is_empty() {
            assert!(toolchain.version.is_none());
            continue;
        }
        for program in programs.into_iter().chain(&toolchain.lto_programs) {
            assert!(
                program.text.ends_with(&format!("-{number}")),
                "{}: {}",
                toolchain.name,
                program.text
            );
        }
        assert_eq!(toolchain.version.as_ref().unwrap().to_string(), format!("={number}"));
        assert_eq!(
            toolchain.record.cflags.is_empty(),
            toolchain.family == Family::Gcc,
            "{}",
            toolchain.name
        );
    }
}

#[test]
fn every_shipped_patch_is_used() {
    let library = library();
    let used: BTreeSet<String> = library
        .recipes
        .values()
        .flat_map(|r| r.patches.iter().map(|p| p.value.file.clone()))
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("patches");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert!(
                    name == ".gitkeep" || used.contains(&name),
                    "patch `{name}` is used by no recipe"
                );
            }
        }
    }
}

/// A recipe of the user's with a mistake in it, and all that is said about it.
fn messages(edit: impl Fn(String) -> String) -> String {
    let good = r#"product = "mysql"
description = "MySQL"
build-system = "autoconf"
series-parts = 2
smoke = "command"
smoke-command = ["bin/mysqld", "--version"]
compile = [{ args = ["all"] }]
install = [{ args = ["install"] }]
variants = { rel = [] }
versions = [
  { id = "8.0.36", sha256 = "0f0e0d0c0b0a090807060504030201000f0e0d0c0b0a09080706050403020100" },
]

[names]
release = "my{version.compact}"
series = "my{version.series}"
build = "{release}_{variant}{_toolchain}"
git = "my_git_{commit9}"

[source.tarball]
urls = ["https://example.org/mysql-{version}.tar.gz"]
"#;
    let text = edit(good.to_owned());
    let source = Source::new(Kind::Recipe, "recipes/mysql.toml", &text, Paint::Plain);
    match recipe(&source, &|_| false) {
        Ok(_) => "fine".to_owned(),
        Err(errors) => errors.iter().map(shown).collect::<Vec<_>>().join("\n\n"),
    }
}

fn shown(e: &Error) -> String {
    let mut text = e.rendered_snippet().unwrap_or_else(|| e.headline()).to_owned();
    if let Some(hint) = e.hint_text() {
        text = format!("{text}\nhint: {hint}");
    }
    text
}

#[test]
fn a_good_recipe_says_nothing() {
    assert_eq!(messages(|t| t), "fine");
}

#[test]
fn an_unknown_key_comes_with_the_near_one() {
    let found = messages(|t| t.replace("urls =", "ulrs ="));
    snapbox::assert_data_eq!(
        found,
        snapbox::str![[r#"
error: unknown key `ulrs` in recipe `mysql`
  --> recipes/mysql.toml:21:1
   |
21 | ulrs = ["https://example.org/mysql-{version}.tar.gz"]
   | ^^^^ not a key of `source.tarball`
hint: did you mean `urls`?
"#]]
    );
}

#[test]
fn a_wrong_type_names_what_is_expected() {
    let found = messages(|t| {
        t.replace("[{ args = [\"all\"] }]", "[{ args = \"all\" }]")
            .replace("series-parts = 2", "series-parts = \"2\"")
    });
    snapbox::assert_data_eq!(
        found,
        snapbox::str![[r#"
error: wrong type for `series-parts` in recipe `mysql`
 --> recipes/mysql.toml:4:16
  |
4 | series-parts = "2"
  |                ^^^ expected an integer, found a string

error: wrong type for `compile.args` in recipe `mysql`
 --> recipes/mysql.toml:7:21
  |
7 | compile = [{ args = "all" }]
  |                     ^^^^^ expected an array of strings, found a string
hint: put it in `[ ]`
"#]]
    );
}

#[test]
fn a_bad_checksum_is_shown() {
    let found = messages(|t| t.replace("0f0e", "0F0E"));
    snapbox::assert_data_eq!(
        found,
        snapbox::str![[r#"
error: bad sha256 in recipe `mysql`
  --> recipes/mysql.toml:11:29
   |
11 |   { id = "8.0.36", sha256 = "0F0E0d0c0b0a090807060504030201000F0E0d0c0b0a09080706050403020100" },
   |                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ expected 64 digits of 0-9 and a-f, found `F`
"#]]
    );
}

#[test]
fn two_errors_in_one_file_are_both_reported() {
    let found = messages(|t| t.replace("smoke-command", "smoke-cmd").replace("8.0.36", "8.0.x"));
    snapbox::assert_data_eq!(
        found,
        snapbox::str![[r#"
error: unknown key `smoke-cmd` in recipe `mysql`
 --> recipes/mysql.toml:6:1
  |
6 | smoke-cmd = ["bin/mysqld", "--version"]
  | ^^^^^^^^^ not a key at the top of the file
hint: did you mean `smoke-command` or `smoke`?

error: bad version in recipe `mysql`
  --> recipes/mysql.toml:11:10
   |
11 |   { id = "8.0.x", sha256 = "0f0e0d0c0b0a090807060504030201000f0e0d0c0b0a09080706050403020100" },
   |          ^^^^^^^ `8.0.x` is not a version: expected numbers parted by dots
"#]]
    );
}

#[test]
fn syntax_errors_are_all_reported() {
    let found = messages(|t| t.replace("\"MySQL\"", "MySQL").replace("[names]", "[names"));
    snapbox::assert_data_eq!(
        found,
        snapbox::str![[r#"
error: syntax error in recipe `mysql`
 --> recipes/mysql.toml:2:15
  |
2 | description = MySQL
  |               ^^^^^ string values must be quoted, expected literal string

error: syntax error in recipe `mysql`
  --> recipes/mysql.toml:14:7
   |
14 | [names
   |       ^ unclosed table, expected `]`
"#]]
    );
}

#[test]
fn two_versions_of_one_name_show_both_places() {
    let found = messages(|t| {
        t.replace("versions = [\n", "versions = [\n  { id = \"80.36\", sha256 = \"0f0e0d0c0b0a090807060504030201000f0e0d0c0b0a09080706050403020100\" },\n")
    });
    snapbox::assert_data_eq!(
        found,
        snapbox::str![[r#"
error: versions `80.36` and `8.0.36` are both named `my8036` in recipe `mysql`
  --> recipes/mysql.toml:12:10
   |
11 |   { id = "80.36", sha256 = "0f0e0d0c0b0a090807060504030201000f0e0d0c0b0a09080706050403020100" },
   |          ------- this one
12 |   { id = "8.0.36", sha256 = "0f0e0d0c0b0a090807060504030201000f0e0d0c0b0a09080706050403020100" },
   |          ^^^^^^^^ and this one
"#]]
    );
}
