//! From a resolved request to the exact commands that make it. Pure: what the host has is given as
//! a value ([`Facts`]), nothing is read and nothing is run.
//!
//! The same [`BuildPlan`] is shown by `show`, judged by the audit and run by `exec`, so that what is
//! printed is what happens.

mod assemble;
pub mod build_system;
pub mod fields;
pub mod identity;
pub mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::Error;
use crate::model::build::{Request, Variant};
use crate::model::manifest::{Tool, ToolchainRecord};
use crate::model::name::{BuildName, ProductName};
use crate::model::recipe::{
    Claims, CostHint, Driver, Expect, Family, Flags, Hint, Origin, Reason, Requirement, Smoke, SourceKind, Toolchain,
    Word,
};
use crate::model::version::Version;

pub use crate::model::step::StepName;
pub use assemble::{Ground, fits, for_version, plan};

/// One argument of a command: its text and the words it was put together from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg {
    /// As the program gets it, but for [`fields::STAGE`].
    pub text: String,
    /// Words it consists of, each with its origin (`CFLAGS=...` has several).
    pub parts: Vec<Word>,
}

impl From<Word> for Arg {
    fn from(word: Word) -> Self {
        Arg {
            text: word.text.clone(),
            parts: vec![word],
        }
    }
}

impl Arg {
    /// What stands before the words: `CFLAGS=`, or nothing.
    pub fn head(&self) -> &str {
        self.text.strip_suffix(self.joined().as_str()).unwrap_or_default()
    }

    fn joined(&self) -> String {
        let words: Vec<&str> = self.parts.iter().map(|w| w.text.as_str()).collect();
        words.join(" ")
    }

    /// As the program gets it, staged there.
    pub fn staged(&self, stage: &str) -> String {
        let place = |field: &str| (field == fields::STAGE).then(|| stage.to_owned());
        let words: Vec<String> = self.parts.iter().map(|w| fields::filled(w, place)).collect();
        format!("{}{}", self.head(), words.join(" "))
    }
}

/// One command of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Step it belongs to.
    pub step: StepName,
    /// Program and arguments.
    pub argv: Vec<Arg>,
    /// Whether it is a make that draws from the job budget.
    pub make: bool,
}

/// The source of a build with what pins it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    /// Kind.
    pub kind: SourceKind,
    /// Places of the same bytes or commit, the product's home first.
    pub urls: Vec<String>,
    /// Whether `reference` is a tag of the product's own pattern, which must agree with the commit where it is seen.
    pub is_tag: bool,
    /// Tag, branch or revision (git), file name (tarball), directory (local).
    pub reference: String,
    /// Full commit, when known.
    pub commit: Option<String>,
    /// sha256 of the archive or of the local tree, when known.
    pub sha256: Option<String>,
    /// Source package of the distribution that may carry the same archive.
    pub distro_package: Option<String>,
    /// `recipe`, `lockfile`, `command-line`.
    pub pinned_by: String,
    /// Line of the pin, where it is the recipe's.
    pub origin: Option<Origin>,
}

/// A patch that applies to this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchPlan {
    /// Path below `patches/`.
    pub file: String,
    /// `-p`.
    pub strip: usize,
    /// sha256 of the text.
    pub sha256: String,
    /// The recipe's line.
    pub origin: Origin,
}

/// The toolchain as found on this host.
#[derive(Debug, Clone, Default)]
pub struct FoundToolchain {
    /// Record for identity and manifest.
    pub record: ToolchainRecord,
    /// Compiler version.
    pub version: Option<Version>,
    /// Full canonical expansion of `-march=native`.
    pub native: String,
}

/// What planning knows of the host.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The toolchain of this build, if it is usable.
    pub toolchain: Option<FoundToolchain>,
    /// Why the toolchain is not usable.
    pub toolchain_missing: Option<Error>,
    /// GNU make.
    pub make: Option<Tool>,
}

/// A request whose name, version and source are known.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Final name.
    pub name: BuildName,
    /// Other names that become links.
    pub links: Vec<BuildName>,
    /// What was asked.
    pub request: Request,
    /// Version; for a bare revision what the tree says of itself.
    pub version: Version,
    /// Source.
    pub source: SourcePlan,
}

/// What is run, and what it is run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commands {
    /// Merged flags.
    pub flags: Flags,
    /// Environment of the children beyond bm's own base.
    pub env: BTreeMap<String, Word>,
    /// Patches, in order.
    pub patches: Vec<PatchPlan>,
    /// Commands, in order.
    pub calls: Vec<Call>,
}

/// A build, planned to the last word.
#[derive(Debug, Clone)]
pub struct BuildPlan {
    /// Name, also of the prefix.
    pub name: BuildName,
    /// Links to the prefix.
    pub links: Vec<BuildName>,
    /// Product.
    pub product: ProductName,
    /// Version.
    pub version: Version,
    /// `15`, `5.7`.
    pub series: String,
    /// Orders versions as a number.
    pub version_num: u64,
    /// Variant.
    pub variant: Variant,
    /// Toolchain.
    pub toolchain: Toolchain,
    /// Final path.
    pub prefix: PathBuf,
    /// Source.
    pub source: SourcePlan,
    /// Flags, environment, patches, commands.
    pub run: Commands,
    /// What the name claims.
    pub claims: Claims,
    /// What the audit expects besides.
    pub expect: Expect,
    /// What the host needs.
    pub requires: Vec<Requirement>,
    /// Smoke test.
    pub smoke: Smoke,
    /// argv of a command smoke test.
    pub smoke_command: Vec<Word>,
    /// For drivers.
    pub driver: Driver,
    /// What it costs, about, before it was measured.
    pub cost: CostHint,
    /// Symptoms and remedies.
    pub hints: Vec<Hint>,
    /// Why conditional parts of the recipe took part.
    pub notes: Vec<Reason>,
    /// Why it must not be built like this: a compiler that does not work.
    pub obstacles: Vec<Error>,
    /// The commands without what the recipe adds for this very compiler, where it adds something: a
    /// compiler that moves is a change of the host, and so is what follows from it.
    pub plain: Option<Box<Commands>>,
    /// Host facts the plan was made with.
    pub facts: Facts,
    /// Hash of `inputs`; `None` while something is unresolved.
    pub identity: Option<String>,
    /// Canonical inputs.
    pub inputs: Value,
    /// What is not known yet.
    pub unresolved: Vec<String>,
    /// Recipe file's text, for `.bm/recipe/`.
    pub recipe_text: std::sync::Arc<str>,
}

impl BuildPlan {
    /// Family of the compiler.
    pub fn family(&self) -> Family {
        self.toolchain.family
    }
}
