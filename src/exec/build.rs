//! One build through its steps. The only way a prefix comes to be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::audit::collect::{self, Scope};
use crate::audit::judge::{self, Question};
use crate::audit::launcher::{self, JobFifo};
use crate::audit::libraries;
use crate::audit::prefix::Place;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::layout::{Layout, WorkDir};
use crate::model::manifest::{Audit, Evidence, Library, PatchRecord, SourceRecord, StepRecord};
use crate::model::name::BuildName;
use crate::model::recipe::{Driver, Word};
use crate::plan::{BuildPlan, Call, StepName};
use crate::process::{self, Command, Ended, Limits};
use crate::smoke::{self, SmokeExpect};
use crate::source::{Log, patch};
use crate::store::work::fresh_work;
use crate::store::{disk, files, prefix};
use crate::text;

use super::{Runner, failure, fetch, seal};

/// Marks a work tree as belonging to an attempt that got at least as far as `configure`.
const STATE: &str = "state.json";

/// What a later `--from STEP` has to know of a kept tree.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Identity of the build the tree is of.
    identity: String,
    /// Last step that was begun.
    step: String,
    /// Source as obtained.
    source: SourceRecord,
    /// Patches as applied.
    patches: Vec<PatchRecord>,
    /// Steps that are done.
    times: Vec<StepRecord>,
    /// Environment of the steps, for `bm shell`.
    env: BTreeMap<String, String>,
}

/// One attempt at a build.
pub(super) struct Attempt<'a> {
    pub(super) runner: &'a Runner<'a>,
    pub(super) plan: &'a BuildPlan,
    pub(super) identity: &'a str,
    pub(super) work: WorkDir,
    pub(super) logs: PathBuf,
    pub(super) source: SourceRecord,
    pub(super) patches: Vec<PatchRecord>,
    pub(super) times: Vec<StepRecord>,
}

/// What the audit leaves for the manifest.
#[derive(Debug)]
pub(super) struct Proved {
    pub(super) evidence: Evidence,
    pub(super) audit: Audit,
    pub(super) libraries: Vec<Library>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(runner: &'a Runner<'a>, plan: &'a BuildPlan, identity: &'a str) -> Self {
        let layout = &runner.ctx.layout;
        Attempt {
            runner,
            plan,
            identity,
            work: layout.work(&plan.name, identity),
            logs: layout.logs(&plan.name),
            source: SourceRecord {
                kind: plan.source.kind.to_string(),
                url: plan.source.urls.first().cloned().unwrap_or_default(),
                reference: plan.source.reference.clone(),
                commit: plan.source.commit.clone(),
                sha256: plan.source.sha256.clone(),
                pinned_by: plan.source.pinned_by.clone(),
                obtained_from: String::new(),
                time: 0,
            },
            patches: vec![],
            times: vec![],
        }
    }

    /// Runs all steps, or those from `from` on in the kept tree. On failure the tree stays.
    pub(super) fn run(mut self, from: Option<StepName>) -> Result<()> {
        let outcome = match from {
            None => self.prepare(),
            Some(step) => self.resume(step),
        };
        let outcome = outcome.and_then(|()| self.make(from));
        outcome.map_err(|e| self.with_tree(e))
    }

    /// A fresh work directory with the patched source in it.
    fn prepare(&mut self) -> Result<()> {
        let layout = &self.runner.ctx.layout;
        disk::remove_tree(&self.logs)?;
        fs::create_dir_all(&self.logs).doing(|| format!("cannot make `{}`", self.logs.display()))?;
        self.begin(StepName::Fetch);
        let mut fetched = self.timed(StepName::Fetch, |a| {
            fetch::fetch(a.runner, a.plan, &a.log(StepName::Fetch))
        })?;
        self.source.obtained_from.clone_from(&fetched.obtained_from);
        for line in fresh_work(layout, &self.work)? {
            self.runner.ctx.shell.warning(line);
        }
        self.begin(StepName::Unpack);
        let src = self.work.src();
        self.timed(StepName::Unpack, |a| fetched.unpack(a.plan, &src))?;
        self.source.time = fetched.time;
        self.begin(StepName::Patch);
        self.patches = self.timed(StepName::Patch, Self::patch)?;
        Ok(())
    }

