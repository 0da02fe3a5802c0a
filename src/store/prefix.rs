//! A prefix comes to its place: journal, renames, commit, and the way back.
//!
//! Three places take part: the final path, the slot `previous/<name>`, and, where the file system
//! cannot exchange two directories in one step, `previous/.swap-<name>`. At any moment a crash leaves
//! a state that `recover` can read off the disk:
//!
//! 1. The record is durable before anything moves, and it is the last thing to go.
//! 2. The new tree carries the record's token, so it is known wherever it is; the tree without the
//!    token, in the slot, is the old prefix.
//! 3. The new tree is durable (`syncfs`) before it gets the final name, and that name is durable
//!    before the manifest is written: a manifest never vouches for bytes that are not on the disk.
//! 4. The manifest is the commit point. Before it everything is undone; after it the rest (history,
//!    extra files, dropping the old tree) is done again until it is finished.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::carry::{Carried, carry_over};
use super::journal::{self, Phase, Record, mark_file};
use super::manifest::{self, ManifestState};
use super::{alias, disk, files, history, prepare, procs, recover};
use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::{Layout, files_file, manifest_file};
use crate::model::manifest::Manifest;
use crate::model::name::BuildName;

/// A new tree at its final path, not sealed yet. Dropping it puts the old state back.
#[derive(Debug)]
pub struct Placed {
    layout: Layout,
    record: Record,
    repaired: Vec<String>,
    settled: bool,
}

/// What a commit did besides sealing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Extra files of the old prefix.
    pub carried: Carried,
    /// The old tree, if something in it could not be carried over.
    pub kept: Option<PathBuf>,
}

