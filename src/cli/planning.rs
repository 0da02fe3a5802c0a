//! From a selection on the command line to plans.

use std::collections::HashMap;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::exec::decide::Found;
use crate::exec::resolve::{Reach, Resolver};
use crate::exec::{self, fetch};
use crate::matrix;
use crate::model::build::{Request, Revision};
use crate::model::name::{BuildName, ProductName};
use crate::model::recipe::{Origin, Toolchain, Word};
use crate::plan::identity::hex;
use crate::plan::{self, BuildPlan, Facts, FoundToolchain};
use crate::probe::{Prober, Uses};
use crate::select::{self, MANY};
use crate::source::Net;
use crate::text::{nearest, quoted};

use super::args::Selection;
use super::one;

/// What a selection asks for, with names.
pub fn requests(ctx: &Context, selection: &Selection) -> Result<Vec<(BuildName, Request)>, Vec<Error>> {
    let from = selection.from.iter().find_map(|f| f.kind());
    let mut requests = if selection.rev.is_some() || selection.source.is_some() {
        vec![ad_hoc(ctx, selection).map_err(one)?]
    } else {
        ctx.names().select(&selection.builds, from)?
    };
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
            match nearest(product, known.iter().copied()).first() {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint(format!(
                    "products are {}; `--rev` and `--source` take a product, not a build",
                    quoted(known)
                )),
            }
        })?;
    let variant = matrix::variant(recipe, &selection.variant).ok_or_else(|| {
        let known = recipe.variants.keys().map(|v| v.as_str());
        let near = nearest(&selection.variant, known.clone());
        let shown: Vec<&str> = if near.is_empty() { known.collect() } else { near };
        Error::new(
            Exit::Usage,
            format!("unknown variant `{}` of {product}", selection.variant),
        )
        .hint(format!("variants are {}", quoted(shown)))
    })?;
    let toolchain = match &selection.toolchain {
        None => ctx.names().default_toolchain(),
        Some(text) => matrix::toolchain(&ctx.library.toolchains, text).ok_or_else(|| {
            let known: Vec<&str> = ctx.library.toolchains.keys().map(|t| t.as_str()).collect();
            Error::new(Exit::Usage, format!("unknown toolchain `{text}`"))
                .hint(format!("toolchains are {}", quoted(known)))
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
    let request = Request {
        product: recipe.product.clone(),
        revision,
        variant,
        toolchain: toolchain.name.clone(),
        from: None,
        chosen_name: None,
        links: vec![],
        extra_cflags: vec![],
    };
    Ok((name, request))
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
        let (mut plans, mut errors) = (Vec::<BuildPlan>::new(), Vec::new());
        let mut memory = HashMap::new();
        for (name, request) in requests {
            let resolved = match resolver.resolve(name, request) {
                Ok(resolved) => resolved,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            let recipe = &self.ctx.library.recipes[&resolved.request.product];
            let toolchain = &self.ctx.library.toolchains[&resolved.request.toolchain];
            let has = |f: &dyn Fn(&crate::model::recipe::Atom) -> bool| {
                recipe
                    .atoms
                    .iter()
                    .any(|a| resolved.request.variant.atoms.contains(&a.name) && f(a))
            };
            let uses = (has(&|a| a.lto), has(&|a| a.claims.march.as_deref() == Some("native")));
            let facts = memory
                .entry((toolchain.name.clone(), uses))
                .or_insert_with(|| self.facts(toolchain, uses.0, uses.1))
                .clone();
            let library = &self.ctx.library;
            let patch_sha256 = |file: &str| hex(&Sha256::digest(library.patch(file).unwrap_or_default()));
            let pass = self.ctx.passed_env();
            let plan = plan::plan(
                resolved,
                recipe,
                toolchain,
                facts,
                self.ctx.layout.root(),
                &patch_sha256,
                &pass,
            );
            match plans.iter_mut().find(|p| p.name == plan.name) {
                // Two names of one build (`pgdistro` and the release it stands for).
                Some(known) => known.links.extend(plan.links),
                None => plans.push(plan),
            }
        }
        self.prober.save().map_err(one)?;
        if errors.is_empty() {
            return Ok(plans);
        }
        if net.offline && reach == Reach::Network {
            // What is to be carried to a machine without network is wanted as one list.
            let to_build = plans
                .iter()
                .filter(|p| matches!(exec::found(&p.prefix), Found::Nothing));
            errors.extend(to_build.filter_map(|p| fetch::present(self.ctx, net, p).err()));
        }
        Err(errors)
    }

    fn facts(&self, toolchain: &Toolchain, lto: bool, native: bool) -> Facts {
        let mut facts = Facts {
            make: self.prober.tool("make").ok(),
            ..Facts::default()
        };
        let probed = self
            .prober
            .toolchain(toolchain, Uses { cxx: false, lto })
            .and_then(|probed| {
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
