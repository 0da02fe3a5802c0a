//! Patterns over names, and picking among prefixes that exist.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobMatcher};

use crate::error::{Error, Exit, Result};
use crate::model::name::BuildName;
use crate::text::did_you_mean;

/// Whether a selector is a pattern and not a name.
pub fn is_pattern(selector: &str) -> bool {
    selector.contains(['*', '?', '[', '{'])
}

/// A matcher over names.
///
/// # Errors
/// A pattern that is not well formed.
pub fn glob(pattern: &str) -> Result<GlobMatcher> {
    let glob = GlobBuilder::new(pattern)
        .literal_separator(true)
        // `o3{,_native}`, as a shell reads it.
        .empty_alternates(true)
        .build();
    glob.map(|g| g.compile_matcher())
        .map_err(|e| Error::new(Exit::Usage, format!("`{pattern}` is not a pattern")).caused_by(e.kind()))
}

/// Picks among prefixes that exist: exact names (also links) and patterns over canonical names.
///
/// `names` are the built ones in the order wanted; `links` map other names to them.
///
/// # Errors
/// A selector that picks nothing.
pub fn among(
    names: &[BuildName],
    links: &BTreeMap<BuildName, BuildName>,
    selectors: &[String],
) -> Result<Vec<BuildName>, Vec<Error>> {
    let mut picked: Vec<BuildName> = Vec::new();
    let mut errors = Vec::new();
    for selector in selectors {
        let hits: Vec<&BuildName> = if is_pattern(selector) {
            match glob(selector) {
                Ok(matcher) => names.iter().filter(|n| matcher.is_match(n.as_str())).collect(),
                Err(e) => {
                    errors.push(e);
                    continue;
                }
            }
        } else {
            let target = selector
                .parse()
                .ok()
                .and_then(|n: BuildName| links.get(&n).cloned().or(Some(n)));
            names.iter().filter(|n| target.as_ref() == Some(n)).collect()
        };
        if hits.is_empty() {
            let error = Error::new(Exit::Usage, format!("nothing built matches `{selector}`"));
            let known = names.iter().chain(links.keys()).map(BuildName::as_str);
            let near = did_you_mean(selector, known).filter(|_| !is_pattern(selector));
            errors.push(error.hint(near.unwrap_or_else(|| "`bm list --built` shows what is there".to_owned())));
        }
        for hit in hits {
            if !picked.contains(hit) {
                picked.push(hit.clone());
            }
        }
    }
    if errors.is_empty() { Ok(picked) } else { Err(errors) }
}

/// Whether a pattern spells a pre-release: `beta` or `rc` as a word of its own, not as in `march`.
pub(super) fn spells_pre_release(pattern: &str) -> bool {
    ["beta", "rc", "devel", "dmr"].iter().any(|word| {
        pattern.match_indices(word).any(|(at, _)| {
            let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
            !letter(pattern[..at].chars().next_back()) && !letter(pattern[at + word.len()..].chars().next())
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let glob = glob(pattern).unwrap();
            for name in yes {
                assert!(glob.is_match(name), "{pattern} {name}");
            }
            for name in no {
                assert!(!glob.is_match(name), "{pattern} {name}");
            }
        };
        check(
            "pg{15,16}*_o3",
            &["pg151_o3", "pg160_o3"],
            &["pg141_o3", "pg151_o3_native"],
        );
        check(
            "pg151_o3{,_native}",
            &["pg151_o3", "pg151_o3_native"],
            &["pg151_o3_native_lto"],
        );
        check("pg15[12]_o?", &["pg151_o3", "pg152_o2"], &["pg153_o3"]);
        for bad in ["pg{15", "pg[15"] {
            let error = glob(bad).unwrap_err();
            assert_eq!(
                (error.exit(), error.headline()),
                (Exit::Usage, format!("`{bad}` is not a pattern").as_str())
            );
        }
    }

    #[test]
    fn a_pre_release_is_a_word_of_its_own() {
        for yes in ["pg16beta*_o3", "pg16{beta1,rc1}_*", "*rc?_def", "*beta*"] {
            assert!(spells_pre_release(yes), "{yes}");
        }
        for no in ["pg16*_march*", "pg*_o3_arch", "pg16*"] {
            assert!(!spells_pre_release(no), "{no}");
        }
    }

    #[test]
    fn exact_names_may_be_links_and_patterns_never_pick_them() {
        let name = |text: &str| text.parse::<BuildName>().unwrap();
        let names = [name("pg150_o3"), name("pg164_o3")];
        let links = BTreeMap::from([(name("pg16_o3"), name("pg164_o3"))]);
        let pick = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            among(&names, &links, &words)
        };
        assert_eq!(pick(&["pg16_o3"]).unwrap(), [name("pg164_o3")]);
        assert_eq!(pick(&["pg*"]).unwrap(), names);
        assert_eq!(
            pick(&["pg164_o3", "pg*", "pg16_o3"]).unwrap(),
            [name("pg164_o3"), name("pg150_o3")]
        );
        let errors = pick(&["pg16_*", "pg16_o4", "x/y"]).unwrap_err();
        let hints: Vec<_> = errors.iter().map(|e| e.hint_text().unwrap()).collect();
        assert!(errors.iter().all(|e| e.exit() == Exit::Usage));
        assert_eq!(hints[0], "`bm list --built` shows what is there");
        assert!(hints[1].starts_with("did you mean `pg16"), "{hints:?}");
        assert_eq!(hints[2], hints[0]);
    }
}
