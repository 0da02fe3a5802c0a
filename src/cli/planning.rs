//! From a selection on the command line to plans.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::context::Context;
use crate::digest::sha256;
use crate::error::{Error, Exit, Result};
use crate::exec::decide::Found;
use crate::exec::resolve::{Reach, Resolver};
use crate::exec::{self, fetch};
use crate::matrix::{
    self,
    choices::{self, Choices},
};
use crate::model::build::{Request, Revision};
use crate::model::name::{BuildName, ProductName, ToolchainName};
use crate::model::recipe::{BuildSystem, Origin, Recipe, SourceKind, Toolchain, Word};
use crate::plan::{self, BuildPlan, Facts, FoundToolchain, Ground, Resolved, StepName};
use crate::probe::{Prober, Uses};
use crate::select::{self, MANY};
use crate::source::Net;
use crate::text::{did_you_mean, quoted, suggest};

use super::args::{DEFAULT_VARIANT, Selection};
use super::one;

/// What a selection asks for, with names.
pub fn requests(ctx: &Context, selection: &Selection) -> Result<Vec<(BuildName, Request)>, Vec<Error>> {
    let from = kind(selection).map_err(one)?;
    if selection.rev.is_none() && selection.source.is_none() {
        for (option, given) in [("--variant", &selection.variant), ("--toolchain", &selection.toolchain)] {
            if let Some(given) = given {
                return Err(one(Error::new(
                    Exit::Usage,
                    format!("`{option} {given}` says nothing here: names of builds have it in them"),
                )
                .hint("it is for `--rev` and `--source`")));
            }
        }
    }
    let mut requests = if selection.rev.is_some() || selection.source.is_some() {
        vec![ad_hoc(ctx, selection).map_err(one)?]
    } else {
        ctx.names().select(&selection.builds, from)?
    };
    let made: Result<Choices> = selection.set.iter().map(|text| choices::parse(text)).collect();
    ctx.names().choose(&mut requests, &made.map_err(one)?).map_err(one)?;
    if let Some(name) = &selection.name {
        let name: BuildName = name.parse().map_err(|e| one(Error::new(Exit::Usage, format!("{e}"))))?;
        let [(only, request)] = requests.as_mut_slice() else {
            return Err(one(Error::new(
                Exit::Usage,
                format!("`--name {name}` is for one build, the selection has {}", requests.len()),
            )
            .hint("name one build")));
        };
        *only = name.clone();
        request.chosen_name = Some(name);
        request.links.clear();
        if let Some(flags) = &selection.cflags {
            let words = shlex::split(flags)
                .ok_or_else(|| one(Error::new(Exit::Usage, "cannot read `--cflags`: a quote is not closed")))?;
            request.extra_cflags = words
                .into_iter()
                .map(|text| Word {
                    text,
                    origin: Origin::CommandLine("--cflags"),
                })
                .collect();
        }
    }
    let patterns = selection.builds.iter().any(|s| select::is_pattern(s));
    if patterns && requests.len() > MANY && !selection.yes {
        return Err(one(Error::new(
            Exit::Usage,
            format!("the patterns pick {} builds", requests.len()),
        )
        .hint("narrow them, or add `--yes`; `bm list PATTERN` shows them")));
    }
    Ok(requests)
}

/// Kind of source that was asked for.
fn kind(selection: &Selection) -> Result<Option<SourceKind>> {
    let kinds: BTreeSet<SourceKind> = selection.from.iter().filter_map(|f| f.kind()).collect();
    if kinds.len() > 1 {
        return Err(Error::new(Exit::Usage, "`--from` names two kinds of source").hint("a build has one"));
    }
    let chosen = kinds.into_iter().next();
    match chosen {
        Some(kind) if selection.rev.is_some() || selection.source.is_some() => Err(Error::new(
            Exit::Usage,
            format!("`--from {kind}` says nothing here: `--rev` and `--source` are sources of their own"),
        )
        .hint("leave it out")),
        chosen => Ok(chosen),
    }
}

/// The step of the kept tree at which `build` is to go on; no other command knows steps.
pub fn step(selection: &Selection) -> Result<Option<StepName>> {
    let steps: BTreeSet<StepName> = selection.from.iter().filter_map(|f| f.step()).collect();
    if steps.len() > 1 {
        return Err(Error::new(Exit::Usage, "`--from` names two steps").hint("name the first to do again"));
    }
    Ok(steps.into_iter().next())
}

