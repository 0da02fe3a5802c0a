//! The configure step, and the answers that one build's configure leaves for the next.
//!
//! Owns `<cache>/configure`: autoconf's own cache files, one per key. The key holds all that can change an answer. A
//! configure learns of its file by `CONFIG_SITE`, which it does not write into the build, as it would an option.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fs_err as fs;
use serde_json::{Value, json};

use crate::digest::{canonical, sha256};
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::model::caching::ConfigureCaching;
use crate::model::manifest::ConfigureCache;
use crate::model::recipe::BuildSystem;
use crate::plan::{BuildPlan, StepName};
use crate::probe::host;
use crate::store::disk;

use super::build::Attempt;

/// Version of the key's form.
const FORMAT: u32 = 1;
/// Most files of answers that are kept; the ones used longest ago go.
const MOST: usize = 500;
/// Differences that a failed check shows.
const SHOWN: usize = 5;
/// Directories looked at below one watched directory; more of them are watched by their number alone.
const MOST_DIRECTORIES: usize = 20_000;

/// What the system's package manager or the loader writes whenever something is installed.
const RECORDS: [&str; 8] = [
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/pacman/local",
    "/lib/apk/db/installed",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
];
/// Where headers and libraries come by other ways, and how deep that is looked at.
const TREES: [(&str, usize); 6] = [
    ("/usr/include", 8),
    ("/usr/local/include", 8),
    ("/usr/local/lib", 8),
    ("/usr/local/share", 2),
    ("/usr/lib", 2),
    ("/usr/lib64", 2),
];
/// Directories whose content the above stand for.
const WATCHED: [&str; 6] = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev"];

