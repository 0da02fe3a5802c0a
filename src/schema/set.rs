//! A set file: the builds of one study, by name or pattern.
//!
//! Owns the wire type and its checks. Whether a name can be built is asked of the caller.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::model::recipe::Set;

use super::at::At;
use super::diagnostic::{Problem, Source};
use super::parse;
use super::read::Reader;

/// A set: `recipes/sets/<name>.toml`, selected as `@name`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "bm set")]
pub struct SetFile {
    /// One line about the study.
    description: At<String>,
    /// Build names or patterns (`pg15*_o3`, `pg{15,16}*_def`).
    builds: At<Vec<At<String>>>,
}

/// Why a name in a set cannot be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Stands at the caret.
    pub why: String,
    /// The hint, where there is one.
    pub hint: Option<String>,
}

/// Reads a set; `known` judges each name that is no pattern.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn set(source: &Source, known: &dyn Fn(&str) -> Result<(), Unknown>) -> Result<Set, Vec<Error>> {
    let (file, problems) = parse::<SetFile>(source);
    let mut reader = Reader::new(source, problems);
    let set = file.and_then(|file| convert(&file, source, &mut reader, known));
    reader.finish(set)
}

fn convert(
    file: &SetFile,
    source: &Source,
    reader: &mut Reader<'_>,
    known: &dyn Fn(&str) -> Result<(), Unknown>,
) -> Option<Set> {
    let name = source
        .stem()
        .parse()
        .map_err(|e| reader.problem(0..0, "bad file name", e))
        .ok();
    reader.not_empty(&file.builds);
    let mut seen = BTreeMap::new();
    for build in file.builds.iter() {
        let span = build.span();
        if let Some(first) = seen.insert(build.as_str(), span.clone()) {
            let problem = Problem::new(span, format!("build `{}` is listed twice", **build), "again here");
            reader.report(problem.other(first, "first here"));
        } else {
            check(build, reader, known);
        }
    }
    Some(Set {
        file: source.file().clone(),
        description: reader.prose(&file.description, "description"),
        builds: file.builds.iter().map(|b| source.word(b)).collect(),
        name: name?,
    })
}

fn check(build: &At<String>, reader: &mut Reader<'_>, known: &dyn Fn(&str) -> Result<(), Unknown>) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    let pattern = |c: char| "*?[]{},!".contains(c);
    if build.starts_with('@') {
        reader.problem(build.span(), "set inside a set", "a set lists builds, not other sets");
    } else if build.is_empty() || !build.chars().all(|c| plain(c) || pattern(c)) {
        reader.problem(build.span(), "bad build name", "expected a build name or a pattern");
    } else if build.contains(pattern) {
        if let Err(e) = globset::GlobBuilder::new(build).build() {
            reader.problem(build.span(), "bad pattern", e.kind());
        }
    } else if let Err(unknown) = known(build) {
        let problem = Problem::new(build.span(), format!("unknown build `{}`", **build), unknown.why);
        reader.report(problem.hint(unknown.hint));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::diagnostic::{Kind, Paint};
    use super::*;

    fn read(builds: &str) -> Result<Set, Vec<Error>> {
        let text = format!("description = \"a study\"\nbuilds = [{builds}]\n");
        let source = Source::new(Kind::Set, "recipes/sets/study.toml", &text, Paint::Plain);
        set(&source, &|name| {
            if name.starts_with("pg") {
                return Ok(());
            }
            Err(Unknown {
                why: "no recipe makes it".into(),
                hint: None,
            })
        })
    }

    #[test]
    fn names_and_patterns_are_taken_with_their_lines() {
        let set = read("\"pg151_def\",\n\"pg{15,16}*_o3\"").unwrap();
        assert_eq!(set.name.as_str(), "study");
        let lines: Vec<_> = set.builds.iter().map(|b| b.origin.to_string()).collect();
        assert_eq!(lines, ["recipes/sets/study.toml:2", "recipes/sets/study.toml:3"]);
    }

    #[test]
    fn each_wrong_name_is_reported() {
        let cases = [
            ("", "empty list"),
            ("\"pg1\", \"pg1\"", "build `pg1` is listed twice"),
            ("\"@other\"", "set inside a set"),
            ("\"a b\"", "bad build name"),
            ("\"pg{15\"", "bad pattern"),
            ("\"my57_rel\"", "unknown build `my57_rel`"),
        ];
        for (builds, want) in cases {
            let errors = read(builds).unwrap_err();
            assert_eq!(errors.len(), 1, "{builds}");
            assert_eq!(errors[0].headline(), format!("{want} in set `study`"), "{builds}");
        }
    }
}
