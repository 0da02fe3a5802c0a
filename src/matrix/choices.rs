//! Choices of the options a recipe declares: what holds for a version, and how names spell what is not the default.
//!
//! Pure. Knows nothing of how the need of a choice is met.

use std::collections::BTreeMap;

use crate::error::{Error, Exit, Result};
use crate::model::recipe::{Choice, OptionSpec, Recipe};
use crate::model::version::Version;
use crate::text::{did_you_mean, quoted};

/// Option to choice.
pub type Choices = BTreeMap<String, String>;

/// The choice that holds for a version where none was made.
pub fn default_choice<'r>(option: &'r OptionSpec, version: &Version) -> &'r str {
    let holds = |req: Option<&crate::model::version::VersionReq>| req.is_none_or(|r| r.matches(version));
    let default = option.default.iter().rev().find(|d| holds(d.when.versions.as_ref()));
    &default.expect("the schema wants a default that holds everywhere").value
}

/// Every option of the recipe with the choice in force: the one made, else the default.
///
/// # Errors
/// Exit 2 for an option or a choice that the recipe, or the recipe for this version, does not have.
pub fn in_force(recipe: &Recipe, version: &Version, made: &Choices) -> Result<Choices> {
    for (option, choice) in made {
        let spec = find(recipe, option)?;
        let fits = |c: &&Choice| c.versions.as_ref().is_none_or(|r| r.matches(version));
        if !spec.choices.iter().filter(fits).any(|c| c.name == *choice) {
            let fitting: Vec<&str> = spec.choices.iter().filter(fits).map(|c| c.name.as_str()).collect();
            let known = spec.choices.iter().find(|c| c.name == *choice);
            let what = format!(
                "{} {version} has no choice `{choice}` of option `{option}`",
                recipe.product
            );
            let mut error = Error::new(Exit::Usage, what);
            if let Some(known) = known
                && let Some(range) = &known.versions
            {
                error = error.detail("it is for", format!("{range}  [{}]", known.origin));
            }
            let near = did_you_mean(choice, fitting.iter().copied());
            return Err(error.hint(near.unwrap_or_else(|| format!("choices are {}", quoted(&fitting, "and")))));
        }
    }
    let of = |spec: &OptionSpec| {
        let choice = made.get(&spec.name).map(String::as_str);
        let choice = choice.unwrap_or_else(|| default_choice(spec, version));
        (spec.name.clone(), choice.to_owned())
    };
    Ok(recipe.options.iter().map(of).collect())
}

/// The choices that a name of this version has to spell.
pub fn beside_default(recipe: &Recipe, version: &Version, made: &Choices) -> Choices {
    let differs = |(option, choice): &(&String, &String)| {
        let spec = recipe.options.iter().find(|o| o.name == **option);
        spec.is_none_or(|spec| default_choice(spec, version) != choice.as_str())
    };
    let differing = made.iter().filter(differs);
    differing.map(|(o, c)| (o.clone(), c.clone())).collect()
}

/// What stands at the end of a name: `_ssl-system`, in the recipe's order; nothing without choices.
pub fn suffix(recipe: &Recipe, choices: &Choices) -> String {
    let spelled = |o: &OptionSpec| choices.get(&o.name).map(|choice| format!("_{}-{choice}", o.name));
    recipe.options.iter().filter_map(spelled).collect()
}

/// A name without the choices at its end, and these; `None` where something stands there that only looks like one.
pub fn split<'t>(recipe: &Recipe, name: &'t str) -> Option<(&'t str, Choices)> {
    let (mut rest, mut choices) = (name, Choices::new());
    while let Some((before, last)) = rest.rsplit_once('_') {
        let Some((option, choice)) = last.split_once('-') else {
            break;
        };
        let Some(spec) = recipe.options.iter().find(|o| o.name == option) else {
            break;
        };
        spec.choices.iter().find(|c| c.name == choice)?;
        if choices.insert(option.to_owned(), choice.to_owned()).is_some() {
            return None;
        }
        rest = before;
    }
    (name == format!("{rest}{}", suffix(recipe, &choices))).then_some((rest, choices))
}

/// `KEY=VALUE` of `--set`.
///
/// # Errors
/// Exit 2 where it has no `=`.
pub fn parse(text: &str) -> Result<(String, String)> {
    let parts = text.split_once('=').filter(|(k, v)| !k.is_empty() && !v.is_empty());
    let (option, choice) = parts.ok_or_else(|| {
        Error::new(Exit::Usage, format!("`--set {text}` sets nothing"))
            .hint("write an option and a choice: `--set ssl=system`")
    })?;
    Ok((option.to_owned(), choice.to_owned()))
}

