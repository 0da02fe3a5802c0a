//! Locks: who may touch what, between threads and between processes.
//!
//! Each lock is an flock on a file that is never unlinked, so that two processes can never hold "the
//! same" lock on two files. Order, fixed: `bm each`, the store (`gc`), then prefixes by name, then a mirror,
//! then a download. The kernel drops a lock with its process; what a lock file says serves the
//! message only.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant, SystemTime};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::disk;
use crate::error::{Error, Exit, IoContext, Result};
use crate::layout::Layout;
use crate::model::name::BuildName;

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Until it is free.
    ForEver,
    /// At most so long; zero tries once.
    For(Duration),
}

/// Whether locks are taken at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// They are.
    On,
    /// `--no-lock`: for file systems without locks; the user sees to it that only one bm runs.
    Off,
}

/// What a lock file says about the process that took it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Process id.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// When it took the lock, RFC 3339.
    pub since: String,
    /// Its command line.
    pub command: String,
}

/// The lock one waits for, and its holder as far as known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// What is locked: build `x`, the store.
    pub what: String,
    /// The holder; unknown while it is just writing its name, and for one of several readers.
    pub who: Option<Who>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Some(who) => write!(
                f,
                "process {} on {} (`{}`) since {}",
                who.pid, who.host, who.command, who.since
            ),
            None => f.write_str("another bm process"),
        }
    }
}

/// Time between two messages of one wait.
const REPEAT: Duration = Duration::from_secs(30);

/// Time between two looks at a lock that is held.
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Shared,
    Exclusive,
}

/// A lock's place in the fixed order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Each,
    Gc,
    Prefix(String),
    Mirror(String),
    Download(String),
}

impl Key {
    fn file(&self) -> String {
        match self {
            Key::Each => "each".into(),
            Key::Gc => "gc".into(),
            Key::Prefix(name) => format!("prefix-{name}"),
            Key::Mirror(hash) => format!("mirror-{hash}"),
            Key::Download(sha256) => format!("download-{sha256}"),
        }
    }

    fn what(&self) -> String {
        match self {
            Key::Each => "`bm each`".into(),
            Key::Gc => "the store".into(),
            Key::Prefix(name) => format!("build `{name}`"),
            Key::Mirror(hash) => format!("mirror `{hash}`"),
            Key::Download(sha256) => format!("download `{sha256}`"),
        }
    }
}

type Held = Arc<Mutex<Vec<(ThreadId, Key)>>>;

/// Tells whether the user asked to stop; looked at while waiting.
type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// All locks of one root and its cache.
#[derive(Clone)]
pub struct Locks {
    layout: Layout,
    command: String,
    locking: Locking,
    stop: Stop,
    held: Held,
}

/// A lock that is held; dropping it frees it.
#[must_use = "the lock is freed when this is dropped"]
#[derive(Debug)]
pub struct Guard {
    _file: Option<fs::File>,
    entry: (ThreadId, Key),
    held: Held,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = held.iter().position(|entry| *entry == self.entry) {
            held.swap_remove(at);
        }
    }
}

impl Locks {
    /// `command` is shown to processes that wait for this one.
    pub fn new(layout: &Layout, command: impl Into<String>, locking: Locking) -> Self {
        Locks {
            layout: layout.clone(),
            command: command.into(),
            locking,
            stop: Arc::new(|| false),
            held: Held::default(),
        }
    }

    /// Ends every wait with [`Exit::Interrupted`] as soon as `stop` says so.
    #[must_use]
    pub fn with_stop(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Arc::new(stop);
        self
    }

    /// Running drivers: measuring two servers at once would spoil both.
    pub fn each(&self, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.take(Key::Each, Access::Exclusive, wait, on_wait)
    }

    /// The store, together with other builds.
    pub fn shared_gc(&self, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.take(Key::Gc, Access::Shared, wait, on_wait)
    }

    /// The store, alone: for gc and removal.
    pub fn exclusive_gc(&self, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.take(Key::Gc, Access::Exclusive, wait, on_wait)
    }

    /// One build. Whoever takes several takes them sorted by name, and looks at the prefix again
    /// afterwards: another process may have finished the same build.
    ///
    /// # Errors
    /// [`Exit::Store`] with the holder when the time is over.
    pub fn prefix(&self, name: &BuildName, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.take(Key::Prefix(name.to_string()), Access::Exclusive, wait, on_wait)
    }

