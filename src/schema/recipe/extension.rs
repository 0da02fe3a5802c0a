//! A recipe that extends another one: `recipes/<fork>.toml` with `extends`.
//!
//! Owns the shape of such a file, and what of the other recipe it takes over. A fork says what is its own: names,
//! sources, releases, and what comes on top; all else is the other recipe's, with the lines it stands on there.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::de::DeTable;

use crate::error::Error;
use crate::model::recipe::Recipe;
use crate::text::did_you_mean;

use super::super::at::At;
use super::super::diagnostic::{Problem, Source};
use super::super::parse;
use super::super::read::Reader;
use super::{ArgsRow, ExpectRow, FlagsRow, HintRow, NamesTable, RequireRow, SourceTable, VersionRow, convert};

/// A recipe that extends another one. What stands here replaces what the other says (names, source, versions), or comes
/// after it (configure, flags, requires, expect, hints); all else is the other recipe's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "bm recipe extension")]
pub struct ExtensionFile {
    /// The product; also the name of the file.
    product: At<String>,
    /// The product whose recipe it extends.
    extends: At<String>,
    /// One line about the product.
    description: At<String>,
    /// Templates of names.
    names: NamesTable,
    /// Where sources come from.
    source: SourceTable,
    /// Range of versions that are not listed but resolve by the tag's pattern.
    unlisted: Option<At<String>>,
    /// Releases with what pins them, one line each, in any order.
    #[serde(default)]
    versions: Vec<VersionRow>,
    /// More arguments of configure.
    #[serde(default)]
    configure: Vec<ArgsRow>,
    /// More flags.
    #[serde(default)]
    flags: Vec<FlagsRow>,
    /// What the host needs besides.
    #[serde(default)]
    requires: Vec<RequireRow>,
    /// What the audit must find besides.
    #[serde(default)]
    expect: Vec<ExpectRow>,
    /// More symptoms, looked for first.
    #[serde(default)]
    hints: Vec<HintRow>,
}

/// Whether a recipe file extends another one.
pub fn extends(source: &Source) -> bool {
    let (document, _) = DeTable::parse_recoverable(source.text());
    document.get_ref().contains_key("extends")
}

/// Reads such a recipe; `bases` are those it can extend.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn extension(
    source: &Source,
    bases: &BTreeMap<crate::model::name::ProductName, Recipe>,
) -> Result<Recipe, Vec<Error>> {
    let (file, problems) = parse::<ExtensionFile>(source);
    let mut reader = Reader::new(source, problems);
    let recipe = file.and_then(|file| {
        if *file.product != source.stem() {
            let label = format!("the file is named `{}.toml`", source.stem());
            reader.problem(file.product.span(), "product and file name differ", label);
        }
        let Some(base) = bases.values().find(|b| b.product.as_str() == file.extends.as_str()) else {
            let what = format!("unknown product `{}`", *file.extends);
            let hint = did_you_mean(&file.extends, bases.keys().map(|k| k.as_str()));
            let label = "no recipe of its own has this name, or it cannot be read";
            reader.report(Problem::new(file.extends.span(), what, label).hint(hint));
            return None;
        };
        over(base, &file, source, &mut reader)
    });
    reader.finish(recipe)
}

fn over(base: &Recipe, file: &ExtensionFile, source: &Source, reader: &mut Reader<'_>) -> Option<Recipe> {
    let product = reader.parse(&file.product, "product");
    let names = convert::names(&file.names, reader);
    let mut versions: Vec<_> = file
        .versions
        .iter()
        .filter_map(|row| convert::pinned(row, reader))
        .collect();
    versions.sort_by(|a, b| a.version.cmp(&b.version));
    let mut recipe = base.clone();
    recipe.file = source.file().clone();
    recipe.description = reader.prose(&file.description, "description");
    recipe.sources = convert::sources(&file.source, reader);
    recipe.unlisted = reader.parse_opt(file.unlisted.as_ref(), "range");
    recipe.versions = versions;
    recipe
        .configure
        .extend(file.configure.iter().map(|row| convert::args(row, reader)));
    recipe
        .flags
        .extend(file.flags.iter().map(|row| convert::flags(row, reader)));
    let requires = file.requires.iter().filter_map(|row| convert::requirement(row, reader));
    recipe.requires.extend(requires);
    recipe
        .expect
        .extend(file.expect.iter().map(|row| convert::expect(row, reader)));
    let hints: Vec<_> = file.hints.iter().map(|row| convert::hint(row, reader)).collect();
    recipe.hints.splice(0..0, hints);
    // What is kept beside a prefix must build it again by itself.
    recipe.bases.push((base.product.clone(), Arc::clone(&base.text)));
    recipe.text = source.text().clone();
    recipe.product = product?;
    recipe.names = names?;
    Some(recipe)
}
