//! The parts that are compared, one function each.
//!
//! Owns what of a manifest is laid side by side, and under which key. Knows no text form.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::manifest::{LinkEvidence, Manifest, SourceRecord, Tool};
use crate::text;
use crate::verified;

use super::places::{self, Places};
use super::{COSTS, Section, words};

/// All parts, in the order they are shown: what was asked for, what it was made of and by, what came out.
pub(super) fn all(a: &Manifest, b: &Manifest) -> Vec<Section> {
    vec![
        recipe(a, b),
        sources(a, b),
        patches(a, b),
        dependencies(a, b),
        flags(a, b),
        commands(a, b),
        environment(a, b),
        toolchain(a, b),
        lines(a, b),
        libraries(a, b),
        host(a, b),
        defaults(a, b),
        costs(a, b),
    ]
}

/// The keys of two maps, each once, with both values.
fn both<'m, T>(
    a: &'m BTreeMap<String, T>,
    b: &'m BTreeMap<String, T>,
) -> impl Iterator<Item = (&'m str, Option<&'m T>, Option<&'m T>)> {
    let keys: BTreeSet<&'m String> = a.keys().chain(b.keys()).collect();
    keys.into_iter().map(|key| (key.as_str(), a.get(key), b.get(key)))
}

fn recipe(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("recipe");
    for (key, a, b) in [
        ("product", &a.product, &b.product),
        ("version", &a.version, &b.version),
        ("variant", &a.variant, &b.variant),
        ("toolchain", &a.toolchain.name, &b.toolchain.name),
    ] {
        section.value(key, Some(a), Some(b));
    }
    section.value("profile", a.profile.as_deref(), b.profile.as_deref());
    section
}

fn sources(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("source");
    source_list(&mut section, "", &a.sources, &b.sources);
    source_list(&mut section, "submodule ", &a.submodules, &b.submodules);
    section
}

/// Sources of one place in the lists are compared: the server's is the first everywhere.
fn source_list(section: &mut Section, what: &str, a: &[SourceRecord], b: &[SourceRecord]) {
    for i in 0..a.len().max(b.len()) {
        let number = if i == 0 && what.is_empty() {
            String::new()
        } else {
            format!("{what}{} ", i + 1)
        };
        let (a, b) = (a.get(i), b.get(i));
        let mut value = |key: &str, of: &dyn Fn(&SourceRecord) -> String| {
            let (a, b) = (a.map(of), b.map(of));
            section.value(&format!("{number}{key}"), a.as_deref(), b.as_deref());
        };
        value("kind", &|s| s.kind.clone());
        value("pin", &|s| {
            let (kind, pin) = match (&s.commit, &s.sha256) {
                (Some(commit), _) => ("commit", commit.as_str()),
                (None, Some(sha256)) => ("sha256", sha256.as_str()),
                (None, None) => ("", ""),
            };
            format!("{kind} {pin}").trim().to_owned()
        });
        value("ref", &|s| s.reference.clone());
        value("url", &|s| s.url.clone());
        value("obtained from", &|s| s.obtained_from.clone());
        value("pinned by", &|s| s.pinned_by.clone());
        value("proved by", &|s| {
            verified::proof(s).map_or("nothing", |proof| proof.0).to_owned()
        });
    }
}

fn patches(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("patches");
    let files = |m: &Manifest| -> Vec<String> { m.patches.iter().map(|p| p.file.clone()).collect() };
    section.lists("applied", &files(a), &files(b));
    for patch in &a.patches {
        let Some(other) = b.patches.iter().find(|p| p.file == patch.file) else {
            continue;
        };
        let note = Some("same name, other content".to_owned());
        section.noted(&patch.file, Some(&patch.sha256), Some(&other.sha256), note);
        let offsets = [&patch.offsets, &other.offsets].map(|offsets| match offsets.as_slice() {
            [] => "exact".to_owned(),
            offsets => offsets.join(", "),
        });
        section.value(&format!("{} offsets", patch.file), Some(&offsets[0]), Some(&offsets[1]));
    }
    section
}

fn dependencies(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("dependencies");
    for (name, a, b) in both(&places::dependencies(a), &places::dependencies(b)) {
        section.value(name, a.map(String::as_str), b.map(String::as_str));
    }
    section
}

fn flags(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("flags");
    let of = |m: &Manifest, list: &str| Places::of(m).all(m.flags.get(list).map_or(&[], Vec::as_slice));
    for list in ["cflags", "cxxflags", "ldflags"] {
        section.lists(list, &of(a, list), &of(b, list));
    }
    section
}

