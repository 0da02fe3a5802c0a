//! Commands that plan: build, show, plan, fetch, deps, doctor.

use std::collections::BTreeSet;

use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::exec::decide::{self, Decision};
use crate::exec::resolve::Reach;
use crate::exec::{self, Done, Options, Results, Runner, fetch};
use crate::model::recipe::{Requirement, SourceKind};
use crate::plan::{BuildPlan, show as shown};
use crate::probe::requirements::{self, Missing};
use crate::probe::{Prober, host};
use crate::source::Log;
use crate::store;
use crate::text;

use super::args::{Build, From, Rebuild, Selection};
use super::planning::{Planner, requests};
use super::{Ended, one};

/// `bm build`.
pub fn build(ctx: &Context, args: &Build) -> Ended {
    let net = ctx.net(args.selection.offline).map_err(one)?;
    let options = options(ctx, args);
    let requests = requests(ctx, &args.selection)?;
    let planner = Planner::new(ctx);
    let reach = if args.dry_run { Reach::Known } else { Reach::Network };
    let mut plans = planner.plans(requests.clone(), &net, reach)?;
    if args.dry_run {
        say_plan(ctx, &plans, options.rebuild);
        return Ok(Exit::Ok);
    }
    let waiting: Vec<&BuildPlan> = plans.iter().filter(|p| to_be_built(p, options.rebuild)).collect();
    let missing = missing(&planner.prober, &waiting).map_err(one)?;
    if !missing.is_empty() {
        if !args.install_deps {
            return Err(vec![requirements::missing_error(&missing)]);
        }
        install(ctx, &planner.prober, &missing).map_err(one)?;
        // A compiler may have come with the packages.
        plans = Planner::new(ctx).plans(requests, &net, reach)?;
    }
    let runner = Runner::new(ctx, net, planner.prober, planner.path, options).map_err(one)?;
    let results = runner.run(&plans).map_err(one)?;
    // Fresh and new builds are of the compiler that is here now.
    if results.iter().any(|(_, r)| matches!(r, Ok(Done::Kept(_)))) {
        mixed_compilers(ctx, &plans);
    }
    Ok(summary(ctx, &results))
}

fn options(ctx: &Context, args: &Build) -> Options {
    let jobs = args
        .jobs
        .map(usize::from)
        .or(ctx.config.jobs.map(|j| j as usize))
        .unwrap_or_else(host::cores);
    let parallel = args
        .parallel
        .map(usize::from)
        .or(ctx.config.builds.map(|b| b as usize))
        .unwrap_or(jobs);
    Options {
        rebuild: args.rebuild,
        keep: args.keep,
        fail_fast: args.fail_fast,
        from: args.selection.from.iter().find_map(|f: &From| f.step()),
        jobs,
        parallel,
    }
}

fn to_be_built(plan: &BuildPlan, rebuild: Option<Rebuild>) -> bool {
    matches!(
        decide::decide(plan, &exec::found(&plan.prefix), rebuild),
        Decision::Build(_)
    )
}

/// The last line of a run, and its exit code.
fn summary(ctx: &Context, results: &Results) -> Exit {
    let count = |f: &dyn Fn(&Result<Done>) -> bool| results.iter().filter(|(_, r)| f(r)).count();
    let built = count(&|r| matches!(r, Ok(Done::Built(_))));
    let fresh = count(&|r| matches!(r, Ok(Done::Fresh)));
    let kept = count(&|r| matches!(r, Ok(Done::Kept(_))));
    let skipped = count(&|r| matches!(r, Ok(Done::Skipped)));
    let failed = count(&|r| r.is_err());
    let mut parts = vec![format!("{built} built"), format!("{fresh} fresh")];
    if kept > 0 {
        parts.push(format!("{kept} kept"));
    }
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if skipped > 0 {
        parts.push(format!("{skipped} skipped"));
    }
    ctx.shell.status("Done", parts.join(", "));
    if failed == 0 && built + fresh + kept == 1 {
        // One build: say what to do with it.
        let (name, _) = &results[0];
        ctx.shell
            .note(format!("\n  prefix  {}", ctx.layout.prefix(name).display()));
        ctx.shell
            .note(format!("  next    bm show --explain {name}     what it was made of"));
        ctx.shell.note(format!("          bm exec {name} -- psql --version"));
        ctx.shell
            .note(format!("          bm server init {name} --datadir DIR --port 5499"));
    }
    results
        .iter()
        .filter_map(|(_, r)| r.as_ref().err())
        .fold(Exit::Ok, |worst, e| worst.worst(e.exit()))
}

