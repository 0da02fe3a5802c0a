//! A recipe as the rest of bm sees it: checked, with every word that can reach a command line
//! carrying the line it came from. Read from TOML by `schema::recipe`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::name::{ProductName, Template, ToolchainName, VariantName};
use super::version::{Version, VersionReq};

/// Where a word of a command line came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line (from 1) of a recipe, toolchain, set or lock file; the file as the user knows it
    /// (`recipes/postgres.toml`).
    File {
        /// Display path.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
    },
    /// Put there by bm itself, with the reason.
    Bm(&'static str),
    /// Given on bm's command line, with the option's name.
    CommandLine(&'static str),
    /// A variable of bm's own environment that the config lets through.
    Environment,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line } => write!(f, "{file}:{line}"),
            Origin::Bm(why) => write!(f, "bm: {why}"),
            Origin::CommandLine(option) => write!(f, "command line: {option}"),
            Origin::Environment => f.write_str("environment, by `env.pass` of the config"),
        }
    }
}

/// One word of a command line and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word exactly as the program gets it (templates already replaced, where a plan holds it).
    pub text: String,
    /// Its source.
    pub origin: Origin,
}

impl Word {
    /// A word that bm adds by itself.
    pub fn bm(text: impl Into<String>, why: &'static str) -> Self {
        Word {
            text: text.into(),
            origin: Origin::Bm(why),
        }
    }
}

/// The kinds of source a build can have; one per build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// A release archive pinned by sha256, from upstream's URLs or the distribution's pool.
    Tarball,
    /// A commit of a git repository.
    Git,
    /// A directory of the user's (`--source`).
    Local,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SourceKind::Tarball => "tarball",
            SourceKind::Git => "git",
            SourceKind::Local => "local",
        })
    }
}

/// Compiler family; decides how evidence is read from what was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// GNU.
    Gcc,
    /// LLVM.
    Clang,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Gcc => "gcc",
            Family::Clang => "clang",
        })
    }
}

/// A condition on the cell; every part that is given must hold.
#[derive(Debug, Clone, Default)]
pub struct When {
    /// Range of product versions.
    pub versions: Option<VersionReq>,
    /// Compiler family.
    pub family: Option<Family>,
    /// Range of compiler versions. Does not hold while the compiler's version is unknown.
    pub compiler: Option<VersionReq>,
    /// Kind of source.
    pub source: Option<SourceKind>,
    /// An atom that the variant must have.
    pub atom: Option<String>,
    /// `(option, choice)` that must be in force.
    pub choice: Option<(String, String)>,
}

/// What a [`When`] is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// Product version; for a revision outside any release, the version its series stands for.
    pub version: &'a Version,
    /// Family of the toolchain.
    pub family: Family,
    /// Version of the compiler found on this host, where one was found.
    pub compiler: Option<&'a Version>,
    /// Kind of source chosen.
    pub source: SourceKind,
    /// Atoms of the variant.
    pub atoms: &'a [String],
    /// Choices in force, by option.
    pub choices: &'a BTreeMap<String, String>,
}

impl When {
    /// Whether the condition holds for a cell.
    pub fn holds(&self, cell: &Cell<'_>) -> bool {
        self.versions.as_ref().is_none_or(|r| r.matches(cell.version))
            && self.family.is_none_or(|f| f == cell.family)
            && self
                .compiler
                .as_ref()
                .is_none_or(|r| cell.compiler.is_some_and(|v| r.matches(v)))
            && self.source.is_none_or(|s| s == cell.source)
            && self.atom.as_ref().is_none_or(|a| cell.atoms.contains(a))
            && self
                .choice
                .as_ref()
                .is_none_or(|(option, choice)| cell.choices.get(option) == Some(choice))
    }
}

/// Why something holds, in the recipe's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The words.
    pub text: String,
    /// Where they are written.
    pub origin: Origin,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  [{}]", self.text, self.origin)
    }
}

/// Something that holds only under a condition.
#[derive(Debug, Clone)]
pub struct Conditional<T> {
    /// The condition; the default holds always.
    pub when: When,
    /// Why; shown by `plan` and `show --explain`.
    pub reason: Option<Reason>,
    /// What holds then.
    pub value: T,
}