impl Attempt<'_> {
    /// Configures a fresh tree, with answers of an earlier build where there are some.
    pub(super) fn configure(&mut self) -> Result<()> {
        let mode = self.runner.options.configure_cache;
        let build = self.work.build();
        let plain = BTreeMap::new();
        // Only autoconf knows such a file.
        let autoconf = self.plan.recipe.build_system == BuildSystem::Autoconf;
        if !autoconf
            || mode == ConfigureCaching::Off
            || (mode != ConfigureCaching::On && unwatched(self.plan).is_some())
        {
            return self.calls_in(StepName::Configure, &build, &plain);
        }
        let key = key(self.plan, &host_state(&self.runner.path));
        let kept = self.runner.ctx.layout.configure_cache().join(format!("{key}.cache"));
        let private = self.work.configure_cache();
        let site = self.site("config")?;
        let known = fs::read(&kept).ok().filter(|answers| !answers.is_empty());
        let used = mode != ConfigureCaching::Check && known.is_some();
        if let Some(answers) = known.as_ref().filter(|_| used) {
            fs::write(&private, answers).doing(|| format!("cannot write `{}`", private.display()))?;
        }
        match self.calls_in(StepName::Configure, &build, &site) {
            Err(error) if used && error.exit() == Exit::Build => {
                // Whoever is right: the answers have not been worth it.
                let _ = fs::remove_file(&kept);
                self.runner.ctx.shell.warning(format!(
                    "configure of `{}` failed with the answers of an earlier build; they are dropped, and it runs without",
                    self.plan.name
                ));
                self.empty(&build)?;
                disk::remove_file(&private)?;
                disk::remove_file(&self.log(StepName::Configure))?;
                self.calls_in(StepName::Configure, &build, &plain)?;
                return Ok(());
            }
            done => done?,
        }
        if used {
            touch(&kept);
        }
        let checked = mode == ConfigureCaching::Check && self.check(&kept, known)?;
        if !used {
            self.keep(&private, &kept);
        }
        // Without a cache file there was nothing to take part in: not every configure knows of one.
        if used || private.is_file() {
            self.configure_cache = Some(ConfigureCache { key, used, checked });
        }
        Ok(())
    }

    /// The variable that tells a configure in a directory of the work tree of the file `<name>.cache`. The paths are
    /// relative: they hold no blanks, and no name of this build.
    fn site(&self, name: &str) -> Result<BTreeMap<String, String>> {
        let file = self.work.0.join(format!("{name}.site"));
        let text = format!("cache_file=../{name}.cache\n");
        fs::write(&file, text).doing(|| format!("cannot write `{}`", file.display()))?;
        Ok(BTreeMap::from([("CONFIG_SITE".to_owned(), format!("../{name}.site"))]))
    }

    fn empty(&self, dir: &Path) -> Result<()> {
        disk::remove_tree(dir)?;
        fs::create_dir(dir).doing(|| format!("cannot make `{}`", dir.display()))
    }

    /// Keeps the answers of a configure that worked, for later builds. Nothing is lost when that fails.
    fn keep(&self, private: &Path, kept: &Path) {
        let Ok(answers) = fs::read(private) else { return };
        // What holds a path of this build is no answer for another.
        let own = [self.work.0.as_path(), &self.plan.prefix];
        if own
            .iter()
            .any(|path| holds(&answers, path.to_string_lossy().as_bytes()))
        {
            return;
        }
        let dir = kept.parent().expect("made by joining");
        let done = fs::create_dir_all(dir)
            .doing(String::new)
            .and_then(|()| disk::write_new(dir, kept, &answers).map(drop));
        if done.is_ok() {
            prune(dir);
        }
    }

    /// Configures once more, with the answers, and compares what was made. Says whether there was something to compare.
    fn check(&mut self, kept: &Path, known: Option<Vec<u8>>) -> Result<bool> {
        let Some(answers) = known.or_else(|| fs::read(self.work.configure_cache()).ok()) else {
            return Ok(false);
        };
        let (build, check) = (self.work.build(), self.work.check());
        self.empty(&check)?;
        let site = self.site("check")?;
        let file = self.work.0.join("check.cache");
        fs::write(&file, answers).doing(|| format!("cannot write `{}`", file.display()))?;
        let done = self.calls_in(StepName::Configure, &check, &site);
        let differences = done.and_then(|()| differences(&build, &check)).inspect_err(|_| {
            let _ = fs::remove_file(kept);
        })?;
        if differences.is_empty() {
            disk::remove_tree(&check)?;
            return Ok(true);
        }
        let _ = fs::remove_file(kept);
        let error = Error::new(
            Exit::Proof,
            format!(
                "configure of `{}` makes something else with the answers of an earlier run than without",
                self.plan.name
            ),
        );
        let error = differences
            .iter()
            .take(SHOWN)
            .fold(error, |e, (path, how)| e.detail("differs", format!("{path}: {how}")));
        Err(error
            .detail("without", build.display())
            .detail("with", check.display())
            .hint("the answers are dropped; build with `--configure-cache off`"))
    }
}

/// Hash of all that can change an answer of configure: the source with its patches, the whole configure line but the
/// prefix, the environment, the tools by content, the host.
fn key(plan: &BuildPlan, host: &Value) -> String {
    let prefix = plan.prefix.display().to_string();
    let neutral = |text: &str| text.replace(&prefix, "{prefix}");
    let (run, facts) = (plan.run(), plan.inputs());
    let calls = run.calls.iter().filter(|c| c.step == StepName::Configure);
    let lines: Vec<Vec<String>> = calls
        .map(|c| c.argv.iter().map(|a| neutral(&a.text)).collect())
        .collect();
    let env: BTreeMap<&String, String> = run.env.iter().map(|(name, word)| (name, neutral(&word.text))).collect();
    let patches = run.patches.iter().map(|p| json!([p.file, p.strip, p.sha256]));
    let inputs = json!({
        "format": FORMAT,
        "product": plan.product(),
        "commit": plan.source.commit,
        "sha256": plan.source.sha256,
        "patches": patches.collect::<Vec<_>>(),
        "lines": lines,
        "env": env,
        "toolchain": facts["toolchain"],
        "make": facts["make"],
        "native": plan.facts.toolchain.as_ref().map(|t| &t.native),
        "host": host,
    });
    sha256(canonical(&inputs))
}

