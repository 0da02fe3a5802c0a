//! Running, stopping and repeating: the real bm builds a small product of our own, is interrupted and
//! killed at chosen moments, and is run again.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "support/run.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::process::Signal;
use serde_json::json;
use support::{Run, Space, has, program};

// ---- again -------------------------------------------------------------------------------------

#[test]
fn a_second_run_is_fresh_and_writes_nothing_but_what_it_learned() {
    let space = Space::new();
    space.ok(&["build", "fk10_o2", "fk1_o2"]);
    let (index, state) = (space.root().join(".bm/index.json"), space.root().join(".bm"));
    let snapshot = || {
        let mut there = space.snapshot();
        // The lock says who holds it.
        there.retain(|path, _| !path.starts_with(state.join("locks")));
        assert!(there.len() > 10);
        there
    };
    let again = || {
        let again = space.ok(&["build", "fk10_o2", "fk1_o2"]);
        again.assert(0, &[&["Fresh", "fk10_o2"], &["Done", "0 built, 1 fresh"]]);
        snapshot()
    };
    let (mut before, mut after) = (snapshot(), again());
    // A manifest is remembered when it has been there for a moment.
    while !index.exists() {
        after = again();
    }
    for there in [&mut before, &mut after] {
        there.retain(|path, _| *path != index && *path != state);
    }
    assert_eq!(before, after);
    assert_eq!(snapshot(), again(), "a later run learns nothing new");
}

#[test]
fn a_run_with_nothing_to_do_opens_no_manifest_and_locks_no_build() {
    if !can_trace() {
        return;
    }
    let mut space = Space::new();
    space.release("1.1");
    let builds = ["build", "fk10_o2", "fk11_o2"];
    space.ok(&builds);
    let remembered = |text: String| text.contains("fk10_o2") && text.contains("fk11_o2");
    while !fs::read_to_string(space.root().join(".bm/index.json")).is_ok_and(remembered) {
        space.ok(&builds);
    }
    let calls = space.path("calls");
    let trace = || {
        let mut strace = Command::new("strace");
        space.dress(&mut strace);
        strace.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(&calls);
        strace.arg(support::BM).args(builds);
        Run::start(strace).wait().assert(0, &[&["Done", "0 built, 2 fresh"]]);
        let text = fs::read_to_string(&calls).unwrap();
        let of = |what: &str, opened: bool| {
            let lines = text.lines().filter(|line| line.contains(what));
            lines.filter(|line| line.contains("open") == opened).count()
        };
        // The words that are looked for are the ones bm uses: the store's own lock, and looking at manifests.
        assert!(
            of(".bm/locks/gc", true) > 0 && of("manifest.json", false) >= 2,
            "{text}"
        );
        let of_name = |name: &str| of(&format!("{name}/.bm/manifest.json"), true);
        (of_name("fk10_o2"), of_name("fk11_o2"), of(".bm/locks/prefix-", true))
    };
    assert_eq!(trace(), (0, 0, 0));
    // Whatever changes about a manifest, it is read again; the other one is not.
    let file = space.prefix("fk10_o2").join(".bm/manifest.json");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (changed, other, locks) = trace();
    assert!(changed > 0 && (other, locks) == (0, 0), "{changed} {other} {locks}");
    // It is remembered again when it has been there for a moment.
    assert!((0..20).any(|_| trace() == (0, 0, 0)));
}

#[test]
fn the_recipe_kept_in_a_prefix_plans_the_same_build_again() {
    let mut space = Space::new();
    space.ok(&["build", "fk10_o2"]);
    let kept = space.path("kept");
    let copied = std::process::Command::new("cp")
        .args([
            "-a".as_ref(),
            space.prefix("fk10_o2").join(".bm/recipe").as_os_str(),
            kept.as_os_str(),
        ])
        .status()
        .unwrap();
    assert!(copied.success() && kept.join("toolchains/gcc.toml").is_file());
    // What ships now has moved on; the kept recipe has not.
    space.recipe.tail = "[[flags]]\ncflags = [\"-fno-strict-aliasing\"]\n".into();
    assert_eq!(space.run(&["build", "fk10_o2"]).code, 6);
    space
        .ok(&["build", "fk10_o2", "--recipes", kept.to_str().unwrap()])
        .assert(0, &[&["Fresh", "fk10_o2"]]);
}

#[test]
fn a_build_goes_on_while_bm_itself_is_replaced() {
    let mut space = Space::new();
    let mut gate = space.gate("compile");
    space.release("1.0");
    let old = space.path("old-bm");
    fs::copy(support::BM, &old).unwrap();
    // Writes the overlay; what is run is the copy.
    drop(space.bm(&[]));
    let mut replaced = Command::new(&old);
    space.dress(&mut replaced);
    replaced.args(["build", "fk10_o2"]);
    let run = Run::start(replaced);
    gate.reached();
    fs::remove_file(&old).unwrap();
    gate.open();
    let ran = run.wait();
    assert_eq!(ran.code, 0, "{}", ran.all());
    assert!(space.prefix("fk10_o2").join(".bm/manifest.json").is_file());
}

