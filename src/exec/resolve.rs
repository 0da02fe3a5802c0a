//! From requests to resolved builds: pins of the recipe, of the lockfile, of the network. What was
//! resolved once is locked.

mod distro;

use std::cell::RefCell;
use std::path::Path;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::matrix;
use crate::model::build::{Request, Revision};
use crate::model::name::BuildName;
use crate::model::recipe::{Origin, PinnedVersion, Recipe, SourceKind};
use crate::model::version::Version;
use crate::plan::{Resolved, SourcePlan, for_version};
use crate::source::git::{self, GitPlaces, Want};
use crate::source::lockfile::{self, GitLock, Lockfile, TarballLock};
use crate::source::{Log, Net, local, tarball};

/// Whether unresolved pins may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only recipes and lockfile, where that can be enough: the rest stays unresolved.
    Known,
    /// Also the network (or what `--offline` leaves of it); all is resolved or it is an error.
    Network,
}

/// Resolves requests of one run against one lockfile.
#[derive(Debug)]
pub struct Resolver<'a> {
    ctx: &'a Context,
    net: &'a Net,
    /// As it is on disk: what this run locks is seen by its later requests.
    lock: RefCell<Lockfile>,
    reach: Reach,
    log: Log,
}

impl<'a> Resolver<'a> {
    /// Reads the lockfile.
    ///
    /// # Errors
    /// A damaged lockfile.
    pub fn new(ctx: &'a Context, net: &'a Net, reach: Reach) -> Result<Self> {
        Ok(Resolver {
            ctx,
            net,
            lock: RefCell::new(Lockfile::load(&ctx.layout.lockfile())?),
            reach,
            log: Log::none(),
        })
    }

    /// Resolves one request.
    ///
    /// # Errors
    /// Exit 4 when the network has no answer or another one than the pin.
    pub fn resolve(&self, name: BuildName, request: Request) -> Result<Resolved> {
        let recipe = &self.ctx.library.recipes[&request.product];
        match request.revision.clone() {
            Revision::Release(version) => self.release(recipe, name, request, version),
            Revision::Distro => self.distro(recipe, request),
            Revision::Git { rev, fork } => self.git(recipe, name, request, &rev, fork.as_deref()),
            Revision::Local(dir) => self.local(recipe, name, request, &dir),
        }
    }

    fn release(&self, recipe: &Recipe, name: BuildName, request: Request, version: Version) -> Result<Resolved> {
        let pin = recipe.versions.iter().find(|p| p.version == version);
        let locked = self
            .lock
            .borrow()
            .find_tarball(recipe.product.as_str(), &version.to_string())
            .cloned();
        let kind = request.from.or(self.ctx.default_from()?).unwrap_or_else(|| {
            let has_sum = pin.is_some_and(|p| p.sha256.is_some()) || locked.is_some();
            if has_sum || recipe.sources.git.is_none() {
                SourceKind::Tarball
            } else {
                SourceKind::Git
            }
        });
        let source = match kind {
            SourceKind::Tarball => self.tarball(recipe, &version, pin, locked.as_ref())?,
            SourceKind::Git => self.tag(recipe, &version, pin)?,
            SourceKind::Local => {
                return Err(
                    Error::new(Exit::Usage, "`local` is no kind of source for a release").hint("use `--source DIR`")
                );
            }
        };
        Ok(Resolved {
            name,
            links: request.links.clone(),
            request,
            version,
            source,
        })
    }

