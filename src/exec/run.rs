//! A run: all builds of a call over one machine, from the first lock to the last result.
//!
//! Each build is two tasks of a [`Graph`]: making its source present, which takes no processor, and the build
//! itself, which holds one token of the job budget from its first step to its last. A build begins when the ones
//! in flight leave a token unused and memory, disk, load and time allow it; so few builds are in flight at once,
//! and no processor idles. Knows no step of a build.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Exit, Result};
use crate::model::event::{BuildResult, What};
use crate::model::name::BuildName;
use crate::model::step::StepName;
use crate::plan::BuildPlan;
use crate::probe::machine;
use crate::process::Urgency;
use crate::store::lock::Holder;
use crate::store::{alias, disk, recover};
use crate::text;

use super::build::Attempt;
use super::decide::{self, Decision};
use super::fetch::Missing;
use super::graph::{Graph, State};
use super::jobs::{Place, Token};
use super::measured::{Basis, Estimate, Measured, jobs_f64};
use super::pressure::{Change, Pressure};
use super::{Done, Results, Runner, changed, decision, foreign, lock_wait, resolve, unresolved};

/// How often the machine is looked at while nothing ends.
const TICK: Duration = Duration::from_millis(100);
/// How often the views are told how the machine is used.
const SAMPLE: Duration = Duration::from_secs(1);
/// Sources that are fetched at the same time.
const FETCHES: usize = 4;

/// How long a build whose turn it is not waits for the source of one whose turn it is.
const MOMENT: Duration = Duration::from_secs(2);

/// How long a run with nothing in flight is without a job before it says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the first task of a build ended.
enum Prepared<'r> {
    /// There is nothing more to do for it.
    Through(Result<Done>),
    /// Its source is here and its prefix is locked.
    Ready(Box<Attempt<'r>>),
}

enum Told<'r> {
    Prepared(usize, Prepared<'r>),
    Built(usize, Result<Done>),
}

/// What keeps a build from beginning now.
enum Hindrance {
    /// Nothing else can begin either.
    All,
    /// Others may fit.
    This(String),
    /// It ends like this, without having begun.
    Ends(Result<Done>),
}

struct Run<'r> {
    runner: &'r Runner<'r>,
    plans: &'r [BuildPlan],
    estimates: Vec<Estimate>,
    /// Task `i` makes the source of build `i` present, task `plans.len() + i` builds it.
    graph: Graph,
    ready: Vec<Option<Box<Attempt<'r>>>>,
    results: Vec<Option<Result<Done>>>,
    /// When the build itself began.
    began: Vec<Option<Instant>>,
    waits_for: Vec<Option<String>>,
    fetching: usize,
    building: usize,
    failed_fast: bool,
    held_back: Option<Instant>,
    /// The place in the line for a token, and since when.
    lined_up: Option<(Place, Instant)>,
    pressure: Pressure,
    sampled: Instant,
}

/// Runs all plans, several at the same time.
pub(super) fn run(runner: &Runner<'_>, plans: &[BuildPlan]) -> Result<Results> {
    let fresh: Vec<bool> = plans.iter().map(|p| is_fresh(runner, p)).collect();
    let measured = match fresh.contains(&false) {
        true => Measured::read(&runner.ctx.layout.measured()),
        false => Measured::default(),
    };
    let estimate = |(plan, fresh): (&BuildPlan, &bool)| match fresh {
        true => Estimate::nothing(),
        false => measured.estimate(plan),
    };
    let estimates: Vec<Estimate> = plans.iter().zip(&fresh).map(estimate).collect();
    let n = plans.len();
    let mut lengths = vec![0.0; n];
    lengths.extend(estimates.iter().map(|e| e.cost.cpu()));
    let places: HashMap<&BuildName, usize> = plans.iter().enumerate().map(|(i, p)| (&p.name, i)).collect();
    let mut edges: Vec<(usize, usize)> = (0..n).map(|i| (i, n + i)).collect();
    for (i, plan) in plans.iter().enumerate() {
        let needed = plan.needs.iter().filter_map(|need| places.get(&need.name));
        edges.extend(needed.map(|&other| (n + other, n + i)));
    }
    let mut run = Run {
        runner,
        plans,
        graph: Graph::new(&lengths, &edges).expect("the planner refuses builds that need themselves"),
        ready: plans.iter().map(|_| None).collect(),
        results: plans.iter().map(|_| None).collect(),
        began: vec![None; n],
        waits_for: vec![None; n],
        fetching: 0,
        building: 0,
        failed_fast: false,
        held_back: None,
        lined_up: None,
        pressure: Pressure::new(runner.options.jobs, estimates.iter().map(|e| e.cost.memory()).max()),
        sampled: Instant::now(),
        estimates,
    };
    runner.say(What::RunBegun {
        builds: plans.iter().map(|p| p.name.clone()).collect(),
        jobs: runner.pool.tokens(),
        parallel: runner.options.parallel,
        began: resolve::now(),
    });
    run.end(&fresh);
    let outcome = std::thread::scope(|scope| {
        let (tell, told) = channel();
        let outcome = run.all(scope, &tell, &told);
        if outcome.is_err() {
            runner.ctx.cancel.request(Urgency::Orderly);
        }
        outcome
    });
    outcome?;
    let results = run.results;
    Ok(plans
        .iter()
        .zip(results)
        .map(|(p, r)| (p.name.clone(), r.expect("every build came to an end")))
        .collect())
}

