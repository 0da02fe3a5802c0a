//! Commands that plan: build, show, plan, fetch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::exec::decide::{self, Decision, Rebuild};
use crate::exec::measured::{self, Estimate, Forecast, Measured};
use crate::exec::resolve::{self, Reach};
use crate::exec::{self, Done, Options, Results, Runner, fetch};
use crate::layout::prefix_state;
use crate::model::manifest::Tool;
use crate::model::name::BuildName;
use crate::model::recipe::{Reason, SourceKind};
use crate::plan::{BuildPlan, StepName, show as shown};
use crate::probe::{host, requirements};
use crate::process::Urgency;
use crate::text;
use crate::ui::timings::{Surroundings, Timings};
use crate::ui::{Json, Live, Plain, View, live, terminal};

use super::args::{Build, MessageFormat, Progress, Selection};
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
    let mut plans = exec::without_idle_needs(ctx, planner.plans(requests.clone(), &net, reach)?, options.rebuild);
    if args.dry_run {
        say_plan(ctx, &plans, options.rebuild);
        say_forecast(ctx, &forecast(ctx, &plans, &options));
        return Ok(Exit::Ok);
    }
    let mut missing = missing(&planner.prober, &waiting(ctx, &plans, options.rebuild)).map_err(one)?;
    if !missing.is_empty() && args.install_deps {
        install(ctx, &planner.prober, &missing).map_err(one)?;
        // A compiler may have come with the packages, and directories on PATH: all is looked at again.
        planner = Planner::new(ctx);
        plans = exec::without_idle_needs(ctx, planner.plans(requests, &net, reach)?, options.rebuild);
        missing = super::host::missing(&planner.prober, &waiting(ctx, &plans, options.rebuild)).map_err(one)?;
    }
    if !missing.is_empty() {
        return Err(vec![requirements::missing_error(&missing)]);
    }
    let watched = Watched::new(ctx, args).map_err(one)?;
    let views = watched.views();
    let run = Runner::new(ctx, net, planner.prober, planner.path, options, &views).and_then(|r| r.run(&plans));
    drop(views);
    let page = watched.end(ctx, args, &plans);
    let results = run.map_err(one)?;
    // Fresh and new builds are of the compiler that is here now.
    if results.iter().any(|(_, r)| matches!(r, Ok(Done::Kept(_)))) {
        mixed_compilers(ctx, &plans, &results);
    }
    let exit = summary(ctx, &plans, &results);
    match page {
        Ok(()) => Ok(exit),
        Err(error) => {
            ctx.shell.error(&error);
            Ok(exit.worst(error.exit()))
        }
    }
}

/// The views of a run.
struct Watched<'a> {
    shown: Box<dyn View + 'a>,
    json: Option<Json<'a>>,
    timings: Option<Timings>,
}

impl<'a> Watched<'a> {
    fn new(ctx: &'a Context, args: &Build) -> Result<Self> {
        let json = args.message_format == MessageFormat::Json;
        let live = match args.progress {
            Progress::Plain => false,
            Progress::Auto => live::possible() && !live::is_kept() && !ctx.global.quiet && !json,
            Progress::Live if live::possible() => true,
            Progress::Live => {
                return Err(Error::new(
                    Exit::Usage,
                    "`--progress live` needs a terminal on stderr, and not a dumb one",
                )
                .hint("leave it out: `auto` shows lines where there is no terminal"));
            }
        };
        Ok(Watched {
            shown: if live {
                Box::new(Live::start(&ctx.shell, stop(ctx))?)
            } else {
                Box::new(Plain(&ctx.shell))
            },
            json: json.then(|| Json::begin(&ctx.shell)),
            timings: args.timings.is_some().then(Timings::default),
        })
    }

    fn views(&self) -> Vec<&dyn View> {
        let mut views: Vec<&dyn View> = vec![self.shown.as_ref()];
        views.extend(self.json.as_ref().map(|view| view as &dyn View));
        views.extend(self.timings.as_ref().map(|view| view as &dyn View));
        views
    }

    /// Gives the terminal back, and writes the page of timings, however the run ended.
    fn end(self, ctx: &Context, args: &Build, plans: &[BuildPlan]) -> Result<()> {
        drop(self.shown);
        let (Some(timings), Some(file)) = (self.timings, &args.timings) else {
            return Ok(());
        };
        let began = timings.began().unwrap_or_else(resolve::now);
        let file = file.clone().unwrap_or_else(|| {
            let time = began.replace(':', "-");
            ctx.layout.timings().join(format!("{time}-{}.html", std::process::id()))
        });
        let page = timings.page(&Surroundings {
            cores: host::cores(),
            command: ctx.command_line.clone(),
            log: &|build, step, live| log_now(plans, build, step, live),
        });
        if let Some(dir) = file.parent() {
            fs_err::create_dir_all(dir).doing(|| format!("cannot make `{}`", dir.display()))?;
        }
        fs_err::write(&file, page).doing(|| "cannot write the timings".to_owned())?;
        ctx.shell.status("Timings", file.display().to_string());
        Ok(())
    }
}

fn stop(ctx: &Context) -> live::Stop {
    ctx.cancel.around_sleep(terminal::pause, terminal::resume);
    let (ask, asked) = (ctx.cancel.clone(), ctx.cancel.clone());
    live::Stop {
        ask: Box::new(move || ask.request(Urgency::Orderly)),
        asked: Box::new(move || asked.requested().is_some()),
    }
}