    fn tarball(
        &self,
        recipe: &Recipe,
        version: &Version,
        pin: Option<&PinnedVersion>,
        locked: Option<&TarballLock>,
    ) -> Result<SourcePlan> {
        let Some(spec) = &recipe.sources.tarball else {
            return Err(Error::new(
                Exit::Usage,
                format!("recipe `{}` knows no release archives", recipe.product),
            )
            .hint("use `--from git`"));
        };
        let urls: Vec<String> = spec.urls.iter().map(|t| for_version(t, recipe, version)).collect();
        let file = urls
            .first()
            .map(|u| crate::source::mirror::file_name(u).to_owned())
            .unwrap_or_default();
        let package = recipe
            .sources
            .distro
            .as_ref()
            .map(|d| for_version(&d.package, recipe, version));
        let mut plan = SourcePlan {
            kind: SourceKind::Tarball,
            urls,
            is_tag: false,
            reference: file,
            commit: None,
            sha256: None,
            distro_package: package,
            pinned_by: "recipe".to_owned(),
            origin: None,
        };
        if let Some((sha256, origin)) = pin.and_then(|p| Some((p.sha256.clone()?, p.origin.clone()))) {
            plan.sha256 = Some(sha256);
            plan.origin = Some(origin);
            return Ok(plan);
        }
        plan.pinned_by = "lockfile".to_owned();
        if let Some(locked) = locked {
            plan.sha256 = Some(locked.sha256.clone());
        } else if self.reach == Reach::Network {
            let places: Vec<_> = plan.urls.iter().cloned().map(tarball::Place::Url).collect();
            let got = tarball::ensure(&self.ctx.layout.downloads(), None, &places, self.net, &self.log)?;
            let entry = TarballLock {
                product: recipe.product.to_string(),
                version: version.to_string(),
                sha256: got.sha256.clone(),
                file: plan.reference.clone(),
                from: got.obtained_from,
                locked_at: now(),
            };
            self.update(|lock| lock.add_tarball(entry))?;
            plan.sha256 = Some(got.sha256);
        }
        Ok(plan)
    }

    fn tag(&self, recipe: &Recipe, version: &Version, pin: Option<&PinnedVersion>) -> Result<SourcePlan> {
        let Some(spec) = &recipe.sources.git else {
            return Err(Error::new(
                Exit::Usage,
                format!("recipe `{}` knows no git repository", recipe.product),
            )
            .hint("use `--from tarball`"));
        };
        let mut plan = SourcePlan {
            kind: SourceKind::Git,
            urls: std::iter::once(&spec.url).chain(&spec.mirrors).cloned().collect(),
            is_tag: true,
            reference: for_version(&spec.tag, recipe, version),
            commit: None,
            sha256: None,
            distro_package: None,
            pinned_by: "recipe".to_owned(),
            origin: None,
        };
        if let Some((commit, origin)) = pin.and_then(|p| Some((p.commit.clone()?, p.origin.clone()))) {
            plan.commit = Some(commit);
            plan.origin = Some(origin);
            return Ok(plan);
        }
        plan.pinned_by = "lockfile".to_owned();
        let locked = self
            .lock
            .borrow()
            .find_git(recipe.product.as_str(), &version.to_string())
            .cloned();
        if let Some(locked) = locked {
            plan.commit = Some(locked.commit);
        } else if self.reach == Reach::Network {
            let want = Want {
                tag: Some(plan.reference.clone()),
                commit: None,
                rev: None,
            };
            let found = git::ensure(
                &self.ctx.layout.mirrors(),
                &GitPlaces {
                    urls: plan.urls.clone(),
                },
                &want,
                self.net,
                &self.log,
            )?;
            let entry = GitLock {
                product: recipe.product.to_string(),
                version: version.to_string(),
                url: spec.url.clone(),
                commit: found.commit.clone(),
                locked_at: now(),
            };
            self.update(|lock| lock.add_git(entry))?;
            plan.commit = Some(found.commit);
        }
        Ok(plan)
    }