impl<'r> Run<'r> {
    fn all<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        tell: &Sender<Told<'r>>,
        told: &Receiver<Told<'r>>,
    ) -> Result<()>
    where
        'r: 'scope,
    {
        loop {
            if self.runner.ctx.cancel.requested().is_some() {
                self.begin_nothing_more();
            } else {
                self.begin_fetches(scope, tell);
                self.begin_builds(scope, tell)?;
            }
            if self.fetching + self.building == 0 && self.graph.is_over() {
                return Ok(());
            }
            match told.recv_timeout(TICK) {
                Ok(first) => std::iter::once(first)
                    .chain(told.try_iter().collect::<Vec<_>>())
                    .for_each(|told| self.note(told)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("`tell` is ours"),
            }
            if self.sampled.elapsed() >= SAMPLE {
                self.sample()?;
            }
        }
    }

    /// Ends the builds that are up to date: they need no lock, no thread and no turn.
    fn end(&mut self, fresh: &[bool]) {
        for i in (0..fresh.len()).filter(|&i| fresh[i]) {
            self.graph.start(i);
            self.graph.finish(i);
            self.graph.start(self.plans.len() + i);
            self.through(i, Ok(Done::Fresh));
        }
    }

    fn note(&mut self, told: Told<'r>) {
        match told {
            Told::Prepared(i, prepared) => {
                self.fetching -= 1;
                match prepared {
                    Prepared::Ready(attempt) => {
                        self.graph.finish(i);
                        self.ready[i] = Some(attempt);
                    }
                    Prepared::Through(result) => {
                        self.graph.finish(i);
                        self.through(i, result);
                    }
                }
            }
            Told::Built(i, result) => {
                self.building -= 1;
                self.through(i, result);
            }
        }
    }

    /// The end of a build, whatever it was.
    fn through(&mut self, i: usize, result: Result<Done>) {
        let result = self.unless_failed(result);
        self.tell(i, &result);
        let well = matches!(result, Ok(Done::Built(_) | Done::Fresh | Done::Kept(_)));
        self.results[i] = Some(result);
        let task = self.plans.len() + i;
        if well {
            self.graph.finish(task);
            return;
        }
        for skipped in self.graph.fail(task) {
            if let Some(other) = skipped.checked_sub(self.plans.len()) {
                let because = format!("it needs `{}`", self.plans[i].name);
                self.skip(other, Some(because));
            }
        }
    }

    fn skip(&mut self, i: usize, reason: Option<String>) {
        self.ready[i] = None;
        let result = Ok(Done::Skipped(reason));
        self.tell(i, &result);
        self.results[i] = Some(result);
    }

    /// The first failure of a run that is to end with it stops the other builds. They did not fail,
    /// and nobody interrupted them.
    fn unless_failed(&mut self, result: Result<Done>) -> Result<Done> {
        let asked = self.runner.ctx.cancel.requested();
        match result {
            Err(e) if e.exit() == Exit::Interrupted => {
                // A signal of the user's, which comes on top, is an interruption all the same.
                let ours = self.failed_fast && asked != Some(Urgency::Kill);
                if ours { Ok(Done::Skipped(None)) } else { Err(e) }
            }
            Err(e) => {
                if self.runner.options.fail_fast && asked.is_none() {
                    self.failed_fast = true;
                    self.runner.ctx.cancel.request(Urgency::Orderly);
                }
                Err(e)
            }
            done => done,
        }
    }

    fn begin_nothing_more(&mut self) {
        for i in 0..self.plans.len() {
            let task = self.plans.len() + i;
            let runs = |task| self.graph.state(task) == State::Running;
            if self.results[i].is_none() && !runs(i) && !runs(task) {
                self.graph.start(i);
                self.graph.finish(i);
                self.graph.start(task);
                self.graph.fail(task);
                self.skip(i, None);
            }
        }
    }

    fn begin_fetches<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, tell: &Sender<Told<'r>>)
    where
        'r: 'scope,
    {
        for task in self.graph.ready() {
            if self.fetching == FETCHES {
                return;
            }
            if task < self.plans.len() {
                self.graph.start(task);
                self.fetching += 1;
                let (runner, plan, tell) = (self.runner, &self.plans[task], tell.clone());
                let estimate = self.estimates[task].cost.clone();
                scope.spawn(move || {
                    let prepared = prepare(runner, plan, estimate).unwrap_or_else(|e| Prepared::Through(Err(e)));
                    let _ = tell.send(Told::Prepared(task, prepared));
                });
            }
        }
    }

    fn begin_builds<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, tell: &Sender<Told<'r>>) -> Result<()>
    where
        'r: 'scope,
    {
        let n = self.plans.len();
        for task in self.graph.ready().into_iter().filter(|&t| t >= n) {
            let i = task - n;
            if self.waits_for_a_longer_one(task) {
                return Ok(());
            }
            match self.hindrance(i)? {
                None => {}
                Some(Hindrance::All) => return Ok(()),
                Some(Hindrance::This(reason)) => {
                    self.say_once(i, reason);
                    continue;
                }
                Some(Hindrance::Ends(result)) => {
                    self.graph.start(task);
                    self.ready[i] = None;
                    self.through(i, result);
                    continue;
                }
            }
            let runner = self.runner;
            let Some(token) = self.token(i)? else {
                return Ok(());
            };
            self.graph.start(task);
            self.building += 1;
            self.began[i] = Some(Instant::now());
            let attempt = self.ready[i].take().expect("a build is ready when its source is");
            let tell = tell.clone();
            scope.spawn(move || {
                let result = build(runner, *attempt, token);
                let _ = tell.send(Told::Built(i, result));
            });
        }
        Ok(())
    }

    /// Whether a build that is to go first has its source almost here. After a moment it is not waited for any
    /// more: an idle machine costs more than a bad order.
    fn waits_for_a_longer_one(&mut self, task: usize) -> bool {
        let n = self.plans.len();
        let goes_first = |&i: &usize| {
            let on_its_way = matches!(self.graph.state(i), State::Ready | State::Running);
            on_its_way && self.graph.longer_first(i, task).then(i.cmp(&(task - n))).is_lt()
        };
        let waits = (0..n).any(|i| goes_first(&i));
        if !waits {
            self.held_back = None;
        }
        waits && self.held_back.get_or_insert_with(Instant::now).elapsed() < MOMENT
    }

    /// Why a build should not begin now.
    fn hindrance(&self, i: usize) -> Result<Option<Hindrance>> {
        let (options, estimate) = (&self.runner.options, &self.estimates[i]);
        if let Some(until) = options.until {
            let left = until
                .duration_since(SystemTime::now())
                .unwrap_or_default()
                .as_secs_f64();
            let need = estimate.alone(self.runner.pool.tokens());
            if need > left {
                let why = format!(
                    "it takes about {}, and there are {} left",
                    text::duration(need),
                    text::duration(left)
                );
                return Ok(Some(Hindrance::Ends(Ok(Done::Skipped(Some(why))))));
            }
        }
        // A build that has not come to compile may leave tokens unused for a moment only.
        let in_front = self.runner.steps_below(StepName::Compile);
        let room = (self.runner.pool.tokens() / 4).max(2);
        let loaded = options.load.is_some_and(|most| machine::load() >= most);
        if self.building >= options.parallel || (self.building > 0 && (in_front >= room || loaded)) {
            return Ok(Some(Hindrance::All));
        }
        let root = self.runner.ctx.layout.root();
        let in_flight: u64 = (0..self.plans.len())
            .filter(|&j| self.began[j].is_some() && self.results[j].is_none())
            .map(|j| self.estimates[j].cost.disk())
            .sum();
        let (free, need) = (disk::free_bytes(root)?, estimate.cost.disk());
        if free < need.saturating_add(in_flight) {
            if self.building > 0 {
                return Ok(Some(Hindrance::This(format!(
                    "disk: it needs about {}, and {} are free for all",
                    text::size(need),
                    text::size(free)
                ))));
            }
            if estimate.basis == Basis::Same {
                let error = disk::require_free(root, need).err();
                return Ok(error.map(|e| Hindrance::Ends(Err(e.detail("build", &self.plans[i].name)))));
            }
        }
        let (available, need) = (machine::available_memory(), estimate.cost.memory());
        if self.building > 0 && available < need.saturating_mul(2) {
            return Ok(Some(Hindrance::This(format!(
                "memory: one of its processes needs about {}, and {} are available",
                text::size(need),
                text::size(available)
            ))));
        }
        Ok(None)
    }

    fn say_once(&mut self, i: usize, reason: String) {
        let kind = |reason: &str| reason.split(':').next().unwrap_or_default().to_owned();
        let said = self.waits_for[i].as_deref().map(kind);
        if said != Some(kind(&reason)) {
            self.runner.say(What::Waiting {
                build: self.plans[i].name.clone(),
                reason: reason.clone(),
            });
            self.waits_for[i] = Some(reason);
        }
    }

    /// A token for build `i`, if one is to be had now. While a build of this run is in flight the next one takes only
    /// what its makes leave; a run with nothing in flight lines up with the makes of others.
    fn token(&mut self, i: usize) -> Result<Option<Token<'r>>> {
        let pool = &self.runner.pool;
        if let Some((place, since)) = &self.lined_up {
            if let Some(token) = pool.take_from(place)? {
                self.lined_up = None;
                return Ok(Some(token));
            }
            if since.elapsed() >= PATIENCE {
                self.say_once(i, "a job: others use all of the budget".to_owned());
            }
        }
        // Also brings back what killed children took along, for which no line helps.
        let token = pool.try_take()?;
        match token {
            Some(_) => self.lined_up = None,
            None if self.building == 0 && self.lined_up.is_none() => {
                self.lined_up = Some((pool.line_up()?, Instant::now()));
            }
            None => {}
        }
        Ok(token)
    }

    fn sample(&mut self) -> Result<()> {
        self.sampled = Instant::now();
        let runner = self.runner;
        let jobs = runner.pool.tokens();
        if let Some(change) = self.pressure.look(machine::available_memory(), jobs) {
            let (Change::Fewer(jobs) | Change::More(jobs)) = change;
            let changed = runner.pool.resize(jobs)?;
            if changed && change == Change::Fewer(jobs) {
                let jobs = text::count(jobs, "job");
                runner
                    .ctx
                    .shell
                    .warning(format!("memory is short: going on with {jobs}"));
            }
        }
        runner.say(What::Load {
            tokens: jobs.saturating_sub(runner.pool.free()?),
            jobs,
            memory_kib: machine::resident_below(std::process::id()),
            free_disk: disk::free_bytes(runner.ctx.layout.root())?,
            left: self.left(jobs),
        });
        Ok(())
    }

    /// Seconds until everything is done: what is left of all builds over the budget, and not less than the
    /// longest of them takes by itself. Nothing while it would be a guess.
    fn left(&self, jobs: usize) -> Option<f64> {
        let steps = self.runner.steps();
        let (mut work, mut longest) = (0.0, 0.0_f64);
        for (i, plan) in self.plans.iter().enumerate() {
            if self.results[i].is_some() {
                continue;
            }
            let estimate = &self.estimates[i];
            if estimate.basis == Basis::Guess {
                return None;
            }
            let (cpu, wall) = match steps.get(plan.name.as_str()) {
                Some((step, since)) if self.began[i].is_some() => {
                    let gone = since.elapsed().as_secs_f64();
                    let this = estimate.cost.steps.get(step).copied();
                    let share = this.map_or(1.0, |c| (1.0 - gone / c.wall.max(0.1)).max(0.02));
                    let rest: f64 = estimate.cost.steps.range(step..).skip(1).map(|(_, c)| c.cpu).sum();
                    let this = this.map_or(0.0, |c| c.cpu * share);
                    (this + rest, this / jobs_f64(jobs) + rest)
                }
                _ => (estimate.cost.cpu(), estimate.alone(jobs)),
            };
            work += cpu;
            longest = longest.max(wall);
        }
        Some((work / jobs_f64(jobs)).max(longest))
    }

    fn tell(&self, i: usize, result: &Result<Done>) {
        let plan = &self.plans[i];
        let wall = self.began[i].map_or(0.0, |t| t.elapsed().as_secs_f64());
        let (how, wall, reason) = match result {
            Ok(Done::Built(seconds)) => (BuildResult::Built, *seconds, None),
            Ok(Done::Fresh) => (BuildResult::Fresh, 0.0, None),
            Ok(Done::Kept(reason)) => (BuildResult::Kept, 0.0, Some(reason.clone())),
            Ok(Done::Skipped(reason)) => (BuildResult::Skipped, wall, reason.clone()),
            Err(error) => (BuildResult::Failed, wall, Some(error.headline().to_owned())),
        };
        let error = result.as_ref().err();
        let log = error.and_then(|e| e.details().iter().find(|(label, _)| label == "log"));
        self.runner.say(What::BuildEnded {
            build: plan.name.clone(),
            result: how,
            wall,
            reason,
            log: log.map(|(_, path)| path.into()),
        });
        if let Some(error) = error {
            self.runner.ctx.shell.error(error);
        }
    }
}