fn find<'r>(recipe: &'r Recipe, option: &str) -> Result<&'r OptionSpec> {
    recipe.options.iter().find(|o| o.name == option).ok_or_else(|| {
        let known: Vec<&str> = recipe.options.iter().map(|o| o.name.as_str()).collect();
        let error = Error::new(Exit::Usage, format!("{} has no option `{option}`", recipe.product));
        error.hint(match (did_you_mean(option, known.iter().copied()), known.is_empty()) {
            (Some(near), _) => near,
            (None, true) => format!("recipe `{}` declares none", recipe.product),
            (None, false) => format!("options are {}", quoted(&known, "and")),
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OPTIONS: &str = r#"
[[options]]
name = "ssl"
about = "TLS library"
choices = [{ name = "own", versions = "<2" }, { name = "system" }]
default = [{ choice = "system" }, { when = { versions = "<2" }, choice = "own" }]
[[options]]
name = "zip"
about = "compression"
choices = [{ name = "on" }, { name = "off" }]
default = [{ choice = "on" }]
[names]
"#;

    fn recipe() -> Recipe {
        crate::sample::recipe(&[("\n[names]\n", OPTIONS)])
    }

    fn made(choices: &[(&str, &str)]) -> Choices {
        choices
            .iter()
            .map(|(o, c)| ((*o).to_owned(), (*c).to_owned()))
            .collect()
    }

    #[test]
    fn the_last_default_that_holds_counts_and_a_name_spells_only_what_is_other() {
        let recipe = recipe();
        let check = |version: &str, choices: &[(&str, &str)], force: &[(&str, &str)], name: &str| {
            let (version, choices) = (version.parse().unwrap(), made(choices));
            assert_eq!(in_force(&recipe, &version, &choices).unwrap(), made(force), "{version}");
            let beside = beside_default(&recipe, &version, &choices);
            assert_eq!(suffix(&recipe, &beside), name, "{version}");
        };
        check("1.0", &[], &[("ssl", "own"), ("zip", "on")], "");
        check("2.1", &[], &[("ssl", "system"), ("zip", "on")], "");
        check("1.0", &[("ssl", "own")], &[("ssl", "own"), ("zip", "on")], "");
        let both = [("zip", "off"), ("ssl", "system")];
        check("1.0", &both, &both, "_ssl-system_zip-off");
        check("2.1", &both, &both, "_zip-off");
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let recipe = recipe();
        let read =
            |name: &str| split(&recipe, name).map(|(plain, choices)| (plain.to_owned(), suffix(&recipe, &choices)));
        let some = |plain: &str, suffix: &str| Some((plain.to_owned(), suffix.to_owned()));
        assert_eq!(read("d10_o3"), some("d10_o3", ""));
        assert_eq!(read("d10_o3_clang15_ssl-system"), some("d10_o3_clang15", "_ssl-system"));
        assert_eq!(read("d10_o3_ssl-own_zip-off"), some("d10_o3", "_ssl-own_zip-off"));
        // A part with a dash that is no option may be anything else.
        assert_eq!(read("d10_x-y"), some("d10_x-y", ""));
        for other in ["d10_o3_zip-off_ssl-own", "d10_o3_zip-off_zip-on", "d10_o3_zip-medium"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn what_a_version_cannot_have_is_told_with_what_it_can() {
        let recipe = recipe();
        let error = |choices: &[(&str, &str)]| in_force(&recipe, &"2.1".parse().unwrap(), &made(choices)).unwrap_err();
        let own = error(&[("ssl", "own")]);
        assert_eq!(own.headline(), "demo 2.1 has no choice `own` of option `ssl`");
        assert!(
            own.details()[0].1.starts_with("<2  [recipes/demo.toml:"),
            "{:?}",
            own.details()
        );
        assert_eq!(own.hint_text(), Some("choices are `system`"));
        let option = error(&[("zap", "on")]);
        assert_eq!(
            (option.headline(), option.hint_text()),
            ("demo has no option `zap`", Some("did you mean `zip`?"))
        );
        assert!(parse("ssl=").is_err() && parse("=x").is_err() && parse("ssl").is_err());
        assert_eq!(parse("ssl=own").unwrap(), ("ssl".to_owned(), "own".to_owned()));
    }
}
