//! The store's promises under crashes, full disks and other processes.
//!
//! Crashes are made by `strace`, which kills a copy of this program at its N-th system call of a kind,
//! for every N until the work is done. Where `strace` is missing or tracing is forbidden these tests
//! say so and pass.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "../src/store/fixture.rs"]
mod fixture;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::Duration;

use bm::digest::sha256;
use bm::error::Exit;
use bm::layout::{Layout, files_file, manifest_file};
use bm::model::manifest::Manifest;
use bm::model::name::BuildName;
use bm::store::lock::{LockWait, Locking, Locks};
use bm::store::manifest::ManifestState;
use bm::store::prefix::{Sealed, failed_tree, place};
use bm::store::sweep::{SweepPolicy, sweep};
use bm::store::{self, State, alias, files, history, manifest, recover, verify};
use fs_err as fs;

const IDENTITY: &str = "0123456789abcdef";
const NOW: LockWait = LockWait::For(Duration::ZERO);
const EXTRAS: [&str; 3] = ["my.cnf", "data/base/1", "bin/mine.sh"];

/// The tests of this program run side by side. A child that one of them starts has, until it becomes its
/// program, a copy of every file another one has open just then, locks included: the store would rightly
/// say that somebody is at work there. So a test works on its store under a shared hold, and starts
/// children under an exclusive one.
static STARTING: RwLock<()> = RwLock::new(());

type Hold = RwLockReadGuard<'static, ()>;

fn hold() -> Hold {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// A root of its own, on a file system in memory where there is one: these tests sync a lot.
struct Store {
    layout: Layout,
    name: BuildName,
    /// `None` in a child, which works in its parent's.
    dir: Option<tempfile::TempDir>,
    /// `None` only while a child is started or awaited.
    hold: RefCell<Option<Hold>>,
}

impl Store {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap());
        let store = Store::at(&fs::canonicalize(dir.path()).unwrap());
        Store {
            dir: Some(dir),
            ..store
        }
    }

    fn at(root: &Path) -> Self {
        Store {
            layout: Layout::new(root.join("root"), root.join("cache")),
            name: "pg154_o3".parse().unwrap(),
            dir: None,
            hold: RefCell::new(Some(hold())),
        }
    }

    /// Starts a child while no other test has files of a store open; nobody works on this store until
    /// [`Store::go_on`].
    fn start(&self, mut command: Command) -> Child {
        self.hold.take();
        let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        // Returns only when the child has become its program.
        command.spawn().unwrap()
    }

    fn go_on(&self) {
        self.hold.replace(Some(hold()));
    }

    /// Of the parent: where the root, the cache and the trace are.
    fn dir(&self) -> PathBuf {
        fs::canonicalize(self.dir.as_ref().unwrap().path()).unwrap()
    }

    fn prefix(&self) -> PathBuf {
        self.layout.prefix(&self.name)
    }

    fn staged(&self) -> PathBuf {
        self.layout.work(&self.name, IDENTITY).stage().join("tree")
    }

    /// A staged tree whose files tell the number of the build.
    fn stage(&self, serial: u64) -> PathBuf {
        let staged = self.staged();
        fs::create_dir_all(staged.join("bin")).unwrap();
        fs::create_dir_all(staged.join("share/empty")).unwrap();
        fs::write(staged.join("bin/server"), serial.to_string()).unwrap();
        fs::write(staged.join(format!("share/{serial}")), "").unwrap();
        files::write(&staged, &files::hash_tree(&staged).unwrap()).unwrap();
        staged
    }

    fn manifest(&self, tree: &Path, serial: u64) -> Manifest {
        let sha256 = sha256(fs::read(files_file(tree)).unwrap());
        serde_json::from_value(fixture::manifest(&self.prefix(), IDENTITY, &sha256, serial)).unwrap()
    }

    fn place_and_commit(&self, serial: u64) -> bm::error::Result<Sealed> {
        let staged = self.staged();
        let manifest = self.manifest(&staged, serial);
        place(&self.layout, &self.name, &staged, IDENTITY)?.commit(manifest)
    }

    fn build(&self, serial: u64) -> Sealed {
        self.stage(serial);
        self.place_and_commit(serial).unwrap()
    }

    fn write_extras(&self) {
        for extra in EXTRAS {
            let path = self.prefix().join(extra);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, extra).unwrap();
        }
    }

    fn extras_are_there(&self) -> bool {
        EXTRAS
            .iter()
            .all(|e| fs::read_to_string(self.prefix().join(e)).is_ok_and(|text| text == *e))
    }

    /// Which build is in place: all of its files, or panic.
    fn serial(&self) -> Option<u64> {
        if fs::symlink_metadata(self.prefix()).is_err() {
            return None;
        }
        let report = verify::verify(&self.prefix()).unwrap();
        assert!(report.is_intact(), "{report:?}");
        let serial = report.manifest.inputs["serial"].as_u64().unwrap();
        assert_eq!(
            fs::read_to_string(self.prefix().join("bin/server")).unwrap(),
            serial.to_string()
        );
        assert!(
            report.extra.iter().all(|e| !e.starts_with("share")),
            "a mix: {report:?}"
        );
        Some(serial)
    }

    fn locks(&self) -> Locks {
        Locks::new(&self.layout, "bm test", Locking::On)
    }

    /// After a recovery and a sweep nothing is left but the prefix and what is meant to stay.
    fn assert_no_litter(&self) {
        let names = |dir: &Path| -> BTreeSet<String> {
            let entries = fs::read_dir(dir).map(|read| read.map(|e| e.unwrap().file_name().into_string().unwrap()));
            entries.map(Iterator::collect).unwrap_or_default()
        };
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let state = self.layout.state();
        assert_eq!(
            names(&state),
            set(&["failed", "history", "journal", "locks", "previous", "work"])
        );
        for empty in ["failed", "journal", "previous"] {
            assert_eq!(names(&state.join(empty)), set(&[]), "{empty}");
        }
        assert!(names(&self.layout.work_root()).is_subset(&set(&[".trash"])));
        assert_eq!(names(&self.layout.trash()), set(&[]));
        assert!(names(self.layout.root()).is_subset(&set(&[".bm", self.name.as_str()])));
        if self.prefix().exists() {
            assert_eq!(names(&self.prefix().join(".bm")), set(&["files.json", "manifest.json"]));
        }
    }

    fn recover(&self) -> Vec<String> {
        recover::recover_all(&self.layout, &self.locks()).unwrap()
    }
}

