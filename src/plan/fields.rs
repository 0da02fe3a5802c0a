//! Fields such as `{version.tag}` in the words of recipes and toolchains, replaced here and nowhere else.
//!
//! One field stays until a command is run, since a plan and its identity know no work tree: `{stage}`.

use std::path::Path;

use crate::matrix;
use crate::model::recipe::{Flags, Origin, Recipe, Toolchain, Word};
use crate::model::version::Version;

use super::Need;

/// Stands for the DESTDIR of the build's work tree.
pub const STAGE: &str = "stage";

/// Values of the fields of one build.
#[derive(Debug)]
pub struct Values<'a> {
    /// Recipe.
    pub recipe: &'a Recipe,
    /// Version.
    pub version: &'a Version,
    /// Release part of names.
    pub release: &'a str,
    /// Variant.
    pub variant: &'a str,
    /// Toolchain, also the default one.
    pub toolchain: &'a str,
    /// Final path.
    pub prefix: &'a Path,
    /// Programs.
    pub tools: &'a Toolchain,
    /// Builds that are needed.
    pub needs: &'a [Need],
}

impl Values<'_> {
    fn get(&self, field: &str) -> Option<String> {
        Some(match field {
            "release" => self.release.to_owned(),
            "variant" => self.variant.to_owned(),
            "toolchain" => self.toolchain.to_owned(),
            "prefix" => self.prefix.display().to_string(),
            "cc" => self.tools.cc.text.clone(),
            "cxx" => self.tools.cxx.text.clone(),
            "ar" => self.tools.ar.text.clone(),
            "ranlib" => self.tools.ranlib.text.clone(),
            // Known when the command is run.
            STAGE => return None,
            _ if field.starts_with("need.") => {
                let need = self.needs.iter().find(|n| field["need.".len()..] == n.option)?;
                need.prefix.display().to_string()
            }
            _ => return self.version.field(field, self.recipe.series_parts),
        })
    }

    /// The word with its values; it keeps its origin.
    pub fn fill(&self, word: &Word) -> Word {
        Word {
            text: filled(word, |field| self.get(field)),
            origin: word.origin.clone(),
        }
    }

    /// Likewise, for a list.
    pub fn fill_all<'w>(&self, words: impl IntoIterator<Item = &'w Word>) -> Vec<Word> {
        words.into_iter().map(|word| self.fill(word)).collect()
    }

    /// Likewise, for flags.
    pub fn fill_flags(&self, flags: &Flags) -> Flags {
        Flags {
            cflags: self.fill_all(&flags.cflags),
            cxxflags: self.fill_all(&flags.cxxflags),
            ldflags: self.fill_all(&flags.ldflags),
        }
    }
}

/// Release part of the names of a version or, for a bare commit, of that commit.
pub fn release(recipe: &Recipe, version: &Version, bare_commit: Option<&str>) -> String {
    let of_commit = bare_commit.and_then(|commit| {
        let commit9 = commit.get(..9)?;
        recipe
            .names
            .git
            .format(|f| (f == "commit9").then(|| commit9.to_owned()))
            .ok()
    });
    of_commit.unwrap_or_else(|| matrix::release_name(recipe, version))
}

/// A word's text with those fields replaced that have a value. Only files and bm itself write fields:
/// braces in what the user gave mean themselves.
pub fn filled(word: &Word, value: impl Fn(&str) -> Option<String>) -> String {
    match word.origin {
        Origin::File { .. } | Origin::Bm(_) => replace(&word.text, value),
        Origin::CommandLine(_) | Origin::Environment => word.text.clone(),
    }
}

fn replace(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    if !text.contains('{') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let field = after
            .split_once('}')
            .and_then(|(field, tail)| Some((value(field)?, tail)));
        match field {
            Some((value, tail)) => {
                out.push_str(&value);
                rest = tail;
            }
            None => {
                out.push('{');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_with_a_value_are_replaced_and_values_are_not_read_again() {
        let value = |field: &str| match field {
            "a" => Some("{b}".to_owned()),
            "b" => Some("B".to_owned()),
            _ => None,
        };
        let check = |text: &str, want: &str| assert_eq!(replace(text, value), want, "{text}");
        check("x{a}-{b}y", "x{b}-By");
        check("{stage}/{b}", "{stage}/B");
        check("{{b}}", "{B}");
        check("{b", "{b");
        check("}{", "}{");
        check("", "");
    }

    #[test]
    fn braces_of_the_user_mean_themselves() {
        let word = |origin| Word {
            text: "-DX={b}".to_owned(),
            origin,
        };
        let value = |_: &str| Some("B".to_owned());
        assert_eq!(filled(&word(Origin::CommandLine("--cflags")), value), "-DX={b}");
        assert_eq!(filled(&word(Origin::Environment), value), "-DX={b}");
        assert_eq!(filled(&word(Origin::Bm("test")), value), "-DX=B");
    }
}