    fn patch(&mut self) -> Result<Vec<PatchRecord>> {
        let patches: Vec<patch::Patch> = self
            .plan
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

    /// Takes up a kept tree.
    fn resume(&mut self, step: StepName) -> Result<()> {
        let none = |why: &str| {
            Error::new(
                Exit::Usage,
                format!(
                    "build `{}` has no tree to go on in at `{}`: {why}",
                    self.plan.name,
                    step.as_str()
                ),
            )
            .detail("tree", self.work.0.display())
            .hint(format!("begin from the start: bm build {}", self.plan.name))
        };
        let text = fs::read_to_string(self.work.0.join(STATE)).map_err(|_| none("nothing was kept"))?;
        let kept: Kept = serde_json::from_str(&text).map_err(|_| none("its state cannot be read"))?;
        if kept.identity != self.identity {
            return Err(none("recipe, source, flags or tools have changed since"));
        }
        let reached = StepName::parse(&kept.step).ok_or_else(|| none("its state cannot be read"))?;
        if reached < step {
            return Err(none(&format!("it got only as far as `{}`", kept.step)));
        }
        self.source = kept.source;
        self.patches = kept.patches;
        self.times = kept
            .times
            .into_iter()
            .filter(|t| StepName::parse(&t.name).is_some_and(|s| s < step))
            .collect();
        Ok(())
    }

    fn make(&mut self, from: Option<StepName>) -> Result<()> {
        self.launchers()?;
        for step in [StepName::Configure, StepName::Compile, StepName::Install] {
            if from.is_some_and(|f| step < f) {
                continue;
            }
            self.begin(step);
            if step == StepName::Install {
                disk::remove_tree(&self.work.stage())?;
            }
            let before = (step == StepName::Install).then(|| footprint(&self.plan.prefix));
            let calls: Vec<&Call> = self.plan.calls.iter().filter(|c| c.step == step).collect();
            for call in calls {
                self.call(call)?;
            }
            if before.is_some_and(|before| before != footprint(&self.plan.prefix)) {
                return Err(Error::new(
                    Exit::Build,
                    format!("build `{}` wrote to its final path during `install`", self.plan.name),
                )
                .detail("prefix", self.plan.prefix.display())
                .hint("the product ignores DESTDIR; its install commands need another way to stage"));
            }
        }
        let staged = self.staged();
        if !staged.is_dir() {
            return Err(
                Error::new(Exit::Build, format!("build `{}` installed nothing", self.plan.name))
                    .detail("expected", staged.display())
                    .detail("log", self.log(StepName::Install).display()),
            );
        }
        self.begin(StepName::Audit);
        let proved = self.timed(StepName::Audit, Self::audit)?;
        let summary = self.timed(StepName::Place, |a| {
            let list = files::hash_tree(&a.staged())?;
            files::write(&a.staged(), &list)
        })?;
        let placed = prefix::place(&self.runner.ctx.layout, &self.plan.name, &self.staged(), self.identity)?;
        self.begin(StepName::Smoke);
        let smoked = match self.timed(StepName::Smoke, Self::smoke) {
            Ok(smoked) => smoked,
            Err(error) => {
                let kept = prefix::failed_tree(&self.runner.ctx.layout, &self.plan.name)?;
                placed.roll_back(Some(&kept))?;
                return Err(error.detail("prefix", format!("{} (moved away from its place)", kept.display())));
            }
        };
        let manifest = seal::manifest(self, proved, smoked, &summary);
        seal::attach(self, &self.plan.prefix)?;
        // A crash right after the commit must not leave the tree of a finished build among those kept
        // to go on from.
        if !self.runner.options.keep {
            let _ = fs::remove_file(self.work.0.join(STATE));
        }
        let sealed = placed.commit(manifest).inspect_err(|_| self.begin(StepName::Seal))?;
        for line in sealed.lines() {
            self.runner.ctx.shell.note(line);
        }
        if !self.runner.options.keep {
            disk::remove_tree(&self.work.0)?;
        }
        disk::remove_tree(&self.logs)
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
        let jobs = JobFifo {
            path: self.runner.pool.jobserver().fifo,
            at_most: self.runner.pool.tokens(),
        };
        launcher::install_launchers(
            &self.work.bin(),
            &self.work.record(),
            Some(&jobs),
            toolchain.family,
            &tools,
            &self.runner.bm_exe,
        )
    }

    /// Environment of the children: empty but for what is listed.
    pub(super) fn environment(&self) -> Result<BTreeMap<String, String>> {
        let mut path = vec![self.work.bin()];
        path.extend(self.runner.path.iter().cloned());
        let epoch = i64::try_from(self.source.time).ok();
        let mut env = process::base(&path, &self.work.home(), &self.work.tmp(), epoch)?;
        env.extend(self.plan.env.iter().map(|(k, v)| (k.clone(), v.text.clone())));
        Ok(env)
    }

    /// One command as a child process, under a token of the job budget.
    fn call(&mut self, call: &Call) -> Result<()> {
        let stage = self.work.stage().display().to_string();
        let argv: Vec<String> = call.argv.iter().map(|a| a.text.replace("{stage}", &stage)).collect();
        let command = Command {
            argv,
            env: self.environment()?,
            dir: self.work.build(),
            log: self.log(call.step),
            limits: Limits::default(),
            run_as: None,
        };
        let redo = process::redo_by_hand(&command);
        let runner = self.runner;
        let Some(token) = runner.pool.acquire(&runner.ctx.cancel)? else {
            return Err(interrupted(self.plan));
        };
        let jobserver = call.make.then(|| runner.pool.jobserver());
        let outcome = process::run(&command, &runner.ctx.cancel, jobserver.as_ref())?;
        drop(token);
        self.record(call.step, outcome.wall, outcome.cpu, outcome.max_rss_kib);
        if !outcome.strays.is_empty() {
            runner.ctx.shell.warning(format!(
                "step `{}` of `{}` left processes behind, now ended: {}",
                call.step.as_str(),
                self.plan.name,
                outcome.strays.join(", ")
            ));
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
            &self.plan.hints,
        );
        Err(error.detail("by hand", redo))
    }

    fn audit(&mut self) -> Result<Proved> {
        let (plan, work) = (self.plan, &self.work);
        let staged = self.staged();
        let proof = collect::collect(&Scope {
            stage: &staged,
            source: &work.src(),
            build: &work.build(),
            record: &work.record(),
        })?;
        let toolchain = plan
            .facts
            .toolchain
            .as_ref()
            .expect("a build with an identity has a toolchain");
        let question = Question {
            claims: &plan.claims,
            expect: &plan.expect,
            family: plan.family(),
            native: &toolchain.native,
            compiler: toolchain.record.tools.get("cc").map_or("", |t| t.version.as_str()),
            place: Place {
                prefix: &plan.prefix,
                work: &work.0,
            },
        };
        let mut audit = judge::judge(&proof, &question)?;
        let (found, missing) = libraries::libraries(&staged, &plan.prefix)?;
        audit.findings.extend(missing);
        if !audit.findings.is_empty() {
            return Err(refused(plan, &audit));
        }
        Ok(Proved {
            evidence: proof.evidence(),
            audit,
            libraries: found,
        })
    }

    fn smoke(&mut self) -> Result<crate::model::manifest::Smoke> {
        let runner = self.runner;
        let Some(_token) = runner.pool.acquire(&runner.ctx.cancel)? else {
            return Err(interrupted(self.plan));
        };
        let plan = self.plan;
        let expect = smoke_expect(&plan.version.to_string(), &plan.driver, &plan.smoke_command);
        smoke::run(
            &plan.prefix,
            plan.smoke,
            &expect,
            &self.work.0,
            &self.log(StepName::Smoke),
            &runner.ctx.cancel,
        )
    }

    /// Notes in the work tree how far the attempt has got.
    fn begin(&self, step: StepName) {
        self.runner.ctx.shell.status(verb(step), self.plan.name.as_str());
        if !self.work.0.is_dir() {
            return;
        }
        let kept = Kept {
            identity: self.identity.to_owned(),
            step: step.as_str().to_owned(),
            source: self.source.clone(),
            patches: self.patches.clone(),
            times: self.times.clone(),
            env: self.environment().unwrap_or_default(),
        };
        let text = serde_json::to_string(&kept).expect("plain data becomes JSON");
        // Only `--from` needs it; without it that is refused, which is no harm.
        let _ = fs::write(self.work.0.join(STATE), text);
    }

    fn timed<T>(&mut self, step: StepName, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = f(self);
        self.record(step, start.elapsed().as_secs_f64(), 0.0, 0);
        result
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

    fn with_tree(&self, error: Error) -> Error {
        if self.work.src().is_dir() {
            error.detail("tree", format!("{} (kept)", self.work.0.display()))
        } else {
            error
        }
    }
}

/// What the smoke test of a prefix must find.
pub fn smoke_expect(version: &str, driver: &Driver, command: &[Word]) -> SmokeExpect {
    SmokeExpect {
        extensions: driver.extensions.clone(),
        command: command.iter().map(|w| w.text.clone()).collect(),
        ..SmokeExpect::version(version)
    }
}

/// The kept work tree of a failed build.
#[derive(Debug)]
pub struct KeptTree {
    /// The whole work directory.
    pub work: PathBuf,
    /// The build directory in it.
    pub build: PathBuf,
    /// Environment of its steps.
    pub env: BTreeMap<String, String>,
}

/// Work trees that failed builds left, newest first, with the time of their last step.
fn kept_trees(layout: &Layout) -> Vec<(SystemTime, PathBuf)> {
    let entries = fs::read_dir(layout.work_root()).into_iter().flatten().flatten();
    let mut trees: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| {
            let work = entry.path();
            Some((fs::metadata(work.join(STATE)).ok()?.modified().ok()?, work))
        })
        .collect();
    trees.sort_by(|a, b| b.cmp(a));
    trees
}

/// Work trees that sweeping leaves alone: the newest `count` that are not older than `age`.
pub(super) fn wanted_trees(layout: &Layout, count: usize, age: Duration) -> BTreeSet<PathBuf> {
    let young = |time: &SystemTime| time.elapsed().is_ok_and(|old| old < age);
    kept_trees(layout)
        .into_iter()
        .filter(|(time, _)| young(time))
        .take(count)
        .map(|(_, work)| work)
        .collect()
}

/// Finds the newest kept tree of a build.
pub fn kept_tree(layout: &Layout, name: &BuildName) -> Option<KeptTree> {
    let start = format!("{name}-");
    let of_name = |work: &Path| {
        let id = work
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.strip_prefix(&start));
        id.is_some_and(|id| id.len() == 8 && id.chars().all(|c| c.is_ascii_hexdigit()))
    };
    kept_trees(layout)
        .into_iter()
        .map(|(_, work)| work)
        .filter(|work| of_name(work))
        .find_map(|work| {
            let kept: Kept = serde_json::from_str(&fs::read_to_string(work.join(STATE)).ok()?).ok()?;
            Some(KeptTree {
                build: WorkDir(work.clone()).build(),
                work,
                env: kept.env,
            })
        })
}

fn interrupted(plan: &BuildPlan) -> Error {
    Error::new(Exit::Interrupted, format!("build `{}` was interrupted", plan.name))
}

/// The error of a build that does not prove what its name says.
fn refused(plan: &BuildPlan, audit: &Audit) -> Error {
    let n = text::count(audit.findings.len(), "finding");
    let error = Error::new(
        Exit::Proof,
        format!("build `{}` is not what its name says: {n} in step `audit`", plan.name),
    );
    let error = audit.findings.iter().fold(error, |e, f| {
        e.detail(
            f.subject.as_str(),
            format!("asked {}, found {}  ({})", f.asked, f.found, f.evidence),
        )
    });
    error.hint(format!(
        "`bm show --explain {}` says where each flag comes from; nothing was installed",
        plan.name
    ))
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

fn verb(step: StepName) -> &'static str {
    match step {
        StepName::Fetch => "Fetching",
        StepName::Unpack => "Unpacking",
        StepName::Patch => "Patching",
        StepName::Configure => "Configuring",
        StepName::Compile => "Compiling",
        StepName::Install => "Installing",
        StepName::Audit => "Auditing",
        StepName::Place => "Placing",
        StepName::Smoke => "Testing",
        StepName::Seal => "Sealing",
    }
}