#[test]
fn a_changed_recipe_is_refused_until_a_rebuild_which_keeps_the_users_files() {
    let mut space = Space::new();
    space.ok(&["build", "fk10_o2"]);
    let old = space.manifest("fk10_o2");
    for extra in ["ini.sh", "data/base/1"] {
        let path = space.prefix("fk10_o2").join(extra);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, extra).unwrap();
    }
    space.recipe.tail = "[[flags]]\ncflags = [\"-fno-strict-aliasing\"]\n".into();
    let refused = space.run(&["build", "fk10_o2"]);
    refused.assert(
        6,
        &[
            &["fk10_o2", "other inputs"],
            &["-fno-strict-aliasing"],
            &["hint:", "--rebuild"],
        ],
    );
    assert_eq!(space.manifest("fk10_o2"), old);
    let plan = space.ok(&["plan", "fk10_o2", "--json"]).json();
    assert_eq!(plan["builds"][0]["action"], "refuse");
    space
        .ok(&["build", "fk10_o2", "--rebuild"])
        .assert(0, &[&["Built", "fk10_o2"], &["carried over", "ini.sh"]]);
    assert_ne!(space.manifest("fk10_o2")["identity"], old["identity"]);
    for extra in ["ini.sh", "data/base/1"] {
        assert_eq!(fs::read_to_string(space.prefix("fk10_o2").join(extra)).unwrap(), extra);
    }
    space.ok(&["verify", "fk10_o2"]);
    space.assert_tidy();
}

/// A gcc that is another program and another package, and compiles as the real one does.
fn another_gcc(space: &mut Space, package: &str) {
    let bin = space.path("tools");
    let script = format!(
        "#!/bin/sh\nif test \"$*\" = --version; then /usr/bin/gcc --version | sed '1s/([^)]*)/({package})/'; exit; fi\n\
         exec /usr/bin/gcc \"$@\"\n"
    );
    program(&bin.join("gcc"), &script);
    space.first_on_path = Some(bin);
}

#[test]
fn an_update_of_the_compiler_keeps_builds_and_says_so_in_one_line() {
    let mut space = Space::new();
    space.release("1.1");
    space.ok(&["build", "fk10_o2"]);
    let old = space.manifest("fk10_o2");
    another_gcc(&mut space, "Another 1-2");
    let kept = space.ok(&["build", "fk10_o2"]);
    let lines: Vec<&str> = kept.err.lines().filter(|l| l.contains("toolchain.cc")).collect();
    assert_eq!(lines.len(), 1, "{}", kept.all());
    kept.assert(
        0,
        &[
            &["Kept", "fk10_o2", "--rebuild=stale"],
            &["Done", "0 built, 0 fresh, 1 kept"],
        ],
    );
    assert_eq!(space.manifest("fk10_o2"), old);

    // A study that would compare two compilers.
    space.ok(&["build", "fk10_o2", "fk11_o2"]).assert(
        0,
        &[
            &["Built", "fk11_o2"],
            &["warning:", "different compilers", "Another 1-2", "`gcc`"],
        ],
    );
    space
        .ok(&["build", "fk10_o2", "fk11_o2", "--rebuild=stale"])
        .assert(0, &[&["Built", "fk10_o2"], &["Fresh", "fk11_o2"]]);
    let cc = &space.manifest("fk10_o2")["toolchain"]["tools"]["cc"];
    assert!(cc["version"].as_str().unwrap().contains("Another 1-2"), "{cc}");
    let quiet = space.ok(&["build", "fk10_o2", "fk11_o2"]);
    assert!(!quiet.says(&["warning"]), "{}", quiet.all());
}

#[test]
fn compilers_of_one_version_and_other_content_are_told_apart() {
    let mut space = Space::new();
    space.release("1.1");
    for (release, turn) in [("fk10_o2", "# one"), ("fk11_o2", "# two")] {
        let bin = space.path("tools");
        program(
            &bin.join("gcc"),
            &format!("#!/bin/sh\n{turn}\nexec /usr/bin/gcc \"$@\"\n"),
        );
        space.first_on_path = Some(bin);
        space.ok(&["build", release]);
    }
    space.ok(&["build", "fk10_o2", "fk11_o2"]).assert(
        0,
        &[
            &["Kept", "fk10_o2", "toolchain.cc.sha256"],
            &["warning:", "different compilers"],
        ],
    );
}

// ---- killed ------------------------------------------------------------------------------------

/// After a kill: another build converges, and nothing half done is left.
fn converges(space: &Space, name: &str, what: &str) {
    let ran = space.run(&["build", name]);
    assert_eq!(ran.code, 0, "{what}: {}", ran.all());
    space.ok(&["verify", name]);
    assert_eq!(
        space.ok(&["path", name]).out,
        format!("{}\n", space.prefix(name).display())
    );
    space.assert_tidy();
    assert_eq!(space.names_in(""), [".bm", name], "{what}");
}