/// A directory that the configure line names and nothing in the key speaks of: what is in it may change.
fn unwatched(plan: &BuildPlan) -> Option<PathBuf> {
    let run = plan.run();
    let calls = run.calls.iter().filter(|c| c.step == StepName::Configure);
    let words = calls
        .flat_map(|c| &c.argv)
        .flat_map(|a| a.parts.iter().map(|w| w.text.as_str()));
    let values = run.env.values().map(|w| w.text.as_str());
    words.chain(values).flat_map(absolute_paths).find(|path| {
        let known = WATCHED.iter().any(|dir| path.starts_with(dir)) || path.starts_with(&plan.prefix);
        !known || path.components().any(|c| c.as_os_str() == "..")
    })
}

/// Absolute paths in a word: at its beginning, after a sign that is no part of a name, after an option's letters.
fn absolute_paths(word: &str) -> Vec<PathBuf> {
    let is_option =
        |text: &str| text.len() > 1 && text[1..].chars().all(|c| c.is_ascii_alphabetic()) && text.starts_with('-');
    let mut found = vec![];
    for part in word.split([' ', '\t', '\n', ':', ',', ';', '=', '"', '\'', '(', ')']) {
        match part.find('/') {
            Some(0) => found.push(part.into()),
            Some(at) if is_option(&part[..at]) => found.push(part[at..].into()),
            _ => {}
        }
    }
    found
}

/// What of the host can change an answer, cheaply: no file is read but the few that describe the machine. A package or
/// a program that comes, goes or changes touches a directory or a record that is looked at.
fn host_state(path: &[PathBuf]) -> Value {
    let records: Vec<Value> = RECORDS.iter().map(|p| stamp(Path::new(p))).collect();
    let programs: Vec<Value> = path.iter().map(|p| stamp(p)).collect();
    let trees = TREES.iter().map(|(dir, depth)| {
        let mut stamps = vec![];
        directories(Path::new(dir), *depth, &mut stamps);
        sha256(canonical(&Value::Array(stamps)))
    });
    json!({
        "host": host::host(),
        "machine": std::env::consts::ARCH,
        "records": records,
        "programs": programs,
        "trees": trees.collect::<Vec<_>>(),
    })
}

/// A file or directory by name, size and time; null where there is none.
fn stamp(path: &Path) -> Value {
    let Ok(meta) = fs::metadata(path) else {
        return Value::Null;
    };
    let time = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    json!([
        path.to_string_lossy(),
        meta.len(),
        time.map(|t| t.as_nanos().to_string())
    ])
}

