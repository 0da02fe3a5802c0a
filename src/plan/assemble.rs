//! Puts a plan together: the parts of the recipe that hold for the cell, their words with values, the
//! commands, and what stands against building it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Exit};
use crate::model::build::{Revision, merge_claims, merge_flags};
use crate::model::name::{BuildName, Template};
use crate::model::recipe::{
    Cell, CmakeLimit, CompilerLimit, Conditional, Driver, Expect, Family, Flags, OptionSpec, PatchSpec, Reason, Recipe,
    Refusal, Requirement, Toolchain, Word,
};
use crate::model::version::Version;

use super::fields::{self, Values};
use super::{BuildPlan, Commands, Facts, Ground, PatchPlan, Resolved, build_system, identity};

/// Plans one build.
pub fn plan(
    resolved: Resolved,
    recipe: &Arc<Recipe>,
    toolchain: &Arc<Toolchain>,
    facts: &Arc<Facts>,
    ground: &Arc<Ground>,
) -> BuildPlan {
    let Resolved {
        name,
        links,
        request,
        version,
        source,
        choices,
        needs,
    } = resolved;
    let bare = matches!(request.revision, Revision::Git { .. });
    let mut plan = BuildPlan {
        prefix: ground.root.join(name.as_str()),
        release: fields::release(recipe, &version, source.commit.as_deref().filter(|_| bare)),
        claims: merge_claims(recipe, &request.variant),
        variant: request.variant,
        extra_cflags: request.extra_cflags,
        recipe: Arc::clone(recipe),
        toolchain: Arc::clone(toolchain),
        facts: Arc::clone(facts),
        ground: Arc::clone(ground),
        choices,
        needs,
        for_others: false,
        obstacles: vec![],
        unresolved: vec![],
        identity: None,
        name,
        links,
        version,
        source,
    };
    plan.obstacles = limits(recipe, &plan.cell(), &plan.name);
    plan.obstacles.extend(cmake_limits(&plan));
    plan.obstacles.extend(refusals(&plan));
    for claims in holding(&recipe.claims_when, &plan.cell()).cloned().collect::<Vec<_>>() {
        plan.claims.overlay(&claims);
    }
    identity::fill(&mut plan);
    plan
}

/// The commands of a plan as they are for a cell.
pub(super) fn commands(plan: &BuildPlan, cell: &Cell<'_>) -> Commands {
    let recipe = &*plan.recipe;
    let values = Values {
        recipe,
        version: &plan.version,
        release: &plan.release,
        variant: plan.variant.name.as_str(),
        toolchain: plan.toolchain.name.as_str(),
        prefix: &plan.prefix,
        tools: &plan.toolchain,
        needs: &plan.needs,
    };
    let mut product = Flags::default();
    for flags in holding(&recipe.flags, cell) {
        product.extend(flags);
    }
    let flags = merge_flags(recipe, &plan.toolchain, &plan.variant, &product, &plan.extra_cflags);
    let flags = values.fill_flags(&flags);
    let mut env: BTreeMap<String, Word> = holding(&recipe.env, cell)
        .flat_map(|set| set.iter().map(|(name, word)| (name.clone(), values.fill(word))))
        .collect();
    // Variables the user lets through win over the recipe's, and are part of the identity.
    env.extend(
        plan.ground
            .passed
            .iter()
            .map(|(name, word)| (name.clone(), word.clone())),
    );
    let patches = holding(&recipe.patches, cell)
        .map(|PatchSpec { file, strip, origin }| PatchPlan {
            file: file.clone(),
            strip: *strip,
            sha256: plan.ground.patch_sha256.get(file).cloned().unwrap_or_default(),
            origin: origin.clone(),
        })
        .collect();
    let mut configure: Vec<_> = holding(&recipe.configure, cell)
        .map(|words| values.fill_all(words))
        .collect();
    let chosen = |o: &OptionSpec| -> Vec<Word> {
        let choice = o.choices.iter().find(|c| plan.choices.get(&o.name) == Some(&c.name));
        values.fill_all(choice.into_iter().flat_map(|c| &c.args))
    };
    configure.extend(recipe.options.iter().map(chosen).filter(|words| !words.is_empty()));
    let compile: Vec<_> = holding(&recipe.compile, cell)
        .map(|call| values.fill_all(call))
        .collect();
    let install: Vec<_> = holding(&recipe.install, cell)
        .map(|call| values.fill_all(call))
        .collect();
    let calls = build_system::calls(
        recipe.build_system,
        values.prefix,
        &plan.toolchain,
        &flags,
        configure,
        compile,
        install,
    );
    Commands {
        flags,
        env,
        patches,
        calls,
    }
}

/// The commands without what the recipe adds for this very compiler, where it adds something: a compiler that
/// moves is a change of the host, and so is what follows from it.
pub(super) fn plain(plan: &BuildPlan, run: &Commands) -> Option<Commands> {
    fn asks<T>(list: &[Conditional<T>], cell: &Cell<'_>) -> bool {
        list.iter().any(|c| c.when.compiler.is_some() && c.when.holds(cell))
    }
    let (recipe, cell) = (&*plan.recipe, plan.cell());
    let for_compiler = asks(&recipe.flags, &cell)
        || asks(&recipe.env, &cell)
        || asks(&recipe.patches, &cell)
        || asks(&recipe.configure, &cell)
        || asks(&recipe.compile, &cell)
        || asks(&recipe.install, &cell);
    let for_any = Cell { compiler: None, ..cell };
    for_compiler
        .then(|| commands(plan, &for_any))
        .filter(|plain| plain != run)
}

