//! Whether a build has to be made: the plan against what the prefix says of itself. Pure.

use crate::cli::args::Rebuild;
use crate::model::manifest::Manifest;
use crate::plan::BuildPlan;
use crate::plan::identity::{self, Difference};

/// What stands at the prefix.
#[derive(Debug, Clone)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A sealed prefix.
    Sealed(Box<Manifest>),
    /// Something that is not bm's, or is torn; with the reason.
    Foreign(String),
}

/// What to do about a build.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Same name, same identity.
    Fresh,
    /// Only tools of the host moved: kept, said in one line.
    HostMoved(Vec<Difference>),
    /// Recipe, source or flags differ and no rebuild was asked for: an error.
    Changed(Vec<Difference>),
    /// To be built, with the reason.
    Build(String),
    /// The place is taken by something else.
    Foreign(String),
}

/// Decides. A plan whose identity is not known yet is fresh only if nothing else differs either.
pub fn decide(plan: &BuildPlan, found: &Found, rebuild: Option<Rebuild>) -> Decision {
    let manifest = match found {
        Found::Nothing => return Decision::Build("not built yet".to_owned()),
        Found::Foreign(why) => return Decision::Foreign(why.clone()),
        Found::Sealed(manifest) => manifest,
    };
    if rebuild == Some(Rebuild::All) {
        return Decision::Build("asked for by --rebuild".to_owned());
    }
    if plan.identity.as_deref() == Some(manifest.identity.as_str()) {
        return Decision::Fresh;
    }
    let differences = identity::differences(&manifest.inputs, &plan.inputs);
    // A compiler that is gone, or a source that is not resolved offline, changes nothing in a prefix
    // that is already there.
    let known: Vec<Difference> = differences
        .into_iter()
        .filter(|d| !(d.now == "nothing" && plan.identity.is_none()))
        .collect();
    // What a recipe adds for one compiler follows from the host only while the compiler moves too.
    let tools_moved = known.iter().any(|d| d.of_host() && !d.of_compiler_words());
    let host_only = known
        .iter()
        .all(|d| d.of_host() && (tools_moved || !d.of_compiler_words()));
    match (host_only, rebuild) {
        (true, None) => Decision::HostMoved(known),
        (true, Some(_)) if plan.identity.is_none() => Decision::HostMoved(known),
        (_, Some(_)) => Decision::Build(reason(&known)),
        (false, None) => Decision::Changed(known),
    }
}

/// The differences in one line.
pub fn reason(differences: &[Difference]) -> String {
    let Some(first) = differences.first() else {
        return "something it was made with is not here any more".to_owned();
    };
    let rest = match differences.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let short = |text: &str| {
        if text.len() > 64 && !text.contains(' ') {
            format!("{}…", &text[..12])
        } else {
            text.to_owned()
        }
    };
    format!(
        "`{}` was `{}`, is `{}`{rest}",
        first.path,
        short(&first.was),
        short(&first.now)
    )
}
