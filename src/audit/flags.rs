//! What a list of compiler words comes to: the effective level, architecture, LTO, frame pointers.
//!
//! Owns the rule "the last one wins" and the shapes of `DW_AT_producer`. Knows no files.

use crate::model::recipe::Family;

/// How a unit or a link is optimised across units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lto {
    /// Not at all.
    #[default]
    Off,
    /// As one unit.
    Full,
    /// clang's summary-based form.
    Thin,
}

impl Lto {
    /// Whether any form is in force.
    pub fn on(self) -> bool {
        self != Lto::Off
    }
}

/// What a command line, or a recorded one, comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effective {
    /// Last `-O` level as the word says it: `0`, `1`, `2`, `3`, `s`, `z`, `g`, `fast`.
    pub optimisation: String,
    /// Last `-march`; empty where there is none.
    pub march: String,
    /// Last `-flto`, `-flto=...` or `-fno-lto`.
    pub lto: Lto,
    /// Whether `-fno-omit-frame-pointer` is in force.
    pub frame_pointer: bool,
    /// Whether debug information is written.
    pub debug: bool,
    /// Macros defined by `-D` and not undefined later, without values, in order.
    pub defines: Vec<String>,
}

/// Reads the effective flags out of words of a command line or a producer text.
pub fn effective<'a>(words: impl IntoIterator<Item = &'a str>) -> Effective {
    let mut flags = Effective {
        optimisation: "0".to_owned(),
        ..Effective::default()
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word {
            "-D" => define(&mut flags, words.next().unwrap_or("")),
            "-U" => undefine(&mut flags, words.next().unwrap_or("")),
            // The words after these belong to them, however they look.
            "-o" | "-include" | "-MF" | "-MT" | "-MQ" | "-Xlinker" | "-Xassembler" | "-Xpreprocessor" | "-Xclang"
            | "-mllvm" => {
                words.next();
            }
            _ => one_word(&mut flags, word),
        }
    }
    flags
}

fn one_word(flags: &mut Effective, word: &str) {
    if let Some(level) = word.strip_prefix("-O") {
        flags.optimisation = level_of(level);
    } else if let Some(march) = word.strip_prefix("-march=") {
        march.clone_into(&mut flags.march);
    } else if let Some(name) = word.strip_prefix("-D") {
        define(flags, name);
    } else if let Some(name) = word.strip_prefix("-U") {
        undefine(flags, name);
    } else if let Some(level) = word.strip_prefix("-g") {
        one_debug_word(flags, level);
    } else {
        match word {
            "-flto=thin" => flags.lto = Lto::Thin,
            "-fno-lto" => flags.lto = Lto::Off,
            "-fno-omit-frame-pointer" => flags.frame_pointer = true,
            "-fomit-frame-pointer" => flags.frame_pointer = false,
            _ if is_lto(word) => flags.lto = Lto::Full,
            _ => {}
        }
    }
}

/// `-g0` switches off; `-gcc-toolchain`, `-gno-...` and the like say nothing about it.
fn one_debug_word(flags: &mut Effective, level: &str) {
    match level {
        "0" => flags.debug = false,
        "" | "1" | "2" | "3" | "gdb" | "line-tables-only" => flags.debug = true,
        _ if level.starts_with("dwarf") || level.starts_with("gdb") => flags.debug = true,
        _ => {}
    }
}

/// Whether a word switches LTO on: `-flto`, `-flto=8`, `-flto=thin`.
pub fn is_lto(word: &str) -> bool {
    word == "-flto" || word.starts_with("-flto=")
}

fn level_of(level: &str) -> String {
    match level {
        "" => "1".to_owned(),
        // Both compilers take any higher number for 3.
        _ if level.parse::<u32>().is_ok_and(|n| n > 3) => "3".to_owned(),
        _ => level.to_owned(),
    }
}