#[test]
fn a_kill_while_a_child_runs_leaves_no_orphan_and_no_half_prefix() {
    let mut space = Space::new();
    let mut gates = ["configure", "compile", "install"].map(|step| space.gate(step));
    space.release("1.0");
    for at in 0..gates.len() {
        let bm = Run::start(space.bm(&["build", "fk10_o2"]));
        for gate in &mut gates[..at] {
            gate.reached();
            gate.open();
        }
        gates[at].reached();
        bm.signal(Signal::KILL);
        assert_eq!(bm.wait().code, 128 + 9);
        gates[at].all_dead();
        assert!(!space.prefix("fk10_o2").exists());
        assert_eq!(space.ok(&["list", "--built"]).out, "\n");
    }
    gates.iter().for_each(|gate| gate.disarm());
    converges(&space, "fk10_o2", "a new build");

    // The same over a prefix that is there.
    let old = (space.manifest("fk10_o2"), space.files_of("fk10_o2"));
    for at in 0..gates.len() {
        gates.iter().for_each(|gate| gate.arm());
        let bm = Run::start(space.bm(&["build", "fk10_o2", "--rebuild"]));
        for gate in &mut gates[..at] {
            gate.reached();
            gate.open();
        }
        gates[at].reached();
        bm.signal(Signal::KILL);
        assert_eq!(bm.wait().code, 128 + 9);
        gates[at].all_dead();
        space.ok(&["verify", "fk10_o2"]);
        assert_eq!((space.manifest("fk10_o2"), space.files_of("fk10_o2")), old);
        space.ok(&["exec", "fk10_o2", "--", "fakedb"]);
    }
    gates.iter().for_each(|gate| gate.disarm());
    space.ok(&["build", "fk10_o2", "--rebuild"]).assert(0, &[&["Built"]]);
    converges(&space, "fk10_o2", "a rebuild");
}

/// Runs bm under strace, killed at its `n`-th call of a kind; `None` if it got to its end.
fn killed_at(space: &Space, call: &str, n: usize, args: &[&str]) -> Option<()> {
    let mut strace = Command::new("strace");
    space.dress(&mut strace);
    space.bm(&[]); // writes the recipe
    let inject = format!("inject={call}:signal=KILL:when={n}");
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"));
    strace.args(["-e", &inject, support::BM]).args(args);
    let ran = Run::start(strace).wait();
    match ran.code {
        137 => Some(()),
        0 => None,
        _ => panic!("{call} {n}: {}", ran.all()),
    }
}

fn can_trace() -> bool {
    let works = has("strace")
        && Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !works {
        eprintln!("skipped: strace is missing or may not trace here");
    }
    works
}

/// Kinds of system calls that only bm makes, and that place and seal a prefix.
/// The calls before and after each of them are made by the tests of the store.
const MOMENTS: [&str; 3] = ["renameat2", "renameat", "syncfs"];
/// More than a build has of each.
const MOST: usize = 20;

#[test]
fn a_kill_while_placing_and_sealing_a_new_prefix_converges() {
    if !can_trace() {
        return;
    }
    let space = Space::new();
    for call in MOMENTS {
        let kills = (1..MOST)
            .take_while(|n| {
                let killed = killed_at(&space, call, *n, &["build", "fk10_o2", "-p", "1"]).is_some();
                converges(&space, "fk10_o2", &format!("{call} {n}"));
                space.ok(&["rm", "fk10_o2"]);
                killed
            })
            .count();
        assert!((1..MOST - 1).contains(&kills), "{kills} kills at {call}");
    }
}

#[test]
fn a_kill_while_placing_and_sealing_a_rebuild_leaves_the_old_prefix_or_the_new_one() {
    if !can_trace() {
        return;
    }
    let space = Space::new();
    space.ok(&["build", "fk10_o2"]);
    let mine = space.prefix("fk10_o2").join("etc/my.cnf");
    fs::create_dir_all(mine.parent().unwrap()).unwrap();
    fs::write(&mine, "mine").unwrap();
    let (mut old, mut new) = (0, 0);
    for call in MOMENTS {
        let kills = (1..MOST)
            .take_while(|n| {
                let ino = manifest_inode(&space);
                let killed = killed_at(&space, call, *n, &["build", "fk10_o2", "--rebuild", "-p", "1"]).is_some();
                // Any command that changes the store repairs it; this one finds a prefix in its place.
                let ran = space.ok(&["build", "fk10_o2"]);
                ran.assert(0, &[&["Fresh", "fk10_o2"]]);
                assert_eq!(fs::read_to_string(&mine).unwrap(), "mine", "{call} {n}: {}", ran.all());
                space.ok(&["exec", "fk10_o2", "--", "fakedb"]);
                if killed {
                    if manifest_inode(&space) == ino {
                        old += 1
                    } else {
                        new += 1
                    }
                }
                // A killed build keeps its work tree and its logs to go on from, a sealed one neither.
                space.ok(&["verify", "fk10_o2"]);
                assert_eq!(space.names_in(""), [".bm", "fk10_o2"]);
                if manifest_inode(&space) != ino {
                    space.assert_tidy();
                }
                space.assert_no_jobs();
                for dir in [".bm/journal", ".bm/previous", ".bm/work/.trash"] {
                    assert_eq!(space.names_in(dir), Vec::<String>::new(), "{call} {n}: {dir}");
                }
                killed
            })
            .count();
        assert!((1..MOST - 1).contains(&kills), "{kills} kills at {call}");
    }
    assert!(old > 0 && new > 0, "the kills lost their teeth: old {old}, new {new}");
    space.ok(&["build", "fk10_o2", "--rebuild"]);
    converges(&space, "fk10_o2", "after all");
}