/// Compiler and linker flags, kept as lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// For C.
    pub cflags: Vec<Word>,
    /// For C++.
    pub cxxflags: Vec<Word>,
    /// For the linker driver.
    pub ldflags: Vec<Word>,
}

impl Flags {
    /// Appends another set; later words win where the compiler lets the last one win.
    pub fn extend(&mut self, other: &Flags) {
        self.cflags.extend_from_slice(&other.cflags);
        self.cxxflags.extend_from_slice(&other.cxxflags);
        self.ldflags.extend_from_slice(&other.ldflags);
    }
}

/// How a product is configured and built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildSystem {
    /// `configure`, make, DESTDIR.
    Autoconf,
    /// cmake with its generator for make, DESTDIR.
    Cmake,
    /// Whole commands of the recipe: for products with a way of their own.
    Commands,
}

impl BuildSystem {
    /// Whether a build uses the C++ compiler, so that it is part of its identity.
    pub fn uses_cxx(self) -> bool {
        self == BuildSystem::Cmake
    }
}

/// Where git source lives.
#[derive(Debug, Clone)]
pub struct GitSource {
    /// The product's own home.
    pub url: String,
    /// Other places that hold the same commits.
    pub mirrors: Vec<String>,
    /// Tag of a release: `REL_{version.tag}`.
    pub tag: Template,
}

impl GitSource {
    /// All places, the product's own home first.
    pub fn places(&self) -> Vec<String> {
        std::iter::once(&self.url).chain(&self.mirrors).cloned().collect()
    }
}

/// Where release archives live.
#[derive(Debug, Clone)]
pub struct TarballSource {
    /// Places of the same bytes, in order: `https://.../v{version}/postgresql-{version}.tar.bz2`.
    pub urls: Vec<Template>,
    /// Other forms of the same release with other bytes, by name, each with its places: MySQL's archives
    /// that hold Boost as well.
    pub forms: BTreeMap<String, Vec<Template>>,
}

/// The distribution's source package that carries the pristine upstream archive.
#[derive(Debug, Clone)]
pub struct DistroSource {
    /// Source package: `postgresql-{version.series}`.
    pub package: Template,
    /// Release part of names that stand for "the newest the distribution really has": `pgdistro`.
    pub alias: String,
}

/// All source kinds a recipe knows.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// git, if there is one.
    pub git: Option<GitSource>,
    /// Release archives, if there are any.
    pub tarball: Option<TarballSource>,
    /// One more place of release archives.
    pub distro: Option<DistroSource>,
}

/// One release with what pins it.
#[derive(Debug, Clone)]
pub struct PinnedVersion {
    /// The release.
    pub version: Version,
    /// Full commit id, if known.
    pub commit: Option<String>,
    /// sha256 of the release archive, if known.
    pub sha256: Option<String>,
    /// sha256 of other forms of it, by form.
    pub forms: BTreeMap<String, String>,
    /// Where it is written.
    pub origin: Origin,
}

/// A building block of variants.
#[derive(Debug, Clone)]
pub struct Atom {
    /// `o3`, `native`, `lto`, `nofp`.
    pub name: String,
    /// Atoms of one group exclude each other (`optimisation`).
    pub group: Option<String>,
    /// Flags it adds.
    pub flags: Flags,
    /// Asks the toolchain for its own spelling of link-time optimisation.
    pub lto: bool,
    /// What a name with this atom claims; the audit proves it.
    pub claims: Claims,
    /// Where it is written.
    pub origin: Origin,
}

/// What a build's name (and its recipe) claim about the code in it. `None`: nothing is claimed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Claims {
    /// The effective (last) `-O` level of every unit: `0`, `1`, `2`, `3`, `s`.
    pub optimisation: Option<String>,
    /// `native`, or an architecture name; absent from the name means the compiler's default.
    pub march: Option<String>,
    /// Link-time optimisation, in every unit and every link; false claims its absence everywhere.
    pub lto: Option<bool>,
    /// Frame pointers kept (`-fno-omit-frame-pointer` in force); true only, absence claims nothing.
    pub frame_pointer: Option<bool>,
}

