//! Whether a build has to be made: the plan against what the prefix says of itself. Pure.

use clap::ValueEnum;

use crate::model::manifest::Glance;
use crate::plan::BuildPlan;
use crate::plan::identity::{self, Difference};

/// When a prefix that is already there is built again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rebuild {
    /// Always
    All,
    /// Where the compiler or another tool moved, or the recipe changed
    Stale,
}

/// What stands at the prefix.
#[derive(Debug, Clone)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A sealed prefix.
    Sealed(Box<Glance>),
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
    let differences = identity::differences(&manifest.inputs, &plan.inputs());
    // A compiler that is gone, or a source that is not resolved offline, changes nothing in a prefix
    // that is already there.
    let mut known: Vec<Difference> = differences
        .into_iter()
        .filter(|d| !(d.now == "nothing" && plan.identity.is_none()))
        .collect();
    // What moved comes before what follows from it.
    known.sort_by_key(Difference::of_compiler_words);
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
    // A version says more than a checksum, and the compiler's more than those of its parts.
    let ends = |end: &'static str| move |d: &&Difference| d.path.ends_with(end);
    let find = |end| differences.iter().find(ends(end));
    let telling = find("toolchain.cc.version").or_else(|| find(".version"));
    let Some(first) = telling.or(differences.first()) else {
        return "something it was made with is not here any more".to_owned();
    };
    let rest = match differences.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let short = |text: &str| {
        if text.len() > 64 && !text.contains(' ') {
            format!("{}…", text.chars().take(12).collect::<String>())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::{self, Ask, manifest, plan};

    const ALL: Option<Rebuild> = Some(Rebuild::All);
    const STALE: Option<Rebuild> = Some(Rebuild::Stale);

    fn with(compiler: Option<&str>, variant: &str, changes: &[(&str, &str)]) -> BuildPlan {
        let ask = Ask {
            compiler,
            variant,
            ..Ask::default()
        };
        plan(&sample::recipe(changes), ask)
    }

    fn glance(manifest: &crate::model::manifest::Manifest) -> Box<Glance> {
        serde_json::from_value(serde_json::to_value(manifest).unwrap()).unwrap()
    }

    /// The decision in a word, and what it is about.
    fn check(built: &BuildPlan, now: &BuildPlan, rebuild: Option<Rebuild>, want: (&str, &str)) {
        let decision = decide(now, &Found::Sealed(glance(&manifest(built))), rebuild);
        let got = match &decision {
            Decision::Fresh => ("fresh", String::new()),
            Decision::HostMoved(d) => ("kept", reason(d)),
            Decision::Changed(d) => ("changed", reason(d)),
            Decision::Build(why) => ("build", why.clone()),
            Decision::Foreign(why) => ("foreign", why.clone()),
        };
        assert_eq!((got.0, got.1.as_str()), want);
    }

    const MOVED: &str = "`toolchain.cc.version` was `12.2.0`, is `16.1.0` and 2 more";
    const FLAG: &str = "`commands.0.1.11` was `CFLAGS=-DV=21 -O3`, is `CFLAGS=-DW=21 -O3`";

    #[test]
    fn nothing_is_built_and_what_is_not_bms_is_left() {
        let plan = with(Some("12.2.0"), "o3", &[]);
        for rebuild in [None, ALL, STALE] {
            assert_eq!(
                decide(&plan, &Found::Nothing, rebuild),
                Decision::Build("not built yet".into())
            );
            let foreign = Found::Foreign("mine".into());
            assert_eq!(decide(&plan, &foreign, rebuild), Decision::Foreign("mine".into()));
        }
    }

    #[test]
    fn the_same_identity_is_fresh_until_all_is_asked_for() {
        let plan = with(Some("12.2.0"), "o3", &[]);
        check(&plan, &plan, None, ("fresh", ""));
        check(&plan, &plan, STALE, ("fresh", ""));
        check(&plan, &plan, ALL, ("build", "asked for by --rebuild"));
    }

    #[test]
    fn a_compiler_that_moved_keeps_the_build_with_all_that_follows_from_it() {
        // The recipe adds -std=gnu17 for the new compiler: that is no change of the recipe.
        let (old, new) = (with(Some("12.2.0"), "o3", &[]), with(Some("16.1.0"), "o3", &[]));
        check(&old, &new, None, ("kept", MOVED));
        check(&old, &new, STALE, ("build", MOVED));
        let back = "`toolchain.cc.version` was `16.1.0`, is `12.2.0` and 2 more";
        check(&new, &old, None, ("kept", back));
    }

    #[test]
    fn a_recipe_that_changed_is_refused() {
        let changed = with(Some("12.2.0"), "o3", &[("-DV=", "-DW=")]);
        let old = with(Some("12.2.0"), "o3", &[]);
        check(&old, &changed, None, ("changed", FLAG));
        check(&old, &changed, STALE, ("build", FLAG));
        // Also what it adds for a compiler, if that stayed the same.
        let (old, changed) = (
            with(Some("16.1.0"), "o3", &[]),
            with(Some("16.1.0"), "o3", &[("gnu17", "gnu11")]),
        );
        let decision = decide(&changed, &Found::Sealed(glance(&manifest(&old))), None);
        assert!(
            matches!(&decision, Decision::Changed(d) if d[0].now.contains("-std=gnu11")),
            "{decision:?}"
        );
    }

    #[test]
    fn a_compiler_that_is_gone_keeps_the_build_but_hides_no_change() {
        let old = with(Some("16.1.0"), "o3", &[]);
        let gone = "something it was made with is not here any more";
        check(&old, &with(None, "o3", &[]), None, ("kept", gone));
        check(&old, &with(None, "o3", &[]), STALE, ("kept", gone));
        check(&old, &with(None, "o3", &[]), ALL, ("build", "asked for by --rebuild"));
        check(&old, &with(None, "o3", &[("-DV=", "-DW=")]), None, ("changed", FLAG));
    }

    #[test]
    fn reasons_are_one_short_line() {
        let difference = |path: &str, was: &str, now: &str| Difference {
            path: path.into(),
            was: was.into(),
            now: now.into(),
        };
        let sums = [difference("source.sha256", &"a".repeat(65), &"b".repeat(65))];
        assert_eq!(reason(&sums), "`source.sha256` was `aaaaaaaaaaaa…`, is `bbbbbbbbbbbb…`");
    }
}
