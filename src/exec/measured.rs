//! What builds cost on this machine: seconds, memory and disk, as measured when they were last made.
//!
//! Owns `<root>/.bm/measured.json`. Lost or damaged, it costs nothing but guesses that are worse until the next
//! builds. Decides no order.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext as _, Result};
use crate::model::manifest::StepRecord;
use crate::model::step::StepName;
use crate::plan::BuildPlan;
use crate::store::disk;

/// What one step took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// Wall time in seconds, with as many jobs as there happened to be.
    pub wall: f64,
    /// CPU seconds of all its processes; for steps of bm itself their wall time.
    pub cpu: f64,
    /// Largest resident size of one process, KiB.
    pub max_rss_kib: u64,
}

/// What one build took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// By step.
    pub steps: BTreeMap<StepName, StepCost>,
    /// Bytes of the work tree when it was largest.
    pub work_bytes: u64,
    /// Bytes of the prefix.
    pub prefix_bytes: u64,
}

/// Where an estimate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// The same build, made before.
    Same,
    /// Another build of the product.
    Like(String),
    /// Nothing of the product was built here yet.
    Guess,
}

/// What a build will cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Seconds, memory, disk.
    pub cost: Cost,
    /// How much to trust it.
    pub basis: Basis,
}

/// All that was measured below one root.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    builds: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    product: String,
    version: String,
    variant: String,
    toolchain: String,
    cost: Cost,
}

impl Cost {
    /// Seconds of one processor that all steps from `from` on take together.
    pub fn cpu_from(&self, from: StepName) -> f64 {
        self.steps.range(from..).map(|(_, c)| c.cpu).sum()
    }

    /// Seconds of one processor.
    pub fn cpu(&self) -> f64 {
        self.steps.values().map(|c| c.cpu).sum()
    }

    /// Largest process of all steps, bytes.
    pub fn memory(&self) -> u64 {
        self.steps.values().map(|c| c.max_rss_kib << 10).max().unwrap_or(0)
    }

    /// Bytes it needs while it is made: the work tree holds the staged prefix too.
    pub fn disk(&self) -> u64 {
        self.work_bytes + self.prefix_bytes / 8
    }

    /// From what a build recorded of its steps.
    pub fn of_records(records: &[StepRecord], work_bytes: u64, prefix_bytes: u64) -> Cost {
        let step = |r: &StepRecord| {
            let cpu = if r.cpu > 0.0 { r.cpu } else { r.wall };
            let cost = StepCost {
                wall: r.wall,
                cpu,
                max_rss_kib: r.max_rss_kib,
            };
            Some((StepName::parse(&r.name)?, cost))
        };
        Cost {
            steps: records.iter().filter_map(step).collect(),
            work_bytes,
            prefix_bytes,
        }
    }
}

impl Measured {
    /// What is known; nothing where the file is missing or cannot be read.
    pub fn read(file: &Path) -> Measured {
        let text = fs::read(file).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Adds what a build cost. Other bm may do so at the same time.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(file: &Path, plan: &BuildPlan, cost: Cost) -> Result<()> {
        let doing = || format!("cannot note what `{}` cost", plan.name);
        let lock = fs::File::options()
            .create(true)
            .append(true)
            .open(file.with_extension("lock"))
            .doing(doing)?;
        lock.file().lock().doing(doing)?;
        let mut measured = Self::read(file);
        let entry = Entry {
            product: plan.product.to_string(),
            version: plan.version.to_string(),
            variant: plan.variant.name.to_string(),
            toolchain: plan.toolchain.name.to_string(),
            cost,
        };
        measured.builds.insert(plan.name.to_string(), entry);
        let text = serde_json::to_vec(&measured).expect("plain data becomes JSON");
        disk::write_atomic(file, &text)
    }

    /// What a build will cost, from the same one or the one most like it.
    pub fn estimate(&self, plan: &BuildPlan) -> Estimate {
        let likeness = |entry: &Entry| {
            let variant = entry.variant == plan.variant.name.as_str();
            let toolchain = entry.toolchain == plan.toolchain.name.as_str();
            let version = entry.version == plan.version.to_string();
            (variant, toolchain, version)
        };
        let of_product = self.builds.iter().filter(|(_, e)| e.product == plan.product.as_str());
        match of_product.max_by_key(|(_, entry)| likeness(entry)) {
            Some((name, entry)) => Estimate {
                cost: entry.cost.clone(),
                basis: if likeness(entry) == (true, true, true) {
                    Basis::Same
                } else {
                    Basis::Like(name.clone())
                },
            },
            None => Estimate {
                cost: guess(plan),
                basis: Basis::Guess,
            },
        }
    }
}

/// Before anything of a product was built here: as its recipe says, else about what a small server takes.
fn guess(plan: &BuildPlan) -> Cost {
    let hint = &plan.cost;
    let step = |cpu: f64| StepCost {
        wall: cpu,
        cpu,
        max_rss_kib: hint.memory >> 10,
    };
    let compile = if plan.claims.lto == Some(true) {
        hint.cpu_lto
    } else {
        hint.cpu
    };
    Cost {
        steps: BTreeMap::from([
            (StepName::Configure, step(15.0)),
            (StepName::Compile, step(compile)),
            (StepName::Install, step(3.0)),
            (StepName::Smoke, step(10.0)),
        ]),
        work_bytes: hint.disk,
        prefix_bytes: hint.disk / 6,
    }
}
