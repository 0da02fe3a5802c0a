//! Commands that plan: build, show, plan, fetch.

use std::collections::BTreeSet;

use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::exec::decide::{self, Decision, Rebuild};
use crate::exec::measured::{self, Estimate, Forecast, Measured};
use crate::exec::resolve::Reach;
use crate::exec::{self, Done, Options, Results, Runner, fetch};
use crate::model::recipe::SourceKind;
use crate::plan::{BuildPlan, show as shown};
use crate::probe::{host, requirements};
use crate::text;
use crate::ui::{Plain, View};

use super::args::{Build, Selection};
use super::host::{install, missing};
use super::planning::{Planner, requests, requests_without_step, step};
use super::{Ended, one};

/// `bm build`.
pub fn build(ctx: &Context, args: &Build) -> Ended {
    let net = ctx.net(args.selection.offline).map_err(one)?;
    let options = options(ctx, args).map_err(one)?;
    let requests = requests(ctx, &args.selection)?;
    let mut planner = Planner::new(ctx);
    let reach = if args.dry_run { Reach::Known } else { Reach::Network };
    let mut plans = planner.plans(requests.clone(), &net, reach)?;
    if args.dry_run {
        say_plan(ctx, &plans, options.rebuild);
        say_forecast(ctx, &forecast(ctx, &plans, &options));
        return Ok(Exit::Ok);
    }
    let mut missing = missing(&planner.prober, &waiting(&plans, options.rebuild)).map_err(one)?;
    if !missing.is_empty() && args.install_deps {
        install(ctx, &planner.prober, &missing).map_err(one)?;
        // A compiler may have come with the packages, and directories on PATH: all is looked at again.
        planner = Planner::new(ctx);
        plans = planner.plans(requests, &net, reach)?;
        missing = super::host::missing(&planner.prober, &waiting(&plans, options.rebuild)).map_err(one)?;
    }
    if !missing.is_empty() {
        return Err(vec![requirements::missing_error(&missing)]);
    }
    let plain = Plain(&ctx.shell);
    let views: [&dyn View; 1] = [&plain];
    let runner = Runner::new(ctx, net, planner.prober, planner.path, options, &views).map_err(one)?;
    let results = runner.run(&plans).map_err(one)?;
    // Fresh and new builds are of the compiler that is here now.
    if results.iter().any(|(_, r)| matches!(r, Ok(Done::Kept(_)))) {
        mixed_compilers(ctx, &plans);
    }
    Ok(summary(ctx, &plans, &results))
}

fn options(ctx: &Context, args: &Build) -> Result<Options> {
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
    Ok(Options {
        rebuild: args.rebuild,
        keep: args.keep,
        fail_fast: args.fail_fast,
        from: step(&args.selection)?,
        jobs,
        parallel,
        load: args.load,
        until: args.until,
        ccache: args.ccache.or(ctx.config.ccache).unwrap_or_default(),
        configure_cache: args.configure_cache.or(ctx.config.configure_cache).unwrap_or_default(),
    })
}

/// Plans that will be built, and can be: an obstacle is told by the run.
fn waiting(plans: &[BuildPlan], rebuild: Option<Rebuild>) -> Vec<&BuildPlan> {
    let to_build = |plan: &&BuildPlan| {
        let decision = decide::decide(plan, &exec::found(&plan.prefix), rebuild);
        plan.obstacles.is_empty() && matches!(decision, Decision::Build(_))
    };
    plans.iter().filter(to_build).collect()
}

/// The last line of a run, and its exit code.
fn summary(ctx: &Context, plans: &[BuildPlan], results: &Results) -> Exit {
    let count = |f: &dyn Fn(&Result<Done>) -> bool| results.iter().filter(|(_, r)| f(r)).count();
    let built = count(&|r| matches!(r, Ok(Done::Built(_))));
    let fresh = count(&|r| matches!(r, Ok(Done::Fresh)));
    let kept = count(&|r| matches!(r, Ok(Done::Kept(_))));
    let skipped = count(&|r| matches!(r, Ok(Done::Skipped(_))));
    let failed = results.len() - built - fresh - kept - skipped;
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
    if let ([plan], [(_, Ok(Done::Built(_) | Done::Fresh | Done::Kept(_)))]) = (plans, results.as_slice()) {
        say_next(ctx, plan);
    }
    // Builds that a failure kept from being begun are skipped; after a Ctrl-C they are errors of their own.
    results
        .iter()
        .filter_map(|(_, r)| r.as_ref().err())
        .fold(Exit::Ok, |worst, e| worst.worst(e.exit()))
}

