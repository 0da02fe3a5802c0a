//! What happens in a run of builds, as every view of it is told: the terminal, the JSON lines, the page of timings.
//!
//! Output only; a JSON line of `bm build --message-format json` is one [`Event`]. Readers skip events and
//! fields they do not know.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::manifest::CacheUse;
use super::name::BuildName;
use super::step::StepName;

/// One thing that happened, and when.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Seconds since the run began.
    #[serde(serialize_with = "in_millis")]
    pub at: f64,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// First of all.
    RunBegun {
        /// All builds asked for, in the order asked.
        builds: Vec<BuildName>,
        /// Size of the job budget.
        jobs: usize,
        /// Builds in flight at most.
        parallel: usize,
        /// When it began, RFC 3339.
        began: String,
    },
    /// A step of a build is at work. Shared steps (a fetch that several builds wait for) are told once, for the
    /// build that came first.
    StepBegun {
        /// Whose step.
        build: BuildName,
        /// Which.
        step: StepName,
        /// What it writes, if anything.
        #[serde(serialize_with = "as_text")]
        log: PathBuf,
        /// Seconds it took last time, or a guess; absent when nothing is known.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "perhaps_in_millis")]
        estimate: Option<f64>,
    },
    /// It has ended.
    StepEnded {
        /// Whose step.
        build: BuildName,
        /// Which.
        step: StepName,
        /// Whether it did what it was to do.
        ok: bool,
        /// Wall time in seconds.
        #[serde(serialize_with = "in_millis")]
        wall: f64,
        /// User plus system CPU time in seconds, of all its processes; 0 for steps of bm itself.
        #[serde(serialize_with = "in_millis")]
        cpu: f64,
        /// Largest resident size of one process, KiB; 0 for steps of bm itself.
        max_rss_kib: u64,
        /// What the compiler cache did for the build so far; absent where it took no part.
        #[serde(skip_serializing_if = "Option::is_none")]
        cache: Option<CacheUse>,
    },
    /// A build waits for something other than its turn.
    Waiting {
        /// Who waits.
        build: BuildName,
        /// For what: a lock and its holder, memory, disk.
        reason: String,
    },
    /// A build is through, well or not.
    BuildEnded {
        /// Which.
        build: BuildName,
        /// How.
        result: BuildResult,
        /// Wall seconds it took; of a failed one since it was taken up, waiting included; 0 where there was
        /// nothing to do.
        #[serde(serialize_with = "in_millis")]
        wall: f64,
        /// Why it was kept, skipped or failed, in one line.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Log of the step it failed in, if that step wrote one.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "perhaps_as_text")]
        log: Option<PathBuf>,
    },
    /// How the machine is used at this moment; about once a second.
    Load {
        /// Job tokens in use.
        tokens: usize,
        /// Size of the job budget.
        jobs: usize,
        /// Resident memory of all processes of the run, KiB.
        memory_kib: u64,
        /// Free bytes where builds are made.
        free_disk: u64,
        /// Seconds the rest will take, if anything is known of it.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "perhaps_in_millis")]
        left: Option<f64>,
    },
    /// Last of all.
    RunEnded {
        /// Wall seconds.
        #[serde(serialize_with = "in_millis")]
        wall: f64,
        /// CPU seconds of bm itself.
        #[serde(serialize_with = "in_millis")]
        own_cpu: f64,
    },
}

/// Nobody measures a build in nanoseconds, and the lines are read by people, too.
fn in_millis<S: serde::Serializer>(seconds: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((seconds * 1000.0).round() / 1000.0)
}

fn perhaps_in_millis<S: serde::Serializer>(seconds: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    in_millis(&seconds.unwrap_or_default(), to)
}

/// A path that is not UTF-8 is no reason to leave an event out.
fn as_text<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

fn perhaps_as_text<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    as_text(path.as_deref().unwrap_or(Path::new("")), to)
}

/// How a build ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildResult {
    /// Built now.
    Built,
    /// Was there already.
    Fresh,
    /// Was there already; the host's tools have moved since.
    Kept,
    /// Not begun, or stopped, since something it needs failed or the run was to end.
    Skipped,
    /// Failed.
    Failed,
}