    fn git(
        &self,
        recipe: &Recipe,
        name: BuildName,
        request: Request,
        rev: &str,
        fork: Option<&str>,
    ) -> Result<Resolved> {
        let urls: Vec<String> = match (fork, &recipe.sources.git) {
            (Some(fork), _) => vec![fork.to_owned()],
            (None, Some(spec)) => std::iter::once(&spec.url).chain(&spec.mirrors).cloned().collect(),
            (None, None) => {
                return Err(Error::new(
                    Exit::Usage,
                    format!("recipe `{}` knows no git repository", recipe.product),
                )
                .hint("give one with `--fork URL`"));
            }
        };
        let found = git::resolve_rev(
            &self.ctx.layout.mirrors(),
            &GitPlaces { urls: urls.clone() },
            rev,
            self.net,
            &self.log,
        )?;
        let version = match &recipe.version_from {
            Some(from) => {
                let text = git::read_file(&found.repository, &found.commit, &from.file)?;
                read_version(
                    from,
                    &String::from_utf8_lossy(&text),
                    &format!("commit {}", found.commit),
                )?
            }
            None => return Err(no_version(recipe)),
        };
        let name = match &request.chosen_name {
            Some(_) => name,
            None => {
                let commit9 = &found.commit[..9];
                let release = recipe
                    .names
                    .git
                    .format(|f| (f == "commit9").then(|| commit9.to_owned()))
                    .expect("schema checks the fields of name templates");
                matrix::build_name(
                    recipe,
                    &release,
                    request.variant.name.as_str(),
                    &self.ctx.library.toolchains[&request.toolchain],
                )?
            }
        };
        let source = SourcePlan {
            kind: SourceKind::Git,
            urls,
            is_tag: false,
            reference: rev.to_owned(),
            commit: Some(found.commit),
            sha256: None,
            distro_package: None,
            pinned_by: "command-line".to_owned(),
            origin: Some(Origin::CommandLine("--rev")),
        };
        Ok(Resolved {
            name,
            links: request.links.clone(),
            request,
            version,
            source,
        })
    }

    fn local(&self, recipe: &Recipe, name: BuildName, request: Request, dir: &Path) -> Result<Resolved> {
        let from = recipe.version_from.as_ref().ok_or_else(|| no_version(recipe))?;
        let file = dir.join(&from.file);
        let text = fs_err::read_to_string(&file).map_err(|e| {
            Error::new(
                Exit::Source,
                format!(
                    "`{}` does not look like a source tree of {}",
                    dir.display(),
                    recipe.product
                ),
            )
            .caused_by(e)
        })?;
        let version = read_version(from, &text, &file.display().to_string())?;
        let source = SourcePlan {
            kind: SourceKind::Local,
            urls: vec![format!("file://{}", dir.display())],
            is_tag: false,
            reference: dir.display().to_string(),
            commit: None,
            sha256: Some(local::hash(dir)?),
            distro_package: None,
            pinned_by: "command-line".to_owned(),
            origin: Some(Origin::CommandLine("--source")),
        };
        Ok(Resolved {
            name,
            links: request.links.clone(),
            request,
            version,
            source,
        })
    }

    fn update(&self, change: impl FnOnce(&mut Lockfile)) -> Result<()> {
        self.ctx.make_root()?;
        *self.lock.borrow_mut() = lockfile::update(&self.ctx.layout.lockfile(), &self.ctx.cancel, |lock| {
            change(lock);
            Ok(lock.clone())
        })?;
        Ok(())
    }
}

fn read_version(from: &crate::model::recipe::VersionFrom, text: &str, place: &str) -> Result<Version> {
    let found = text
        .split_once(from.before.as_str())
        .and_then(|(_, rest)| rest.split_once(from.after.as_str()))
        .map(|(v, _)| v.trim());
    found.and_then(|v| v.parse().ok()).ok_or_else(|| {
        Error::new(Exit::Source, format!("cannot read a version from `{}`", from.file))
            .detail("in", place)
            .detail("expected", format!("{}VERSION{}", from.before, from.after))
            .detail("found", found.unwrap_or("nothing like it"))
    })
}

fn no_version(recipe: &Recipe) -> Error {
    Error::new(
        Exit::Usage,
        format!(
            "recipe `{}` does not say where a source tree has its version",
            recipe.product
        ),
    )
    .hint("add `[version-from]` to the recipe")
}

/// Now, RFC 3339, UTC, whole seconds.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests;
