//! Running plans: decisions, the job budget, builds side by side, one build through its steps.
//!
//! Owns the run. Knows plans, the store, sources, processes and the audit; knows no command line
//! beyond its options.

pub mod build;
mod compiler_cache;
mod configure;
pub mod decide;
pub mod failure;
pub mod fetch;
pub mod graph;
pub mod jobs;
pub mod kept;
pub mod measured;
mod pressure;
pub mod prove;
pub mod resolve;
mod run;
pub mod seal;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::model::caching::{CompilerCaching, ConfigureCaching};
use crate::model::event::{Event, What};
use crate::model::name::BuildName;
use crate::model::step::StepName;
use crate::plan::BuildPlan;
use crate::probe::{Prober, host};
use crate::process::{self, Jobserver};
use crate::source::Net;
use crate::store::lock::{Holder, LockWait, Locking, Locks};
use crate::store::manifest::ManifestState;
use crate::store::{self, recover};
use crate::text;
use crate::ui::View;

use decide::{Decision, Found, Rebuild};
use fetch::Fetches;
use jobs::JobPool;
use run::Steps;

/// What `build` was told.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// When to build again what is there.
    pub rebuild: Option<Rebuild>,
    /// Keep work trees after success.
    pub keep: bool,
    /// Stop at the first failure.
    pub fail_fast: bool,
    /// Step to go on at in kept trees.
    pub from: Option<StepName>,
    /// Job tokens.
    pub jobs: usize,
    /// Builds in flight.
    pub parallel: usize,
    /// Nothing new begins while the load of the machine is that high.
    pub load: Option<f64>,
    /// No build begins that would not be done by then.
    pub until: Option<SystemTime>,
    /// Use of a compiler cache.
    pub ccache: CompilerCaching,
    /// Use of configure's cached answers.
    pub configure_cache: ConfigureCaching,
}

/// Everything a run of builds shares.
pub struct Runner<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) net: Net,
    pub(crate) prober: Prober,
    pub(crate) path: Vec<PathBuf>,
    pub(crate) pool: JobPool,
    pub(crate) locks: Locks,
    pub(crate) bm_exe: PathBuf,
    pub(crate) options: Options,
    pub(crate) fetches: Fetches,
    steps: Mutex<Steps>,
    ccache: compiler_cache::Ccache,
    views: &'a [&'a dyn View],
    one_view_at_a_time: Mutex<()>,
    began: Instant,
}

/// How one build ended well.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// Built now, in so many seconds.
    Built(f64),
    /// Was there already.
    Fresh,
    /// Was there already; the host's tools have moved since.
    Kept(String),
    /// Not begun, or stopped: the run was to end, or something it needs is missing.
    Skipped(Option<String>),
}

/// How a run ended, build by build, in the order asked.
pub type Results = Vec<(BuildName, Result<Done>)>;

/// Locks as the command line wants them.
pub fn locks(ctx: &Context) -> Locks {
    let locking = if ctx.global.no_lock { Locking::Off } else { Locking::On };
    let cancel = ctx.cancel.clone();
    Locks::new(&ctx.layout, ctx.command_line.clone(), locking).with_stop(move || cancel.requested().is_some())
}

/// How long to wait for another bm.
pub fn lock_wait(ctx: &Context) -> LockWait {
    ctx.global
        .lock_timeout
        .map_or(LockWait::ForEver, |s| LockWait::For(Duration::from_secs(s)))
}

/// Says once, and then every while, for whom this process waits.
pub fn say_waiting(ctx: &Context, what: &str) -> impl Fn(&Holder) {
    move |holder: &Holder| ctx.shell.status("Waiting", format!("for {what}: {holder}"))
}

