//! What begins when: the order of builds, what they share, and what keeps one from beginning.
#![allow(clippy::unwrap_used)]

#[path = "support/run.rs"]
mod support;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fs_err as fs;
use serde_json::json;
use support::{BM, Ran, Run, Space};

/// What builds of these names cost when they were last made, as bm would have noted it: CPU seconds of the compile
/// step, bytes of the work tree.
fn known(space: &Space, builds: &[(&str, f64, u64)]) {
    let entry = |&(name, cpu, disk): &(&str, f64, u64)| {
        let (release, variant) = name.split_once('_').unwrap();
        let version = format!("1.{}", release.strip_prefix("fk1").unwrap());
        let compile = json!({"wall": cpu, "cpu": cpu, "max_rss_kib": 1000});
        let cost = json!({"steps": {"compile": compile}, "work_bytes": disk, "prefix_bytes": 0});
        let entry =
            json!({"product": "fakedb", "version": version, "variant": variant, "toolchain": "gcc", "cost": cost});
        (name.to_owned(), entry)
    };
    let builds: serde_json::Map<_, _> = builds.iter().map(entry).collect();
    fs::create_dir_all(space.root().join(".bm")).unwrap();
    fs::write(
        space.root().join(".bm/measured.json"),
        json!({"builds": builds}).to_string(),
    )
    .unwrap();
}

/// Names in lines that begin with a verb, in order.
fn in_order<'a>(ran: &'a Ran, verb: &str) -> Vec<&'a str> {
    let words = ran.err.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    words.filter(|w| w.first() == Some(&verb)).map(|w| w[1]).collect()
}

fn three_releases() -> Space {
    let mut space = Space::new();
    space.release("1.1");
    space.release("1.2");
    space
}

#[test]
fn the_build_that_took_longest_goes_first() {
    let space = three_releases();
    known(
        &space,
        &[("fk10_o2", 10.0, 0), ("fk11_o2", 30.0, 0), ("fk12_o2", 20.0, 0)],
    );
    // Objects from a cache would say nothing of what a build costs.
    let builds = ["fk10_o2", "fk11_o2", "fk12_o2"];
    let ran = space.ok(&[&["build", "-j1", "-p1", "--ccache", "off"][..], &builds].concat());
    assert_eq!(
        in_order(&ran, "Compiling"),
        ["fk11_o2", "fk12_o2", "fk10_o2"],
        "{}",
        ran.all()
    );
    // What it really took is known now.
    let text = fs::read_to_string(space.root().join(".bm/measured.json")).unwrap();
    let measured: serde_json::Value = serde_json::from_str(&text).unwrap();
    for name in builds {
        let cost = &measured["builds"][name]["cost"];
        let cpu = cost["steps"]["compile"]["cpu"].as_f64().unwrap();
        assert!(cpu > 0.0 && cpu < 10.0, "{cost}");
        assert!(cost["work_bytes"].as_u64().unwrap() > 10_000, "{cost}");
    }
}

#[test]
fn builds_of_one_source_fetch_it_once() {
    let mut space = three_releases();
    let ran = space.ok(&["build", "fk10_o2", "fk10_o3", "fk11_o2"]);
    let mut fetched = in_order(&ran, "Fetching");
    fetched.sort_unstable();
    let of_10 = if fetched.contains(&"fk10_o2") {
        "fk10_o2"
    } else {
        "fk10_o3"
    };
    assert_eq!(fetched, [of_10, "fk11_o2"], "{}", ran.all());
    // Nothing but the source of 1.2 can be had no more: one error, and the other build needs no second one.
    fs::write(space.path("mirror/fakedb-1.2.tar.gz"), "no archive").unwrap();
    space.recipe.versions.retain(|(id, _)| id != "1.1");
    let ran = space.run(&["build", "fk12_o2", "fk12_o3", "fk10_o3_native"]);
    ran.assert(
        4,
        &[
            &["Skipped", "fk12_o", "its source, that of `fk12_o", "is missing"],
            &["Built", "fk10_o3_native"],
            &["Done", "1 built, 0 fresh, 1 failed, 1 skipped"],
        ],
    );
    assert_eq!(ran.err.matches("error:").count(), 1, "{}", ran.all());
}

