//! Release archives, kept by sha256 and fetched from the first place that has the right bytes.
//!
//! Owns the downloads directory: `<sha256>` is a whole, durable file; `<sha256>.from` says where it
//! came from; `*.partial` is a transfer that a later run goes on with. Knows no archive formats.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::lockfile::is_hex;
use super::mirror::{Spot, file_name};
use super::{Attempt, Log, Net, all_failed, http, lock, sha256, sync_dir, write_atomically};
use crate::digest::sha256_of;
use crate::error::{Error, Exit, IoContext, Result};

/// One place an archive may be had from.
pub enum Place<'a> {
    /// A URL, subject to the mirror map; or an absolute path.
    Url(String),
    /// Something that has its own way, as the distribution's pool.
    Pool(&'a dyn Pool),
}

/// A place with its own way of fetching.
pub trait Pool {
    /// How it is called in errors.
    fn label(&self) -> String;

    /// Writes the archive with this checksum to `file`, which does not exist, and says how the place
    /// is to be recorded; or says why it cannot.
    ///
    /// # Errors
    /// Only what makes trying other places pointless.
    fn provide(&self, sha256: Option<&str>, file: &Path) -> Result<std::result::Result<String, String>>;
}

/// An archive that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// The file, named by its checksum.
    pub path: PathBuf,
    /// Its checksum.
    pub sha256: String,
    /// Where it came from: a URL without user name and query, `mirror`, or `distro:<package>=<version>`.
    pub obtained_from: String,
}

/// Makes an archive present below `downloads`. Without `wanted` the first place that has any archive
/// serves, and its checksum is the answer: for the caller to lock.
///
/// # Errors
/// Exit 4 with every place tried: a checksum mismatch (expected and got), or unreachable; exit 3 if
/// the disk fails.
pub fn ensure(downloads: &Path, wanted: Option<&str>, places: &[Place<'_>], net: &Net, log: &Log) -> Result<Got> {
    if let Some(bad) = wanted.filter(|w| !is_hex(w, 64)) {
        return Err(Error::new(
            Exit::Usage,
            format!("`{bad}` is no sha256 (64 lower-case hex digits)"),
        ));
    }
    let name = places.first().map_or_else(|| "archive".to_owned(), Place::name);
    let key = wanted.map_or_else(|| format!("unpinned-{}", &sha256(&name)[..16]), str::to_owned);
    let _held = lock(&downloads.join(format!("{key}.lock")), &net.cancel)?;
    if let Some(got) = wanted.map(|w| cached(downloads, w)).transpose()?.flatten() {
        return Ok(got);
    }
    let fetch = Fetch {
        downloads,
        partial: downloads.join(format!("{key}.partial")),
        wanted,
        net,
        log,
    };
    let mut failures = Failures::default();
    for place in places {
        match place {
            Place::Url(url) => {
                for spot in net.mirrors.file_spots(url, net.offline) {
                    if let Some(got) = fetch.spot(&spot, &mut failures)? {
                        return Ok(got);
                    }
                }
            }
            Place::Pool(pool) => {
                http::discard(&fetch.partial);
                let answer = pool.provide(wanted, &fetch.partial)?;
                if let Some(got) = fetch.judge(&pool.label(), answer, &mut failures)? {
                    return Ok(got);
                }
            }
        }
    }
    Err(failures.into_error(&name, wanted, net))
}

impl Place<'_> {
    fn name(&self) -> String {
        match self {
            Place::Url(url) => file_name(url).to_owned(),
            Place::Pool(pool) => pool.label(),
        }
    }
}

/// The archive with this checksum, if it is here whole. A damaged one is removed.
///
/// # Errors
/// Exit 3 if the file cannot be read.
pub fn cached(downloads: &Path, wanted: &str) -> Result<Option<Got>> {
    let path = downloads.join(wanted);
    if !path.is_file() {
        return Ok(None);
    }
    if hash_file(&path)? != wanted {
        fs::remove_file(&path).doing(|| "cannot remove a damaged download".into())?;
        return Ok(None);
    }
    let from = fs::read_to_string(origin_note(downloads, wanted)).unwrap_or_else(|_| "cache".into());
    Ok(Some(Got {
        path,
        sha256: wanted.to_owned(),
        obtained_from: from.trim().to_owned(),
    }))
}

fn origin_note(downloads: &Path, sha256: &str) -> PathBuf {
    downloads.join(format!("{sha256}.from"))
}

/// What was tried, and the first wrong checksum.
#[derive(Default)]
struct Failures {
    tried: Vec<(String, String)>,
    mismatch: Option<(String, String)>,
}

impl Failures {
    fn into_error(self, name: &str, wanted: Option<&str>, net: &Net) -> Error {
        if let (Some(expected), Some((place, got))) = (wanted, self.mismatch) {
            let error = Error::new(Exit::Source, format!("checksum mismatch of `{name}`"))
                .detail("expected", expected)
                .detail("got", got)
                .detail("place", place);
            return self
                .tried
                .iter()
                .fold(error, |e, (at, why)| e.detail("tried", format!("{at}: {why}")));
        }
        let headline = if net.offline {
            format!("`{name}` is neither in the cache nor in a local mirror")
        } else {
            format!("cannot fetch `{name}`")
        };
        let error = all_failed(headline, &self.tried).detail("sha256", wanted.unwrap_or("not pinned"));
        if net.offline {
            return error.hint("fetch it once without `--offline`, or name a directory that has it with BM_MIRROR");
        }
        error.hint("name a directory or server that has it: BM_MIRROR='URL-PREFIX=DIRECTORY-OR-URL'")
    }
}

