//! Commands on built prefixes: path, env, smoke, verify, rm.

use std::collections::BTreeMap;

use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::exec::{self, prove};
use crate::model::manifest::Manifest;
use crate::model::name::BuildName;
use crate::select;
use crate::store::manifest::ManifestState;
use crate::store::{self, alias, verify as verifying};
use crate::text;

use super::args::{Built, One};
use super::{Ended, one};

/// In place of an identity, for a work directory that belongs to no attempt. Shorter than any, so that
/// it meets none, and hexadecimal, so that the sweep takes away what a crash leaves.
const SMOKE_ID: &str = "0";

/// The manifest of a prefix, if it is sealed.
pub fn sealed(ctx: &Context, name: &BuildName) -> Option<Box<Manifest>> {
    store::manifest::read(&ctx.layout.prefix(name)).valid()
}

/// All sealed prefixes in version order, and the links to them.
pub fn built(ctx: &Context) -> Result<(Vec<Manifest>, BTreeMap<BuildName, BuildName>)> {
    if !ctx.layout.root().is_dir() {
        return Ok((vec![], BTreeMap::new()));
    }
    let mut manifests: Vec<Manifest> = store::list(&ctx.layout)?
        .into_iter()
        .filter_map(|listed| match listed.state {
            store::State::Built(manifest) => Some(*manifest),
            _ => None,
        })
        .collect();
    in_version_order(&mut manifests);
    Ok((manifests, alias::all(&ctx.layout)?.into_iter().collect()))
}

fn in_version_order(manifests: &mut [Manifest]) {
    manifests.sort_by(|a, b| {
        let version = |m: &Manifest| m.version.parse::<crate::model::version::Version>().ok();
        (&a.product, version(a), &a.variant, &a.name).cmp(&(&b.product, version(b), &b.variant, &b.name))
    });
}

/// Names of sealed prefixes, in the same order.
pub fn names(manifests: &[Manifest]) -> Vec<BuildName> {
    manifests.iter().filter_map(|m| m.name.parse().ok()).collect()
}

/// Sealed prefixes that selectors pick.
pub fn pick(ctx: &Context, selectors: &[String]) -> Result<Vec<Manifest>, Vec<Error>> {
    let (manifests, links) = built(ctx).map_err(one)?;
    let spelled = selectors.iter().filter_map(|s| s.parse::<BuildName>().ok());
    let withheld: Vec<Error> = spelled
        .filter_map(|name| withheld(ctx, links.get(&name).unwrap_or(&name)))
        .collect();
    if !withheld.is_empty() {
        return Err(withheld);
    }
    let picked = select::among(&names(&manifests), &links, selectors)?;
    Ok(picked
        .iter()
        .filter_map(|name| manifests.iter().find(|m| m.name == name.as_str()).cloned())
        .collect())
}

/// Why something that has the name of a build is not handed over as one.
fn withheld(ctx: &Context, name: &BuildName) -> Option<Error> {
    let prefix = ctx.layout.prefix(name);
    let why = match (fs_err::symlink_metadata(&prefix), store::manifest::read(&prefix)) {
        (Err(_), _) | (_, ManifestState::Valid(_)) => return None,
        (_, ManifestState::Absent) => exec::NO_MANIFEST.to_owned(),
        (_, ManifestState::Torn(why)) => why,
    };
    let error = Error::new(Exit::Store, format!("`{name}` is there and does not count as built"))
        .detail("prefix", prefix.display())
        .detail("reason", why);
    Some(error.hint(format!("move it away and build it again: bm build {name}")))
}

/// One sealed prefix.
pub fn pick_one(ctx: &Context, one: &One) -> Result<Manifest, Vec<Error>> {
    let mut picked = pick(ctx, std::slice::from_ref(&one.build))?;
    match picked.len() {
        1 => Ok(picked.swap_remove(0)),
        n => Err(vec![Error::new(
            Exit::Usage,
            format!("`{}` picks {n} prefixes, one is needed", one.build),
        )]),
    }
}

/// The build behind a name: a link, or another name by the recipes, which is no link while the build
/// has not succeeded.
pub fn canonical(ctx: &Context, text: &str) -> Result<BuildName> {
    let name: BuildName = text.parse().map_err(|e| Error::new(Exit::Usage, format!("{e}")))?;
    if let Some(target) = alias::target(&ctx.layout, &name)? {
        return Ok(target);
    }
    // A name that no recipe reads may be one the user chose.
    Ok(ctx.names().name(text).map_or(name, |(canonical, _)| canonical))
}

