//! Removes what crashes and failures leave behind, at the start of commands that change the store.
//!
//! Runs under the shared lock of the store; touches a name's things only while its lock is free.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;

use super::lock::Locks;
use super::{alias, disk, journal};
use crate::error::{IoContext, Result};
use crate::layout::{Layout, manifest_file};
use crate::model::name::BuildName;

/// What may stay.
#[derive(Debug, Clone)]
pub struct SweepPolicy {
    /// Work directories that are still wanted: kept by a failure to go on from.
    pub wanted: BTreeSet<PathBuf>,
    /// Newest trees of failed builds that stay.
    pub failed_trees: usize,
    /// Age beyond which they go all the same.
    pub failed_age: Duration,
}

impl Default for SweepPolicy {
    /// Ten failed trees for two weeks; no work directory.
    fn default() -> Self {
        SweepPolicy {
            wanted: BTreeSet::new(),
            failed_trees: 10,
            failed_age: Duration::from_secs(14 * 24 * 3600),
        }
    }
}

/// Sweeps; says what it removed that a user could miss, and what it could not remove.
pub fn sweep(layout: &Layout, locks: &Locks, policy: &SweepPolicy) -> Result<Vec<String>> {
    super::prepare(layout)?;
    let mut lines = Vec::new();
    work_dirs(layout, locks, policy, &mut lines)?;
    failed_trees(layout, policy, &mut lines)?;
    temp_files(layout)?;
    logs(layout, locks)?;
    dangling_links(layout, locks, &mut lines)?;
    // Last, for all the above goes there.
    empty_trash(layout, &mut lines)?;
    Ok(lines)
}

/// The build a work directory is of: its name without the eight digits of the identity.
fn build_of(work: &str) -> Option<BuildName> {
    let (name, id8) = work.rsplit_once('-')?;
    let is_id = !id8.is_empty() && id8.len() <= 8 && id8.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { name.parse().ok() } else { None }
}

fn work_dirs(layout: &Layout, locks: &Locks, policy: &SweepPolicy, lines: &mut Vec<String>) -> Result<()> {
    for entry in disk::names_in(&layout.work_root())? {
        let dir = layout.work_root().join(&entry);
        let Some(name) = entry.to_str().and_then(build_of) else {
            continue;
        };
        if policy.wanted.contains(&dir) {
            continue;
        }
        if let Some(_guard) = locks.try_prefix(&name)? {
            // A leftover process or the user's shell: whoever builds there next deals with it.
            if super::procs::holders(&dir)?.is_empty() {
                disk::discard(layout, &dir)?;
                lines.push(format!("removed the work directory `{}`", dir.display()));
            }
        }
    }
    Ok(())
}

fn failed_trees(layout: &Layout, policy: &SweepPolicy, lines: &mut Vec<String>) -> Result<()> {
    let mut trees = Vec::new();
    for entry in disk::names_in(&layout.failed())? {
        let tree = layout.failed().join(entry);
        let meta = fs::symlink_metadata(&tree).doing(|| "cannot look at a failed tree".into())?;
        // When it was put there: a move leaves the time of the last write as it was.
        trees.push((meta.mtime().max(meta.ctime()), tree));
    }
    trees.sort_by(|a, b| b.cmp(a));
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    for (place, (time, tree)) in trees.iter().enumerate() {
        let age = now.saturating_sub(u64::try_from(*time).unwrap_or(0));
        if place >= policy.failed_trees || age > policy.failed_age.as_secs() {
            disk::discard(layout, tree)?;
            lines.push(format!("removed the failed tree `{}`", tree.display()));
        }
    }
    Ok(())
}

/// Temporary files of processes that are gone.
fn temp_files(layout: &Layout) -> Result<()> {
    for dir in [layout.state(), layout.journal()] {
        for name in disk::names_in(&dir)? {
            let Some(pid) = disk::temp_owner(&name) else { continue };
            if !lives(&pid.to_string()) {
                disk::remove_file(&dir.join(name))?;
            }
        }
    }
    Ok(())
}

