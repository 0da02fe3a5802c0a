//! What the parts of a recipe say about each other: versions and their names, atoms and variants,
//! aliases, patches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::model::name::{BuildName, Template};
use crate::model::version::Version;
use crate::text::{did_you_mean, quoted};

use super::super::at::At;
use super::super::diagnostic::{Problem, Source};
use super::super::read::Reader;
use super::{AtomRow, BuildSystem, OptionRow, RecipeFile, Smoke};

/// Reports every contradiction.
pub(super) fn check(file: &RecipeFile, source: &Source, has_patch: &dyn Fn(&str) -> bool, reader: &mut Reader<'_>) {
    if *file.product != source.stem() {
        let label = format!("the file is named `{}.toml`", source.stem());
        reader.problem(file.product.span(), "product and file name differ", label);
    }
    if !(1..=3).contains(&*file.series_parts) {
        reader.problem(
            file.series_parts.span(),
            "bad number for `series-parts`",
            "expected 1 to 3",
        );
    }
    sources(file, reader);
    versions(file, reader);
    atoms(&file.atoms, reader);
    variants(file, reader);
    aliases(file, reader);
    patches(file, has_patch, reader);
    if file.compile.is_empty() && !matches!(file.build_system, BuildSystem::Commands) {
        let label = "expected `compile`, the make calls of that step";
        reader.report_if_whole(Problem::new(file.product.span(), "nothing compiles", label));
    }
    reader.not_empty(&file.install);
    smoke(file, reader);
    forms(file, reader);
    options(&file.options, reader);
    conditions(file, reader);
}

/// Forms of archives that are known, and no checksum for two of them.
fn forms(file: &RecipeFile, reader: &mut Reader<'_>) {
    let known = file.source.tarball.as_ref().map(|t| &t.forms);
    for row in &file.versions {
        let mut sums: BTreeMap<&str, Range<usize>> = BTreeMap::new();
        sums.extend(row.sha256.as_ref().map(|sum| (sum.as_str(), sum.span())));
        for (name, sum) in &row.forms {
            if known.is_none_or(|forms| !forms.contains_key(name)) {
                let what = format!("unknown form `{}` of the archive", **name);
                let names = known.into_iter().flat_map(|forms| forms.keys().map(|k| k.as_str()));
                let hint = did_you_mean(name, names);
                reader.report(Problem::new(name.span(), what, "not in `source.tarball.forms`").hint(hint));
            }
            if let Some(first) = sums.insert(sum.as_str(), sum.span()) {
                let what = format!("one checksum for two archives of version `{}`", *row.id);
                let problem = Problem::new(sum.span(), what, "forms of a release differ in their bytes");
                reader.report(problem.other(first, "the same here"));
            }
        }
    }
}

/// Names that can stand in names of builds, none twice, and defaults that are choices.
fn options(rows: &[OptionRow], reader: &mut Reader<'_>) {
    let mut seen: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    for row in rows {
        short_word(&row.name, "option", reader);
        if let Some(first) = seen.insert(&row.name, row.name.span()) {
            let problem = Problem::new(
                row.name.span(),
                format!("option `{}` is listed twice", *row.name),
                "again here",
            );
            reader.report(problem.other(first, "first here"));
        }
        let mut choices: BTreeMap<&str, Range<usize>> = BTreeMap::new();
        for choice in row.choices.iter() {
            short_word(&choice.name, "choice", reader);
            if let Some(first) = choices.insert(&choice.name, choice.name.span()) {
                let what = format!("choice `{}` is listed twice", *choice.name);
                let problem = Problem::new(choice.name.span(), what, "again here");
                reader.report(problem.other(first, "first here"));
            }
        }
        for default in row.default.iter().filter(|d| !choices.contains_key(d.choice.as_str())) {
            let what = format!("option `{}` has no choice `{}`", *row.name, *default.choice);
            let hint = did_you_mean(&default.choice, choices.keys().copied());
            reader.report(Problem::new(default.choice.span(), what, "no choice has this name").hint(hint));
        }
        if row.default.iter().all(|d| d.when.is_some()) {
            let label = "the first `default` must hold everywhere";
            reader.report_if_whole(Problem::new(row.name.span(), "no default", label));
        }
    }
}

