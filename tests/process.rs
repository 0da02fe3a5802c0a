//! Supervision from outside: real bm as the supervisor, shell scripts as children.
//!
//! A child shows that it lives by holding a fifo open for writing, and its death by the end of that stream.
//! Every wait has a bound, so that a failure is a failed test and not a hang.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use bm::process::{
    Account, Cancel, Command, Ended, Jobserver, Limits, Running, Urgency, install_handlers, run, set_supervisor, spawn,
};
use fs_err as fs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

const LONG: Duration = Duration::from_secs(60);

/// A directory, the fifo that shows life, and what a hostile surrounding leaves in this process.
struct Space {
    dir: tempfile::TempDir,
    alive: File,
    said: Vec<u8>,
}

impl Space {
    fn new() -> Space {
        static HOSTILE: Once = Once::new();
        HOSTILE.call_once(|| {
            set_supervisor(env!("CARGO_BIN_EXE_bm").into());
            rustix::process::umask(Mode::from_raw_mode(0o077));
            // A descriptor that survives exec.
            let leaked = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 40).unwrap();
            rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
            std::mem::forget(leaked);
        });
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        mkfifo(&dir.path().join("alive"));
        // The other end must not be ours: a read end opened without waiting.
        let alive = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(dir.path().join("alive"))
            .unwrap();
        Space {
            dir,
            alive,
            said: vec![],
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path().join("log")).unwrap()).into_owned()
    }

    fn sh(&self, script: &str) -> Command {
        command(self.path(), script)
    }

    fn run(&self, script: &str) -> bm::process::Outcome {
        run(&self.sh(script), &Cancel::default(), None).unwrap()
    }

    fn limited(&self, script: &str, limits: Limits) -> Ended {
        let command = Command {
            limits,
            ..self.sh(script)
        };
        spawn(&command, &Cancel::default(), None, Duration::from_millis(100))
            .unwrap()
            .wait()
            .unwrap()
            .ended
    }

    /// Starts a script that says a line on descriptor 9 when it is ready; the grace is short.
    fn start(&mut self, script: &str, cancel: &Cancel) -> Running {
        let command = self.sh(&format!("exec 9>alive\n{script}"));
        let running = spawn(&command, cancel, None, Duration::from_millis(100)).unwrap();
        self.line();
        running
    }

    /// The next line a child says through the fifo.
    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.said.iter().position(|&b| b == b'\n') {
                let line = self.said.drain(..=end).collect();
                return String::from_utf8(line).unwrap().trim_end().to_owned();
            }
            assert!(
                wait_for(self.alive.as_fd(), PollFlags::IN),
                "no word from the child: {}",
                self.log()
            );
            let mut chunk = [0; 512];
            let n = self.alive.read(&mut chunk).unwrap();
            assert!(n > 0, "the child died without a word: {}", self.log());
            self.said.extend_from_slice(&chunk[..n]);
        }
    }

    /// All that held the fifo are dead.
    fn assert_all_dead(&mut self) {
        // With nothing left to read, poll reports the hang-up alone.
        loop {
            assert!(wait_for(self.alive.as_fd(), PollFlags::IN), "something lives on");
            if self.alive.read(&mut [0; 512]).unwrap() == 0 {
                return;
            }
        }
    }
}

fn mkfifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn command(dir: &Path, script: &str) -> Command {
    Command {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        dir: dir.to_owned(),
        log: dir.join("log"),
        limits: Limits {
            wall: Some(LONG),
            ..Limits::default()
        },
        run_as: None,
    }
}