/// This program again, as a process of its own: the test `child` with what to do.
fn child_command(program: &[&str], task: &str, store: &Store) -> Command {
    let me = std::env::current_exe().unwrap();
    let mut words: Vec<_> = program.iter().map(std::ffi::OsString::from).collect();
    words.push(me.into());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        // Two threads, so that the test runs beside the main thread, whose own output is then not
        // among the calls that are counted: `strace` counts for each thread.
        .args(["child", "--exact", "--ignored", "--nocapture", "--test-threads=2"])
        .env("BM_TEST_TASK", task)
        .env("BM_TEST_ROOT", store.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Writes of the child before its work, so that the main thread's few never reach the count.
const WRITES_BEFORE: usize = 20;

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let (Ok(task), Ok(root)) = (std::env::var("BM_TEST_TASK"), std::env::var("BM_TEST_ROOT")) else {
        return;
    };
    let store = Store::at(Path::new(&root));
    if task == "hold" {
        let _guard = store.locks().prefix(&store.name, NOW, &|_| {}).unwrap();
        std::io::stdout().write_all(b"held\n").unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        std::process::exit(0);
    }
    let mut nowhere = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    for _ in 0..WRITES_BEFORE {
        nowhere.write_all(b"x").unwrap();
    }
    let Err(error) = store.place_and_commit(task.parse().unwrap()) else {
        std::process::exit(0)
    };
    eprint!("{error}");
    std::process::exit(error.exit().code().into());
}

/// Whether `strace` can trace here; says why not.
fn can_trace() -> bool {
    let tried = {
        let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output()
    };
    let reason = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(e) => e.to_string(),
    };
    eprintln!("skipped: strace does not work here: {}", reason.trim_end());
    false
}

struct Traced {
    /// Whether the fault happened at all.
    injected: bool,
    /// Exit code, 137 for killed.
    code: i32,
    stderr: String,
}

