//! Releases that no recipe lists, read from the digits of a name.

use crate::model::recipe::Recipe;
use crate::model::version::Version;

use super::Release;

/// Releases that no recipe lists: every way to put dots into the digits that fits the recipe's
/// `unlisted` range and writes the same name back.
pub(super) fn unlisted(recipe: &Recipe, text: &str) -> Vec<Release> {
    let Some(range) = &recipe.unlisted else { return vec![] };
    let digits_and_stage = |field: &str, value: &str| {
        field == "version.compact" && value.starts_with(|c: char| c.is_ascii_digit()) && value.len() <= 12
    };
    let mut readings = Vec::new();
    for fields in recipe.names.release.read(text, &digits_and_stage) {
        let Some(compact) = fields.get("version.compact") else {
            continue;
        };
        let end = compact.find(|c: char| !c.is_ascii_digit()).unwrap_or(compact.len());
        let (digits, stage) = compact.split_at(end);
        for numbers in splits(digits) {
            let full = numbers.len() > recipe.series_parts || !stage.is_empty();
            let dotted = numbers.join(".") + stage;
            let Ok(version) = dotted.parse::<Version>() else {
                continue;
            };
            if !range.matches(&version) || version.compact() != *compact {
                continue;
            }
            if full && numbers.len() == recipe.series_parts + usize::from(stage.is_empty()) {
                readings.push(Release::One(version));
            } else if numbers.len() == recipe.series_parts && stage.is_empty() {
                readings.push(Release::EmptySeries(dotted));
            }
        }
    }
    // A whole release is meant where both a release and a bare series can be read.
    if readings.iter().any(|r| matches!(r, Release::One(_))) {
        readings.retain(|r| matches!(r, Release::One(_)));
    }
    readings
}

/// All ways to cut digits into one to four numbers without leading zeros.
fn splits(digits: &str) -> Vec<Vec<String>> {
    fn go(rest: &str, left: usize, so_far: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
        if rest.is_empty() {
            out.push(so_far.clone());
            return;
        }
        if left == 0 {
            return;
        }
        for end in 1..=rest.len().min(4) {
            if rest.starts_with('0') && end > 1 {
                break;
            }
            so_far.push(rest[..end].to_owned());
            go(&rest[end..], left - 1, so_far, out);
            so_far.pop();
        }
    }
    let mut out = Vec::new();
    if !digits.is_empty() {
        go(digits, 4, &mut Vec::new(), &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_cut_in_every_way_without_leading_zeros() {
        let cut = |digits: &str| -> Vec<String> { splits(digits).iter().map(|s| s.join(".")).collect() };
        assert_eq!(cut("172"), ["1.7.2", "1.72", "17.2", "172"]);
        assert_eq!(cut("100"), ["1.0.0", "10.0", "100"]);
        assert_eq!(cut("0"), ["0"]);
        assert!(cut("").is_empty());
        // Five digits do not fit one number, and there are at most four numbers.
        assert!(splits("12345678901234567").is_empty());
    }
}
