//! The distribution's pristine upstream archives (`.orig.tar.*`), by way of apt's signed index.
//!
//! Owns private apt lists below the cache: the system's lists, configuration and packages are only
//! read, nothing needs root, and the system need not list source packages. Knows no recipe: which
//! package a version belongs to is the caller's word.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

pub use super::apt_index::{Candidate, PackageOf};
use super::apt_index::{Index, read_index, read_targets};
use super::apt_sources::{Entry, Release, deb822, one_line};
use super::tarball::{self, Got, Place, Pool};
use super::{Log, Net, Ran, check_interrupt, lock, start, write_atomically};
use crate::error::{Error, Exit, IoContext, Result};
use crate::model::version::Version;
use crate::text::public_url;

/// An index is asked for anew after this time.
const FRESH: Duration = Duration::from_secs(6 * 60 * 60);

/// Where apt keeps the program that fetches single files by apt's own rules (proxies, mirrors).
const HELPER: &str = "/usr/lib/apt/apt-helper";

/// What the pool answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The archive.
    Got(Got),
    /// The index lists it, the pool has it no longer (or not yet).
    Missing,
}

/// The newest archive a distribution really has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newest {
    /// What it is.
    pub candidate: Candidate,
    /// The archive.
    pub got: Got,
    /// Newer versions that are listed but missing in the pool.
    pub passed_over: Vec<String>,
}

/// The distribution of this host, seen through private apt lists.
#[derive(Debug)]
pub struct Distro<'a> {
    dir: PathBuf,
    etc: PathBuf,
    release: Release,
    net: &'a Net,
    log: &'a Log,
}

impl<'a> Distro<'a> {
    /// `dir` is where the private lists are kept.
    ///
    /// # Errors
    /// Exit 3 on a host without apt's lists of sources.
    pub fn open(dir: &Path, net: &'a Net, log: &'a Log) -> Result<Self> {
        Self::of_system(dir, Path::new("/etc"), net, log)
    }

    fn of_system(dir: &Path, etc: &Path, net: &'a Net, log: &'a Log) -> Result<Self> {
        let text =
            fs::read_to_string(etc.join("os-release")).doing(|| "cannot tell which distribution this is".into())?;
        let release = Release::read(&text).ok_or_else(|| unknown("`/etc/os-release` names no distribution"))?;
        if dir.to_string_lossy().contains(['"', '\\', '\n']) {
            return Err(unknown("apt cannot use a cache path with a quote in it").detail("cache", dir.display()));
        }
        Ok(Distro {
            dir: dir.to_owned(),
            etc: etc.join("apt"),
            release,
            net,
            log,
        })
    }

    /// Distribution and suite, `debian:bookworm`.
    pub fn platform(&self) -> String {
        self.release.platform()
    }

    /// Archives the index lists, newest version first. The index is renewed when it is old, unless
    /// offline.
    ///
    /// # Errors
    /// Exit 4 if there is no index and none can be fetched; exit 3 without apt.
    pub fn candidates(&self, package: PackageOf<'_>) -> Result<Vec<Candidate>> {
        let _held = lock(&self.dir.join("lock"), &self.net.cancel)?;
        self.refresh()?;
        let mut found = Vec::new();
        for index in self.indexes()? {
            let text = fs::read(&index.file).doing(|| "cannot read the distribution's index".into())?;
            found.extend(read_index(&String::from_utf8_lossy(&text), &index.base, package));
        }
        found.sort_by(|a, b| b.version.cmp(&a.version).then_with(|| a.uri.cmp(&b.uri)));
        found.dedup_by(|a, b| a.version == b.version && a.sha256 == b.sha256);
        Ok(found)
    }

    /// Fetches a candidate, or tells that the pool lacks it.
    ///
    /// # Errors
    /// As [`tarball::ensure`].
    pub fn fetch(&self, candidate: &Candidate, downloads: &Path) -> Result<Fetched> {
        let pool = PoolFile {
            distro: self,
            candidate,
            missing: Cell::new(false),
        };
        match tarball::ensure(
            downloads,
            Some(&candidate.sha256),
            &[Place::Pool(&pool)],
            self.net,
            self.log,
        ) {
            Ok(got) => Ok(Fetched::Got(got)),
            Err(_) if pool.missing.get() => Ok(Fetched::Missing),
            Err(e) => Err(e),
        }
    }

