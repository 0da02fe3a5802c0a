//! The budget alone, and under real makes.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::process::{Cancel, Command, Ended, Limits, Urgency, run};

fn pool(tokens: usize) -> (tempfile::TempDir, JobPool) {
    let dir = tempfile::tempdir().unwrap();
    let (pool, shared) = JobPool::open(dir.path(), tokens).unwrap();
    assert_eq!(shared, None);
    (dir, pool)
}

fn take_one(pool: &JobPool) -> Token<'_> {
    pool.try_take().unwrap().expect("a token is free")
}

#[test]
fn tokens_are_taken_and_given_back() {
    let (_dir, pool) = pool(2);
    let first = take_one(&pool);
    let second = take_one(&pool);
    assert_eq!(pool.free().unwrap(), 0);
    drop(first);
    assert_eq!(pool.free().unwrap(), 1);
    drop((second, take_one(&pool)));
    assert_eq!(pool.free().unwrap(), 2);
}

#[test]
fn launchers_borrow_what_is_free_and_no_more() {
    let (dir, pool) = pool(3);
    let held = take_one(&pool);
    let fifo = dir.path().join("tokens");
    let borrowed = borrow(&fifo, 8);
    assert_eq!((borrowed.tokens(), pool.free().unwrap()), (2, 0));
    assert_eq!(borrow(&fifo, 1).tokens(), 0);
    drop(borrowed);
    assert_eq!(borrow(&fifo, 0).tokens(), 0);
    assert_eq!(borrow(&fifo, 1).tokens(), 1);
    drop(held);
    assert_eq!(pool.free().unwrap(), 3);
    drop(pool);
    fs::remove_file(&fifo).unwrap();
    assert_eq!(borrow(&fifo, 1).tokens(), 0, "no budget, no token");
    fs::write(&fifo, "++++").unwrap();
    assert_eq!(borrow(&fifo, 1).tokens(), 0, "a file is no budget");
    assert_eq!(fs::read(&fifo).unwrap(), b"++++");
}

#[test]
fn lost_tokens_come_back_when_no_step_runs() {
    let (dir, pool) = pool(3);
    let lose = |n| std::mem::forget(borrow(&dir.path().join("tokens"), n));
    let held = take_one(&pool);
    lose(2);
    assert_eq!(pool.recount().unwrap(), 0, "a running step may hold them");
    assert_eq!(pool.free().unwrap(), 0);
    drop(held);
    assert_eq!(pool.recount().unwrap(), 2);
    assert_eq!(pool.free().unwrap(), 3);
    lose(3);
    drop(take_one(&pool));
    assert_eq!(
        pool.free().unwrap(),
        3,
        "an empty pool without steps fills up by itself"
    );
}

#[test]
fn the_pool_never_grows() {
    let (dir, pool) = pool(2);
    let fifo = open_fifo(&dir.path().join("tokens")).unwrap();
    put(&fifo, 5).unwrap();
    let first = take_one(&pool);
    assert_eq!(pool.free().unwrap(), 1);
    put(&fifo, 5).unwrap();
    drop(first);
    drop(take_one(&pool));
    assert_eq!(pool.free().unwrap(), 2);
    put(&fifo, 5).unwrap();
    assert_eq!(pool.recount().unwrap(), 0);
    assert_eq!(pool.free().unwrap(), 2);
}

#[test]
fn a_budget_of_a_dead_bm_is_taken_over_and_anything_else_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    drop(JobPool::open(dir.path(), 7).unwrap());
    let (again, shared) = JobPool::open(dir.path(), 2).unwrap();
    assert_eq!((again.free().unwrap(), shared), (2, None));
    drop(again);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    assert_eq!(JobPool::open(dir.path(), 2).unwrap_err().exit(), Exit::Store);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    for tokens in [0, MOST_TOKENS + 1] {
        assert_eq!(JobPool::open(dir.path(), tokens).unwrap_err().exit(), Exit::Usage);
    }
}

#[test]
fn two_bm_share_one_budget_and_the_dead_ones_tokens_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = JobPool::open(dir.path(), 3).unwrap();
    // The size is that of who came first.
    let (second, shared) = JobPool::open(dir.path(), 8).unwrap();
    let with = vec![std::process::id()];
    assert_eq!(shared.unwrap(), Shared { jobs: 3, with });
    let [of_first, of_second, lost] = [&first, &second, &second].map(take_one);
    assert!(first.try_take().unwrap().is_none() && second.try_take().unwrap().is_none());
    assert_eq!(first.recount().unwrap(), 0, "the other's builds run");
    drop((of_first, of_second));
    assert_eq!(second.free().unwrap(), 2);
    // As if its process had been killed: the lock of its entry goes with it, what it held does not come back.
    std::mem::forget(lost);
    drop(second);
    assert_eq!(first.free().unwrap(), 2);
    assert_eq!(first.recount().unwrap(), 1);
    assert_eq!(first.free().unwrap(), 3);
}