/// What a selection asks for in a command that runs no steps.
///
/// # Errors
/// As [`requests`], and for a step.
pub fn requests_without_step(ctx: &Context, selection: &Selection) -> Result<Vec<(BuildName, Request)>, Vec<Error>> {
    if let Some(step) = step(selection).map_err(one)? {
        return Err(one(Error::new(
            Exit::Usage,
            format!("`--from {}` is a step: only `bm build` goes on at one", step.as_str()),
        )
        .hint("kinds of source are `git` and `tarball`")));
    }
    requests(ctx, selection)
}

/// `bm build PRODUCT --rev REV` and `bm build PRODUCT --source DIR`.
fn ad_hoc(ctx: &Context, selection: &Selection) -> Result<(BuildName, Request)> {
    let [product] = selection.builds.as_slice() else {
        return Err(
            Error::new(Exit::Usage, "`--rev` and `--source` build one product at a time")
                .hint("bm build postgres --rev REV --variant o3"),
        );
    };
    let recipe = product
        .parse::<ProductName>()
        .ok()
        .and_then(|p| ctx.library.recipes.get(&p))
        .ok_or_else(|| {
            let known: Vec<&str> = ctx.library.recipes.keys().map(ProductName::as_str).collect();
            let error = Error::new(Exit::Usage, format!("unknown product `{product}`"));
            let products = || quoted(&known, "and");
            error.hint(did_you_mean(product, known.iter().copied()).unwrap_or_else(|| {
                format!(
                    "products are {}; `--rev` and `--source` take a product, not a build",
                    products()
                )
            }))
        })?;
    let wanted = selection.variant.as_deref().unwrap_or(DEFAULT_VARIANT);
    let variant = matrix::variant(recipe, wanted).ok_or_else(|| {
        let known = recipe.variants.keys().map(|v| v.as_str());
        let near = suggest(wanted, known.clone());
        let shown: Vec<&str> = if near.is_empty() { known.collect() } else { near };
        Error::new(Exit::Usage, format!("unknown variant `{wanted}` of {product}"))
            .hint(format!("variants are {}", quoted(shown, "and")))
    })?;
    let toolchain = match &selection.toolchain {
        None => ctx.names().default_toolchain(),
        Some(text) => matrix::toolchain(&ctx.library.toolchains, text).ok_or_else(|| {
            let known: Vec<&str> = ctx.library.toolchains.keys().map(|t| t.as_str()).collect();
            Error::new(Exit::Usage, format!("unknown toolchain `{text}`"))
                .hint(format!("toolchains are {}", quoted(known, "and")))
        })?,
    };
    let revision = match (&selection.rev, &selection.source) {
        (Some(rev), _) => Revision::Git {
            rev: rev.clone(),
            fork: selection.fork.clone(),
        },
        (None, Some(dir)) => Revision::Local(std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
        (None, None) => unreachable!("called only with one of them"),
    };
    // A bare revision is named after its commit, which is not known yet; a local tree has none.
    let name = match (&selection.name, &revision) {
        (Some(name), _) => name.clone(),
        (None, Revision::Local(_)) => {
            return Err(
                Error::new(Exit::Usage, "a build of a local tree has no name of its own")
                    .hint("choose one with `--name NAME`"),
            );
        }
        (None, _) => format!("{product}_git"),
    };
    let name = name.parse().map_err(|e| Error::new(Exit::Usage, format!("{e}")))?;
    let request = Request::new(recipe.product.clone(), revision, variant, toolchain.name.clone());
    Ok((name, request))
}

/// Plans so far, in the order asked.
#[derive(Debug, Default)]
struct Joined {
    plans: Vec<BuildPlan>,
    places: HashMap<BuildName, usize>,
}

impl Joined {
    /// Adds a plan; two names of one build (`pgdistro` and the release it stands for) are one plan.
    fn add(&mut self, plan: BuildPlan) -> Result<()> {
        let Some(known) = self.places.get(&plan.name).map(|&at| &mut self.plans[at]) else {
            self.places.insert(plan.name.clone(), self.plans.len());
            self.plans.push(plan);
            return Ok(());
        };
        if known.inputs() != plan.inputs() {
            let source = |p: &BuildPlan| format!("{} {}", p.source.kind, p.source.reference);
            return Err(
                Error::new(Exit::Usage, format!("`{}` is asked for in two ways", plan.name))
                    .detail("one", source(known))
                    .detail("other", source(&plan))
                    .hint("ask for one of them, or give one another name with `--name`"),
            );
        }
        known.for_others &= plan.for_others;
        for link in plan.links {
            if !known.links.contains(&link) {
                known.links.push(link);
            }
        }
        Ok(())
    }

    fn get(&self, name: &BuildName) -> Option<&BuildPlan> {
        self.places.get(name).map(|&at| &self.plans[at])
    }
}

/// What the plans of a run share, each thing made when the first of them needs it.
#[derive(Debug, Default)]
struct Shared {
    products: HashMap<ProductName, (Arc<Recipe>, Arc<Ground>)>,
    toolchains: HashMap<ToolchainName, Arc<Toolchain>>,
    /// By toolchain, and by whether link-time optimisation, `-march=native` and cmake with C++ are asked for.
    facts: HashMap<(ToolchainName, bool, bool, bool), Arc<Facts>>,
    /// Plans so far, those that others need included.
    joined: Joined,
}

/// Plans of a selection.
#[derive(Debug)]
pub struct Planner<'a> {
    ctx: &'a Context,
    /// The host, remembered.
    pub prober: Prober,
    /// bm's own PATH, cleaned.
    pub path: Vec<PathBuf>,
}

