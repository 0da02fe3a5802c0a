//! Puts a plan together: the parts of the recipe that hold for the cell, their words with values, the
//! commands, and what stands against building it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Exit};
use crate::model::build::{Request, Revision, merge_claims, merge_flags};
use crate::model::name::{BuildName, Template};
use crate::model::recipe::{
    Cell, CompilerLimit, Conditional, Expect, Family, Flags, PatchSpec, Reason, Recipe, SourceKind, Toolchain, Word,
};
use crate::model::version::Version;

use super::fields::{self, Values};
use super::{BuildPlan, Commands, Facts, PatchPlan, Resolved, build_system, identity};

/// What all plans of a run stand on.
pub struct Ground<'a> {
    /// Root of the prefixes.
    pub root: &'a Path,
    /// Hash of a patch file's text; the schema has checked that all are there.
    pub patch_sha256: &'a dyn Fn(&str) -> String,
    /// Variables of the user that reach the steps.
    pub passed: &'a BTreeMap<String, Word>,
}

/// Plans one build.
pub fn plan(
    resolved: Resolved,
    recipe: &Recipe,
    toolchain: &Toolchain,
    facts: Facts,
    ground: &Ground<'_>,
) -> BuildPlan {
    let Resolved {
        name,
        links,
        request,
        version,
        source,
    } = resolved;
    let prefix = ground.root.join(name.as_str());
    let bare = matches!(request.revision, Revision::Git { .. });
    let values = Values {
        recipe,
        version: &version,
        release: fields::release(recipe, &version, source.commit.as_deref().filter(|_| bare)),
        variant: request.variant.name.as_str(),
        toolchain: toolchain.name.as_str(),
        prefix: &prefix,
    };
    let cell = Cell {
        version: &version,
        family: toolchain.family,
        compiler: facts.toolchain.as_ref().and_then(|t| t.version.as_ref()),
        source: source.kind,
    };
    let for_any = Cell { compiler: None, ..cell };
    let run = commands(recipe, toolchain, &request, &cell, &values, ground);
    let plain = commands(recipe, toolchain, &request, &for_any, &values, ground);
    let obstacles = limits(recipe, &cell, &name);
    let mut plan = BuildPlan {
        claims: merge_claims(recipe, &request.variant),
        series: version.series(recipe.series_parts),
        version_num: version_num(&version, recipe.series_parts),
        product: recipe.product.clone(),
        toolchain: toolchain.clone(),
        expect: expect(recipe, &cell),
        requires: holding(&recipe.requires, &cell).cloned().collect(),
        notes: notes(recipe, &cell),
        smoke: recipe.smoke,
        smoke_command: recipe.smoke_command.clone(),
        driver: recipe.driver.clone(),
        cost: recipe.cost,
        hints: recipe.hints.clone(),
        recipe_text: recipe.text.clone(),
        plain: (plain != run).then(|| Box::new(plain)),
        run,
        unresolved: obstacles.iter().map(|o| o.headline().to_owned()).collect(),
        obstacles,
        inputs: Value::Null,
        identity: None,
        variant: request.variant,
        name,
        links,
        version,
        prefix,
        source,
        facts,
    };
    identity::fill(&mut plan);
    plan
}

fn commands(
    recipe: &Recipe,
    toolchain: &Toolchain,
    request: &Request,
    cell: &Cell<'_>,
    values: &Values<'_>,
    ground: &Ground<'_>,
) -> Commands {
    let mut product = Flags::default();
    for flags in holding(&recipe.flags, cell) {
        product.extend(flags);
    }
    let flags = merge_flags(recipe, toolchain, &request.variant, &product, &request.extra_cflags);
    let flags = values.fill_flags(&flags);
    let mut env: BTreeMap<String, Word> = holding(&recipe.env, cell)
        .flat_map(|set| set.iter().map(|(name, word)| (name.clone(), values.fill(word))))
        .collect();
    // Variables the user lets through win over the recipe's, and are part of the identity.
    env.extend(ground.passed.iter().map(|(name, word)| (name.clone(), word.clone())));
    let patches = holding(&recipe.patches, cell)
        .map(|PatchSpec { file, strip, origin }| PatchPlan {
            file: file.clone(),
            strip: *strip,
            sha256: (ground.patch_sha256)(file),
            origin: origin.clone(),
        })
        .collect();
    let configure = values.fill_all(holding(&recipe.configure, cell).flatten());
    let compile: Vec<_> = holding(&recipe.compile, cell)
        .map(|call| values.fill_all(call))
        .collect();
    let install: Vec<_> = holding(&recipe.install, cell)
        .map(|call| values.fill_all(call))
        .collect();
    let calls = build_system::calls(
        recipe.build_system,
        values.prefix,
        toolchain,
        &flags,
        &configure,
        &compile,
        &install,
    );
    Commands {
        flags,
        env,
        patches,
        calls,
    }
}

