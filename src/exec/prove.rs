//! The proofs of a build: the audit of what was installed, and the smoke test at the final path.

use std::path::PathBuf;

use crate::audit::collect::{self, Scope};
use crate::audit::judge::{self, Question};
use crate::audit::libraries;
use crate::audit::prefix::Place;
use crate::audit::record;
use crate::error::{Error, Exit, Result};
use crate::model::manifest::{Audit, Evidence, Library, Smoke};
use crate::model::recipe::{Driver, Word};
use crate::plan::{BuildPlan, StepName};
use crate::smoke::{self, SmokeExpect};
use crate::text;

use super::build::{Attempt, interrupted};

/// What the audit leaves for the manifest.
#[derive(Debug)]
pub(super) struct Proved {
    pub(super) evidence: Evidence,
    pub(super) audit: Audit,
    pub(super) libraries: Vec<Library>,
}

impl Attempt<'_> {
    /// What compiled units, links and files prove.
    pub(super) fn audit(&mut self) -> Result<Proved> {
        let (plan, work) = (self.plan, &self.work);
        let staged = self.staged();
        if plan.run().calls.iter().all(|call| call.step != StepName::Compile) {
            // Whoever compiles nothing leaves no call; a program in what it installs is a finding all the same.
            record::none(&work.record())?;
        }
        let needs: Vec<(String, PathBuf)> = plan
            .needs
            .iter()
            .map(|n| (n.name.to_string(), n.prefix.clone()))
            .collect();
        let proof = collect::collect(&Scope {
            needs: &needs,
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
        let expect = plan.expect();
        let question = Question {
            claims: &plan.claims,
            expect: &expect,
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
            evidence: proof.evidence(&expect.compile_lines, plan.driver().server.as_deref()),
            audit,
            libraries: found,
        })
    }

    /// The server itself, at its final path.
    pub(super) fn smoke(&mut self) -> Result<Smoke> {
        let runner = self.runner;
        if runner.ctx.cancel.requested().is_some() {
            return Err(interrupted(self.plan));
        }
        let plan = self.plan;
        let libraries: Vec<PathBuf> = plan.needs.iter().map(|n| n.prefix.clone()).collect();
        let expect = smoke_expect(
            &plan.version.to_string(),
            &plan.driver(),
            &plan.recipe.smoke_command,
            &libraries,
        );
        smoke::run(
            &plan.prefix,
            plan.recipe.smoke,
            &expect,
            &self.work.0,
            &self.log(StepName::Smoke),
            &runner.ctx.cancel,
        )
    }
}

/// What the smoke test of a prefix must find. `libraries` are the prefixes of private dependencies, whose libraries the
/// server may map besides its own and the system's.
pub fn smoke_expect(version: &str, driver: &Driver, command: &[Word], libraries: &[PathBuf]) -> SmokeExpect {
    let usual = SmokeExpect::version(version);
    SmokeExpect {
        engine: driver.engine.clone().unwrap_or(usual.engine),
        extensions: driver.extensions.clone(),
        command: command.iter().map(|w| w.text.clone()).collect(),
        libraries: libraries.to_vec(),
        version: usual.version,
        load: usual.load,
    }
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
