//! What the files have in common: conditions, flags, words, versions, and the checks of single values.
//!
//! Knows no file as a whole.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Component, Path};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::model::name::Template;
use crate::model::recipe as model;
use crate::model::recipe::Word;
use crate::text::{did_you_mean, quoted};

use super::at::At;
use super::diagnostic::{Problem, Source};

/// Fields a template may use where only the version is known.
pub const VERSION_FIELDS: &[&str] = &[
    "version",
    "version.compact",
    "version.numbers",
    "version.series",
    "version.tag",
    "version.underscored",
];

/// Fields a word of a command line, a flag or an environment value may use; the plan replaces them. None
/// speaks of a work directory or of the number of jobs: neither is part of an identity.
pub const WORD_FIELDS: &[&str] = &[
    "version",
    "version.compact",
    "version.numbers",
    "version.series",
    "version.tag",
    "version.underscored",
    "release",
    "variant",
    "toolchain",
    "prefix",
    "cc",
    "cxx",
    "ar",
    "ranlib",
];

/// A field more where a recipe writes whole commands.
const STAGE: &str = "stage";

/// Variables of a child's environment that are bm's own.
const OWN_VARIABLES: &[&str] = &[
    "DESTDIR",
    "HOME",
    "LC_ALL",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MFLAGS",
    "PATH",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TMPDIR",
    "TZ",
];

/// Compiler family.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// GNU.
    Gcc,
    /// LLVM.
    Clang,
}

impl From<Family> for model::Family {
    fn from(family: Family) -> Self {
        match family {
            Family::Gcc => model::Family::Gcc,
            Family::Clang => model::Family::Clang,
        }
    }
}

/// Kind of source.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// A release archive pinned by sha256.
    Tarball,
    /// A commit.
    Git,
    /// A directory of the user's.
    Local,
}

impl From<SourceKind> for model::SourceKind {
    fn from(kind: SourceKind) -> Self {
        match kind {
            SourceKind::Tarball => model::SourceKind::Tarball,
            SourceKind::Git => model::SourceKind::Git,
            SourceKind::Local => model::SourceKind::Local,
        }
    }
}

/// A condition; every part that is given must hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct When {
    /// Range of product versions: `>=14, <16`.
    pub versions: Option<At<String>>,
    /// Compiler family.
    pub family: Option<Family>,
    /// Range of compiler versions.
    pub compiler: Option<At<String>>,
    /// Kind of source.
    pub source: Option<SourceKind>,
    /// An atom that the variant must have.
    pub atom: Option<At<String>>,
    /// A choice that must be in force: `ssl-system`, option and choice as names spell them.
    pub choice: Option<At<String>>,
}

/// Distribution id (`debian`, `ubuntu`) to package names; `debian` serves its derivatives too.
pub type Packages = BTreeMap<At<String>, Vec<At<String>>>;

/// Three lists of flags, as they stand in a file.
pub struct FlagLists<'a> {
    /// For C.
    pub cflags: &'a [At<String>],
    /// For C++.
    pub cxxflags: &'a [At<String>],
    /// For linking.
    pub ldflags: &'a [At<String>],
}

/// Turns wire values into the model's, collecting what is wrong with them. What could not be read is
/// left out: with a problem collected nobody sees the value.
pub struct Reader<'s> {
    source: &'s Source,
    problems: Vec<Problem>,
    /// Whether something of the file is missing because it was wrong.
    partial: bool,
    /// Whether the file writes whole commands.
    whole_commands: bool,
}

impl<'s> Reader<'s> {
    /// `earlier` is what was found wrong before; such parts of the file are not there any more.
    pub fn new(source: &'s Source, earlier: Vec<Problem>) -> Self {
        Reader {
            source,
            partial: !earlier.is_empty(),
            problems: earlier,
            whole_commands: false,
        }
    }

    /// From here on words may name the staging directory: the file's commands are its own.
    pub fn take_whole_commands(&mut self) {
        self.whole_commands = true;
    }

