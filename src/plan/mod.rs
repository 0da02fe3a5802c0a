//! From a resolved request to the exact commands that make it. Pure: what the host has is given as
//! a value ([`Facts`]), nothing is read and nothing is run.
//!
//! The same [`BuildPlan`] is shown by `show`, judged by the audit and run by `exec`, so that what is
//! printed is what happens.

pub mod build_system;
pub mod identity;
pub mod show;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::matrix;
use crate::model::build::{Request, Variant, merge_claims, merge_flags};
use crate::model::manifest::{Tool, ToolchainRecord};
use crate::model::name::{BuildName, ProductName, Template};
use crate::model::recipe::{
    Cell, Claims, Conditional, Driver, Expect, Family, Flags, Hint, MakeCall, Origin, PatchSpec, Recipe, Requirement,
    Smoke, SourceKind, Toolchain, Word,
};
use crate::model::version::Version;

/// One argument of a command: its text and the words it was put together from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg {
    /// As the program gets it. `{stage}` stands for the DESTDIR of the build's work directory.
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

/// Steps of a build, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepName {
    /// Mirror or download.
    Fetch,
    /// Checkout, unpack or copy into the work directory.
    Unpack,
    /// Patches, in order.
    Patch,
    /// The build system's own configuration.
    Configure,
    /// Compile and link.
    Compile,
    /// Into staging.
    Install,
    /// Proof from what was built.
    Audit,
    /// One rename to the final path.
    Place,
    /// The real server at its real path.
    Smoke,
    /// The manifest: the commit point.
    Seal,
}

impl StepName {
    /// All steps in order.
    pub const ALL: [StepName; 10] = [
        StepName::Fetch,
        StepName::Unpack,
        StepName::Patch,
        StepName::Configure,
        StepName::Compile,
        StepName::Install,
        StepName::Audit,
        StepName::Place,
        StepName::Smoke,
        StepName::Seal,
    ];

    /// As written on the command line, in logs and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StepName::Fetch => "fetch",
            StepName::Unpack => "unpack",
            StepName::Patch => "patch",
            StepName::Configure => "configure",
            StepName::Compile => "compile",
            StepName::Install => "install",
            StepName::Audit => "audit",
            StepName::Place => "place",
            StepName::Smoke => "smoke",
            StepName::Seal => "seal",
        }
    }

    /// Reads a name of [`StepName::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
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
    pub toolchain_missing: Option<crate::error::Error>,
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
    /// Patches, in order.
    pub patches: Vec<PatchPlan>,
    /// Merged flags.
    pub flags: Flags,
    /// What the name claims.
    pub claims: Claims,
    /// What the audit expects besides.
    pub expect: Expect,
    /// What the host needs.
    pub requires: Vec<Requirement>,
    /// Environment of the children beyond bm's own base.
    pub env: BTreeMap<String, Word>,
    /// Commands, in order.
    pub calls: Vec<Call>,
    /// Smoke test.
    pub smoke: Smoke,
    /// argv of a command smoke test.
    pub smoke_command: Vec<Word>,
    /// For drivers.
    pub driver: Driver,
    /// Symptoms and remedies.
    pub hints: Vec<Hint>,
    /// Conditional parts of the recipe that took part, with their reasons.
    pub notes: Vec<String>,
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