fn wait_for(fd: BorrowedFd<'_>, what: PollFlags) -> bool {
    poll(
        &mut [PollFd::from_borrowed_fd(fd, what)],
        Some(&Timespec { tv_sec: 30, tv_nsec: 0 }),
    )
    .unwrap()
        == 1
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_program_that_cannot_start_says_why() {
    let space = Space::new();
    fs::write(space.path().join("script"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(space.path().join("script"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(space.path().join("data"), "").unwrap();
    let cases = [
        ("no-such-tool", "`no-such-tool` is not on PATH `/usr/bin:/bin`"),
        (
            "/no/such/tool",
            "cannot find `/no/such/tool`: No such file or directory (os error 2)",
        ),
        ("./data", "`./data` is not an executable file"),
        ("./script", "its interpreter `/no/such/interpreter` is missing"),
    ];
    for (program, want) in cases {
        let command = Command {
            argv: vec![program.to_owned()],
            ..space.sh("")
        };
        match run(&command, &Cancel::default(), None).unwrap().ended {
            Ended::NotStarted(why) => assert!(why.ends_with(want), "{why}"),
            other => panic!("{program}: {other:?}"),
        }
    }
    let command = Command {
        dir: "/no/such/dir".into(),
        ..space.sh("")
    };
    let ended = run(&command, &Cancel::default(), None).unwrap().ended;
    assert_eq!(
        ended,
        Ended::NotStarted("its directory `/no/such/dir` does not exist".to_owned())
    );
}

#[test]
fn the_environment_is_exactly_what_was_given() {
    let space = Space::new();
    let env = [("B", "two words"), ("A", ""), ("C", "new\nline")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let command = Command {
        argv: vec!["/usr/bin/env".to_owned()],
        env: env.into(),
        ..space.sh("")
    };
    assert!(run(&command, &Cancel::default(), None).unwrap().ok());
    assert_eq!(space.log(), "A=\nB=two words\nC=new\nline\n");
}

#[test]
fn the_child_starts_from_a_clean_state() {
    let space = Space::new();
    let script = "umask; readlink /proc/self/fd/0; pwd; echo $0
        grep -E '^Sig(Blk|Ign)' /proc/self/status; cd /proc/$$/fd; ls";
    assert!(space.run(script).ok());
    let zero = "0000000000000000";
    let want = format!(
        "0022\n/dev/null\n{}\n/bin/sh\nSigBlk:\t{zero}\nSigIgn:\t{zero}\n0\n1\n2\n",
        space.path().canonicalize().unwrap().display()
    );
    assert_eq!(space.log(), want);
}

#[test]
fn only_the_jobserver_is_inherited_where_it_is_given() {
    let space = Space::new();
    let fifo = space.path().join("jobs");
    mkfifo(&fifo);
    let _held = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut command = space.sh("echo \"$MAKEFLAGS\"; cd /proc/$$/fd; ls; readlink 98 99");
    command.env.insert("MAKEFLAGS".to_owned(), "s".to_owned());
    let jobs = Jobserver {
        fifo: fifo.clone(),
        tokens: 3,
        load: None,
    };
    assert!(run(&command, &Cancel::default(), Some(&jobs)).unwrap().ok());
    let fifo = fifo.canonicalize().unwrap();
    let fifo = fifo.display();
    assert_eq!(
        space.log(),
        format!("s -j3 --jobserver-auth=98,99\n0\n1\n2\n98\n99\n{fifo}\n{fifo}\n")
    );
}

#[test]
fn the_child_has_its_own_session_and_group_away_from_the_terminal() {
    let mut space = Space::new();
    let cancel = Cancel::default();
    let running = space.start(
        "echo ready >&9; (: < /dev/tty) 2>/dev/null && echo tty >&9; echo no >&9; read x < /dev/zero",
        &cancel,
    );
    let pid = Pid::from_raw(running.pid().unwrap()).unwrap();
    assert_eq!(rustix::process::getpgid(Some(pid)).unwrap(), pid);
    // It is its supervisor's session. Ours may lie outside this PID namespace, with no number to compare with.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:")).unwrap();
    let session = rustix::process::getsid(Some(pid)).unwrap();
    assert_eq!(session.as_raw_nonzero().get().to_string(), parent.trim());
    assert_ne!(parent.trim(), std::process::id().to_string());
    assert_eq!(space.line(), "no", "a prompt would hang");
    assert_eq!(running.kill().unwrap().ended, Ended::Interrupted);
}

#[test]
fn the_first_request_lets_the_child_clean_up() {
    let mut space = Space::new();
    let cancel = Cancel::default();
    let script = "trap 'echo cleaned; exit 7' TERM; echo ready >&9; exec 8<>go; while :; do read x <&8; done";
    mkfifo(&space.path().join("go"));
    let command = space.sh(&format!("exec 9>alive; {script}"));
    let running = spawn(&command, &cancel, None, LONG).unwrap();
    space.line();
    cancel.escalate();
    let outcome = running.wait().unwrap();
    assert_eq!((outcome.ended, space.log().as_str()), (Ended::Interrupted, "cleaned\n"));
    space.assert_all_dead();
}

#[test]
fn a_child_that_ignores_the_request_is_killed_after_the_grace() {
    let mut space = Space::new();
    let cancel = Cancel::default();
    let running = space.start("trap '' TERM; echo ready >&9; sleep 1000; sleep 1000", &cancel);
    let began = Instant::now();
    cancel.escalate();
    assert_eq!(running.wait().unwrap().ended, Ended::Interrupted);
    assert!(began.elapsed() >= Duration::from_millis(100), "it had its grace");
    space.assert_all_dead();
}

#[test]
fn the_second_request_kills_without_any_grace() {
    let mut space = Space::new();
    let cancel = Cancel::default();
    let command =
        space.sh("exec 9>alive; trap 'echo asked >&9' TERM; echo ready >&9; exec 8<>go; while :; do read x <&8; done");
    mkfifo(&space.path().join("go"));
    let running = spawn(&command, &cancel, None, Duration::MAX).unwrap();
    assert_eq!(space.line(), "ready");
    cancel.escalate();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait().unwrap().ended);
        assert_eq!(space.line(), "asked");
        cancel.escalate();
        assert_eq!(waiting.join().unwrap(), Ended::Interrupted);
    });
    space.assert_all_dead();
}

/// What a hostile build leaves: members of the group, a session of its own, a daemon forked twice, one that
/// ignores every signal it may, a stopped one.
const LEAVINGS: &str = "
    sh -c 'echo ready >&9; exec sleep 1001' &
    setsid sh -c 'echo ready >&9; exec sleep 1002' &
    (setsid sh -c \"trap '' TERM HUP INT; (echo ready >&9; sleep 1003; sleep 1003) & exit\" &)
    setsid sh -c 'echo ready >&9; kill -STOP $$' &
    echo $PPID >&9";

#[test]
fn whatever_outlives_the_leader_is_killed_and_named() {
    let mut space = Space::new();
    mkfifo(&space.path().join("go"));
    let command = space.sh(&format!("exec 9>alive; {LEAVINGS}\nread x < go; exit 5"));
    let running = spawn(&command, &Cancel::default(), None, LONG).unwrap();
    for _ in 0..5 {
        space.line();
    }
    fs::write(space.path().join("go"), "now\n").unwrap();
    let outcome = running.wait().unwrap();
    assert_eq!(outcome.ended, Ended::Exited(5), "what the leader said stays true");
    space.assert_all_dead();
    assert!(outcome.strays.len() >= 4, "{:?}", outcome.strays);
    for stray in &outcome.strays {
        let (pid, name) = stray.split_once(' ').unwrap();
        assert!(
            pid.parse::<i32>().is_ok() && ["sleep", "sh", "setsid"].contains(&name),
            "{stray}"
        );
    }
}

#[test]
fn processes_that_fork_all_the_time_do_not_escape() {
    let mut space = Space::new();
    // Each generation leaves the group, and lives only long enough to start the next one.
    fs::write(space.path().join("hop"), "echo hop >&9\nsetsid sh hop &\nexit\n").unwrap();
    let running = space.start("sh hop & echo ready >&9; read x < /dev/zero", &Cancel::default());
    for _ in 0..20 {
        space.line();
    }
    running.kill().unwrap();
    space.assert_all_dead();
}

#[test]
fn bounds_stop_a_child_and_are_named() {
    let space = Space::new();
    let short = Some(Duration::from_millis(150));
    let wall = Limits {
        wall: short,
        ..Limits::default()
    };
    let silent = Limits {
        silent: short,
        ..Limits::default()
    };
    let cases = [
        ("while :; do echo x; sleep 0.01; done", wall, "it ran longer than 150ms"),
        ("trap '' TERM; sleep 1000; sleep 1000", wall, "it ran longer than 150ms"),
        ("echo x; sleep 1000", silent, "it wrote nothing for 150ms"),
        (
            "exec yes",
            Limits {
                log_bytes: Some(100_000),
                ..Limits::default()
            },
            "its log grew beyond 100000 bytes",
        ),
    ];
    for (script, limits, want) in cases {
        assert_eq!(space.limited(script, limits), Ended::Limit(want.to_owned()), "{script}");
    }
}

#[test]
fn the_log_bound_counts_only_what_this_child_wrote_and_cuts_the_rest() {
    let space = Space::new();
    fs::write(space.path().join("log"), [b'-'; 5000]).unwrap();
    let limits = Limits {
        log_bytes: Some(1000),
        ..Limits::default()
    };
    assert_eq!(space.limited("echo fine", limits), Ended::Exited(0));
    let ended = space.limited("yes", limits);
    assert_eq!(ended, Ended::Limit("its log grew beyond 1000 bytes".to_owned()));
    assert_eq!(space.log().len(), 5000 + "fine\n".len() + 1000);
    // Too quick to be caught in the act.
    let ended = space.limited("yes | head -c 3000", limits);
    assert_eq!(ended, Ended::Limit("its log grew beyond 1000 bytes".to_owned()));
}

#[test]
fn a_child_that_keeps_writing_is_not_silent() {
    let space = Space::new();
    let limits = Limits {
        silent: Some(Duration::from_secs(2)),
        ..Limits::default()
    };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo x; sleep 0.2; done";
    assert_eq!(space.limited(script, limits), Ended::Exited(0));
}

#[test]
fn a_server_is_stopped_by_the_signal_it_wants() {
    let mut space = Space::new();
    mkfifo(&space.path().join("go"));
    let script = "trap 'echo fast; exit 0' INT; sleep 1000 & echo ready >&9; exec 8<>go; while :; do read x <&8; done";
    let mut running = space.start(script, &Cancel::default());
    assert!(!running.has_ended().unwrap());
    let outcome = running.stop(libc::SIGINT, LONG).unwrap();
    assert_eq!((outcome.ended, space.log().as_str()), (Ended::Exited(0), "fast\n"));
    space.assert_all_dead();

    let mut space = Space::new();
    let running = space.start(
        "trap '' INT; echo ready >&9; sleep 1000; sleep 1000",
        &Cancel::default(),
    );
    let outcome = running.stop(libc::SIGINT, Duration::from_millis(50)).unwrap();
    assert_eq!(
        outcome.ended,
        Ended::Limit("it still ran 50ms after signal 2".to_owned())
    );
    space.assert_all_dead();
}

#[test]
fn a_server_that_ends_by_itself_is_seen() {
    let mut space = Space::new();
    mkfifo(&space.path().join("go"));
    let mut running = space.start("echo ready >&9; read x < go; exit 3", &Cancel::default());
    fs::write(space.path().join("go"), "now\n").unwrap();
    space.assert_all_dead();
    let give_up = Instant::now() + LONG;
    while !running.has_ended().unwrap() {
        assert!(Instant::now() < give_up);
        std::thread::yield_now();
    }
    assert_eq!(running.stop(libc::SIGINT, LONG).unwrap().ended, Ended::Exited(3));
}

#[test]
fn a_dropped_server_is_dead() {
    let mut space = Space::new();
    drop(space.start(&format!("echo ready >&9; {LEAVINGS}\nsleep 1000"), &Cancel::default()));
    space.assert_all_dead();
}

#[test]
fn cost_includes_descendants() {
    let space = Space::new();
    let outcome = space.run("(head -c 60000000 /dev/zero | tail -c 50000000 > /dev/null)");
    assert!(outcome.ok());
    assert!((40_000..400_000).contains(&outcome.max_rss_kib), "{outcome:?}");
    assert!(
        outcome.cpu > 0.001 && outcome.wall > 0.001 && outcome.cpu < 60.0,
        "{outcome:?}"
    );
}

#[test]
fn a_short_child_costs_no_poll_interval() {
    let space = Space::new();
    let best = (0..10).map(|_| {
        let began = Instant::now();
        assert!(space.run("exit 0").ok());
        began.elapsed()
    });
    let best = best.min().unwrap();
    assert!(best < Duration::from_millis(45), "{best:?}");
}

#[test]
fn the_account_is_dropped_to_completely_or_not_at_all() {
    let space = Space::new();
    let somebody = Account { uid: 65533, gid: 65533 };
    let command = Command {
        run_as: Some(somebody),
        ..space.sh("id -u; id -g; id -G; grep -E '^(Uid|Gid)' /proc/self/status")
    };
    let ended = run(&command, &Cancel::default(), None).unwrap().ended;
    if is_root() {
        let ids = ["65533"; 4].join("\t");
        assert_eq!(space.log(), format!("65533\n65533\n65533\nUid:\t{ids}\nGid:\t{ids}\n"));
        assert_eq!(ended, Ended::Exited(0));
    } else {
        assert!(matches!(ended, Ended::NotStarted(why) if why.starts_with("only root can start it as uid 65533")));
    }
}

/// The parent-death signal is lost by a change of account unless it is set after it.
#[test]
fn a_child_of_another_account_dies_with_its_supervisor() {
    if !is_root() {
        // The test above shows that there is no such child then.
        return;
    }
    let space = Space::new();
    let command = Command {
        run_as: Some(Account { uid: 65533, gid: 65533 }),
        ..space.sh("exec sleep 1000")
    };
    let running = spawn(&command, &Cancel::default(), None, LONG).unwrap();
    let leader = Pid::from_raw(running.pid().unwrap()).unwrap();
    let death = pidfd_open(leader, PidfdFlags::empty()).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", leader.as_raw_nonzero())).unwrap();
    let supervisor = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    // Before `wait`, which would kill the group itself.
    assert!(wait_for(death.as_fd(), PollFlags::IN), "it lives");
    assert!(running.wait().unwrap_err().headline().contains("was lost"));
}

#[test]
fn a_supervisor_started_by_hand_explains_itself() {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_bm"))
        .arg(bm::process::SUPERVISE)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(70));
    let message = "bm: supervisor: started without an order; this is a part of bm, not a command\n";
    assert_eq!(String::from_utf8(out.stderr).unwrap(), message);
}

/// Starts this test binary again as a bm that runs one script.
fn start_driver(space: &Space, script: &str) -> std::process::Child {
    fs::write(space.path().join("script"), script).unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "driver", "--ignored", "--nocapture"])
        .env("BM_TEST_DRIVER", space.path())
        .stdout(std::process::Stdio::piped());
    // A shell that runs these tests in the background ignores some signals for them, and bm would keep to that.
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command.spawn().unwrap()
}

#[test]
#[ignore = "a part of other tests, which start it"]
fn driver() {
    let dir = std::path::PathBuf::from(std::env::var_os("BM_TEST_DRIVER").unwrap());
    set_supervisor(env!("CARGO_BIN_EXE_bm").into());
    let cancel = Cancel::default();
    install_handlers(&cancel).unwrap();
    let script = fs::read_to_string(dir.join("script")).unwrap();
    let outcome = run(&command(&dir, &script), &cancel, None).unwrap();
    fs::write(
        dir.join("ended"),
        format!("{:?} {:?}", outcome.ended, cancel.requested()),
    )
    .unwrap();
}

#[test]
fn killing_bm_leaves_no_process() {
    let mut space = Space::new();
    let mut driver = start_driver(
        &space,
        &format!("exec 9>alive; trap '' TERM HUP INT; {LEAVINGS}\nsleep 1000"),
    );
    let lines: Vec<String> = (0..5).map(|_| space.line()).collect();
    let supervisor = lines.iter().find_map(|line| line.parse().ok()).unwrap();
    let supervisor = pidfd_open(Pid::from_raw(supervisor).unwrap(), PidfdFlags::empty()).unwrap();
    driver.kill().unwrap();
    space.assert_all_dead();
    assert!(wait_for(supervisor.as_fd(), PollFlags::IN), "the supervisor lives");
    driver.wait().unwrap();
    assert!(!space.path().join("ended").exists());
}

#[test]
fn a_signal_to_bm_stops_the_child_in_order() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut space = Space::new();
        mkfifo(&space.path().join("go"));
        let script =
            "exec 9>alive; trap 'echo cleaned; exit 0' TERM; echo ready >&9; exec 8<>go; while :; do read x <&8; done";
        let mut driver = start_driver(&space, script);
        space.line();
        kill_process(Pid::from_child(&driver), signal).unwrap();
        assert!(driver.wait().unwrap().success());
        let ended = fs::read_to_string(space.path().join("ended")).unwrap();
        assert_eq!(ended, format!("{:?} {:?}", Ended::Interrupted, Some(Urgency::Orderly)));
        assert_eq!(space.log(), "cleaned\n");
    }
}

#[test]
fn stopping_bm_at_the_terminal_stops_the_child_until_it_goes_on() {
    let mut space = Space::new();
    mkfifo(&space.path().join("go"));
    let script = "exec 9>alive; setsid sh -c 'echo $$ >&9; exec sleep 1000' & read x < go; exit 4";
    let mut driver = start_driver(&space, script);
    let grandchild: i32 = space.line().parse().unwrap();
    let bm = Pid::from_child(&driver);
    kill_process(bm, Signal::TSTP).unwrap();
    let (_, status) = waitpid(Some(bm), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    let wait_for_state = |stopped: bool| {
        let give_up = Instant::now() + LONG;
        while (state() == 'T') != stopped {
            assert!(Instant::now() < give_up, "state {}", state());
            std::thread::yield_now();
        }
    };
    wait_for_state(true);
    kill_process(bm, Signal::CONT).unwrap();
    wait_for_state(false);
    fs::write(space.path().join("go"), "now\n").unwrap();
    assert!(driver.wait().unwrap().success());
    assert_eq!(
        fs::read_to_string(space.path().join("ended")).unwrap(),
        "Exited(4) None"
    );
    space.assert_all_dead();
}