/// Runs `place` and `commit` of build `serial` in a child with these faults.
fn traced(store: &Store, faults: &[String], serial: u64) -> Traced {
    let log = store.dir().join("trace");
    let mut program = vec!["strace", "-f", "-o", log.to_str().unwrap()];
    // Of other calls nothing is written to the trace.
    let calls = faults
        .iter()
        .filter_map(|fault| fault.strip_prefix("inject=")?.split(':').next());
    let trace = format!("trace={}", calls.collect::<Vec<_>>().join(","));
    program.extend(["-e", &trace]);
    for fault in faults {
        program.extend(["-e", fault]);
    }
    let child = store.start(child_command(&program, &serial.to_string(), store));
    let output = child.wait_with_output().unwrap();
    store.go_on();
    use std::os::unix::process::ExitStatusExt as _;
    let code = output
        .status
        .code()
        .or(output.status.signal().map(|s| 128 + s))
        .unwrap();
    let trace = fs::read_to_string(&log).unwrap();
    Traced {
        injected: trace.contains("(INJECTED)") || code == 137,
        code,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Kinds of calls by which the store changes the disk; a `?` skips what this machine does not have.
const CALLS: [&str; 13] = [
    "?rename",
    "?renameat",
    "renameat2",
    "fsync",
    "syncfs",
    "?unlink",
    "unlinkat",
    "?mkdir",
    "mkdirat",
    "write",
    "openat",
    "?link",
    "linkat",
];

fn first_of(call: &str) -> usize {
    match call {
        "write" => WRITES_BEFORE + 1,
        _ => 1,
    }
}

/// Kills the child before its every call, repairs, and looks. `old` is the build in place before.
fn crash_everywhere(old: Option<u64>, more_faults: &[String]) {
    if !can_trace() {
        return;
    }
    let mut outcomes = BTreeSet::new();
    let mut kills = 0;
    for call in CALLS {
        for n in first_of(call).. {
            let store = Store::new();
            if let Some(old) = old {
                store.build(old);
                store.write_extras();
            }
            store.stage(2);
            let mut faults = more_faults.to_vec();
            faults.push(format!("inject={call}:signal=KILL:when={n}"));
            let run = traced(&store, &faults, 2);
            let here = format!("{call} {n} (before: {old:?}): {}", run.stderr);
            if run.code != 137 {
                assert_eq!(run.code, 0, "{here}");
                assert_eq!(store.serial(), Some(2), "{here}");
                break;
            }
            kills += 1;
            // Nothing half done is ever listed, even before the repair.
            if store.prefix().exists() && store::list(&store.layout).unwrap()[0].state == State::Unsealed {
                assert!(manifest::read(&store.prefix()).valid().is_none());
            }
            store.recover();
            let found = store.serial();
            assert!(found == old || found == Some(2), "{here}: {found:?}");
            assert!(old.is_none() || store.extras_are_there(), "{here}: extras lost");
            outcomes.insert(found);
            sweep(&store.layout, &store.locks(), &SweepPolicy::default()).unwrap();
            store.assert_no_litter();
            assert_eq!(store.recover(), Vec::<String>::new(), "{here}: repaired twice");
            store.build(3);
            assert_eq!(store.serial(), Some(3), "{here}");
            assert!(old.is_none() || store.extras_are_there(), "{here}: extras lost");
            let remembered = history::history(&store.layout, &store.name).unwrap();
            let expected = usize::from(old.is_some()) + usize::from(found == Some(2)) + 1;
            assert_eq!(remembered.len(), expected, "{here}");
        }
    }
    assert_eq!(outcomes, [old, Some(2)].into(), "the test lost its teeth");
    assert!(kills > 30, "the test lost its teeth: {kills} kills");
}

#[test]
fn a_crash_in_a_first_build_leaves_the_whole_prefix_or_none() {
    crash_everywhere(None, &[]);
}

#[test]
fn a_crash_in_a_rebuild_leaves_the_old_prefix_or_the_new_one() {
    crash_everywhere(Some(1), &[]);
}

#[test]
fn a_crash_is_repaired_where_directories_cannot_be_exchanged() {
    crash_everywhere(Some(1), &["inject=renameat2:error=EINVAL".into()]);
}

#[test]
fn a_full_disk_is_exit_3_and_the_old_prefix_stays() {
    if !can_trace() {
        return;
    }
    let mut failures = 0;
    for (call, stays_full) in [
        ("fsync", ""),
        ("fsync", "+"),
        ("write", ""),
        ("renameat2", ""),
        ("?mkdir", ""),
    ]
    .into_iter()
    .chain([("syncfs", ""), ("syncfs", "+"), ("?rename", "+")])
    {
        for n in first_of(call).. {
            let store = Store::new();
            store.build(1);
            store.write_extras();
            store.stage(2);
            let run = traced(&store, &[format!("inject={call}:error=ENOSPC:when={n}{stays_full}")], 2);
            let here = format!("{call} {n}{stays_full}: {}", run.stderr);
            if !run.injected {
                assert_eq!(run.code, 0, "{here}");
                break;
            }
            let sealed = run.code == 0 || run.stderr.contains("\nsealed: ");
            if run.code != 0 {
                failures += 1;
                assert_eq!(run.code, i32::from(Exit::Host.code()), "{here}");
                assert!(run.stderr.contains("hint: free some space"), "{here}");
            }
            let expected = Some(if sealed { 2 } else { 1 });
            if stays_full.is_empty() {
                assert_eq!(store.serial(), expected, "{here}: not at once");
            }
            store.recover();
            assert_eq!(store.serial(), expected, "{here}");
            assert!(store.extras_are_there(), "{here}");
            sweep(&store.layout, &store.locks(), &SweepPolicy::default()).unwrap();
            store.assert_no_litter();
        }
    }
    assert!(failures > 20, "the test lost its teeth: {failures} failures");
}

#[test]
fn a_rebuild_carries_extra_files_over_and_says_so() {
    let store = Store::new();
    assert_eq!(store.build(1), Sealed::default());
    store.write_extras();
    // The next build installs a file of this name.
    fs::write(store.prefix().join("share/2"), "mine").unwrap();
    let sealed = store.build(2);
    assert_eq!(
        sealed.carried.moved,
        ["bin/mine.sh", "data", "my.cnf"].map(PathBuf::from)
    );
    assert_eq!(sealed.carried.set_aside, [PathBuf::from("share/2")]);
    assert_eq!(sealed.lines().len(), 2, "{:?}", sealed.lines());
    assert!(store.extras_are_there());
    let aside = store.prefix().join(".bm/replaced/share/2");
    assert_eq!(fs::read_to_string(aside).unwrap(), "mine");
    assert!(verify::verify(&store.prefix()).unwrap().is_intact());
    assert!(!store.prefix().join("share/1").exists());
}

#[test]
fn an_old_tree_whose_list_is_lost_is_kept_for_the_user() {
    let store = Store::new();
    store.build(1);
    store.write_extras();
    fs::write(files_file(&store.prefix()), "{}").unwrap();
    let sealed = store.build(2);
    let kept = sealed.kept.clone().unwrap();
    assert!(
        kept.starts_with(store.layout.kept()) && kept.join("my.cnf").exists(),
        "{sealed:?}"
    );
    assert_eq!(store.serial(), Some(2));
    sweep(&store.layout, &store.locks(), &SweepPolicy::default()).unwrap();
    assert!(kept.exists(), "never swept");
}

#[test]
fn a_failed_build_goes_to_failed_and_the_old_one_comes_back() {
    for old in [None, Some(1)] {
        let store = Store::new();
        if let Some(old) = old {
            store.build(old);
            store.write_extras();
        }
        let place = |serial| place(&store.layout, &store.name, &store.stage(serial), IDENTITY).unwrap();
        let placed = place(2);
        assert_eq!(fs::read_to_string(placed.prefix().join("bin/server")).unwrap(), "2");
        assert_eq!(
            store::state_of(&store.layout, &store.name).unwrap(),
            Some(State::Unsealed)
        );
        let failed = failed_tree(&store.layout, &store.name).unwrap();
        placed.roll_back(Some(&failed)).unwrap();
        assert_eq!(store.serial(), old);
        assert_eq!(fs::read_to_string(failed.join("bin/server")).unwrap(), "2");
        assert!(!failed.join(".bm/placing").exists());
        fs::remove_dir_all(&failed).unwrap();

        place(3).roll_back(None).unwrap();
        // As after a panic or an early return.
        drop(place(4));
        let wrong = store.manifest(&store.stage(5), 5);
        let error = place(6).commit(wrong).unwrap_err();
        assert_eq!(error.exit(), Exit::Bug, "the manifest speaks of another list: {error}");
        assert_eq!(store.serial(), old);
        assert!(old.is_none() || store.extras_are_there());
        sweep(&store.layout, &store.locks(), &SweepPolicy::default()).unwrap();
        store.assert_no_litter();
    }
}

#[test]
fn a_torn_or_edited_manifest_is_not_listed_as_built() {
    let store = Store::new();
    store.build(1);
    let built = |store: &Store| matches!(store::list(&store.layout).unwrap()[0].state, State::Built(_));
    assert!(built(&store));
    let file = manifest_file(&store.prefix());
    let good = fs::read_to_string(&file).unwrap();
    for bad in [
        &good[..good.len() - 9],
        &good.replace("\"variant\":\"o3\"", "\"variant\":\"o2\""),
        "",
    ] {
        fs::write(&file, bad).unwrap();
        assert!(!built(&store), "{bad}");
        assert!(matches!(manifest::read(&store.prefix()), ManifestState::Torn(_)));
        let error = store::remove(&store.layout, &store.name).unwrap_err();
        assert_eq!(error.exit(), Exit::Store);
    }
    fs::write(&file, &good).unwrap();
    assert!(built(&store));
    // Moved or copied to another name it is not that build.
    fs::rename(store.prefix(), store.layout.root().join("pg154_o2")).unwrap();
    assert!(matches!(&store::list(&store.layout).unwrap()[0].state, State::Foreign(why) if why.contains("pg154_o3")));
}

#[test]
fn what_bm_did_not_build_is_not_touched() {
    type Make = fn(&Path);
    let make: [(&str, Make); 5] = [
        ("empty directory", |p| fs::create_dir(p).unwrap()),
        ("directory", |p| {
            fs::create_dir(p).unwrap();
            fs::write(p.join("theirs"), "").unwrap();
        }),
        ("directory with half a manifest", |p| {
            fs::create_dir_all(p.join(".bm")).unwrap();
            fs::write(manifest_file(p), "{").unwrap();
        }),
        ("file", |p| fs::write(p, "theirs").unwrap()),
        ("link", |p| fs::os::unix::fs::symlink("/nowhere/at/all", p).unwrap()),
    ];
    for (what, make) in make {
        let store = Store::new();
        let staged = store.stage(1);
        make(&store.prefix());
        let before = fs::symlink_metadata(store.prefix()).unwrap();
        let error = place(&store.layout, &store.name, &staged, IDENTITY).unwrap_err();
        assert_eq!(error.exit(), Exit::Store, "{what}: {error}");
        assert!(error.hint_text().unwrap().contains("--name"), "{what}: {error}");
        assert!(store::remove(&store.layout, &store.name).is_err(), "{what}");
        assert!(staged.join("bin/server").exists(), "{what}: the staged tree stays");
        let after = fs::symlink_metadata(store.prefix()).unwrap();
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(
            (before.ino(), before.mtime_nsec()),
            (after.ino(), after.mtime_nsec()),
            "{what}"
        );
        assert_eq!(store.recover(), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_stranger_that_comes_after_a_crash_is_not_taken_for_the_new_tree() {
    let store = Store::new();
    let placed = place(&store.layout, &store.name, &store.stage(1), IDENTITY).unwrap();
    // As if bm had died here, and somebody had cleaned up by hand and put a directory of theirs there.
    std::mem::forget(placed);
    fs::remove_dir_all(store.prefix()).unwrap();
    fs::create_dir(store.prefix()).unwrap();
    fs::write(store.prefix().join("theirs"), "").unwrap();
    assert_eq!(store.recover().len(), 1);
    assert!(store.prefix().join("theirs").exists());
    assert_eq!(store.recover(), Vec::<String>::new());
}

#[test]
fn a_prefix_in_use_is_neither_rebuilt_nor_removed() {
    let store = Store::new();
    let staged = store.stage(1);
    fs::copy("/bin/cat", staged.join("bin/cat")).unwrap();
    files::write(&staged, &files::hash_tree(&staged).unwrap()).unwrap();
    store.place_and_commit(1).unwrap();
    let server = fixture::Idle::start(&store.prefix().join("bin/cat"), |c| c);
    let staged = store.stage(2);
    let errors = [
        place(&store.layout, &store.name, &staged, IDENTITY)
            .map(drop)
            .unwrap_err(),
        store::remove(&store.layout, &store.name).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.exit(), Exit::Store);
        let text = error.to_string();
        assert!(text.contains(&format!("{} (`cat`)", server.0.id())), "{text}");
    }
    assert_eq!(store.serial(), Some(1));
    drop(server);
    store.place_and_commit(2).unwrap();
    assert_eq!(store.serial(), Some(2));
}

#[test]
fn aliases_follow_and_go_with_their_prefix() {
    let store = Store::new();
    let name = |text: &str| -> BuildName { text.parse().unwrap() };
    let (series, layout) = (name("pg15_o3"), &store.layout);
    assert_eq!(
        alias::set_alias(layout, &series, &store.name).unwrap_err().exit(),
        Exit::Store,
        "not built"
    );
    store.build(1);
    alias::set_alias(layout, &series, &store.name).unwrap();
    alias::set_alias(layout, &series, &store.name).unwrap();
    assert_eq!(fs::read_link(layout.prefix(&series)).unwrap(), Path::new("pg154_o3"));
    assert_eq!(
        alias::aliases_of(layout, &store.name).unwrap(),
        std::slice::from_ref(&series)
    );
    assert_eq!(alias::target(layout, &series).unwrap(), Some(store.name.clone()));
    assert_eq!(store::list(layout).unwrap().len(), 1, "links are not listed");

    // A link of bm's to an older build is replaced, also when that is gone.
    fs::remove_file(layout.prefix(&series)).unwrap();
    fs::os::unix::fs::symlink("pg153_o3", layout.prefix(&series)).unwrap();
    alias::set_alias(layout, &series, &store.name).unwrap();
    assert_eq!(alias::target(layout, &series).unwrap(), Some(store.name.clone()));

    fs::create_dir(layout.root().join("theirs")).unwrap();
    fs::os::unix::fs::symlink("theirs", layout.root().join("their-link")).unwrap();
    fs::os::unix::fs::symlink("/tmp", layout.root().join("absolute")).unwrap();
    for foreign in ["theirs", "their-link", "absolute"] {
        let error = alias::set_alias(layout, &name(foreign), &store.name).unwrap_err();
        assert_eq!(error.exit(), Exit::Store, "{foreign}");
    }
    // A build cannot take the place of a link.
    let error = place(layout, &series, &store.stage(2), IDENTITY).unwrap_err();
    assert!(error.headline().contains("another name of build `pg154_o3`"), "{error}");

    assert!(store::remove(layout, &series).unwrap().was_alias);
    assert_eq!(store.serial(), Some(1), "only the link goes");
    alias::set_alias(layout, &series, &store.name).unwrap();
    assert_eq!(
        store::remove(layout, &store.name).unwrap().aliases,
        std::slice::from_ref(&series)
    );
    assert!(fs::symlink_metadata(layout.prefix(&series)).is_err() && !store.prefix().exists());
    assert_eq!(
        history::history(layout, &store.name).unwrap().len(),
        1,
        "what was built is remembered"
    );
    assert_eq!(store::remove(layout, &store.name).unwrap_err().exit(), Exit::Usage);
}

#[test]
fn a_second_process_is_told_of_the_first_and_gets_the_lock_after_it() {
    let store = Store::new();
    let mut holder = store.start(child_command(&[], "hold", &store));
    store.go_on();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().ends_with("held")),
        "the child took the lock"
    );

    let error = store
        .locks()
        .prefix(&store.name, NOW, &|_| panic!("no wait, no message"))
        .unwrap_err();
    assert_eq!(error.exit(), Exit::Store);
    assert!(
        error.to_string().contains(&format!("process {}", holder.id())),
        "{error}"
    );

    let (tell, told) = mpsc::channel();
    let (locks, name) = (store.locks(), store.name.clone());
    let waiting = std::thread::spawn(move || {
        let on_wait = |holder: &store::lock::Holder| tell.send(holder.who.clone()).unwrap();
        locks.prefix(&name, LockWait::ForEver, &on_wait).map(drop)
    });
    assert_eq!(told.recv().unwrap().unwrap().pid, holder.id());
    // The end of its input ends the holder, and with it the lock.
    drop(holder.stdin.take());
    waiting.join().unwrap().unwrap();
    assert!(holder.wait().unwrap().success());
    assert!(told.recv().is_err(), "told once");
}

#[test]
fn recovery_leaves_names_alone_whose_lock_is_held() {
    let store = Store::new();
    let guard = store.locks().prefix(&store.name, NOW, &|_| {}).unwrap();
    let placed = place(&store.layout, &store.name, &store.stage(1), IDENTITY).unwrap();
    assert_eq!(store.recover(), Vec::<String>::new());
    let manifest = store.manifest(&store.prefix(), 1);
    placed.commit(manifest).unwrap();
    drop(guard);
    assert_eq!(store.serial(), Some(1));
}