fn define(flags: &mut Effective, text: &str) {
    let name = text.split('=').next().unwrap_or(text);
    undefine(flags, name);
    flags.defines.push(name.to_owned());
}

fn undefine(flags: &mut Effective, name: &str) {
    flags.defines.retain(|d| d != name);
}

/// What `DW_AT_producer` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// `GNU C17 12.2.0`, `GNU GIMPLE 12.2.0`, `clang version 15.0.6`; the whole text where it is neither.
    pub compiler: String,
    /// Family, where it is one bm knows.
    pub family: Option<Family>,
    /// `12.2.0`.
    pub version: String,
    /// Whether this is what gcc's LTO made at link time, out of all units.
    pub ltrans: bool,
    /// Flags, where the compiler recorded them (clang does so only when asked).
    pub flags: Option<Effective>,
}

/// Takes a `DW_AT_producer` apart.
pub fn producer(text: &str) -> Producer {
    let words = split(text);
    let head_end = end_of_head(&words);
    let (head, rest) = words.split_at(head_end);
    let flags = (!rest.is_empty()).then(|| effective(rest.iter().map(String::as_str)));
    if head.first().is_some_and(|w| w == "GNU") {
        return Producer {
            compiler: head.join(" "),
            family: (head.get(1).is_some_and(|w| w != "AS")).then_some(Family::Gcc),
            version: head.iter().find(|w| is_number(w)).cloned().unwrap_or_default(),
            ltrans: head.get(1).is_some_and(|w| w == "GIMPLE"),
            flags,
        };
    }
    match clang_version(head) {
        Some(version) => Producer {
            compiler: format!("clang version {version}"),
            family: Some(Family::Clang),
            version,
            ltrans: false,
            flags,
        },
        None => Producer {
            compiler: text.to_owned(),
            family: None,
            version: String::new(),
            ltrans: false,
            flags: None,
        },
    }
}

/// The compiler's version out of the first line of its `--version`:
/// `gcc (Debian 12.2.0-14+deb12u1) 12.2.0`, `Debian clang version 19.1.7 (3~deb12u1)`.
pub fn version_of_line(line: &str) -> Option<String> {
    let words = split(line);
    clang_version(&words).or_else(|| outside_parentheses(&words).find(|w| is_number(w)).cloned())
}

