//! Versions of products and the ranges recipes write about them.
//!
//! Owns parsing, ordering and the spellings that names and tags use. Knows no product: how many
//! leading numbers make a series is the recipe's word (`series-parts`).

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How finished a pre-release is; the order is the order of publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A tree between releases, as in `17devel`.
    Devel,
    /// MySQL's development milestone release, as in `8.0.0-dmr`.
    Dmr,
    /// MySQL's numbered milestone, as in `5.7.5-m15`.
    Milestone,
    /// As in `16beta1`.
    Beta,
    /// As in `16rc1`.
    Rc,
}

impl Stage {
    fn word(self) -> &'static str {
        match self {
            Stage::Devel => "devel",
            Stage::Dmr => "dmr",
            Stage::Milestone => "m",
            Stage::Beta => "beta",
            Stage::Rc => "rc",
        }
    }
}

/// A release of a product: dotted numbers, then possibly a letter, a pre-release or a repackaging number.
///
/// `16.0`, `16beta1`, `16rc1`, `5.7.5-m15`, `8.0.0-dmr`, `8.0.33-25` (Percona's own count), `1.1.1w` (OpenSSL's
/// letters, until 1.1.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    numbers: Vec<u32>,
    /// The letter of a letter release.
    letter: Option<char>,
    pre: Option<(Stage, u32)>,
    /// The number after a dash that is no pre-release: a downstream's own release count.
    respin: Option<u32>,
    /// Spelling as the product writes it.
    text: String,
}

/// A version that cannot be read, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadVersion(pub String);

impl fmt::Display for BadVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadVersion {}

impl Version {
    /// The dotted numbers: `[16, 0]` for `16.0`, `[16]` for `16beta1`.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Whether this is a beta, a release candidate or a milestone.
    pub fn is_pre_release(&self) -> bool {
        self.pre.is_some()
    }

    /// The spelling in names: all digits together, pre-releases kept (`160`, `16beta1`, `5718`, `803325`).
    pub fn compact(&self) -> String {
        self.text.chars().filter(|c| *c != '.' && *c != '-').collect()
    }

    /// The leading `parts` numbers, dotted: `16` for `16.4` with 1, `5.7` for `5.7.18` with 2.
    pub fn series(&self, parts: usize) -> String {
        join(self.numbers.iter().take(parts), ".")
    }

    /// Value of a template's field that speaks of a version; `None` for any other field.
    pub fn field(&self, field: &str, series_parts: usize) -> Option<String> {
        Some(match field {
            "version" => self.text.clone(),
            "version.compact" => self.compact(),
            "version.series" => self.series(series_parts),
            "version.tag" => self.tag(),
            "version.numbers" => join(self.numbers.iter(), ""),
            "version.underscored" => self.text.replace('.', "_"),
            _ => return None,
        })
    }

    /// Likewise in the templates of names, where a series has no dots: drivers split names at them.
    pub fn name_field(&self, field: &str, series_parts: usize) -> Option<String> {
        let value = self.field(field, series_parts)?;
        Some(if field == "version.series" {
            value.replace('.', "")
        } else {
            value
        })
    }

    /// The first `width` numbers; those that are missing count as zero.
    fn padded(&self, width: usize) -> impl Iterator<Item = u32> + '_ {
        (0..width).map(|i| self.numbers.get(i).copied().unwrap_or(0))
    }

    /// The spelling in tags of Postgres: dots as underscores, pre-releases in capitals after one
    /// (`16_0`, `16_BETA1`).
    pub fn tag(&self) -> String {
        let numbers = join(self.numbers.iter(), "_");
        match self.pre {
            Some((stage, n)) => format!("{numbers}_{}{n}", stage.word().to_uppercase()),
            None => numbers,
        }
    }
}

fn join<'a>(numbers: impl Iterator<Item = &'a u32>, by: &str) -> String {
    numbers.map(u32::to_string).collect::<Vec<_>>().join(by)
}

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let bad = |why: &str| BadVersion(format!("`{text}` is not a version: {why}"));
        if text.is_empty() || text.len() > 40 {
            return Err(bad("it must have 1 to 40 characters"));
        }
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (head, tail) = text.split_at(end);
        let mut numbers = Vec::new();
        for part in head.split('.') {
            if part.len() > 1 && part.starts_with('0') {
                return Err(bad("a number starts with 0"));
            }
            numbers.push(
                part.parse::<u32>()
                    .map_err(|_| bad("expected numbers parted by dots"))?,
            );
        }
        let (mut pre, mut respin, mut letter) = (None, None, None);
        if let [only @ b'a'..=b'z'] = tail.as_bytes() {
            letter = Some(char::from(*only));
        } else if !tail.is_empty() {
            let word = tail.strip_prefix('-').unwrap_or(tail);
            let digits = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
            let (stage, count) = word.split_at(digits);
            let count = if count.is_empty() {
                None
            } else {
                Some(count.parse::<u32>().map_err(|_| bad("a number is out of range"))?)
            };
            match (stage, count) {
                ("beta", Some(n)) => pre = Some((Stage::Beta, n)),
                ("rc", n) => pre = Some((Stage::Rc, n.unwrap_or(0))),
                ("m", Some(n)) => pre = Some((Stage::Milestone, n)),
                ("devel", None) => pre = Some((Stage::Devel, 0)),
                ("dmr", None) => pre = Some((Stage::Dmr, 0)),
                ("", Some(n)) if tail.starts_with('-') => respin = Some(n),
                _ => {
                    return Err(bad(
                        "expected `beta1`, `rc1`, `-m1`, `-dmr`, `-1` or one letter after the numbers",
                    ));
                }
            }
        }
        Ok(Version {
            numbers,
            letter,
            pre,
            respin,
            text: text.to_owned(),
        })
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        // `16beta1` has one number and `16.0` two: a pre-release comes before every release of its
        // numbers, and missing numbers count as zero.
        let width = self.numbers.len().max(other.numbers.len());
        let pre = |v: &Version| v.pre.map_or((1, None), |p| (0, Some(p)));
        self.padded(width)
            .cmp(other.padded(width))
            .then_with(|| pre(self).cmp(&pre(other)))
            .then_with(|| self.letter.cmp(&other.letter))
            .then_with(|| self.respin.cmp(&other.respin))
            .then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Less,
    LessEqual,
    Equal,
    GreaterEqual,
    Greater,
}