fn short_word(name: &At<String>, what: &str, reader: &mut Reader<'_>) {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        let label = "expected a-z and 0-9: names of builds join option and choice with `-`";
        reader.problem(
            name.span(),
            format!("bad name of a{} {what}", if what == "option" { "n" } else { "" }),
            label,
        );
    }
}

/// Atoms and choices that conditions speak of.
fn conditions(file: &RecipeFile, reader: &mut Reader<'_>) {
    let whens = (file.configure.iter().map(|r| &r.when))
        .chain(file.env.iter().map(|r| &r.when))
        .chain(file.flags.iter().map(|r| &r.when))
        .chain(file.compile.iter().map(|r| &r.when))
        .chain(file.install.iter().map(|r| &r.when))
        .chain(file.requires.iter().map(|r| &r.when))
        .chain(file.patches.iter().map(|r| &r.when))
        .chain(file.compilers.iter().map(|r| &r.when))
        .chain(file.cmake.iter().map(|r| &r.when))
        .chain(file.expect.iter().map(|r| &r.when))
        .chain(file.claims_when.iter().map(|r| &r.when))
        .chain(file.driver_when.iter().map(|r| &r.when))
        .chain(file.options.iter().flat_map(|o| o.default.iter().map(|d| &d.when)));
    let refused = file.refused.iter().map(|r| &r.when);
    for when in whens.flatten().chain(refused) {
        if let Some(atom) = &when.atom
            && file.atoms.iter().all(|row| *row.name != **atom)
        {
            let hint = did_you_mean(atom, file.atoms.iter().map(|row| row.name.as_str()));
            let problem = Problem::new(
                atom.span(),
                format!("unknown atom `{}`", **atom),
                "no atom has this name",
            );
            reader.report(problem.hint(hint));
        }
        if let Some(choice) = &when.choice {
            let all = || {
                let of = |o: &'_ OptionRow| {
                    o.choices
                        .iter()
                        .map(|c| format!("{}-{}", *o.name, *c.name))
                        .collect::<Vec<_>>()
                };
                file.options.iter().flat_map(of).collect::<Vec<_>>()
            };
            if choice.contains('-') && !all().contains(choice) {
                let hint = did_you_mean(choice, all().iter().map(String::as_str));
                let what = format!("unknown choice `{}`", **choice);
                reader.report(Problem::new(choice.span(), what, "no option has it").hint(hint));
            }
        }
    }
}

fn sources(file: &RecipeFile, reader: &mut Reader<'_>) {
    let span = file.product.span();
    if file.source.git.is_none() && file.source.tarball.is_none() {
        let label = "expected `[source.git]`, `[source.tarball]` or both";
        reader.report_if_whole(Problem::new(span.clone(), "no source", label));
    }
    if file.versions.is_empty() && file.unlisted.is_none() {
        let label = "expected `versions`, `unlisted` or both";
        reader.report_if_whole(Problem::new(span, "no versions", label));
    }
    if let (Some(unlisted), None) = (&file.unlisted, &file.source.git) {
        let label = "a version that is not listed can only come from git";
        reader.report_if_whole(Problem::new(unlisted.span(), "no git source", label));
    }
    for row in &file.versions {
        let homeless = [
            (&row.commit, file.source.git.is_none(), "[source.git]"),
            (&row.sha256, file.source.tarball.is_none(), "[source.tarball]"),
        ];
        for (pin, absent, table) in homeless {
            if let (Some(pin), true) = (pin, absent) {
                let label = format!("the recipe has no `{table}`");
                reader.report_if_whole(Problem::new(pin.span(), "pin without a source", label));
            }
        }
    }
}

