//! Recipes that are right and wrong, one mistake at a time.

#![allow(clippy::unwrap_used)]

use super::super::diagnostic::{Kind, Paint};
use super::*;
use crate::model::recipe::{Cell, Family as ModelFamily, Need, SourceKind};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A small recipe that is right.
fn good() -> String {
    format!(
        r#"
product = "demo"
description = "a demonstration"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/demo", "--version"]
compile = [{{ args = ["all"] }}]
install = [{{ args = ["install"] }}]
configure = [{{ args = ["--fast"] }}, {{ when = {{ versions = ">=2", family = "clang" }}, reason = "new", args = ["--new={{version}}"] }}]
requires = [{{ program = "make", packages = {{ debian = ["make"] }} }}]
patches = [{{ file = "demo/fix.patch", strip = 0 }}]
expect = [{{ compile-lines = ["src/main.c"], files = ["{{lib,lib/x}}/demo.so"], undefined = [{{ header = "include/c.h", macro = "DEBUG" }}] }}]
variants = {{ def = [], o3_lto = ["o3", "lto"] }}
variant-aliases = {{ fast = "o3_lto" }}
atoms = [
  {{ name = "o2", group = "level", cflags = ["-O2"] }},
  {{ name = "o3", group = "level", cflags = ["-O3"], claims = {{ optimisation = "3" }} }},
  {{ name = "lto", lto = true }},
]
versions = [
  {{ id = "2.0", commit = "{COMMIT}" }},
  {{ id = "1.1", commit = "{COMMIT}" }},
]
[names]
release = "d{{version.compact}}"
series = "d{{version.series}}"
build = "{{release}}_{{variant}}{{_toolchain}}"
git = "d_git_{{commit9}}"
[source.git]
url = "https://example.org/demo.git"
tag = "v{{version}}"
"#
    )
}

fn read(text: &str) -> Result<Recipe, Vec<Error>> {
    let source = Source::new(Kind::Recipe, "recipes/demo.toml", text, Paint::Plain);
    recipe(&source, &|file| file == "demo/fix.patch")
}

fn headlines(text: &str) -> Vec<String> {
    let errors = read(text).unwrap_err();
    errors
        .iter()
        .map(|e| e.headline().replace(" in recipe `demo`", ""))
        .collect()
}

#[test]
fn a_good_recipe_is_read_with_the_line_of_every_word() {
    let recipe = read(&good()).unwrap();
    let ids: Vec<_> = recipe.versions.iter().map(|v| v.version.to_string()).collect();
    assert_eq!(ids, ["1.1", "2.0"], "in version order");
    assert_eq!(recipe.configure[1].value[0].origin.to_string(), "recipes/demo.toml:10");
    assert_eq!(
        recipe.configure[1].reason.as_ref().map(|r| r.text.as_str()),
        Some("new")
    );
    assert_eq!(
        recipe.atoms.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(),
        ["o2", "o3", "lto"]
    );
    assert_eq!(recipe.requires[0].value.need, Need::Program("make".into()));
    assert_eq!(recipe.patches[0].value.strip, 0);
    assert_eq!(
        recipe.expect[0].value.undefined,
        [("include/c.h".into(), "DEBUG".into())]
    );
    assert_eq!(recipe.expect[0].value.compile_lines[0].text, "src/main.c");
    let none = std::collections::BTreeMap::new();
    let cell = |version, family| Cell {
        version,
        family,
        compiler: None,
        source: SourceKind::Git,
        atoms: &[],
        choices: &none,
    };
    let new = &recipe.versions[1].version;
    assert!(recipe.configure[1].when.holds(&cell(new, ModelFamily::Clang)));
    assert!(!recipe.configure[1].when.holds(&cell(new, ModelFamily::Gcc)));
}