/// Whether a build is up to date with all its links. What is sealed under the right identity is so at the moment
/// of looking, whoever holds its lock.
fn is_fresh(runner: &Runner<'_>, plan: &BuildPlan) -> bool {
    let linked = |link| alias::is_set(&runner.ctx.layout, link, &plan.name);
    plan.links.iter().all(linked) && decision(runner.ctx, plan, runner.options.rebuild) == Decision::Fresh
}

/// The first task: the lock, what is there already, the source.
fn prepare<'r>(runner: &'r Runner<'r>, plan: &'r BuildPlan, estimate: super::measured::Cost) -> Result<Prepared<'r>> {
    let lock = runner
        .locks
        .prefix(&plan.name, lock_wait(runner.ctx), &|holder: &Holder| {
            runner.say(What::Waiting {
                build: plan.name.clone(),
                reason: holder.to_string(),
            });
        })?;
    // Another process may have finished, or left in pieces, the same build.
    for line in recover::recover(&runner.ctx.layout, &plan.name)? {
        runner.ctx.shell.status("Repaired", line);
    }
    let done = match decision(runner.ctx, plan, runner.options.rebuild) {
        Decision::Fresh => Done::Fresh,
        Decision::HostMoved(differences) => Done::Kept(decide::reason(&differences)),
        Decision::Changed(differences) => return Err(changed(plan, &differences)),
        Decision::Foreign(why) => return Err(foreign(plan, &why)),
        Decision::Build(_) => {
            if let Some(obstacle) = plan.obstacles.first() {
                return Err(obstacle.clone());
            }
            let identity = plan.identity.as_deref().ok_or_else(|| unresolved(plan))?;
            let mut attempt = Box::new(Attempt::new(runner, plan, identity, estimate, lock));
            if runner.options.from.is_none() {
                match attempt.obtain() {
                    Ok(()) => {}
                    Err(Missing::Failed(error)) => return Err(attempt.with_tree(error)),
                    Err(Missing::FailedFor(other)) => {
                        let why = format!("its source, that of `{other}` too, is missing");
                        return Ok(Prepared::Through(Ok(Done::Skipped(Some(why)))));
                    }
                }
            }
            return Ok(Prepared::Ready(attempt));
        }
    };
    set_links(runner, plan)?;
    Ok(Prepared::Through(Ok(done)))
}

/// The second task.
fn build<'r>(runner: &'r Runner<'r>, attempt: Attempt<'r>, token: Token<'r>) -> Result<Done> {
    let (start, plan) = (Instant::now(), attempt.plan);
    let result = attempt.run(runner.options.from);
    drop(token);
    runner.step_over(&plan.name);
    result?;
    set_links(runner, plan)?;
    Ok(Done::Built(start.elapsed().as_secs_f64()))
}

fn set_links(runner: &Runner<'_>, plan: &BuildPlan) -> Result<()> {
    for link in &plan.links {
        alias::set_alias(&runner.ctx.layout, link, &plan.name)?;
    }
    Ok(())
}

/// Steps of builds in flight, and since when.
pub(super) type Steps = BTreeMap<String, (StepName, Instant)>;
