//! Commits of git repositories, kept in one bare mirror per repository.
//!
//! Owns the mirrors: their names, what is fetched into them, and the proof that a pin and a tag still
//! agree. Network and local copies go through the `git` command, with no configuration but what is
//! written here; reading goes through libgit2.
//!
//! Every fetch is shallow (`--depth=1` of one commit): a release costs its files, not its history.
//! Only an abbreviated commit id that is no tip needs history, and then the whole of it is fetched
//! once. No partial clones: libgit2 refuses them, and a blob that is missing later is a late error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use git2::Oid;

use super::lockfile::is_hex;
use super::mirror::{Spot, file_name};
use super::repository::{commits_with, create, hardened_argv, hardened_env, open};
use super::{Attempt, Log, Net, Ran, all_failed, check_interrupt, checkout, lock, sha256, start, write_atomically};
use crate::error::{Error, Exit, Result};
use crate::text::public_url;

/// Where the commits of a repository are: its home first, then other places of the same commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPlaces {
    /// At least one.
    pub urls: Vec<String>,
}

/// What is wanted. A commit is a pin and decides; a tag beside it must agree where it is seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Want {
    /// Tag name, without `refs/tags/`.
    pub tag: Option<String>,
    /// Full commit id.
    pub commit: Option<String>,
    /// Branch, tag, or commit id, full or abbreviated to at least 7 digits.
    pub rev: Option<String>,
}

/// A commit that is in the mirror with its whole tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// 40 hex digits.
    pub commit: String,
    /// Commit time, seconds since the epoch.
    pub time: u64,
    /// Where it came from: a URL, or `mirror`.
    pub obtained_from: String,
    /// The commit the wanted tag stands for, where the tag was seen.
    pub tag_seen: Option<String>,
    /// The bare repository that holds it.
    pub repository: PathBuf,
}

/// Makes a wanted commit present in the shared mirror below `mirrors`.
///
/// # Errors
/// Exit 4: moved tag, unknown revision, or no place has it; every place tried is listed.
pub fn ensure(mirrors: &Path, places: &GitPlaces, want: &Want, net: &Net, log: &Log) -> Result<Found> {
    let want = checked(want)?;
    let mirror = Mirror::open(mirrors, places, net, log)?;
    if let Some(found) = mirror.cached(&want)? {
        return Ok(found);
    }
    let mut failures = Vec::new();
    for spot in mirror.spots() {
        match mirror.obtain(&spot, &want)? {
            Ok(found) => return Ok(found),
            Err(why) => failures.push((spot.label(), why)),
        }
    }
    Err(mirror.nowhere(&want, &failures))
}

/// Resolves a branch, tag or commit id of a repository to a commit, and makes it present.
///
/// # Errors
/// As [`ensure`]; an ambiguous revision lists its readings.
pub fn resolve_rev(mirrors: &Path, places: &GitPlaces, rev: &str, net: &Net, log: &Log) -> Result<Found> {
    let want = Want {
        rev: Some(rev.to_owned()),
        ..Want::default()
    };
    ensure(mirrors, places, &want, net, log)
}

/// The content of `file` in the tree of `commit`.
///
/// # Errors
/// Exit 4 when the commit has no such file.
pub fn read_file(repository: &Path, commit: &str, file: &str) -> Result<Vec<u8>> {
    let read = || -> std::result::Result<Vec<u8>, git2::Error> {
        let repo = git2::Repository::open_bare(repository)?;
        let tree = repo.find_commit(git2::Oid::from_str(commit)?)?.tree()?;
        let blob = tree.get_path(Path::new(file))?.to_object(&repo)?.peel_to_blob()?;
        Ok(blob.content().to_vec())
    };
    read().map_err(|e| {
        Error::new(Exit::Source, format!("cannot read `{file}` of commit `{commit}`")).caused_by(e.message())
    })
}