#[test]
fn a_step_whose_compiler_was_killed_goes_on_with_one_job() {
    let mut space = Space::empty();
    // The shell of make's rule is killed, as the system does it; the next time all is well.
    let notes = space.path("flags");
    let script = format!(
        "echo \"$MAKEFLAGS\" >> {}\ntest -e once && exit 0\ntouch once\nkill -9 $PPID\n",
        notes.display()
    );
    space.tree.insert("hooks/compile".into(), script);
    space.release("1.0");
    let ran = space.ok(&["build", "fk10_o2", "-j2"]);
    ran.assert(
        0,
        &[&[
            "warning:",
            "`fk10_o2` was killed",
            "memory runs out",
            "`compile` goes on with one job",
        ]],
    );
    let flags = fs::read_to_string(&notes).unwrap();
    let [first, second] = flags.lines().collect::<Vec<_>>()[..] else {
        panic!("{flags}")
    };
    assert!(
        first.contains("--jobserver-auth=") && !second.contains("jobserver"),
        "{flags}"
    );
    // One that is killed again has failed.
    space.tree.insert("hooks/compile".into(), "kill -9 $PPID\n".into());
    space.release("1.1");
    space
        .run(&["build", "fk11_o2"])
        .assert(1, &[&["fk11_o2", "failed in step `compile`"]]);
}

#[test]
fn two_bm_share_one_budget_which_can_change() {
    let mut space = Space::empty();
    let mut gate = space.gate("compile");
    space.release("1.0");
    assert_eq!(space.ok(&["jobs"]).err.trim(), "no bm builds at this moment");
    space
        .run(&["jobs", "3"])
        .assert(2, &[&["error: no bm builds at this moment"]]);
    let held = Run::start(space.bm(&["build", "fk10_o2", "-j2"]));
    gate.reached();
    let pid = held.pid().to_string();
    let usage = space.ok(&["jobs"]).out;
    assert!(usage.contains("of 2 jobs in use") && usage.contains(&pid), "{usage}");
    gate.disarm();
    let mut other = space.bm(&["build", "fk10_o2", "-j7"]);
    other.env("BM_ROOT", space.path("other"));
    let ran = Run::start(other).wait();
    ran.assert(
        0,
        &[
            &["Sharing", "a budget of 2 jobs", "process", &pid],
            &["Built", "fk10_o2"],
        ],
    );
    space.ok(&["jobs", "5"]).assert(0, &[&["Jobs", "5, were 2"]]);
    gate.open();
    held.wait().assert(0, &[&["Built", "fk10_o2"]]);
}

/// bm as a line of a makefile, with nothing else of the surroundings.
fn under_make(space: &Space, mark: &str) -> Ran {
    let makefile = space.path("Makefile");
    fs::write(&makefile, format!("all:\n\t{mark}@{BM} build fk10_o2\n")).unwrap();
    // Writes the recipe as well.
    drop(space.bm(&["build"]));
    let mut make = Command::new("make");
    space.dress(&mut make);
    make.arg0("make").args(["-j3", "-f"]).arg(&makefile);
    Run::start(make).wait()
}

#[test]
fn under_a_make_its_budget_is_used() {
    let mut space = Space::empty();
    let notes = space.path("flags");
    space.tree.insert(
        "hooks/compile".into(),
        format!("echo \"$MAKEFLAGS\" > {}\n", notes.display()),
    );
    space.release("1.0");
    under_make(&space, "+").assert(0, &[&["Joining", "the job budget of the make"], &["Built", "fk10_o2"]]);
    let flags = fs::read_to_string(&notes).unwrap();
    assert!(flags.contains("-j3") && flags.contains("--jobserver-auth="), "{flags}");
    // Without the mark make keeps its tokens back: said, and done without.
    fs::remove_dir_all(space.root()).unwrap();
    under_make(&space, "").assert(
        0,
        &[&["warning:", "mark its recipe line with `+`"], &["Built", "fk10_o2"]],
    );
}