impl<'a> Planner<'a> {
    /// Looks at nothing yet.
    pub fn new(ctx: &'a Context) -> Self {
        let path = crate::process::host_path();
        Planner {
            ctx,
            prober: Prober::new(&ctx.layout.tools(), path.clone()),
            path,
        }
    }

    /// Resolves and plans.
    ///
    /// # Errors
    /// Everything wrong in names, pins and network, in one run.
    pub fn plans(
        &self,
        requests: Vec<(BuildName, Request)>,
        net: &Net,
        reach: Reach,
    ) -> Result<Vec<BuildPlan>, Vec<Error>> {
        let resolver = Resolver::new(self.ctx, net, reach).map_err(one)?;
        let mut errors = Vec::new();
        let mut shared = Shared::default();
        for (name, request) in requests {
            let planned = resolver.resolve(name, request);
            let planned =
                planned.and_then(|resolved| self.plan_with_needs(resolved, &resolver, &mut shared, &mut vec![]));
            if let Err(error) = planned.and_then(|plan| shared.joined.add(plan)) {
                errors.push(error);
            }
        }
        let joined = shared.joined;
        let plans = joined.plans;
        self.prober.save().map_err(one)?;
        if errors.is_empty() {
            return Ok(plans);
        }
        if net.offline && reach == Reach::Network {
            // What is to be carried to a machine without network is wanted as one list.
            let to_build = plans
                .iter()
                .filter(|p| matches!(exec::found(self.ctx, p), Found::Nothing));
            errors.extend(to_build.filter_map(|p| fetch::present(self.ctx, net, p).err()));
        }
        Err(errors)
    }

    /// Plans what a build needs, each such build once, and then the build. `above` are the names of those that need it.
    fn plan_with_needs(
        &self,
        mut resolved: Resolved,
        resolver: &Resolver<'_>,
        shared: &mut Shared,
        above: &mut Vec<BuildName>,
    ) -> Result<BuildPlan> {
        let recipe = &self.ctx.library.recipes[&resolved.request.product];
        let wanted: Vec<(String, Word)> = recipe
            .options
            .iter()
            .filter_map(|o| {
                let choice = resolved.choices.get(&o.name)?;
                let needs = o.choices.iter().find(|c| c.name == *choice)?.needs.clone()?;
                Some((o.name.clone(), needs))
            })
            .collect();
        for (option, needs) in wanted {
            let (name, request) = self
                .ctx
                .names()
                .name(&needs.text)
                .map_err(|e| e.detail("needed by", &needs.origin))?;
            if above.contains(&name) || name == resolved.name {
                return Err(Error::new(Exit::Usage, format!("`{name}` needs itself")).detail("by", &needs.origin));
            }
            if shared.joined.get(&name).is_none() {
                above.push(resolved.name.clone());
                let mut plan =
                    self.plan_with_needs(resolver.resolve(name.clone(), request)?, resolver, shared, above)?;
                above.pop();
                plan.for_others = true;
                shared.joined.add(plan)?;
            }
            let plan = shared.joined.get(&name).expect("it was added");
            resolved.needs.push(plan::Need {
                option,
                prefix: plan.prefix.clone(),
                identity: exec::standing(self.ctx, plan),
                name,
                origin: needs.origin,
            });
        }
        Ok(self.plan(resolved, shared))
    }