fn manifest_inode(space: &Space) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(space.prefix("fk10_o2").join(".bm/manifest.json"))
        .unwrap()
        .ino()
}

// ---- two at once -------------------------------------------------------------------------------

#[test]
fn of_two_builds_of_one_name_one_waits_and_says_for_whom() {
    let mut space = Space::new();
    let mut gate = space.gate("compile");
    space.release("1.0");
    let mut first = Run::start(space.bm(&["build", "fk10_o2"]));
    gate.reached();
    let mut second = Run::start(space.bm(&["build", "fk10_o2"]));
    second.wait_for("Waiting");
    let holder = format!("process {} ", first.pid());
    assert!(second.said().contains(&holder), "{}", second.said());
    // One that will not wait learns the same.
    space.run(&["--lock-timeout", "0", "build", "fk10_o2"]).assert(
        6,
        &[&["error:", "fk10_o2", "locked"], &["held by", &holder, "build fk10_o2"]],
    );
    assert!(first.is_running() && second.is_running());
    gate.open();
    first.wait().assert(0, &[&["Built", "fk10_o2"]]);
    second
        .wait()
        .assert(0, &[&["Fresh", "fk10_o2"], &["Done", "0 built, 1 fresh"]]);
    let history = space.ok(&["history", "--json"]).json();
    assert_eq!(history["builds"].as_array().unwrap().len(), 1, "it ran once");
    space.assert_tidy();
}

#[test]
fn several_builds_share_one_budget_of_compilers() {
    let mut space = Space::new();
    for version in ["1.1", "1.2", "1.3"] {
        space.release(version);
    }
    // A compiler that writes down when it begins and when it ends. It takes a while, so that more
    // than two would meet if there were more.
    let count = space.path("count");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" -c \"*) ;; *) exec /usr/bin/gcc \"$@\" ;; esac\n\
         echo start >> {0}\n/usr/bin/gcc \"$@\"; status=$?\nsleep 0.1\necho end >> {0}\nexit $status\n",
        count.display()
    );
    program(&space.path("tools/gcc"), &script);
    space.first_on_path = Some(space.path("tools"));
    let builds = ["fk10_o2", "fk11_o2", "fk12_o2", "fk13_o2"];
    // Configure's and the probes' compilers are none of make's.
    space.ok(&["show", "fk10_o2"]);
    fs::write(&count, "").unwrap();
    let ran = space.ok(&[&["build", "-j", "2", "-p", "4", "--ccache", "off"], builds.as_slice()].concat());
    ran.assert(0, &[&["Done", "4 built"]]);
    let (mut now, mut most, mut total) = (0, 0, 0);
    for line in fs::read_to_string(&count).unwrap().lines() {
        now += if line == "start" { 1 } else { -1 };
        most = most.max(now);
        total += i32::from(line == "start");
    }
    assert_eq!((now, most), (0, 2));
    assert!(total >= 16, "{total} compilers");
}

// ---- stopped -----------------------------------------------------------------------------------

#[test]
fn a_first_interrupt_stops_in_order_and_keeps_the_tree() {
    let mut space = Space::new();
    let mut gate = space.gate("compile");
    space.release("1.0");
    let bm = Run::start(space.bm(&["build", "fk10_o2"]));
    gate.reached();
    bm.signal(Signal::INT);
    let ran = bm.wait();
    ran.assert(130, &[&["fk10_o2", "interrupted", "compile"], &["tree:", "(kept)"]]);
    gate.all_dead();
    assert!(!space.prefix("fk10_o2").exists());
    gate.disarm();
    space
        .ok(&["build", "fk10_o2", "--from", "compile"])
        .assert(0, &[&["Built"]]);
    converges(&space, "fk10_o2", "after an interrupt");
}

#[test]
fn a_second_interrupt_kills_what_ignores_the_first() {
    let mut space = Space::new();
    // A child that will not go, and beside it one that tells when the request to go has come.
    let mut gate = space.gate_with(
        "compile",
        "(trap 'echo asked >&9; exit' TERM; echo ready >&9; while :; do sleep 1000 & wait $!; done) &\ntrap '' TERM",
    );
    space.release("1.0");
    let bm = Run::start(space.bm(&["build", "fk10_o2"]));
    let mut lines = [gate.line(), gate.line()];
    lines.sort();
    assert_eq!(lines, ["compile", "ready"]);
    bm.signal(Signal::INT);
    assert_eq!(gate.line(), "asked");
    let asked = Instant::now();
    bm.signal(Signal::INT);
    bm.wait().assert(130, &[&["fk10_o2", "interrupted"]]);
    assert!(
        asked.elapsed() < Duration::from_secs(9),
        "it waited for the grace of the first request"
    );
    gate.all_dead();
}

