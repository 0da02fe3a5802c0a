//! What is wrong in a file of the user's, shown with the line it stands on.
//!
//! Owns rendering into an [`Error`]. Does not know what the files mean, and prints nothing.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::error::{Error, Exit};
use crate::model::recipe::{Origin, Word};

use super::at::At;

/// Whether rendered text has terminal colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Paint {
    /// For files, pipes and `NO_COLOR`.
    #[default]
    Plain,
    /// With ANSI escapes.
    Color,
}

/// The kinds of files a user writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `recipes/<product>.toml`.
    Recipe,
    /// `toolchains/<name>.toml`.
    Toolchain,
    /// `recipes/sets/<name>.toml`.
    Set,
    /// The user's configuration.
    Config,
}

impl Kind {
    /// The word for it in messages and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Recipe => "recipe",
            Kind::Toolchain => "toolchain",
            Kind::Set => "set",
            Kind::Config => "config",
        }
    }
}

/// The text of one file and what it is called.
#[derive(Debug, Clone)]
pub struct Source {
    kind: Kind,
    file: Arc<str>,
    text: Arc<str>,
    paint: Paint,
    /// Byte at which each line starts.
    lines: Vec<usize>,
}

impl Source {
    /// `file` is the name the user knows; its stem names the recipe, toolchain or set.
    pub fn new(kind: Kind, file: &str, text: &str, paint: Paint) -> Self {
        let starts = text
            .bytes()
            .enumerate()
            .filter(|(_, b)| *b == b'\n')
            .map(|(i, _)| i + 1);
        Source {
            kind,
            file: file.into(),
            text: text.into(),
            paint,
            lines: std::iter::once(0).chain(starts).collect(),
        }
    }

    /// What kind of file it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The file, as the user knows it.
    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// The whole text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// File name without `.toml`.
    pub fn stem(&self) -> &str {
        Path::new(&*self.file)
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or("")
    }

    /// Line of a byte, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at)
    }

    /// Where something stands, for a command line's word.
    pub fn origin(&self, span: &Range<usize>) -> Origin {
        Origin::File {
            file: self.file.clone(),
            line: self.line(span.start),
        }
    }

    /// A word with its line.
    pub fn word(&self, text: &At<String>) -> Word {
        Word {
            text: (**text).clone(),
            origin: self.origin(&text.span()),
        }
    }

    /// `recipe `mysql``, as messages call this file.
    fn subject(&self) -> String {
        match self.kind {
            Kind::Config => "the config".to_owned(),
            kind => format!("{} `{}`", kind.word(), self.stem()),
        }
    }

    /// Turns problems into errors, in the order of the text.
    pub fn errors(&self, mut problems: Vec<Problem>) -> Vec<Error> {
        problems.sort_by_key(|p| (p.span.start, p.span.end));
        problems.dedup();
        problems.into_iter().map(|p| self.error(p)).collect()
    }

    fn error(&self, problem: Problem) -> Error {
        let headline = format!("{} in {}", problem.what, self.subject());
        let error = Error::new(Exit::Usage, &headline).snippet(self.render(&headline, &problem));
        match problem.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    fn render(&self, headline: &str, problem: &Problem) -> String {
        let span = self.first_line(&problem.span);
        let mut snippet = Snippet::source(&*self.text)
            .path(&*self.file)
            .annotation(AnnotationKind::Primary.span(span).label(problem.label.as_str()));
        if let Some((span, label)) = &problem.other {
            let other = AnnotationKind::Context
                .span(self.first_line(span))
                .label(label.as_str());
            snippet = snippet.annotation(other);
        }
        let renderer = match self.paint {
            Paint::Plain => Renderer::plain(),
            Paint::Color => Renderer::styled(),
        };
        renderer.render(&[Level::ERROR.primary_title(headline).element(snippet)])
    }

    /// The part of a span on its first line: a table's span may cover many lines, of which the first says enough.
    fn first_line(&self, span: &Range<usize>) -> Range<usize> {
        let start = span.start.min(self.text.len());
        let end = span.end.clamp(start, self.text.len());
        let on_line = self.text[start..end].lines().next().unwrap_or("").trim_end();
        start..start + on_line.len()
    }
}

/// One thing that is wrong, before it is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    span: Range<usize>,
    what: String,
    label: String,
    other: Option<(Range<usize>, String)>,
    hint: Option<String>,
}

impl Problem {
    /// `what` begins the headline (`bad version`), `label` stands at the caret.
    pub fn new(span: Range<usize>, what: impl Into<String>, label: impl Display) -> Self {
        Problem {
            span,
            what: what.into(),
            label: label.to_string(),
            other: None,
            hint: None,
        }
    }

    /// Shows a second place that has to do with it.
    #[must_use]
    pub fn other(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.other = Some((span, label.into()));
        self
    }

    /// Sets the hint, if there is one.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Byte at which it stands.
    pub(super) fn at(&self) -> usize {
        self.span.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_first_line_only() {
        let source = Source::new(Kind::Recipe, "recipes/x.toml", "a = 1\n[t]\nb = 2\n", Paint::Plain);
        let errors = source.errors(vec![
            Problem::new(6..15, "second", "here"),
            Problem::new(0..1, "first", "there").other(4..5, "see this"),
        ]);
        let text: Vec<_> = errors.iter().filter_map(Error::rendered_snippet).collect();
        assert!(
            text[0].starts_with("error: first in recipe `x`\n --> recipes/x.toml:1:1"),
            "{}",
            text[0]
        );
        assert!(text[0].contains("see this"), "{}", text[0]);
        assert!(
            text[1].contains("recipes/x.toml:2:1") && !text[1].contains("b = 2"),
            "{}",
            text[1]
        );
        assert!(!text[0].contains('\u{1b}'));
    }

    #[test]
    fn spans_outside_the_text_do_no_harm() {
        let source = Source::new(Kind::Config, "c.toml", "é", Paint::Color);
        let errors = source.errors(vec![Problem::new(0..99, "odd", ""), Problem::new(50..60, "odder", "")]);
        assert_eq!(errors.len(), 2);
        assert_eq!(errors[0].headline(), "odd in the config");
        assert!(errors[0].rendered_snippet().is_some_and(|s| s.contains('\u{1b}')));
    }

    #[test]
    fn lines_count_from_one() {
        let source = Source::new(Kind::Set, "s.toml", "a\nbé\nc", Paint::Plain);
        assert_eq!([0, 2, 4, 6].map(|at| source.line(at)), [1, 2, 2, 3]);
    }
}
