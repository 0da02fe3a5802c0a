//! Builds: what a name stands for once it has been read, before anything is resolved against the
//! host or the network.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::name::{BuildName, ProductName, ToolchainName, VariantName};
use super::recipe::{Claims, Flags, Recipe, SourceKind, Toolchain, Word};
use super::version::Version;

/// A variant with its building blocks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    /// Canonical name.
    pub name: VariantName,
    /// Names of its atoms, in the recipe's order.
    pub atoms: Vec<String>,
}

/// Which source tree a build is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// A release, listed or not.
    Release(Version),
    /// The newest release whose pristine archive the distribution really has.
    Distro,
    /// A branch, tag or commit of the product's repository or of a fork.
    Git {
        /// As given.
        rev: String,
        /// Another repository than the product's own.
        fork: Option<String>,
    },
    /// A directory of the user's.
    Local(PathBuf),
}

/// One build that was asked for: a cell of the matrix with the names it goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Product.
    pub product: ProductName,
    /// Source tree.
    pub revision: Revision,
    /// Variant.
    pub variant: Variant,
    /// Toolchain.
    pub toolchain: ToolchainName,
    /// Kind of source, where the user chose one.
    pub from: Option<SourceKind>,
    /// Name chosen by the user in place of the recipe's.
    pub chosen_name: Option<BuildName>,
    /// Other names the build was asked by (series alias, `pgdistro`, `o2nofp`): links.
    pub links: Vec<BuildName>,
    /// Flags of a one-off sweep (`--cflags`).
    pub extra_cflags: Vec<Word>,
    /// Choices of options that were made (`--set`), by option; of a release only those that are not the default.
    pub choices: BTreeMap<String, String>,
}

impl Request {
    /// A request that nothing was chosen for beyond what it is of.
    pub fn new(product: ProductName, revision: Revision, variant: Variant, toolchain: ToolchainName) -> Self {
        Request {
            product,
            revision,
            variant,
            toolchain,
            from: None,
            chosen_name: None,
            links: vec![],
            extra_cflags: vec![],
            choices: BTreeMap::new(),
        }
    }
}

/// Flags of a cell, merged in the order toolchain, product and version range, variant, command line.
///
/// A compiler flag list that says nothing of optimisation would silently turn the build system's own
/// default off, so the recipe's `implied-cflags` come first then.
pub fn merge_flags(
    recipe: &Recipe,
    toolchain: &Toolchain,
    variant: &Variant,
    product: &Flags,
    extra: &[Word],
) -> Flags {
    let mut flags = toolchain.flags.clone();
    flags.extend(&toolchain.record);
    flags.extend(product);
    for atom in recipe.atoms.iter().filter(|a| variant.atoms.contains(&a.name)) {
        flags.extend(&atom.flags);
        if atom.lto {
            flags.extend(&toolchain.lto);
        }
    }
    flags.cflags.extend_from_slice(extra);
    flags.cxxflags.extend_from_slice(extra);
    for (list, implied) in [
        (&mut flags.cflags, &recipe.implied.cflags),
        (&mut flags.cxxflags, &recipe.implied.cxxflags),
    ] {
        if !list.is_empty() && !list.iter().any(|w| w.text.starts_with("-O")) {
            list.splice(0..0, implied.iter().cloned());
        }
    }
    flags
}

/// What the name of a cell claims: the recipe's claims, then those of each atom.
pub fn merge_claims(recipe: &Recipe, variant: &Variant) -> Claims {
    let mut claims = recipe.claims.clone();
    for atom in recipe.atoms.iter().filter(|a| variant.atoms.contains(&a.name)) {
        claims.overlay(&atom.claims);
    }
    claims
}