#[test]
fn a_build_that_would_end_too_late_is_not_begun() {
    let space = three_releases();
    known(&space, &[("fk10_o2", 4000.0, 0), ("fk11_o2", 2.0, 0)]);
    let ran = space.ok(&["build", "-j2", "--until", "10m", "fk10_o2", "fk11_o2"]);
    ran.assert(
        0,
        &[
            &["Skipped", "fk10_o2: it takes about 33 min 20 s, and there are"],
            &["Built", "fk11_o2"],
            &["Done", "1 built, 0 fresh, 1 skipped"],
        ],
    );
    for (option, value, word) in [
        ("--until", "25:00", "hour"),
        ("--until", "soon", "HH:MM"),
        ("--load", "0", "above 0"),
        ("--load", "much", "above 0"),
    ] {
        space
            .run(&["build", option, value, "fk10_o2"])
            .assert(2, &[&["error:", option], &[word]]);
    }
}

#[test]
fn a_loaded_machine_gets_one_build_at_a_time() {
    let space = three_releases();
    let ran = space.ok(&["build", "-j8", "--load", "0.000001", "fk10_o2", "fk11_o2", "fk12_o2"]);
    let steps: Vec<&str> = ran
        .err
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .filter(|w| ["Unpacking", "Built"].contains(w))
        .collect();
    assert_eq!(steps, ["Unpacking", "Built"].repeat(3), "{}", ran.all());
}

#[test]
fn a_forecast_tells_time_and_disk_and_what_it_rests_on() {
    let space = three_releases();
    let guess = space.ok(&["build", "-n", "-j2", "fk10_o2"]);
    guess.assert(
        0,
        &[&[
            "Forecast",
            "1 build, about ",
            "a guess: nothing like it was built here yet",
        ]],
    );
    known(&space, &[("fk10_o2", 4000.0, 3_000_000_000)]);
    // One build spreads over both jobs; two that are like it take twice as long, and have two work trees.
    space.ok(&["build", "-n", "-j2", "fk10_o2"]).assert(
        0,
        &[&[
            "Forecast",
            "1 build, about 33 min 20 s, 3.0 GB of disk at most, 0 B of prefixes",
        ]],
    );
    space
        .ok(&["build", "-n", "-j2", "fk10_o2", "fk11_o2", "fk12_o2"])
        .assert(
            0,
            &[&["Forecast", "3 builds, about 1 h 40 min, 6.0 GB of disk at most"]],
        );
    assert!(!space.prefix("fk10_o2").exists());
}

#[test]
fn a_build_that_will_not_fit_on_the_disk_is_not_begun() {
    let space = three_releases();
    known(&space, &[("fk10_o2", 1.0, 1 << 60)]);
    let ran = space.run(&["build", "fk10_o2"]);
    ran.assert(
        3,
        &[
            &["error:", "not enough space"],
            &["needed:", "MiB"],
            &["build:", "fk10_o2"],
            &["hint: free some"],
        ],
    );
    assert!(in_order(&ran, "Unpacking").is_empty(), "{}", ran.all());
    // Only what was measured counts for certain: one that is like it is tried.
    space.ok(&["build", "fk11_o2"]);
}

#[test]
fn a_run_without_a_job_says_so_and_gets_the_next_one() {
    let mut space = Space::new();
    let mut gate = space.gate("compile");
    space.release("1.0");
    space.release("1.1");
    // The first holds the only job at its gate.
    let first = Run::start(space.bm(&["build", "-j1", "fk10_o2", "--ccache", "off"]));
    gate.reached();
    let mut second = Run::start(space.bm(&["build", "-j1", "fk11_o2", "--ccache", "off"]));
    second.wait_for("Waiting fk11_o2 for a job: others use all of the budget");
    gate.disarm();
    gate.open();
    for ran in [first.wait(), second.wait()] {
        assert_eq!(ran.code, 0, "{}", ran.all());
    }
    space.assert_tidy();
}
