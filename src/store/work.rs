//! Work directories: taken under the prefix lock, empty before each attempt.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;

use super::procs::{self, Process};
use super::{disk, prepare};
use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::{Layout, WorkDir};

/// Looks at a process of unknown origin before it counts as somebody else's, and the time between two.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Empties and makes the work directory. Processes that a bm that died left running in it are ended,
/// and the returned lines say so. The caller holds the lock of the build.
///
/// # Errors
/// [`Exit::Store`] when somebody else's process (a shell that looks at a kept tree) is in there.
pub fn fresh_work(layout: &Layout, work: &WorkDir) -> Result<Vec<String>> {
    prepare(layout)?;
    let ended = clear_of_processes(work)?;
    if disk::exists(&work.0)? {
        // Renamed first: a tree that is half deleted never has the name of a work directory.
        let old = disk::discard(layout, &work.0)?;
        disk::remove_tree(&old)?;
    }
    let subdirs = [
        work.src(),
        work.build(),
        work.stage(),
        work.tmp(),
        work.home(),
        work.bin(),
        work.record(),
    ];
    make(&work.0, 0o711)?;
    for dir in subdirs {
        make(&dir, 0o755)?;
    }
    Ok(ended)
}

/// A directory with this mode whatever the umask is: the smoke test's unprivileged server must be
/// able to pass through.
/// Makes a kept work directory safe to go on in: no process of the earlier attempt works in it. Gives
/// what was ended.
///
/// # Errors
/// [`Exit::Store`] while somebody else's process is in it.
pub fn reuse_work(work: &WorkDir) -> Result<Vec<String>> {
    clear_of_processes(work)
}

fn make(dir: &Path, mode: u32) -> Result<()> {
    let make = || {
        fs::create_dir(dir)?;
        fs::set_permissions(dir, std::fs::Permissions::from_mode(mode))
    };
    make().doing(|| format!("cannot create the work directory `{}`", dir.display()))
}

/// Ends leftovers until none is left: a `make` may start another compiler while one is being ended.
fn clear_of_processes(work: &WorkDir) -> Result<Vec<String>> {
    // Every child of a build is started with these and nobody else is, so they tell a leftover
    // compiler from the user's shell or editor.
    let marks = [("HOME", work.home()), ("TMPDIR", work.tmp())].map(|(name, dir)| format!("{name}={}", dir.display()));
    let mut ended = Vec::new();
    let mut looks = 0;
    loop {
        let (leftovers, others): (Vec<Process>, Vec<Process>) = procs::holders(&work.0)?
            .into_iter()
            .partition(|process| procs::started_with(process.pid, &marks));
        looks += 1;
        if !others.is_empty() && looks < LOOKS {
            // A compiler that is just being started shows no environment for a moment.
            std::thread::sleep(PAUSE);
            continue;
        }
        if let Some(other) = others.first() {
            let error = Error::new(Exit::Store, format!("work directory `{}` is in use", work.0.display()));
            let error = others.iter().fold(error, |error, other| error.detail("process", other));
            return Err(error.hint(format!("let it leave the directory, or end it: kill {}", other.pid)));
        }
        if leftovers.is_empty() {
            return Ok(ended);
        }
        for Process { pid, program, .. } in leftovers {
            procs::kill(pid, || procs::started_with(pid, &marks))?;
            ended.push(format!(
                "ended process {pid} (`{program}`), left over by a bm that died"
            ));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::fixture::Idle;

    fn place() -> (tempfile::TempDir, Layout, WorkDir) {
        let dir = tempfile::tempdir().unwrap();
        // The real path, as `/proc` shows it.
        let root = fs::canonicalize(dir.path()).unwrap();
        let layout = Layout::new(root.join("root"), root.join("cache"));
        let work = layout.work(&"pg".parse().unwrap(), "0123456789");
        (dir, layout, work)
    }

    #[test]
    fn a_work_directory_is_empty_and_passable() {
        let (_dir, layout, work) = place();
        for _ in 0..2 {
            assert!(fresh_work(&layout, &work).unwrap().is_empty());
            assert_eq!(fs::read_dir(work.build()).unwrap().count(), 0);
            assert_eq!(fs::metadata(&work.0).unwrap().permissions().mode() & 0o777, 0o711);
            fs::write(work.build().join("old"), "").unwrap();
        }
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
    }

    #[test]
    fn leftover_children_are_ended_and_strangers_are_named() {
        let (_dir, layout, work) = place();
        fresh_work(&layout, &work).unwrap();
        let start = |home: &Path| {
            Idle::start("/bin/cat".as_ref(), |c| {
                c.current_dir(work.build()).env_clear().env("HOME", home)
            })
        };
        let mut leftover = start(&work.home());
        let lines = fresh_work(&layout, &work).unwrap();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains(&format!("{} (`cat`)", leftover.0.id())), "{lines:?}");
        assert!(!leftover.0.wait().unwrap().success());

        let mut stranger = start(Path::new("/"));
        let error = fresh_work(&layout, &work).unwrap_err();
        assert_eq!(error.exit(), Exit::Store);
        assert!(error.to_string().contains(&stranger.0.id().to_string()), "{error}");
        assert_eq!(stranger.0.try_wait().unwrap(), None, "not ours to end");
    }
}