    /// The newest release, no pre-release, whose archive the distribution really has.
    ///
    /// # Errors
    /// Exit 4 if it has none; the versions that are listed but missing are named.
    pub fn newest(&self, package: PackageOf<'_>, downloads: &Path) -> Result<Newest> {
        let mut passed_over = Vec::new();
        for candidate in self.candidates(package)? {
            if candidate.version.is_pre_release() {
                continue;
            }
            match self.fetch(&candidate, downloads)? {
                Fetched::Got(got) => {
                    return Ok(Newest {
                        candidate,
                        got,
                        passed_over,
                    });
                }
                Fetched::Missing => passed_over.push(candidate.version.to_string()),
            }
        }
        let error = Error::new(
            Exit::Source,
            format!("`{}` has no release archive of this product", self.platform()),
        );
        if passed_over.is_empty() {
            return Err(error.hint("build a release that the recipe pins: bm list"));
        }
        Err(error
            .detail("listed, but missing in the pool", passed_over.join(", "))
            .hint("try again later, or build a release that the recipe pins: bm list"))
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let mut files = vec![self.etc.join("sources.list")];
        if let Ok(dir) = fs::read_dir(self.etc.join("sources.list.d")) {
            files.extend(dir.flatten().map(|e| e.path()));
        }
        files.sort();
        let mut entries = Vec::new();
        for file in files {
            let read = match file.extension().and_then(|e| e.to_str()) {
                Some("list") => one_line,
                Some("sources") => deb822,
                _ => continue,
            };
            match fs::read_to_string(&file) {
                Ok(text) => entries.extend(read(&text).iter().filter_map(|e| self.release.own(e))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(e).doing(|| "cannot read apt's list of sources".into()),
            }
        }
        if entries.is_empty() {
            return Err(
                unknown("apt's lists name no archive of the distribution itself").detail("lists", self.etc.display())
            );
        }
        Ok(entries)
    }

    fn refresh(&self) -> Result<()> {
        let mut entries: Vec<String> = self.entries()?.iter().map(Entry::render).collect();
        entries.sort();
        entries.dedup();
        let sources = entries.concat();
        let stamp = self.dir.join("updated");
        let same = fs::read_to_string(&stamp).is_ok_and(|text| text == sources);
        if same && (self.net.offline || age(&stamp).is_some_and(|a| a < FRESH)) {
            return Ok(());
        }
        if self.net.offline {
            return Err(Error::new(Exit::Source, "the distribution's index is not in the cache")
                .hint("fetch it once without `--offline`"));
        }
        self.prepare(&sources)?;
        let ran = self.apt(&["apt-get", "-q", "update"], &[])?;
        if !ran.ok || complains(&ran) {
            return Err(Error::new(Exit::Source, "cannot fetch the distribution's index")
                .caused_by(ran.complaint())
                .hint("see whether `apt-get update` works on this host"));
        }
        write_atomically(&stamp, sources.as_bytes())
    }

    /// Writes the private configuration. Hooks of the system are cleared: they belong to the
    /// system's lists, and some of them change the system.
    fn prepare(&self, sources: &str) -> Result<()> {
        for dir in ["lists/partial", "cache/archives/partial", "sources"] {
            fs::create_dir_all(self.dir.join(dir)).doing(|| "cannot create private apt lists".into())?;
        }
        write_atomically(&self.dir.join("sources/bm.sources"), sources.as_bytes())?;
        write_atomically(&self.config(), self.config_text().as_bytes())
    }

    fn config(&self) -> PathBuf {
        self.dir.join("apt.conf")
    }

    fn config_text(&self) -> String {
        let dir = self.dir.display();
        format!(
            "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n\
             #clear DPkg::Post-Invoke;\n#clear Acquire::Languages;\n\
             Dir::State::lists \"{dir}/lists\";\nDir::Cache \"{dir}/cache\";\nDir::Cache::pkgcache \"\";\nDir::Cache::srcpkgcache \"\";\n\
             Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{dir}/sources\";\n\
             Acquire::GzipIndexes \"false\";\nAcquire::Languages \"none\";\n\
             APT::Update::Error-Mode \"any\";\nAPT::Sandbox::User \"\";\nAPT::Get::List-Cleanup \"true\";\n"
        )
    }

    fn apt(&self, program: &[&str], arguments: &[&str]) -> Result<Ran> {
        check_interrupt(&self.net.cancel)?;
        let mut argv: Vec<String> = program.iter().map(|w| (*w).to_owned()).collect();
        argv.insert(1, format!("-c={}", self.config().display()));
        argv.extend(arguments.iter().map(|a| (*a).to_owned()));
        let mut env = self.net.env.clone();
        env.remove("APT_CONFIG");
        env.insert("LC_ALL".into(), "C".into());
        start(&argv, &env, &self.dir, b"", &self.net.cancel, self.log)
    }

    fn indexes(&self) -> Result<Vec<Index>> {
        let format = "$(CREATED_BY)\t$(ORIGIN)\t$(REPO_URI)\t$(FILENAME)";
        let ran = self.apt(&["apt-get", "indextargets"], &["--format", format])?;
        if !ran.ok {
            return Err(Error::new(Exit::Host, "cannot list the distribution's indexes").caused_by(ran.complaint()));
        }
        Ok(read_targets(&String::from_utf8_lossy(&ran.stdout), &self.release.id))
    }
}

fn unknown(why: &str) -> Error {
    Error::new(Exit::Host, "this host has no distribution archive that bm can use").detail("reason", why)
}

/// Older apts exit 0 when an index could not be fetched, and only warn.
fn complains(ran: &Ran) -> bool {
    let said = |l: &str| l.starts_with("E:") || (l.starts_with("W:") && l.contains("Failed to fetch"));
    ran.stderr.lines().any(said)
}

fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

struct PoolFile<'a> {
    distro: &'a Distro<'a>,
    candidate: &'a Candidate,
    missing: Cell<bool>,
}