/// The key of a command and its words.
type Planned = (String, Vec<String>);

/// The planned commands by step; a step's further commands are `compile 2`, `compile 3`.
fn planned(m: &Manifest) -> Vec<Planned> {
    let places = Places::of(m);
    let mut counts = BTreeMap::<String, usize>::new();
    let mut all = Vec::new();
    for step in m.steps.as_array().into_iter().flatten() {
        let name = step["name"].as_str().unwrap_or_default();
        let argv = texts(&step["argv"]);
        if argv.is_empty() {
            continue;
        }
        let n = counts.entry(name.to_owned()).or_default();
        *n += 1;
        let key = if *n == 1 {
            name.to_owned()
        } else {
            format!("{name} {n}")
        };
        all.push((key, argv.iter().map(|word| places.configure(word)).collect()));
    }
    all
}

fn texts(list: &Value) -> Vec<String> {
    let words = list.as_array().into_iter().flatten();
    words.filter_map(|w| w.as_str().map(str::to_owned)).collect()
}

fn commands(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("commands");
    let (a, b) = (planned(a), planned(b));
    let of = |side: &[Planned], key: &str| -> Option<Vec<String>> {
        let (_, words) = side.iter().find(|(k, _)| k == key)?;
        Some(words.clone())
    };
    let more = b.iter().filter(|(key, _)| of(&a, key).is_none());
    for (key, _) in a.iter().chain(more) {
        section.lists(key, &of(&a, key).unwrap_or_default(), &of(&b, key).unwrap_or_default());
        inner_lists(&mut section, key);
    }
    section
}

/// A word such as `CFLAGS=-g -O2 -Wall` that both have with another list is told by the words of the list.
fn inner_lists(section: &mut Section, key: &str) {
    let Some(at) = section.words.iter().position(|w| w.key == key) else {
        return;
    };
    let mut outer = section.words.remove(at);
    let mut inner = Vec::new();
    outer.only_a.retain(|word| {
        let Some((name, mine)) = word.split_once('=') else {
            return true;
        };
        let same = |other: &String| other.split_once('=').is_some_and(|(n, _)| n == name);
        let Some(theirs) = outer.only_b.iter().position(same) else {
            return true;
        };
        let other = outer.only_b[theirs][name.len() + 1..].to_owned();
        if !mine.contains(' ') && !other.contains(' ') {
            return true;
        }
        let split = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let words = words::compare(&format!("{key} {name}"), &split(mine), &split(&other));
        if words.is_equal() {
            return true;
        }
        outer.only_b.remove(theirs);
        inner.push(words);
        false
    });
    if !outer.is_equal() {
        section.words.insert(at, outer);
    }
    section.words.extend(inner);
}

fn environment(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("environment");
    let of = |m: &Manifest| -> BTreeMap<String, String> {
        let places = Places::of(m);
        let steps = m.steps.as_array().into_iter().flatten();
        let variables = steps.filter_map(|step| step["env"].as_object()).flatten();
        variables
            .map(|(name, value)| (name.clone(), places.plain(value.as_str().unwrap_or_default())))
            .collect()
    };
    for (name, a, b) in both(&of(a), &of(b)) {
        section.value(name, a.map(String::as_str), b.map(String::as_str));
    }
    section
}

fn toolchain(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("toolchain");
    for (role, a, b) in both(&a.toolchain.tools, &b.toolchain.tools) {
        tool(&mut section, role, a, b);
    }
    for (name, a, b) in both(&a.tools, &b.tools) {
        tool(&mut section, name, a, b);
    }
    let native = |m: &Manifest| -> Vec<String> { m.toolchain.native.split_whitespace().map(str::to_owned).collect() };
    section.lists("native", &native(a), &native(b));
    section
}

fn tool(section: &mut Section, role: &str, a: Option<&Tool>, b: Option<&Tool>) {
    match (a, b) {
        (Some(a), Some(b)) if a.version == b.version => {
            let note = Some(format!("same version, other content: {}", a.version));
            section.noted(role, Some(&a.sha256), Some(&b.sha256), note);
        }
        (a, b) => section.value(role, a.map(|t| t.version.as_str()), b.map(|t| t.version.as_str())),
    }
}