    /// One build, if nobody has it at this moment.
    pub fn try_prefix(&self, name: &BuildName) -> Result<Option<Guard>> {
        self.attempt(&Key::Prefix(name.to_string()), Access::Exclusive)
    }

    /// Whether somebody has a build at this moment. Only looks where the kernel lists its locks, so that nobody who
    /// wants the lock is kept from it, not even for a moment; where it does not list them, the lock is tried.
    pub fn is_taken(&self, name: &BuildName) -> bool {
        let path = self.path(&Key::Prefix(name.to_string()));
        let (Locking::On, Ok(meta)) = (self.locking, fs::metadata(&path)) else {
            return false;
        };
        let text = fs::read_to_string(&path).unwrap_or_default();
        let who: Option<Who> = serde_json::from_str(&text).ok();
        // Processes of other hosts and containers are not in this list.
        let here = who.as_ref().is_none_or(|who| who.host == host());
        match fs::read_to_string("/proc/locks") {
            Ok(list) if here && !list.is_empty() => is_listed(&list, &meta, who.map(|who| who.pid)),
            _ => {
                let tried = fs::File::open(&path).map(|file| file.file().try_lock_shared());
                matches!(tried, Ok(Err(std::fs::TryLockError::WouldBlock)))
            }
        }
    }

    /// One mirror, by the hash in its path.
    pub fn mirror(&self, hash: &str, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.take(Key::Mirror(hash.into()), Access::Exclusive, wait, on_wait)
    }

    /// One download, by its sha256.
    pub fn download(&self, sha256: &str, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.take(Key::Download(sha256.into()), Access::Exclusive, wait, on_wait)
    }

    fn path(&self, key: &Key) -> PathBuf {
        let dir = match key {
            Key::Each | Key::Gc | Key::Prefix(_) => self.layout.locks(),
            Key::Mirror(_) | Key::Download(_) => self.layout.cache_locks(),
        };
        dir.join(key.file())
    }

    /// Waits by looking again and again: a blocking call could neither time out, nor speak, nor stop
    /// on Ctrl-C.
    fn take(&self, key: Key, access: Access, wait: LockWait, on_wait: &dyn Fn(&Holder)) -> Result<Guard> {
        self.assert_order(&key);
        let start = Instant::now();
        let mut told: Option<Instant> = None;
        loop {
            if let Some(guard) = self.attempt(&key, access)? {
                return Ok(guard);
            }
            if matches!(wait, LockWait::For(limit) if start.elapsed() >= limit) {
                return Err(held_by(&self.holder(&key)));
            }
            if (self.stop)() {
                return Err(Error::new(
                    Exit::Interrupted,
                    format!("interrupted while waiting for {}", key.what()),
                ));
            }
            if told.is_none_or(|at| at.elapsed() >= REPEAT) {
                told = Some(Instant::now());
                on_wait(&self.holder(&key));
            }
            thread::sleep(POLL);
        }
    }