/// Name of the mirror of a repository: readable stem and a hash of the canonical URL.
pub fn mirror_name(url: &str) -> String {
    let public = public_url(url);
    let canonical = public
        .trim_end_matches('/')
        .trim_end_matches(".git")
        .to_ascii_lowercase();
    let stem: String = file_name(&canonical)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(40)
        .collect();
    format!("{stem}-{}.git", &sha256(&canonical)[..10])
}

/// Refuses values that are no ids and names before they reach a command line.
fn checked(want: &Want) -> Result<Want> {
    let bad = |what: &str, value: &str| Error::new(Exit::Usage, format!("`{value}` is no {what}"));
    if let Some(commit) = want.commit.as_deref().filter(|c| !is_hex(c, 40)) {
        return Err(bad("full commit id (40 hex digits)", commit));
    }
    for name in [&want.tag, &want.rev].into_iter().flatten() {
        if !git2::Reference::is_valid_name(&format!("refs/tags/{name}")) || name.starts_with('-') {
            return Err(bad("branch, tag or commit of a git repository", name));
        }
    }
    let mut want = want.clone();
    if want.commit.is_none()
        && let Some(full) = want.rev.take_if(|r| is_hex(&r.to_ascii_lowercase(), 40))
    {
        want.commit = Some(full.to_ascii_lowercase());
    }
    if want.commit.is_none() && want.tag.is_none() && want.rev.is_none() {
        return Err(Error::new(
            Exit::Bug,
            "a git source was wanted without commit, tag or revision",
        ));
    }
    Ok(want)
}

/// References of a place that have one of the wanted names, peeled.
#[derive(Debug, Default)]
struct Remote {
    branches: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

impl Remote {
    /// Reads `git ls-remote`: a peeled line (`^{}`) follows the line of an annotated tag.
    fn read(text: &str) -> Remote {
        let mut remote = Remote::default();
        for (id, name) in text.lines().filter_map(|l| l.split_once('\t')) {
            if let Some(branch) = name.strip_prefix("refs/heads/") {
                remote.branches.insert(branch.into(), id.into());
            } else if let Some(tag) = name.strip_prefix("refs/tags/") {
                let tag = tag.strip_suffix("^{}").unwrap_or(tag);
                remote.tags.insert(tag.into(), id.into());
            }
        }
        remote
    }

    /// Commits of tips that begin with `digits`.
    fn tips(&self, digits: &str) -> Vec<String> {
        let all = self.branches.values().chain(self.tags.values());
        let mut tips: Vec<String> = all.filter(|id| id.starts_with(digits)).cloned().collect();
        tips.sort();
        tips.dedup();
        tips
    }
}

struct Mirror<'a> {
    path: PathBuf,
    places: &'a GitPlaces,
    net: &'a Net,
    env: BTreeMap<String, String>,
    log: &'a Log,
    _lock: fs::File,
}

impl<'a> Mirror<'a> {
    fn open(mirrors: &Path, places: &'a GitPlaces, net: &'a Net, log: &'a Log) -> Result<Self> {
        let home = places
            .urls
            .first()
            .ok_or_else(|| Error::new(Exit::Bug, "a git source has no place"))?;
        let path = mirrors.join(mirror_name(home));
        let held = lock(&path.with_extension("lock"), &net.cancel)?;
        if !path.join("HEAD").is_file() {
            create(&path)?;
        }
        Ok(Mirror {
            path,
            places,
            net,
            env: hardened_env(&net.env),
            log,
            _lock: held,
        })
    }

    fn spots(&self) -> Vec<Spot> {
        let mut spots: Vec<Spot> = Vec::new();
        for url in &self.places.urls {
            for spot in self.net.mirrors.git_spots(url, self.net.offline) {
                if !spots.contains(&spot) {
                    spots.push(spot);
                }
            }
        }
        spots
    }

    fn origin_note(&self, commit: &str) -> PathBuf {
        self.path.join("bm-obtained").join(commit)
    }

