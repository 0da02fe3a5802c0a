//! A report as lines for people.
//!
//! Owns the layout and what is folded. Knows no manifest and no terminal.

use crate::audit::record::takes_value;
use crate::text::{self, Tone};

use super::{COSTS, Change, Report, Section, Side, Words};

/// One line and what it is.
pub type Line = (Tone, String);

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// Only what differs; long lists are cut.
    Equal,
    /// Also what is equal, in one line a section; lists in full.
    Nothing,
}

/// Columns that a line of words takes at most, where the words allow it.
const WIDTH: usize = 110;

/// Lines of one list that are worth reading at first.
const LINES: usize = 12;

/// Values up to this many characters stand beside each other.
const BESIDE: usize = 84;

/// The lines of a report.
pub fn lines(report: &Report, fold: Fold) -> Vec<Line> {
    let mut lines = told(report, fold);
    // Manifests are texts of others.
    for (_, line) in &mut lines {
        *line = text::visible(line, &[]);
    }
    lines
}

fn told(report: &Report, fold: Fold) -> Vec<Line> {
    let all = fold == Fold::Nothing;
    if !report.differs && !all {
        return vec![(Tone::Plain, nothing(report))];
    }
    let mut out = vec![
        (Tone::Minus, format!("- {}", side(&report.a))),
        (Tone::Plus, format!("+ {}", side(&report.b))),
    ];
    for section in &report.sections {
        if section.differs {
            show_section(section, fold, &mut out);
        } else if all {
            out.push((Tone::Dim, format!("{}: {}", section.name, equal(section))));
        }
    }
    if !report.differs {
        out.push((Tone::Plain, nothing(report)));
    }
    out
}

fn nothing(report: &Report) -> String {
    let (a, b) = (&report.a.name, &report.b.name);
    let cost = report.sections.iter().filter(|s| s.name == COSTS);
    let cost: Vec<String> = cost
        .flat_map(|s| &s.values)
        .map(|change| beside(change).replace("  ", " "))
        .collect();
    if cost.is_empty() {
        format!("nothing differs between `{a}` and `{b}`")
    } else {
        format!(
            "nothing differs between `{a}` and `{b}` but what they cost: {}",
            cost.join("; ")
        )
    }
}

fn side(side: &Side) -> String {
    let (name, product, version) = (&side.name, &side.product, &side.version);
    format!(
        "{name}  {product} {version}, built {}, identity {}",
        side.built_at,
        short(&side.identity)
    )
}

fn equal(section: &Section) -> String {
    const TOLD: usize = 8;
    match section.equal.as_slice() {
        [] => "none in both".to_owned(),
        keys if keys.len() <= TOLD => format!("equal ({})", keys.join(", ")),
        keys => format!("equal ({} and {} more)", keys[..TOLD].join(", "), keys.len() - TOLD),
    }
}

fn show_section(section: &Section, fold: Fold, out: &mut Vec<Line>) {
    out.push((Tone::Title, section.name.to_owned()));
    for change in &section.values {
        show_change(change, out);
    }
    for words in &section.words {
        show_words(words, fold, out);
    }
    if fold == Fold::Nothing && !section.equal.is_empty() {
        out.push((Tone::Dim, format!("  {}", equal(section))));
    }
}

/// `version  15.1 -> 16.0  (note)`.
fn beside(change: &Change) -> String {
    let value = |value: &Option<String>| value.as_deref().map_or_else(|| "nothing".to_owned(), short_words);
    let note = change.note.as_ref().map(|note| format!("  ({note})"));
    let (a, b) = (value(&change.a), value(&change.b));
    format!("{}  {a} -> {b}{}", change.key, note.unwrap_or_default())
}

fn show_change(change: &Change, out: &mut Vec<Line>) {
    let line = beside(change);
    if change.a.is_some() && change.b.is_some() && line.chars().count() <= BESIDE {
        out.push((Tone::Plain, format!("  {line}")));
        return;
    }
    match (&change.a, &change.b) {
        (Some(a), None) => out.push((Tone::Minus, format!("  - {}  {}", change.key, short_words(a)))),
        (None, Some(b)) => out.push((Tone::Plus, format!("  + {}  {}", change.key, short_words(b)))),
        (a, b) => {
            let note = change.note.as_ref().map(|note| format!("  ({note})"));
            out.push((Tone::Plain, format!("  {}{}", change.key, note.unwrap_or_default())));
            let value = |value: &Option<String>| value.as_deref().map(short_words).unwrap_or_default();
            out.push((Tone::Minus, format!("    - {}", value(a))));
            out.push((Tone::Plus, format!("    + {}", value(b))));
        }
    }
}

fn show_words(words: &Words, fold: Fold, out: &mut Vec<Line>) {
    let same = text::count(words.common, "word");
    out.push((Tone::Plain, format!("  {}  ({same} in both)", words.key)));
    for (tone, sign, list, note) in [
        (Tone::Minus, "-", &words.only_a, ""),
        (Tone::Plus, "+", &words.only_b, ""),
        (Tone::Dim, "~", &words.moved, "  (in both, in another place)"),
    ] {
        let (shown, left) = filled(list, fold);
        let last = shown.len().saturating_sub(1);
        for (i, line) in shown.iter().enumerate() {
            let note = if i == last && left == 0 { note } else { "" };
            out.push((tone, format!("    {sign} {line}{note}")));
        }
        if left > 0 {
            let more = text::count(left, "word");
            out.push((tone, format!("    {sign} ... {more} more{note}; `--all` shows them")));
        }
    }
}

/// Words in lines, and how many are left out.
fn filled(words: &[String], fold: Fold) -> (Vec<String>, usize) {
    let mut lines: Vec<String> = Vec::new();
    for (i, word) in words.iter().enumerate() {
        let (word, full) = (quoted(word), fold == Fold::Equal && lines.len() == LINES);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(&word);
            }
            _ if full => return (lines, words.len() - i),
            _ => lines.push(word),
        }
    }
    (lines, 0)
}

/// A word as a shell would take it, but for braces, which are fields here.
fn quoted(word: &str) -> String {
    // `-I dir` is one word of a list and two of a call.
    if let Some((option, value)) = word.split_once(' ').filter(|(option, _)| takes_value(option)) {
        return format!("{option} {}", quoted(value));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

/// Checksums and commits by their first characters; all else as it is.
fn short_words(value: &str) -> String {
    let words: Vec<String> = value.split(' ').map(short).collect();
    words.join(" ")
}

fn short(word: &str) -> String {
    let hex = word.len() >= 40 && word.chars().all(|c| c.is_ascii_hexdigit());
    if hex {
        format!("{}…", &word[..12])
    } else {
        word.to_owned()
    }
}