impl Claims {
    /// Claims of `other` replace those made here.
    pub fn overlay(&mut self, other: &Claims) {
        let Claims {
            optimisation,
            march,
            lto,
            frame_pointer,
        } = other.clone();
        self.optimisation = optimisation.or(self.optimisation.take());
        self.march = march.or(self.march.take());
        self.lto = lto.or(self.lto);
        self.frame_pointer = frame_pointer.or(self.frame_pointer);
    }
}

/// A named variant: its atoms, in order.
#[derive(Debug, Clone)]
pub struct VariantSpec {
    /// Names of atoms; empty for `def`.
    pub atoms: Vec<String>,
    /// Where it is written.
    pub origin: Origin,
}

/// A part of a product that builds can have in several ways: which OpenSSL, which Boost.
#[derive(Debug, Clone)]
pub struct OptionSpec {
    /// `ssl`: `--set ssl=...`, and `_ssl-...` in names where the choice is not the default one.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// What can be chosen.
    pub choices: Vec<Choice>,
    /// Names of choices; the last one whose condition holds is the default.
    pub default: Vec<Conditional<String>>,
    /// Where it is written.
    pub origin: Origin,
}

/// One way of an [`OptionSpec`].
#[derive(Debug, Clone)]
pub struct Choice {
    /// `openssl111`.
    pub name: String,
    /// Versions that can have it.
    pub versions: Option<VersionReq>,
    /// Build that it needs, by name: `openssl-1.1.1w`. Its prefix is `{need.OPTION}` in words.
    pub needs: Option<Word>,
    /// More arguments of configure.
    pub args: Vec<Word>,
    /// Where it is written.
    pub origin: Origin,
}

/// One call of make: the words after `make`.
pub type MakeCall = Vec<Word>;

/// A program, header or library the host must have, and the packages that bring it.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// What is looked for.
    pub need: Need,
    /// Distribution id (`debian`, `ubuntu`) to package names; `debian` serves its derivatives too.
    pub packages: BTreeMap<String, Vec<String>>,
    /// Where it is written.
    pub origin: Origin,
}

/// How to see whether the host has something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A program on bm's PATH.
    Program(String),
    /// A header the compiler finds.
    Header(String),
    /// A module pkg-config knows.
    PkgConfig(String),
    /// A Perl module.
    PerlModule(String),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Program(p) => write!(f, "program `{p}`"),
            Need::Header(h) => write!(f, "header `{h}`"),
            Need::PkgConfig(m) => write!(f, "pkg-config module `{m}`"),
            Need::PerlModule(m) => write!(f, "perl module `{m}`"),
        }
    }
}

/// A patch file of the recipe.
#[derive(Debug, Clone)]
pub struct PatchSpec {
    /// Path below `patches/`.
    pub file: String,
    /// Leading path components to drop, as `-p`.
    pub strip: usize,
    /// Where it is written.
    pub origin: Origin,
}

/// A compiler range a version range can be built with.
#[derive(Debug, Clone)]
pub struct CompilerLimit {
    /// Family it speaks of.
    pub family: Family,
    /// Compilers that work.
    pub works: VersionReq,
    /// Where it is written.
    pub origin: Origin,
}

/// A cmake range a version range can be configured with.
#[derive(Debug, Clone)]
pub struct CmakeLimit {
    /// Versions that work.
    pub works: VersionReq,
    /// Where it is written.
    pub origin: Origin,
}

/// What the audit must find in the prefix besides the claims.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// Files that must be there, relative to the prefix.
    pub files: Vec<Word>,
    /// `(header below the prefix, macro)` that must not be defined: assertions, debug.
    pub undefined: Vec<(String, String)>,
    /// Source files whose own flags may differ from the claim, as globs over the unit's path
    /// (`*/pg_crc32c_sse42.c`), with the reason.
    pub exempt: Vec<(String, String)>,
    /// Sources, below the source or the build tree, whose exact compile lines the manifest keeps.
    pub compile_lines: Vec<Word>,
}

/// A known symptom in a log, and the remedy.
#[derive(Debug, Clone)]
pub struct Hint {
    /// Plain text to find in a line of the failed step's log.
    pub symptom: String,
    /// What to do.
    pub remedy: String,
}

