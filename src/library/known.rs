//! Whether a build name can mean something, judged by its shape: a product's release, a variant it
//! can make, a toolchain there is.
//!
//! Does not resolve names; that is selection's work.

use std::collections::{BTreeMap, BTreeSet};

use crate::matrix::choices;
use crate::model::name::VariantName;
use crate::model::recipe::{Origin, Recipe};
use crate::schema::set::Unknown;
use crate::text::did_you_mean;

use super::Library;

/// Every name the library can tell.
pub(super) struct Known<'a> {
    products: Vec<Product<'a>>,
    toolchains: BTreeSet<String>,
}

struct Product<'a> {
    recipe: &'a Recipe,
    /// Pinned releases, series and the distribution's alias.
    releases: BTreeSet<String>,
}

/// Names of all pinned releases of a recipe, each with its line.
pub(super) fn releases(recipe: &Recipe) -> BTreeMap<String, &Origin> {
    let named = recipe.versions.iter().filter_map(|pinned| {
        let name = recipe
            .names
            .release
            .format(|field| pinned.version.name_field(field, recipe.series_parts))
            .ok();
        name.map(|name| (name, &pinned.origin))
    });
    named.collect()
}

impl<'a> Known<'a> {
    pub(super) fn new(library: &'a Library) -> Self {
        let products = library.recipes.values().map(|recipe| {
            let series = recipe.versions.iter().filter_map(|pinned| {
                let field = |field: &str| pinned.version.name_field(field, recipe.series_parts);
                recipe.names.series.format(field).ok()
            });
            let alias = recipe.sources.distro.iter().map(|distro| distro.alias.clone());
            Product {
                recipe,
                releases: releases(recipe).into_keys().chain(series).chain(alias).collect(),
            }
        });
        Known {
            products: products.collect(),
            toolchains: library.toolchains.keys().map(ToString::to_string).collect(),
        }
    }

    /// Whether some recipe can make a build of this name.
    pub(super) fn judge(&self, name: &str) -> Result<(), Unknown> {
        let readable = |product: &&Product<'_>| {
            let accepts = |field: &str, text: &str| self.accepts(product, field, text);
            let plain = choices::split(product.recipe, name).map(|(plain, _)| plain);
            plain.is_some_and(|plain| !product.recipe.names.build.read(plain, &accepts).is_empty())
        };
        if self.products.iter().any(|p| readable(&p)) {
            return Ok(());
        }
        let candidates: Vec<String> = self.products.iter().flat_map(|p| p.names()).collect();
        Err(Unknown {
            why: "no recipe makes a build of this name".to_owned(),
            hint: did_you_mean(name, candidates.iter().map(String::as_str)),
        })
    }

    fn accepts(&self, product: &Product<'_>, field: &str, text: &str) -> bool {
        match field {
            "release" => product.has_release(text),
            "variant" => product.has_variant(text),
            "toolchain" => self.toolchains.contains(text),
            _ => false,
        }
    }
}

impl Product<'_> {
    fn has_release(&self, text: &str) -> bool {
        // Releases that are not listed have a version whose digits are read later.
        let version = |_: &str, text: &str| {
            text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric())
        };
        let unlisted = || self.recipe.unlisted.is_some() && !self.recipe.names.release.read(text, &version).is_empty();
        self.releases.contains(text) || unlisted()
    }

    fn has_variant(&self, text: &str) -> bool {
        let listed = text.parse::<VariantName>().is_ok_and(|name| {
            self.recipe.variants.contains_key(&name) || self.recipe.variant_aliases.contains_key(&name)
        });
        listed || self.composes(text)
    }

    /// Atoms in their order, one of each group.
    fn composes(&self, text: &str) -> bool {
        let position = |part: &str| self.recipe.atoms.iter().position(|atom| atom.name == part);
        let Some(places) = text.split('_').map(position).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let mut groups = BTreeSet::new();
        places.is_sorted_by(|a, b| a < b)
            && places
                .iter()
                .filter_map(|at| self.recipe.atoms[*at].group.as_ref())
                .all(|group| groups.insert(group))
    }

    /// Names to suggest: every release in every listed variant.
    fn names(&self) -> Vec<String> {
        let build = |release: &String, variant: &VariantName| {
            let field = |field: &str| match field {
                "release" => Some(release.clone()),
                "variant" => Some(variant.to_string()),
                _ => None,
            };
            self.recipe.names.build.format(field).ok()
        };
        let releases = self.releases.iter();
        releases
            .flat_map(|r| self.recipe.variants.keys().filter_map(move |v| build(r, v)))
            .collect()
    }
}