impl<'a> Runner<'a> {
    /// Joins or makes the job budget.
    ///
    /// # Errors
    /// When the root cannot be used, or a compiler cache is asked for and not there.
    pub fn new(
        ctx: &'a Context,
        net: Net,
        prober: Prober,
        path: Vec<PathBuf>,
        options: Options,
        views: &'a [&'a dyn View],
    ) -> Result<Self> {
        let ccache = compiler_cache::Ccache::new(options.ccache, &prober)?;
        ctx.make_root()?;
        store::prepare(&ctx.layout)?;
        let bm_exe = std::env::current_exe().map_err(|e| Error::io("cannot find bm's own program", &e))?;
        Ok(Runner {
            ctx,
            net,
            prober,
            path,
            pool: pool(ctx, options.jobs)?,
            locks: locks(ctx),
            bm_exe,
            options,
            fetches: Fetches::default(),
            steps: Mutex::default(),
            ccache,
            views,
            one_view_at_a_time: Mutex::new(()),
            began: Instant::now(),
        })
    }

    /// The job budget as a step of make gets it.
    pub(crate) fn jobserver(&self) -> Jobserver {
        Jobserver {
            load: self.options.load,
            ..self.pool.jobserver()
        }
    }

    /// A build has come to a step.
    pub(crate) fn step_begun(&self, name: &BuildName, step: StepName) {
        if step > StepName::Fetch {
            self.lock_steps().insert(name.to_string(), (step, Instant::now()));
        }
    }

    /// A build has left its last step.
    pub(crate) fn step_over(&self, name: &BuildName) {
        self.lock_steps().remove(name.as_str());
    }

    /// Where the builds in flight are.
    pub(crate) fn steps(&self) -> Steps {
        self.lock_steps().clone()
    }

    /// Builds in flight that have not come to a step.
    pub(crate) fn steps_below(&self, step: StepName) -> usize {
        self.lock_steps().values().filter(|(at, _)| *at < step).count()
    }

    fn lock_steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all views.
    pub(crate) fn say(&self, what: What) {
        let _turn = self.one_view_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let event = Event {
            at: self.began.elapsed().as_secs_f64(),
            what,
        };
        for view in self.views {
            view.on(&event);
        }
    }

    /// Builds all plans, several at the same time.
    ///
    /// # Errors
    /// Only what concerns the run as a whole; each build has its own result.
    pub fn run(&self, plans: &[BuildPlan]) -> Result<Results> {
        let _gc = self
            .locks
            .shared_gc(lock_wait(self.ctx), &say_waiting(self.ctx, "the store"))?;
        for line in recover::recover_all(&self.ctx.layout, &self.locks)? {
            self.ctx.shell.status("Repaired", line);
        }
        let policy = store::sweep::SweepPolicy::default();
        let wanted = kept::wanted_trees(&self.ctx.layout, policy.failed_trees, policy.failed_age);
        let policy = store::sweep::SweepPolicy { wanted, ..policy };
        for line in store::sweep::sweep(&self.ctx.layout, &self.locks, &policy)? {
            self.ctx.shell.status("Swept", line);
        }
        let results = run::run(self, plans)?;
        // Killed children may have taken tokens with them.
        self.pool.recount()?;
        self.say(What::RunEnded {
            wall: self.began.elapsed().as_secs_f64(),
            own_cpu: process::own_cpu(),
        });
        Ok(results)
    }
}

/// The budget of the make that started bm, else the one that all bm of this cache and host share.
fn pool(ctx: &Context, jobs: usize) -> Result<JobPool> {
    match JobPool::outer(&std::env::var("MAKEFLAGS").unwrap_or_default()) {
        Ok(Some(pool)) => {
            ctx.shell
                .status("Joining", "the job budget of the make that started bm");
            return Ok(pool);
        }
        Ok(None) => {}
        Err(why) => ctx.shell.warning(format!(
            "the make that started bm keeps its job budget back ({why}): mark its recipe line with `+`; bm uses its own"
        )),
    }
    let (pool, shared) = JobPool::open(&ctx.layout.budget(&host::node_name()), jobs)?;
    if let Some(shared) = shared {
        let with: Vec<String> = shared.with.iter().map(|pid| format!("process {pid}")).collect();
        ctx.shell.status(
            "Sharing",
            format!(
                "a budget of {} with bm in {}",
                text::count(shared.jobs, "job"),
                with.join(", ")
            ),
        );
    }
    Ok(pool)
}

