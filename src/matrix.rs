//! The matrix of a recipe: which variants a name can spell, which cells there are, what they are
//! called. Pure.

use crate::error::{Error, Exit, Result};
use crate::model::build::{Request, Revision, Variant};
use crate::model::name::{BuildName, ToolchainName, VariantName};
use crate::model::recipe::{Recipe, Toolchain};
use crate::model::version::Version;

/// Reads a variant: listed, another spelling of a listed one, or composed from atoms in their order.
pub fn variant(recipe: &Recipe, text: &str) -> Option<Variant> {
    let name: VariantName = text.parse().ok()?;
    let name = recipe.variant_aliases.get(&name).unwrap_or(&name).clone();
    if let Some(spec) = recipe.variants.get(&name) {
        return Some(Variant {
            name,
            atoms: spec.atoms.clone(),
        });
    }
    let atoms: Vec<String> = name.as_str().split('_').map(str::to_owned).collect();
    let places: Option<Vec<usize>> = atoms
        .iter()
        .map(|a| recipe.atoms.iter().position(|x| x.name == *a))
        .collect();
    let places = places?;
    let in_order = places.windows(2).all(|w| w[0] < w[1]);
    let groups: Vec<_> = places
        .iter()
        .filter_map(|&i| recipe.atoms[i].group.as_deref())
        .collect();
    let exclusive = groups.iter().enumerate().all(|(i, g)| !groups[..i].contains(g));
    if !in_order || !exclusive {
        return None;
    }
    // A listed variant with the same atoms is the canonical name.
    let listed = recipe.variants.iter().find(|(_, spec)| spec.atoms == atoms);
    Some(Variant {
        name: listed.map_or(name, |(n, _)| n.clone()),
        atoms,
    })
}

/// The release part of a name: `pg160`.
pub fn release_name(recipe: &Recipe, version: &Version) -> String {
    recipe
        .names
        .release
        .format(|field| version.name_field(field, recipe.series_parts))
        .expect("schema checks the fields of name templates")
}

/// The series part of a name: `pg16`.
pub fn series_name(recipe: &Recipe, version: &Version) -> String {
    recipe
        .names
        .series
        .format(|field| version.name_field(field, recipe.series_parts))
        .expect("schema checks the fields of name templates")
}

/// The whole name from its release part, variant and toolchain.
///
/// # Errors
/// When the recipe's template makes a text that is no build name.
pub fn build_name(recipe: &Recipe, release: &str, variant: &str, toolchain: &Toolchain) -> Result<BuildName> {
    let text = recipe
        .names
        .build
        .format(|field| match field {
            "release" => Some(release.to_owned()),
            "variant" => Some(variant.to_owned()),
            "toolchain" if toolchain.default => None,
            "toolchain" => Some(toolchain.name.to_string()),
            _ => None,
        })
        .expect("schema checks the fields of name templates");
    text.parse().map_err(|e| {
        Error::new(
            Exit::Usage,
            format!("recipe `{}` makes a bad name: {e}", recipe.product),
        )
    })
}

/// A cell of the matrix with its name.
#[derive(Debug, Clone)]
pub struct NamedCell {
    /// Name.
    pub name: BuildName,
    /// What it stands for.
    pub request: Request,
}

/// Pinned releases × listed variants × the given toolchains, in version order.
///
/// # Errors
/// When two cells come out with one name; both are shown.
pub fn cells<'t>(recipe: &Recipe, toolchains: impl Iterator<Item = &'t Toolchain> + Clone) -> Result<Vec<NamedCell>> {
    let mut cells = Vec::with_capacity(recipe.versions.len() * recipe.variants.len());
    for pinned in &recipe.versions {
        let release = release_name(recipe, &pinned.version);
        for (name, spec) in &recipe.variants {
            for toolchain in toolchains.clone() {
                let request = Request {
                    product: recipe.product.clone(),
                    revision: Revision::Release(pinned.version.clone()),
                    variant: Variant {
                        name: name.clone(),
                        atoms: spec.atoms.clone(),
                    },
                    toolchain: toolchain.name.clone(),
                    from: None,
                    chosen_name: None,
                    links: vec![],
                    extra_cflags: vec![],
                };
                cells.push(NamedCell {
                    name: build_name(recipe, &release, name.as_str(), toolchain)?,
                    request,
                });
            }
        }
    }
    refuse_twins(&cells)?;
    Ok(cells)
}

/// Two cells that format to one name are an error that shows both.
pub fn refuse_twins(cells: &[NamedCell]) -> Result<()> {
    let mut seen = std::collections::HashMap::with_capacity(cells.len());
    for cell in cells {
        if let Some(other) = seen.insert(&cell.name, cell) {
            let other: &NamedCell = other;
            return Err(
                Error::new(Exit::Usage, format!("two builds have the name `{}`", cell.name))
                    .detail("one", describe(&other.request))
                    .detail("other", describe(&cell.request))
                    .hint("make the name templates of the recipe tell them apart"),
            );
        }
    }
    Ok(())
}

/// A cell in words: `postgres 16.0, variant o3, toolchain gcc`.
pub fn describe(request: &Request) -> String {
    let what = match &request.revision {
        Revision::Release(v) => v.to_string(),
        Revision::Distro => "as the distribution has it".to_owned(),
        Revision::Git { rev, fork: None } => format!("at `{rev}`"),
        Revision::Git { rev, fork: Some(fork) } => format!("at `{rev}` of {fork}"),
        Revision::Local(dir) => format!("from {}", dir.display()),
    };
    format!(
        "{} {what}, variant {}, toolchain {}",
        request.product, request.variant.name, request.toolchain
    )
}

/// Reads the name of a toolchain among those known.
pub fn toolchain<'t>(
    toolchains: &'t std::collections::BTreeMap<ToolchainName, Toolchain>,
    text: &str,
) -> Option<&'t Toolchain> {
    toolchains.get(&text.parse::<ToolchainName>().ok()?)
}
