//! From a planned source to a source tree: the mirror, the download, the directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fs_err as fs;

use crate::context::Context;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::model::name::BuildName;
use crate::model::recipe::SourceKind;
use crate::model::version::Version;
use crate::plan::{BuildPlan, SourcePlan};
use crate::source::distro::{Distro, DistroPlace};
use crate::source::git::{self, GitPlaces, Want};
use crate::source::tarball::{self, Place};
use crate::source::{Log, Net, archive, checkout, local};
use crate::text::quoted;

use super::Runner;

/// A source that is here.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Repository, archive or directory.
    path: PathBuf,
    /// Full commit (git).
    commit: Option<String>,
    /// Where the bytes came from.
    pub obtained_from: String,
    /// Commit or archive time, seconds since the epoch.
    pub time: u64,
}

/// Why a source is not here.
#[derive(Debug)]
pub enum Missing {
    /// It could not be had.
    Failed(Error),
    /// It could not be had for the build of this name, whose error says why.
    FailedFor(BuildName),
}

/// Sources of a run: each is made present once, by the build that comes first.
#[derive(Debug, Default)]
pub struct Fetches(Mutex<BTreeMap<String, Arc<OnceLock<One>>>>);

/// What became of one source.
#[derive(Debug)]
struct One {
    by: BuildName,
    fetched: Option<Fetched>,
    /// What the fetch had to say; every build that uses it keeps that.
    log: Vec<u8>,
}

impl Fetches {
    /// The source of a plan, from `fetch` if it is the first of its kind; the others wait for it.
    ///
    /// # Errors
    /// As `fetch`, once.
    pub fn get(
        &self,
        plan: &BuildPlan,
        log: &Path,
        fetch: impl FnOnce() -> Result<Fetched>,
    ) -> Result<Fetched, Missing> {
        let cell = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(key(plan)).or_default().clone()
        };
        let mut failure = None;
        let one = cell.get_or_init(|| {
            let fetched = fetch().map_err(|e| failure = Some(e)).ok();
            One {
                by: plan.name.clone(),
                fetched,
                log: fs::read(log).unwrap_or_default(),
            }
        });
        if let Some(failure) = failure {
            return Err(Missing::Failed(failure));
        }
        if one.by != plan.name && !one.log.is_empty() {
            // It is only a log.
            let _ = fs::write(log, &one.log);
        }
        one.fetched.clone().ok_or_else(|| Missing::FailedFor(one.by.clone()))
    }
}

/// What makes two sources the same.
fn key(plan: &BuildPlan) -> String {
    let SourcePlan {
        kind,
        reference,
        commit,
        sha256,
        urls,
        ..
    } = &plan.source;
    format!("{kind} {reference} {commit:?} {sha256:?} {urls:?}")
}

/// Makes the source of a build present, checked against its pin.
///
/// # Errors
/// Exit 4 when it is not what the pin says or cannot be had.
pub fn fetch(runner: &Runner<'_>, plan: &BuildPlan, log: &Path) -> Result<Fetched> {
    let log = Log::to(log);
    match plan.source.kind {
        SourceKind::Git => {
            let found = git_source(runner.ctx, &runner.net, &plan.source, &log)?;
            Ok(Fetched {
                path: found.repository,
                commit: Some(found.commit),
                obtained_from: found.obtained_from,
                time: found.time,
            })
        }
        SourceKind::Tarball => {
            let got = archive_source(runner.ctx, &runner.net, &plan.source, &plan.version, &log);
            let got = got.map_err(|e| about_forms(e, plan))?;
            Ok(Fetched {
                path: got.path,
                commit: None,
                obtained_from: got.obtained_from,
                time: 0,
            })
        }
        SourceKind::Local => Ok(Fetched {
            path: PathBuf::from(&plan.source.reference),
            commit: None,
            obtained_from: "local tree".to_owned(),
            time: local::newest(Path::new(&plan.source.reference))?,
        }),
    }
}

/// The commit of a git source, in its mirror. Also locks nothing: that is `resolve`'s.
pub fn git_source(ctx: &Context, net: &Net, source: &SourcePlan, log: &Log) -> Result<git::Found> {
    let places = GitPlaces {
        urls: source.urls.clone(),
    };
    let want = match &source.commit {
        Some(commit) => Want {
            tag: source.is_tag.then(|| source.reference.clone()),
            commit: Some(commit.clone()),
            rev: None,
        },
        None if source.is_tag => Want {
            tag: Some(source.reference.clone()),
            commit: None,
            rev: None,
        },
        None => Want {
            tag: None,
            commit: None,
            rev: Some(source.reference.clone()),
        },
    };
    git::ensure(&ctx.layout.mirrors(), &places, &want, net, log)
}