/// One build: what can be done with it now.
fn say_next(ctx: &Context, plan: &BuildPlan) {
    let (name, shell) = (&plan.name, &ctx.shell);
    shell.note(format!("\n  prefix  {}", plan.prefix.display()));
    shell.note(format!("  next    bm show --explain {name}     what it was made of"));
    let client = plan.driver.client.as_deref().and_then(|c| c.rsplit('/').next());
    if let Some(client) = client {
        shell.note(format!("          bm exec {name} -- {client} --version"));
    }
    if plan.driver.init.is_some() {
        shell.note(format!("          bm server init {name} --datadir DIR --port 5499"));
    }
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
    let plans = planner.plans(requests_without_step(ctx, selection)?, &net, Reach::Known)?;
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
        ("cflags", words(&plan.run.flags.cflags)),
        ("ldflags", words(&plan.run.flags.ldflags)),
        ("prefix", plan.prefix.display().to_string()),
        (
            "identity",
            plan.identity
                .clone()
                .unwrap_or_else(|| format!("unresolved: {}", plan.unresolved.join("; "))),
        ),
        ("state", state),
    ];
    let obstacles = plan
        .obstacles
        .iter()
        .map(|o| ("obstacle", o.to_string().replace('\n', "\n          ")));
    let rows = rows.into_iter().chain(obstacles);
    rows.map(|(k, v)| format!("{k:10}{v}\n")).collect()
}

/// `bm plan`.
pub fn plan(ctx: &Context, selection: &Selection, json: bool) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let plans = Planner::new(ctx).plans(requests_without_step(ctx, selection)?, &net, Reach::Known)?;
    if json {
        let builds: Vec<_> = plans
            .iter()
            .map(|p| {
                let (action, reason) = action(p, None);
                json!({"name": p.name, "action": action, "reason": reason, "identity": p.identity, "unresolved": p.unresolved,
                    "notes": shown::notes(p), "obstacles": shown::obstacles(p)})
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
        Decision::Build(why) => match plan.obstacles.first() {
            Some(obstacle) => ("refuse", obstacle.headline().to_owned()),
            None => ("build", why),
        },
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
    for (note, of) in notes(plans) {
        let whose = if of < plans.len() {
            format!("{}: ", text::count(of, "build"))
        } else {
            String::new()
        };
        ctx.shell.note(format!("note: {whose}{note}"));
    }
    ctx.shell
        .status("Plan", format!("{} of {}", text::count(to_build, "build"), plans.len()));
}

/// What the builds that would be made take.
fn forecast(ctx: &Context, plans: &[BuildPlan], options: &Options) -> Forecast {
    let measured = Measured::read(&ctx.layout.measured());
    let estimates: Vec<Estimate> = waiting(plans, options.rebuild)
        .into_iter()
        .map(|plan| measured.estimate(plan))
        .collect();
    measured::forecast(&estimates, options.jobs, options.parallel)
}

fn say_forecast(ctx: &Context, forecast: &Forecast) {
    if forecast.builds == 0 {
        return;
    }
    let guessed = match forecast.guessed {
        0 => String::new(),
        n if n == forecast.builds => " (a guess: nothing like it was built here yet)".to_owned(),
        n => format!(" ({n} of them guessed)"),
    };
    ctx.shell.status(
        "Forecast",
        format!(
            "{}, about {}, {} of disk at most, {} of prefixes{guessed}",
            text::count(forecast.builds, "build"),
            text::duration(forecast.seconds),
            text::size(forecast.disk_bytes),
            text::size(forecast.prefix_bytes)
        ),
    );
}

/// Reasons of conditional parts, each once, with the number of builds it speaks of.
fn notes(plans: &[BuildPlan]) -> Vec<(String, usize)> {
    let mut notes: Vec<(String, usize)> = Vec::new();
    for note in plans.iter().flat_map(|p| &p.notes).map(ToString::to_string) {
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, of)) => *of += 1,
            None => notes.push((note, 1)),
        }
    }
    notes
}

/// `bm fetch`.
pub fn fetch(ctx: &Context, selection: &Selection) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let plans = Planner::new(ctx).plans(requests_without_step(ctx, selection)?, &net, Reach::Network)?;
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for plan in &plans {
        let key = plan.source.commit.clone().or(plan.source.sha256.clone());
        if plan.source.kind == SourceKind::Local || !seen.insert(key) {
            continue;
        }
        match fetch::present(ctx, &net, plan) {
            Ok(None) => {}
            Ok(Some(from)) => ctx.shell.status(
                "Fetched",
                format!("{} {} ({from})", plan.source.kind, plan.source.reference),
            ),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) }
}
