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
use std::sync::Arc;

use serde_json::Value;

use crate::error::Error;
use crate::matrix::choices::Choices;
use crate::model::build::{Request, Variant};
use crate::model::manifest::{Tool, ToolchainRecord};
use crate::model::name::{BuildName, ProductName};
use crate::model::recipe::{Cell, Claims, Family, Flags, Origin, Recipe, SourceKind, Toolchain, Word};
use crate::model::version::Version;

pub use crate::model::step::StepName;
pub use assemble::{fits, for_version, plan};

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

impl SourcePlan {
    /// A source that nothing pins yet; `pinned_by` is who will. See the fields.
    pub fn new(kind: SourceKind, urls: Vec<String>, reference: String, pinned_by: &str) -> Self {
        SourcePlan {
            kind,
            urls,
            is_tag: false,
            reference,
            commit: None,
            sha256: None,
            distro_package: None,
            pinned_by: pinned_by.to_owned(),
            origin: None,
        }
    }

    /// Pins it: a git source to a full commit, any other to a sha256.
    pub fn set_pin(&mut self, pin: String) {
        match self.kind {
            SourceKind::Git => self.commit = Some(pin),
            SourceKind::Tarball | SourceKind::Local => self.sha256 = Some(pin),
        }
    }

    /// What pins it, when known: the full commit, or the sha256 of the archive or of the local tree.
    pub fn pin(&self) -> Option<&str> {
        self.commit.as_deref().or(self.sha256.as_deref())
    }
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
    /// cmake, where the product is configured with it.
    pub cmake: Option<Tool>,
}

/// A build that another one needs: a private dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The option that brings it: `ssl`.
    pub option: String,
    /// Its name: `openssl-1.1.1w`.
    pub name: BuildName,
    /// Its prefix.
    pub prefix: PathBuf,
    /// Identity of what is there, or of what would be built; `None` while that is unresolved.
    pub identity: Option<String>,
    /// Why the recipe needs it.
    pub origin: Origin,
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
    /// Every option with the choice in force.
    pub choices: Choices,
    /// Builds that must be there first.
    pub needs: Vec<Need>,
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

/// What all plans of one product stand on in a run.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    /// Root of the prefixes.
    pub root: PathBuf,
    /// Hash of the text of each patch file of the recipe.
    pub patch_sha256: BTreeMap<String, String>,
    /// Variables of the user that reach the steps.
    pub passed: BTreeMap<String, Word>,
}

/// A build, planned to the last word. What its commands follow from is shared between the plans of a run, and
/// the words themselves are made when they are asked for: plans are many, and few are run.
#[derive(Debug, Clone)]
pub struct BuildPlan {
    /// Name, also of the prefix.
    pub name: BuildName,
    /// Links to the prefix.
    pub links: Vec<BuildName>,
    /// Version.
    pub version: Version,
    /// Variant.
    pub variant: Variant,
    /// Recipe.
    pub recipe: Arc<Recipe>,
    /// Toolchain.
    pub toolchain: Arc<Toolchain>,
    /// Final path.
    pub prefix: PathBuf,
    /// Source.
    pub source: SourcePlan,
    /// Every option with the choice in force.
    pub choices: Choices,
    /// Builds that must be there first.
    pub needs: Vec<Need>,
    /// Whether nobody asked for it but a build that needs it.
    pub for_others: bool,
    /// What the name claims.
    pub claims: Claims,
    /// Why it must not be built like this: a compiler that does not work.
    pub obstacles: Vec<Error>,
    /// Host facts the plan was made with.
    pub facts: Arc<Facts>,
    /// Hash of the inputs; `None` while something is unresolved.
    pub identity: Option<String>,
    /// What is not known yet.
    pub unresolved: Vec<String>,
    /// Release part of the name.
    release: String,
    /// Flags of a one-off sweep.
    extra_cflags: Vec<Word>,
    ground: Arc<Ground>,
}

impl BuildPlan {
    /// Family of the compiler.
    pub fn family(&self) -> Family {
        self.toolchain.family
    }

    /// Product.
    pub fn product(&self) -> &ProductName {
        &self.recipe.product
    }

    /// `15`, `5.7`.
    pub fn series(&self) -> String {
        self.version.series(self.recipe.series_parts)
    }

    /// Flags, environment, patches, commands. Made anew by each call, and always the same.
    pub fn run(&self) -> Commands {
        assemble::commands(self, &self.cell())
    }

    /// The canonical inputs, of which `identity` is the hash.
    pub fn inputs(&self) -> Value {
        identity::inputs(self)
    }

    /// What conditions of the recipe are asked about.
    fn cell(&self) -> Cell<'_> {
        Cell {
            version: &self.version,
            family: self.toolchain.family,
            compiler: self.facts.toolchain.as_ref().and_then(|t| t.version.as_ref()),
            source: self.source.kind,
            atoms: &self.variant.atoms,
            choices: &self.choices,
        }
    }
}