#[test]
fn the_size_can_change_while_tokens_are_held() {
    let (dir, pool) = pool(4);
    let held: Vec<_> = (0..3).map(|_| take_one(&pool)).collect();
    assert_eq!(resize(dir.path(), 2).unwrap(), 4);
    assert_eq!(
        (pool.tokens(), pool.free().unwrap()),
        (2, 0),
        "the free one goes at once"
    );
    assert!(pool.try_take().unwrap().is_none());
    drop(held);
    assert_eq!(pool.free().unwrap(), 2, "one that came back went");
    let held = (take_one(&pool), take_one(&pool));
    assert!(pool.resize(5).unwrap() && !pool.resize(5).unwrap());
    assert_eq!(pool.free().unwrap(), 3);
    drop(held);
    assert_eq!(pool.free().unwrap(), 5);
    assert_eq!(resize(dir.path(), 0).unwrap_err().exit(), Exit::Usage);
    drop(pool);
    let nobody = resize(dir.path(), 2).unwrap_err();
    assert_eq!(
        (nobody.exit(), nobody.headline()),
        (Exit::Usage, "no bm builds at this moment")
    );
}

#[test]
fn tokens_of_an_outer_make_are_taken_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outer");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let outer = open_fifo(&path).unwrap();
    put(&outer, 1).unwrap();
    let flags = format!("w -j2 --jobserver-auth=fifo:{} -- CC=x", path.display());
    let pool = JobPool::outer(&flags).unwrap().unwrap();
    assert_eq!(pool.tokens(), 2);
    let (implicit, drawn) = (take_one(&pool), take_one(&pool));
    assert!(pool.try_take().unwrap().is_none());
    drop((implicit, drawn));
    assert_eq!(
        count(&outer).unwrap(),
        1,
        "the one make left us without asking is not put there"
    );
    // The descriptors that an older make passes on.
    let (read, _write) = rustix::pipe::pipe().unwrap();
    let fds = |n: i32| format!(" -j4 --jobserver-auth={n},{n}");
    let piped = JobPool::outer(&fds(std::os::fd::AsRawFd::as_raw_fd(&read)));
    let piped = piped.unwrap().unwrap();
    put(&piped.fifo, 3).unwrap();
    assert_eq!(piped.free().unwrap(), 3);
    assert!(JobPool::outer(&fds(999)).is_err(), "not passed on");
    assert!(JobPool::outer("kn -j8").unwrap().is_none());
}

/// A make step as bm runs it.
fn make(dir: &Path, makefile: &str, name: &str) -> Command {
    let makefile_path = dir.join(format!("{name}.mk"));
    fs::write(&makefile_path, makefile).unwrap();
    Command {
        argv: ["make", "-f", makefile_path.to_str().unwrap()]
            .map(str::to_owned)
            .into(),
        env: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into(),
        dir: dir.to_owned(),
        log: dir.join(format!("{name}.log")),
        limits: Limits {
            wall: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        run_as: None,
    }
}

fn run_with(pool: &JobPool, command: &Command, cancel: &Cancel) -> Ended {
    let _token = take_one(pool);
    run(command, cancel, Some(&pool.jobserver())).unwrap().ended
}

/// The targets sit in a sub-make, so that the descriptors pass through one make to another.
#[test]
fn two_makes_together_keep_the_budget() {
    let (dir, pool) = pool(2);
    let makefile = "\
all:\n\t+$(MAKE) -f $(firstword $(MAKEFILE_LIST)) many\n\
many: t1 t2 t3 t4 t5 t6 t7 t8\n\
t%:\n\t@echo start >> count; sleep 0.02; echo end >> count\n";
    let commands = ["one", "two"].map(|name| make(dir.path(), makefile, name));
    std::thread::scope(|scope| {
        let runs = commands
            .each_ref()
            .map(|c| scope.spawn(|| run_with(&pool, c, &Cancel::default())));
        for (run, command) in runs.into_iter().zip(&commands) {
            let ended = run.join().unwrap();
            let log = fs::read_to_string(&command.log).unwrap();
            assert_eq!(ended, Ended::Exited(0), "{log}");
            assert!(!log.contains("jobserver"), "make complains: {log}");
        }
    });
    let (mut now, mut most, mut total) = (0, 0, 0);
    for line in fs::read_to_string(dir.path().join("count")).unwrap().lines() {
        now += if line == "start" { 1 } else { -1 };
        most = most.max(now);
        total += i32::from(line == "start");
    }
    assert_eq!((now, most, total), (0, 2, 16));
    assert_eq!(pool.free().unwrap(), 2, "every token is back");
}

/// Two targets report and then wait for ever: that both report proves that make took a second token, which
/// it loses when it is killed.
#[test]
fn a_killed_make_takes_its_tokens_with_it_until_the_recount() {
    let (dir, pool) = pool(3);
    let gate = dir.path().join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let gate = open_fifo(&gate).unwrap();
    let command = make(dir.path(), "all: a b\na b:\n\t@echo > gate; exec sleep 1000\n", "kill");
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run_with(&pool, &command, &cancel));
        let mut reported = 0;
        while reported < 2 {
            let long = Timespec { tv_sec: 30, tv_nsec: 0 };
            assert_eq!(
                poll(&mut [PollFd::new(&gate, PollFlags::IN)], Some(&long)),
                Ok(1),
                "only {reported} run"
            );
            reported += take(&gate, 2).unwrap();
        }
        assert_eq!(pool.free().unwrap(), 1);
        cancel.request(Urgency::Kill);
        assert_eq!(running.join().unwrap(), Ended::Interrupted);
    });
    assert_eq!(pool.free().unwrap(), 2);
    assert_eq!(pool.recount().unwrap(), 1);
    assert_eq!(pool.free().unwrap(), 3);
}
