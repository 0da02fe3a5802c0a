//! The store: prefixes, what is remembered of them, and the locks around them.
//!
//! Owns everything below the root: how a finished tree comes to its final path, how a crash is
//! repaired, what is listed, verified, swept and removed. Knows no recipe and starts no child; the
//! manifest comes from the caller.

pub mod alias;
pub mod carry;
pub mod disk;
pub mod files;
#[cfg(test)]
pub mod fixture;
pub mod history;
pub mod index;
pub mod journal;
pub mod lock;
pub mod manifest;
pub mod prefix;
pub mod procs;
pub mod recover;
pub mod sweep;
pub mod verify;
pub mod work;

use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;
use rayon::prelude::*;

use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::Layout;
use crate::model::manifest::Manifest;
use crate::model::name::BuildName;
use manifest::ManifestState;

/// Makes the directories of the store; fine to call again.
pub fn prepare(layout: &Layout) -> Result<()> {
    let previous = layout.state().join("previous");
    let dirs = [
        layout.locks(),
        layout.journal(),
        previous,
        layout.failed(),
        layout.history(),
    ];
    for dir in dirs {
        disk::make_dir(&dir)?;
    }
    if !disk::exists(&layout.work_root())? {
        disk::make_dir(&layout.work_root())?;
        // Passed through by the smoke test's unprivileged server, listed by nobody else.
        let passable = std::fs::Permissions::from_mode(0o711);
        fs::set_permissions(layout.work_root(), passable).doing(|| "cannot prepare the store".into())?;
    }
    Ok(())
}

/// What has a build's name in the root.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// A sealed prefix. Nothing else is ever handed over.
    Built(Box<Manifest>),
    /// A build in motion, or one that a crash cut short and the next change of the store repairs.
    Unsealed,
    /// Not bm's, and why.
    Foreign(String),
}

/// One entry of the root.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its name.
    pub name: BuildName,
    /// What it is.
    pub state: State,
}

/// Everything in the root that has a name a build could have, sorted. Links are not listed (see
/// [`alias::all`]), and neither is what could never collide with a build.
pub fn list(layout: &Layout) -> Result<Vec<Listed>> {
    let names: Vec<BuildName> = disk::names_in(layout.root())?
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    let listed: Vec<_> = names
        .into_par_iter()
        .map(|name| Ok(state_of(layout, &name)?.map(|state| Listed { name, state })))
        .collect::<Result<_>>()?;
    Ok(listed.into_iter().flatten().collect())
}

/// What has this name in the root; `None` for nothing and for a link of bm's.
pub fn state_of(layout: &Layout, name: &BuildName) -> Result<Option<State>> {
    let prefix = layout.prefix(name);
    let meta = match fs::symlink_metadata(&prefix) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("cannot list the store", &e)),
    };
    if meta.is_symlink() {
        let foreign = || State::Foreign("it is a link that bm did not make".into());
        return Ok(alias::target(layout, name)?.is_none().then(foreign));
    }
    if !meta.is_dir() {
        return Ok(Some(State::Foreign("it is a file".into())));
    }
    let reason = match manifest::read(&prefix) {
        ManifestState::Valid(manifest) => return Ok(Some(State::Built(manifest))),
        ManifestState::Absent => "it has no manifest".into(),
        ManifestState::Torn(reason) => reason,
    };
    // The journal is read after the manifest: seal and end of the record may come in between, never
    // the other way round. A record that cannot be read must not spoil the whole list.
    let in_motion = matches!(journal::read(layout, name), Ok(Some(record)) if record.marks(&prefix).unwrap_or(false));
    Ok(Some(if in_motion {
        State::Unsealed
    } else {
        State::Foreign(reason)
    }))
}

/// What [`remove`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Whether the name was only a link.
    pub was_alias: bool,
    /// Links that pointed to the prefix and went with it.
    pub aliases: Vec<BuildName>,
    /// What was repaired before.
    pub repaired: Vec<String>,
}

/// Removes a prefix and its aliases, or only the link when `name` is one. The history stays. The
/// caller holds the lock of the build.
///
/// # Errors
/// [`Exit::Store`] when bm did not build it or a process runs from it; [`Exit::Usage`] when there is none.
pub fn remove(layout: &Layout, name: &BuildName) -> Result<Removed> {
    let mut removed = Removed {
        was_alias: false,
        aliases: vec![],
        repaired: recover::recover(layout, name)?,
    };
    if alias::target(layout, name)?.is_some() {
        alias::remove(layout, name)?;
        removed.was_alias = true;
        return Ok(removed);
    }
    let prefix = layout.prefix(name);
    match state_of(layout, name)? {
        Some(State::Built(_)) => {}
        Some(State::Foreign(why)) => return Err(prefix::foreign(&prefix, &why)),
        Some(State::Unsealed) => return Err(prefix::foreign(&prefix, "it is not finished")),
        None => {
            return Err(Error::new(Exit::Usage, format!("`{name}` is not built")).hint("bm list"));
        }
    }
    procs::refuse_if_in_use(&prefix)?;
    removed.aliases = alias::aliases_of(layout, name)?;
    // One rename, durable before anything is deleted: a crash leaves a whole prefix or none.
    let trash = disk::discard(layout, &prefix)?;
    disk::sync_dir(layout.root())?;
    // Links after the prefix: if it ends here, the sweep finds them dangling.
    for alias in &removed.aliases {
        alias::remove(layout, alias)?;
    }
    disk::remove_tree(&trash)?;
    Ok(removed)
}
