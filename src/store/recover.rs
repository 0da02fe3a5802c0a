//! Repair after a crash: whatever moment it was, the old prefix, the new sealed one, or none.
//!
//! Reads the state off the journal and the three places (see `prefix`), and never deletes a tree
//! that may hold the user's files.

use std::path::Path;

use super::journal::{self, Phase, Record};
use super::lock::Locks;
use super::{disk, manifest, prefix};
use crate::error::{Error, Exit, Result};
use crate::layout::Layout;
use crate::model::name::BuildName;

/// Repairs one name; the caller holds its lock. Says what it did, nothing when all was well.
///
/// # Errors
/// When a stranger's directory is in the way of the old prefix, or the disk refuses. The record stays,
/// so nothing is lost and the next attempt goes on.
pub fn recover(layout: &Layout, name: &BuildName) -> Result<Vec<String>> {
    match journal::read(layout, name)? {
        None => strays(layout, name),
        Some(record) => {
            super::prepare(layout)?;
            finish_swap(layout, name)?;
            match record.phase {
                Phase::Placing => undo_or_finish(layout, &record),
                Phase::Sealed => after_seal(layout, &record),
            }
        }
    }
}

/// Repairs all names whose lock is free; the others are in motion, not broken.
pub fn recover_all(layout: &Layout, locks: &Locks) -> Result<Vec<String>> {
    let mut names = journal::names(layout)?;
    let slots = disk::names_in(&layout.state().join("previous"))?;
    names.extend(slots.iter().filter_map(|slot| {
        let slot = slot.to_str()?;
        slot.strip_prefix(".swap-").unwrap_or(slot).parse().ok()
    }));
    names.sort();
    names.dedup();
    let mut lines = Vec::new();
    for name in names {
        if let Some(_guard) = locks.try_prefix(&name)? {
            lines.extend(recover(layout, &name)?);
        }
    }
    Ok(lines)
}

/// Ends an exchange by plain renames that was cut short: the third place must be empty before
/// anything else is looked at.
pub(super) fn finish_swap(layout: &Layout, name: &BuildName) -> Result<()> {
    let (final_path, slot, swap) = (layout.prefix(name), layout.previous(name), layout.swap(name));
    if !disk::exists(&swap)? {
        return Ok(());
    }
    if !disk::exists(&final_path)? {
        // Only the first rename was done: back.
        disk::move_tree(&swap, &final_path)?;
    } else if !disk::exists(&slot)? {
        // Only the last one is missing: on.
        disk::move_tree(&swap, &slot)?;
    } else {
        return Err(in_the_way(&final_path, &swap));
    }
    prefix::sync_places(layout, &slot)
}

fn in_the_way(final_path: &Path, tree: &Path) -> Error {
    Error::new(
        Exit::Store,
        format!("cannot put the prefix back: `{}` is in the way", final_path.display()),
    )
    .detail("prefix", tree.display())
    .hint(format!(
        "move it away, then run bm again: mv {0} {0}.away",
        final_path.display()
    ))
}

fn undo_or_finish(layout: &Layout, record: &Record) -> Result<Vec<String>> {
    let name = &record.name;
    let (final_path, slot) = (layout.prefix(name), layout.previous(name));
    let placed = record.marks(&final_path)?;
    if placed && manifest::read(&final_path).valid().is_some() {
        return complete(layout, record);
    }
    let had_slot = disk::exists(&slot)?;
    if !placed && had_slot && !record.marks(&slot)? {
        // The new tree is gone, by somebody's hand, and the old one waits.
        put_back(layout, name, &slot)?;
        journal::remove(layout, name)?;
        return Ok(vec![format!("put the old prefix `{name}` back")]);
    }
    let trash = disk::trash_name(layout, &final_path)?;
    prefix::take_out(layout, record, &trash)?;
    disk::remove_tree(&trash)?;
    Ok(vec![match (placed, had_slot) {
        (true, true) => format!("put the old prefix `{name}` back; the rebuild was not finished"),
        (true, false) => format!("removed the unfinished prefix `{name}`"),
        (false, _) => format!("ended an unfinished build of `{name}`; the prefix was not touched"),
    }])
}

fn after_seal(layout: &Layout, record: &Record) -> Result<Vec<String>> {
    let name = &record.name;
    let (final_path, slot) = (layout.prefix(name), layout.previous(name));
    if manifest::read(&final_path).valid().is_some() {
        return complete(layout, record);
    }
    // Somebody removed or changed the sealed prefix since. Nothing to finish; keep what there is.
    let mut lines = vec![format!("the new prefix `{name}` is gone or was changed by hand")];
    if disk::exists(&slot)? {
        lines.push(format!(
            "the old tree is kept in `{}`",
            prefix::keep(layout, name, &slot)?.display()
        ));
    }
    journal::remove(layout, name)?;
    Ok(lines)
}

fn complete(layout: &Layout, record: &Record) -> Result<Vec<String>> {
    let sealed = prefix::finish(layout, record)?;
    let mut lines = vec![format!("finished the sealed prefix `{}`", record.name)];
    lines.extend(sealed.lines());
    Ok(lines)
}

fn put_back(layout: &Layout, name: &BuildName, tree: &Path) -> Result<()> {
    let final_path = layout.prefix(name);
    if disk::exists(&final_path)? {
        return Err(in_the_way(&final_path, tree));
    }
    disk::move_tree(tree, &final_path)?;
    prefix::sync_places(layout, &layout.previous(name))
}

/// Trees in the slots without a record: no crash leaves them, but a lost record may.
fn strays(layout: &Layout, name: &BuildName) -> Result<Vec<String>> {
    let final_path = layout.prefix(name);
    let mut lines = Vec::new();
    for tree in [layout.previous(name), layout.swap(name)] {
        if !disk::exists(&tree)? {
            continue;
        }
        let whole = manifest::read_moved(&tree, &final_path).valid().is_some();
        if whole && !disk::exists(&final_path)? {
            put_back(layout, name, &tree)?;
            lines.push(format!("put the prefix `{name}` back"));
        } else {
            let kept = prefix::keep(layout, name, &tree)?;
            lines.push(format!(
                "kept a tree of `{name}` that no record explains in `{}`",
                kept.display()
            ));
        }
    }
    Ok(lines)
}