/// Why a directory that bm did not build does not count.
pub const NO_MANIFEST: &str = "it has no manifest of bm's";

/// What is to be done about a plan, as things stand. A prefix known to be up to date costs one `stat`.
///
/// What others need is shared between builds, and rebuilt only when it is asked for by its own name.
pub fn decision(ctx: &Context, plan: &BuildPlan, rebuild: Option<Rebuild>) -> Decision {
    let rebuild = rebuild.filter(|_| !plan.for_others);
    let known = |identity: &str| ctx.index.knows(&plan.name, identity);
    if rebuild != Some(Rebuild::All) && plan.identity.as_deref().is_some_and(known) {
        return Decision::Fresh;
    }
    decide::decide(plan, &found(ctx, plan), rebuild)
}

/// The plans without those that are there only for others, none of which is going to be built.
pub fn without_idle_needs(ctx: &Context, plans: Vec<BuildPlan>, rebuild: Option<Rebuild>) -> Vec<BuildPlan> {
    let mut needed: BTreeSet<BuildName> = BTreeSet::new();
    // What a build needs stands before it.
    for plan in plans.iter().rev() {
        let wanted = !plan.for_others || needed.contains(&plan.name);
        let builds = || plan.obstacles.is_empty() && matches!(decision(ctx, plan, rebuild), Decision::Build(_));
        if wanted && !plan.needs.is_empty() && builds() {
            needed.extend(plan.needs.iter().map(|n| n.name.clone()));
        }
    }
    let idle = |plan: &BuildPlan| plan.for_others && !needed.contains(&plan.name);
    plans.into_iter().filter(|plan| !idle(plan)).collect()
}

/// The identity that a build has for those that need it: of what is there and stays, else of what would be built.
pub fn standing(ctx: &Context, plan: &BuildPlan) -> Option<String> {
    if plan
        .identity
        .as_deref()
        .is_some_and(|identity| ctx.index.knows(&plan.name, identity))
    {
        return plan.identity.clone();
    }
    let found = found(ctx, plan);
    match (&found, decide::decide(plan, &found, None)) {
        (Found::Sealed(glance), Decision::HostMoved(_)) => Some(glance.identity.clone()),
        _ => plan.identity.clone(),
    }
}

/// What stands at the path of a plan's prefix.
pub fn found(ctx: &Context, plan: &BuildPlan) -> Found {
    if std::fs::symlink_metadata(&plan.prefix).is_err() {
        return Found::Nothing;
    }
    match ctx.index.glance(&plan.name) {
        ManifestState::Valid(manifest) => Found::Sealed(manifest),
        ManifestState::Absent => Found::Foreign(NO_MANIFEST.to_owned()),
        ManifestState::Torn(why) => Found::Foreign(why),
    }
}

fn unresolved(plan: &BuildPlan) -> Error {
    let error = Error::new(Exit::Host, format!("build `{}` cannot be made here", plan.name));
    plan.unresolved
        .iter()
        .fold(error, |e, what| e.detail("missing", what))
        .hint(format!("`bm deps {}` names the packages", plan.name))
}

fn foreign(plan: &BuildPlan, why: &str) -> Error {
    Error::new(
        Exit::Store,
        format!(
            "`{}` is there and was not built by bm; it is left as it is",
            plan.prefix.display()
        ),
    )
    .detail("reason", why)
    .hint("move it away, or build under another name with `--name`")
}

fn changed(plan: &BuildPlan, differences: &[crate::plan::identity::Difference]) -> Error {
    let error = Error::new(
        Exit::Store,
        format!(
            "`{}` is built from other inputs than those planned now; it is kept",
            plan.name
        ),
    );
    let error = differences.iter().take(8).fold(error, |e, d| {
        e.detail(d.path.as_str(), format!("was {}, is {}", d.was, d.now))
    });
    error.hint(format!(
        "bm build {} --rebuild, or build under another name with `--name`",
        plan.name
    ))
}