/// `bm path`.
pub fn path(ctx: &Context, args: &Built) -> Ended {
    let mut picked = pick(ctx, &args.builds)?;
    // Whatever the order of the selectors.
    in_version_order(&mut picked);
    for manifest in picked {
        ctx.shell.result(&manifest.prefix);
    }
    Ok(Exit::Ok)
}

/// Names and values of `bm env`; libraries of the prefix are never pushed onto other programs.
pub fn variables(m: &Manifest) -> Vec<(&'static str, String)> {
    let driver = &m.driver;
    let below = |part: &Option<String>| part.as_ref().map(|p| format!("{}/{p}", m.prefix)).unwrap_or_default();
    vec![
        ("BM_NAME", m.name.clone()),
        ("BM_PREFIX", m.prefix.clone()),
        ("BM_BIN", m.bin.clone()),
        ("BM_LIB", m.lib.clone()),
        ("BM_PRODUCT", m.product.clone()),
        ("BM_VERSION", m.version.clone()),
        ("BM_VERSION_NUM", m.version_num.to_string()),
        ("BM_SERIES", m.series.clone()),
        ("BM_VARIANT", m.variant.clone()),
        ("BM_TOOLCHAIN", m.toolchain.name.clone()),
        ("BM_IDENTITY", m.identity.clone()),
        ("BM_INIT", driver.init.clone().unwrap_or_default()),
        ("BM_SOCKET", driver.socket.clone().unwrap_or_default()),
        ("BM_PORT", driver.port.map(|p| p.to_string()).unwrap_or_default()),
        ("BM_ENGINE", driver.engine.clone().unwrap_or_default()),
        ("BM_SERVER", below(&driver.server)),
        ("BM_CLIENT", below(&driver.client)),
        ("BM_CLIENT_LIBRARY", below(&driver.client_library)),
        ("BM_EXTENSIONS", driver.extensions.join(" ")),
        ("BM_MANIFEST", format!("{}/.bm/manifest.json", m.prefix)),
    ]
}

/// `bm env`.
pub fn env(ctx: &Context, args: &One, json: bool) -> Ended {
    let manifest = pick_one(ctx, args)?;
    let variables = variables(&manifest);
    if json {
        let map: BTreeMap<_, _> = variables.into_iter().collect();
        ctx.shell.result(json!({"schema": 1, "env": map}).to_string());
        return Ok(Exit::Ok);
    }
    for (name, value) in &variables {
        let quoted = shlex::try_quote(value).map_err(|e| {
            one(Error::new(
                Exit::Bug,
                format!("a manifest holds a value no shell can take: {e}"),
            ))
        })?;
        ctx.shell.result(format!("export {name}={quoted}"));
    }
    ctx.shell.result("export PATH=\"$BM_BIN:$PATH\"");
    Ok(Exit::Ok)
}

