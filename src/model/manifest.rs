//! What a prefix says about itself: the JSON of `<prefix>/.bm/manifest.json`.
//!
//! Output only. Readers skip fields they do not know; `schema` grows when a field changes meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::recipe::Driver;

/// Version of the manifest's format.
pub const SCHEMA: u32 = 1;

/// One source of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// `git`, `tarball` or `local`.
    pub kind: String,
    /// The product's public home, never a mirror's path; no user name, no query.
    pub url: String,
    /// Tag or file name.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Full commit id (git).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// sha256 of the archive (tarball) or of the tree (local).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where the expected value came from: `recipe`, `lockfile`, `command-line`.
    pub pinned_by: String,
    /// Where the bytes really came from: a URL, `distro:<package>=<version>`, `mirror`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub obtained_from: String,
    /// Commit time or archive time, seconds since the epoch; SOURCE_DATE_EPOCH of the build.
    #[serde(default)]
    pub time: u64,
}

/// One applied patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchRecord {
    /// Path below `patches/`.
    pub file: String,
    /// sha256 of the patch text.
    pub sha256: String,
    /// Lines by which hunks were off, as the applier said; empty when exact.
    pub offsets: Vec<String>,
}

/// One program that took part, by content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Canonical path.
    pub path: String,
    /// First line of its `--version`.
    pub version: String,
    /// sha256 of the file.
    pub sha256: String,
}

/// One executed step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// `fetch`, `unpack`, `patch`, `configure`, `compile`, `install`, `audit`, `smoke`.
    pub name: String,
    /// Wall time in seconds.
    pub wall: f64,
    /// User plus system CPU time in seconds of the step and all its descendants.
    pub cpu: f64,
    /// Largest resident size of one process, in KiB.
    pub max_rss_kib: u64,
}

/// What a compiler cache did for a build, in objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Taken from the cache.
    pub hits: usize,
    /// Compiled, and put into the cache.
    pub misses: usize,
    /// Compiled past the cache, which would not take them or failed.
    pub errors: usize,
}

impl CacheUse {
    /// All objects that were asked for.
    pub fn objects(&self) -> usize {
        self.hits + self.misses + self.errors
    }
}

/// The cached answers of a build's configure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigureCache {
    /// Hash of all that can change an answer.
    pub key: String,
    /// Whether answers of an earlier build were used; else this build's were kept for later ones.
    pub used: bool,
    /// Whether configure ran both with and without them and made the same files.
    pub checked: bool,
}

/// Flags of one kind of unit and how many units had them: evidence from debug information,
/// object files and recorded command lines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnitEvidence {
    /// Installed file the units ended up in, relative to the prefix.
    pub file: String,
    /// What was read: `dwarf`, `command`, `object`.
    pub from: String,
    /// `GNU C17 12.2.0`, `clang version 15.0.6`.
    pub compiler: String,
    /// Effective level: `0`, `1`, `2`, `3`, `s`.
    pub optimisation: String,
    /// Effective `-march`, as recorded; empty when the compiler's default.
    pub march: String,
    /// Whether the unit went through link-time optimisation.
    pub lto: bool,
    /// Whether frame pointers were asked to be kept.
    pub frame_pointer: bool,
    /// Number of units.
    pub units: usize,
}

/// One link that made an installed file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkEvidence {
    /// Installed file, relative to the prefix.
    pub file: String,
    /// The exact command line.
    pub argv: Vec<String>,
    /// Whether the linker ran link-time optimisation.
    pub lto: bool,
    /// How many parts ran at once in the LTO link; outside the identity.
    #[serde(default)]
    pub lto_jobs: u32,
}

/// The compile call of one source that the recipe names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CompileEvidence {
    /// The source as the recipe names it: `sql/mysqld.cc`.
    pub source: String,
    /// Directory of the call, from the top of the work directory: `build/sql`.
    pub dir: String,
    /// The exact command line.
    pub argv: Vec<String>,
}

/// All evidence the audit read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Per installed file and kind of unit.
    pub units: Vec<UnitEvidence>,
    /// Per installed file that was linked.
    pub links: Vec<LinkEvidence>,
    /// One real compile line, of the server's main file where there is one.
    pub sample_compile: Vec<String>,
    /// Per source whose compile line the recipe wants kept, in its order.
    #[serde(default)]
    pub compiles: Vec<CompileEvidence>,
}

/// One finding of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `optimisation`, `march`, `lto`, `asserts`, `compiler`, `compile-line`, `library`, `run-path`, `file`,
    /// `stripped`.
    pub subject: String,
    /// What was asked.
    pub asked: String,
    /// What was found.
    pub found: String,
    /// Where: a unit, a file, a command.
    pub evidence: String,
}

/// Outcome of the audit. A prefix is handed over only when `findings` is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// ELF files looked at.
    pub files: usize,
    /// Units looked at.
    pub units: usize,
    /// Links looked at.
    pub links: usize,
    /// Units whose own flags may differ, with the recipe's reason.
    pub exempt: Vec<String>,
}