/// A directory changes its time whenever an entry comes or goes. Links are not followed.
fn directories(dir: &Path, depth: usize, out: &mut Vec<Value>) {
    out.push(stamp(dir));
    if depth == 0 || out.len() > MOST_DIRECTORIES {
        return;
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = entries
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect();
    below.sort();
    for dir in below {
        directories(&dir, depth - 1, out);
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Marks a file as used now.
fn touch(file: &Path) {
    // Only the order of going is lost.
    let _ = fs::OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|f| f.file().set_modified(SystemTime::now()));
}

/// Removes the answers used longest ago.
fn prune(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .filter(|(_, path)| path.extension().is_some_and(|e| e == "cache"))
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    for (time, file) in files.into_iter().skip(MOST) {
        // A build that has just found it reads it at once.
        if time.elapsed().is_ok_and(|age| age > Duration::from_secs(60)) {
            let _ = fs::remove_file(file);
        }
    }
}

/// What differs between two configured trees but the names of the trees: path and how. Logs and cache files tell how
/// the answers came about and are left out.
fn differences(build: &Path, check: &Path) -> Result<Vec<(String, String)>> {
    let (mut was, mut now) = (BTreeMap::new(), BTreeMap::new());
    contents(build, build, check, &mut was)?;
    contents(check, check, check, &mut now)?;
    let mut found = vec![];
    for path in was.keys().chain(now.keys()).collect::<std::collections::BTreeSet<_>>() {
        match (was.get(path), now.get(path)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => found.push((path.clone(), first_difference(a, b))),
            (Some(_), None) => found.push((path.clone(), "missing with the answers".to_owned())),
            (None, _) => found.push((path.clone(), "there only with the answers".to_owned())),
        }
    }
    Ok(found)
}

/// Files below `dir` with what is in them, `top` spelled as `as_top`.
fn contents(dir: &Path, top: &Path, as_top: &Path, out: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let doing = || format!("cannot read `{}`", dir.display());
    for entry in fs::read_dir(dir).doing(doing)? {
        let entry = entry.doing(doing)?;
        let (path, kind) = (entry.path(), entry.file_type().doing(doing)?);
        if kind.is_dir() {
            contents(&path, top, as_top, out)?;
            continue;
        }
        if path
            .file_name()
            .is_some_and(|n| n == "config.log" || n == "config.cache")
        {
            continue;
        }
        let text = if kind.is_symlink() {
            fs::read_link(&path).doing(doing)?.into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).doing(doing)?
        };
        let from = |p: &Path| p.to_string_lossy().into_owned();
        let text = String::from_utf8_lossy(&text).replace(&from(top), &from(as_top));
        let name = path.strip_prefix(top).unwrap_or(&path).display().to_string();
        out.insert(name, text.into_bytes());
    }
    Ok(())
}

fn first_difference(a: &[u8], b: &[u8]) -> String {
    let (a, b) = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
    let lines = a.lines().zip(b.lines()).enumerate().find(|(_, (x, y))| x != y);
    match lines {
        Some((n, (x, y))) => format!("line {}: without `{x}`, with `{y}`", n + 1),
        None => "one is longer".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_are_found_in_words() {
        for (word, want) in [
            ("--with-x=/opt/x", "/opt/x"),
            ("-I/opt/x", "/opt/x"),
            ("-isystem/opt/x", "/opt/x"),
            ("-Wl,-rpath,/opt/x", "/opt/x"),
            ("LDFLAGS=-L/opt/x -lz", "/opt/x"),
            ("/a:/b", "/a /b"),
            ("../src/configure", ""),
            ("--with-x=a/b", ""),
            ("-O2", ""),
        ] {
            let got: Vec<String> = absolute_paths(word).iter().map(|p| p.display().to_string()).collect();
            assert_eq!(got.join(" "), want, "{word}");
        }
    }

    #[test]
    fn trees_that_differ_only_in_their_own_name_are_equal() {
        let dir = tempfile::tempdir().unwrap();
        let [build, check] = ["build", "check"].map(|name| dir.path().join(name));
        for tree in [&build, &check] {
            fs::create_dir_all(tree.join("sub")).unwrap();
            fs::write(tree.join("sub/Makefile"), format!("top = {}\nX = 1\n", tree.display())).unwrap();
            fs::write(tree.join("config.log"), tree.to_str().unwrap()).unwrap();
            fs_err::os::unix::fs::symlink(tree.join("sub"), tree.join("link")).unwrap();
        }
        assert_eq!(differences(&build, &check).unwrap(), []);
        fs::write(
            check.join("sub/Makefile"),
            format!("top = {}\nX = 2\n", check.display()),
        )
        .unwrap();
        fs::write(check.join("more"), "").unwrap();
        fs::write(build.join("config.h"), "").unwrap();
        let found = differences(&build, &check).unwrap();
        let found: Vec<_> = found.iter().map(|(p, how)| (p.as_str(), how.as_str())).collect();
        assert_eq!(
            found,
            [
                ("config.h", "missing with the answers"),
                ("more", "there only with the answers"),
                ("sub/Makefile", "line 2: without `X = 1`, with `X = 2`"),
            ]
        );
    }

    #[test]
    fn a_tree_changes_when_an_entry_comes_anywhere_below() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::open(&deep).unwrap().file().set_modified(old).unwrap();
        let look = || {
            let mut stamps = vec![];
            directories(dir.path(), 8, &mut stamps);
            stamps
        };
        let before = look();
        assert_eq!((before.len(), &before), (3, &look()));
        fs::write(deep.join("new.h"), "").unwrap();
        assert_ne!(before, look());
    }
}
