//! What a prefix must hold whatever its name claims: expected files, symbols, clean run paths, headers
//! without forbidden macros.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::collect::{Linked, Proof};
use super::judge::Findings;
use super::record::normalize;
use crate::model::recipe::Expect;

/// The prefix's places in the world.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Where it will be: what it was configured with.
    pub prefix: &'a Path,
    /// The work directory, which nothing may depend on.
    pub work: &'a Path,
}

/// Adds what is wrong with the prefix itself.
pub fn check(proof: &Proof, expect: &Expect, place: &Place<'_>, findings: &mut Findings) {
    files(proof, expect, place, findings);
    headers(proof, expect, findings);
    for linked in &proof.linked {
        stripped(linked, findings);
        run_paths(linked, place, findings);
    }
}

fn files(proof: &Proof, expect: &Expect, place: &Place<'_>, findings: &mut Findings) {
    for file in &expect.files {
        let spellings = alternatives(&file.text);
        if !spellings
            .iter()
            .any(|s| exists(&proof.stage, Path::new(s), place.prefix))
        {
            findings.add(
                "file",
                format!("`{}`", file.text),
                "not installed",
                &file.text,
                &file.origin.to_string(),
            );
        }
    }
    // Headers alone come without a single call.
    if proof.linked.is_empty() && proof.loose.is_empty() && !proof.calls.is_empty() {
        let asked = "a compiled program or library";
        findings.add("file", asked, "none installed", &proof.stage.display().to_string(), "");
    }
}

/// A link that names the final prefix counts for what it names in the stage.
fn exists(stage: &Path, file: &Path, prefix: &Path) -> bool {
    let path = stage.join(file);
    match std::fs::read_link(&path)
        .ok()
        .and_then(|to| to.strip_prefix(prefix).map(Path::to_owned).ok())
    {
        Some(inside) => stage.join(inside).exists(),
        None => path.exists(),
    }
}

/// Every spelling of a word with brace alternatives: `{lib,lib/postgresql}/x.so`.
fn alternatives(text: &str) -> Vec<String> {
    let braces = text
        .find('{')
        .and_then(|open| Some((open, open + text[open..].find('}')?)));
    let Some((open, close)) = braces else {
        return vec![text.to_owned()];
    };
    let choices = text[open + 1..close].split(',');
    choices
        .flat_map(|c| alternatives(&format!("{}{c}{}", &text[..open], &text[close + 1..])))
        .collect()
}

fn headers(proof: &Proof, expect: &Expect, findings: &mut Findings) {
    for (header, name) in &expect.undefined {
        let asked = format!("`{name}` not defined");
        let spellings = alternatives(header);
        let text = spellings.iter().find_map(|s| fs::read(proof.stage.join(s)).ok());
        match text {
            None => findings.add("file", format!("`{header}`"), "not installed", header, ""),
            Some(text) => {
                if let Some(line) = definition(&String::from_utf8_lossy(&text), name) {
                    findings.add("asserts", asked, "defined", header, &format!("line {line}"));
                }
            }
        }
    }
}

/// The line that defines a macro, comments left out.
fn definition(header: &str, name: &str) -> Option<usize> {
    let mut comment = false;
    for (i, line) in header.lines().enumerate() {
        let code = outside_comments(line, &mut comment);
        let mut words = code.trim_start().strip_prefix('#').unwrap_or("").split_whitespace();
        let defines = words.next() == Some("define");
        if defines && words.next().and_then(|w| w.split('(').next()) == Some(name) {
            return Some(i + 1);
        }
    }
    None
}

/// A line without its comments; `inside` carries an open one to the next line.
fn outside_comments(line: &str, inside: &mut bool) -> String {
    let mut code = String::new();
    let mut rest = line;
    loop {
        let mark = if *inside { "*/" } else { "/*" };
        let Some(at) = rest.find(mark) else {
            break;
        };
        if !*inside {
            code.push_str(&rest[..at]);
            code.push(' ');
        }
        rest = &rest[at + 2..];
        *inside = !*inside;
    }
    if !*inside {
        code.push_str(rest.split("//").next().unwrap_or(""));
    }
    code
}

