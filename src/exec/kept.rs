//! Work trees that stay: what a later `--from STEP` and `bm shell` have to know of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Result};
use crate::layout::{Layout, WorkDir};
use crate::model::manifest::{ConfigureCache, PatchRecord, SourceRecord, StepRecord};
use crate::model::name::BuildName;
use crate::plan::StepName;

use super::build::Attempt;

/// File that says how far the attempt in a work tree got.
const STATE: &str = "state.json";

/// Takes a work tree out of those kept to go on from. It may not be there.
pub(super) fn forget(work: &WorkDir) {
    let _ = fs::remove_file(work.0.join(STATE));
}

/// What a later `--from STEP` has to know of a kept tree.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Identity of the build the tree is of.
    identity: String,
    /// Last step that was begun.
    step: String,
    /// Source as obtained.
    pub(super) source: SourceRecord,
    /// Patches as applied.
    pub(super) patches: Vec<PatchRecord>,
    /// Steps that are done.
    pub(super) times: Vec<StepRecord>,
    /// Where the answers of configure came from.
    #[serde(default)]
    pub(super) configure_cache: Option<ConfigureCache>,
    /// Environment of the steps, for `bm shell`.
    env: BTreeMap<String, String>,
}

/// Writes down how far an attempt has got.
pub(super) fn note(attempt: &Attempt<'_>, step: StepName) {
    let kept = Kept {
        identity: attempt.identity.to_owned(),
        step: step.as_str().to_owned(),
        source: attempt.source.clone(),
        patches: attempt.patches.clone(),
        times: attempt.times.clone(),
        configure_cache: attempt.configure_cache.clone(),
        env: attempt.environment().unwrap_or_default(),
    };
    let text = serde_json::to_string(&kept).expect("plain data becomes JSON");
    // Only `--from` needs it; without it that is refused, which is no harm.
    let _ = fs::write(attempt.work.0.join(STATE), text);
}

/// What is known of the tree that an attempt would go on in at `step`.
///
/// # Errors
/// When there is none, or it cannot be gone on in there.
pub(super) fn read(attempt: &Attempt<'_>, step: StepName) -> Result<Kept> {
    let name = &attempt.plan.name;
    let none = |why: &str| {
        Error::new(
            Exit::Usage,
            format!("build `{name}` has no tree to go on in at `{}`: {why}", step.as_str()),
        )
        .detail("tree", attempt.work.0.display())
        .hint(format!("begin from the start: bm build {name}"))
    };
    let text = fs::read_to_string(attempt.work.0.join(STATE)).map_err(|_| none("nothing was kept"))?;
    let kept: Kept = serde_json::from_str(&text).map_err(|_| none("its state cannot be read"))?;
    if kept.identity != attempt.identity {
        return Err(none("recipe, source, flags or tools have changed since"));
    }
    match StepName::parse(&kept.step) {
        None => Err(none("its state cannot be read")),
        Some(reached) if reached < step => Err(none(&format!("it got only as far as `{}`", kept.step))),
        Some(_) => Ok(kept),
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