impl Sealed {
    /// What the user should know; empty after a first build.
    pub fn lines(&self) -> Vec<String> {
        let list = |paths: &[PathBuf]| {
            paths
                .iter()
                .map(|p| format!("`{}`", p.display()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut lines = Vec::new();
        if !self.carried.moved.is_empty() {
            lines.push(format!("carried over {}", list(&self.carried.moved)));
        }
        if !self.carried.set_aside.is_empty() {
            lines.push(format!(
                "the new build installs {} itself; yours is below `.bm/replaced/`",
                list(&self.carried.set_aside)
            ));
        }
        if let Some(kept) = &self.kept {
            lines.push(format!(
                "could not carry over everything ({}); the old tree is kept in `{}`",
                self.carried.stuck.join(", "),
                kept.display()
            ));
        }
        lines
    }
}

/// Puts a staged tree at `<root>/<name>`. It must hold `.bm/files.json` and no manifest. The caller
/// holds the lock of the build.
///
/// # Errors
/// [`Exit::Store`] when something that bm did not build has the name, which is then not touched, or
/// when a process runs from the old prefix; [`Exit::Host`] when the disk is full. The old prefix is
/// then in its place and `staged` where it was.
pub fn place(layout: &Layout, name: &BuildName, staged: &Path, identity: &str) -> Result<Placed> {
    prepare(layout)?;
    let repaired = recover::recover(layout, name)?;
    check_staged(staged)?;
    let replaces = check_final_path(layout, name)?;
    let record = Record::new(name, identity);
    let placed = journal::write(layout, &record).and_then(|()| put(layout, &record, staged, replaces));
    if let Err(error) = placed {
        // If even this fails, the record stays and the next bm command does it.
        let _ = take_out(layout, &record, staged);
        return Err(error);
    }
    Ok(Placed {
        layout: layout.clone(),
        record,
        repaired,
        settled: false,
    })
}

fn check_staged(staged: &Path) -> Result<()> {
    let bug = |why: &str| Error::new(Exit::Bug, format!("cannot place `{}`: {why}", staged.display()));
    if !disk::exists(&files_file(staged))? {
        return Err(bug("it has no `.bm/files.json`"));
    }
    if disk::exists(&manifest_file(staged))? {
        return Err(bug("it is sealed already"));
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaces {
    Nothing,
    Prefix,
}

fn check_final_path(layout: &Layout, name: &BuildName) -> Result<Replaces> {
    let prefix = layout.prefix(name);
    if !disk::exists(&prefix)? {
        return Ok(Replaces::Nothing);
    }
    if let Some(target) = alias::target(layout, name)? {
        return Err(
            Error::new(Exit::Store, format!("`{name}` is another name of build `{target}`"))
                .detail("link", prefix.display())
                .hint(format!(
                    "choose another name with `--name`, or remove the link: rm {}",
                    prefix.display()
                )),
        );
    }
    match manifest::read(&prefix) {
        ManifestState::Valid(_) => {
            procs::refuse_if_in_use(&prefix)?;
            Ok(Replaces::Prefix)
        }
        ManifestState::Absent => Err(foreign(&prefix, "it has no manifest")),
        ManifestState::Torn(reason) => Err(foreign(&prefix, &format!("its manifest does not count: {reason}"))),
    }
}

/// The error about a directory that bm will not touch.
pub(super) fn foreign(prefix: &Path, why: &str) -> Error {
    let path = prefix.display();
    Error::new(Exit::Store, format!("`{path}` was not built by bm"))
        .detail("reason", why)
        .hint(format!(
            "choose another name with `--name`, or move it away: mv {path} {path}.away"
        ))
}

fn put(layout: &Layout, record: &Record, staged: &Path, replaces: Replaces) -> Result<()> {
    let name = &record.name;
    let (prefix, slot) = (layout.prefix(name), layout.previous(name));
    record.mark(staged)?;
    // Before the renames: a name must not become durable before what it stands for.
    disk::sync_file_system(staged)?;
    match replaces {
        Replaces::Nothing => match disk::move_tree(staged, &prefix) {
            // It came between the look and the rename.
            Err(_) if disk::exists(&prefix)? && !record.marks(&prefix)? => {
                return Err(foreign(&prefix, "it appeared while the build was running"));
            }
            moved => moved?,
        },
        Replaces::Prefix => {
            // By way of the slot, so that after the exchange the old tree is where the next bm
            // command looks for it, and not in a work directory.
            disk::move_tree(staged, &slot)?;
            swap(layout, name)?;
        }
    }
    // Before the manifest: see the module's rule 3.
    sync_places(layout, &slot)
}

/// Exchanges the final path and the slot.
fn swap(layout: &Layout, name: &BuildName) -> Result<()> {
    let (prefix, slot) = (layout.prefix(name), layout.previous(name));
    disk::exchange(&prefix, &slot, &layout.swap(name))
        .doing(|| format!("cannot exchange `{}` and `{}`", prefix.display(), slot.display()))
}

/// Makes the renames in the root and in `previous/` durable.
pub(super) fn sync_places(layout: &Layout, slot: &Path) -> Result<()> {
    disk::sync_dir(layout.root())?;
    disk::sync_dir(slot.parent().expect("the slot is in `previous/`"))
}

/// Undoes a placement that is not sealed: the new tree goes to `to`, the old one back to its place.
/// Wherever it is cut short, doing it again finishes it.
pub(super) fn take_out(layout: &Layout, record: &Record, to: &Path) -> Result<()> {
    let name = &record.name;
    let (prefix, slot) = (layout.prefix(name), layout.previous(name));
    recover::finish_swap(layout, name)?;
    if record.marks(&prefix)? {
        // Written but not known to be durable, if the commit failed at its very end. First of all,
        // so that the tree is at no moment a sealed prefix that bm gave up.
        disk::remove_file(&manifest_file(&prefix))?;
        if disk::exists(&slot)? {
            swap(layout, name)?;
            disk::move_tree(&slot, to)?;
        } else {
            disk::move_tree(&prefix, to)?;
        }
    } else if record.marks(&slot)? {
        disk::move_tree(&slot, to)?;
    }
    sync_places(layout, &slot)?;
    disk::remove_file(&mark_file(to))?;
    // Last: until here a crash must find the record.
    journal::remove(layout, name)
}

impl Placed {
    /// The final path.
    pub fn prefix(&self) -> PathBuf {
        self.layout.prefix(&self.record.name)
    }

    /// What had to be repaired before, after an earlier crash.
    pub fn repaired(&self) -> &[String] {
        &self.repaired
    }

    /// Seals the prefix: the manifest gets its hash and is written, and that is the commit. Then the
    /// manifest is remembered in the history, extra files of the old prefix are carried over, and the
    /// old tree is dropped.
    ///
    /// # Errors
    /// Without a detail `sealed`, the old state is back. With it, the new prefix is valid and the
    /// next bm command finishes what is left.
    pub fn commit(mut self, manifest: Manifest) -> Result<Sealed> {
        let sealed = manifest::seal(manifest);
        // On an error the drop of `self` puts the old state back.
        self.write_manifest(&sealed)?;
        self.settled = true;
        let prefix = self.prefix();
        finish(&self.layout, &self.record).map_err(|e| {
            e.detail(
                "sealed",
                format!("{}, the next bm command finishes the rest", prefix.display()),
            )
        })
    }

    fn write_manifest(&self, sealed: &Manifest) -> Result<()> {
        let prefix = self.prefix();
        self.check_manifest(sealed, &prefix)?;
        // Later stages and extensions may have been installed after the tree came here.
        disk::sync_file_system(&prefix)?;
        disk::write_atomic(&manifest_file(&prefix), manifest::text(sealed).as_bytes())
    }

    /// A manifest that no reader would accept must not become the commit point.
    fn check_manifest(&self, sealed: &Manifest, prefix: &Path) -> Result<()> {
        let bug = |why: String| Error::new(Exit::Bug, format!("cannot seal `{}`: {why}", prefix.display()));
        manifest::parse(&manifest::text(sealed)).map_err(|why| bug(format!("its manifest would not count: {why}")))?;
        if Path::new(&sealed.prefix) != prefix || sealed.name != self.record.name.as_str() {
            return Err(bug(format!(
                "its manifest is of `{}` at `{}`",
                sealed.name, sealed.prefix
            )));
        }
        if sealed.identity != self.record.identity {
            return Err(bug("its manifest has another identity".into()));
        }
        files::read(prefix, &sealed.files_sha256).map(drop).map_err(bug)
    }

    /// Gives the new tree up and puts the old state back. The tree is kept at `keep_failed` (see
    /// [`failed_tree`]), or deleted.
    pub fn roll_back(mut self, keep_failed: Option<&Path>) -> Result<()> {
        self.settled = true;
        self.undo(keep_failed)
    }

    fn undo(&self, keep_failed: Option<&Path>) -> Result<()> {
        if let Some(to) = keep_failed {
            return take_out(&self.layout, &self.record, to);
        }
        let trash = disk::trash_name(&self.layout, &self.prefix())?;
        take_out(&self.layout, &self.record, &trash)?;
        disk::remove_tree(&trash)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.settled {
            // There is nobody to tell. If it fails, the record stays and the next bm command does it.
            let _ = self.undo(None);
        }
    }
}

/// A free path for the kept tree of a failed build.
pub fn failed_tree(layout: &Layout, name: &BuildName) -> Result<PathBuf> {
    dated(&layout.failed(), name)
}

/// `<dir>/<name>-<time>`, made free by a count.
fn dated(dir: &Path, name: &BuildName) -> Result<PathBuf> {
    // Without colons: somebody may put the kept tree on a PATH.
    let now = humantime::format_rfc3339_seconds(SystemTime::now())
        .to_string()
        .replace(':', "");
    disk::make_dir(dir)?;
    for n in 1.. {
        let count = if n == 1 { String::new() } else { format!("-{n}") };
        let path = dir.join(format!("{name}-{now}{count}"));
        if !disk::exists(&path)? {
            return Ok(path);
        }
    }
    unreachable!("a directory has finitely many entries")
}

/// Moves a tree that may hold files of the user's to where nothing is swept.
pub(super) fn keep(layout: &Layout, name: &BuildName, tree: &Path) -> Result<PathBuf> {
    let to = dated(&layout.kept(), name)?;
    disk::move_tree(tree, &to)?;
    disk::sync_dir(&layout.kept())?;
    Ok(to)
}

/// All that follows the commit point. Every part may be done again.
pub(super) fn finish(layout: &Layout, record: &Record) -> Result<Sealed> {
    let name = &record.name;
    let (prefix, slot) = (layout.prefix(name), layout.previous(name));
    remember(layout, name, &prefix)?;
    // From here on the token is not needed to know the new tree, and may go.
    journal::write(
        layout,
        &Record {
            phase: Phase::Sealed,
            ..record.clone()
        },
    )?;
    let mut sealed = Sealed::default();
    let mut trash = None;
    if disk::exists(&slot)? {
        sealed.carried = carry_over(&slot, &prefix, &prefix)?;
        // The user's files must be durable in the new tree before the old one goes.
        disk::sync_file_system(&prefix)?;
        if sealed.carried.stuck.is_empty() {
            trash = Some(disk::discard(layout, &slot)?);
        } else {
            sealed.kept = Some(keep(layout, name, &slot)?);
        }
        sync_places(layout, &slot)?;
    }
    disk::remove_file(&mark_file(&prefix))?;
    journal::remove(layout, name)?;
    if let Some(trash) = trash {
        // The prefix is finished; what cannot be deleted now, the next sweep tries again and reports.
        let _ = disk::remove_tree(&trash);
    }
    Ok(sealed)
}

fn remember(layout: &Layout, name: &BuildName, prefix: &Path) -> Result<()> {
    let text = match fs_err::read_to_string(manifest_file(prefix)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(foreign(prefix, "its manifest is gone")),
        text => text.doing(|| "cannot read a manifest".into())?,
    };
    let sealed = manifest::parse(&text).map_err(|why| foreign(prefix, &why))?;
    history::append(layout, name, &sealed, &text)
}