/// Logs that are older than the seal of their build: it had them in its prefix when it ended. Those of a
/// failure are younger than the prefix, or there is none.
fn logs(layout: &Layout, locks: &Locks) -> Result<()> {
    for entry in disk::names_in(&layout.state().join("logs"))? {
        let Some(name) = entry.to_str().and_then(|n| n.parse::<BuildName>().ok()) else {
            continue;
        };
        let dir = layout.logs(&name);
        let time = |path: &Path| fs::symlink_metadata(path).and_then(|m| m.modified()).ok();
        let done = || match (time(&dir), time(&manifest_file(&layout.prefix(&name)))) {
            (Some(logged), Some(sealed)) => dir.is_dir() && logged <= sealed,
            _ => false,
        };
        if done()
            && let Some(_guard) = locks.try_prefix(&name)?
            && done()
        {
            disk::discard(layout, &dir)?;
        }
    }
    Ok(())
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

fn dangling_links(layout: &Layout, locks: &Locks, lines: &mut Vec<String>) -> Result<()> {
    for (alias, name) in alias::dangling(layout)? {
        if disk::exists(&layout.prefix(&name))? {
            continue;
        }
        // A prefix on its way to its place may be missing for a moment.
        let Some(_guard) = locks.try_prefix(&name)? else {
            continue;
        };
        if journal::read(layout, &name)?.is_none() && !disk::exists(&layout.prefix(&name))? {
            alias::remove(layout, &alias)?;
            lines.push(format!("removed the link `{alias}`: `{name}` is gone"));
        }
    }
    Ok(())
}

/// Something that cannot be deleted (a mount point in a failed tree) must not stop every command.
fn empty_trash(layout: &Layout, lines: &mut Vec<String>) -> Result<()> {
    for entry in disk::names_in(&layout.trash())? {
        if let Err(error) = disk::remove_tree(&layout.trash().join(entry)) {
            lines.push(format!("{}: {}", error.headline(), error.causes().join(": ")));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::lock::{LockWait, Locking};

    #[test]
    fn work_directories_tell_their_build() {
        let name = |text: &str| build_of(text).map(|name| name.to_string());
        assert_eq!(name("pg160_o3-0123abcd").as_deref(), Some("pg160_o3"));
        assert_eq!(name("je-5.2.1.prod-0123abcd").as_deref(), Some("je-5.2.1.prod"));
        assert_eq!(name(".trash"), None);
        assert_eq!(name("pg160_o3-notes"), None);
    }

    #[test]
    fn only_what_nobody_wants_goes() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("root"), dir.path().join("cache"));
        let locks = || Locks::new(&layout, "bm", Locking::On);
        let name = |text: &str| -> BuildName { text.parse().unwrap() };
        let [dead, busy, wanted] = ["dead", "busy", "wanted"].map(|n| layout.work(&name(n), "0123abcd").0);
        for tree in [
            &dead,
            &busy,
            &wanted,
            &layout.trash().join("1-0-x"),
            &layout.work_root().join("notes"),
        ] {
            fs::create_dir_all(tree.join("sub")).unwrap();
        }
        for n in 0..4 {
            fs::create_dir_all(layout.failed().join(format!("pg-{n}"))).unwrap();
        }
        // No process has the largest id; pid 1 always lives.
        fs::write(layout.state().join(".bm-4194304-a"), "").unwrap();
        fs::write(layout.state().join(".bm-1-b"), "").unwrap();
        fs::os::unix::fs::symlink("nothing", layout.prefix(&name("alias"))).unwrap();
        fs::os::unix::fs::symlink("/nowhere", layout.prefix(&name("foreign"))).unwrap();
        let _busy = locks().prefix(&name("busy"), LockWait::ForEver, &|_| {}).unwrap();
        let policy = SweepPolicy {
            wanted: [wanted.clone()].into(),
            failed_trees: 3,
            ..SweepPolicy::default()
        };
        let lines = sweep(&layout, &locks(), &policy).unwrap();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(!dead.exists() && busy.exists() && wanted.exists() && layout.work_root().join("notes").exists());
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(layout.failed()).unwrap().count(), 3);
        assert!(!layout.state().join(".bm-4194304-a").exists() && layout.state().join(".bm-1-b").exists());
        assert!(!disk::exists(&layout.prefix(&name("alias"))).unwrap());
        assert!(disk::exists(&layout.prefix(&name("foreign"))).unwrap());
        assert_eq!(sweep(&layout, &locks(), &policy).unwrap(), Vec::<String>::new());
    }
}
