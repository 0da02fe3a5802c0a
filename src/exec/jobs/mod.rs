//! The job budget: one fifo of tokens over all builds, all makes, all link-time optimisation.
//!
//! Every byte in the fifo is leave to use one processor. A build in flight holds one token (for make this is
//! the one a jobserver's client has without asking); make takes and returns further ones through the descriptors
//! it inherits, and a launcher somewhere below make borrows them by the fifo's path. Owns the tokens; does not
//! know what they are spent on.
//!
//! All bm of one cache and host draw on one fifo: the first makes it, the last leaves it full. A bm that was
//! started by a make with a jobserver draws on that make's tokens instead.
//!
//! A killed make takes its tokens with it. They come back when no build runs: then nobody can hold one, and the
//! pool is filled up again ([`JobPool::recount`]). In between the pool is smaller, never larger.

mod books;
mod fifo;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs_err as fs;
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat};

use crate::error::{Error, Exit, IoContext, Result};
use crate::process::Jobserver;

use books::{Books, Entry, Size};
use fifo::{MOST_TOKENS, count, drain, open_fifo, put, take};

pub use fifo::{Borrowed, borrow};

/// The budget as one bm process sees it.
#[derive(Debug)]
pub struct JobPool {
    /// The fifo, by a path that children can open.
    path: PathBuf,
    /// A description of its own: the one make reads from is made non-blocking, or not, by make.
    fifo: File,
    kind: Kind,
    /// Tokens held by builds of this process. Locked while the pool is counted.
    held: Mutex<usize>,
}

#[derive(Debug)]
enum Kind {
    /// The fifo in a directory of ours, shared with other bm.
    Ours { dir: PathBuf, entry: Mutex<Entry> },
    /// The tokens of the make that started bm, which left one to bm without asking.
    Outer { jobs: usize },
}

/// Leave to run one job; given back when dropped.
#[derive(Debug)]
pub struct Token<'a>(&'a JobPool);

/// A place in the line of those who wait for a token. Dropped, it lets the next one pass.
#[derive(Debug)]
pub struct Place(Receiver<()>);

/// A budget that was joined: its size, and the processes that were there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// Size of the budget.
    pub jobs: usize,
    /// Process ids.
    pub with: Vec<u32>,
}

impl JobPool {
    /// Joins the budget in `dir`, or makes it with `jobs` tokens if nobody uses it; then [`Shared`] is nothing.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a number of tokens that makes no sense, [`Exit::Store`] if something that is no fifo
    /// is in its place, [`Exit::Host`] if it cannot be made.
    pub fn open(dir: &Path, jobs: usize) -> Result<(JobPool, Option<Shared>)> {
        check(jobs)?;
        let path = dir.join("tokens");
        let doing = || format!("cannot make the job budget `{}`", path.display());
        fs::create_dir_all(dir).doing(doing)?;
        let books = Books::open(dir).doing(doing)?;
        let others = books.others(None).doing(doing)?;
        let joined = books.size().filter(|_| !others.is_empty());
        if joined.is_none() {
            make_fifo(&path)?;
        }
        let fifo = open_fifo(&path).doing(doing)?;
        if joined.is_none() {
            drain(&fifo).and_then(|_| put(&fifo, jobs)).doing(doing)?;
            books
                .set_size(Size {
                    now: jobs,
                    wanted: jobs,
                })
                .doing(doing)?;
        }
        let entry = books.enter().doing(doing)?;
        drop(books);
        let shared = joined.map(|size| Shared {
            jobs: size.wanted,
            with: others.iter().map(|o| o.pid).collect(),
        });
        let pool = JobPool {
            path,
            fifo,
            kind: Kind::Ours {
                dir: dir.to_owned(),
                entry: Mutex::new(entry),
            },
            held: Mutex::new(0),
        };
        Ok((pool, shared))
    }

    /// The budget of the make that started bm, from its `MAKEFLAGS`: nothing if there is none.
    ///
    /// # Errors
    /// Why make's tokens cannot be had, in a few words: most often the recipe is not marked with `+`.
    pub fn outer(makeflags: &str) -> Result<Option<JobPool>, String> {
        let Some(place) = outer_place(makeflags) else {
            return Ok(None);
        };
        let fifo = open_fifo(&place).map_err(|e| e.to_string())?;
        let words = makeflags.split_whitespace().filter_map(|w| w.strip_prefix("-j"));
        let jobs = words.filter_map(|n| n.parse().ok()).next_back().unwrap_or(1);
        Ok(Some(JobPool {
            path: place,
            fifo,
            kind: Kind::Outer { jobs },
            held: Mutex::new(0),
        }))
    }

    /// Changes the size of the budget; false where it is not ours to change, or is of that size.
    ///
    /// # Errors
    /// As [`resize`].
    pub fn resize(&self, jobs: usize) -> Result<bool> {
        match &self.kind {
            Kind::Outer { .. } => Ok(false),
            Kind::Ours { dir, .. } => Ok(resize(dir, jobs)? != jobs),
        }
    }

