//! Small texts: quoted lists, plurals, the nearest known word, sizes and durations. Pure.

/// `` `a`, `b` and `c` ``.
pub fn quoted(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("`{}`", w.as_ref())).collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, head)) => format!("{} and {last}", head.join(", ")),
    }
}

/// `1 build`, `3 builds`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("{n} {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// Up to three known words that the user may have meant, nearest first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A third of the letters may be wrong; beyond that a guess is noise.
    let limit = (word.chars().count() / 3).max(1);
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .filter(|k| k.len().abs_diff(word.len()) <= limit)
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, k)| k).collect()
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
    fn lists_and_plurals() {
        assert_eq!(quoted(["a"]), "`a`");
        assert_eq!(quoted(["a", "b", "c"]), "`a`, `b` and `c`");
        assert_eq!(
            (count(1, "build"), count(0, "build")),
            ("1 build".into(), "0 builds".into())
        );
    }

    #[test]
    fn nearest_is_near_or_silent() {
        let known = ["pg160_o3_native_lto", "pg161_o3_native_lto", "pg160_def"];
        assert_eq!(
            nearest("pg160_o3_natve_lto", known),
            ["pg160_o3_native_lto", "pg161_o3_native_lto"]
        );
        assert!(nearest("mysql", known).is_empty());
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