#[test]
fn each_mistake_is_found_and_nothing_else() {
    let cases = [
        (
            "product = \"demo\"",
            "product = \"other\"",
            "product and file name differ",
        ),
        ("a demonstration", " ", "empty description"),
        ("series-parts = 1", "series-parts = 0", "bad number for `series-parts`"),
        (
            "\"autoconf\"",
            "\"autoconfig\"",
            "unknown value `autoconfig` for `build-system`",
        ),
        (
            "smoke = \"command\"",
            "smoke = \"postgres\"",
            "smoke command that nothing runs",
        ),
        (
            "smoke = \"command\"",
            "smoke = \"mysql\"",
            "smoke command that nothing runs",
        ),
        (
            "smoke = \"command\"",
            "smoke = \"mysqld\"",
            "unknown value `mysqld` for `smoke`",
        ),
        ("smoke-command", "smoke-comand", "unknown key `smoke-comand`"),
        ("[\"bin/demo\", \"--version\"]", "[]", "no smoke command"),
        ("[{ args = [\"install\"] }]", "[]", "empty list"),
        ("[\"--fast\"]", "[]", "empty list"),
        ("\"--fast\"", "\"\"", "empty word"),
        (">=2", "2", "bad range"),
        (
            "\"clang\"",
            "\"clan\"",
            "unknown value `clan` for `configure.when.family`",
        ),
        ("--new={version}", "--new={versoin}", "unknown field `{versoin}`"),
        ("--new={version}", "--new={version", "bad template"),
        (
            "program = \"make\"",
            "program = \"make\", header = \"x.h\"",
            "unclear requirement",
        ),
        ("{ program = \"make\", ", "{ ", "unclear requirement"),
        ("[\"make\"]", "[\"GNU make\"]", "bad package name"),
        (
            "demo/fix.patch",
            "demo/gone.patch",
            "patch `demo/gone.patch` is missing",
        ),
        ("strip = 0", "strip = 10", "bad number for `strip`"),
        ("strip = 0", "strip = \"0\"", "wrong type for `patches.strip`"),
        ("{lib,lib/x}", "{lib}", "bad path"),
        ("{lib,lib/x}/", "../", "bad path"),
        ("src/main.c", "../main.c", "bad path"),
        (
            "o3_lto = [\"o3\", \"lto\"]",
            "o3_lto = [\"lto\", \"o3\"]",
            "atom `o3` is out of order",
        ),
        (
            "[\"o3\", \"lto\"]",
            "[\"o2\", \"o3\", \"lto\"]",
            "atoms `o2` and `o3` exclude each other",
        ),
        (
            "[\"o3\", \"lto\"]",
            "[\"o3\", \"lto\", \"lto\"]",
            "atom `lto` is listed twice",
        ),
        (
            "[\"o3\", \"lto\"]",
            "[\"o3\", \"lto\", \"natve\"]",
            "unknown atom `natve`",
        ),
        (
            "[\"o3\", \"lto\"]",
            "[\"o3\"]",
            "variant `o3_lto` is named after atom `lto` but does not have it",
        ),
        (
            "def = []",
            "def = [], base = []",
            "variants `def` and `base` are the same",
        ),
        ("\"o3_lto\" }", "\"o3_lt\" }", "alias `fast` stands for nothing"),
        ("fast = ", "def = ", "alias `def` is a variant"),
        (
            "fast = \"o3_lto\"",
            "o2 = \"o3_lto\"",
            "variant `o2` is named after atom `o2` but does not have it",
        ),
        (
            "{ name = \"lto\"",
            "{ name = \"o-x\" }, { name = \"lto\"",
            "bad atom name",
        ),
        (
            "{ name = \"lto\"",
            "{ name = \"o2\" }, { name = \"lto\"",
            "atom `o2` is listed twice",
        ),
        ("[\"-O3\"]", "[\"-O3 -g\"]", "blank in a flag"),
        ("[\"-O3\"]", "\"-O3\"", "wrong type for `atoms.cflags`"),
        (
            "optimisation = \"3\"",
            "optimisation = \"4\"",
            "unknown value `4` for `atoms.claims.optimisation`",
        ),
        ("id = \"2.0\"", "id = \"1.1\"", "version `1.1` is listed twice"),
        ("id = \"2.0\"", "id = \"two\"", "bad version"),
        (
            "id = \"2.0\"",
            "id = \"11\"",
            "versions `11` and `1.1` are both named `d11`",
        ),
        ("id = \"2.0\"", "id = \"1\"", "version `1` has the name of a series"),
        ("d{version.compact}", "D{version.compact}", "bad release name"),
        ("d{version.series}", "d", "missing field `{version.series}`"),
        ("{_toolchain}", "", "missing field `{toolchain}`"),
        ("v{version}", "v{tag}", "unknown field `{tag}`"),
        ("https://example.org/demo.git", "demo.git", "bad URL"),
        ("https://example.org", "https://me:secret@example.org", "bad URL"),
        ("[source.git]\nurl", "[source.gti]\nurl", "unknown key `gti`"),
        ("tag = \"v{version}\"", "", "missing key `source.git.tag`"),
    ];
    for (from, to, want) in cases {
        let text = good().replacen(from, to, 1);
        assert_ne!(text, good(), "{from} is not in the recipe");
        let found = headlines(&text);
        assert!(found.contains(&want.to_owned()), "{to}: {found:?}");
        // A template of names is wrong for every release, and `11` is the name of a series too.
        if !["bad release name", "versions `11` and `1.1` are both named `d11`"].contains(&want) {
            assert_eq!(found.len(), 1, "{to}: {found:?}");
        }
    }
}

