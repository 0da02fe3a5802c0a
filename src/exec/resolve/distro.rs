//! The distribution's alias: the newest release whose pristine archive it really has.

use crate::error::{Error, Exit, Result};
use crate::matrix::{self, choices};
use crate::model::build::{Request, Revision};
use crate::model::recipe::{Recipe, SourceKind};
use crate::model::version::Version;
use crate::plan::{Resolved, for_version};
use crate::source::distro::Distro;
use crate::source::lockfile::{AliasLock, TarballLock};

use super::{Reach, Resolver, now};

impl Resolver<'_> {
    /// The newest release whose pristine archive the distribution really has, locked per platform.
    pub(super) fn distro(&self, recipe: &Recipe, request: Request) -> Result<Resolved> {
        let spec = recipe
            .sources
            .distro
            .as_ref()
            .expect("the name was read by this recipe's alias");
        let distro = Distro::open(&self.ctx.layout.apt(), self.net, &self.log)?;
        let platform = distro.platform();
        let locked = self.lock.borrow().find_alias(&spec.alias, &platform).cloned();
        let version = match locked {
            Some(locked) => self.locked_alias(&locked)?,
            None => self.newest(recipe, &spec.alias, &distro)?,
        };
        let release = matrix::release_name(recipe, &version);
        let toolchain = &self.ctx.library.toolchains[&request.toolchain];
        let choices = choices::beside_default(recipe, &version, &request.choices);
        // A name of the user's own stays: what is built under it need not be what the release's says.
        let name = match &request.chosen_name {
            Some(name) => name.clone(),
            None => {
                let variant = request.variant.name.as_str();
                matrix::name_with(recipe, &release, variant, toolchain, &choices)?
            }
        };
        let request = Request {
            choices,
            from: Some(SourceKind::Tarball),
            revision: Revision::Release(version.clone()),
            ..request
        };
        // The archive's checksum is in the lockfile now, or in the recipe.
        self.release(recipe, name, request, version)
    }

    /// What an alias was locked to. It stays so, which is said where something may be built from it.
    fn locked_alias(&self, locked: &AliasLock) -> Result<Version> {
        let file = self.ctx.layout.lockfile();
        if self.reach == Reach::Network {
            self.ctx.shell.status(
                "Locked",
                format!(
                    "{} is {} {} since {}; to look for a newer one, delete its entry in {}",
                    locked.name,
                    locked.product,
                    locked.version,
                    locked.locked_at,
                    file.display()
                ),
            );
        }
        locked.version.parse().map_err(|e| {
            Error::new(
                Exit::Store,
                format!("the lockfile gives `{}` a bad version", locked.name),
            )
            .detail("file", file.display())
            .caused_by(e)
        })
    }

    fn newest(&self, recipe: &Recipe, alias: &str, distro: &Distro<'_>) -> Result<Version> {
        let spec = recipe.sources.distro.as_ref().expect("the caller has it");
        let tarball = recipe.sources.tarball.as_ref();
        self.ctx
            .shell
            .status("Resolving", format!("{alias} on {}", distro.platform()));
        let package = |version: &Version| Some(for_version(&spec.package, recipe, version));
        let newest = distro.newest(&package, &self.ctx.layout.downloads())?;
        for version in &newest.passed_over {
            self.ctx.shell.warning(format!(
                "{alias}: the index of {} lists {version}, but its mirror does not have it; passed over",
                distro.platform()
            ));
        }
        let version = newest.candidate.version.clone();
        let pinned = recipe
            .versions
            .iter()
            .find(|p| p.version == version)
            .and_then(|p| p.sha256.as_ref());
        if let Some(pin) = pinned.filter(|pin| **pin != newest.candidate.sha256) {
            return Err(Error::new(
                Exit::Source,
                format!(
                    "the distribution's archive of {} {version} is not the pinned one",
                    recipe.product
                ),
            )
            .detail("expected", pin)
            .detail("got", &newest.candidate.sha256)
            .detail("from", newest.candidate.recorded()));
        }
        let file = tarball
            .and_then(|t| t.urls.first())
            .map(|t| for_version(t, recipe, &version));
        let entry = TarballLock {
            product: recipe.product.to_string(),
            version: version.to_string(),
            sha256: newest.candidate.sha256.clone(),
            file: file.map_or_else(
                || newest.candidate.file.clone(),
                |f| crate::source::mirror::file_name(&f).to_owned(),
            ),
            from: newest.candidate.recorded(),
            locked_at: now(),
        };
        let alias = AliasLock {
            name: alias.to_owned(),
            product: recipe.product.to_string(),
            version: version.to_string(),
            sha256: newest.candidate.sha256.clone(),
            platform: distro.platform(),
            passed_over: newest.passed_over.clone(),
            locked_at: now(),
        };
        self.update(|lock| {
            if pinned.is_none() {
                lock.add_tarball(entry);
            }
            lock.add_alias(alias);
        })?;
        Ok(version)
    }
}