/// A range of versions: bounds parted by commas, all of which must hold (`>=14, <16`).
///
/// A bound speaks of everything that begins with it: `>=14` holds for 14beta1, `<16` does not hold
/// for 16beta1, `=15` holds for 15.4, `<=15.4` holds for 15.4. A bound that names a pre-release
/// (`>=16beta3`) compares exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionReq {
    bounds: Vec<(Op, Version)>,
    text: String,
}

impl VersionReq {
    /// Whether `version` is in the range.
    pub fn matches(&self, version: &Version) -> bool {
        self.bounds.iter().all(|(op, bound)| {
            let order = if bound.pre.is_some() || bound.respin.is_some() || bound.letter.is_some() {
                version.cmp(bound)
            } else {
                version.padded(bound.numbers.len()).cmp(bound.numbers.iter().copied())
            };
            match op {
                Op::Less => order.is_lt(),
                Op::LessEqual => order.is_le(),
                Op::Equal => order.is_eq(),
                Op::GreaterEqual => order.is_ge(),
                Op::Greater => order.is_gt(),
            }
        })
    }
}

impl FromStr for VersionReq {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let mut bounds = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            let (op, rest) = [
                (">=", Op::GreaterEqual),
                ("<=", Op::LessEqual),
                (">", Op::Greater),
                ("<", Op::Less),
                ("=", Op::Equal),
            ]
            .into_iter()
            .find_map(|(sign, op)| part.strip_prefix(sign).map(|rest| (op, rest)))
            .ok_or_else(|| {
                BadVersion(format!(
                    "`{part}` is not a bound: expected `>=`, `<=`, `>`, `<` or `=` and a version"
                ))
            })?;
            bounds.push((op, rest.trim().parse()?));
        }
        Ok(VersionReq {
            bounds,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for VersionReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Version, VersionReq);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn v(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn orders_as_published() {
        let mut got: Vec<_> = [
            "16.0",
            "16beta2",
            "15.10",
            "16rc1",
            "15.2",
            "16beta1",
            "16.4",
            "8.0.0-dmr",
            "8.0.11",
            "8.0.33-25",
            "8.0.33",
        ]
        .map(v)
        .into();
        got.sort();
        let got: Vec<_> = got.iter().map(ToString::to_string).collect();
        assert_eq!(
            got,
            [
                "8.0.0-dmr",
                "8.0.11",
                "8.0.33",
                "8.0.33-25",
                "15.2",
                "15.10",
                "16beta1",
                "16beta2",
                "16rc1",
                "16.0",
                "16.4"
            ]
        );
    }

    #[test]
    fn spellings() {
        assert_eq!((v("16.0").compact(), v("16.0").tag()), ("160".into(), "16_0".into()));
        assert_eq!(
            (v("16beta1").compact(), v("16beta1").tag()),
            ("16beta1".into(), "16_BETA1".into())
        );
        assert_eq!(v("8.0.33-25").compact(), "803325");
        assert_eq!(
            (v("5.7.18").series(2), v("16rc1").series(1)),
            ("5.7".into(), "16".into())
        );
    }

    #[test]
    fn ranges_speak_of_everything_that_begins_with_the_bound() {
        let check = |req: &str, version: &str, want: bool| {
            assert_eq!(
                req.parse::<VersionReq>().unwrap().matches(&v(version)),
                want,
                "{req} for {version}"
            );
        };
        check(">=14", "14beta1", true);
        check(">=14", "13.23", false);
        check("<16", "16beta1", false);
        check("=15", "15.4", true);
        check("<=15.4", "15.4", true);
        check("<=15.4", "15.10", false);
        check(">=16beta3", "16beta2", false);
        check(">=16beta3", "16rc1", true);
        check(">=11, <17", "16.4", true);
        check(">15", "15.4", false);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "x", "16.", "16gamma1", "16.00", "16beta", "99999999999", "16-"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
        assert!("14".parse::<VersionReq>().is_err());
        assert!(">=".parse::<VersionReq>().is_err());
    }
}
