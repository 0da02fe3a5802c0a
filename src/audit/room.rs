//! Room for large links: one that would not fit into memory now waits until others have ended.
//!
//! Links that wait do so one after another, in a lock beside the job budget that the linker keeps until it ends; so
//! two large ones never start into the same gap. Nobody waits for ever: what still does not fit then is tried, and
//! may be killed by the system, which is recognised elsewhere. Knows no builds.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::probe::machine;
use crate::text;

/// Longest wait of one link that is first in the row.
const BOUND: Duration = Duration::from_secs(120);
/// Pause between looks.
const PAUSE: Duration = Duration::from_millis(250);

/// Waits until `need` bytes of memory are available, if they are not now. What comes back is to be kept until the
/// link has ended; a program that is started in this process's place inherits it.
pub(super) fn wait(lock: &Path, need: u64) -> Option<File> {
    wait_within(lock, need, BOUND, &machine::available_memory)
}

fn wait_within(lock: &Path, need: u64, bound: Duration, available: &dyn Fn() -> u64) -> Option<File> {
    let free = available();
    if free >= need {
        return None;
    }
    let file = File::options().create(true).append(true).open(lock).ok()?;
    // The step's log.
    let _ = writeln!(
        std::io::stderr(),
        "bm: this link waits for memory: it needs about {}, and {} are available",
        text::size(need),
        text::size(free)
    );
    file.lock().ok()?;
    let start = Instant::now();
    while available() < need && start.elapsed() < bound {
        std::thread::sleep(PAUSE.min(bound));
    }
    // Failing, the lock goes when this process does.
    let _ = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty());
    Some(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_link_waits_for_room_in_a_row_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("large");
        assert!(wait_within(&lock, 10, BOUND, &|| 10).is_none() && !lock.exists());
        // Room comes at the third look.
        let looks = Cell::new(0);
        let growing = || {
            looks.set(looks.get() + 1);
            if looks.get() < 3 { 5 } else { 10 }
        };
        let held = wait_within(&lock, 10, BOUND, &growing).unwrap();
        assert_eq!(looks.get(), 3);
        assert!(
            !rustix::io::fcntl_getfd(&held)
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
        // The next one stands behind it.
        assert!(File::open(&lock).unwrap().try_lock().is_err());
        drop(held);
        assert!(
            wait_within(&lock, 10, Duration::ZERO, &|| 0).is_some(),
            "tried all the same"
        );
        assert!(
            wait_within(Path::new("/proc/none/large"), 10, BOUND, &|| 0).is_none(),
            "no place, no wait"
        );
    }
}