/// No version twice, and no two versions with one name.
fn versions(file: &RecipeFile, reader: &mut Reader<'_>) {
    let release: Option<Template> = file.names.release.parse().ok();
    let series: Option<Template> = file.names.series.parse().ok();
    let parts = usize::from(*file.series_parts);
    let mut ids: BTreeMap<String, Range<usize>> = BTreeMap::new();
    let mut names: BTreeMap<String, (String, Range<usize>)> = BTreeMap::new();
    let mut twins = BTreeSet::new();
    let mut of_series: BTreeMap<String, Range<usize>> = BTreeMap::new();
    for row in &file.versions {
        let (id, span) = ((*row.id).clone(), row.id.span());
        if let Some(first) = ids.insert(id.clone(), span.clone()) {
            let problem = Problem::new(span, format!("version `{id}` is listed twice"), "again here");
            reader.report(problem.other(first, "first here"));
            continue;
        }
        let Ok(version) = id.parse::<Version>() else { continue };
        if let Some(name) = series.as_ref().and_then(|t| format(t, &version, parts)) {
            of_series.entry(name).or_insert_with(|| span.clone());
        }
        let Some(name) = release.as_ref().and_then(|t| format(t, &version, parts)) else {
            continue;
        };
        if let Err(e) = name.parse::<BuildName>() {
            reader.problem(span.clone(), "bad release name", e);
        }
        if let Some((other, first)) = names.insert(name.clone(), (id.clone(), span.clone())) {
            twins.insert(name.clone());
            let what = format!("versions `{other}` and `{id}` are both named `{name}`");
            reader.report(Problem::new(span, what, "and this one").other(first, "this one"));
        }
    }
    for (name, (id, span)) in names {
        // Of two that share a name one may be a slip; that is said already.
        if of_series.contains_key(&name) && !twins.contains(&name) {
            let what = format!("version `{id}` has the name of a series");
            reader.problem(
                span,
                what,
                format!("`{name}` stands for the newest release of its series"),
            );
        }
    }
}

/// A name of a release or series; `None` when the template has fields of its own, which is reported elsewhere.
fn format(template: &Template, version: &Version, series_parts: usize) -> Option<String> {
    template.format(|field| version.name_field(field, series_parts)).ok()
}

fn atoms(rows: &[AtomRow], reader: &mut Reader<'_>) {
    let mut seen: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    for row in rows {
        let span = row.name.span();
        if row.name.is_empty() || !row.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
            let label = "expected a-z and 0-9: names join atoms with `_`";
            reader.problem(span.clone(), "bad atom name", label);
        }
        if let Some(first) = seen.insert(&row.name, span.clone()) {
            let problem = Problem::new(span, format!("atom `{}` is listed twice", *row.name), "again here");
            reader.report(problem.other(first, "first here"));
        }
    }
}

fn variants(file: &RecipeFile, reader: &mut Reader<'_>) {
    if file.variants.is_empty() {
        let label = "expected at least one under `[variants]`";
        reader.report_if_whole(Problem::new(file.product.span(), "no variants", label));
    }
    let mut made: BTreeMap<Vec<&str>, &At<String>> = BTreeMap::new();
    let mut in_order: Vec<_> = file.variants.iter().collect();
    in_order.sort_by_key(|(name, _)| name.span().start);
    for (name, atoms) in in_order {
        atoms_of_variant(&file.atoms, atoms, reader);
        true_name(&file.atoms, name, atoms, reader);
        let list = atoms.iter().map(|a| a.as_str()).collect();
        if let Some(first) = made.insert(list, name) {
            let what = format!("variants `{}` and `{}` are the same", **first, **name);
            let problem = Problem::new(name.span(), what, "the same atoms again").other(first.span(), "first here");
            let line = format!("under `[variant-aliases]` write: {} = \"{}\"", **name, **first);
            reader.report(problem.hint(line));
        }
    }
}