#[test]
fn pins_are_whole_and_have_a_source() {
    let cases = [
        (
            format!("commit = \"{COMMIT}\""),
            "commit = \"0123\"".to_owned(),
            "bad commit",
        ),
        (COMMIT.to_owned(), COMMIT.to_uppercase(), "bad commit"),
        (
            format!(", commit = \"{COMMIT}\""),
            String::new(),
            "version `2.0` is not pinned",
        ),
        (
            format!("commit = \"{COMMIT}\""),
            format!("sha256 = \"{}\"", "a".repeat(64)),
            "pin without a source",
        ),
    ];
    for (from, to, want) in cases {
        assert_eq!(headlines(&good().replacen(&from, &to, 1)), [want], "{to}");
    }
}

#[test]
fn a_label_tells_what_to_do() {
    let text = good().replace("d{version.compact}", "d{version.comapct}");
    let errors = read(&text).unwrap_err();
    assert_eq!(errors[0].hint_text(), Some("did you mean `version.compact`?"));
    let snippet = errors[0].rendered_snippet().unwrap();
    assert!(snippet.contains("release = \"d{version.comapct}\"\n"), "{snippet}");
    assert!(
        snippet.contains("the name of a release can use `version`, `version.compact`"),
        "{snippet}"
    );
}

const OPTION: &str = r#"
[[options]]
name = "ssl"
about = "TLS library"
choices = [{ name = "bundled" }, { name = "own", needs = "openssl-1.1.1w", args = ["-DWITH_SSL={need.ssl}"] }]
default = [{ choice = "bundled" }, { when = { versions = "<2" }, choice = "own" }]
"#;

#[test]
fn what_options_say_must_fit_together() {
    let text = format!("{}{OPTION}", good());
    let recipe = read(&text).unwrap();
    let option = &recipe.options[0];
    assert_eq!(option.choices[1].needs.as_ref().unwrap().text, "openssl-1.1.1w");
    assert_eq!(option.default.len(), 2);
    for (from, to, want) in [
        (
            "choice = \"bundled\" }",
            "choice = \"bundeld\" }",
            "option `ssl` has no choice `bundeld`",
        ),
        (
            "name = \"own\"",
            "name = \"bundled\"",
            "choice `bundled` is listed twice",
        ),
        ("name = \"ssl\"", "name = \"s-l\"", "bad name of an option"),
        ("name = \"own\"", "name = \"o-n\"", "bad name of a choice"),
        (", needs = \"openssl-1.1.1w\"", "", "unknown field `{need.ssl}`"),
        ("{need.ssl}", "{need.tls}", "unknown field `{need.tls}`"),
        ("{ choice = \"bundled\" }, ", "", "no default"),
    ] {
        let found = headlines(&text.replacen(from, to, 1));
        assert!(found.iter().any(|headline| headline == want), "{to}: {found:?}");
    }
    for (row, want) in [
        ("when = { atom = \"o9\" }", "unknown atom `o9`"),
        ("when = { choice = \"ssl-sytem\" }", "unknown choice `ssl-sytem`"),
        ("when = { choice = \"ssl\" }", "bad choice"),
    ] {
        let text = format!("{text}\n[[flags]]\n{row}\ncflags = [\"-g\"]\n");
        assert_eq!(headlines(&text), [want], "{row}");
    }
}