    fn attempt(&self, key: &Key, access: Access) -> Result<Option<Guard>> {
        let file = match self.locking {
            Locking::Off => None,
            Locking::On => match self.lock_file(key, access)? {
                None => return Ok(None),
                file => file,
            },
        };
        let entry = (thread::current().id(), key.clone());
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry.clone());
        Ok(Some(Guard {
            _file: file,
            entry,
            held: Arc::clone(&self.held),
        }))
    }

    fn lock_file(&self, key: &Key, access: Access) -> Result<Option<fs::File>> {
        let path = self.path(key);
        disk::make_dir(path.parent().expect("a lock file is in a directory"))?;
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .doing(|| format!("cannot open the lock of {}", key.what()))?;
        let locked = match access {
            Access::Shared => file.file().try_lock_shared(),
            Access::Exclusive => file.file().try_lock(),
        };
        match locked {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
            Err(std::fs::TryLockError::Error(e)) => return Err(cannot_lock(key, &path, &e)),
        }
        // Emptied first: a reader must not see the end of a longer, older text. A full disk is no
        // reason to refuse: the text is for the message only, the lock is what counts.
        let _ = file
            .file()
            .set_len(0)
            .and_then(|()| file.write_all(self.who().as_bytes()));
        Ok(Some(file))
    }

    fn who(&self) -> String {
        let who = Who {
            pid: std::process::id(),
            host: host(),
            since: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: self.command.clone(),
        };
        serde_json::to_string(&who).expect("text and numbers always serialise")
    }

    fn holder(&self, key: &Key) -> Holder {
        let text = fs::read_to_string(self.path(key)).unwrap_or_default();
        // The last writer may be gone while another reader of the store goes on.
        let alive = |who: &Who| who.host != host() || fs::metadata(format!("/proc/{}", who.pid)).is_ok();
        Holder {
            what: key.what(),
            who: serde_json::from_str(&text).ok().filter(alive),
        }
    }

    fn assert_order(&self, key: &Key) {
        let me = thread::current().id();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let later = held.iter().find(|(thread, held)| *thread == me && held >= key).cloned();
        drop(held);
        debug_assert!(later.is_none(), "lock {key:?} asked for while {later:?} is held");
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn held_by(holder: &Holder) -> Error {
    Error::new(Exit::Store, format!("{} is locked", holder.what))
        .detail("held by", holder)
        .hint("wait for it, or give a longer `--lock-timeout`")
}

fn cannot_lock(key: &Key, path: &std::path::Path, e: &io::Error) -> Error {
    let headline = format!("cannot lock {}", key.what());
    if !matches!(
        e.raw_os_error(),
        Some(libc::ENOLCK | libc::ENOTSUP | libc::ENOSYS | libc::EINVAL)
    ) {
        return Error::io(headline, e).detail("lock", path.display());
    }
    Error::new(Exit::Store, headline)
        .detail("lock", path.display())
        .caused_by(e)
        .caused_by("this file system has no locks, so two bm processes could spoil each other's work")
        .hint("if no other bm uses this root, run again with `--no-lock`; else choose a local disk with `--root`")
}

/// Whether a list in the form of `/proc/locks` has a lock on this file. Some file systems tell another device
/// there than to `stat`; then the process that wrote its name into the file must be the one that holds the lock.
fn is_listed(list: &str, file: &std::fs::Metadata, pid: Option<u32>) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    list.lines().any(|line| {
        // `1: FLOCK  ADVISORY  WRITE 20400 fe:00:10011663 0 EOF`; one that waits has `->` as its second word.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, holder, place, ..] = words.as_slice() else {
            return false;
        };
        let Some((device, inode)) = place.rsplit_once(':') else {
            return false;
        };
        let same_device = device == format!("{major:02x}:{minor:02x}");
        inode.parse() == Ok(file.ino()) && (same_device || holder.parse().ok() == pid)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const NOW: LockWait = LockWait::For(Duration::ZERO);

    fn layout(dir: &tempfile::TempDir) -> Layout {
        Layout::new(dir.path().join("root"), dir.path().join("cache"))
    }

    fn build(name: &str) -> BuildName {
        name.parse().unwrap()
    }

    #[test]
    fn who_only_looks_learns_whether_a_build_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["bm one", "bm two"].map(|c| Locks::new(&layout(&dir), c, Locking::On));
        assert!(!two.is_taken(&build("pg")), "nobody ever had it");
        let guard = one.try_prefix(&build("pg")).unwrap().unwrap();
        assert!(two.is_taken(&build("pg")) && !two.is_taken(&build("my")));
        drop(guard);
        // A child that another test is starting holds what this process had open until it is another program.
        let give_up = std::time::Instant::now() + Duration::from_secs(30);
        while two.is_taken(&build("pg")) {
            assert!(std::time::Instant::now() < give_up, "it is free");
            std::thread::yield_now();
        }
        let file = fs::metadata(two.path(&Key::Prefix("pg".into()))).unwrap();
        // One that waits, one of another kind, one on another file system by another process, one that counts there.
        let check = |line: &str, want: bool| {
            let line = line.replace("INODE", &std::os::unix::fs::MetadataExt::ino(&file).to_string());
            assert_eq!(is_listed(&line, &file, Some(7)), want, "{line}");
        };
        check("1: -> FLOCK  ADVISORY  WRITE 7 fffe:7f:INODE 0 EOF", false);
        check("1: POSIX  ADVISORY  WRITE 7 fffe:7f:INODE 0 EOF", false);
        check("1: FLOCK  ADVISORY  WRITE 8 fffe:7f:INODE 0 EOF", false);
        check("1: FLOCK  ADVISORY  WRITE 7 fffe:7f:INODE 0 EOF", true);
        check("1: FLOCK  ADVISORY  WRITE 7 fffe:7f:1INODE 0 EOF", false);
    }

    #[test]
    fn the_second_is_refused_with_the_first_named() {
        let dir = tempfile::tempdir().unwrap();
        let one = Locks::new(&layout(&dir), "bm build pg", Locking::On);
        let two = Locks::new(&layout(&dir), "bm rm pg", Locking::On);
        let guard = one.prefix(&build("pg"), NOW, &|_| {}).unwrap();
        let error = two.prefix(&build("pg"), NOW, &|_| {}).unwrap_err();
        assert_eq!(error.exit(), Exit::Store);
        let text = error.to_string();
        assert!(
            text.contains("build `pg` is locked") && text.contains("`bm build pg`"),
            "{text}"
        );
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        assert!(two.prefix(&build("other"), NOW, &|_| {}).is_ok());
        drop(guard);
        assert!(two.try_prefix(&build("pg")).unwrap().is_some());
        assert!(dir.path().join("root/.bm/locks/prefix-pg").exists(), "lock files stay");
    }

    #[test]
    fn readers_share_the_store_and_gc_waits_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let locks = || Locks::new(&layout(&dir), "bm", Locking::On);
        let readers = [locks(), locks()].map(|l| l.shared_gc(NOW, &|_| {}).unwrap());
        assert!(locks().exclusive_gc(NOW, &|_| {}).is_err());
        drop(readers);
        let gc = locks().exclusive_gc(NOW, &|_| {}).unwrap();
        assert!(locks().shared_gc(NOW, &|_| {}).is_err());
        drop(gc);
    }

    #[test]
    fn a_wait_tells_once_and_ends_with_the_release() {
        let dir = tempfile::tempdir().unwrap();
        let one = Locks::new(&layout(&dir), "bm build pg", Locking::On);
        let two = Locks::new(&layout(&dir), "bm", Locking::On);
        let guard = one.prefix(&build("pg"), NOW, &|_| {}).unwrap();
        let (tell, told) = mpsc::channel();
        let waiting = thread::spawn(move || {
            two.prefix(&build("pg"), LockWait::ForEver, &|holder| {
                tell.send(holder.clone()).unwrap()
            })
            .map(drop)
        });
        let holder = told.recv().unwrap();
        assert_eq!(holder.who.unwrap().command, "bm build pg");
        drop(guard);
        waiting.join().unwrap().unwrap();
        assert!(told.recv().is_err(), "told once only");
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let one = Locks::new(&layout(&dir), "bm", Locking::On);
        let two = one.clone().with_stop(|| true);
        let _guard = one.mirror("ab", NOW, &|_| {}).unwrap();
        let error = thread::scope(|s| {
            s.spawn(|| two.mirror("ab", LockWait::ForEver, &|_| {}).unwrap_err())
                .join()
                .unwrap()
        });
        assert_eq!(error.exit(), Exit::Interrupted);
    }

    #[test]
    fn without_locks_everything_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let locks = || Locks::new(&layout(&dir), "bm", Locking::Off);
        let _one = locks().prefix(&build("pg"), NOW, &|_| {}).unwrap();
        let _two = locks().prefix(&build("pg"), NOW, &|_| {}).unwrap();
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "asked for while"))]
    fn the_fixed_order_is_asserted() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::new(&layout(&dir), "bm", Locking::On);
        let _b = locks.prefix(&build("b"), NOW, &|_| {}).unwrap();
        let _a = locks.prefix(&build("a"), NOW, &|_| {}).unwrap();
    }

    #[test]
    fn a_file_system_without_locks_is_named_with_the_way_out() {
        let cases = [
            (libc::ENOLCK, Exit::Store),
            (libc::EOPNOTSUPP, Exit::Store),
            (libc::EIO, Exit::Host),
        ];
        for (errno, exit) in cases {
            let e = io::Error::from_raw_os_error(errno);
            let error = cannot_lock(&Key::Gc, std::path::Path::new("/x"), &e);
            assert_eq!(error.exit(), exit, "{error}");
            assert_eq!(
                error.hint_text().is_some_and(|h| h.contains("--no-lock")),
                exit == Exit::Store
            );
        }
    }
}
