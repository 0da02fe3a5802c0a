//! Tokens as bytes in a fifo: opening, taking, putting. Knows nothing of who owns them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Any byte is a token; make's own are these.
const TOKEN: u8 = b'+';

/// What a pipe holds for certain and takes in one write, even when its owner has used up all pipe memory.
pub(super) const MOST_TOKENS: usize = 4096;

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

/// Opens for both directions, which never waits for another process. A pipe of another process can be
/// opened by its place below `/proc`.
pub(super) fn open_fifo(path: &Path) -> io::Result<File> {
    let follow = if path.starts_with("/proc") { 0 } else { libc::O_NOFOLLOW };
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | follow)
        .open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        Ok(file)
    } else {
        Err(io::Error::other("not a fifo"))
    }
}

/// Takes up to `at_most` bytes that are there now.
pub(super) fn take(mut fifo: &File, at_most: usize) -> io::Result<usize> {
    let mut bytes = vec![0; at_most];
    loop {
        match fifo.read(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            result => return result,
        }
    }
}

pub(super) fn put(mut fifo: &File, tokens: usize) -> io::Result<()> {
    fifo.write_all(&vec![TOKEN; tokens])
}

/// Takes everything out and gives its number.
pub(super) fn drain(fifo: &File) -> io::Result<usize> {
    let mut found = 0;
    loop {
        match take(fifo, MOST_TOKENS)? {
            0 => return Ok(found),
            n => found += n,
        }
    }
}

/// Bytes that are in it now.
pub(super) fn count(fifo: &File) -> io::Result<usize> {
    Ok(usize::try_from(rustix::io::ioctl_fionread(fifo)?).unwrap_or(usize::MAX))
}