fn stripped(linked: &Linked, findings: &mut Findings) {
    let missing = match (linked.elf.symbols, linked.elf.debug) {
        (true, true) => return,
        (false, true) => "no symbols",
        (true, false) => "no debug information",
        (false, false) => "neither",
    };
    findings.add("stripped", "symbols and debug information", missing, &linked.file, "");
}

fn run_paths(linked: &Linked, place: &Place<'_>, findings: &mut Findings) {
    for (kind, paths) in [("DT_RPATH", &linked.elf.rpath), ("DT_RUNPATH", &linked.elf.runpath)] {
        for entry in paths.iter().flat_map(|p| p.split(':')) {
            if let Some(wrong) = wrong_with(entry, &linked.file, place) {
                let asked = "run paths below the prefix only";
                findings.add("run-path", asked, format!("`{entry}`: {wrong}"), &linked.file, kind);
            }
        }
    }
    for needed in linked.elf.needed.iter().filter(|n| n.contains('/')) {
        if !Path::new(needed).starts_with(place.prefix) {
            findings.add(
                "run-path",
                "libraries needed by name",
                format!("`{needed}`"),
                &linked.file,
                "DT_NEEDED",
            );
        }
    }
}

fn wrong_with(entry: &str, file: &str, place: &Place<'_>) -> Option<&'static str> {
    if entry.is_empty() {
        return Some("an empty entry is the working directory");
    }
    let path = expand_origin(entry, &place.prefix.join(file));
    if !path.is_absolute() {
        return Some("relative to the working directory");
    }
    if path.starts_with(place.work) && !path.starts_with(place.prefix) {
        return Some("in the work directory");
    }
    (!path.starts_with(place.prefix)).then_some("outside the prefix")
}

/// A run path entry of `file` with `$ORIGIN` replaced.
pub fn expand_origin(entry: &str, file: &Path) -> PathBuf {
    let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
    normalize(Path::new(
        &entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn braces_spell_alternatives() {
        for (text, want) in [
            ("bin/psql", &["bin/psql"][..]),
            ("{lib,lib/pg}/x.so", &["lib/x.so", "lib/pg/x.so"]),
            ("{a,b}/{c,}d", &["a/cd", "a/d", "b/cd", "b/d"]),
            ("lib/{x", &["lib/{x"]),
        ] {
            assert_eq!(alternatives(text), want, "{text}");
        }
    }

    #[test]
    fn only_real_definitions_count() {
        for (header, want) in [
            ("#define USE 1\n", Some(1)),
            ("\n  #  define  USE\n", Some(2)),
            ("#define USE(x) x", Some(1)),
            ("/* #undef USE */\n", None),
            ("/* text\n#define USE 1\n*/\n", None),
            ("/* a */ #define USE 1", Some(1)),
            ("// #define USE 1", None),
            ("#define USER 1\n#undef USE", None),
            ("#ifdef USE", None),
        ] {
            assert_eq!(definition(header, "USE"), want, "{header}");
        }
    }

    #[test]
    fn run_paths_stay_below_the_prefix() {
        let place = Place {
            prefix: Path::new("/r/pg160"),
            work: Path::new("/r/.bm/work/pg160-1"),
        };
        for (entry, right) in [
            ("/r/pg160/lib", true),
            ("$ORIGIN/../lib", true),
            ("${ORIGIN}/../lib", true),
            ("$ORIGIN/../../other/lib", false),
            ("/r/pg1600/lib", false),
            ("/r/.bm/work/pg160-1/build/src", false),
            ("/r/pg160/../pg161/lib", false),
            ("lib", false),
            ("", false),
            ("/usr/lib", false),
        ] {
            assert_eq!(wrong_with(entry, "bin/psql", &place).is_none(), right, "{entry}");
        }
    }

    #[test]
    fn links_into_the_final_prefix_are_followed_in_the_stage() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("real"), "").unwrap();
        let link = |to: &str, at: &str| fs_err::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
        link("/final/pg/real", "absolute");
        link("/final/pg/gone", "dangling");
        link("real", "relative");
        for (file, want) in [
            ("absolute", true),
            ("dangling", false),
            ("relative", true),
            ("none", false),
        ] {
            assert_eq!(
                exists(dir.path(), Path::new(file), Path::new("/final/pg")),
                want,
                "{file}"
            );
        }
    }
}