fn expect(recipe: &Recipe, cell: &Cell<'_>) -> Expect {
    let mut expect = Expect::default();
    for part in holding(&recipe.expect, cell) {
        expect.files.extend_from_slice(&part.files);
        expect.undefined.extend_from_slice(&part.undefined);
        expect.exempt.extend_from_slice(&part.exempt);
    }
    expect
}

/// The values that hold for a cell, in the recipe's order.
fn holding<'a, T>(list: &'a [Conditional<T>], cell: &Cell<'_>) -> impl Iterator<Item = &'a T> {
    list.iter().filter(|c| c.when.holds(cell)).map(|c| &c.value)
}

/// Why parts of the recipe took part, each reason once.
fn notes(recipe: &Recipe, cell: &Cell<'_>) -> Vec<Reason> {
    fn of<T>(list: &[Conditional<T>], cell: &Cell<'_>, notes: &mut Vec<Reason>) {
        for reason in list
            .iter()
            .filter(|c| c.when.holds(cell))
            .filter_map(|c| c.reason.as_ref())
        {
            if !notes.iter().any(|known| known.text == reason.text) {
                notes.push(reason.clone());
            }
        }
    }
    let mut notes = Vec::new();
    of(&recipe.flags, cell, &mut notes);
    of(&recipe.configure, cell, &mut notes);
    of(&recipe.env, cell, &mut notes);
    of(&recipe.patches, cell, &mut notes);
    of(&recipe.compile, cell, &mut notes);
    of(&recipe.install, cell, &mut notes);
    of(&recipe.requires, cell, &mut notes);
    of(&recipe.expect, cell, &mut notes);
    notes
}

/// The limit of a recipe that a compiler breaks, and the reason the recipe gives for it.
fn broken<'a>(
    recipe: &'a Recipe,
    cell: &'a Cell<'_>,
    family: Family,
    compiler: &'a Version,
) -> impl Iterator<Item = (&'a CompilerLimit, Option<&'a Reason>)> {
    recipe
        .compilers
        .iter()
        .filter(move |c| c.when.holds(cell) && c.value.family == family && !c.value.works.matches(compiler))
        .map(|c| (&c.value, c.reason.as_ref()))
}

/// Whether a recipe lets a version be built with this compiler.
pub fn fits(recipe: &Recipe, version: &Version, source: SourceKind, family: Family, compiler: &Version) -> bool {
    let cell = Cell {
        version,
        family,
        compiler: Some(compiler),
        source,
    };
    broken(recipe, &cell, family, compiler).next().is_none()
}

fn limits(recipe: &Recipe, cell: &Cell<'_>, name: &BuildName) -> Vec<Error> {
    let Some(compiler) = cell.compiler else { return vec![] };
    let refuse = |(limit, reason): (&CompilerLimit, Option<&Reason>)| {
        let error = Error::new(
            Exit::Host,
            format!("build `{name}` cannot be made with {} {compiler}", limit.family),
        )
        .detail("works", format!("{} {}  [{}]", limit.family, limit.works, limit.origin))
        .detail("found", format!("{} {compiler}", limit.family));
        match reason {
            Some(reason) => error.detail("reason", &reason.text),
            None => error,
        }
    };
    broken(recipe, cell, cell.family, compiler).map(refuse).collect()
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
pub fn for_version(template: &Template, recipe: &Recipe, version: &Version) -> String {
    template
        .format(|field| version.field(field, recipe.series_parts))
        .expect("schema checks the fields of templates")
}
