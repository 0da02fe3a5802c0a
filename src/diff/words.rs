//! Two lists of words: what stands in one only, what stands in another place, and how many are the same.
//!
//! Owns the alignment. Knows no manifest and no flags but which words belong together.

use std::collections::HashMap;

use serde::Serialize;

use crate::audit::record::takes_value;

/// How two lists of words differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Words {
    /// What the lists are: `cflags`, `configure`, a source file.
    pub key: String,
    /// How many words are in both, moved ones with them.
    pub common: usize,
    /// Words of the first list only, in its order.
    pub only_a: Vec<String>,
    /// Words of the second list only, in its order.
    pub only_b: Vec<String>,
    /// Words of both lists that stand in another place among the common ones.
    pub moved: Vec<String>,
}

impl Words {
    /// Whether the lists are the same.
    pub fn is_equal(&self) -> bool {
        self.only_a.is_empty() && self.only_b.is_empty() && self.moved.is_empty()
    }
}

/// Compares two lists. A word that one list has more often is an own word of that list as often as it is more.
pub fn compare(key: &str, a: &[String], b: &[String]) -> Words {
    let aligned = longest_common(a, b);
    let rest = |list: &[String], in_place: Vec<usize>| -> Vec<String> {
        let mut in_place = in_place.into_iter().peekable();
        let left = list
            .iter()
            .enumerate()
            .filter(|(i, _)| in_place.next_if_eq(i).is_none());
        left.map(|(_, word)| word.clone()).collect()
    };
    let mut only_a = rest(a, aligned.iter().map(|pair| pair.0).collect());
    let mut only_b = rest(b, aligned.iter().map(|pair| pair.1).collect());
    let mut theirs = counted(&only_b);
    let moved: Vec<String> = only_a.extract_if(.., |word| take(&mut theirs, word)).collect();
    let mut gone = counted(&moved);
    only_b.retain(|word| !take(&mut gone, word));
    Words {
        key: key.to_owned(),
        common: aligned.len() + moved.len(),
        only_a,
        only_b,
        moved,
    }
}

fn counted(words: &[String]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in words {
        *counts.entry(word.clone()).or_default() += 1;
    }
    counts
}

/// Takes one of a word, where one is left.
fn take(counts: &mut HashMap<String, usize>, word: &str) -> bool {
    match counts.get_mut(word) {
        Some(n) if *n > 0 => {
            *n -= 1;
            true
        }
        _ => false,
    }
}

/// Places of a longest common subsequence, in order. Its cost grows with the pairs of equal words, not with the
/// product of the lengths: link lines have thousands of words, and few of them twice.
fn longest_common(a: &[String], b: &[String]) -> Vec<(usize, usize)> {
    let mut places = HashMap::<&str, Vec<usize>>::new();
    for (j, word) in b.iter().enumerate() {
        places.entry(word).or_default().push(j);
    }
    // Each pair with the pair before it in the best chain that ends there; `ends[n]` is the end of the chain of
    // `n + 1` pairs that ends earliest in `b`.
    let mut pairs: Vec<(usize, usize, Option<usize>)> = Vec::new();
    let mut ends: Vec<usize> = Vec::new();
    for (i, word) in a.iter().enumerate() {
        // Backwards, so that no chain takes the same word of `a` twice.
        for &j in places.get(word.as_str()).into_iter().flatten().rev() {
            let n = ends.partition_point(|end| pairs[*end].1 < j);
            let before = n.checked_sub(1).map(|n| ends[n]);
            pairs.push((i, j, before));
            if n == ends.len() {
                ends.push(pairs.len() - 1);
            } else {
                ends[n] = pairs.len() - 1;
            }
        }
    }
    let mut chain = Vec::new();
    let mut next = ends.last().copied();
    while let Some(at) = next {
        let (i, j, before) = pairs[at];
        chain.push((i, j));
        next = before;
    }
    chain.reverse();
    chain
}

/// The words of a compiler call, each option with the word that belongs to it: `-I dir` is one.
pub fn of_call(argv: &[String]) -> Vec<String> {
    let mut words = argv.iter();
    let mut joined = Vec::new();
    while let Some(word) = words.next() {
        match words.as_slice().first().filter(|_| takes_value(word)) {
            Some(value) => {
                joined.push(format!("{word} {value}"));
                words.next();
            }
            None => joined.push(word.clone()),
        }
    }
    joined
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_of_one_list_and_words_in_another_place_are_told_apart() {
        for (a, b, common, only_a, only_b, moved) in [
            ("-g -O2", "-g -O2", 2, "", "", ""),
            ("", "-g", 0, "", "-g", ""),
            ("-g -O2 -Wall", "-g -O3 -Wall -flto", 2, "-O2", "-O3 -flto", ""),
            // The last level wins, so its place is what matters.
            ("-O2 -O3", "-O3 -O2", 2, "", "", "-O2"),
            ("-O2 -O3 -O2", "-O2 -O3", 2, "-O2", "", ""),
            ("-O2 -O2", "-O2", 1, "-O2", "", ""),
            ("a b c d e", "e a b c d", 5, "", "", "e"),
            ("x a b y", "b z a", 2, "x y", "z", "a"),
        ] {
            let got = compare("k", &words(a), &words(b));
            let want = Words {
                key: "k".to_owned(),
                common,
                only_a: words(only_a),
                only_b: words(only_b),
                moved: words(moved),
            };
            assert_eq!(got, want, "{a} | {b}");
            let back = compare("k", &words(b), &words(a));
            assert_eq!(
                (back.only_a, back.only_b, back.common),
                (got.only_b, got.only_a, got.common)
            );
        }
    }

    #[test]
    fn long_lists_take_no_time() {
        let a: Vec<String> = (0..30_000).map(|n| format!("{n}.o")).collect();
        let mut b = a.clone();
        b.rotate_left(1);
        b[77] = "new.o".to_owned();
        let got = compare("link", &a, &b);
        assert_eq!(
            (got.only_a.join(" "), got.only_b.join(" ")),
            ("78.o".into(), "new.o".into())
        );
        assert_eq!((got.moved.join(" "), got.common), ("0.o".into(), 29_999));
    }

    #[test]
    fn an_option_and_its_word_are_one() {
        let argv = words("gcc -I inc -DX -o a.o -c a.c -D");
        assert_eq!(of_call(&argv), ["gcc", "-I inc", "-DX", "-o a.o", "-c", "a.c", "-D"]);
    }
}
