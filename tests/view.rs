//! How a run is shown: the real bm builds a small product of our own, for a program that reads events, for a page,
//! for a pipe and for a terminal.
#![allow(clippy::unwrap_used)]

#[path = "support/run.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use fs_err as fs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;
use support::{Run, Space};

/// Steps of a build that goes well.
const STEPS: [&str; 10] = [
    "fetch",
    "unpack",
    "patch",
    "configure",
    "compile",
    "install",
    "audit",
    "place",
    "smoke",
    "seal",
];

/// 1.0 can be built; 1.1 fails to compile.
fn one_is_broken() -> Space {
    let mut space = Space::new();
    space
        .tree
        .insert("hooks/compile".into(), "echo 'x.c:1: error: no'; exit 1\n".into());
    space.release("1.1");
    space
}

fn events(out: &str) -> Vec<Value> {
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

#[test]
fn events_tell_a_consistent_story_and_the_page_has_all_of_it() {
    let space = one_is_broken();
    space.ok(&["build", "fk10_o3"]);
    let page = space.path("page.html");
    let timings = format!("--timings={}", page.display());
    let builds = ["fk10_o2", "fk11_o2", "fk10_o3"];
    let ran = space.run(&[&["build", "--message-format", "json", &timings], &builds[..]].concat());
    // People are told on stderr as always.
    ran.assert(
        1,
        &[
            &["Compiling", "fk10_o2"],
            &["Built", "fk10_o2"],
            &["error:", "fk11_o2"],
            &["Timings", page.to_str().unwrap()],
            &["Done", "1 built, 1 fresh, 1 failed"],
        ],
    );

    let events = events(&ran.out);
    assert_eq!(
        (&events[0]["event"], &events[0]["schema"]),
        (&"stream".into(), &1.into())
    );
    let run = &events[1];
    assert_eq!(
        (&run["event"], run["builds"].as_array().unwrap().len()),
        (&"run-begun".into(), 3)
    );
    let last = events.last().unwrap();
    assert_eq!(last["event"], "run-ended");
    assert!(last["own_cpu"].as_f64().unwrap() > 0.0, "{last}");
    let mut now = 0.0;
    let mut open = BTreeSet::new();
    let mut steps = BTreeMap::<String, Vec<String>>::new();
    let mut ended = BTreeMap::new();
    for event in &events[1..] {
        let at = event["at"].as_f64().unwrap();
        assert!(at >= now, "time goes back: {event}");
        now = at;
        let build = event["build"].as_str().unwrap_or_default().to_owned();
        let key = (build.clone(), event["step"].as_str().unwrap_or_default().to_owned());
        assert!(!ended.contains_key(&build), "{build} has ended: {event}");
        match event["event"].as_str().unwrap() {
            "step-begun" => {
                assert!(open.insert(key.clone()), "begun twice: {event}");
                steps.entry(build).or_default().push(key.1);
            }
            "step-ended" => {
                assert!(open.remove(&key), "never begun: {event}");
                let ok = key != ("fk11_o2".to_owned(), "compile".to_owned());
                assert_eq!(event["ok"], ok, "{event}");
                assert_eq!(
                    event["cpu"].as_f64().unwrap() > 0.0,
                    event["max_rss_kib"] != 0,
                    "{event}"
                );
            }
            "build-ended" => {
                ended.insert(build, event.clone());
            }
            "waiting" | "load" | "run-begun" | "run-ended" => {}
            other => panic!("unknown event {other}"),
        }
    }
    assert!(open.is_empty(), "never ended: {open:?}");
    assert_eq!(steps["fk10_o2"], STEPS);
    assert_eq!(steps["fk11_o2"], STEPS[..5]);
    assert_eq!(ended.len(), 3);
    let failed = &ended["fk11_o2"];
    assert_eq!(
        (&failed["result"], &ended["fk10_o2"]["result"]),
        (&"failed".into(), &"built".into())
    );
    assert_eq!(
        (&ended["fk10_o3"]["result"], steps.get("fk10_o3")),
        (&"fresh".into(), None)
    );
    assert!(
        failed["reason"].as_str().unwrap().contains("step `compile`"),
        "{failed}"
    );
    let log = fs::read_to_string(failed["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("x.c:1: error: no"), "{log}");

    let page = fs::read_to_string(page).unwrap();
    for step in STEPS {
        assert_eq!(
            page.contains(&format!("fk11_o2 · {step}")),
            STEPS[..5].contains(&step),
            "{step}"
        );
        assert!(page.contains(&format!("fk10_o2 · {step}\n")), "{step}");
    }
    // Each log where it is now: beside the failed tree, or in the prefix.
    let sealed = space.prefix("fk10_o2").join(".bm/logs/compile.log.gz");
    assert!(page.contains("fk11_o2 · compile · failed") && page.contains(failed["log"].as_str().unwrap()));
    assert!(sealed.is_file() && page.contains(sealed.to_str().unwrap()));
    assert!(page.contains("fk10_o3") && page.contains("1 build without work"));
}

#[test]
fn an_interrupted_run_leaves_its_page_behind() {
    let mut space = Space::new();
    let mut gate = space.gate("compile");
    space.release("1.0");
    let bm = Run::start(space.bm(&["build", "fk10_o2", "--timings"]));
    gate.reached();
    bm.signal(Signal::INT);
    let ran = bm.wait();
    ran.assert(130, &[&["Timings", ".bm/timings/"]]);
    let pages = space.names_in(".bm/timings");
    assert_eq!(pages.len(), 1);
    let page = fs::read_to_string(space.root().join(".bm/timings").join(&pages[0])).unwrap();
    assert!(
        page.contains("fk10_o2 · configure\n") && page.contains("fk10_o2 · compile · failed"),
        "{page}"
    );
    // One that cannot be written is told, and is no success.
    space
        .run(&["build", "fk10_o2", "--dry-run", "--timings=/dev/null/page"])
        .assert(0, &[]);
    gate.disarm();
    space
        .run(&["build", "fk10_o2", "--timings=/dev/null/page"])
        .assert(3, &[&["Built", "fk10_o2"], &["error:", "/dev/null"]]);
}

#[test]
fn a_pipe_gets_one_line_for_each_step() {
    let space = Space::new();
    let ran = space.ok(&["build", "fk10_o2"]);
    assert_eq!(ran.out, "");
    let lines: Vec<&str> = ran.err.lines().take(9).collect();
    let (built, steps) = lines.split_last().unwrap();
    assert_eq!(
        steps,
        [
            "    Fetching fk10_o2",
            "   Unpacking fk10_o2",
            "    Patching fk10_o2",
            " Configuring fk10_o2",
            "   Compiling fk10_o2",
            "  Installing fk10_o2",
            "    Auditing fk10_o2",
            "     Testing fk10_o2",
        ]
    );
    assert!(built.starts_with("       Built fk10_o2 in "), "{built}");
    space
        .run(&["build", "fk10_o2", "--progress", "live"])
        .assert(2, &[&["error:", "--progress live", "terminal"]]);
}

#[test]
fn a_reader_of_events_that_goes_away_ends_the_run_quietly() {
    let space = Space::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let err = tempfile::NamedTempFile::new().unwrap();
    let mut bm = space.bm(&["build", "fk10_o2", "--message-format", "json"]);
    let status = bm.stdout(writer).stderr(err.reopen().unwrap()).status().unwrap();
    let said = fs::read_to_string(err.path()).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert!(!space.prefix("fk10_o2").exists());
}

#[test]
fn a_log_is_followed_from_step_to_step_until_the_build_ends() {
    let mut space = Space::new();
    let mut gates = ["configure", "compile", "install"].map(|step| space.gate_with(step, &format!("echo in {step}")));
    space.release("1.0");
    let bm = Run::start(space.bm(&["build", "fk10_o2"]));
    gates[0].reached();
    let mut follow = Run::start(space.bm(&["log", "-f", "fk10_o2"]));
    follow.wait_for("Configuring");
    for (i, gate) in gates.iter_mut().enumerate() {
        if i > 0 {
            gate.reached();
        }
        gate.open();
    }
    bm.wait().assert(0, &[&["Built"]]);
    let followed = follow.wait();
    followed.assert(0, &[&["Configuring"], &["Compiling"], &["Installing"]]);
    let told: Vec<&str> = followed.out.lines().filter(|l| l.starts_with("in ")).collect();
    assert_eq!(told, ["in configure", "in compile", "in install"], "{}", followed.all());
    // As the logs are now, but for the steps before: nothing is lost between two looks.
    let sealed = |step| space.ok(&["log", "fk10_o2", step]).out;
    assert!(followed.out.contains(&sealed("compile")) && followed.out.contains(&sealed("install")));
}

// ---- on a terminal -----------------------------------------------------------------------------

/// bm on a terminal of its own, 80 columns wide and 24 rows high.
struct OnTerminal {
    bm: Child,
    ours: File,
    theirs: OwnedFd,
    said: Vec<u8>,
}

impl OnTerminal {
    fn start(space: &Space, args: &[&str], term: &str) -> OnTerminal {
        let (mut ours, mut theirs) = (0, 0);
        let size = libc::winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: both descriptors are written before the call returns well, and belong to nobody else.
        let (ours, theirs) = unsafe {
            let opened = libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size);
            assert_eq!(opened, 0);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = space.bm(args);
        command.env("TERM", term).stdin(end()).stdout(end()).stderr(end());
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let bm = command.spawn().unwrap();
        OnTerminal {
            bm,
            ours,
            theirs,
            said: Vec::new(),
        }
    }

    fn reads_keys_one_by_one(&self) -> bool {
        !tcgetattr(&self.theirs)
            .unwrap()
            .local_modes
            .intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// Reads on until the terminal has got `text`.
    fn wait_for(&mut self, text: &str) {
        let from = self.said.len();
        while !String::from_utf8_lossy(&self.said[from..]).contains(text) {
            let long = Timespec { tv_sec: 60, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&long)).unwrap();
            assert_eq!(ready, 1, "no {text:?} in {}", self.text());
            let mut bytes = [0; 4096];
            let n = self.ours.read(&mut bytes).unwrap();
            self.said.extend(&bytes[..n]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end; gives its status.
    fn end(&mut self) -> i32 {
        self.wait_for("Done");
        self.bm.wait().unwrap().code().unwrap()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.bm.kill();
        let _ = self.bm.wait();
    }
}

#[test]
fn a_terminal_shows_what_is_at_work_and_gets_its_modes_back() {
    let mut space = Space::new();
    let mut gate = space.gate_with("compile", "echo one; printf 'the \\033[2Jhook\\n'");
    space.release("1.0");
    for quit in ["q", "\u{3}"] {
        let mut terminal = OnTerminal::start(&space, &["build", "fk10_o2"], "xterm");
        gate.reached();
        // What a log says steers nothing.
        terminal.wait_for("\\u{1b}[2Jhook");
        assert!(terminal.text().contains("building"), "{}", terminal.text());
        assert!(
            !terminal.text().contains("Compiling"),
            "no line stays for what is at work"
        );
        assert!(terminal.reads_keys_one_by_one());
        terminal.press("1");
        terminal.wait_for("compile.log ──");
        terminal.press("?");
        terminal.wait_for("stop, as Ctrl-C");
        terminal.press(quit);
        assert_eq!(terminal.end(), 130, "{}", terminal.text());
        gate.all_dead();
        assert!(!terminal.reads_keys_one_by_one());
        let text = terminal.text();
        let (before, last) = text.rsplit_once("\u{1b}[J").unwrap();
        assert!(before.contains("was interrupted"), "{text}");
        assert!(
            last.contains("Done") && !last.contains("building"),
            "what was painted is erased: {text}"
        );
    }
    gate.disarm();
    let mut terminal = OnTerminal::start(&space, &["build", "fk10_o2"], "xterm");
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    assert!(terminal.text().contains("fk10_o2 in ") && !terminal.reads_keys_one_by_one());
}

#[test]
fn a_terminal_that_can_do_little_gets_lines() {
    let space = Space::new();
    for (args, term) in [
        (&["build", "fk10_o2"][..], "dumb"),
        (&["build", "fk10_o3", "--progress", "plain"], "xterm"),
        (&["build", "fk10_o3_native", "--message-format", "json"], "xterm"),
    ] {
        let mut terminal = OnTerminal::start(&space, args, term);
        assert_eq!(terminal.end(), 0, "{}", terminal.text());
        let text = terminal.text();
        assert!(
            text.contains("Compiling") && !text.contains("\u{1b}[J") && !text.contains("building"),
            "{text}"
        );
    }
}