    /// The fifo, for those that [`borrow`].
    pub fn fifo(&self) -> &Path {
        &self.path
    }

    /// Size of the budget as it is wanted now.
    pub fn tokens(&self) -> usize {
        match &self.kind {
            Kind::Outer { jobs } => *jobs,
            Kind::Ours { dir, .. } => Books::open(dir).ok().and_then(|b| b.size()).map_or(1, |s| s.wanted),
        }
    }

    /// Tokens that nobody holds at this moment.
    ///
    /// # Errors
    /// If the system refuses to count.
    pub fn free(&self) -> Result<usize> {
        count(&self.fifo).doing(|| self.failing())
    }

    /// The budget as [`crate::process::run`] hands it to a child.
    pub fn jobserver(&self) -> Jobserver {
        Jobserver {
            fifo: self.path.clone(),
            tokens: self.tokens(),
            load: None,
        }
    }

    /// Takes a token if one is free.
    ///
    /// # Errors
    /// If the fifo or the books cannot be used.
    pub fn try_take(&self) -> Result<Option<Token<'_>>> {
        let took = self.try_take_one().doing(|| self.failing())?;
        Ok(took.then(|| Token(self)))
    }

    /// Lines up for a token with all the makes that wait for one. Looking now and then whether one is free loses against
    /// them for as long as they have work.
    ///
    /// # Errors
    /// If the fifo cannot be opened.
    pub fn line_up(&self) -> Result<Place> {
        let fifo = open_fifo(&self.path).doing(|| self.failing())?;
        let blocking = fcntl_getfl(fifo.as_fd()).and_then(|flags| fcntl_setfl(fifo.as_fd(), flags - OFlags::NONBLOCK));
        blocking.map_err(io::Error::from).doing(|| self.failing())?;
        let (tell, told) = channel();
        // It may wait for ever, and ends with the process then.
        std::thread::spawn(move || {
            let mut fifo = fifo;
            let mut token = [0];
            if fifo.read_exact(&mut token).is_ok() && tell.send(()).is_err() {
                // Nobody wants it any more.
                let _ = fifo.write_all(&token);
            }
        });
        Ok(Place(told))
    }

    /// The token of a place in the line, if it has come.
    ///
    /// # Errors
    /// If the books cannot be used.
    pub fn take_from(&self, place: &Place) -> Result<Option<Token<'_>>> {
        if place.0.try_recv().is_err() {
            return Ok(None);
        }
        let mut held = self.lock();
        *held += 1;
        if let Kind::Ours { entry, .. } = &self.kind {
            let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
            entry.set(*held).doing(|| self.failing())?;
        }
        drop(held);
        Ok(Some(Token(self)))
    }

    /// Brings the pool back to its full size if no build runs, and says how many tokens had been lost with
    /// killed children. While builds run nothing is known and nothing is done.
    ///
    /// # Errors
    /// If the fifo or the books cannot be used.
    pub fn recount(&self) -> Result<usize> {
        let held = self.lock();
        let Kind::Ours { dir, entry } = &self.kind else {
            return Ok(0);
        };
        let count = || {
            let books = Books::open(dir)?;
            let entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
            let others = books.held_by_others(&entry)?;
            if *held + others > 0 {
                return Ok(0);
            }
            self.refill(&books)
        };
        count().doing(|| self.failing())
    }

    fn try_take_one(&self) -> io::Result<bool> {
        let mut held = self.lock();
        match &self.kind {
            // The first is the one make left us without asking.
            Kind::Outer { .. } => {
                if *held > 0 && take(&self.fifo, 1)? == 0 {
                    return Ok(false);
                }
                *held += 1;
            }
            Kind::Ours { dir, entry } => {
                let books = Books::open(dir)?;
                let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
                let others = books.held_by_others(&entry)?;
                self.settle(&books, *held + others)?;
                if take(&self.fifo, 1)? == 0 {
                    // Without a build that could give one back, an empty pool would stay empty.
                    if *held + others > 0 || self.refill(&books)? == 0 || take(&self.fifo, 1)? == 0 {
                        return Ok(false);
                    }
                }
                *held += 1;
                entry.set(*held)?;
            }
        }
        Ok(true)
    }

    /// Grows or shrinks the pool to what is wanted, as far as tokens are free, and takes out what a child put in
    /// without having taken it.
    fn settle(&self, books: &Books<'_>, held: usize) -> io::Result<Size> {
        let mut size = books.size_or_one();
        let surplus = (count(&self.fifo)? + held).saturating_sub(size.now);
        if surplus > 0 {
            take(&self.fifo, surplus)?;
        }
        if size.now > size.wanted {
            size.now -= take(&self.fifo, size.now - size.wanted)?;
            books.set_size(size)?;
        } else if size.now < size.wanted {
            put(&self.fifo, size.wanted - size.now)?;
            size.now = size.wanted;
            books.set_size(size)?;
        }
        Ok(size)
    }

    /// Only while no build runs. Gives the number of tokens that were missing.
    fn refill(&self, books: &Books<'_>) -> io::Result<usize> {
        let size = books.size_or_one();
        let found = drain(&self.fifo)?;
        put(&self.fifo, size.wanted)?;
        books.set_size(Size {
            now: size.wanted,
            ..size
        })?;
        Ok(size.wanted.saturating_sub(found))
    }

    /// A token that cannot be written, or whose place was taken by a child's surplus, is a smaller pool until
    /// the next recount; a larger one is not possible.
    fn give_back(&self) {
        let mut held = self.lock();
        *held -= 1;
        let Kind::Ours { dir, entry } = &self.kind else {
            if *held > 0 {
                let _ = put(&self.fifo, 1);
            }
            return;
        };
        let give = || -> io::Result<()> {
            let books = Books::open(dir)?;
            let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
            entry.set(*held)?;
            let others = books.held_by_others(&entry)?;
            let mut size = books.size_or_one();
            if size.now > size.wanted {
                size.now -= 1;
                return books.set_size(size);
            }
            if count(&self.fifo)? + *held + others < size.now {
                put(&self.fifo, 1)?;
            }
            Ok(())
        };
        let _ = give();
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failing(&self) -> String {
        format!("cannot use the job budget `{}`", self.path.display())
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// How the budget in `dir` is used now: its size, what builds and their makes hold of it, and who they are;
/// nothing where no bm builds.
///
/// # Errors
/// If the books cannot be read.
pub fn usage(dir: &Path) -> Result<Option<(Shared, usize)>> {
    let doing = || format!("cannot read the job budget `{}`", dir.display());
    if !dir.join("size").exists() {
        return Ok(None);
    }
    let books = Books::open(dir).doing(doing)?;
    let users = books.others(None).doing(doing)?;
    let Some(size) = books.size().filter(|_| !users.is_empty()) else {
        return Ok(None);
    };
    let free = count(&open_fifo(&dir.join("tokens")).doing(doing)?).doing(doing)?;
    let shared = Shared {
        jobs: size.wanted,
        with: users.iter().map(|u| u.pid).collect(),
    };
    Ok(Some((shared, size.now.saturating_sub(free))))
}

/// Changes the size of the budget in `dir` while it is used; gives the old size. Tokens that are to go are taken
/// out as they come back.
///
/// # Errors
/// [`Exit::Usage`] for a size that makes no sense or when no bm builds at the moment.
pub fn resize(dir: &Path, jobs: usize) -> Result<usize> {
    check(jobs)?;
    let nobody = || {
        Error::new(Exit::Usage, "no bm builds at this moment")
            .hint("give the number with `bm build -j`, or in the config")
    };
    if !dir.join("size").exists() {
        return Err(nobody());
    }
    let doing = || format!("cannot change the job budget `{}`", dir.display());
    let books = Books::open(dir).doing(doing)?;
    let size = books.size().ok_or_else(nobody)?;
    if books.others(None).doing(doing)?.is_empty() {
        return Err(nobody());
    }
    let mut new = Size { wanted: jobs, ..size };
    let fifo = open_fifo(&dir.join("tokens")).doing(doing)?;
    if new.now < jobs {
        put(&fifo, jobs - new.now).doing(doing)?;
        new.now = jobs;
    } else {
        new.now -= take(&fifo, new.now - jobs).doing(doing)?;
    }
    books.set_size(new).doing(doing)?;
    Ok(size.wanted)
}

/// Where the tokens of the make above are: a fifo, or the read end of a pipe that this process inherited.
fn outer_place(makeflags: &str) -> Option<PathBuf> {
    let words = makeflags.split_whitespace();
    let auth = words
        .filter_map(|w| {
            w.strip_prefix("--jobserver-auth=")
                .or(w.strip_prefix("--jobserver-fds="))
        })
        .next_back()?;
    if let Some(path) = auth.strip_prefix("fifo:") {
        return Some(path.into());
    }
    let (read, _) = auth.split_once(',')?;
    let read: u32 = read.parse().ok()?;
    Some(format!("/proc/{}/fd/{read}", std::process::id()).into())
}

fn check(jobs: usize) -> Result<()> {
    if (1..=MOST_TOKENS).contains(&jobs) {
        return Ok(());
    }
    Err(Error::new(Exit::Usage, format!("cannot run {jobs} jobs at once"))
        .hint(format!("choose a number from 1 to {MOST_TOKENS} with `-j`")))
}

/// The fifo of an earlier run is used again.
fn make_fifo(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.file_type().is_fifo() => Ok(()),
        Ok(_) => Err(
            Error::new(Exit::Store, format!("`{}` is not a job budget", path.display())).hint(format!(
                "bm did not put it there; move it away: mv -- {0} {0}.away",
                quoted(path)
            )),
        ),
        Err(e) if e.kind() == io::ErrorKind::NotFound => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(io::Error::from)
            .doing(|| format!("cannot make the job budget `{}`", path.display())),
        Err(e) => Err(Error::io(format!("cannot look at `{}`", path.display()), &e)),
    }
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests;