struct Fetch<'a> {
    downloads: &'a Path,
    partial: PathBuf,
    wanted: Option<&'a str>,
    net: &'a Net,
    log: &'a Log,
}

impl Fetch<'_> {
    fn spot(&self, spot: &Spot, failures: &mut Failures) -> Result<Option<Got>> {
        let answer = match spot {
            Spot::Local(path) => self.copy(path)?,
            Spot::Remote { url, mapped } => self.download(url, *mapped)?,
        };
        self.judge(&spot.label(), answer.map(|()| spot.recorded()), failures)
    }

    fn copy(&self, path: &Path) -> Attempt<()> {
        let mut from = match fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Err("no such file".into())),
            Err(e) => return Ok(Err(e.to_string())),
        };
        http::discard(&self.partial);
        self.log.line(format!("+ cp {}", path.display()));
        let mut to = fs::File::create(&self.partial).doing(|| "cannot write a download".into())?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(Ok(())),
                Ok(n) => to.write_all(&buffer[..n]).doing(|| "cannot write a download".into())?,
                Err(e) => return Ok(Err(e.to_string())),
            }
        }
    }

    fn download(&self, url: &str, mapped: bool) -> Attempt<()> {
        let first = http::download(url, mapped, &self.partial, self.net, self.log)?;
        let spoilt = |a: &http::Arrived| a.resumed && self.wanted.is_some_and(|w| w != a.sha256);
        if !first.as_ref().is_ok_and(spoilt) {
            return Ok(first.map(drop));
        }
        self.log
            .line("= the parts do not fit together: once more from the start");
        http::discard(&self.partial);
        let second = http::download(url, mapped, &self.partial, self.net, self.log)?;
        Ok(second.map(drop))
    }

    /// Decides by the bytes whether a place served.
    fn judge(&self, label: &str, answer: Result<String, String>, failures: &mut Failures) -> Result<Option<Got>> {
        let from = match answer {
            Ok(from) => from,
            Err(why) => {
                failures.tried.push((label.to_owned(), why));
                return Ok(None);
            }
        };
        // The hash of what is on the disk, not of what went by.
        let got = hash_file(&self.partial)?;
        let page = web_page(&self.partial)?;
        if self.wanted.is_none_or(|w| w == got) && page.is_none() {
            return self.keep(&got, from).map(Some);
        }
        http::discard(&self.partial);
        let why = match page {
            Some(title) => format!("it is a web page, not an archive: {title}"),
            None => format!("its sha256 is {got}"),
        };
        self.log.line(format!("= {label}: {why}"));
        failures.tried.push((label.to_owned(), why));
        if self.wanted.is_some() {
            failures.mismatch.get_or_insert((label.to_owned(), got));
        }
        Ok(None)
    }

    /// The commit point of a download.
    fn keep(&self, sha256: &str, from: String) -> Result<Got> {
        let doing = || "cannot keep a download".to_owned();
        let path = self.downloads.join(sha256);
        let file = fs::File::open(&self.partial).doing(doing)?;
        file.sync_all().doing(doing)?;
        write_atomically(&origin_note(self.downloads, sha256), from.as_bytes())?;
        match renameat_with(CWD, &self.partial, CWD, &path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // Only an unpinned fetch gets here: a pinned one looked before, under its lock. And some
            // file systems cannot rename without replacing; equal bytes may be replaced.
            Err(rustix::io::Errno::EXIST | rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::rename(&self.partial, &path).doing(doing)?;
            }
            Err(e) => return Err(e.into()).doing(doing),
        }
        http::discard(&self.partial);
        sync_dir(self.downloads)?;
        Ok(Got {
            path,
            sha256: sha256.to_owned(),
            obtained_from: from,
        })
    }
}

fn hash_file(path: &Path) -> Result<String> {
    let doing = || "cannot read a download".to_owned();
    sha256_of(&mut fs::File::open(path).doing(doing)?).doing(doing)
}

/// Servers that lost a file like to answer 200 with a page about it; its title, or its beginning.
fn web_page(path: &Path) -> Result<Option<String>> {
    let mut head = Vec::new();
    let file = fs::File::open(path).doing(|| "cannot read a download".into())?;
    file.take(4096)
        .read_to_end(&mut head)
        .doing(|| "cannot read a download".into())?;
    let text = String::from_utf8_lossy(&head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lower = text.to_ascii_lowercase();
    if !["<!doctype", "<html", "<?xml", "<head"]
        .iter()
        .any(|p| lower.starts_with(p))
    {
        return Ok(None);
    }
    let title = lower.find("<title>").and_then(|at| {
        let rest = &text[at + "<title>".len()..];
        Some(rest[..rest.find('<')?].trim().to_owned())
    });
    Ok(Some(title.unwrap_or_else(|| {
        text.chars().take(60).collect::<String>().replace('\n', " ")
    })))
}

#[cfg(test)]
#[path = "tarball_tests.rs"]
mod tests;