impl BuildPlan {
    /// What the audit expects besides the claims.
    pub fn expect(&self) -> Expect {
        let mut expect = Expect::default();
        for part in holding(&self.recipe.expect, &self.cell()) {
            expect.files.extend_from_slice(&part.files);
            expect.undefined.extend_from_slice(&part.undefined);
            expect.exempt.extend_from_slice(&part.exempt);
            expect.compile_lines.extend_from_slice(&part.compile_lines);
        }
        expect
    }

    /// What drivers want to know of it.
    pub fn driver(&self) -> Driver {
        let mut driver = self.recipe.driver.clone();
        for part in holding(&self.recipe.driver_when, &self.cell()) {
            driver.overlay(part);
        }
        let prefix = self.prefix.display().to_string();
        driver.socket = driver.socket.map(|socket| socket.replace("{prefix}", &prefix));
        driver
    }

    /// What the host needs.
    pub fn requires(&self) -> impl Iterator<Item = &Requirement> {
        let cell = self.cell();
        let list = self.recipe.requires.iter();
        list.filter(move |c| c.when.holds(&cell)).map(|c| &c.value)
    }

    /// Patches of the recipe that apply to it, by the recipe's word.
    pub fn has_patches(&self) -> bool {
        holding(&self.recipe.patches, &self.cell()).next().is_some()
    }

    /// Why conditional parts of the recipe took part, each reason once.
    pub fn notes(&self) -> Vec<&Reason> {
        fn of<'a, T>(list: &'a [Conditional<T>], cell: &Cell<'_>, notes: &mut Vec<&'a Reason>) {
            for reason in list
                .iter()
                .filter(|c| c.when.holds(cell))
                .filter_map(|c| c.reason.as_ref())
            {
                if !notes.iter().any(|known| known.text == reason.text) {
                    notes.push(reason);
                }
            }
        }
        let (recipe, cell, mut notes) = (&*self.recipe, self.cell(), Vec::new());
        of(&recipe.flags, &cell, &mut notes);
        of(&recipe.configure, &cell, &mut notes);
        of(&recipe.env, &cell, &mut notes);
        of(&recipe.patches, &cell, &mut notes);
        of(&recipe.compile, &cell, &mut notes);
        of(&recipe.install, &cell, &mut notes);
        of(&recipe.requires, &cell, &mut notes);
        of(&recipe.expect, &cell, &mut notes);
        for option in &recipe.options {
            let in_force = self.choices.get(&option.name);
            let held = option.default.iter().rev().find(|d| d.when.holds(&cell));
            let reason = held
                .filter(|d| Some(&d.value) == in_force)
                .and_then(|d| d.reason.as_ref());
            notes.extend(reason.filter(|r| !notes.iter().any(|known| known.text == r.text)));
        }
        notes
    }

    /// A number that orders versions: `150018` for 15.18 (series of one number), `50718` for 5.7.18.
    pub fn version_num(&self) -> u64 {
        let at = |i: usize| u64::from(self.version.numbers().get(i).copied().unwrap_or(0));
        if self.recipe.series_parts == 1 {
            at(0) * 10_000 + at(1)
        } else {
            at(0) * 10_000 + at(1) * 100 + at(2)
        }
    }
}

/// The values that hold for a cell, in the recipe's order.
fn holding<'a, T>(list: &'a [Conditional<T>], cell: &Cell<'_>) -> impl Iterator<Item = &'a T> {
    list.iter().filter(|c| c.when.holds(cell)).map(|c| &c.value)
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

/// Whether its recipe lets a plan be built with this compiler instead.
pub fn fits(plan: &BuildPlan, family: Family, compiler: &Version) -> bool {
    let cell = Cell {
        family,
        compiler: Some(compiler),
        ..plan.cell()
    };
    broken(&plan.recipe, &cell, family, compiler).next().is_none()
}

/// Why the recipe does not make this build.
fn refusals(plan: &BuildPlan) -> Vec<Error> {
    let cell = plan.cell();
    let refuse = |c: &Conditional<Refusal>| {
        let error = Error::new(Exit::Usage, format!("build `{}` is not made", plan.name));
        let error = error.detail("reason", c.reason.as_ref().map_or("", |r| r.text.as_str()));
        error.detail("by", &c.value.origin).hint(&c.value.instead)
    };
    let refused = plan.recipe.refused.iter().filter(|c| c.when.holds(&cell));
    refused.map(refuse).collect()
}

/// The limits on cmake that the one found breaks.
fn cmake_limits(plan: &BuildPlan) -> Vec<Error> {
    let found = plan.facts.cmake.as_ref();
    let version = found.and_then(|tool| {
        tool.version
            .split_whitespace()
            .find_map(|word| word.parse::<Version>().ok())
    });
    let Some(version) = version else { return vec![] };
    let cell = plan.cell();
    let broken = |c: &&Conditional<CmakeLimit>| c.when.holds(&cell) && !c.value.works.matches(&version);
    let refuse = |c: &Conditional<CmakeLimit>| {
        let what = format!("build `{}` cannot be configured with cmake {version}", plan.name);
        let error = Error::new(Exit::Host, what)
            .detail("works", format!("cmake {}  [{}]", c.value.works, c.value.origin))
            .detail("found", found.map_or("", |tool| &tool.path));
        let error = match &c.reason {
            Some(reason) => error.detail("reason", &reason.text),
            None => error,
        };
        error.hint("put a cmake of that range first on PATH: bm takes the first it finds, and records its version")
    };
    plan.recipe.cmake.iter().filter(broken).map(refuse).collect()
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

/// Replaces the fields of a recipe's template that speak of a version.
pub fn for_version(template: &Template, recipe: &Recipe, version: &Version) -> String {
    template
        .format(|field| version.field(field, recipe.series_parts))
        .expect("schema checks the fields of templates")
}
