//! What happens in a run of builds, as every view of it is told: the terminal, the JSON lines, the page of timings.
//!
//! Output only; a JSON line of `bm build --message-format json` is one [`Event`]. Readers skip events and
//! fields they do not know.

use std::path::PathBuf;

use serde::Serialize;

use super::manifest::CacheUse;
use super::name::BuildName;
use super::step::StepName;

/// One thing that happened, and when.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Seconds since the run began.
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
        log: PathBuf,
        /// Seconds it took last time, or a guess; absent when nothing is known.
        #[serde(skip_serializing_if = "Option::is_none")]
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
        wall: f64,
        /// User plus system CPU time in seconds, of all its processes; 0 for steps of bm itself.
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
        /// Wall seconds from its first step.
        wall: f64,
        /// Why it was kept, skipped or failed, in one line.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Log of the step it failed in.
        #[serde(skip_serializing_if = "Option::is_none")]
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
        #[serde(skip_serializing_if = "Option::is_none")]
        left: Option<f64>,
    },
    /// Last of all.
    RunEnded {
        /// Wall seconds.
        wall: f64,
        /// CPU seconds of bm itself.
        own_cpu: f64,
    },
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