fn lines(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("lines");
    let call = |m: &Manifest, argv: &[String], jobs: u32| words::of_call(&Places::of(m).call(argv, jobs));
    let kept = |m: &Manifest| -> BTreeMap<String, Vec<String>> {
        let compiles = m.evidence.compiles.iter();
        compiles.map(|c| (c.source.clone(), call(m, &c.argv, 0))).collect()
    };
    let (kept_a, kept_b) = (kept(a), kept(b));
    for (source, x, y) in both(&kept_a, &kept_b) {
        match (x, y) {
            (Some(x), Some(y)) => section.lists(&format!("compile {source}"), x, y),
            (x, y) => {
                let said = |kept: bool| kept.then_some("its line is kept");
                section.value(&format!("compile {source}"), said(x.is_some()), said(y.is_some()));
            }
        }
    }
    // Manifests of an older bm have one line, of a source that bm chose.
    let (one, other) = (&a.evidence.sample_compile, &b.evidence.sample_compile);
    let source = source_of(one).filter(|source| source_of(other) == Some(source));
    if (kept_a.is_empty() || kept_b.is_empty()) && source.is_some() {
        let key = format!("compile {}", source.unwrap_or_default());
        section.lists(&key, &call(a, one, 0), &call(b, other, 0));
    }
    let (one, other) = (server_link(a), server_link(b));
    if let Some(file) = one.or(other).map(|link| link.file.as_str()) {
        let words =
            |m: &Manifest, link: Option<&LinkEvidence>| link.map(|l| call(m, &l.argv, l.lto_jobs)).unwrap_or_default();
        section.lists(&format!("link {file}"), &words(a, one), &words(b, other));
    }
    section
}

/// The file name of the source that a call compiles.
fn source_of(argv: &[String]) -> Option<&str> {
    let ends = [".c", ".cc", ".cpp", ".cxx"];
    let source = argv
        .iter()
        .find(|w| !w.starts_with('-') && ends.iter().any(|e| w.ends_with(e)))?;
    source.rsplit('/').next()
}

fn server_link(m: &Manifest) -> Option<&LinkEvidence> {
    let server = m.driver.server.as_deref()?;
    m.evidence.links.iter().find(|link| link.file == server)
}

fn libraries(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("libraries");
    let of = |m: &Manifest| -> BTreeMap<String, String> {
        let home = |package: &str, path: &str| {
            if package.is_empty() {
                path.to_owned()
            } else {
                package.to_owned()
            }
        };
        let libraries = m.libraries.iter();
        libraries
            .map(|l| (l.soname.clone(), home(&l.package, &l.path)))
            .collect()
    };
    for (soname, a, b) in both(&of(a), &of(b)) {
        section.value(soname, a.map(String::as_str), b.map(String::as_str));
    }
    section
}

fn host(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("host");
    for (key, a, b) in [
        ("os", &a.host.os, &b.host.os),
        ("kernel", &a.host.kernel, &b.host.kernel),
        ("libc", &a.host.libc, &b.host.libc),
        ("cpu", &a.host.cpu, &b.host.cpu),
    ] {
        section.value(key, Some(a), Some(b));
    }
    section.lists("cpu flags", &a.host.cpu_flags, &b.host.cpu_flags);
    section
}

fn defaults(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new("defaults");
    for (key, a, b) in both(&a.toolchain.defaults, &b.toolchain.defaults) {
        section.value(key, a.map(String::as_str), b.map(String::as_str));
    }
    section
}

fn costs(a: &Manifest, b: &Manifest) -> Section {
    let mut section = Section::new(COSTS);
    let bytes = |m: &Manifest| format!("{} bytes ({})", m.size, text::size(m.size));
    section.noted(
        "size",
        Some(&bytes(a)),
        Some(&bytes(b)),
        ratio(a.size as f64, b.size as f64),
    );
    let files = |m: &Manifest| text::count(m.files, "file");
    section.value("files", Some(&files(a)), Some(&files(b)));
    let cpu = |m: &Manifest| m.times.iter().map(|t| t.cpu).sum::<f64>();
    let said = |m: &Manifest| {
        let taken = m.compiler_cache.filter(|cache| cache.hits > 0);
        let cached = taken.map(|cache| format!(", {} of {} objects from the cache", cache.hits, cache.objects()));
        format!("{:.1} s{}", cpu(m), cached.unwrap_or_default())
    };
    section.noted("CPU", Some(&said(a)), Some(&said(b)), ratio(cpu(a), cpu(b)));
    let peak = |m: &Manifest| {
        let kib = m.times.iter().map(|t| t.max_rss_kib).max().unwrap_or(0);
        text::size(kib * 1024)
    };
    section.value("largest process", Some(&peak(a)), Some(&peak(b)));
    section
}

/// How many times as much the second is, where that says something.
fn ratio(a: f64, b: f64) -> Option<String> {
    (a > 0.0 && b > 0.0).then(|| format!("{:.2} times", b / a))
}