#[test]
fn forms_of_an_archive_are_known_and_have_sums_of_their_own() {
    let sum = |digit: &str| digit.repeat(64);
    let tarball = "\n[source.tarball]\nurls = [\"https://example.org/d-{version}.tar.gz\"]\n\
                   forms = { boost = [\"https://example.org/d-boost-{version}.tar.gz\"] }\n";
    let row = |forms: &str| {
        let pin = format!("commit = \"{COMMIT}\"");
        let pins = format!("{pin}, sha256 = \"{}\", forms = {{ {forms} }}", sum("a"));
        format!("{}{tarball}", good()).replacen(&pin, &pins, 1)
    };
    assert!(read(&row(&format!("boost = \"{}\"", sum("b")))).is_ok());
    for (forms, want) in [
        (
            format!("boost = \"{}\"", sum("a")),
            "one checksum for two archives of version `2.0`",
        ),
        (format!("bost = \"{}\"", sum("b")), "unknown form `bost` of the archive"),
        ("boost = \"b\"".to_owned(), "bad sha256"),
    ] {
        let found = headlines(&row(&forms));
        assert!(found.iter().any(|headline| headline == want), "{forms}: {found:?}");
    }
}

#[test]
fn a_recipe_extends_another_one_and_says_only_what_is_its_own() {
    let base = read(&good()).unwrap();
    let bases = std::collections::BTreeMap::from([(base.product.clone(), base)]);
    let text = format!(
        "product = \"fork\"\nextends = \"demo\"\ndescription = \"a fork\"\n\
         versions = [{{ id = \"2.0-7\", commit = \"{COMMIT}\" }}]\n\
         [names]\nrelease = \"f{{version.numbers}}\"\nseries = \"f{{version.series}}\"\n\
         build = \"{{release}}_{{variant}}{{_toolchain}}\"\ngit = \"f_git_{{commit9}}\"\n\
         [source.git]\nurl = \"https://example.org/fork.git\"\ntag = \"v{{version}}\"\n\
         [[configure]]\nargs = [\"--fork\"]\n"
    );
    let source = |text: &str| Source::new(Kind::Recipe, "recipes/fork.toml", text, Paint::Plain);
    assert!(extends(&source(&text)) && !extends(&source(&good())));
    let fork = extension(&source(&text), &bases).unwrap();
    let base = &bases[&"demo".parse().unwrap()];
    assert_eq!((fork.product.as_str(), fork.versions.len()), ("fork", 1));
    assert_eq!(fork.variants.len(), base.variants.len());
    assert_eq!(fork.configure.len(), base.configure.len() + 1);
    let origins = [&fork.configure[0], fork.configure.last().unwrap()].map(|c| c.value[0].origin.to_string());
    assert!(
        origins[0].starts_with("recipes/demo.toml:") && origins[1].starts_with("recipes/fork.toml:"),
        "{origins:?}"
    );
    for (from, to, want) in [
        ("extends = \"demo\"", "extends = \"dmo\"", "unknown product `dmo`"),
        (
            "product = \"fork\"",
            "product = \"frok\"",
            "product and file name differ",
        ),
        (
            "[[configure]]",
            "[[atoms]]\nname = \"x\"\n[[configure]]",
            "unknown key `atoms`",
        ),
    ] {
        let errors = extension(&source(&text.replacen(from, to, 1)), &bases).unwrap_err();
        assert!(errors.iter().any(|e| e.headline().contains(want)), "{to}: {errors:?}");
    }
}