impl Pool for PoolFile<'_> {
    fn label(&self) -> String {
        format!("{} ({})", self.candidate.recorded(), public_url(&self.candidate.uri))
    }

    fn provide(&self, sha256: Option<&str>, file: &Path) -> Result<std::result::Result<String, String>> {
        if self.distro.net.offline {
            return Ok(Err("not asked: offline".into()));
        }
        if sha256.is_some_and(|wanted| wanted != self.candidate.sha256) {
            return Ok(Err(format!("its sha256 is {}", self.candidate.sha256)));
        }
        // apt gives what it fetches as root to another user and renames a file it does not like.
        let dir =
            tempfile::tempdir_in(&self.distro.dir).doing(|| "cannot fetch from the distribution's pool".into())?;
        let target = dir.path().join("orig");
        let shown = target.display().to_string();
        let hash = format!("SHA256:{}", self.candidate.sha256);
        let ran = self
            .distro
            .apt(&[HELPER, "download-file"], &[&self.candidate.uri, &shown, &hash])?;
        if !ran.ok {
            let why = ran.complaint();
            self.missing.set(is_missing(&why));
            return Ok(Err(why));
        }
        copy(&target, file)?;
        Ok(Ok(self.candidate.recorded()))
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).doing(|| "cannot keep a download".into())
}

fn is_missing(why: &str) -> bool {
    why.contains("404  Not Found") || why.contains("404 Not Found") || why.contains("File not found")
}

/// The distribution as one more place of an archive: serves when its index lists the product's
/// version with the very checksum that is wanted.
pub struct DistroPlace<'a> {
    /// The distribution.
    pub distro: &'a Distro<'a>,
    /// Names the package of a version.
    pub package: PackageOf<'a>,
    /// The version that is wanted.
    pub version: &'a Version,
}

impl Pool for DistroPlace<'_> {
    fn label(&self) -> String {
        format!("distribution {}", self.distro.platform())
    }

    fn provide(&self, sha256: Option<&str>, file: &Path) -> Result<std::result::Result<String, String>> {
        let listed = match self.distro.candidates(self.package) {
            Ok(listed) => listed,
            Err(e) if e.exit() == Exit::Interrupted => return Err(e),
            // A host without apt, or without its mirror, has other places left.
            Err(e) => return Ok(Err(summary(&e))),
        };
        let of_version: Vec<&Candidate> = listed.iter().filter(|c| c.version == *self.version).collect();
        let Some(candidate) = of_version.iter().find(|c| sha256.is_none_or(|w| w == c.sha256)) else {
            return Ok(Err(match of_version.first() {
                Some(other) => format!(
                    "its archive of {} is another one, sha256 {}",
                    self.version, other.sha256
                ),
                None => format!("it does not list {}", self.version),
            }));
        };
        let pool = PoolFile {
            distro: self.distro,
            candidate,
            missing: Cell::new(false),
        };
        pool.provide(sha256, file)
    }
}

fn summary(e: &Error) -> String {
    let cause = e.causes().first().or(e.details().first().map(|(_, v)| v));
    cause.map_or_else(|| e.headline().to_owned(), |c| format!("{}: {c}", e.headline()))
}

#[cfg(test)]
#[path = "distro_tests.rs"]
mod tests;