/// A comparison between builds of different compilers is seldom meant.
fn mixed_compilers(ctx: &Context, plans: &[BuildPlan]) {
    // Two compilers may say the same version of themselves: the content counts.
    let mut by_toolchain = std::collections::BTreeMap::<String, BTreeSet<String>>::new();
    for plan in plans {
        if let decide::Found::Sealed(manifest) = exec::found(&plan.prefix)
            && let Some(cc) = manifest.toolchain.tools.get("cc")
        {
            by_toolchain
                .entry(plan.toolchain.name.to_string())
                .or_default()
                .insert(format!("{} (sha256 {:.12})", cc.version, cc.sha256));
        }
    }
    for (toolchain, compilers) in by_toolchain {
        if compilers.len() > 1 {
            let list: Vec<String> = compilers.into_iter().collect();
            ctx.shell.warning(format!(
                "these builds of toolchain `{toolchain}` come from different compilers: {}; `--rebuild=stale` makes them one",
                list.join("; ")
            ));
        }
    }
}

/// `bm show`.
pub fn show(ctx: &Context, selection: &Selection, explain: bool, json: bool) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let planner = Planner::new(ctx);
    let plans = planner.plans(requests(ctx, selection)?, &net, Reach::Known)?;
    for (i, plan) in plans.iter().enumerate() {
        if json {
            ctx.shell.result(shown::json(plan).to_string());
        } else {
            if i > 0 {
                ctx.shell.result("");
            }
            ctx.shell
                .result(if explain { shown::explain(plan) } else { brief(plan) }.trim_end());
        }
    }
    Ok(Exit::Ok)
}

fn brief(plan: &BuildPlan) -> String {
    let words = |words: &[crate::model::recipe::Word]| {
        let texts: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
        if texts.is_empty() {
            "(none)".to_owned()
        } else {
            texts.join(" ")
        }
    };
    let source = &plan.source;
    let pin = source
        .commit
        .as_ref()
        .or(source.sha256.as_ref())
        .map_or("not pinned", String::as_str);
    let state = match exec::found(&plan.prefix) {
        decide::Found::Nothing => "not built".to_owned(),
        decide::Found::Foreign(why) => format!("taken by something else: {why}"),
        decide::Found::Sealed(m) if Some(&m.identity) == plan.identity.as_ref() => format!("built {}", m.built_at),
        decide::Found::Sealed(m) => format!(
            "built {} from other inputs (`bm plan {}` says which)",
            m.built_at, plan.name
        ),
    };
    let rows = [
        ("name", plan.name.to_string()),
        ("product", format!("{} {}", plan.product, plan.version)),
        ("variant", plan.variant.name.to_string()),
        ("toolchain", plan.toolchain.name.to_string()),
        ("source", format!("{} {} {pin}", source.kind, source.reference)),
        ("cflags", words(&plan.flags.cflags)),
        ("ldflags", words(&plan.flags.ldflags)),
        ("prefix", plan.prefix.display().to_string()),
        (
            "identity",
            plan.identity
                .clone()
                .unwrap_or_else(|| format!("unresolved: {}", plan.unresolved.join("; "))),
        ),
        ("state", state),
    ];
    rows.iter().map(|(k, v)| format!("{k:10}{v}\n")).collect()
}