/// The archive of a tarball source, in the downloads. The distribution's pool is one more place of
/// the same bytes, and the first one when the checksum was locked from it.
pub fn archive_source(
    ctx: &Context,
    net: &Net,
    source: &SourcePlan,
    version: &Version,
    log: &Log,
) -> Result<tarball::Got> {
    // A host without apt has other places left.
    let distro = source
        .distro_package
        .as_ref()
        .and_then(|_| Distro::open(&ctx.layout.apt(), net, log).ok());
    let package = |v: &Version| source.distro_package.clone().filter(|_| v == version);
    let pool = distro.as_ref().map(|distro| DistroPlace {
        distro,
        package: &package,
        version,
    });
    let mut places: Vec<Place<'_>> = source.urls.iter().cloned().map(Place::Url).collect();
    if let Some(pool) = &pool {
        let at = if source.pinned_by == "lockfile" {
            0
        } else {
            places.len()
        };
        places.insert(at, Place::Pool(pool));
    }
    tarball::ensure(&ctx.layout.downloads(), source.sha256.as_deref(), &places, net, log)
}

/// Where a release has archives of several forms, their checksums are easily taken for each other's.
fn about_forms(error: Error, plan: &BuildPlan) -> Error {
    let forms = plan.recipe.sources.tarball.as_ref().map(|t| &t.forms);
    let Some(forms) = forms.filter(|forms| !forms.is_empty()) else {
        return error;
    };
    let Some((_, got)) = error.details().iter().find(|(label, _)| label == "got").cloned() else {
        return error;
    };
    let pinned = plan.recipe.versions.iter().find(|p| p.version == plan.version);
    let owner = pinned.and_then(|p| p.forms.iter().find(|(_, sum)| **sum == got));
    let of = |form: &str| {
        let url = forms.get(form).and_then(|urls| urls.first());
        let url = url
            .map(|t| crate::plan::for_version(t, &plan.recipe, &plan.version))
            .unwrap_or_default();
        crate::source::mirror::file_name(&url).to_owned()
    };
    error.hint(match owner {
        Some((form, _)) => format!("those bytes are `{}`, another form of the release", of(form)),
        None => {
            let others: Vec<String> = forms.keys().map(|form| of(form)).collect();
            format!(
                "each form of a release has a checksum of its own: is this one that of {}?",
                quoted(&others, "or")
            )
        }
    })
}

/// Makes the source of a plan present and says where it came from; nothing to do for a local tree.
///
/// # Errors
/// As [`fetch`], with the name of the build.
pub fn present(ctx: &Context, net: &Net, plan: &BuildPlan) -> Result<Option<String>> {
    let (source, log) = (&plan.source, Log::none());
    match source.kind {
        SourceKind::Git => git_source(ctx, net, source, &log).map(|found| Some(found.obtained_from)),
        SourceKind::Tarball => archive_source(ctx, net, source, &plan.version, &log)
            .map(|got| Some(got.obtained_from))
            .map_err(|e| about_forms(e, plan)),
        SourceKind::Local => Ok(None),
    }
    .map_err(|e| e.detail("build", &plan.name))
}

impl Fetched {
    /// Writes the source tree into `dest`, which must be an empty directory; gives its time.
    ///
    /// # Errors
    /// Exit 4 when the tree cannot be what it should be.
    pub fn unpack(&mut self, plan: &BuildPlan, dest: &Path) -> Result<()> {
        match plan.source.kind {
            SourceKind::Git => {
                let commit = self
                    .commit
                    .as_deref()
                    .expect("a git source was fetched with its commit");
                checkout::checkout(&self.path, commit, dest)?;
            }
            SourceKind::Tarball => {
                self.time = {
                    let unpacked = archive::unpack(&self.path, dest, 1);
                    unpacked.map_err(|e| e.detail("source", &plan.source.reference))?.newest
                }
            }
            SourceKind::Local => {
                let sha256 = local::copy(&self.path, dest)?;
                if plan.source.sha256.as_ref() != Some(&sha256) {
                    return Err(Error::new(
                        Exit::Source,
                        format!("`{}` changed while it was copied", self.path.display()),
                    )
                    .hint("build from a copy that nothing writes to"));
                }
            }
        }
        // A tree with generated headers in it shadows those of a build directory beside it.
        let own = plan.recipe.generated.iter().map(String::as_str);
        for litter in ["config.status", "CMakeCache.txt", "CMakeFiles"].into_iter().chain(own) {
            if dest.join(litter).exists() {
                return Err(Error::new(
                    Exit::Source,
                    format!(
                        "the source of `{}` was configured in place: it holds `{litter}`",
                        plan.name
                    ),
                )
                .detail("source", self.path.display())
                .hint("give a clean tree (`make distclean` or `git clean -xdf`)"));
            }
        }
        fs::create_dir_all(dest).doing(|| "cannot use the source directory".to_owned())
    }
}