/// Plans one build.
///
/// `patch_sha256` gives the hash of a patch file's text; the schema has checked that all are there.
pub fn plan(
    resolved: Resolved,
    recipe: &Recipe,
    toolchain: &Toolchain,
    facts: Facts,
    root: &std::path::Path,
    patch_sha256: &dyn Fn(&str) -> String,
    passed: &BTreeMap<String, Word>,
) -> BuildPlan {
    let Resolved {
        name,
        links,
        request,
        version,
        source,
    } = resolved;
    let cell = Cell {
        version: &version,
        family: toolchain.family,
        compiler: facts.toolchain.as_ref().and_then(|t| t.version.as_ref()),
        source: source.kind,
    };
    let mut notes = Vec::new();
    let mut product_flags = Flags::default();
    for flags in holding(&recipe.flags, &cell, &mut notes) {
        product_flags.extend(flags);
    }
    let prefix = root.join(name.as_str());
    let fields = WordFields {
        recipe,
        version: &version,
        variant: request.variant.name.as_str(),
        toolchain: toolchain.name.as_str(),
        prefix: &prefix,
    };
    let mut flags = merge_flags(
        recipe,
        toolchain,
        &request.variant,
        &product_flags,
        &request.extra_cflags,
    );
    for list in [&mut flags.cflags, &mut flags.cxxflags, &mut flags.ldflags] {
        *list = fields.fill_all(list);
    }
    let configure: Vec<Word> = holding(&recipe.configure, &cell, &mut notes)
        .into_iter()
        .flat_map(|words| fields.fill_all(words))
        .collect();
    let mut env: BTreeMap<String, Word> = holding(&recipe.env, &cell, &mut notes)
        .into_iter()
        .flat_map(|e| e.iter().map(|(k, v)| (k.clone(), fields.fill(v))))
        .collect();
    // Variables the user lets through win over the recipe's, and are part of the identity.
    env.extend(passed.iter().map(|(k, v)| (k.clone(), v.clone())));
    let patches: Vec<PatchPlan> = holding(&recipe.patches, &cell, &mut notes)
        .into_iter()
        .map(|PatchSpec { file, strip, origin }| PatchPlan {
            file: file.clone(),
            strip: *strip,
            sha256: patch_sha256(file),
            origin: origin.clone(),
        })
        .collect();
    let mut make_calls = |list: &[Conditional<MakeCall>]| -> Vec<MakeCall> {
        let calls = holding(list, &cell, &mut notes).into_iter();
        calls.map(|words| fields.fill_all(words)).collect()
    };
    let (compile, install) = (make_calls(&recipe.compile), make_calls(&recipe.install));
    let calls = build_system::calls(
        recipe.build_system,
        &prefix,
        toolchain,
        &flags,
        &configure,
        &compile,
        &install,
    );
    let unfit = unfit_compiler(recipe, &cell);
    let requires = holding(&recipe.requires, &cell, &mut vec![])
        .into_iter()
        .cloned()
        .collect();
    let mut expect = Expect::default();
    for part in holding(&recipe.expect, &cell, &mut vec![]) {
        expect.files.extend_from_slice(&part.files);
        expect.undefined.extend_from_slice(&part.undefined);
        expect.exempt.extend_from_slice(&part.exempt);
    }
    let mut plan = BuildPlan {
        claims: merge_claims(recipe, &request.variant),
        series: version.series(recipe.series_parts),
        version_num: version_num(&version, recipe.series_parts),
        product: recipe.product.clone(),
        toolchain: toolchain.clone(),
        smoke: recipe.smoke,
        smoke_command: recipe.smoke_command.clone(),
        driver: recipe.driver.clone(),
        hints: recipe.hints.clone(),
        recipe_text: recipe.text.clone(),
        variant: request.variant,
        inputs: Value::Null,
        identity: None,
        unresolved: unfit.into_iter().collect(),
        name,
        links,
        version,
        prefix,
        source,
        patches,
        flags,
        expect,
        requires,
        env,
        calls,
        notes,
        facts,
    };
    identity::fill(&mut plan);
    plan
}

/// The values that hold for a cell, in the recipe's order; their reasons are noted.
fn holding<'a, T>(list: &'a [Conditional<T>], cell: &Cell<'_>, notes: &mut Vec<String>) -> Vec<&'a T> {
    list.iter()
        .filter(|c| c.when.holds(cell))
        .map(|c| {
            notes.extend(c.reason.clone());
            &c.value
        })
        .collect()
}

/// Why the recipe does not take this compiler, where it says so. Nothing while the compiler is not known.
fn unfit_compiler(recipe: &Recipe, cell: &Cell<'_>) -> Option<String> {
    let found = cell.compiler?;
    let limits = recipe.compilers.iter().filter(|c| c.when.holds(cell));
    let unfit = limits
        .filter(|c| c.value.family == cell.family)
        .find(|c| !c.value.works.matches(found))?;
    let reason = unfit.reason.as_ref().map_or_else(String::new, |r| format!(" ({r})"));
    Some(format!(
        "a compiler that works: {} is {found}, {} {} takes {}{reason}",
        cell.family, recipe.product, cell.version, unfit.value.works
    ))
}

/// Values of the fields that words of a recipe may hold ([`crate::schema::WORD_FIELDS`]).
struct WordFields<'a> {
    recipe: &'a Recipe,
    version: &'a Version,
    variant: &'a str,
    toolchain: &'a str,
    prefix: &'a std::path::Path,
}

impl WordFields<'_> {
    /// The word with its fields replaced. Only files have fields: what comes from bm or from the user's
    /// command line is meant as it stands.
    fn fill(&self, word: &Word) -> Word {
        let mut word = word.clone();
        if matches!(word.origin, Origin::File { .. })
            && word.text.contains('{')
            && let Ok(template) = word.text.parse::<Template>()
        {
            word.text = template
                .format(|field| self.value(field))
                .expect("schema checks the fields of words");
        }
        word
    }

    fn fill_all(&self, words: &[Word]) -> Vec<Word> {
        words.iter().map(|w| self.fill(w)).collect()
    }

    fn value(&self, field: &str) -> Option<String> {
        match field {
            "release" => Some(matrix::release_name(self.recipe, self.version)),
            "variant" => Some(self.variant.to_owned()),
            "toolchain" => Some(self.toolchain.to_owned()),
            "prefix" => Some(self.prefix.display().to_string()),
            _ => matrix::version_field(self.recipe, self.version, field),
        }
    }
}

/// A number that orders versions: `150018` for 15.18 (series of one number), `50718` for 5.7.18.
fn version_num(version: &Version, series_parts: usize) -> u64 {
    let at = |i: usize| u64::from(version.numbers().get(i).copied().unwrap_or(0));
    if series_parts == 1 {
        at(0) * 10_000 + at(1)
    } else {
        at(0) * 10_000 + at(1) * 100 + at(2)
    }
}

/// Replaces the fields of a recipe's template that speak of a version.
pub fn for_version(template: &crate::model::name::Template, recipe: &Recipe, version: &Version) -> String {
    template
        .format(|field| matrix::version_field(recipe, version, field))
        .expect("schema checks the fields of templates")
}