/// Which smoke test a product gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smoke {
    /// initdb, start, table, load, pgbench, stop.
    Postgres,
    /// Data directory, start, table in the named engine, load, mysqlslap, shutdown.
    Mysql,
    /// Run the recipe's `smoke-command` from the prefix and expect success.
    Command,
    /// There is nothing to run: headers alone. The expected files count.
    Files,
}

/// What a driver wants to know and that is the same for all builds of the product.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Driver {
    /// `initdb`, `initialize-insecure`, `mysql_install_db`.
    pub init: Option<String>,
    /// Compiled-in socket (directory for Postgres).
    pub socket: Option<String>,
    /// Default TCP port.
    pub port: Option<u16>,
    /// Engine name as drivers spell it: `pg`, `innodb`, `rocksdb`.
    pub engine: Option<String>,
    /// Server program below the prefix.
    pub server: Option<String>,
    /// Client program below the prefix.
    pub client: Option<String>,
    /// Client library below the prefix.
    pub client_library: Option<String>,
    /// Extensions installed that drivers need.
    #[serde(default)]
    pub extensions: Vec<String>,
}

impl Driver {
    /// What `other` says replaces what is said here.
    pub fn overlay(&mut self, other: &Driver) {
        let Driver {
            init,
            socket,
            port,
            engine,
            server,
            client,
            client_library,
            extensions,
        } = other.clone();
        self.init = init.or(self.init.take());
        self.socket = socket.or(self.socket.take());
        self.port = port.or(self.port);
        self.engine = engine.or(self.engine.take());
        self.server = server.or(self.server.take());
        self.client = client.or(self.client.take());
        self.client_library = client_library.or(self.client_library.take());
        if !extensions.is_empty() {
            self.extensions = extensions;
        }
    }
}

/// Templates of names.
#[derive(Debug, Clone)]
pub struct Names {
    /// `pg{version.compact}`.
    pub release: Template,
    /// `pg{version.series}`.
    pub series: Template,
    /// `{release}_{variant}{_toolchain}`.
    pub build: Template,
    /// Release part for a bare commit: `pg_git_{commit9}`.
    pub git: Template,
}

/// Where a source tree says which version it is.
#[derive(Debug, Clone)]
pub struct VersionFrom {
    /// Files below the tree; the first that is there counts: `configure`.
    pub files: Vec<String>,
    /// The texts between which the parts of the version stand, in order. The parts are joined by dots.
    pub parts: Vec<Between>,
}

/// The text between two others.
#[derive(Debug, Clone)]
pub struct Between {
    /// Text before it: `PACKAGE_VERSION='`.
    pub before: String,
    /// Text after it: `'`.
    pub after: String,
}

/// Builds that a recipe refuses to make.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// What to do instead.
    pub instead: String,
    /// Where it is written.
    pub origin: Origin,
}

