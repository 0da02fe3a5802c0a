//! Running plans: decisions, the job budget, builds side by side, one build through its steps.
//!
//! Owns the run. Knows plans, the store, sources, processes and the audit; knows no command line
//! beyond its options.

pub mod build;
pub mod decide;
pub mod failure;
pub mod fetch;
pub mod jobs;
pub mod kept;
pub mod prove;
pub mod resolve;
pub mod seal;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::model::event::{BuildResult, Event, What};
use crate::model::name::BuildName;
use crate::plan::{BuildPlan, StepName};
use crate::probe::Prober;
use crate::process::Urgency;
use crate::source::Net;
use crate::store::lock::{Guard, Holder, LockWait, Locking, Locks};
use crate::store::manifest::ManifestState;
use crate::store::{self, alias, recover};
use crate::ui::View;

use decide::{Decision, Found, Rebuild};
use jobs::JobPool;

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
    /// Not begun, or stopped, since another build failed and the run was to end then.
    Skipped,
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
    /// Makes the job budget and looks at the host's PATH.
    ///
    /// # Errors
    /// When the root cannot be used.
    pub fn new(
        ctx: &'a Context,
        net: Net,
        prober: Prober,
        path: Vec<PathBuf>,
        options: Options,
        views: &'a [&'a dyn View],
    ) -> Result<Self> {
        ctx.make_root()?;
        store::prepare(&ctx.layout)?;
        let jobs = ctx.layout.budgets();
        fs_err::create_dir_all(&jobs).doing(|| format!("cannot make `{}`", jobs.display()))?;
        let fifo = jobs.join(format!("{}.fifo", std::process::id()));
        let bm_exe = std::env::current_exe().map_err(|e| Error::io("cannot find bm's own program", &e))?;
        Ok(Runner {
            ctx,
            net,
            prober,
            path,
            pool: JobPool::new(&fifo, options.jobs)?,
            locks: locks(ctx),
            bm_exe,
            options,
            views,
            one_view_at_a_time: Mutex::new(()),
            began: Instant::now(),
        })
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
        self.say(What::RunBegun {
            builds: plans.iter().map(|p| p.name.clone()).collect(),
            jobs: self.options.jobs,
            parallel: self.options.parallel,
            began: resolve::now(),
        });
        let queue: Mutex<VecDeque<usize>> = Mutex::new((0..plans.len()).collect());
        let results: Mutex<Vec<Option<Result<Done>>>> = Mutex::new(plans.iter().map(|_| None).collect());
        let failed_fast = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..self.options.parallel.min(plans.len()).max(1) {
                scope.spawn(|| {
                    loop {
                        let next = queue
                            .lock()
                            .expect("no thread panics while it holds the queue")
                            .pop_front();
                        let Some(i) = next else { return };
                        let result = self.unless_failed(&failed_fast, self.one(&plans[i]));
                        self.tell(&plans[i], &result);
                        results.lock().expect("no thread panics while it holds the results")[i] = Some(result);
                    }
                });
            }
        });
        // Killed children may have taken tokens with them.
        self.pool.recount()?;
        let results = results.into_inner().expect("all threads have ended");
        Ok(plans
            .iter()
            .zip(results)
            .map(|(p, r)| (p.name.clone(), r.expect("every build was taken from the queue")))
            .collect())
    }

    /// The first failure of a run that is to end with it stops the other builds. They did not fail,
    /// and nobody interrupted them.
    fn unless_failed(&self, failed_fast: &AtomicBool, result: Result<Done>) -> Result<Done> {
        let asked = self.ctx.cancel.requested();
        match result {
            Err(e) if e.exit() == Exit::Interrupted => {
                // A signal of the user's, which comes on top, is an interruption all the same.
                let ours = failed_fast.load(Ordering::SeqCst) && asked != Some(Urgency::Kill);
                if ours { Ok(Done::Skipped) } else { Err(e) }
            }
            Err(e) => {
                if self.options.fail_fast && asked.is_none() {
                    failed_fast.store(true, Ordering::SeqCst);
                    self.ctx.cancel.request(Urgency::Orderly);
                }
                Err(e)
            }
            done => done,
        }
    }

    /// One build, under its lock.
    fn one(&self, plan: &BuildPlan) -> Result<Done> {
        if self.ctx.cancel.requested().is_some() {
            return Ok(Done::Skipped);
        }
        let _lock: Guard = self.locks.prefix(
            &plan.name,
            lock_wait(self.ctx),
            &say_waiting(self.ctx, plan.name.as_str()),
        )?;
        // Another process may have finished, or left in pieces, the same build.
        for line in recover::recover(&self.ctx.layout, &plan.name)? {
            self.ctx.shell.status("Repaired", line);
        }
        let start = Instant::now();
        let done = match decide::decide(plan, &found(&plan.prefix), self.options.rebuild) {
            Decision::Fresh => Done::Fresh,
            Decision::HostMoved(differences) => Done::Kept(decide::reason(&differences)),
            Decision::Changed(differences) => return Err(changed(plan, &differences)),
            Decision::Foreign(why) => return Err(foreign(plan, &why)),
            Decision::Build(_) => {
                if let Some(obstacle) = plan.obstacles.first() {
                    return Err(obstacle.clone());
                }
                let identity = plan.identity.as_deref().ok_or_else(|| unresolved(plan))?;
                build::Attempt::new(self, plan, identity).run(self.options.from)?;
                Done::Built(start.elapsed().as_secs_f64())
            }
        };
        for link in &plan.links {
            alias::set_alias(&self.ctx.layout, link, &plan.name)?;
        }
        Ok(done)
    }

    fn tell(&self, plan: &BuildPlan, result: &Result<Done>) {
        let (how, wall, reason) = match result {
            Ok(Done::Built(seconds)) => (BuildResult::Built, *seconds, None),
            Ok(Done::Fresh) => (BuildResult::Fresh, 0.0, None),
            Ok(Done::Kept(reason)) => (BuildResult::Kept, 0.0, Some(reason.clone())),
            Ok(Done::Skipped) => (BuildResult::Skipped, 0.0, None),
            Err(error) => (BuildResult::Failed, 0.0, Some(error.headline().to_owned())),
        };
        self.say(What::BuildEnded {
            build: plan.name.clone(),
            result: how,
            wall,
            reason,
            log: None,
        });
        if let Err(error) = result {
            self.ctx.shell.error(error);
        }
    }
}

/// Why a directory that bm did not build does not count.
pub const NO_MANIFEST: &str = "it has no manifest of bm's";

/// What stands at a prefix's path.
pub fn found(prefix: &Path) -> Found {
    if fs_err::symlink_metadata(prefix).is_err() {
        return Found::Nothing;
    }
    match store::manifest::glance(prefix) {
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
