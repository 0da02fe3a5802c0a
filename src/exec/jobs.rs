//! The job budget: one fifo of tokens over all builds, all makes, all link-time optimisation.
//!
//! Every byte in the fifo is leave to use one processor. A step holds one token while it runs (for make this is
//! the one a jobserver's client has without asking); make takes and returns further ones through the descriptors
//! it inherits, and a launcher somewhere below make borrows them by the fifo's path. Owns the tokens; does not
//! know what they are spent on.
//!
//! A killed make takes its tokens with it. They come back when no step runs: then nobody can hold one, and the
//! pool is filled up again ([`JobPool::recount`]). In between the pool is smaller, never larger.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs_err as fs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::error::{Error, Exit, IoContext, Result};
use crate::process::{Cancel, Jobserver};

/// Any byte is a token; make's own are these.
const TOKEN: u8 = b'+';

/// What a pipe holds for certain and takes in one write, even when its owner has used up all pipe memory.
const MOST_TOKENS: usize = 4096;

/// How often a waiting step looks whether a stop was asked for.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The budget, owned by the one bm process that made it.
///
/// To draw on an outer make's budget instead (bm started by a make recipe marked with `+`), the pool would read
/// its tokens from that make's descriptors; nothing outside this type would change.
#[derive(Debug)]
pub struct JobPool {
    path: PathBuf,
    tokens: usize,
    /// A description of its own: the one make reads from is made non-blocking, or not, by make.
    fifo: File,
    /// Tokens held by steps of this process. Locked while the pool is counted.
    held: Mutex<usize>,
}

/// Leave to run one step; given back when dropped.
#[derive(Debug)]
pub struct Token<'a>(&'a JobPool);

impl JobPool {
    /// Makes the fifo at `path`, in place of one that a dead bm left behind, with `tokens` tokens in it. The
    /// caller holds the lock of the directory.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a number of tokens that makes no sense, [`Exit::Store`] if something that is no fifo
    /// is in its place, [`Exit::Host`] if it cannot be made.
    pub fn new(path: &Path, tokens: usize) -> Result<JobPool> {
        if !(1..=MOST_TOKENS).contains(&tokens) {
            return Err(Error::new(Exit::Usage, format!("cannot run {tokens} jobs at once"))
                .hint(format!("choose a number from 1 to {MOST_TOKENS} with `-j`")));
        }
        remove_stale(path)?;
        let doing = || format!("cannot make the job budget `{}`", path.display());
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(io::Error::from)
            .doing(doing)?;
        let fifo = open_fifo(path).doing(doing)?;
        let pool = JobPool {
            path: path.to_owned(),
            tokens,
            fifo,
            held: Mutex::new(0),
        };
        pool.put(tokens).doing(doing)?;
        Ok(pool)
    }

    /// Size of the budget.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Tokens that nobody holds at this moment.
    ///
    /// # Errors
    /// If the system refuses to count.
    pub fn free(&self) -> Result<usize> {
        self.count().doing(|| self.failing())
    }

    /// The budget as [`crate::process::run`] hands it to a child.
    pub fn jobserver(&self) -> Jobserver {
        Jobserver {
            fifo: self.path.clone(),
            tokens: self.tokens,
        }
    }

    /// What `MAKEFLAGS` holds for a child that was given [`Self::jobserver`]; `run` sets it by itself.
    pub fn makeflags(&self) -> String {
        self.jobserver().makeflags()
    }

    /// Waits for leave to run a step; `None` if a stop is asked for first. Steps that wait and makes that want
    /// more jobs compete on equal terms, as the system wakes them.
    ///
    /// # Errors
    /// If the fifo cannot be read.
    pub fn acquire(&self, cancel: &Cancel) -> Result<Option<Token<'_>>> {
        loop {
            if cancel.requested().is_some() {
                return Ok(None);
            }
            if self.try_take().doing(|| self.failing())? {
                return Ok(Some(Token(self)));
            }
            let mut fds = [PollFd::new(&self.fifo, PollFlags::IN)];
            match poll(&mut fds, Some(&GLANCE)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io(self.failing(), &e.into())),
            }
        }
    }

    /// Brings the pool back to its full size if no step runs, and says how many tokens had been lost with
    /// killed children. While steps run nothing is known and nothing is done.
    ///
    /// # Errors
    /// If the fifo cannot be read or written.
    pub fn recount(&self) -> Result<usize> {
        let held = self.lock();
        if *held > 0 {
            return Ok(0);
        }
        self.refill().doing(|| self.failing())
    }

    fn try_take(&self) -> io::Result<bool> {
        let mut held = self.lock();
        self.drop_surplus(*held)?;
        if take(&self.fifo, 1)? == 0 {
            // Without a step that could give one back, an empty pool would stay empty.
            if *held > 0 || self.refill()? == 0 || take(&self.fifo, 1)? == 0 {
                return Ok(false);
            }
        }
        *held += 1;
        Ok(true)
    }

    /// Only while no step runs. Gives the number of tokens that were missing.
    fn refill(&self) -> io::Result<usize> {
        let mut found = 0;
        loop {
            match take(&self.fifo, MOST_TOKENS)? {
                0 => break,
                n => found += n,
            }
        }
        self.put(self.tokens)?;
        Ok(self.tokens.saturating_sub(found))
    }

    /// Takes out what a child put in without having taken it: the budget never grows.
    fn drop_surplus(&self, held: usize) -> io::Result<()> {
        let surplus = (self.count()? + held).saturating_sub(self.tokens);
        if surplus > 0 {
            take(&self.fifo, surplus)?;
        }
        Ok(())
    }

    fn give_back(&self) {
        let mut held = self.lock();
        *held -= 1;
        // A token that cannot be written, or whose place was taken by a child's surplus, is a smaller pool until
        // the next recount; a larger one is not possible.
        if self.count().is_ok_and(|free| free + *held < self.tokens) {
            let _ = self.put(1);
        }
    }

    fn count(&self) -> io::Result<usize> {
        Ok(usize::try_from(rustix::io::ioctl_fionread(&self.fifo)?).unwrap_or(usize::MAX))
    }

    fn put(&self, tokens: usize) -> io::Result<()> {
        put(&self.fifo, tokens)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failing(&self) -> String {
        format!("cannot use the job budget `{}`", self.path.display())
    }
}

