//! A recipe file as it is written: the wire types of `recipes/<product>.toml`.
//!
//! Owns the shape of the file. `convert` turns it into the model, `check` judges what the parts of it
//! say about each other.

mod check;
mod convert;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::model::recipe::Recipe;

use super::at::At;
use super::diagnostic::Source;
use super::parse;
use super::read::{Family, Packages, Reader, When};

/// Reads a recipe; `has_patch` says whether a file below `patches/` exists.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn recipe(source: &Source, has_patch: &dyn Fn(&str) -> bool) -> Result<Recipe, Vec<Error>> {
    let (file, problems) = parse::<RecipeFile>(source);
    let mut reader = Reader::new(source, problems);
    let recipe = file.and_then(|file| {
        let recipe = convert::convert(&file, source, &mut reader);
        check::check(&file, source, has_patch, &mut reader);
        recipe
    });
    reader.finish(recipe)
}

/// A recipe: `recipes/<product>.toml`.
///
/// Words of command lines, flags and values of variables may hold fields in braces: `{version}`,
/// `{version.compact}`, `{version.series}`, `{version.tag}`, `{release}`, `{variant}`, `{toolchain}`,
/// `{commit9}`, `{prefix}`, `{source}`, `{build}`, `{jobs}`. A list of conditional parts keeps its
/// order: what stands later comes later on the command line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RecipeFile {
    /// The product; also the name of the file.
    product: At<String>,
    /// One line about the product.
    description: At<String>,
    /// How it is configured and built.
    build_system: BuildSystem,
    /// How many leading numbers of a version make its series: 1 for Postgres (`16`), 2 for MySQL (`5.7`).
    #[schemars(range(min = 1, max = 3))]
    series_parts: At<u8>,
    /// Templates of names.
    names: NamesTable,
    /// Where sources come from.
    source: SourceTable,
    /// Range of versions that are not listed but resolve by the tag's pattern.
    unlisted: Option<At<String>>,
    /// Releases with what pins them, one line each, in any order.
    #[serde(default)]
    versions: Vec<VersionRow>,
    /// Arguments of configure; bm adds `--prefix`.
    #[serde(default)]
    configure: Vec<ArgsRow>,
    /// Environment of every step.
    #[serde(default)]
    env: Vec<EnvRow>,
    /// Flags of the product and of version ranges.
    #[serde(default)]
    flags: Vec<FlagsRow>,
    /// make calls of the compile step.
    compile: At<Vec<ArgsRow>>,
    /// make calls of the install step; bm adds DESTDIR.
    install: At<Vec<ArgsRow>>,
    /// Building blocks of variants, in the order names spell them.
    #[serde(default)]
    atoms: Vec<AtomRow>,
    /// Name of a variant to its atoms.
    variants: BTreeMap<At<String>, At<Vec<At<String>>>>,
    /// Another name of a variant to the variant.
    #[serde(default)]
    variant_aliases: BTreeMap<At<String>, At<String>>,
    /// Flags the build system picks by itself when it is given none; spelled out wherever flags without
    /// an optimisation level are given.
    #[serde(default)]
    implied: ImpliedTable,
    /// Where a tree that no release names says its version.
    version_from: Option<VersionFromTable>,
    /// What every build claims, before its atoms speak.
    #[serde(default)]
    claims: ClaimsTable,
    /// What the host needs.
    #[serde(default)]
    requires: Vec<RequireRow>,
    /// Patches, in order.
    #[serde(default)]
    patches: Vec<PatchRow>,
    /// Compilers that work.
    #[serde(default)]
    compilers: Vec<CompilerRow>,
    /// What the audit must find.
    #[serde(default)]
    expect: Vec<ExpectRow>,
    /// The smoke test.
    smoke: Smoke,
    /// argv below the prefix, for `smoke = "command"`.
    #[serde(default)]
    smoke_command: Vec<At<String>>,
    /// Symptoms in logs and their remedies; the first that fits is shown.
    #[serde(default)]
    hints: Vec<HintRow>,
    /// For benchmark drivers.
    #[serde(default)]
    driver: DriverTable,
}

/// How a product is configured and built.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum BuildSystem {
    /// `configure`, make, DESTDIR.
    Autoconf,
}

/// The smoke test.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Smoke {
    /// initdb, start, table, load, stop.
    Postgres,
    /// `smoke-command`, which must succeed.
    Command,
}

/// Templates of names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NamesTable {
    /// A release: `pg{version.compact}`.
    release: At<String>,
    /// A series: `pg{version.series}`.
    series: At<String>,
    /// A build: `{release}_{variant}{_toolchain}`.
    build: At<String>,
    /// A bare commit: `pg_git_{commit9}`.
    git: At<String>,
}

/// Where sources come from; one kind is used per build.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SourceTable {
    /// A git repository.
    git: Option<GitTable>,
    /// Release archives.
    tarball: Option<TarballTable>,
    /// The distribution's pristine archive: one more place of the release archive.
    distro: Option<DistroTable>,
}

/// A git repository.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct GitTable {
    /// The product's own home.
    url: At<String>,
    /// Other places of the same commits.
    #[serde(default)]
    mirrors: Vec<At<String>>,
    /// Tag of a release: `REL_{version.tag}`.
    tag: At<String>,
}

/// Release archives.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TarballTable {
    /// Places of the same bytes, in the order they are tried.
    urls: At<Vec<At<String>>>,
}

/// The distribution's source package.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DistroTable {
    /// Source package: `postgresql-{version.series}`.
    package: At<String>,
    /// Stands in names for the newest release the distribution really has: `pgdistro`.
    alias: At<String>,
}