/// `bm smoke`.
pub fn smoke(ctx: &Context, args: &Built) -> Ended {
    let picked = pick(ctx, &args.builds)?;
    let locks = exec::locks(ctx);
    let mut errors = Vec::new();
    for manifest in picked {
        let name: BuildName = manifest.name.parse().expect("sealed manifests have good names");
        match again(ctx, &locks, &name, &manifest) {
            Ok(smoke) => {
                ctx.shell.status(
                    "Passed",
                    format!("{name}: {} rows read back, {:.0} transactions/s", smoke.rows, smoke.tps),
                );
                for warning in smoke.warnings {
                    ctx.shell.warning(format!("{name}: {warning}"));
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) }
}

fn again(
    ctx: &Context,
    locks: &store::lock::Locks,
    name: &BuildName,
    m: &Manifest,
) -> Result<crate::model::manifest::Smoke> {
    use crate::error::IoContext as _;
    let _lock = locks.prefix(name, exec::lock_wait(ctx), &exec::say_waiting(ctx, name.as_str()))?;
    let product = m.product.parse().ok().and_then(|p| ctx.library.recipes.get(&p));
    let recipe =
        product.ok_or_else(|| Error::new(Exit::Usage, format!("no recipe says how `{}` is tested", m.product)))?;
    let work = scratch(ctx, name)?;
    let logs = ctx.layout.state().join("logs");
    fs_err::create_dir_all(&logs).doing(|| "cannot make the directory of logs".to_owned())?;
    let expect = prove::smoke_expect(&m.version, &m.driver, &recipe.smoke_command, &[]);
    let log = logs.join(format!("{name}-smoke.log"));
    let result = crate::smoke::run(
        &ctx.layout.prefix(name),
        recipe.smoke,
        &expect,
        &work,
        &log,
        &ctx.cancel,
    );
    store::disk::remove_tree(&work)?;
    result
}

/// A directory for one smoke test outside a build, empty.
fn scratch(ctx: &Context, name: &BuildName) -> Result<std::path::PathBuf> {
    let work = ctx.layout.work(name, SMOKE_ID);
    store::work::fresh_work(&ctx.layout, &work)?;
    Ok(work.0)
}

/// `bm verify`.
pub fn verify(ctx: &Context, args: &Built, json: bool) -> Ended {
    let mut errors = Vec::new();
    let mut reports = Vec::new();
    for manifest in pick(ctx, &args.builds)? {
        let name = &manifest.name;
        let report = match verifying::verify(std::path::Path::new(&manifest.prefix)) {
            Ok(report) => report,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let changed: Vec<_> = report
            .changed
            .iter()
            .map(|c| json!({"path": c.path, "what": c.what, "expected": c.expected, "got": c.got}))
            .collect();
        reports.push(json!({"name": name, "intact": report.is_intact(), "missing": report.missing, "changed": changed, "extra": report.extra}));
        if report.is_intact() {
            if !json {
                ctx.shell.status(
                    "Intact",
                    format!(
                        "{name}: {}, {} added later",
                        text::count(manifest.files, "file"),
                        report.extra.len()
                    ),
                );
            }
            continue;
        }
        let mut error = Error::new(Exit::Proof, format!("`{name}` is not as it was sealed"));
        for path in report.missing.iter().take(10) {
            error = error.detail("missing", path);
        }
        for change in report.changed.iter().take(10) {
            error = error.detail(
                "changed",
                format!(
                    "{}: {} was {}, is {}",
                    change.path, change.what, change.expected, change.got
                ),
            );
        }
        errors.push(error.hint(format!("bm build {name} --rebuild")));
    }
    if json {
        ctx.shell.result(json!({"schema": 1, "builds": reports}).to_string());
    }
    if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) }
}

/// Another name and the build it stands for.
type Link = (BuildName, BuildName);

/// Selectors that are links, and the rest: `rm` of a link removes the link.
fn split_links(ctx: &Context, selectors: &[String]) -> Result<(Vec<Link>, Vec<String>)> {
    let (mut links, mut rest) = (Vec::new(), Vec::new());
    for selector in selectors {
        let link = match selector.parse::<BuildName>() {
            Ok(name) => alias::target(&ctx.layout, &name)?.map(|target| (name, target)),
            Err(_) => None,
        };
        match link {
            Some(link) => links.push(link),
            None => rest.push(selector.clone()),
        }
    }
    Ok((links, rest))
}

/// `bm rm`.
pub fn rm(ctx: &Context, args: &Built) -> Ended {
    let locks = exec::locks(ctx);
    let _gc = locks
        .shared_gc(exec::lock_wait(ctx), &exec::say_waiting(ctx, "the store"))
        .map_err(one)?;
    let mut errors = Vec::new();
    let (links, builds) = split_links(ctx, &args.builds).map_err(one)?;
    for (link, name) in links {
        match store::remove(&ctx.layout, &link) {
            Ok(_) => ctx.shell.status("Removed", format!("the link {link}; {name} stays")),
            Err(error) => errors.push(error),
        }
    }
    if builds.is_empty() {
        return if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) };
    }
    for manifest in pick(ctx, &builds)? {
        let name: BuildName = manifest.name.parse().expect("sealed manifests have good names");
        let removed = locks
            .prefix(&name, exec::lock_wait(ctx), &exec::say_waiting(ctx, name.as_str()))
            .and_then(|_lock| store::remove(&ctx.layout, &name));
        match removed {
            Ok(_) => ctx
                .shell
                .status("Removed", format!("{name} ({})", text::size(manifest.size))),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) }
}