/// Where the log of a step is after the run: a sealed build has taken its logs along.
fn log_now(plans: &[BuildPlan], build: &BuildName, step: StepName, live: &Path) -> Option<PathBuf> {
    let plan = plans.iter().find(|p| p.name == *build)?;
    let sealed = prefix_state(&plan.prefix).join(format!("logs/{}.log.gz", step.as_str()));
    [live.to_owned(), sealed].into_iter().find(|log| log.is_file())
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
fn waiting<'p>(ctx: &Context, plans: &'p [BuildPlan], rebuild: Option<Rebuild>) -> Vec<&'p BuildPlan> {
    let to_build = |plan: &&BuildPlan| {
        plan.obstacles.is_empty() && matches!(exec::decision(ctx, plan, rebuild), Decision::Build(_))
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
    // What is there for another one needs no advice.
    let mut asked = plans.iter().zip(results).filter(|(plan, _)| !plan.for_others);
    if let (Some((plan, (_, Ok(Done::Built(_) | Done::Fresh | Done::Kept(_))))), None) = (asked.next(), asked.next()) {
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
    let driver = plan.driver();
    let client = driver.client.as_deref().and_then(|c| c.rsplit('/').next());
    if let Some(client) = client {
        shell.note(format!("          bm exec {name} -- {client} --version"));
    }
    if driver.init.as_deref() == Some(crate::server::INIT) {
        shell.note(format!("          bm server init {name} --datadir DIR --port 5499"));
    }
}

/// A comparison between builds of different compilers is seldom meant.
fn mixed_compilers(ctx: &Context, plans: &[BuildPlan], results: &Results) {
    // Two compilers may say the same version of themselves: the content counts.
    let say = |cc: &Tool| format!("{} (sha256 {:.12})", cc.version, cc.sha256);
    let mut by_toolchain = std::collections::BTreeMap::<&str, BTreeSet<String>>::new();
    for (plan, (_, result)) in plans.iter().zip(results) {
        let compiler = match result {
            // Their identity is the plan's, and so is their compiler.
            Ok(Done::Built(_) | Done::Fresh) => {
                let toolchain = plan.facts.toolchain.as_ref();
                toolchain.and_then(|t| t.record.tools.get("cc")).map(say)
            }
            _ => match exec::found(ctx, plan) {
                decide::Found::Sealed(manifest) => manifest.toolchain.tools.get("cc").map(say),
                _ => None,
            },
        };
        if let Some(compiler) = compiler {
            by_toolchain
                .entry(plan.toolchain.name.as_str())
                .or_default()
                .insert(compiler);
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
    for (i, plan) in plans.iter().filter(|p| !p.for_others).enumerate() {
        if json {
            ctx.shell.result(shown::json(plan).to_string());
        } else {
            if i > 0 {
                ctx.shell.result("");
            }
            ctx.shell.result(
                if explain {
                    shown::explain(plan)
                } else {
                    brief(ctx, plan)
                }
                .trim_end(),
            );
        }
    }
    Ok(Exit::Ok)
}

fn brief(ctx: &Context, plan: &BuildPlan) -> String {
    let words = |words: &[crate::model::recipe::Word]| {
        let texts: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
        if texts.is_empty() {
            "(none)".to_owned()
        } else {
            texts.join(" ")
        }
    };
    let (source, run) = (&plan.source, plan.run());
    let pin = source.pin().unwrap_or("not pinned");
    let state = match exec::found(ctx, plan) {
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
        ("product", format!("{} {}", plan.product(), plan.version)),
        ("variant", plan.variant.name.to_string()),
        ("toolchain", plan.toolchain.name.to_string()),
        ("builds on", needs(plan)),
        ("source", format!("{} {} {pin}", source.kind, source.reference)),
        ("cflags", words(&run.flags.cflags)),
        ("ldflags", words(&run.flags.ldflags)),
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
    let rows = rows.into_iter().filter(|(_, v)| !v.is_empty()).chain(obstacles);
    rows.map(|(k, v)| format!("{k:10}{v}\n")).collect()
}

/// Builds that it needs.
fn needs(plan: &BuildPlan) -> String {
    let names: Vec<&str> = plan.needs.iter().map(|n| n.name.as_str()).collect();
    names.join(" ")
}

/// `bm plan`.
pub fn plan(ctx: &Context, selection: &Selection, json: bool) -> Ended {
    let net = ctx.net(selection.offline).map_err(one)?;
    let plans = Planner::new(ctx).plans(requests_without_step(ctx, selection)?, &net, Reach::Known)?;
    let plans = exec::without_idle_needs(ctx, plans, None);
    if json {
        let builds: Vec<_> = plans
            .iter()
            .map(|p| {
                let (action, reason) = action(ctx, p, None);
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

fn action(ctx: &Context, plan: &BuildPlan, rebuild: Option<Rebuild>) -> (&'static str, String) {
    match exec::decision(ctx, plan, rebuild) {
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
            let (action, reason) = action(ctx, p, rebuild);
            let source = p.source.pin().map_or("?", |pin| &pin[..12]);
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
    let estimates: Vec<Estimate> = waiting(ctx, plans, options.rebuild)
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
fn notes(plans: &[BuildPlan]) -> Vec<(&Reason, usize)> {
    let mut notes: Vec<(&Reason, usize)> = Vec::new();
    for note in plans.iter().flat_map(BuildPlan::notes) {
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
        let key = plan.source.pin();
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