    /// The wanted commit, if an earlier fetch of it was completed. The note is written after the
    /// fetch, so its presence says that all objects are there.
    fn cached(&self, want: &Want) -> Result<Option<Found>> {
        let tag = match &want.tag {
            Some(tag) => self.local_tag(tag)?,
            None => None,
        };
        if let (Some(pin), Some(seen), Some(name)) = (&want.commit, &tag, &want.tag)
            && pin != seen
        {
            return Err(moved_tag(name, pin, seen, "the mirror in the cache"));
        }
        // A branch moves, and a revision may be either: only the place itself can tell.
        let offline_rev = || match &want.rev {
            Some(rev) if self.net.offline => self.local_tag(rev),
            _ => Ok(None),
        };
        let commit = match want.commit.clone().or(tag.clone()) {
            Some(commit) => Some(commit),
            None => offline_rev()?,
        };
        let Some(commit) = commit else { return Ok(None) };
        match fs::read_to_string(self.origin_note(&commit)) {
            Ok(from) => self.found(&commit, from.trim().to_owned(), tag).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn local_tag(&self, tag: &str) -> Result<Option<String>> {
        let repo = open(&self.path)?;
        let commit = repo
            .find_reference(&format!("refs/tags/{tag}"))
            .and_then(|r| r.peel_to_commit())
            .map(|c| c.id().to_string());
        Ok(commit.ok())
    }

    fn found(&self, commit: &str, obtained_from: String, tag_seen: Option<String>) -> Result<Found> {
        let repo = open(&self.path)?;
        let object = Oid::from_str(commit)
            .and_then(|oid| repo.find_commit(oid))
            .map_err(|e| {
                Error::new(Exit::Source, format!("the git mirror lost commit `{commit}`"))
                    .caused_by(e.message())
                    .hint(format!(
                        "remove the mirror, it is fetched anew: rm -r {}",
                        self.path.display()
                    ))
            })?;
        Ok(Found {
            commit: commit.to_owned(),
            time: u64::try_from(object.time().seconds()).unwrap_or(0),
            obtained_from,
            tag_seen,
            repository: self.path.clone(),
        })
    }

    /// One place: what it has under the wanted names, then the commit.
    fn obtain(&self, spot: &Spot, want: &Want) -> Attempt<Found> {
        if let Spot::Local(path) = spot
            && !path.exists()
        {
            return Ok(Err("no such directory".into()));
        }
        let remote = match self.ask(spot, want)? {
            Ok(remote) => remote,
            Err(why) => return Ok(Err(why)),
        };
        let tag_seen = want.tag.as_ref().and_then(|t| remote.tags.get(t).cloned());
        if let (Some(name), Some(seen)) = (&want.tag, &tag_seen) {
            let expected = match &want.commit {
                Some(pin) => Some(pin.clone()),
                None => self.local_tag(name)?,
            };
            if let Some(expected) = expected.filter(|e| e != seen) {
                return Err(moved_tag(name, &expected, seen, &spot.label()));
            }
        }
        let commit = match (&want.commit, &tag_seen, &want.rev) {
            (Some(commit), ..) | (None, Some(commit), _) => commit.clone(),
            (None, None, Some(rev)) => match self.revision(spot, rev, &remote)? {
                Ok(commit) => commit,
                Err(why) => return Ok(Err(why)),
            },
            (None, None, None) => {
                return Ok(Err(format!(
                    "it has no tag `{}`",
                    want.tag.as_deref().unwrap_or_default()
                )));
            }
        };
        let tag = want.tag.as_ref().filter(|_| tag_seen.is_some());
        if let Err(why) = self.fetch(spot, &commit, tag.map(String::as_str))? {
            return Ok(Err(why));
        }
        write_atomically(&self.origin_note(&commit), spot.recorded().as_bytes())?;
        self.found(&commit, spot.recorded(), tag_seen).map(Ok)
    }

    fn ask(&self, spot: &Spot, want: &Want) -> Attempt<Remote> {
        let patterns: Vec<String> = match (&want.tag, &want.rev) {
            (Some(tag), _) => vec![format!("refs/tags/{tag}"), format!("refs/tags/{tag}^{{}}")],
            (None, Some(rev)) if abbreviation(rev).is_none() => vec![
                format!("refs/heads/{rev}"),
                format!("refs/tags/{rev}"),
                format!("refs/tags/{rev}^{{}}"),
            ],
            // Tips may begin with the digits: all of them are wanted.
            (None, Some(_)) => vec!["refs/heads/*".into(), "refs/tags/*".into()],
            (None, None) => return Ok(Ok(Remote::default())),
        };
        let ran = self.git(spot, "ls-remote", &[], &patterns)?;
        Ok(if ran.ok {
            Ok(Remote::read(&String::from_utf8_lossy(&ran.stdout)))
        } else {
            Err(ran.complaint())
        })
    }

    fn revision(&self, spot: &Spot, rev: &str, remote: &Remote) -> Attempt<String> {
        let branch = remote.branches.get(rev);
        let tag = remote.tags.get(rev);
        match (branch, tag) {
            (Some(b), Some(t)) if b != t => {
                return Err(Error::new(Exit::Usage, format!("revision `{rev}` is ambiguous"))
                    .detail("branch", b)
                    .detail("tag", t)
                    .hint("give the commit id"));
            }
            (Some(commit), _) | (None, Some(commit)) => return Ok(Ok(commit.clone())),
            (None, None) => {}
        }
        let Some(digits) = abbreviation(rev) else {
            return Ok(Err(format!("it has no branch, tag or commit `{rev}`")));
        };
        match remote.tips(&digits).as_slice() {
            [one] => return Ok(Ok(one.clone())),
            [] => {}
            several => return Err(ambiguous(rev, several)),
        }
        let repo = match spot {
            Spot::Local(path) => open(path)?,
            Spot::Remote { .. } => match self.fetch_history(spot)? {
                Ok(()) => open(&self.path)?,
                Err(why) => return Ok(Err(why)),
            },
        };
        Ok(match commits_with(&repo, &digits)?.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(format!("it has no branch, tag or commit `{rev}`")),
            several => return Err(ambiguous(rev, several)),
        })
    }

    /// The commit alone first: forks may lack tags. A server that hands out only tips is asked for
    /// the tag, then for its branches.
    fn fetch(&self, spot: &Spot, commit: &str, tag: Option<&str>) -> Attempt<()> {
        let by_commit = format!("{commit}:refs/bm/{commit}");
        let by_tag = tag.map(|t| format!("refs/tags/{t}:refs/tags/{t}"));
        let both: Vec<String> = std::iter::once(by_commit).chain(by_tag.clone()).collect();
        let first = self.git(spot, "fetch", &["--depth=1", "--update-shallow"], &both)?;
        if first.ok {
            return Ok(Ok(()));
        }
        let second = match by_tag {
            Some(tag) => self.git(spot, "fetch", &["--depth=1", "--update-shallow"], &[tag])?.ok,
            None => false,
        };
        if (second || self.history_if_refused(spot, &first)?) && self.has(commit)? {
            return Ok(Ok(()));
        }
        Ok(Err(self.lacking(spot, commit).unwrap_or_else(|| first.complaint())))
    }

    /// Some servers answer only for tips of branches and tags.
    fn history_if_refused(&self, spot: &Spot, first: &Ran) -> Result<bool> {
        let refused = ["unadvertised object", "not our ref"]
            .iter()
            .any(|w| first.stderr.contains(w));
        Ok(refused && matches!(spot, Spot::Remote { .. }) && self.fetch_history(spot)?.is_ok())
    }

    fn fetch_history(&self, spot: &Spot) -> Attempt<()> {
        let options: &[&str] = if self.path.join("shallow").exists() {
            &["--unshallow"]
        } else {
            &[]
        };
        // Branches move, so their copies may; tags keep their own namespace here, apart from those
        // that a pin was compared with.
        let key = &sha256(spot.label())[..10];
        let refs = [
            format!("+refs/heads/*:refs/bm-heads/{key}/*"),
            format!("+refs/tags/*:refs/bm-tags/{key}/*"),
        ];
        let ran = self.git(spot, "fetch", options, &refs)?;
        Ok(if ran.ok { Ok(()) } else { Err(ran.complaint()) })
    }

    fn has(&self, commit: &str) -> Result<bool> {
        let repo = open(&self.path)?;
        Ok(Oid::from_str(commit)
            .and_then(|oid| repo.find_commit(oid).map(drop))
            .is_ok())
    }

    /// Says which files a local repository lacks, where that is why it cannot give a commit.
    fn lacking(&self, spot: &Spot, commit: &str) -> Option<String> {
        let Spot::Local(path) = spot else { return None };
        let repo = open(path).ok()?;
        if Oid::from_str(commit)
            .and_then(|oid| repo.find_commit(oid).map(drop))
            .is_err()
        {
            return Some(format!("it has no commit `{commit}`"));
        }
        let files = checkout::missing_files(&repo, commit, 3);
        (!files.is_empty()).then(|| format!("it has the commit but lacks files of it: {}", files.join(", ")))
    }

    fn git(&self, spot: &Spot, verb: &str, options: &[&str], refs: &[String]) -> Result<Ran> {
        check_interrupt(&self.net.cancel)?;
        let mut argv = hardened_argv();
        argv.extend([format!("--git-dir={}", self.path.display()), verb.to_owned()]);
        if verb == "fetch" {
            argv.extend(
                [
                    "--no-tags",
                    "--no-write-fetch-head",
                    "--no-recurse-submodules",
                    "--no-auto-gc",
                ]
                .map(String::from),
            );
            argv.extend(["--quiet"].map(String::from));
        }
        argv.extend(options.iter().map(|o| (*o).to_owned()));
        let mut env = self.env.clone();
        let place = match spot {
            Spot::Local(path) => {
                // The other end is a git of its own that does not get our `-c`. It must not mind who
                // owns the directory, and may be asked for any commit.
                let program = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack";
                argv.push(format!("--upload-pack={program}"));
                env.insert("GIT_ALLOW_PROTOCOL".into(), "file".into());
                path.display().to_string()
            }
            Spot::Remote { url, mapped } => {
                let allowed = if *mapped { "https:http:ssh:git" } else { "https:ssh" };
                env.insert("GIT_ALLOW_PROTOCOL".into(), allowed.into());
                url.clone()
            }
        };
        argv.extend(["--end-of-options".to_owned(), place]);
        argv.extend_from_slice(refs);
        start(&argv, &env, &self.path, b"", &self.net.cancel, self.log)
    }

    fn nowhere(&self, want: &Want, failures: &[(String, String)]) -> Error {
        let what = [
            want.commit.as_ref().map(|c| format!("commit `{c}`")),
            want.tag.as_ref().map(|t| format!("tag `{t}`")),
            want.rev.as_ref().map(|r| format!("revision `{r}`")),
        ];
        let what = what.into_iter().flatten().next().unwrap_or_default();
        let home = public_url(&self.places.urls[0]);
        let error = all_failed(format!("no place has {what} of `{home}`"), failures);
        if self.net.offline {
            return error.hint("fetch it once without `--offline`, or map a local clone with BM_MIRROR");
        }
        error.hint(format!(
            "name a local clone or another server: BM_MIRROR='{home}=/path/to/clone.git'"
        ))
    }
}

/// The digits of an abbreviated commit id.
fn abbreviation(rev: &str) -> Option<String> {
    let digits = rev.to_ascii_lowercase();
    ((7..40).contains(&digits.len()) && is_hex(&digits, digits.len())).then_some(digits)
}

fn ambiguous(rev: &str, commits: &[String]) -> Error {
    commits
        .iter()
        .fold(
            Error::new(Exit::Usage, format!("revision `{rev}` is ambiguous")),
            |e, c| e.detail("commit", c),
        )
        .hint("give more digits")
}

fn moved_tag(tag: &str, expected: &str, seen: &str, at: &str) -> Error {
    Error::new(
        Exit::Source,
        format!("moved tag: `{tag}` is not the commit it is pinned to"),
    )
    .detail("expected", expected)
    .detail("got", seen)
    .detail("place", at)
    .hint("if upstream moved it on purpose, change the pin in the recipe or the lockfile")
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
