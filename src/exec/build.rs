//! One build through its steps. The only way a prefix comes to be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fs_err as fs;

use crate::audit::cached;
use crate::audit::launcher::{self, JobFifo};
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::layout::WorkDir;
use crate::model::event::What;
use crate::model::manifest::{CacheUse, ConfigureCache, PatchRecord, SourceRecord, StepRecord};
use crate::plan::{BuildPlan, Call, StepName};
use crate::process::{self, Command, Ended, Jobserver, Limits, Outcome};
use crate::source::{Log, patch};
use crate::store::lock::Guard;
use crate::store::work::{fresh_work, reuse_work};
use crate::store::{disk, files, prefix};
use crate::text;

use super::fetch::Fetched;
use super::measured::{Cost, Measured};
use super::{Runner, failure, fetch, kept, seal};

/// One attempt at a build. It lives from the moment its prefix is locked to its seal or failure.
pub(super) struct Attempt<'a> {
    pub(super) runner: &'a Runner<'a>,
    pub(super) plan: &'a BuildPlan,
    pub(super) identity: &'a str,
    pub(super) work: WorkDir,
    pub(super) logs: PathBuf,
    pub(super) source: SourceRecord,
    pub(super) patches: Vec<PatchRecord>,
    pub(super) times: Vec<StepRecord>,
    pub(super) configure_cache: Option<ConfigureCache>,
    /// What it will cost, for the views.
    forecast: Cost,
    /// Unless it goes on in a kept tree.
    fetched: Option<Fetched>,
    /// Held as long as anything of the prefix may change.
    _lock: Guard,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        runner: &'a Runner<'a>,
        plan: &'a BuildPlan,
        identity: &'a str,
        forecast: Cost,
        lock: Guard,
    ) -> Self {
        let layout = &runner.ctx.layout;
        Attempt {
            runner,
            plan,
            identity,
            work: layout.work(&plan.name, identity),
            logs: layout.logs(&plan.name),
            source: SourceRecord {
                kind: plan.source.kind.to_string(),
                url: plan
                    .source
                    .urls
                    .first()
                    .map(|url| text::public_url(url))
                    .unwrap_or_default(),
                reference: plan.source.reference.clone(),
                commit: plan.source.commit.clone(),
                sha256: plan.source.sha256.clone(),
                pinned_by: plan.source.pinned_by.clone(),
                obtained_from: String::new(),
                time: 0,
            },
            patches: vec![],
            times: vec![],
            forecast,
            fetched: None,
            _lock: lock,
            configure_cache: None,
        }
    }

    /// Makes the source present: the part that needs the network and no processor. Builds of the same source
    /// get it once. Nothing is noted yet: while the source may still not be had, a kept tree stays as it is.
    pub(super) fn obtain(&mut self) -> Result<(), fetch::Missing> {
        let prepare = || {
            disk::remove_tree(&self.logs)?;
            fs::create_dir_all(&self.logs).doing(|| format!("cannot make `{}`", self.logs.display()))
        };
        prepare().map_err(fetch::Missing::Failed)?;
        let (runner, plan, log) = (self.runner, self.plan, self.log(StepName::Fetch));
        let fetched = runner.fetches.get(plan, &log, || {
            self.step(StepName::Fetch, |a| fetch::fetch(runner, plan, &a.log(StepName::Fetch)))
        })?;
        self.source.obtained_from.clone_from(&fetched.obtained_from);
        self.fetched = Some(fetched);
        Ok(())
    }

    /// Runs all steps after the fetch, or those from `from` on in the kept tree. On failure the tree stays.
    /// The caller holds a token of the job budget for it.
    pub(super) fn run(mut self, from: Option<StepName>) -> Result<()> {
        let outcome = match from {
            None => self.prepare(),
            Some(step) => self.resume(step),
        };
        let outcome = outcome.and_then(|()| self.make(from)).and_then(|()| self.finish());
        outcome.map_err(|e| self.with_tree(e))
    }

    /// A fresh work directory with the patched source in it.
    fn prepare(&mut self) -> Result<()> {
        for line in fresh_work(&self.runner.ctx.layout, &self.work)? {
            self.runner.ctx.shell.warning(line);
        }
        let mut fetched = self.fetched.take().expect("the source was obtained before");
        let (plan, src) = (self.plan, self.work.src());
        if let Err(error) = self.step(StepName::Unpack, |_| fetched.unpack(plan, &src)) {
            // There is nothing to look at in a tree that has no source, and a full disk needs the space.
            let _ = disk::remove_tree(&self.work.0);
            return Err(error);
        }
        self.source.time = fetched.time;
        self.patches = self.step(StepName::Patch, |a| a.patch())?;
        Ok(())
    }

    fn patch(&mut self) -> Result<Vec<PatchRecord>> {
        let patches: Vec<patch::Patch> = self
            .plan
            .run()
            .patches
            .iter()
            .map(|p| patch::Patch {
                name: p.file.clone(),
                text: self
                    .runner
                    .ctx
                    .library
                    .patch(&p.file)
                    .expect("the library has checked that it is there"),
                strip: p.strip,
            })
            .collect();
        if patches.is_empty() {
            return Ok(vec![]);
        }
        let log = Log::to(self.log(StepName::Patch));
        let applied = patch::apply(&self.work.src(), &patches, &self.runner.net.env, &log)?;
        Ok(applied.into_iter().map(PatchRecord::from).collect())
    }

    /// Takes up a kept tree. What the steps from there on said and proved before is void.
    fn resume(&mut self, step: StepName) -> Result<()> {
        let kept = kept::read(self, step)?;
        for line in reuse_work(&self.work)? {
            self.runner.ctx.shell.warning(line);
        }
        self.source = kept.source;
        self.patches = kept.patches;
        let earlier = |t: &StepRecord| StepName::parse(&t.name).is_some_and(|s| s < step);
        self.configure_cache = kept.configure_cache.filter(|_| step > StepName::Configure);
        self.times = kept.times.into_iter().filter(earlier).collect();
        fs::create_dir_all(&self.logs).doing(|| format!("cannot make `{}`", self.logs.display()))?;
        for later in StepName::ALL.into_iter().filter(|s| *s >= step) {
            disk::remove_file(&self.log(later))?;
        }
        Ok(())
    }

    /// Configure, compile and install, from `from` on.
    fn make(&mut self, from: Option<StepName>) -> Result<()> {
        self.launchers()?;
        for step in [StepName::Configure, StepName::Compile, StepName::Install] {
            if from.is_none_or(|f| step >= f) {
                self.step(step, |a| match step {
                    StepName::Install => a.install(),
                    // A tree that was there before is configured as it was then.
                    StepName::Configure if from.is_none() => a.configure(),
                    _ => a.calls(step),
                })?;
            }
        }
        Ok(())
    }

    fn calls(&mut self, step: StepName) -> Result<()> {
        self.calls_in(step, &self.work.build(), &BTreeMap::new())
    }

    /// The commands of a step in a directory, with more variables.
    pub(super) fn calls_in(&mut self, step: StepName, dir: &Path, more: &BTreeMap<String, String>) -> Result<()> {
        let plan = self.plan;
        let run = plan.run();
        let mut calls = run.calls.iter().filter(|c| c.step == step);
        calls.try_for_each(|call| self.call(call, dir, more))
    }

    fn install(&mut self) -> Result<()> {
        disk::remove_tree(&self.work.stage())?;
        let before = footprint(&self.plan.prefix);
        let done = self.calls(StepName::Install);
        // First, since it may be why a command failed.
        if before != footprint(&self.plan.prefix) {
            return Err(self.wrote_outside(before.is_empty()));
        }
        done?;
        let staged = self.staged();
        if staged.is_dir() {
            return Ok(());
        }
        Err(
            Error::new(Exit::Build, format!("build `{}` installed nothing", self.plan.name))
                .detail("expected", staged.display())
                .detail("log", self.log(StepName::Install).display()),
        )
    }

    /// Audit, move into place, smoke test, seal.
    fn finish(&mut self) -> Result<()> {
        let layout = &self.runner.ctx.layout;
        let proved = self.step(StepName::Audit, |a| a.audit())?;
        let work_bytes = disk::usage(&self.work.0);
        let summary = self.step(StepName::Place, |a| {
            let list = files::hash_tree(&a.staged())?;
            files::write(&a.staged(), &list)
        })?;
        let placed = prefix::place(layout, &self.plan.name, &self.staged(), self.identity)?;
        let smoked = match self.step(StepName::Smoke, |a| a.smoke()) {
            Ok(smoked) => smoked,
            Err(error) => {
                let kept = prefix::failed_tree(layout, &self.plan.name)?;
                placed.roll_back(Some(&kept))?;
                return Err(error.detail("prefix", format!("{} (moved away from its place)", kept.display())));
            }
        };
        let manifest = seal::manifest(self, proved, smoked, &summary);
        seal::attach(self, &self.plan.prefix)?;
        // A crash right after the commit must not leave the tree of a finished build among those kept
        // to go on from.
        if !self.runner.options.keep {
            kept::forget(&self.work);
        }
        let sealed = self
            .step(StepName::Seal, |_| placed.commit(manifest))
            .inspect_err(|_| kept::note(self, StepName::Seal))?;
        for line in sealed.lines() {
            self.runner.ctx.shell.note(line);
        }
        let cost = Cost::of_records(&self.times, work_bytes, summary.size);
        let mostly_cached = self.compiler_cache().is_some_and(|c| 2 * c.hits > c.objects());
        // What a build costs without the cache is the better guess: the cache may be gone next time.
        if !(mostly_cached && Measured::read(&layout.measured()).knows(self.plan))
            && let Err(error) = Measured::add(&layout.measured(), self.plan, cost)
        {
            self.runner.ctx.shell.warning(error.headline());
        }
        self.clear();
        Ok(())
    }

    /// Removes what a sealed build needs no more. The build is good whatever becomes of that.
    fn clear(&self) {
        let work = (!self.runner.options.keep).then_some(&self.work.0);
        for tree in work.into_iter().chain([&self.logs]) {
            if let Err(error) = disk::remove_tree(tree) {
                self.runner
                    .ctx
                    .shell
                    .warning(format!("{}: {}", error.headline(), error.causes().join(": ")));
            }
        }
    }

    /// The error of an install step that ignored DESTDIR. What it wrote where nothing was is moved out
    /// of the way: nobody vouches for it, and it would keep the next attempt from its place.
    fn wrote_outside(&self, nothing_was_there: bool) -> Error {
        let (name, prefix) = (&self.plan.name, &self.plan.prefix);
        let error = Error::new(
            Exit::Build,
            format!("build `{name}` wrote to its final path during `install`"),
        )
        .hint("the product ignores DESTDIR; its install commands need another way to stage");
        if !nothing_was_there {
            return error
                .detail("prefix", prefix.display())
                .detail("damaged", format!("what was there; `bm verify {name}` says how"));
        }
        let moved = prefix::failed_tree(&self.runner.ctx.layout, name)
            .and_then(|kept| disk::rename_new(prefix, &kept).doing(String::new).map(|()| kept));
        match moved {
            Ok(kept) => error.detail("prefix", format!("{} (moved away from its place)", kept.display())),
            Err(_) => error.detail("prefix", prefix.display()),
        }
    }

    /// The staged prefix: DESTDIR followed by the final path.
    pub(super) fn staged(&self) -> PathBuf {
        let below = self.plan.prefix.strip_prefix("/").unwrap_or(&self.plan.prefix);
        self.work.stage().join(below)
    }

    /// Log of a step.
    pub(super) fn log(&self, step: StepName) -> PathBuf {
        self.logs.join(format!("{}.log", step.as_str()))
    }

    /// Puts the recording launchers first on the children's PATH, under the compilers' names.
    fn launchers(&self) -> Result<()> {
        let toolchain = &self.plan.toolchain;
        let prober = &self.runner.prober;
        let real = |word: &str| prober.program(word).map(|found| found.path);
        let tools: Vec<(&str, PathBuf)> = [&toolchain.cc, &toolchain.cxx]
            .into_iter()
            .filter_map(|w| Some((w.text.as_str(), real(&w.text)?)))
            .collect();
        let tools: Vec<(&str, &Path)> = tools.iter().map(|(name, path)| (*name, path.as_path())).collect();
        let cache = self.runner.ccache.of_build(self.runner.ctx, self.plan)?;
        cached::clear_fault(&self.work.record());
        let jobs = JobFifo {
            path: self.runner.pool.fifo().to_owned(),
            at_most: self.runner.pool.tokens(),
            memory: self.forecast.memory(),
        };
        launcher::install_launchers(
            &self.work.bin(),
            &self.work.record(),
            Some(&jobs),
            cache.as_ref(),
            toolchain.family,
            &tools,
            &self.own_program()?,
        )
    }

    /// bm's own program inside the work directory: the launchers go on although bm is replaced, by an
    /// upgrade say, while a build runs.
    fn own_program(&self) -> Result<PathBuf> {
        let doing = || "cannot keep bm's own program for the compiler launchers".to_owned();
        let (running, path) = (Path::new("/proc/self/exe"), self.work.bin().join(".bm"));
        if path.exists() {
            return Ok(path);
        }
        fs::create_dir_all(self.work.bin()).doing(doing)?;
        let same = {
            use std::os::unix::fs::MetadataExt as _;
            let inode = |p: &Path| fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
            inode(running) == inode(&self.runner.bm_exe)
        };
        // A link costs nothing; another file system or owner refuses it.
        if !(same && fs::hard_link(&self.runner.bm_exe, &path).is_ok()) {
            fs::copy(running, &path).doing(doing)?;
        }
        Ok(path)
    }

    /// Environment of the children: empty but for what is listed.
    pub(super) fn environment(&self) -> Result<BTreeMap<String, String>> {
        let mut path = vec![self.work.bin()];
        path.extend(self.runner.path.iter().cloned());
        let epoch = i64::try_from(self.source.time).ok();
        let mut env = process::base(&path, &self.work.home(), &self.work.tmp(), epoch)?;
        env.extend(self.plan.run().env.into_iter().map(|(name, word)| (name, word.text)));
        Ok(env)
    }

    /// One command as a child process, under a token of the job budget.
    fn call(&mut self, call: &Call, dir: &Path, more: &BTreeMap<String, String>) -> Result<()> {
        let stage = self.work.stage().display().to_string();
        let mut env = self.environment()?;
        env.extend(more.clone());
        let command = Command {
            argv: call.argv.iter().map(|arg| arg.staged(&stage)).collect(),
            env,
            dir: dir.to_owned(),
            log: self.log(call.step),
            limits: Limits::default(),
            run_as: None,
        };
        let redo = process::redo_by_hand(&command);
        let jobserver = call.make.then(|| self.runner.jobserver());
        let mut outcome = self.child(call.step, &command, jobserver.as_ref())?;
        if jobserver.is_some() && !outcome.ok() && failure::killed_for_memory(&outcome, &command.log) {
            self.runner.ctx.shell.warning(format!(
                "a compiler of `{}` was killed, as the system does when memory runs out; step `{}` goes on with one job",
                self.plan.name,
                call.step.as_str()
            ));
            outcome = self.child(call.step, &command, None)?;
        }
        if outcome.ended == Ended::Exited(0) {
            return Ok(());
        }
        let program = command.argv.first().map_or("", String::as_str);
        let error = failure::of_step(
            &self.plan.name,
            call.step,
            program,
            &outcome,
            &command.log,
            &self.plan.recipe.hints,
        );
        Err(error.detail("by hand", redo))
    }

    fn child(&mut self, step: StepName, command: &Command, jobs: Option<&Jobserver>) -> Result<Outcome> {
        let runner = self.runner;
        if runner.ctx.cancel.requested().is_some() {
            return Err(interrupted(self.plan));
        }
        let outcome = process::run(command, &runner.ctx.cancel, jobs)?;
        self.record(step, outcome.wall, outcome.cpu, outcome.max_rss_kib);
        if !outcome.strays.is_empty() {
            runner.ctx.shell.warning(format!(
                "step `{}` of `{}` left processes behind, now ended: {}",
                step.as_str(),
                self.plan.name,
                outcome.strays.join(", ")
            ));
        }
        Ok(outcome)
    }

    /// One step: told to the views when it begins and ends, and timed.
    fn step<T>(&mut self, step: StepName, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin(step);
        let known = |a: &Self| a.times.iter().position(|t| t.name == step.as_str());
        let (start, before) = (Instant::now(), known(self));
        let result = work(self);
        if known(self) == before {
            // No child of its own: bm worked itself.
            self.record(step, start.elapsed().as_secs_f64(), 0.0, 0);
        }
        let at = known(self).expect("it was recorded");
        let record = &self.times[at];
        self.runner.say(What::StepEnded {
            build: self.plan.name.clone(),
            step,
            ok: result.is_ok(),
            wall: record.wall,
            cpu: record.cpu,
            max_rss_kib: record.max_rss_kib,
            cache: self.compiler_cache().filter(|_| step == StepName::Compile),
        });
        self.runner.ccache.say_fault(self.runner.ctx, &self.work);
        result
    }

    /// What the compiler cache has done for this tree.
    pub(super) fn compiler_cache(&self) -> Option<CacheUse> {
        cached::usage(&self.work.record())
    }

    /// Notes in the work tree how far the attempt has got.
    fn begin(&self, step: StepName) {
        self.runner.step_begun(&self.plan.name, step);
        self.runner.say(What::StepBegun {
            build: self.plan.name.clone(),
            step,
            log: self.log(step),
            estimate: self.forecast.steps.get(&step).map(|cost| cost.wall),
        });
        // What a seal forgets on purpose must not be noted again.
        if step > StepName::Fetch && step < StepName::Seal && self.work.0.is_dir() {
            kept::note(self, step);
        }
    }

    fn record(&mut self, step: StepName, wall: f64, cpu: f64, max_rss_kib: u64) {
        match self.times.iter_mut().find(|t| t.name == step.as_str()) {
            Some(known) => {
                known.wall += wall;
                known.cpu += cpu;
                known.max_rss_kib = known.max_rss_kib.max(max_rss_kib);
            }
            None => self.times.push(StepRecord {
                name: step.as_str().to_owned(),
                wall,
                cpu,
                max_rss_kib,
            }),
        }
    }

    /// Adds what every failure of a build says: which build, and where its tree is.
    pub(super) fn with_tree(&self, error: Error) -> Error {
        let named = error.headline().contains(&format!("`{}`", self.plan.name));
        let error = if named {
            error
        } else {
            error.detail("build", &self.plan.name)
        };
        if self.work.src().is_dir() {
            error.detail("tree", format!("{} (kept)", self.work.0.display()))
        } else {
            error
        }
    }
}

pub(super) fn interrupted(plan: &BuildPlan) -> Error {
    Error::new(Exit::Interrupted, format!("build `{}` was interrupted", plan.name))
}

/// What stands at the final path, closely enough to see that an install step wrote there.
fn footprint(path: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    fn walk(path: &Path, out: &mut Vec<(PathBuf, u64, std::time::SystemTime)>) {
        let Ok(meta) = fs::symlink_metadata(path) else { return };
        let time = meta.modified().unwrap_or(std::time::UNIX_EPOCH);
        out.push((path.to_owned(), meta.len(), time));
        if meta.is_dir() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                walk(&entry.path(), out);
            }
        }
    }
    let mut out = Vec::new();
    walk(path, &mut out);
    out.sort();
    out
}