#[test]
fn children_that_left_their_session_are_stopped_too() {
    let mut space = Space::new();
    let mut gate = space.gate_with(
        "compile",
        "setsid sh -c 'trap \"\" HUP; sleep 1000' &\n(setsid sleep 1000 &) &\nsleep 1000 &",
    );
    space.release("1.0");
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let bm = Run::start(space.bm(&["build", "fk10_o2"]));
        gate.reached();
        bm.signal(signal);
        let code = bm.wait().code;
        assert_eq!(code, if signal == Signal::KILL { 137 } else { 130 });
        gate.all_dead();
    }
}

#[test]
fn a_process_left_in_the_background_is_ended_and_told() {
    let mut space = Space::new();
    let mut gate = space.gate_with("install", "setsid sleep 1000 &");
    space.release("1.0");
    let bm = Run::start(space.bm(&["build", "fk10_o2"]));
    gate.reached();
    // Comes back when the last that held the gate is dead.
    gate.open();
    bm.wait().assert(
        0,
        &[&["warning:", "install", "left processes behind", "sleep"], &["Built"]],
    );
}

// ---- failures ----------------------------------------------------------------------------------

/// Releases 1.0 and 1.2 are good, 1.1 does not compile.
fn one_is_broken() -> Space {
    let mut space = Space::new();
    space.release("1.2");
    let good = space
        .tree
        .insert("src/page.c".into(), "int page(void) { return nothing; }\n".into());
    space.release("1.1");
    space.tree.insert("src/page.c".into(), good.unwrap());
    space
}

#[test]
fn other_builds_go_on_after_a_failure() {
    let space = one_is_broken();
    let ran = space.run(&["build", "fk11_o2", "fk10_o2", "fk12_o2", "-p", "1"]);
    ran.assert(
        1,
        &[
            &["error:", "fk11_o2", "failed in step `compile`"],
            &["first error:", "nothing"],
            &["log:", "compile.log"],
            &["tree:", "(kept)"],
            &["by hand:", "env -i"],
            &["Done", "2 built, 0 fresh, 1 failed"],
        ],
    );
    assert_eq!(space.names_in(""), [".bm", "fk10_o2", "fk12_o2"]);
    // The worst of several failures gives the code: a source that is not the pinned one is worse.
    fs::write(space.path("mirror/fakedb-1.2.tar.gz"), "x").unwrap();
    fs::remove_dir_all(space.path("cache/downloads")).unwrap();
    space.tarball("1.0");
    let ran = space.run(&["build", "fk12_o3", "fk11_o2"]);
    ran.assert(4, &[&["Done", "0 built, 0 fresh, 2 failed"]]);
}

#[test]
fn the_first_failure_ends_the_run_where_that_is_asked_for() {
    let space = one_is_broken();
    let ran = space.run(&["build", "--fail-fast", "-p", "1", "fk11_o2", "fk10_o2", "fk12_o2"]);
    ran.assert(
        1,
        &[
            &["error:", "fk11_o2"],
            &["Skipped", "fk10_o2"],
            &["Done", "0 built, 0 fresh, 1 failed, 2 skipped"],
        ],
    );
    assert_eq!(space.names_in(""), [".bm"]);
}

