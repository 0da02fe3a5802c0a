//! Words that name a build's own places, said the same for every build: its prefix, its name, its work directory, and
//! the prefixes of the builds it needs.
//!
//! Owns what is no difference between two builds although their words differ. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use crate::model::manifest::Manifest;

/// Below each root, the directory of all work directories.
const WORK: &str = "/.bm/work/";

/// What is replaced in the words of one build.
#[derive(Debug, Clone)]
pub struct Places<'a> {
    manifest: &'a Manifest,
    /// Prefixes of private dependencies, which are beside the build's own, and what stands for them.
    needs: Vec<(String, String)>,
}

impl<'a> Places<'a> {
    /// Of the build a manifest is of.
    pub fn of(manifest: &'a Manifest) -> Self {
        let root = Path::new(&manifest.prefix).parent().unwrap_or(Path::new("/"));
        let names = dependencies(manifest).into_keys();
        let needs = names.map(|name| (root.join(&name).display().to_string(), format!("{{{name}}}")));
        Places {
            manifest,
            needs: needs.collect(),
        }
    }

    /// A word with fields in place of the build's own places.
    pub fn plain(&self, word: &str) -> String {
        let word = without_work(word);
        let needs = self.needs.iter();
        let word = needs.fold(word, |word, (prefix, field)| replaced(&word, prefix, field));
        let word = replaced(&word, &self.manifest.prefix, "{prefix}");
        replaced(&word, &self.manifest.name, "{name}")
    }

    /// All words of a command.
    pub fn all(&self, argv: &[String]) -> Vec<String> {
        argv.iter().map(|word| self.plain(word)).collect()
    }

    /// A word of configure. Flags have a section of their own: a word that holds a whole list of them holds the
    /// name of the list here.
    pub fn configure(&self, word: &str) -> String {
        let Some((name, value)) = word.split_once('=') else {
            return self.plain(word);
        };
        let list = match name {
            _ if name.contains("CXX") => "cxxflags",
            _ if name.contains("LDFLAGS") || name.contains("LINKER") => "ldflags",
            _ => "cflags",
        };
        let flags = self.manifest.flags.get(list).map(|words| words.join(" "));
        match flags {
            Some(flags) if !flags.is_empty() && flags == value => format!("{name}={{{list}}}"),
            _ => self.plain(word),
        }
    }

    /// A compile or link line: besides places, what bm's launcher puts in by chance or by what is free just then.
    pub fn call(&self, argv: &[String], lto_jobs: u32) -> Vec<String> {
        let word = |word: &String| {
            if word.starts_with("-frandom-seed=") {
                return "-frandom-seed={seed}".to_owned();
            }
            let parts = ["-flto=", "-flto-jobs="].into_iter().find(|o| {
                let value = word.strip_prefix(o);
                lto_jobs > 0 && value.is_some_and(|v| v.parse() == Ok(lto_jobs))
            });
            parts.map_or_else(|| self.plain(word), |option| format!("{option}{{jobs}}"))
        };
        argv.iter().map(word).collect()
    }
}

/// Private dependencies of a build: name to identity.
pub(super) fn dependencies(manifest: &Manifest) -> BTreeMap<String, String> {
    let inputs = manifest.inputs["dependencies"].as_object().into_iter().flatten();
    let named = inputs.map(|(name, identity)| (name.clone(), identity.as_str().unwrap_or_default().to_owned()));
    named.chain(manifest.dependencies.clone()).collect()
}

/// Every path into a work directory, whatever root it is below: `-I<root>/.bm/work/<build>/src` is `-I{work}/src`.
fn without_work(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(WORK) {
        // The path begins at the first slash after what cannot be in the middle of one.
        let head = &rest[..at];
        let word_begin = head.rfind(['=', ':', ',', ' ', '"', '\'']).map_or(0, |i| i + 1);
        let begin = head[word_begin..].find('/').map_or(at, |i| word_begin + i);
        let after = &rest[at + WORK.len()..];
        let end = after.find(['/', ':', ',', ' ', '"', '\'']).unwrap_or(after.len());
        out.push_str(&rest[..begin]);
        out.push_str("{work}");
        rest = &after[end..];
    }
    out + rest
}

