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
        self.work_bytes + self.prefix_bytes
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
            product: plan.product().to_string(),
            version: plan.version.to_string(),
            variant: plan.variant.name.to_string(),
            toolchain: plan.toolchain.name.to_string(),
            cost,
        };
        measured.builds.insert(plan.name.to_string(), entry);
        let text = serde_json::to_vec(&measured).expect("plain data becomes JSON");
        disk::write_atomic(file, &text)
    }

    /// Whether this very build was measured.
    pub fn knows(&self, plan: &BuildPlan) -> bool {
        self.builds.contains_key(plan.name.as_str())
    }

    /// What a build will cost, from the same one or the one most like it.
    pub fn estimate(&self, plan: &BuildPlan) -> Estimate {
        let version = plan.version.to_string();
        let likeness = |entry: &Entry| {
            let variant = entry.variant == plan.variant.name.as_str();
            let toolchain = entry.toolchain == plan.toolchain.name.as_str();
            let version = entry.version == version;
            (variant, toolchain, version)
        };
        let of_product = self.builds.iter().filter(|(_, e)| e.product == plan.product().as_str());
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

/// What a call will take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Forecast {
    /// Builds that are to be made.
    pub builds: usize,
    /// Wall seconds with the whole budget.
    pub seconds: f64,
    /// Bytes of the prefixes.
    pub prefix_bytes: u64,
    /// Bytes of prefixes and work trees when there are most of them.
    pub disk_bytes: u64,
    /// How many of the builds were never made here, nor one like them.
    pub guessed: usize,
}

/// What builds take together: with `jobs` at once, and `parallel` of them in flight.
pub fn forecast(estimates: &[Estimate], jobs: usize, parallel: usize) -> Forecast {
    let work: f64 = estimates.iter().map(|e| e.cost.cpu()).sum();
    let longest = estimates.iter().map(|e| e.alone(jobs)).fold(0.0, f64::max);
    let prefix_bytes = estimates.iter().map(|e| e.cost.prefix_bytes).sum();
    let mut trees: Vec<u64> = estimates.iter().map(|e| e.cost.work_bytes).collect();
    trees.sort_unstable_by(|a, b| b.cmp(a));
    Forecast {
        builds: estimates.len(),
        seconds: (work / jobs_f64(jobs)).max(longest),
        prefix_bytes,
        disk_bytes: prefix_bytes + trees.iter().take(parallel).sum::<u64>(),
        guessed: estimates.iter().filter(|e| e.basis == Basis::Guess).count(),
    }
}

/// A number of jobs to divide by.
#[expect(clippy::cast_precision_loss, reason = "budgets have a few thousand jobs at most")]
pub(super) fn jobs_f64(jobs: usize) -> f64 {
    jobs.max(1) as f64
}

impl Estimate {
    /// Of a build that is there already.
    pub fn nothing() -> Self {
        Estimate {
            cost: Cost::default(),
            basis: Basis::Same,
        }
    }

    /// Wall seconds of a build that has the whole budget: only compiling spreads over it.
    pub fn alone(&self, jobs: usize) -> f64 {
        let spread = |(step, cost): (&StepName, &StepCost)| match step {
            StepName::Compile => cost.cpu / jobs_f64(jobs),
            _ => cost.cpu,
        };
        self.cost.steps.iter().map(spread).sum()
    }
}

/// Before anything of a product was built here: as its recipe says, else about what a small server takes.
fn guess(plan: &BuildPlan) -> Cost {
    let hint = &plan.recipe.cost;
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
        work_bytes: hint.disk / 6 * 5,
        prefix_bytes: hint.disk / 6,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn estimate(steps: &[(StepName, f64)], basis: Basis) -> Estimate {
        let cost = |cpu| StepCost {
            wall: cpu,
            cpu,
            max_rss_kib: 1000,
        };
        Estimate {
            cost: Cost {
                steps: steps.iter().map(|(step, cpu)| (*step, cost(*cpu))).collect(),
                work_bytes: 300,
                prefix_bytes: 50,
            },
            basis,
        }
    }

    #[test]
    fn a_forecast_is_the_work_over_the_jobs_but_not_less_than_the_longest_build() {
        use StepName::{Compile, Configure};
        let build = || estimate(&[(Configure, 10.0), (Compile, 290.0)], Basis::Same);
        let many = forecast(&[build(), build(), build(), build()], 2, 2);
        assert_eq!((many.builds, many.seconds), (4, 600.0));
        assert_eq!((many.prefix_bytes, many.disk_bytes, many.guessed), (200, 800, 0));
        // Configure does not spread over ten jobs.
        let one = forecast(
            &[estimate(&[(Configure, 10.0), (Compile, 290.0)], Basis::Guess)],
            10,
            10,
        );
        assert_eq!((one.seconds, one.guessed, one.disk_bytes), (39.0, 1, 350));
    }

    #[test]
    fn bms_own_steps_count_by_their_wall_time() {
        let record = |name: &str, wall, cpu| StepRecord {
            name: name.to_owned(),
            wall,
            cpu,
            max_rss_kib: 7,
        };
        let cost = Cost::of_records(&[record("compile", 10.0, 19.0), record("audit", 2.0, 0.0)], 6, 8);
        assert_eq!((cost.cpu(), cost.cpu_from(StepName::Audit)), (21.0, 2.0));
        assert_eq!((cost.memory(), cost.disk()), (7 << 10, 14));
    }
}