#[test]
fn the_first_failure_also_stops_builds_in_flight() {
    let mut space = Space::new();
    let mut gate = space.gate("compile");
    space.release("1.0");
    // Fails only when the other one has got as far as its gate.
    let go = space.path("fail.go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    space
        .tree
        .insert("hooks/compile".into(), format!("read x <{}\nexit 1\n", go.display()));
    space.release("1.1");
    let bm = Run::start(space.bm(&["build", "--fail-fast", "-p", "2", "-j", "2", "fk10_o2", "fk11_o2"]));
    gate.reached();
    fs::write(&go, "fail\n").unwrap();
    bm.wait().assert(
        1,
        &[
            &["error:", "fk11_o2", "failed"],
            &["Skipped", "fk10_o2"],
            &["Done", "1 failed, 1 skipped"],
        ],
    );
    gate.all_dead();
}

// ---- names -------------------------------------------------------------------------------------

#[test]
fn aliases_are_links_that_follow_the_newest_release() {
    let mut space = Space::new();
    let link = |space: &Space, name: &str| fs::read_link(space.prefix(name)).unwrap().display().to_string();
    space.ok(&["build", "fk1_o3", "fk10_fast"]);
    assert_eq!(link(&space, "fk1_o3"), "fk10_o3");
    assert_eq!(link(&space, "fk10_fast"), "fk10_o3");
    assert_eq!(
        space.ok(&["path", "fk1_o3"]).out,
        format!("{}\n", space.prefix("fk10_o3").display())
    );
    space.release("1.3");
    space.ok(&["build", "fk1_o3"]);
    assert_eq!(link(&space, "fk1_o3"), "fk13_o3");
    assert_eq!(link(&space, "fk10_fast"), "fk10_o3");
    assert_eq!(
        space.ok(&["exec", "fk1_o3", "--", "fakedb", "--version"]).out,
        "fakedb 1.3\n"
    );

    space.ok(&["rm", "fk13_o3"]).assert(0, &[&["Removed", "fk13_o3"]]);
    assert_eq!(
        space.names_in(""),
        [".bm", "fk10_fast", "fk10_o3"],
        "the link went with it"
    );
    let history = space.ok(&["history", "--json"]).json();
    let names: Vec<(&str, bool)> = history["builds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| (b["manifest"]["name"].as_str().unwrap(), b["there"].as_bool().unwrap()))
        .collect();
    assert_eq!(names, [("fk10_o3", true), ("fk13_o3", false)]);
}

#[test]
fn removing_a_link_leaves_the_build_it_points_to() {
    let space = Space::new();
    space.ok(&["build", "fk10_fast"]);
    space.ok(&["rm", "fk10_fast"]);
    assert_eq!(space.names_in(""), [".bm", "fk10_o3"]);
    space.ok(&["verify", "fk10_o3"]);
}

// ---- built prefixes ----------------------------------------------------------------------------

#[test]
fn verify_finds_what_changed_what_is_gone_and_counts_what_was_added() {
    let space = Space::new();
    space.ok(&["build", "fk10_o2"]);
    let prefix = space.prefix("fk10_o2");
    fs::write(prefix.join("bin/mine.sh"), "").unwrap();
    space
        .ok(&["verify", "fk10_o2"])
        .assert(0, &[&["Intact", "fk10_o2", "1 added later"]]);
    let report = space.ok(&["verify", "fk10_o2", "--json"]).json();
    assert_eq!(report["builds"][0]["extra"], json!(["bin/mine.sh"]));

    let library = prefix.join("lib/libfk.a");
    let mut bytes = fs::read(&library).unwrap();
    bytes[100] ^= 1;
    fs::write(&library, bytes).unwrap();
    fs::remove_file(prefix.join("include/fk_config.h")).unwrap();
    space.run(&["verify", "fk10_o2"]).assert(
        5,
        &[
            &["error:", "fk10_o2", "not as it was sealed"],
            &["missing:", "include/fk_config.h"],
            &["changed:", "lib/libfk.a", "sha256"],
        ],
    );
    let report = space.run(&["verify", "fk10_o2", "--json"]);
    assert_eq!(report.code, 5);
    let build = &report.json()["builds"][0];
    assert_eq!(build["intact"], false);
    assert_eq!(build["missing"], json!(["include/fk_config.h"]));
    assert_eq!(build["changed"][0]["path"], "lib/libfk.a");
    space.ok(&["build", "fk10_o2", "--rebuild"]);
    space.ok(&["verify", "fk10_o2"]);
    assert!(prefix.join("bin/mine.sh").exists());
}

#[test]
fn env_is_safe_to_source_where_the_prefix_has_odd_characters() {
    let space = Space::new().with_root("my r;o(o)t");
    space.ok(&["build", "fk10_o2"]);
    let env = space.ok(&["env", "fk10_o2"]).out;
    let script = format!("{env}\nprintf '%s\\n' \"$BM_PREFIX\" \"$BM_NAME\" \"$BM_VERSION\"\nfakedb --version\n");
    let out = Command::new("/bin/sh").args(["-ec", &script]).output().unwrap();
    let want = format!("{}\nfk10_o2\n1.0\nfakedb 1.0\n", space.prefix("fk10_o2").display());
    assert_eq!(
        String::from_utf8(out.stdout).unwrap(),
        want,
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let json = space.ok(&["env", "fk10_o2", "--json"]).json();
    assert_eq!(json["env"]["BM_PREFIX"], space.prefix("fk10_o2").display().to_string());
}

#[test]
fn exec_gives_the_status_of_its_command() {
    let space = Space::new();
    space.ok(&["build", "fk10_o2"]);
    for (status, code) in [("0", 0), ("3", 3), ("130", 130)] {
        assert_eq!(space.run(&["exec", "fk10_o2", "--", "fkstatus", status]).code, code);
    }
    let ran = space.run(&[
        "exec",
        "fk10_o2",
        "--",
        "sh",
        "-c",
        "echo $BM_VERSION $LD_LIBRARY_PATH; kill -9 $$",
    ]);
    assert_eq!((ran.code, ran.out.as_str()), (137, "1.0\n"));
    space
        .run(&["exec", "fk10_o2", "--", "no-such-program"])
        .assert(3, &[&["cannot run `no-such-program`"]]);
    space
        .run(&["exec", "fk11_o2", "--", "true"])
        .assert(2, &[&["nothing built matches `fk11_o2`"]]);
}

#[test]
fn each_runs_one_after_another_and_keeps_logs_and_codes_apart() {
    let mut space = Space::new();
    for version in ["1.1", "1.2"] {
        space.release(version);
    }
    space.ok(&["build", "fk1*_o2"]);
    // The second of them fails; two at once would see each other's file.
    let driver = "if test -e busy; then echo two at once; exit 9; fi; echo > busy; \
                  echo {name} {version} in {prefix}; rm busy; test {version} != 1.1";
    let ran = space.run(&["each", "fk1*_o2", "--logs", "logs", "--", "sh", "-c", driver]);
    ran.assert(1, &[&["Failed", "fk11_o2", "status 1"], &["Done", "2 of 3 ran well"]]);
    for (version, name, code) in [
        ("1.0", "fk10_o2", "0\n"),
        ("1.1", "fk11_o2", "1\n"),
        ("1.2", "fk12_o2", "0\n"),
    ] {
        let read = |ending: &str| fs::read_to_string(space.path("work/logs").join(format!("{name}.{ending}"))).unwrap();
        assert_eq!(read("exit"), code);
        assert_eq!(
            read("log"),
            format!("{name} {version} in {}\n", space.prefix(name).display())
        );
    }
}

#[test]
fn logs_can_be_read_while_it_builds_and_when_it_is_sealed() {
    let mut space = Space::new();
    let mut gate = space.gate_with("compile", "echo the hook runs");
    space.release("1.0");
    let bm = Run::start(space.bm(&["build", "fk10_o2"]));
    gate.reached();
    assert!(space.ok(&["log", "fk10_o2"]).out.contains("the hook runs"));
    let follow = Run::start(space.bm(&["log", "-f", "fk10_o2", "compile"]));
    gate.open();
    bm.wait().assert(0, &[&["Built"]]);
    assert!(follow.wait().out.contains("the hook runs"));
    let sealed = space.ok(&["log", "fk10_o2", "compile"]).out;
    assert!(
        sealed.contains("the hook runs") && sealed.contains("-c ../src/src/main.c"),
        "{sealed}"
    );
    space
        .run(&["log", "fk10_o2", "brew"])
        .assert(2, &[&["unknown step `brew`"]]);
    space.run(&["log", "fk11_o2"]).assert(2, &[&["no log of `fk11_o2`"]]);
}

#[test]
fn a_shell_opens_in_the_kept_tree() {
    let space = one_is_broken();
    assert_eq!(space.run(&["build", "fk11_o2"]).code, 1);
    let mut shell = space.bm(&["shell", "fk11_o2"]);
    let feed = space.path("feed");
    fs::write(
        &feed,
        "pwd\nmake -n fakedb | grep -c page.c\necho \"$LC_ALL $HOME\"\nexit 7\n",
    )
    .unwrap();
    shell.stdin(fs::File::open(&feed).unwrap().into_file());
    shell.env("CFLAGS", "-O0");
    let ran = Run::start(shell).wait();
    assert_eq!(ran.code, 7, "{}", ran.all());
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        lines[0].ends_with("/build") && Path::new(lines[0]).is_dir(),
        "{lines:?}"
    );
    assert_eq!(lines[1], "1");
    assert!(lines[2].starts_with("C /") && lines[2].ends_with("/home"), "{lines:?}");
    space
        .run(&["shell", "fk10_o2"])
        .assert(2, &[&["no tree of `fk10_o2` was kept"]]);
}

#[test]
fn queries_in_json_say_their_schema() {
    let mut space = Space::new();
    space.release("1.1");
    space.ok(&["build", "fk10_o2"]);
    let plan = space.ok(&["plan", "fk10_o2", "fk11_o2", "--json"]).json();
    let actions: Vec<&str> = plan["builds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["fresh", "build"]);
    let built = space.ok(&["list", "--built", "--json"]).json();
    assert_eq!(built["builds"].as_array().unwrap().len(), 1);
    assert_eq!(built["builds"][0], space.manifest("fk10_o2"));
    let shown = space.ok(&["show", "fk10_o2", "--json"]).json();
    assert_eq!(shown["identity"], built["builds"][0]["identity"]);
    assert_eq!(shown["prefix"], space.prefix("fk10_o2").display().to_string());
    let history = space.ok(&["history", "fk10_o2", "--json"]).json();
    assert_eq!(history["builds"][0]["manifest"], built["builds"][0]);
}

// ---- sources -----------------------------------------------------------------------------------

#[test]
fn a_local_tree_is_built_under_a_chosen_name() {
    let space = Space::new();
    let tree = space.path("my tree");
    space.write_tree(&tree, "1.7");
    let args = ["build", "fakedb", "--source", tree.to_str().unwrap(), "--variant", "o3"];
    space
        .run(&args)
        .assert(2, &[&["no name of its own"], &["hint:", "--name"]]);
    let named = [args.as_slice(), &["--name", "mine"]].concat();
    space.ok(&named);
    let manifest = space.manifest("mine");
    assert_eq!(
        (&manifest["version"], &manifest["variant"]),
        (&json!("1.7"), &json!("o3"))
    );
    assert_eq!(manifest["sources"][0]["kind"], "local");
    space.ok(&named).assert(0, &[&["Fresh", "mine"]]);
    fs::write(
        tree.join("src/util.c"),
        fs::read_to_string(tree.join("src/util.c")).unwrap() + "int more;\n",
    )
    .unwrap();
    space.run(&named).assert(6, &[&["source.sha256"]]);
    assert!(!tree.join("Makefile").exists(), "the tree is only read");
}

#[test]
fn a_revision_is_a_branch_a_tag_a_commit_or_of_a_fork() {
    let mut space = Space::empty();
    let first = space.commit("fakedb.git", "main", "1.4");
    space.tag("fakedb.git", "v1.4", &first);
    space.tree.insert("NEWS".into(), "a feature\n".into());
    let feature = space.commit("fakedb.git", "feature", "1.5");
    space.tree.insert("NEWS".into(), "a fork\n".into());
    let fork = space.commit("fork.git", "theirs", "1.6");
    let build = |rev: &str, more: &[&str], commit: &str, version: &str| {
        let args = [&["build", "fakedb", "--rev", rev, "--variant", "o2"], more].concat();
        let ran = space.ok(&args);
        let name = format!("fk_git_{}_o2", &commit[..9]);
        let manifest = space.manifest(&name);
        assert_eq!(manifest["sources"][0]["commit"], commit, "{}", ran.all());
        assert_eq!(manifest["version"], version);
        ran
    };
    build("feature", &[], &feature, "1.5").assert(0, &[&["Built"]]);
    build(&feature[..9], &[], &feature, "1.5").assert(0, &[&["Fresh"]]);
    build("v1.4", &[], &first, "1.4").assert(0, &[&["Built"]]);
    build(&first, &[], &first, "1.4").assert(0, &[&["Fresh"]]);
    build("main", &[], &first, "1.4").assert(0, &[&["Fresh"]]);
    build("theirs", &["--fork", "https://fakedb.example/fork.git"], &fork, "1.6").assert(0, &[&["Built"]]);
    space
        .run(&["build", "fakedb", "--rev", "theirs", "--variant", "o2"])
        .assert(4, &[&["theirs"]]);
    // A branch moves, and a build of it is another build.
    space.tree.insert("NEWS".into(), "more\n".into());
    let more = space.commit("fakedb.git", "feature", "1.5");
    space.ok(&["build", "fakedb", "--rev", "feature", "--variant", "o2"]);
    assert_eq!(
        space.manifest(&format!("fk_git_{}_o2", &more[..9]))["sources"][0]["commit"],
        more
    );
}

#[test]
fn an_unlisted_version_is_resolved_by_its_tag_and_then_locked() {
    let space = Space::new();
    let first = space.commit("fakedb.git", "main", "1.2");
    space.tag("fakedb.git", "v1.2", &first);
    space.ok(&["build", "fk12_o2"]);
    assert_eq!(space.manifest("fk12_o2")["sources"][0]["commit"], first);
    let lock = fs::read_to_string(space.root().join(".bm/lock.toml")).unwrap();
    assert!(lock.contains(&first), "{lock}");
    let second = space.commit("fakedb.git", "main", "1.2");
    space.tag("fakedb.git", "v1.2", &second);
    // What is locked and here is built; nobody asks where the tag is now.
    space.ok(&["build", "fk12_o3"]);
    assert_eq!(space.manifest("fk12_o3")["sources"][0]["commit"], first);
    // Who has to fetch sees that it moved.
    fs::remove_dir_all(space.path("cache")).unwrap();
    let ran = space.run(&["build", "fk12_o3_native"]);
    assert_eq!(ran.code, 4, "{}", ran.all());
    assert!(ran.err.contains(&first) && ran.err.contains(&second), "{}", ran.all());
}

#[test]
fn what_was_fetched_is_built_offline() {
    let mut space = Space::new();
    space.release("1.1");
    let both = ["fk10_o2", "fk11_o3"];
    let offline: Vec<&str> = [&["build", "--offline"], both.as_slice()].concat();
    // A mirror that is a directory here is no network; without it there is nothing.
    let away = || fs::rename(space.path("mirror"), space.path("gone")).unwrap();
    away();
    space
        .run(&offline)
        .assert(4, &[&["fk10_o2"], &["fk11_o3"], &["Done", "2 failed"]]);
    fs::rename(space.path("gone"), space.path("mirror")).unwrap();
    space.ok(&[&["fetch"], both.as_slice()].concat()).assert(
        0,
        &[&["Fetched", "fakedb-1.0.tar.gz"], &["Fetched", "fakedb-1.1.tar.gz"]],
    );
    away();
    space.ok(&offline).assert(0, &[&["Done", "2 built"]]);
}