/// A recipe, checked.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The product.
    pub product: ProductName,
    /// The file, as the user knows it.
    pub file: Arc<str>,
    /// One line for `bm list`.
    pub description: String,
    /// How it is built.
    pub build_system: BuildSystem,
    /// Leading numbers of a version that make its series.
    pub series_parts: usize,
    /// Name templates.
    pub names: Names,
    /// Source kinds.
    pub sources: Sources,
    /// Versions that are not listed but resolve by tag pattern.
    pub unlisted: Option<VersionReq>,
    /// Releases, in version order.
    pub versions: Vec<PinnedVersion>,
    /// Arguments of configure.
    pub configure: Vec<Conditional<Vec<Word>>>,
    /// Environment of every step, from the recipe.
    pub env: Vec<Conditional<BTreeMap<String, Word>>>,
    /// Flags of the product and of version ranges.
    pub flags: Vec<Conditional<Flags>>,
    /// What the build system picks by itself when it is given no flags (`-O2` for Postgres); spelled
    /// out wherever flags without an optimisation level are given.
    pub implied: Flags,
    /// How to read the version out of a source tree that no release names.
    pub version_from: Option<VersionFrom>,
    /// make calls of the compile step, in order.
    pub compile: Vec<Conditional<MakeCall>>,
    /// make calls of the install step, in order; bm adds DESTDIR.
    pub install: Vec<Conditional<MakeCall>>,
    /// Building blocks, in the order names spell them.
    pub atoms: Vec<Atom>,
    /// Listed variants.
    pub variants: BTreeMap<VariantName, VariantSpec>,
    /// Other spellings of variants.
    pub variant_aliases: BTreeMap<VariantName, VariantName>,
    /// Files below the source tree that only configuring or building writes.
    pub generated: Vec<String>,
    /// What every build claims, before its atoms speak.
    pub claims: Claims,
    /// What builds claim besides, whatever their atoms say.
    pub claims_when: Vec<Conditional<Claims>>,
    /// Builds that are not made, with the reason.
    pub refused: Vec<Conditional<Refusal>>,
    /// What the host needs.
    pub requires: Vec<Conditional<Requirement>>,
    /// Patches, in order.
    pub patches: Vec<Conditional<PatchSpec>>,
    /// Compilers that work.
    pub compilers: Vec<Conditional<CompilerLimit>>,
    /// Versions of cmake that work.
    pub cmake: Vec<Conditional<CmakeLimit>>,
    /// Parts that builds can have in several ways, in the order names spell them.
    pub options: Vec<OptionSpec>,
    /// What the audit expects.
    pub expect: Vec<Conditional<Expect>>,
    /// The smoke test.
    pub smoke: Smoke,
    /// argv below the prefix for [`Smoke::Command`].
    pub smoke_command: Vec<Word>,
    /// What one build costs, about.
    pub cost: CostHint,
    /// Symptoms and remedies.
    pub hints: Vec<Hint>,
    /// For drivers.
    pub driver: Driver,
    /// What is other for some builds; what it does not say stays.
    pub driver_when: Vec<Conditional<Driver>>,
    /// Recipes that this one extends, as read.
    pub bases: Vec<(ProductName, Arc<str>)>,
    /// The recipe's text as read, for `.bm/recipe/`.
    pub text: Arc<str>,
}

/// What one build costs, about; only for order and forecast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostHint {
    /// CPU seconds of the compile step without link-time optimisation.
    pub cpu: f64,
    /// CPU seconds of the compile step with it.
    pub cpu_lto: f64,
    /// Largest single process, bytes.
    pub memory: u64,
    /// Work tree when it is largest, bytes.
    pub disk: u64,
}

impl Default for CostHint {
    /// A small server, where a recipe says nothing.
    fn default() -> Self {
        CostHint {
            cpu: 300.0,
            cpu_lto: 450.0,
            memory: 512 << 20,
            disk: 1 << 30,
        }
    }
}

/// A toolchain file, checked. Its `origin`s point into `toolchains/<name>.toml`.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// `gcc`, `gcc12`, `clang15`.
    pub name: ToolchainName,
    /// The file, as the user knows it.
    pub file: Arc<str>,
    /// Family.
    pub family: Family,
    /// Whether names leave it out.
    pub default: bool,
    /// C compiler, looked up on bm's PATH.
    pub cc: Word,
    /// C++ compiler.
    pub cxx: Word,
    /// Archiver that understands this compiler's LTO objects.
    pub ar: Word,
    /// Symbol lister, likewise.
    pub nm: Word,
    /// Archive indexer, likewise.
    pub ranlib: Word,
    /// Compiler versions accepted under this name; something else on PATH is refused.
    pub version: Option<VersionReq>,
    /// Flags for every build.
    pub flags: Flags,
    /// Flags for link-time optimisation, one list for compiling and one for linking.
    pub lto: Flags,
    /// Switches that change no code but make the compiler record its command line.
    pub record: Flags,
    /// Programs LTO needs besides (`ld.lld-14`).
    pub lto_programs: Vec<Word>,
    /// Distribution id to packages.
    pub packages: BTreeMap<String, Vec<String>>,
    /// The file's text as read, for `.bm/recipe/`.
    pub text: Arc<str>,
}

/// A set: builds of one study.
#[derive(Debug, Clone)]
pub struct Set {
    /// File stem.
    pub name: super::name::SetName,
    /// The file, as the user knows it.
    pub file: Arc<str>,
    /// One line.
    pub description: String,
    /// Selectors, each with its line.
    pub builds: Vec<Word>,
}