impl Drop for JobPool {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Tokens that a launcher took from the budget of the bm above it; given back when dropped.
#[derive(Debug)]
pub struct Borrowed {
    fifo: Option<File>,
    tokens: usize,
}

impl Borrowed {
    /// How many there are; the caller's own job is not among them.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(fifo) = &self.fifo {
            let _ = put(fifo, self.tokens);
        }
    }
}

/// Takes up to `at_most` tokens that are free now from the fifo at `path`, without waiting. No fifo, or one we
/// may not open, is no token: then there is no budget to draw on.
pub fn borrow(path: &Path, at_most: usize) -> Borrowed {
    let Ok(fifo) = open_fifo(path) else {
        return Borrowed { fifo: None, tokens: 0 };
    };
    let tokens = take(&fifo, at_most.min(MOST_TOKENS)).unwrap_or(0);
    Borrowed {
        fifo: Some(fifo),
        tokens,
    }
}

fn remove_stale(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.file_type().is_fifo() => {
            fs::remove_file(path).doing(|| "cannot remove the job budget of an earlier run".to_owned())
        }
        Ok(_) => Err(
            Error::new(Exit::Store, format!("`{}` is not a job budget", path.display())).hint(format!(
                "bm did not put it there; move it away: mv -- {0} {0}.away",
                quoted(path)
            )),
        ),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(format!("cannot look at `{}`", path.display()), &e)),
    }
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), std::borrow::Cow::into_owned)
}

/// Opens for both directions, which never waits for another process.
fn open_fifo(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        Ok(file)
    } else {
        Err(io::Error::other("not a fifo"))
    }
}

/// Takes up to `at_most` bytes that are there now.
fn take(mut fifo: &File, at_most: usize) -> io::Result<usize> {
    let mut bytes = vec![0; at_most];
    loop {
        match fifo.read(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            result => return result,
        }
    }
}

fn put(mut fifo: &File, tokens: usize) -> io::Result<()> {
    fifo.write_all(&vec![TOKEN; tokens])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::{Command, Ended, Limits, Urgency, run};

    fn pool(tokens: usize) -> (tempfile::TempDir, JobPool) {
        let dir = tempfile::tempdir().unwrap();
        let pool = JobPool::new(&dir.path().join("jobs.fifo"), tokens).unwrap();
        (dir, pool)
    }

    fn take_one(pool: &JobPool) -> Token<'_> {
        pool.acquire(&Cancel::default()).unwrap().unwrap()
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
    fn a_step_waits_for_a_token_and_gets_the_one_that_comes_back() {
        let (_dir, pool) = pool(1);
        let held = take_one(&pool);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(take_one(&pool)));
            drop(held);
            waiting.join().unwrap();
        });
        assert_eq!(pool.free().unwrap(), 1);
    }

    #[test]
    fn waiting_ends_when_a_stop_is_asked_for() {
        let (_dir, pool) = pool(1);
        let cancel = Cancel::default();
        let held = take_one(&pool);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.acquire(&cancel).unwrap().is_none());
            cancel.request(Urgency::Orderly);
            assert!(waiting.join().unwrap());
        });
        drop(held);
        assert!(pool.acquire(&cancel).unwrap().is_none(), "nothing starts after a stop");
    }

    #[test]
    fn launchers_borrow_what_is_free_and_no_more() {
        let (dir, pool) = pool(3);
        let held = take_one(&pool);
        let fifo = dir.path().join("jobs.fifo");
        let borrowed = borrow(&fifo, 8);
        assert_eq!((borrowed.tokens(), pool.free().unwrap()), (2, 0));
        assert_eq!(borrow(&fifo, 1).tokens(), 0);
        drop(borrowed);
        assert_eq!(borrow(&fifo, 0).tokens(), 0);
        assert_eq!(borrow(&fifo, 1).tokens(), 1);
        drop(held);
        assert_eq!(pool.free().unwrap(), 3);
        drop(pool);
        assert!(!fifo.exists());
        assert_eq!(borrow(&fifo, 1).tokens(), 0, "no budget, no token");
        fs::write(&fifo, "++++").unwrap();
        assert_eq!(borrow(&fifo, 1).tokens(), 0, "a file is no budget");
        assert_eq!(fs::read(&fifo).unwrap(), b"++++");
    }

    #[test]
    fn lost_tokens_come_back_when_no_step_runs() {
        let (dir, pool) = pool(3);
        let lose = |n| std::mem::forget(borrow(&dir.path().join("jobs.fifo"), n));
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
        let fifo = open_fifo(&dir.path().join("jobs.fifo")).unwrap();
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
    fn a_fifo_of_a_dead_bm_is_replaced_and_anything_else_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.fifo");
        std::mem::forget(JobPool::new(&path, 7).unwrap());
        assert_eq!(JobPool::new(&path, 2).unwrap().free().unwrap(), 2);
        fs::write(&path, "mine").unwrap();
        assert_eq!(JobPool::new(&path, 2).unwrap_err().exit(), Exit::Store);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        for tokens in [0, MOST_TOKENS + 1] {
            assert_eq!(JobPool::new(&path, tokens).unwrap_err().exit(), Exit::Usage);
        }
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
}