    fn plan(&self, resolved: Resolved, shared: &mut Shared) -> BuildPlan {
        let (product, toolchain) = (&resolved.request.product, &resolved.request.toolchain);
        let (recipe, ground) = shared.products.entry(product.clone()).or_insert_with(|| {
            let recipe = &self.ctx.library.recipes[product];
            (Arc::new(recipe.clone()), Arc::new(self.ground(recipe)))
        });
        let toolchain = shared
            .toolchains
            .entry(toolchain.clone())
            .or_insert_with(|| Arc::new(self.ctx.library.toolchains[toolchain].clone()));
        let atoms = &resolved.request.variant.atoms;
        let (mut lto, mut native) = (false, false);
        for atom in recipe.atoms.iter().filter(|a| atoms.contains(&a.name)) {
            lto |= atom.lto;
            native |= atom.claims.march.as_deref() == Some("native");
        }
        let cxx = recipe.build_system.uses_cxx();
        let facts = shared
            .facts
            .entry((toolchain.name.clone(), lto, native, cxx))
            .or_insert_with(|| Arc::new(self.facts(toolchain, lto, native, recipe.build_system)));
        let mut plan = plan::plan(resolved, recipe, toolchain, facts, ground);
        self.name_fitting(&mut plan);
        plan
    }

    /// What all plans of a product stand on. The schema has checked that its patches are there.
    fn ground(&self, recipe: &Recipe) -> Ground {
        let hash = |file: &String| sha256(self.ctx.library.patch(file).unwrap_or_default());
        Ground {
            root: self.ctx.layout.root().to_owned(),
            patch_sha256: recipe
                .patches
                .iter()
                .map(|p| (p.value.file.clone(), hash(&p.value.file)))
                .collect(),
            passed: self.ctx.passed_env(),
        }
    }

    /// Where the compiler is one that does not work: a toolchain of this host that does.
    fn name_fitting(&self, plan: &mut BuildPlan) {
        if plan
            .obstacles
            .iter()
            .all(|o| o.exit() != Exit::Host || o.hint_text().is_some())
        {
            return;
        }
        let works = |toolchain: &&Toolchain| {
            let uses = Uses { cxx: false, lto: false };
            let found = self.prober.toolchain(toolchain, uses);
            found.is_ok_and(|f| plan::fits(plan, f.family, &f.version))
        };
        let fitting = self.ctx.library.toolchains.values().filter(works);
        let names: Vec<&str> = fitting.map(|t| t.name.as_str()).collect();
        let hint = match names.as_slice() {
            [] => "no toolchain on this host fits: `bm doctor` lists them with what was found".to_owned(),
            [one] => format!("toolchain `{one}` fits: add `_{one}` to the name, or `--toolchain {one}`"),
            [first, ..] => format!(
                "toolchains {} fit: add `_{first}` to the name, or `--toolchain {first}`",
                quoted(&names, "and")
            ),
        };
        let obstacles = std::mem::take(&mut plan.obstacles);
        plan.obstacles = obstacles
            .into_iter()
            .map(|o| {
                if o.exit() == Exit::Host && o.hint_text().is_none() {
                    o.hint(hint.clone())
                } else {
                    o
                }
            })
            .collect();
    }

    fn facts(&self, toolchain: &Toolchain, lto: bool, native: bool, system: BuildSystem) -> Facts {
        let mut facts = Facts {
            make: self.prober.tool("make").ok(),
            cmake: (system == BuildSystem::Cmake)
                .then(|| self.prober.tool("cmake").ok())
                .flatten(),
            ..Facts::default()
        };
        let cxx = system.uses_cxx();
        let probed = self.prober.toolchain(toolchain, Uses { cxx, lto }).and_then(|probed| {
            let native = if native {
                self.prober.native(&probed)?.as_str().to_owned()
            } else {
                String::new()
            };
            Ok(FoundToolchain {
                record: probed.record,
                version: Some(probed.version),
                native,
            })
        });
        match probed {
            Ok(found) => facts.toolchain = Some(found),
            Err(error) => facts.toolchain_missing = Some(error),
        }
        facts
    }
}