/// A release and what pins it: at least one of `commit` and `sha256`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VersionRow {
    /// The version, as the product writes it.
    id: At<String>,
    /// Full commit id.
    commit: Option<At<String>>,
    /// sha256 of the release archive.
    sha256: Option<At<String>>,
}

/// Words of a command line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ArgsRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why; shown by `bm show --explain`.
    reason: Option<At<String>>,
    /// The words.
    args: At<Vec<At<String>>>,
}

/// Variables.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct EnvRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// Name to value.
    set: BTreeMap<At<String>, At<String>>,
}

/// Flags.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FlagsRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// For C.
    #[serde(default)]
    cflags: Vec<At<String>>,
    /// For C++.
    #[serde(default)]
    cxxflags: Vec<At<String>>,
    /// For linking.
    #[serde(default)]
    ldflags: Vec<At<String>>,
}

/// A building block of variants.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AtomRow {
    /// Its name, as build names spell it.
    name: At<String>,
    /// Atoms of one group exclude each other.
    group: Option<At<String>>,
    /// For C.
    #[serde(default)]
    cflags: Vec<At<String>>,
    /// For C++.
    #[serde(default)]
    cxxflags: Vec<At<String>>,
    /// For linking.
    #[serde(default)]
    ldflags: Vec<At<String>>,
    /// Asks the toolchain for its own spelling of link-time optimisation.
    #[serde(default)]
    lto: bool,
    /// What it claims; the audit proves it.
    #[serde(default)]
    claims: ClaimsTable,
}

/// Flags that go without saying.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct ImpliedTable {
    /// For C.
    cflags: Vec<At<String>>,
    /// For C++.
    cxxflags: Vec<At<String>>,
}

/// The text between two others in a file of the source tree.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VersionFromTable {
    /// File below the tree.
    file: At<String>,
    /// Text before the version.
    before: At<String>,
    /// Text after it.
    after: At<String>,
}

/// What is claimed of the code; nothing where a key is absent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct ClaimsTable {
    /// Effective optimisation level of every unit.
    optimisation: Option<Level>,
    /// `native` or an architecture.
    march: Option<At<String>>,
    /// Link-time optimisation everywhere, or nowhere.
    lto: Option<bool>,
    /// Frame pointers kept.
    frame_pointer: Option<bool>,
}

/// Optimisation level.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
enum Level {
    #[serde(rename = "0")]
    Zero,
    #[serde(rename = "1")]
    One,
    #[serde(rename = "2")]
    Two,
    #[serde(rename = "3")]
    Three,
    #[serde(rename = "s")]
    Size,
}

/// Something the host must have: exactly one of `program`, `header`, `pkg-config` and `perl-module`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RequireRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// A program on PATH.
    program: Option<At<String>>,
    /// A header the compiler finds.
    header: Option<At<String>>,
    /// A module pkg-config knows.
    pkg_config: Option<At<String>>,
    /// A Perl module.
    perl_module: Option<At<String>>,
    /// Packages that bring it.
    #[serde(default)]
    packages: Packages,
}

/// A patch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PatchRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// Path below `patches/`.
    file: At<String>,
    /// Leading path components to drop, 0 to 9.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9))]
    strip: Option<At<u8>>,
}

/// Compilers that work.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CompilerRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// Family it speaks of.
    family: Family,
    /// Range of compiler versions that work.
    works: At<String>,
}

/// What the audit must find.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ExpectRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// Files below the prefix. Braces hold alternatives of which one must exist:
    /// `{lib,lib/postgresql}/pgstattuple.so`.
    #[serde(default)]
    files: Vec<At<String>>,
    /// Macros that must not be defined.
    #[serde(default)]
    undefined: Vec<UndefinedRow>,
    /// Source files whose flags may differ from the claim.
    #[serde(default)]
    exempt: Vec<ExemptRow>,
}

/// A macro that must not be defined.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct UndefinedRow {
    /// Header below the prefix; braces hold alternatives as in `files`.
    header: At<String>,
    /// The macro.
    #[serde(rename = "macro")]
    name: At<String>,
}

/// Units whose flags may differ.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ExemptRow {
    /// Glob over the unit's path: `*/pg_crc32c_armv8.c`.
    unit: At<String>,
    /// Why they differ.
    reason: At<String>,
}

/// A symptom and its remedy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HintRow {
    /// Plain text to find in a line of the failed step's log.
    symptom: At<String>,
    /// What to do.
    remedy: At<String>,
}

/// For benchmark drivers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct DriverTable {
    /// How a data directory is made: `initdb`.
    init: Option<String>,
    /// Compiled-in socket; its directory for Postgres.
    socket: Option<String>,
    /// Default TCP port.
    port: Option<u16>,
    /// Engine as drivers spell it.
    engine: Option<String>,
    /// Server program below the prefix.
    server: Option<At<String>>,
    /// Client program below the prefix.
    client: Option<At<String>>,
    /// Client library below the prefix.
    client_library: Option<At<String>>,
    /// Extensions that are installed.
    extensions: Vec<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
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
expect = [{{ files = ["{{lib,lib/x}}/demo.so"], undefined = [{{ header = "include/c.h", macro = "DEBUG" }}] }}]
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
        assert_eq!(recipe.configure[1].reason.as_deref(), Some("new"));
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
        let cell = |version, family| Cell {
            version,
            family,
            compiler: None,
            source: SourceKind::Git,
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
}