/// Replaces a text where it is not a part of a longer name.
fn replaced(word: &str, what: &str, by: &str) -> String {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut out = String::new();
    let mut rest = word;
    // What is written is looked at, not what is left: the character before may be replaced already.
    let mut before = None;
    while let Some(at) = rest.find(what).filter(|_| !what.is_empty()) {
        let (head, tail) = (&rest[..at], &rest[at + what.len()..]);
        let left = head.chars().next_back().or(before);
        // `-L<prefix>/lib`: letters may stand before a path.
        let own = what.starts_with('/') || !left.is_some_and(in_name);
        let own = own && !tail.starts_with(in_name);
        out.push_str(head);
        out.push_str(if own { by } else { what });
        before = what.chars().next_back();
        rest = tail;
    }
    out + rest
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn build() -> Manifest {
        let prefix = std::path::Path::new("/srv/bm/my_rel");
        let mut manifest: Manifest =
            serde_json::from_value(crate::store::fixture::manifest(prefix, "", "", 1)).unwrap();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        manifest.flags = [("cflags", "-g -O2"), ("cxxflags", "-g -O2"), ("ldflags", "-Wl,-O1")]
            .map(|(list, text)| (list.to_owned(), words(text)))
            .into();
        manifest.dependencies = [("ssl-1.1".to_owned(), "0".to_owned())].into();
        manifest
    }

    #[test]
    fn own_places_are_named_and_others_stay() {
        let build = build();
        let places = Places::of(&build);
        for (word, want) in [
            ("--prefix=/srv/bm/my_rel", "--prefix={prefix}"),
            ("-L/srv/bm/my_rel/lib", "-L{prefix}/lib"),
            (
                "-Wl,-rpath,/srv/bm/my_rel/lib:/srv/bm/my_rel/lib64",
                "-Wl,-rpath,{prefix}/lib:{prefix}/lib64",
            ),
            ("/srv/bm/my_rel_lto/lib", "/srv/bm/my_rel_lto/lib"),
            ("-I/srv/bm/ssl-1.1/include", "-I{ssl-1.1}/include"),
            ("-I/srv/bm/ssl-1.1w/include", "-I/srv/bm/ssl-1.1w/include"),
            ("-DNAME=my_rel", "-DNAME={name}"),
            ("-DNAME=xmy_rel", "-DNAME=xmy_rel"),
            ("-I/srv/bm/.bm/work/my_rel-01234567/src/inc", "-I{work}/src/inc"),
            (
                "-Dx=/r/.bm/work/a-0/src:/r/.bm/work/a-0/build",
                "-Dx={work}/src:{work}/build",
            ),
            ("/r/.bm/work/a-0", "{work}"),
            ("-DDIR=\"/r/.bm/work/a-0\"", "-DDIR=\"{work}\""),
            ("../src/x.c", "../src/x.c"),
        ] {
            assert_eq!(places.plain(word), want, "{word}");
        }
    }

    #[test]
    fn a_list_of_flags_is_said_by_its_name() {
        let build = build();
        let places = Places::of(&build);
        for (word, want) in [
            ("CFLAGS=-g -O2", "CFLAGS={cflags}"),
            ("-DCMAKE_CXX_FLAGS=-g -O2", "-DCMAKE_CXX_FLAGS={cxxflags}"),
            ("LDFLAGS=-Wl,-O1", "LDFLAGS={ldflags}"),
            ("CFLAGS=-g -O2 -DX", "CFLAGS=-g -O2 -DX"),
            ("--with-x=/srv/bm/my_rel", "--with-x={prefix}"),
            ("--fast", "--fast"),
        ] {
            assert_eq!(places.configure(word), want, "{word}");
        }
    }

    #[test]
    fn what_the_launcher_puts_in_by_chance_is_no_difference() {
        let build = build();
        let words = ["-frandom-seed=0x12", "-flto=2", "-flto=auto", "-flto-jobs=2"].map(str::to_owned);
        let call = |jobs| Places::of(&build).call(&words, jobs);
        assert_eq!(
            call(2),
            [
                "-frandom-seed={seed}",
                "-flto={jobs}",
                "-flto=auto",
                "-flto-jobs={jobs}"
            ]
        );
        // Not the launcher's: the recipe asked for two.
        assert_eq!(call(0)[1..], words[1..]);
    }
}
