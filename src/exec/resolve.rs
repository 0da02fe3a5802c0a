//! From requests to resolved builds: pins of the recipe, of the lockfile, of the network. What was
//! resolved once is locked.

mod distro;

use std::cell::RefCell;
use std::path::Path;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::matrix::{self, choices};
use crate::model::build::{Request, Revision};
use crate::model::name::BuildName;
use crate::model::recipe::{Between, Origin, PinnedVersion, Recipe, SourceKind, VersionFrom};
use crate::model::version::Version;
use crate::plan::{Resolved, SourcePlan, for_version};
use crate::source::git::{self, GitPlaces, Want};
use crate::source::lockfile::{self, GitLock, Lockfile, TarballLock};
use crate::source::{Log, Net, local, tarball};
use crate::text::quoted;

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
    /// Kind of source where neither the request nor the recipe decides.
    default_from: Option<SourceKind>,
    log: Log,
}

impl<'a> Resolver<'a> {
    /// Reads the lockfile.
    ///
    /// # Errors
    /// A damaged lockfile, or a `BM_FROM` that is no kind of source.
    pub fn new(ctx: &'a Context, net: &'a Net, reach: Reach) -> Result<Self> {
        Ok(Resolver {
            ctx,
            net,
            lock: RefCell::new(Lockfile::load(&ctx.layout.lockfile())?),
            reach,
            default_from: ctx.default_from()?,
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
        // They are in order.
        let listed = recipe.versions.binary_search_by(|p| p.version.cmp(&version));
        let listed = listed.ok().map(|at| &recipe.versions[at]);
        // What is preferred in general says nothing of a product that has only the other kind.
        let has = |kind: &SourceKind| match kind {
            SourceKind::Git => recipe.sources.git.is_some(),
            _ => recipe.sources.tarball.is_some(),
        };
        let kind = match request.from.or(self.default_from.filter(has)) {
            Some(kind) => kind,
            None => {
                let has_sum = || {
                    listed.is_some_and(|p| p.sha256.is_some() || !p.forms.is_empty())
                        || self.locked(SourceKind::Tarball, recipe, &version).is_some()
                };
                if recipe.sources.git.is_none() || has_sum() {
                    SourceKind::Tarball
                } else {
                    SourceKind::Git
                }
            }
        };
        let mut source = unpinned(kind, form_of(kind, listed), recipe, &version)?;
        self.pin(&mut source, recipe, &version, listed)?;
        resolved(recipe, name, request, version, source)
    }

    /// Pins the source of a release: by the recipe, else the lockfile, else what the network has, which is
    /// then locked.
    fn pin(
        &self,
        source: &mut SourcePlan,
        recipe: &Recipe,
        version: &Version,
        listed: Option<&PinnedVersion>,
    ) -> Result<()> {
        let of_recipe = listed.and_then(|p| match source.kind {
            SourceKind::Git => p.commit.as_ref(),
            kind => match form_of(kind, listed) {
                Some(form) => p.forms.get(form),
                None => p.sha256.as_ref(),
            },
        });
        if let (Some(pin), Some(listed)) = (of_recipe, listed) {
            source.set_pin(pin.clone());
            source.origin = Some(listed.origin.clone());
            let by = if self.ctx.library.is_shipped(recipe) {
                "recipe"
            } else {
                "overlay"
            };
            by.clone_into(&mut source.pinned_by);
            return Ok(());
        }
        "lockfile".clone_into(&mut source.pinned_by);
        let pin = match self.locked(source.kind, recipe, version) {
            Some(locked) => locked,
            None if self.reach == Reach::Network => self.obtain(source, recipe, version)?,
            None => return Ok(()),
        };
        source.set_pin(pin);
        Ok(())
    }

    /// What the lockfile says of a release: a commit, or the checksum of an archive.
    fn locked(&self, kind: SourceKind, recipe: &Recipe, version: &Version) -> Option<String> {
        let (lock, product, version) = (self.lock.borrow(), recipe.product.as_str(), version.to_string());
        match kind {
            SourceKind::Git => lock.find_git(product, &version).map(|l| l.commit.clone()),
            _ => lock.find_tarball(product, &version).map(|l| l.sha256.clone()),
        }
    }

    /// Gets the source of a release from the network, and locks what it was found to be.
    fn obtain(&self, source: &SourcePlan, recipe: &Recipe, version: &Version) -> Result<String> {
        let (product, version) = (recipe.product.to_string(), version.to_string());
        if source.kind == SourceKind::Git {
            let want = Want {
                tag: Some(source.reference.clone()),
                commit: None,
                rev: None,
            };
            let places = GitPlaces {
                urls: source.urls.clone(),
            };
            let found = git::ensure(&self.ctx.layout.mirrors(), &places, &want, self.net, &self.log)?;
            let entry = GitLock {
                product,
                version,
                url: source.urls[0].clone(),
                commit: found.commit.clone(),
                locked_at: now(),
            };
            self.update(|lock| lock.add_git(entry))?;
            return Ok(found.commit);
        }
        let places: Vec<_> = source.urls.iter().cloned().map(tarball::Place::Url).collect();
        let got = tarball::ensure(&self.ctx.layout.downloads(), None, &places, self.net, &self.log)?;
        let entry = TarballLock {
            product,
            version,
            sha256: got.sha256.clone(),
            file: source.reference.clone(),
            from: got.obtained_from,
            locked_at: now(),
        };
        self.update(|lock| lock.add_tarball(entry))?;
        Ok(got.sha256)
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
            (None, Some(spec)) => spec.places(),
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
                let read = |file: &String| git::read_file(&found.repository, &found.commit, file);
                let text = first_of(&from.files, read)?;
                let place = format!("commit {}", found.commit);
                read_version(from, &String::from_utf8_lossy(&text), &place)?
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
                matrix::name_with(
                    recipe,
                    &release,
                    request.variant.name.as_str(),
                    &self.ctx.library.toolchains[&request.toolchain],
                    &request.choices,
                )?
            }
        };
        let mut source = SourcePlan::new(SourceKind::Git, urls, rev.to_owned(), "command-line");
        source.origin = Some(Origin::CommandLine("--rev"));
        source.set_pin(found.commit);
        resolved(recipe, name, request, version, source)
    }

