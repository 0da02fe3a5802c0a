//! Small texts: quoted lists, plurals, the nearest known word, sizes and durations, what is safe to print. Pure.

/// `1 build`, `3 builds`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("{n} {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// How many candidates are worth showing.
const SUGGESTIONS: usize = 3;

/// The candidates a mistyped word may have meant, nearest first, at most three.
///
/// A third of the word may be wrong, a swap of two neighbours counting once, but never all of it. Words
/// that begin alike may differ more (`smoke-cmd` for `smoke-command`).
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let length = word.chars().count();
    let allowed = (length / 3).max(1).min(length.saturating_sub(1));
    let mut near: Vec<(usize, f64, &str)> = candidates
        .into_iter()
        .filter(|c| *c != word)
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(word, candidate);
            (distance, -strsim::jaro_winkler(word, candidate), candidate)
        })
        .filter(|(distance, unlikeness, _)| *distance <= allowed || *unlikeness < -0.9)
        .collect();
    near.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(b.2)));
    near.dedup_by_key(|n| n.2);
    near.truncate(SUGGESTIONS);
    near.into_iter().map(|(_, _, candidate)| candidate).collect()
}

/// `did you mean `a`, `b` or `c`?`, where something is near enough.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = suggest(word, candidates);
    (!near.is_empty()).then(|| format!("did you mean {}?", quoted(near, "or")))
}

/// `` `a`, `b` or `c` ``.
pub fn quoted(words: impl IntoIterator<Item = impl AsRef<str>>, last: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("`{}`", w.as_ref())).collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
    }
}

/// A URL without user name, password, query and fragment; other text is given back as it is.
pub fn public_url(text: &str) -> String {
    let Some(at) = text.find("://") else {
        return text.to_owned();
    };
    let (scheme, rest) = text.split_at(at + 3);
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or(host);
    format!("{scheme}{host}{path}")
}

/// What a line of a result is; how it looks is the terminal's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// A heading.
    Title,
    /// Of the first of two things only.
    Minus,
    /// Of the second of two things only.
    Plus,
    /// What need not be read.
    Dim,
}

/// Messages quote what users, archives and programs gave: control characters in it are spelled out, so
/// that they can neither steer the terminal nor pass for lines of bm's own.
pub fn visible(text: &str, allowed: &[char]) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() && !allowed.contains(&c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// Seconds as people read them: `8 s`, `3 min 20 s`, `2 h 05 min`.
pub fn duration(seconds: f64) -> String {
    // Whole seconds are enough for a person; negative and absurd inputs become zero.
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

/// Bytes as people read them: `74 MB` (powers of ten).
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals() {
        assert_eq!(
            (count(1, "build"), count(0, "build")),
            ("1 build".into(), "0 builds".into())
        );
    }

    #[test]
    fn build_names_are_suggested_by_nearness() {
        let known = ["pg161_o3_native_lto", "pg160_o3_native_lto", "pg160_def"];
        assert_eq!(
            did_you_mean("pg160_o3_natve_lto", known).as_deref(),
            Some("did you mean `pg160_o3_native_lto` or `pg161_o3_native_lto`?")
        );
        assert_eq!(did_you_mean("mysql", known), None);
    }

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let keys = ["cflags", "cxxflags", "ldflags", "args", "native", "native_lto"];
        let check = |word: &str, want: &[&str]| assert_eq!(suggest(word, keys), want, "{word}");
        check("cflag", &["cflags"]);
        check("clfags", &["cflags"]);
        check("agrs", &["args"]);
        check("nativ", &["native"]);
        check("zzzz", &[]);
        check("x", &[]);
        assert_eq!(
            suggest("smoke-cmd", ["smoke", "smoke-command", "names"]),
            ["smoke-command", "smoke"]
        );
        assert_eq!(suggest("x", ["y"]), Vec::<&str>::new());
        assert_eq!(suggest("o4", ["o2", "o3", "lto"]), ["o2", "o3"]);
        check("", &[]);
    }

    #[test]
    fn at_most_three_are_suggested() {
        assert_eq!(suggest("pg15", ["pg151", "pg152", "pg153", "pg154"]).len(), 3);
    }

    #[test]
    fn lists_are_quoted() {
        assert_eq!(quoted([""; 0], "or"), "");
        assert_eq!(quoted(["a"], "or"), "`a`");
        assert_eq!(quoted(["a", "b", "c"], "and"), "`a`, `b` and `c`");
    }

    #[test]
    fn figures() {
        assert_eq!(
            (duration(7.6), duration(200.0), duration(7500.0)),
            ("8 s".into(), "3 min 20 s".into(), "2 h 05 min".into())
        );
        assert_eq!(
            (size(950), size(74_300_000), size(1_250_000_000)),
            ("950 B".into(), "74 MB".into(), "1.2 GB".into())
        );
    }
}