    /// The value, if nothing was wrong with it or before it.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Error>> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(self.source.errors(self.problems)),
        }
    }

    /// A problem that may only be there because a wrong part was left out: said when the file is whole.
    pub fn report_if_whole(&mut self, problem: Problem) {
        if !self.partial {
            self.report(problem);
        }
    }

    pub fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub fn problem(&mut self, span: Range<usize>, what: impl Into<String>, label: impl Display) {
        self.report(Problem::new(span, what, label));
    }

    pub fn origin(&self, span: &Range<usize>) -> model::Origin {
        self.source.origin(span)
    }

    /// Anything with a parser of its own; its message stands at the caret.
    pub fn parse<T: FromStr<Err: Display>>(&mut self, text: &At<String>, what: &str) -> Option<T> {
        text.parse()
            .map_err(|e| self.problem(text.span(), format!("bad {what}"), e))
            .ok()
    }

    pub fn parse_opt<T: FromStr<Err: Display>>(&mut self, text: Option<&At<String>>, what: &str) -> Option<T> {
        text.and_then(|text| self.parse(text, what))
    }

    pub fn hex(&mut self, text: Option<&At<String>>, digits: usize, what: &str) -> Option<String> {
        let text = text?;
        let plain = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if text.len() == digits && text.chars().all(plain) {
            return Some((**text).clone());
        }
        let found = match text.chars().find(|c| !plain(*c)) {
            Some(odd) => format!("found `{odd}`"),
            None => format!("found {}", text.len()),
        };
        let label = format!("expected {digits} digits of 0-9 and a-f, {found}");
        self.problem(text.span(), format!("bad {what}"), label);
        None
    }

    /// A text a person reads: not empty.
    pub fn prose(&mut self, text: &At<String>, what: &str) -> String {
        if text.trim().is_empty() {
            self.problem(text.span(), format!("empty {what}"), "say something here");
        }
        (**text).clone()
    }

    /// A template whose fields are among `known`; `needed` must be there.
    pub fn template(&mut self, text: &At<String>, what: &str, known: &[&str], needed: &[&str]) -> Option<Template> {
        let template: Template = self.parse(text, "template")?;
        for field in template.fields().filter(|f| !known.contains(f)) {
            let label = match known {
                [] => "nothing is replaced here".to_owned(),
                known => format!("{what} can use {}", quoted(known, "and")),
            };
            let problem = Problem::new(text.span(), format!("unknown field `{{{field}}}`"), label);
            self.report(problem.hint(did_you_mean(field, known.iter().copied())));
        }
        for field in needed.iter().filter(|n| template.fields().all(|f| f != **n)) {
            let label = format!("{what} must hold `{{{field}}}`, or different builds get one name");
            self.problem(text.span(), format!("missing field `{{{field}}}`"), label);
        }
        Some(template)
    }

    /// A word of a command line.
    pub fn word(&mut self, text: &At<String>) -> Word {
        if self.whole_commands {
            let known: Vec<&str> = WORD_FIELDS.iter().copied().chain([STAGE]).collect();
            return self.word_with(text, &known);
        }
        self.word_with(text, WORD_FIELDS)
    }

    /// A word that may use only the fields `known`.
    fn word_with(&mut self, text: &At<String>, known: &[&str]) -> Word {
        if text.is_empty() {
            self.problem(text.span(), "empty word", "a word of a command line cannot be empty");
        } else if text.contains('\0') {
            self.problem(
                text.span(),
                "bad word",
                "a word of a command line cannot hold a NUL byte",
            );
        } else if text.contains(['{', '}']) {
            self.template(text, "a word", known, &[]);
        }
        self.source.word(text)
    }

    /// Words taken as they stand: braces in them are no fields.
    pub fn literals(&mut self, list: &[At<String>]) -> Vec<Word> {
        for text in list.iter().filter(|text| text.is_empty()) {
            self.problem(text.span(), "empty word", "a word of a command line cannot be empty");
        }
        list.iter().map(|text| self.source.word(text)).collect()
    }

    pub fn words(&mut self, list: &[At<String>]) -> Vec<Word> {
        list.iter().map(|word| self.word(word)).collect()
    }

    /// Likewise, with a field more than usual.
    pub fn words_with(&mut self, list: &[At<String>], more: Option<&str>) -> Vec<Word> {
        let known: Vec<&str> = WORD_FIELDS.iter().copied().chain(more).collect();
        list.iter().map(|word| self.word_with(word, &known)).collect()
    }

    /// Words of which there must be at least one.
    pub fn some_words(&mut self, list: &At<Vec<At<String>>>) -> Vec<Word> {
        self.not_empty(list);
        self.words(list)
    }

    pub fn not_empty<T>(&mut self, list: &At<Vec<T>>) {
        if list.is_empty() {
            let label = "expected at least one element, or no such key";
            self.report_if_whole(Problem::new(list.span(), "empty list", label));
        }
    }

    /// A program or a flag: one word without blanks.
    pub fn flags(&mut self, lists: &FlagLists<'_>) -> model::Flags {
        model::Flags {
            cflags: self.flag_list(lists.cflags),
            cxxflags: self.flag_list(lists.cxxflags),
            ldflags: self.flag_list(lists.ldflags),
        }
    }

    fn flag_list(&mut self, list: &[At<String>]) -> Vec<Word> {
        list.iter().map(|flag| self.solid(flag, "flag")).collect()
    }

    /// A word without blanks: flags are joined by blanks for configure.
    fn solid(&mut self, text: &At<String>, what: &str) -> Word {
        self.unbroken(text, what);
        self.word(text)
    }

    /// What is looked for on the host, where no build has given fields their values yet.
    pub fn plain(&mut self, text: &At<String>, what: &str) -> Word {
        self.unbroken(text, what);
        self.word_with(text, &[])
    }

    fn unbroken(&mut self, text: &At<String>, what: &str) {
        if text.contains(char::is_whitespace) {
            let problem = Problem::new(
                text.span(),
                format!("blank in a {what}"),
                format!("a {what} is one word"),
            );
            self.report(problem.hint("write each word as an element of its own".to_owned()));
        }
    }

    pub fn when(&mut self, when: Option<&When>) -> model::When {
        let Some(when) = when else {
            return model::When::default();
        };
        model::When {
            versions: self.parse_opt(when.versions.as_ref(), "range"),
            family: when.family.map(Into::into),
            compiler: self.parse_opt(when.compiler.as_ref(), "range"),
            source: when.source.map(Into::into),
            atom: when.atom.as_ref().map(|atom| (**atom).clone()),
            choice: when.choice.as_ref().and_then(|choice| {
                let parts = choice.split_once('-');
                if parts.is_none() {
                    self.problem(
                        choice.span(),
                        "bad choice",
                        "expected an option and a choice: `ssl-system`",
                    );
                }
                parts.map(|(option, choice)| (option.to_owned(), choice.to_owned()))
            }),
        }
    }

    pub fn packages(&mut self, packages: &Packages) -> BTreeMap<String, Vec<String>> {
        let mut out = BTreeMap::new();
        for (distribution, names) in packages {
            for name in names {
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
                if name.is_empty() || !name.chars().all(plain) {
                    self.problem(name.span(), "bad package name", "expected a-z, 0-9, `+`, `-` and `.`");
                }
            }
            out.insert((**distribution).clone(), names.iter().map(|n| (**n).clone()).collect());
        }
        out
    }

    /// The name of a variable a child may be given.
    pub fn variable(&mut self, name: &At<String>) {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !name.starts_with(first) || !name.chars().all(|c| first(c) || c.is_ascii_digit()) {
            self.problem(name.span(), "bad variable name", "expected letters, digits and `_`");
        } else if OWN_VARIABLES.contains(&name.as_str()) {
            self.problem(
                name.span(),
                format!("variable `{}` is not free", **name),
                "bm sets it by itself",
            );
        }
    }

    /// A path that stays below the directory it is taken from.
    pub fn inside(&mut self, path: &At<String>, below: &str) {
        let normal = |c: Component<'_>| matches!(c, Component::Normal(_));
        if path.is_empty() || !Path::new(path.as_str()).components().all(normal) {
            self.problem(
                path.span(),
                "bad path",
                format!("expected a path below {below}, without `..`"),
            );
        }
    }
}