    fn local(&self, recipe: &Recipe, name: BuildName, request: Request, dir: &Path) -> Result<Resolved> {
        let from = recipe.version_from.as_ref().ok_or_else(|| no_version(recipe))?;
        let text = first_of(&from.files, |file| {
            fs_err::read_to_string(dir.join(file)).map_err(|e| {
                Error::new(
                    Exit::Source,
                    format!(
                        "`{}` does not look like a source tree of {}",
                        dir.display(),
                        recipe.product
                    ),
                )
                .caused_by(e)
            })
        })?;
        let version = read_version(from, &text, &dir.display().to_string())?;
        let url = format!("file://{}", dir.display());
        let mut source = SourcePlan::new(SourceKind::Local, vec![url], dir.display().to_string(), "command-line");
        source.origin = Some(Origin::CommandLine("--source"));
        source.set_pin(local::hash(dir)?);
        resolved(recipe, name, request, version, source)
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

/// What was asked for with what it was found to be; needs are the planner's to fill in.
fn resolved(
    recipe: &Recipe,
    name: BuildName,
    request: Request,
    version: Version,
    source: SourcePlan,
) -> Result<Resolved> {
    Ok(Resolved {
        name,
        links: request.links.clone(),
        choices: choices::in_force(recipe, &version, &request.choices)?,
        request,
        version,
        source,
        needs: vec![],
    })
}

/// The form of a release's archive to take where only that of another form than the plain one is pinned.
fn form_of(kind: SourceKind, listed: Option<&PinnedVersion>) -> Option<&str> {
    let listed = listed.filter(|p| kind == SourceKind::Tarball && p.sha256.is_none())?;
    listed.forms.keys().next().map(String::as_str)
}

/// The source of a release as the recipe's templates spell it, before anything pins it.
fn unpinned(kind: SourceKind, form: Option<&str>, recipe: &Recipe, version: &Version) -> Result<SourcePlan> {
    let none = |what: &str, other: &str| {
        Error::new(Exit::Usage, format!("recipe `{}` knows no {what}", recipe.product))
            .hint(format!("use `--from {other}`"))
    };
    match kind {
        SourceKind::Tarball => {
            let spec = recipe.sources.tarball.as_ref();
            let spec = spec.ok_or_else(|| none("release archives", "git"))?;
            let places = form.and_then(|form| spec.forms.get(form)).unwrap_or(&spec.urls);
            let urls: Vec<String> = places.iter().map(|t| for_version(t, recipe, version)).collect();
            let first = urls.first().map(String::as_str).unwrap_or_default();
            let file = crate::source::mirror::file_name(first).to_owned();
            let mut source = SourcePlan::new(kind, urls, file, "recipe");
            // The distribution carries the plain form.
            let distro = recipe.sources.distro.as_ref().filter(|_| form.is_none());
            source.distro_package = distro.map(|d| for_version(&d.package, recipe, version));
            Ok(source)
        }
        SourceKind::Git => {
            let spec = recipe.sources.git.as_ref();
            let spec = spec.ok_or_else(|| none("git repository", "tarball"))?;
            let tag = for_version(&spec.tag, recipe, version);
            let mut source = SourcePlan::new(kind, spec.places(), tag, "recipe");
            source.is_tag = true;
            Ok(source)
        }
        SourceKind::Local => {
            Err(Error::new(Exit::Usage, "`local` is no kind of source for a release").hint("use `--source DIR`"))
        }
    }
}

/// What `read` makes of the first file that is there; its error about the last one.
fn first_of<T>(files: &[String], read: impl Fn(&String) -> Result<T>) -> Result<T> {
    let (last, others) = files.split_last().expect("the schema wants a file");
    let found = others.iter().find_map(|file| read(file).ok());
    found.map_or_else(|| read(last), Ok)
}

fn read_version(from: &VersionFrom, text: &str, place: &str) -> Result<Version> {
    let part = |between: &Between| {
        let after = text.split_once(between.before.as_str()).map(|(_, rest)| rest)?;
        after.split_once(between.after.as_str()).map(|(v, _)| v.trim())
    };
    let found: Option<Vec<&str>> = from.parts.iter().map(part).collect();
    let found = found.map(|parts| parts.join("."));
    found.as_ref().and_then(|v| v.parse().ok()).ok_or_else(|| {
        let expected = from
            .parts
            .iter()
            .map(|b| format!("{}VERSION{}", b.before, b.after).trim().to_owned());
        let files = quoted(&from.files, "or");
        Error::new(Exit::Source, format!("cannot read a version from {files}"))
            .detail("in", place)
            .detail("expected", expected.collect::<Vec<_>>().join(" "))
            .detail("found", found.as_deref().unwrap_or("nothing like it"))
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