/// A library the installed programs need.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Library {
    /// `libz.so.1`.
    pub soname: String,
    /// Resolved path.
    pub path: String,
    /// Distribution package with version, where the system knows one; empty otherwise.
    pub package: String,
}

/// Outcome of the smoke test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Smoke {
    /// What was done, one line each.
    pub did: Vec<String>,
    /// What the running server said of itself: `server_version`, `debug_assertions`, ...
    pub server: BTreeMap<String, String>,
    /// Libraries the server mapped.
    pub mapped: Vec<String>,
    /// Rows written and read back.
    pub rows: u64,
    /// Transactions per second of the short load. One machine's figure, for a look only.
    pub tps: f64,
    /// Uid the server ran as.
    pub uid: u32,
    /// What deserves a look but refuses nothing.
    pub warnings: Vec<String>,
}

/// The machine a build was made on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `Debian GNU/Linux 12 (bookworm)`.
    pub os: String,
    /// `debian-12`.
    pub os_id: String,
    /// Kernel release.
    pub kernel: String,
    /// `glibc 2.36`.
    pub libc: String,
    /// CPU model.
    pub cpu: String,
    /// CPU feature flags, sorted.
    pub cpu_flags: Vec<String>,
}

/// The toolchain as found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolchainRecord {
    /// `gcc12`.
    pub name: String,
    /// `cc`, `cxx`, `ld`, `as`, `ar`, and the compiler's own parts (`cc1`, `lto1`).
    pub tools: BTreeMap<String, Tool>,
    /// What `-march=native` stands for here; empty unless asked for.
    pub native: String,
    /// What the compiler adds by itself: `pie`, `fortify`, `stack-protector`, `cet`, `z-now`, ...
    pub defaults: BTreeMap<String, String>,
}

/// The few fields of a manifest that decide whether a build is there and up to date. The evidence, which
/// makes manifests long, is skipped.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Glance {
    /// See [`Manifest::name`].
    pub name: String,
    /// See [`Manifest::prefix`].
    pub prefix: String,
    /// See [`Manifest::identity`].
    pub identity: String,
    /// See [`Manifest::inputs`].
    pub inputs: serde_json::Value,
    /// See [`Manifest::toolchain`].
    pub toolchain: ToolchainRecord,
    /// See [`Manifest::built_at`].
    pub built_at: String,
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Build name; the last part of the prefix.
    pub name: String,
    /// Other names of the same build.
    pub aliases: Vec<String>,
    /// Product.
    pub product: String,
    /// Version as the product writes it.
    pub version: String,
    /// A number that orders versions (`150018` for Postgres 15.18).
    pub version_num: u64,
    /// `15`.
    pub series: String,
    /// Variant.
    pub variant: String,
    /// Toolchain as found.
    pub toolchain: ToolchainRecord,
    /// Absolute path of the prefix.
    pub prefix: String,
    /// `<prefix>/bin`.
    pub bin: String,
    /// `<prefix>/lib`.
    pub lib: String,
    /// sha256 of the canonical inputs, in hex.
    pub identity: String,
    /// The canonical inputs themselves, so that a difference can be named later.
    pub inputs: serde_json::Value,
    /// Always empty in a sealed prefix; `show` uses the same shape.
    pub unresolved: Vec<String>,
    /// Sources.
    pub sources: Vec<SourceRecord>,
    /// Submodules, none for Postgres.
    pub submodules: Vec<SourceRecord>,
    /// Patches applied.
    pub patches: Vec<PatchRecord>,
    /// Steps as planned: argv, env, dir.
    pub steps: serde_json::Value,
    /// `cflags`, `cxxflags`, `ldflags` as given.
    pub flags: BTreeMap<String, Vec<String>>,
    /// Private dependencies: name to identity.
    pub dependencies: BTreeMap<String, String>,
    /// Other programs that took part (make, bison, flex, perl).
    pub tools: BTreeMap<String, Tool>,
    /// Libraries needed from the system.
    pub libraries: Vec<Library>,
    /// Host.
    pub host: Host,
    /// Feedback profile: none yet.
    pub profile: Option<String>,
    /// Evidence of the audit.
    pub evidence: Evidence,
    /// Outcome of the audit.
    pub audit: Audit,
    /// Outcome of the smoke test.
    pub smoke: Smoke,
    /// For drivers.
    pub driver: Driver,
    /// Durations and memory per step.
    pub times: Vec<StepRecord>,
    /// What the compiler cache did; absent where it took no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler_cache: Option<CacheUse>,
    /// Cached answers of configure; absent where they took no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configure_cache: Option<ConfigureCache>,
    /// Installed files, in number; their list is `.bm/files.json`.
    pub files: usize,
    /// sha256 of `.bm/files.json`.
    pub files_sha256: String,
    /// Bytes of all installed files.
    pub size: u64,
    /// RFC 3339, UTC.
    pub built_at: String,
    /// Version of bm that built it.
    pub bm_version: String,
    /// sha256 of this manifest without this field; a torn or edited manifest does not count.
    #[serde(default)]
    pub self_sha256: String,
}
