//! Views of a run: each is told every event. The plain one is here.

use crate::model::event::{BuildResult, Event, What};
use crate::model::step::StepName;
use crate::text;

use super::Shell;

/// Something that shows a run, or keeps record of it. Told from many threads, one event after another.
pub trait View: Send + Sync {
    /// One event.
    fn on(&self, event: &Event);
}

/// Lines, one per thing that begins or ends; for pipes, logs and terminals that cannot do more.
#[derive(Debug)]
pub struct Plain<'a>(pub &'a Shell);

impl View for Plain<'_> {
    fn on(&self, event: &Event) {
        let shell = self.0;
        match &event.what {
            // Done in a moment, and no news to anyone.
            What::StepBegun {
                step: StepName::Place | StepName::Seal,
                ..
            } => {}
            What::StepBegun { build, step, .. } => shell.status(step.verb(), build.as_str()),
            What::Waiting { build, reason } => shell.status("Waiting", format!("{build} for {reason}")),
            What::BuildEnded {
                build,
                result,
                wall,
                reason,
                ..
            } => {
                let reason = reason.as_deref().unwrap_or_default();
                match result {
                    BuildResult::Built => shell.status("Built", format!("{build} in {}", text::duration(*wall))),
                    BuildResult::Fresh => shell.status("Fresh", build.as_str()),
                    BuildResult::Kept => {
                        shell.status("Kept", format!("{build}: {reason}; `--rebuild=stale` renews it"));
                    }
                    BuildResult::Skipped if reason.is_empty() => shell.status("Skipped", build.as_str()),
                    BuildResult::Skipped => shell.status("Skipped", format!("{build}: {reason}")),
                    // The error itself is shown whole.
                    BuildResult::Failed => {}
                }
            }
            What::StepEnded {
                build,
                ok: true,
                cache: Some(cache),
                ..
            } if cache.hits > 0 => {
                let objects = text::count(cache.objects(), "object");
                shell.status(
                    "Cached",
                    format!("{build}: {} of {objects} from the compiler cache", cache.hits),
                );
            }
            What::RunBegun { .. } | What::StepEnded { .. } | What::Load { .. } | What::RunEnded { .. } => {}
        }
    }
}
