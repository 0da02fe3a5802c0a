//! Commands about the host: deps, doctor.

use std::collections::BTreeSet;

use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::exec;
use crate::exec::jobs;
use crate::exec::resolve::Reach;
use crate::model::recipe::{Requirement, SourceKind};
use crate::plan::BuildPlan;
use crate::probe::requirements::{self, Missing};
use crate::probe::{Prober, host};
use crate::store;
use crate::text;

use super::args::Selection;
use super::planning::{Planner, requests_without_step};
use super::{Ended, one};

/// `bm deps`.
pub fn deps(ctx: &Context, selection: &Selection, do_install: bool, json: bool) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let planner = Planner::new(ctx);
    let plans = planner.plans(requests_without_step(ctx, selection)?, &net, Reach::Known)?;
    let missing = missing(&planner.prober, &plans.iter().collect::<Vec<_>>()).map_err(one)?;
    if json {
        let list: Vec<_> = missing
            .iter()
            .map(|m| json!({"need": m.need.to_string(), "packages": m.packages, "origin": m.origin.to_string()}))
            .collect();
        ctx.shell
            .result(json!({"schema": 1, "missing": list, "apt": requirements::apt_line(&missing)}).to_string());
    } else if let Some(line) = requirements::apt_line(&missing) {
        ctx.shell.result(line);
    }
    if missing.is_empty() {
        ctx.shell.note("nothing is missing");
        return Ok(Exit::Ok);
    }
    if do_install {
        install(ctx, &planner.prober, &missing).map_err(one)?;
        return Ok(Exit::Ok);
    }
    for m in &missing {
        ctx.shell.note(format!("missing {}  [{}]", m.need, m.origin));
    }
    Ok(Exit::Host)
}

/// What the host lacks for plans: requirements of recipes, toolchains, and bm's own needs.
pub fn missing(prober: &Prober, plans: &[&BuildPlan]) -> Result<Vec<Missing>> {
    if plans.is_empty() {
        return Ok(vec![]);
    }
    let own: Vec<Requirement> = plans
        .iter()
        // Patches are applied by git, wherever the tree is from.
        .flat_map(|p| [Some(p.source.kind), p.has_patches().then_some(SourceKind::Git)])
        .flatten()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .flat_map(requirements::own_needs)
        .collect();
    let mut wanted: Vec<&Requirement> = own.iter().collect();
    for requirement in plans.iter().flat_map(|p| p.requires()) {
        if !wanted.iter().any(|w| w.need == requirement.need) {
            wanted.push(requirement);
        }
    }
    let cc = plans
        .iter()
        .find_map(|p| prober.program(&p.toolchain.cc.text))
        .map(|f| f.path);
    let mut missing = prober.check(&wanted, cc.as_deref())?;
    for plan in plans {
        if plan.facts.toolchain.is_some() {
            continue;
        }
        let toolchain = requirements::toolchain_missing(prober, &plan.toolchain);
        if toolchain.is_empty()
            && let Some(error) = &plan.facts.toolchain_missing
        {
            // Nothing a package would bring: another version, a broken compiler.
            return Err(error.clone());
        }
        for m in toolchain {
            if !missing.iter().any(|known| known.need == m.need) {
                missing.push(m);
            }
        }
    }
    Ok(missing)
}

/// Installs what is missing, if packages bring all of it.
pub fn install(ctx: &Context, prober: &Prober, missing: &[Missing]) -> Result<()> {
    let packages: BTreeSet<String> = missing.iter().flat_map(|m| m.packages.clone()).collect();
    let without: Vec<&Missing> = missing.iter().filter(|m| m.packages.is_empty()).collect();
    if !without.is_empty() {
        return Err(requirements::missing_error(missing));
    }
    let packages: Vec<String> = packages.into_iter().collect();
    ctx.make_root()?;
    let log = ctx.layout.state().join("install-deps.log");
    ctx.shell.status(
        "Installing",
        format!("packages {} (log {})", packages.join(" "), log.display()),
    );
    prober.install(&packages, &crate::process::fetch_extra(), &log, &ctx.cancel)
}

/// `bm doctor`.
pub fn doctor(ctx: &Context, builds: &[String]) -> Ended {
    let mut worst = Exit::Ok;
    let host = host::host();
    let rows = [
        ("system", format!("{} ({})", host.os, host.os_id)),
        ("kernel", host.kernel),
        ("libc", host.libc),
        ("cpu", format!("{}, {} cores", host.cpu, host::cores())),
        ("memory", text::size(host::memory_bytes())),
        ("root", ctx.layout.root().display().to_string()),
        ("cache", ctx.layout.cache().display().to_string()),
    ];
    for (label, value) in rows {
        ctx.shell.result(format!("{label:8}{value}"));
    }
    if ctx.layout.state().is_dir() {
        let locks = exec::locks(ctx);
        for line in store::recover::recover_all(&ctx.layout, &locks).map_err(one)? {
            ctx.shell.result(format!("repaired {line}"));
        }
        for listed in store::list(&ctx.layout).map_err(one)? {
            match listed.state {
                store::State::Built(_) => {}
                store::State::Unsealed => ctx.shell.result(format!("unsealed {}", listed.name)),
                store::State::Foreign(why) => ctx.shell.result(format!("not bm's: {} ({why})", listed.name)),
            }
        }
        if let Ok(free) = store::disk::free_bytes(ctx.layout.root()) {
            ctx.shell.result(format!("free    {}", text::size(free)));
        }
    }
    let planner = Planner::new(ctx);
    for toolchain in ctx.library.toolchains.values() {
        let state = match planner
            .prober
            .toolchain(toolchain, crate::probe::Uses { cxx: false, lto: true })
        {
            Ok(found) => format!("{} at {}", found.version, found.cc.display()),
            Err(error) => error.headline().to_owned(),
        };
        ctx.shell.result(format!("{:8}{state}", toolchain.name.as_str()));
    }
    planner.prober.save().map_err(one)?;
    if !builds.is_empty() {
        let selection = Selection {
            builds: builds.to_vec(),
            yes: true,
            ..Selection::default()
        };
        worst = deps(ctx, &selection, false, false)?;
    }
    Ok(worst)
}

/// `bm jobs`.
pub fn jobs(ctx: &Context, wanted: Option<u16>) -> Ended {
    let dir = ctx.layout.budget(&host::node_name());
    if let Some(wanted) = wanted {
        let old = jobs::resize(&dir, wanted.into()).map_err(one)?;
        ctx.shell.status("Jobs", format!("{wanted}, were {old}"));
        return Ok(Exit::Ok);
    }
    match jobs::usage(&dir).map_err(one)? {
        None => ctx.shell.note("no bm builds at this moment"),
        Some((shared, used)) => {
            let pids: Vec<String> = shared.with.iter().map(ToString::to_string).collect();
            let of = if pids.len() == 1 { "process" } else { "processes" };
            ctx.shell.result(format!(
                "{used} of {} in use, by bm in {of} {}",
                text::count(shared.jobs, "job"),
                pids.join(", ")
            ));
        }
    }
    Ok(Exit::Ok)
}