/// Known atoms, in the order they are declared, none twice, one of each group.
fn atoms_of_variant(rows: &[AtomRow], atoms: &[At<String>], reader: &mut Reader<'_>) {
    let mut last: Option<(usize, &At<String>)> = None;
    let mut groups: BTreeMap<&str, &At<String>> = BTreeMap::new();
    for atom in atoms {
        let Some(index) = rows.iter().position(|row| *row.name == **atom) else {
            let label = "no atom has this name";
            let hint = did_you_mean(atom, rows.iter().map(|row| row.name.as_str()));
            reader.report(Problem::new(atom.span(), format!("unknown atom `{}`", **atom), label).hint(hint));
            continue;
        };
        if let Some((_, before)) = last.filter(|(at, _)| *at == index) {
            let problem = Problem::new(atom.span(), format!("atom `{}` is listed twice", **atom), "again here");
            reader.report(problem.other(before.span(), "first here"));
            continue;
        }
        if let Some((_, before)) = last.filter(|(at, _)| *at > index) {
            let label = format!("expected before `{}`, in the order of `atoms`", **before);
            reader.problem(atom.span(), format!("atom `{}` is out of order", **atom), label);
        }
        last = Some((index, atom));
        let Some(group) = &rows[index].group else { continue };
        if let Some(other) = groups.insert(group.as_str(), atom) {
            let what = format!("atoms `{}` and `{}` exclude each other", **other, **atom);
            let problem = Problem::new(atom.span(), what, format!("both are of group `{}`", **group));
            reader.report(problem.other(other.span(), "the other one"));
        }
    }
}

/// A name that spells an atom must have it: `o3_nofp` made of `o2` would lie about every number measured with it.
fn true_name(rows: &[AtomRow], name: &At<String>, atoms: &[At<String>], reader: &mut Reader<'_>) {
    let is_atom = |part: &&str| rows.iter().any(|row| *row.name == **part);
    for part in name.split('_').filter(is_atom) {
        if atoms.iter().all(|atom| atom.as_str() != part) {
            let has = match atoms {
                [] => "no atoms".to_owned(),
                atoms => quoted(atoms.iter().map(|a| a.as_str()), "and"),
            };
            let what = format!("variant `{}` is named after atom `{part}` but does not have it", **name);
            reader.problem(name.span(), what, format!("it has {has}"));
        }
    }
}

fn aliases(file: &RecipeFile, reader: &mut Reader<'_>) {
    for (name, target) in &file.variant_aliases {
        if let Some((variant, _)) = file.variants.get_key_value(name) {
            let problem = Problem::new(
                name.span(),
                format!("alias `{}` is a variant", **name),
                "this name is taken",
            );
            reader.report(problem.other(variant.span(), "by this variant"));
        }
        match file.variants.get(target) {
            Some(atoms) => true_name(&file.atoms, name, atoms, reader),
            None => {
                let what = format!("alias `{}` stands for nothing", **name);
                let hint = did_you_mean(target, file.variants.keys().map(|k| k.as_str()));
                reader.report(Problem::new(target.span(), what, "no variant has this name").hint(hint));
            }
        }
    }
}

fn patches(file: &RecipeFile, has_patch: &dyn Fn(&str) -> bool, reader: &mut Reader<'_>) {
    for row in &file.patches {
        reader.inside(&row.file, "`patches/`");
        if !has_patch(&row.file) {
            let label = "no such file below `patches/`";
            reader.problem(row.file.span(), format!("patch `{}` is missing", *row.file), label);
        }
    }
}

fn smoke(file: &RecipeFile, reader: &mut Reader<'_>) {
    match (file.smoke, file.smoke_command.as_slice()) {
        (Smoke::Command, []) => {
            let label = "`smoke = \"command\"` needs a `smoke-command`";
            reader.report_if_whole(Problem::new(file.product.span(), "no smoke command", label));
        }
        (Smoke::Postgres | Smoke::Mysql | Smoke::Files, [first, ..]) => {
            let label = "only `smoke = \"command\"` runs it";
            reader.report_if_whole(Problem::new(first.span(), "smoke command that nothing runs", label));
        }
        (Smoke::Command, [program, ..]) => reader.inside(program, "the prefix"),
        (Smoke::Postgres | Smoke::Mysql | Smoke::Files, []) => {}
    }
}