/// `bm plan`.
pub fn plan(ctx: &Context, selection: &Selection, json: bool) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let plans = Planner::new(ctx).plans(requests(ctx, selection)?, &net, Reach::Known)?;
    if json {
        let builds: Vec<_> = plans
            .iter()
            .map(|p| {
                let (action, reason) = action(p, None);
                json!({"name": p.name, "action": action, "reason": reason, "identity": p.identity, "unresolved": p.unresolved})
            })
            .collect();
        ctx.shell.result(json!({"schema": 1, "builds": builds}).to_string());
    } else {
        say_plan(ctx, &plans, None);
    }
    Ok(Exit::Ok)
}

fn action(plan: &BuildPlan, rebuild: Option<Rebuild>) -> (&'static str, String) {
    match decide::decide(plan, &exec::found(&plan.prefix), rebuild) {
        Decision::Fresh => ("fresh", "same identity".to_owned()),
        Decision::HostMoved(d) => ("keep", decide::reason(&d)),
        Decision::Changed(d) => ("refuse", decide::reason(&d)),
        Decision::Foreign(why) => ("refuse", why),
        Decision::Build(why) => ("build", why),
    }
}

fn say_plan(ctx: &Context, plans: &[BuildPlan], rebuild: Option<Rebuild>) {
    let rows: Vec<Vec<String>> = plans
        .iter()
        .map(|p| {
            let (action, reason) = action(p, rebuild);
            let source = p
                .source
                .commit
                .as_ref()
                .or(p.source.sha256.as_ref())
                .map_or("?", |s| &s[..12]);
            vec![
                action.to_owned(),
                p.name.to_string(),
                format!("{} {} {source}", p.source.kind, p.source.reference),
                reason,
            ]
        })
        .collect();
    let to_build = rows.iter().filter(|r| r[0] == "build").count();
    ctx.shell.result(crate::ui::table(&rows));
    ctx.shell
        .status("Plan", format!("{} of {}", text::count(to_build, "build"), plans.len()));
}

/// `bm fetch`.
pub fn fetch(ctx: &Context, selection: &Selection) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let planner = Planner::new(ctx);
    let plans = planner.plans(requests(ctx, selection)?, &net, Reach::Network)?;
    let options = Options {
        rebuild: None,
        keep: false,
        fail_fast: false,
        from: None,
        jobs: 1,
        parallel: 1,
    };
    let runner = Runner::new(ctx, net, planner.prober, planner.path, options).map_err(one)?;
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for plan in &plans {
        let key = plan.source.commit.clone().or(plan.source.sha256.clone());
        if plan.source.kind == SourceKind::Local || !seen.insert(key) {
            continue;
        }
        let got = match plan.source.kind {
            SourceKind::Git => fetch::git_source(&runner, &plan.source, &Log::none()).map(|f| f.obtained_from),
            _ => fetch::archive_source(&runner, &plan.source, &plan.version, &Log::none()).map(|g| g.obtained_from),
        };
        match got {
            Ok(from) => ctx.shell.status(
                "Fetched",
                format!("{} {} ({from})", plan.source.kind, plan.source.reference),
            ),
            Err(error) => errors.push(error.detail("build", &plan.name)),
        }
    }
    if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) }
}

/// `bm deps`.
pub fn deps(ctx: &Context, selection: &Selection, do_install: bool, json: bool) -> Ended {
    let net = ctx.net(true).map_err(one)?;
    let planner = Planner::new(ctx);
    let plans = planner.plans(requests(ctx, selection)?, &net, Reach::Known)?;
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
fn missing(prober: &Prober, plans: &[&BuildPlan]) -> Result<Vec<Missing>> {
    if plans.is_empty() {
        return Ok(vec![]);
    }
    let own: Vec<Requirement> = plans
        .iter()
        .map(|p| p.source.kind)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .flat_map(requirements::own_needs)
        .collect();
    let mut wanted: Vec<&Requirement> = own.iter().collect();
    for requirement in plans.iter().flat_map(|p| &p.requires) {
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

fn install(ctx: &Context, prober: &Prober, missing: &[Missing]) -> Result<()> {
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
            variant: "def".into(),
            yes: true,
            ..Selection::default()
        };
        worst = deps(ctx, &selection, false, false)?;
    }
    Ok(worst)
}
