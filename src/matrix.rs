//! The matrix of a recipe: which variants a name can spell, which cells there are, what they are
//! called. Pure.

pub mod choices;

use crate::error::{Error, Exit, Result};
use crate::model::build::{Request, Revision, Variant};
use crate::model::name::{BuildName, ToolchainName, VariantName};
use crate::model::recipe::{Recipe, Toolchain};
use crate::model::version::Version;

use choices::Choices;

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

/// The variant that a template with `{_variant}` leaves out.
const PLAIN: &str = "def";

/// The variant that a name spells, or leaves out.
pub fn spelled_variant<'f>(recipe: &Recipe, fields: &'f crate::model::name::Fields) -> &'f str {
    debug_assert!(fields.contains_key("variant") || recipe.names.build.is_optional("variant"));
    fields.get("variant").map_or(PLAIN, String::as_str)
}

/// The whole name from its release part, variant and toolchain.
///
/// # Errors
/// When the recipe's template makes a text that is no build name.
pub fn build_name(recipe: &Recipe, release: &str, variant: &str, toolchain: &Toolchain) -> Result<BuildName> {
    name_with(recipe, release, variant, toolchain, &Choices::new())
}

/// Likewise, with choices that are not the defaults.
///
/// # Errors
/// As [`build_name`].
pub fn name_with(
    recipe: &Recipe,
    release: &str,
    variant: &str,
    toolchain: &Toolchain,
    choices: &Choices,
) -> Result<BuildName> {
    let text = recipe
        .names
        .build
        .format(|field| match field {
            "release" => Some(release.to_owned()),
            "variant" if variant == PLAIN && recipe.names.build.is_optional("variant") => None,
            "variant" => Some(variant.to_owned()),
            "toolchain" if toolchain.default => None,
            "toolchain" => Some(toolchain.name.to_string()),
            _ => None,
        })
        .expect("schema checks the fields of name templates");
    let text = text + &choices::suffix(recipe, choices);
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
                let request = Request::new(
                    recipe.product.clone(),
                    Revision::Release(pinned.version.clone()),
                    Variant {
                        name: name.clone(),
                        atoms: spec.atoms.clone(),
                    },
                    toolchain.name.clone(),
                );
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::{recipe, toolchains};

    #[test]
    fn cells_are_versions_by_variants_by_toolchains() {
        let (recipe, toolchains) = (recipe(&[]), toolchains());
        let names = |with: &dyn Fn(&&Toolchain) -> bool| -> Vec<String> {
            let cells = cells(&recipe, toolchains.values().filter(with)).unwrap();
            cells.iter().map(|c| c.name.to_string()).collect()
        };
        assert_eq!(
            names(&|t| t.default)[..4],
            ["d10_def", "d10_o3", "d10_o3_lto", "d2beta1_def"]
        );
        let all = names(&|_| true);
        assert_eq!(all.len(), 4 * 3 * 2);
        assert!(all.contains(&"d21_o3_lto_clang15".to_owned()));
    }

    #[test]
    fn two_cells_of_one_name_are_an_error_that_shows_both() {
        // 2.10 and 21.0 would both be `d210`.
        let mut recipe = recipe(&[("id = \"2.1\"", "id = \"2.10\"")]);
        let mut twin = recipe.versions[0].clone();
        twin.version = "21.0".parse().unwrap();
        recipe.versions.push(twin);
        let toolchains = toolchains();
        let error = cells(&recipe, toolchains.values().filter(|t| t.default)).unwrap_err();
        assert_eq!(error.headline(), "two builds have the name `d210_def`");
        let shown: Vec<_> = error.details().iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(
            shown,
            [
                "demo 2.10, variant def, toolchain gcc",
                "demo 21.0, variant def, toolchain gcc"
            ]
        );
    }

    #[test]
    fn variants_are_listed_spelled_otherwise_or_composed_in_order() {
        let recipe = recipe(&[]);
        let read = |text: &str| variant(&recipe, text).map(|v| (v.name.to_string(), v.atoms.join("+")));
        let some = |name: &str, atoms: &str| Some((name.to_owned(), atoms.to_owned()));
        assert_eq!(read("def"), some("def", ""));
        assert_eq!(read("fast"), some("o3_lto", "o3+lto"));
        assert_eq!(read("o3_native"), some("o3_native", "o3+native"), "composed of atoms");
        assert_eq!(read("lto"), some("lto", "lto"));
        for bad in ["native_o3", "o3_o3", "o9", "", "o3_"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_series_has_no_dots_in_names_and_its_dots_elsewhere() {
        let recipe = recipe(&crate::sample::TWO_PARTS);
        let version: Version = "5.7.44".parse().unwrap();
        assert_eq!(
            (series_name(&recipe, &version), release_name(&recipe, &version)),
            ("d57".into(), "d5744".into())
        );
        let urls = &recipe.sources.tarball.as_ref().unwrap().urls;
        let url = crate::plan::for_version(&urls[0], &recipe, &version);
        assert_eq!(url, "https://example.org/5.7/demo-5.7.44.tar.gz");
    }
}
