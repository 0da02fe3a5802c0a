//! A recipe file as it is written: the wire types of `recipes/<product>.toml`.
//!
//! Owns the shape of the file. `convert` turns it into the model, `check` judges what the parts of it
//! say about each other.

mod check;
mod convert;
mod extension;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::model::recipe::Recipe;

pub use extension::{ExtensionFile, extends, extension};

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
/// `{version.compact}`, `{version.numbers}`, `{version.series}`, `{version.tag}`, `{version.underscored}`,
/// `{release}`, `{variant}`, `{toolchain}`, `{prefix}`, `{cc}`, `{cxx}`, `{ar}`, `{ranlib}`; where a recipe writes whole
/// commands also `{stage}`. A list of conditional parts keeps its order: what stands later comes later on the
/// command line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "bm recipe")]
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
    /// Arguments of configure or cmake; bm adds prefix, compilers and flags.
    #[serde(default)]
    configure: Vec<ArgsRow>,
    /// Environment of every step.
    #[serde(default)]
    env: Vec<EnvRow>,
    /// Flags of the product and of version ranges.
    #[serde(default)]
    flags: Vec<FlagsRow>,
    /// make calls of the compile step.
    #[serde(default)]
    compile: Vec<ArgsRow>,
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
    /// Files that only configuring or building writes: a source tree that holds one was used in place, and is refused.
    #[serde(default)]
    generated: Vec<At<String>>,
    /// What every build claims, before its atoms speak.
    #[serde(default)]
    claims: ClaimsTable,
    /// What builds claim besides, whatever their atoms say.
    #[serde(default)]
    claims_when: Vec<ClaimsRow>,
    /// Builds that are not made.
    #[serde(default)]
    refused: Vec<RefusedRow>,
    /// What the host needs.
    #[serde(default)]
    requires: Vec<RequireRow>,
    /// Patches, in order.
    #[serde(default)]
    patches: Vec<PatchRow>,
    /// Compilers that work.
    #[serde(default)]
    compilers: Vec<CompilerRow>,
    /// Versions of cmake that work.
    #[serde(default)]
    cmake: Vec<CmakeRow>,
    /// Parts that builds can have in several ways, in the order names spell them.
    #[serde(default)]
    options: Vec<OptionRow>,
    /// What the audit must find.
    #[serde(default)]
    expect: Vec<ExpectRow>,
    /// The smoke test.
    smoke: Smoke,
    /// argv below the prefix, for `smoke = "command"`; taken as it stands, without fields.
    #[serde(default)]
    smoke_command: Vec<At<String>>,
    /// About what one build costs, for the order of builds and for `--dry-run`, until it was measured here.
    #[serde(default)]
    cost: CostTable,
    /// Symptoms in logs and their remedies; the first that fits is shown.
    #[serde(default)]
    hints: Vec<HintRow>,
    /// For benchmark drivers. `{prefix}` in `socket` is the build's.
    #[serde(default)]
    driver: DriverTable,
    /// What is other for some builds.
    #[serde(default)]
    driver_when: Vec<DriverRow>,
}

/// What one build costs, about.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CostTable {
    /// CPU seconds of the compile step without link-time optimisation.
    cpu: Option<At<u32>>,
    /// CPU seconds of the compile step with it.
    cpu_lto: Option<At<u32>>,
    /// Largest single process, MiB.
    memory_mib: Option<At<u32>>,
    /// Work tree when it is largest, MiB.
    disk_mib: Option<At<u32>>,
}

/// How a product is configured and built.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum BuildSystem {
    /// `configure`, make, DESTDIR.
    Autoconf,
    /// cmake, make, DESTDIR.
    Cmake,
    /// `configure`, `compile` and `install` hold whole commands, program first.
    Commands,
}

/// The smoke test.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Smoke {
    /// initdb, start, table, load, stop.
    Postgres,
    /// Data directory, start, table in the driver's engine, load, stop.
    Mysql,
    /// `smoke-command`, which must succeed.
    Command,
    /// Nothing to run: the files of `expect` count.
    Files,
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
    /// Other forms of the same release, with other bytes: name to places. Taken where only their checksum is known.
    #[serde(default)]
    forms: BTreeMap<At<String>, At<Vec<At<String>>>>,
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
    /// sha256 of other forms of it, by the names of `source.tarball.forms`.
    #[serde(default)]
    forms: BTreeMap<At<String>, At<String>>,
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

/// Where a source tree says its version.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VersionFromTable {
    /// Files below the tree; the first that is there counts.
    files: At<Vec<At<String>>>,
    /// Where the parts of the version stand; they are joined by dots.
    parts: At<Vec<BetweenRow>>,
}

/// The text between two others.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BetweenRow {
    /// Text before it.
    before: At<String>,
    /// Text after it.
    after: At<String>,
}

/// Claims under a condition.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClaimsRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// What is claimed.
    claims: ClaimsTable,
}

/// Builds that are not made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RefusedRow {
    /// Which builds.
    when: When,
    /// Why.
    reason: At<String>,
    /// What to do instead.
    instead: At<String>,
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

/// Versions of cmake that work.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CmakeRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// Range of versions that work.
    works: At<String>,
}

/// A part that builds can have in several ways.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct OptionRow {
    /// Its name: `--set NAME=CHOICE`, and `_NAME-CHOICE` in names of builds that do not have the default.
    name: At<String>,
    /// What it is about, in one line.
    about: At<String>,
    /// What can be chosen.
    choices: At<Vec<ChoiceRow>>,
    /// The choice where none was made; of several that hold the last one counts.
    default: At<Vec<DefaultRow>>,
}

/// One way of an option.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ChoiceRow {
    /// Its name, as `--set` and names of builds spell it.
    name: At<String>,
    /// Versions that can have it; all when absent.
    versions: Option<At<String>>,
    /// A build it needs, by name: `openssl-1.1.1w`. It is made first, once for all that need it.
    needs: Option<At<String>>,
    /// More arguments of configure; `{need.NAME}` is the prefix of what option NAME needs.
    #[serde(default)]
    args: Vec<At<String>>,
}

/// The choice where none was made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DefaultRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// Name of the choice.
    choice: At<String>,
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
    /// Source files, below the source or the build tree, whose exact compile lines are kept in the manifest.
    #[serde(default)]
    compile_lines: Vec<At<String>>,
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

/// What drivers want to know of some builds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DriverRow {
    /// Where it holds; everywhere when absent.
    when: Option<When>,
    /// Why.
    reason: Option<At<String>>,
    /// What is other.
    driver: DriverTable,
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
mod tests;