fn clang_version(words: &[String]) -> Option<String> {
    let at = words.windows(2).position(|w| w[0] == "clang" && w[1] == "version")?;
    // `14.0.0-1ubuntu1` is how some distributions write it.
    let version = words.get(at + 2)?.split('-').next()?;
    is_number(version).then(|| version.to_owned())
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Where the compiler's name ends and its recorded words begin: gcc's first flag, clang's own path.
/// Text in parentheses belongs to the name, whatever it holds.
fn end_of_head(words: &[String]) -> usize {
    let mut depth = 0;
    for (i, word) in words.iter().enumerate() {
        if depth == 0 && (word.starts_with('-') || word.contains('/')) && !word.starts_with('(') {
            return i;
        }
        depth += opened(word);
    }
    words.len()
}

fn outside_parentheses(words: &[String]) -> impl Iterator<Item = &String> {
    let mut depth = 0;
    words.iter().filter(move |word| {
        let before = depth;
        depth += opened(word);
        before == 0 && !word.starts_with('(')
    })
}

fn opened(word: &str) -> i32 {
    word.chars().fold(0, |n, c| match c {
        '(' => n + 1,
        ')' => n - 1,
        _ => n,
    })
}

/// Splits at spaces; a backslash keeps the character after it, as clang writes its recorded line.
fn split(text: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.extend(chars.next()),
            c if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(line: &str) -> Effective {
        effective(line.split(' '))
    }

    #[test]
    fn the_last_level_wins() {
        for (line, want) in [
            ("gcc -c a.c", "0"),
            ("gcc -O a.c", "1"),
            ("gcc -O2 -O3 -c a.c", "3"),
            ("gcc -O3 -O0 a.c", "0"),
            ("gcc -O9 a.c", "3"),
            ("gcc -O2 -Ofast a.c", "fast"),
            ("gcc -Os a.c", "s"),
            ("gcc -O2 -Og a.c", "g"),
            ("gcc -O2 -o -O3 a.c", "2"),
            ("gcc -O2 -Wl,-O1 a.o", "2"),
            ("gcc -O2 -Xlinker -O1 a.o", "2"),
        ] {
            assert_eq!(of(line).optimisation, want, "{line}");
        }
    }

    #[test]
    fn the_last_lto_word_wins() {
        for (line, want) in [
            ("-flto", Lto::Full),
            ("-flto=8", Lto::Full),
            ("-flto -fno-lto", Lto::Off),
            ("-fno-lto -flto=thin", Lto::Thin),
            ("-flto-partition=none", Lto::Off),
            ("-fltrans -fno-lto", Lto::Off),
            ("", Lto::Off),
        ] {
            assert_eq!(of(line).lto, want, "{line}");
        }
    }

    #[test]
    fn march_frame_pointers_debug_and_macros() {
        let f = of("gcc -march=native -mtune=native -march=haswell -fno-omit-frame-pointer -g -DA=1 -D B -UA");
        assert_eq!(f.march, "haswell");
        assert!(f.frame_pointer && f.debug);
        assert_eq!(f.defines, ["B"]);
        assert!(!of("-fno-omit-frame-pointer -fomit-frame-pointer").frame_pointer);
        assert!(!of("-g -g0").debug);
        assert!(!of("-gcc-toolchain").debug);
        assert!(of("-gdwarf-5").debug);
    }

    #[test]
    fn producers_of_real_compilers() {
        let p = producer("GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2 -flto -fno-omit-frame-pointer");
        assert_eq!(
            (p.compiler.as_str(), p.version.as_str(), p.family, p.ltrans),
            ("GNU C17 12.2.0", "12.2.0", Some(Family::Gcc), false)
        );
        let flags = p.flags.unwrap();
        assert_eq!((flags.march.as_str(), flags.lto), ("x86-64", Lto::Full));

        let p = producer("GNU GIMPLE 12.2.0 -march=cooperlake -g -O2 -O2 -fPIC -fltrans");
        assert!(p.ltrans);
        assert_eq!(p.version, "12.2.0");

        let p = producer("GNU C++17 11.4.1 20230605 (Red Hat 11.4.1-2) -O3");
        assert_eq!(
            (p.version.as_str(), p.flags.unwrap().optimisation.as_str()),
            ("11.4.1", "3")
        );

        let p = producer("Debian clang version 19.1.7 (3~deb12u1)");
        assert_eq!((p.compiler.as_str(), p.flags), ("clang version 19.1.7", None));

        let p = producer(
            "clang version 15.0.0 (https://example.org/llvm.git 4ba6a9c) /usr/lib/llvm\\ 15/bin/clang -O3 -D X=a\\ -O0",
        );
        assert_eq!(p.version, "15.0.0");
        assert_eq!(p.flags.unwrap().optimisation, "3");

        let p = producer("GNU AS 2.40");
        assert_eq!((p.family, p.ltrans), (None, false));
        assert_eq!(producer("rustc 1.89").family, None);
    }

    #[test]
    fn version_lines_of_real_compilers() {
        for (line, want) in [
            ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
            ("gcc-11 (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", "11.4.0"),
            ("gcc (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2)", "11.4.1"),
            ("Debian clang version 19.1.7 (3~deb12u1)", "19.1.7"),
            ("Ubuntu clang version 14.0.0-1ubuntu1.1", "14.0.0"),
        ] {
            assert_eq!(version_of_line(line).as_deref(), Some(want), "{line}");
        }
        assert_eq!(version_of_line("tcc"), None);
    }
}
