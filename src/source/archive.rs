//! Unpacking release archives: `.tar` alone or in gzip, bzip2 or xz, told by content.
//!
//! Owns the judgement of every entry: nothing is written outside the destination, nothing that is no
//! file, directory or link, and an archive that was cut or carries more than its end is refused.
//! Knows no checksums: the caller has compared them before.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use tar::EntryType;

use super::tree;
use crate::error::{Error, Exit, IoContext, Result};

/// What an archive held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnpackReport {
    /// Regular files, hard links included.
    pub files: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes of file content.
    pub bytes: u64,
    /// Newest modification time of an entry, seconds since the epoch.
    pub newest: u64,
}

/// Bounds no honest release reaches; they stop an archive made to fill the disk.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    entries: u64,
    bytes: u64,
}

const BOUNDS: Bounds = Bounds {
    entries: 1_000_000,
    bytes: 16 << 30,
};

/// One block of a tar stream.
const BLOCK: u64 = 512;

/// Unpacks `path` into `dest`, an existing empty directory, without the first `strip` parts of each
/// name, which must be the same in all entries. Times are kept, since generated files of a release
/// must stay newer than what they were made from; modes become 0755 or 0644.
///
/// # Errors
/// Exit 4 for an archive that is hostile, cut, of another format, or of another shape than `strip`
/// says; exit 3 if the disk fails. `dest` is empty again then.
pub fn unpack(path: &Path, dest: &Path, strip: usize) -> Result<UnpackReport> {
    unpack_within(path, dest, strip, BOUNDS)
}

fn unpack_within(path: &Path, dest: &Path, strip: usize, bounds: Bounds) -> Result<UnpackReport> {
    let doing = || "cannot unpack a source archive".to_owned();
    if fs::read_dir(dest).doing(doing)?.next().is_some() {
        return Err(
            Error::new(Exit::Bug, "a source archive was to be unpacked over other files")
                .detail("tree", dest.display()),
        );
    }
    let mut unpacker = Unpacker {
        dest,
        strip,
        top: None,
        bounds,
        made: HashMap::new(),
        dir_times: vec![],
        report: UnpackReport::default(),
    };
    unpacker.run(path).map_err(|trouble| {
        empty(dest);
        trouble.into_error(path)
    })
}

/// Removes what was unpacked. Only for an error that is already being reported.
fn empty(dest: &Path) {
    for entry in fs::read_dir(dest).into_iter().flatten().flatten() {
        let _ = match entry.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(entry.path()),
            _ => fs::remove_file(entry.path()),
        };
    }
}

/// Why unpacking stopped.
enum Trouble {
    /// The archive is not what it should be.
    Archive(String),
    /// An entry of the archive is not what it should be.
    Entry(String, String),
    /// The destination cannot be written.
    Disk(io::Error),
}

impl Trouble {
    fn into_error(self, path: &Path) -> Error {
        let source = |why: String| {
            Error::new(Exit::Source, "cannot unpack a source archive")
                .detail("archive", path.display())
                .detail("reason", why)
        };
        match self {
            Trouble::Archive(why) => source(why),
            Trouble::Entry(name, why) => source(why).detail("entry", name),
            Trouble::Disk(e) => Error::io("cannot unpack a source archive", &e).detail("archive", path.display()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Self {
        Trouble::Disk(e)
    }
}

fn unreadable(e: &io::Error) -> Trouble {
    Trouble::Archive(format!("it is damaged or cut short: {e}"))
}

/// Counts the bytes of the tar stream, so that what follows the last entry can be judged.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

/// The plain tar stream of a file, by its first bytes.
fn decoder(path: &Path) -> Result<Box<dyn Read>, Trouble> {
    let mut file = fs::File::open(path)?;
    let mut magic = [0; 6];
    let mut got = 0;
    while got < magic.len() {
        match file.read(&mut magic[got..])? {
            0 => break,
            n => got += n,
        }
    }
    let whole = BufReader::with_capacity(1 << 16, io::Cursor::new(magic).take(got as u64).chain(file));
    Ok(match &magic[..got] {
        [] => return Err(Trouble::Archive("the file is empty".into())),
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::bufread::MultiBzDecoder::new(whole)),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(whole)),
        [b'<', ..] => return Err(Trouble::Archive("it is a web page".into())),
        _ => Box::new(whole),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Dir,
    File,
    Link,
}

struct Unpacker<'a> {
    dest: &'a Path,
    strip: usize,
    /// The parts that are stripped, once the first entry has named them.
    top: Option<PathBuf>,
    bounds: Bounds,
    /// Everything written, by its path below `dest`. `dest` was empty, so this is all there is.
    made: HashMap<PathBuf, Made>,
    /// Directories get their times last: writing into them changes the time.
    dir_times: Vec<(PathBuf, u64)>,
    report: UnpackReport,
}

impl Unpacker<'_> {
    fn run(&mut self, path: &Path) -> Result<UnpackReport, Trouble> {
        let stream = Counted {
            inner: decoder(path)?,
            bytes: 0,
        };
        let mut archive = tar::Archive::new(stream);
        let mut entries = 0;
        let mut end = 0;
        for entry in archive.entries().map_err(|e| unreadable(&e))? {
            let mut entry = entry.map_err(|e| unreadable(&e))?;
            entries += 1;
            if entries > self.bounds.entries {
                return Err(Trouble::Archive(format!(
                    "it has more than {} entries",
                    self.bounds.entries
                )));
            }
            end = entry.raw_file_position() + entry.size().next_multiple_of(BLOCK);
            self.entry(&mut entry)?;
        }
        check_end(archive.into_inner(), end)?;
        if self.report.files == 0 {
            return Err(Trouble::Archive("there is no file in it".into()));
        }
        for (dir, time) in self.dir_times.iter().rev() {
            fs::File::open(self.dest.join(dir))?.file().set_modified(at(*time))?;
        }
        Ok(std::mem::take(&mut self.report))
    }

    fn entry(&mut self, entry: &mut tar::Entry<'_, Counted<Box<dyn Read>>>) -> Result<(), Trouble> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            // The comment git archive writes; it names no file.
            return Ok(());
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let refuse = |why: &str| Trouble::Entry(name.clone(), why.to_owned());
        let full = tree::inside(&name).map_err(&refuse)?;
        let Some(path) = self.stripped(&full, kind).map_err(|why| refuse(&why))? else {
            return Ok(());
        };
        let time = entry.header().mtime().map_err(|e| unreadable(&e))?;
        match kind {
            EntryType::Directory => {
                self.directory(&path).map_err(|e| e.or_refuse(&refuse))?;
                self.dir_times.push((path, time));
            }
            EntryType::Regular | EntryType::Continuous => {
                self.place(&path, Made::File).map_err(|e| e.or_refuse(&refuse))?;
                self.file(entry, &path, time)?;
            }
            EntryType::Symlink | EntryType::Link => {
                let target = entry
                    .link_name_bytes()
                    .ok_or_else(|| refuse("it is a link to nothing"))?;
                let target = PathBuf::from(std::ffi::OsStr::from_bytes(&target));
                if kind == EntryType::Symlink {
                    self.symlink(&path, &target).map_err(|e| e.or_refuse(&refuse))?;
                } else {
                    self.hard_link(&path, &target).map_err(|e| e.or_refuse(&refuse))?;
                }
            }
            _ => return Err(refuse("it is neither a file, a directory nor a link")),
        }
        self.report.newest = self.report.newest.max(time);
        Ok(())
    }

    /// The path without its first parts; `None` for the stripped directories themselves.
    fn stripped(&mut self, full: &Path, kind: EntryType) -> Result<Option<PathBuf>, String> {
        let parts = full.components().count();
        if parts == 0 {
            return Ok(None);
        }
        let top: PathBuf = full.components().take(self.strip).collect();
        if parts < self.strip || (parts == self.strip && kind != EntryType::Directory) {
            if kind == EntryType::Directory {
                return Ok(None);
            }
            return Err("it is not below a common top directory".into());
        }
        match &self.top {
            Some(known) if *known != top => {
                return Err(format!(
                    "it is not below `{}`, the top directory of the entries before it",
                    known.display()
                ));
            }
            Some(_) => {}
            None => self.top = Some(top),
        }
        let rest: PathBuf = full.components().skip(self.strip).collect();
        Ok((parts > self.strip).then_some(rest))
    }

    /// Creates the directories above `path` and notes that it is about to be made.
    fn place(&mut self, path: &Path, made: Made) -> Result<(), Step> {
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            self.directory(parent)?;
        }
        match self.made.insert(path.to_owned(), made) {
            None => Ok(()),
            Some(_) => Err(Step::Refuse("another entry has the same name")),
        }
    }

    fn directory(&mut self, path: &Path) -> Result<(), Step> {
        match self.made.get(path) {
            Some(Made::Dir) => return Ok(()),
            Some(Made::Link) => return Err(Step::Refuse("it goes through a symbolic link of the archive")),
            Some(Made::File) => return Err(Step::Refuse("it goes through a file of the archive")),
            None => {}
        }
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            self.directory(parent)?;
        }
        let full = self.dest.join(path);
        fs::create_dir(&full)?;
        fs::set_permissions(&full, std::fs::Permissions::from_mode(0o755))?;
        self.made.insert(path.to_owned(), Made::Dir);
        Ok(())
    }

    fn file(&mut self, entry: &mut tar::Entry<'_, impl Read>, path: &Path, time: u64) -> Result<(), Trouble> {
        let size = entry.size();
        self.report.files += 1;
        self.report.bytes = self.report.bytes.saturating_add(size);
        if self.report.bytes > self.bounds.bytes {
            return Err(Trouble::Archive(format!(
                "it unpacks to more than {} bytes",
                self.bounds.bytes
            )));
        }
        let mode = entry.header().mode().map_err(|e| unreadable(&e))?;
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let full = self.dest.join(path);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&full)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", full.display())))?;
        if copy(entry, &mut file)? != size {
            return Err(Trouble::Entry(
                path.display().to_string(),
                "the archive is cut short inside it".into(),
            ));
        }
        // The umask may have taken bits away, and the mode is part of what a build sees.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.set_modified(at(time))?;
        Ok(())
    }

    fn symlink(&mut self, path: &Path, target: &Path) -> Result<(), Step> {
        if !tree::link_stays_inside(path, target) {
            return Err(Step::Refuse("it is a symbolic link that may lead out of the tree"));
        }
        self.place(path, Made::Link)?;
        fs_err::os::unix::fs::symlink(target, self.dest.join(path))?;
        self.report.links += 1;
        Ok(())
    }

    fn hard_link(&mut self, path: &Path, target: &Path) -> Result<(), Step> {
        let target = tree::inside(&target.to_string_lossy()).map_err(Step::Refuse)?;
        let target = self.stripped(&target, EntryType::Regular).ok().flatten();
        let known = target.filter(|t| self.made.get(t) == Some(&Made::File));
        let target = known.ok_or(Step::Refuse("it is a hard link to no earlier file of the archive"))?;
        self.place(path, Made::File)?;
        fs::hard_link(self.dest.join(target), self.dest.join(path))?;
        self.report.files += 1;
        Ok(())
    }
}

/// Why an entry could not be made, before its name is put to it.
enum Step {
    Refuse(&'static str),
    Disk(io::Error),
}

impl From<io::Error> for Step {
    fn from(e: io::Error) -> Self {
        Step::Disk(e)
    }
}

impl Step {
    fn or_refuse(self, refuse: &dyn Fn(&str) -> Trouble) -> Trouble {
        match self {
            Step::Refuse(why) => refuse(why),
            Step::Disk(e) => Trouble::Disk(e),
        }
    }
}

/// Copies an entry and keeps apart whose fault a failure is.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<u64, Trouble> {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        let n = from.read(&mut buffer).map_err(|e| unreadable(&e))?;
        if n == 0 {
            return Ok(total);
        }
        to.write_all(&buffer[..n])?;
        total += n as u64;
    }
}

/// A whole archive ends with two blocks of zeros at least and nothing else. Reading on to the end of
/// the stream also makes the decoder check its own sums.
fn check_end(mut stream: Counted<Box<dyn Read>>, end_of_entries: u64) -> Result<(), Trouble> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = stream.read(&mut buffer).map_err(|e| unreadable(&e))?;
        if n == 0 {
            break;
        }
        if buffer[..n].iter().any(|b| *b != 0) {
            return Err(Trouble::Archive("something follows its end".into()));
        }
    }
    let tail = stream.bytes.saturating_sub(end_of_entries);
    if tail < 2 * BLOCK || !stream.bytes.is_multiple_of(BLOCK) {
        return Err(Trouble::Archive("it is cut short: its end mark is missing".into()));
    }
    Ok(())
}

fn at(seconds: u64) -> SystemTime {
    // A time beyond what the file system can hold is of no use to make; the epoch is.
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Name, kind, link target, content. Names are put into the header unchecked.
    type Item<'a> = (&'a str, EntryType, &'a str, &'a [u8]);

    const FILE: EntryType = EntryType::Regular;
    const DIR: EntryType = EntryType::Directory;
    const SYM: EntryType = EntryType::Symlink;
    const HARD: EntryType = EntryType::Link;

    fn tar_of(items: &[Item<'_>]) -> Vec<u8> {
        let mut builder = tar::Builder::new(vec![]);
        for (name, kind, target, content) in items {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(if name.ends_with(".sh") { 0o4777 } else { 0o600 });
            header.set_mtime(1_000_000 + content.len() as u64);
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn good() -> Vec<u8> {
        tar_of(&[
            ("p-1/", DIR, "", b""),
            ("p-1/configure.sh", FILE, "", b"#!/bin/sh\n"),
            ("p-1/src/main.c", FILE, "", b"int main;"),
            ("p-1/src/again.c", HARD, "p-1/src/main.c", b""),
            ("p-1/src/up", SYM, "../configure.sh", b""),
            ("p-1/zeros", FILE, "", &[0; 2048]),
        ])
    }

    struct Case {
        temp: tempfile::TempDir,
    }

    impl Case {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            fs::create_dir(temp.path().join("dest")).unwrap();
            Case { temp }
        }

        fn dest(&self) -> PathBuf {
            self.temp.path().join("dest")
        }

        fn unpack(&self, bytes: &[u8], strip: usize) -> Result<UnpackReport> {
            let path = self.temp.path().join("a.tar");
            fs::write(&path, bytes).unwrap();
            unpack(&path, &self.dest(), strip)
        }
    }

    fn check_refused(bytes: &[u8], strip: usize, says: &str) {
        let case = Case::new();
        let error = case.unpack(bytes, strip).unwrap_err();
        assert_eq!(error.exit(), Exit::Source, "{error}");
        assert!(error.to_string().contains(says), "expected `{says}` in: {error}");
        assert_eq!(fs::read_dir(case.dest()).unwrap().count(), 0, "nothing is left");
        assert_eq!(fs::read_dir(case.temp.path()).unwrap().count(), 2, "nothing beside it");
    }

    fn compressed(name: &str, plain: &[u8]) -> Vec<u8> {
        match name {
            "gz" => {
                let mut w = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
                w.write_all(plain).unwrap();
                w.finish().unwrap()
            }
            "bz2" => {
                let mut w = bzip2::write::BzEncoder::new(vec![], bzip2::Compression::fast());
                w.write_all(plain).unwrap();
                w.finish().unwrap()
            }
            "xz" => {
                let mut w = liblzma::write::XzEncoder::new(vec![], 1);
                w.write_all(plain).unwrap();
                w.finish().unwrap()
            }
            _ => plain.to_vec(),
        }
    }

    #[test]
    fn every_format_gives_the_tree_with_times_and_sane_modes() {
        for format in ["tar", "gz", "bz2", "xz"] {
            let case = Case::new();
            let report = case.unpack(&compressed(format, &good()), 1).unwrap();
            assert_eq!((report.files, report.links, report.bytes), (4, 1, 2067), "{format}");
            assert_eq!(report.newest, 1_002_048);
            let at = |p: &str| fs::metadata(case.dest().join(p)).unwrap();
            assert_eq!(fs::read(case.dest().join("src/again.c")).unwrap(), b"int main;");
            assert_eq!(at("configure.sh").permissions().mode() & 0o7777, 0o755);
            assert_eq!(at("src/main.c").permissions().mode() & 0o7777, 0o644);
            assert_eq!(at("src/main.c").modified().unwrap(), super::at(1_000_009));
            assert_eq!(
                fs::read_link(case.dest().join("src/up")).unwrap(),
                Path::new("../configure.sh")
            );
        }
    }

    #[test]
    fn an_archive_may_be_unpacked_as_it_is() {
        let case = Case::new();
        case.unpack(
            &tar_of(&[("./", DIR, "", b""), ("./a", FILE, "", b"1"), ("b", FILE, "", b"2")]),
            0,
        )
        .unwrap();
        assert!(case.dest().join("a").is_file() && case.dest().join("b").is_file());
    }

    #[test]
    fn hostile_entries_are_refused() {
        let file: Item<'_> = ("p/a", FILE, "", b"x");
        let cases: &[(&[Item<'_>], &str)] = &[
            (&[file, ("p/../../x", FILE, "", b"x")], "leaves the tree"),
            (&[file, ("/etc/x", FILE, "", b"x")], "absolute"),
            (&[file, ("p/.git/config", FILE, "", b"x")], "`.git`"),
            (&[("p/l", SYM, "/etc", b"")], "lead out of the tree"),
            (&[("p/l", SYM, "../..", b"")], "lead out of the tree"),
            (
                &[
                    ("p/d/", DIR, "", b""),
                    ("p/l", SYM, "d", b""),
                    ("p/l/x", FILE, "", b"x"),
                ],
                "through a symbolic link",
            ),
            (&[("p/l", SYM, "d", b""), ("p/l", FILE, "", b"x")], "same name"),
            (&[file, ("p/a/b", FILE, "", b"x")], "through a file"),
            (&[file, file], "same name"),
            (&[file, ("p/h", HARD, "p/none", b"")], "hard link to no earlier file"),
            (&[file, ("p/h", HARD, "/etc/passwd", b"")], "absolute"),
            (&[file, ("p/h", HARD, "../x", b"")], "leaves the tree"),
            (
                &[("p/l", SYM, "a", b""), ("p/h", HARD, "p/l", b"")],
                "hard link to no earlier file",
            ),
            (&[file, ("p/null", EntryType::Char, "", b"")], "neither a file"),
            (&[file, ("p/disk", EntryType::Block, "", b"")], "neither a file"),
            (&[file, ("p/pipe", EntryType::Fifo, "", b"")], "neither a file"),
            (&[file, ("q/a", FILE, "", b"x")], "not below `p`"),
            (&[("top", FILE, "", b"x")], "not below a common top"),
            (&[("p/", DIR, "", b"")], "no file"),
        ];
        for (items, says) in cases {
            check_refused(&tar_of(items), 1, says);
        }
    }

    #[test]
    fn a_cut_archive_is_refused_wherever_it_was_cut() {
        let whole = good();
        // The zeros at the end of the last entry must not pass for an end mark.
        for keep in (1..whole.len() - 512).step_by(256) {
            let case = Case::new();
            let error = case.unpack(&whole[..keep], 1).expect_err(&format!("cut at {keep}"));
            assert_eq!(error.exit(), Exit::Source, "{error}");
            assert_eq!(fs::read_dir(case.dest()).unwrap().count(), 0);
        }
        for format in ["gz", "bz2", "xz"] {
            let packed = compressed(format, &whole);
            for cut in [1, 4, 9, packed.len() / 2] {
                check_refused(&packed[..packed.len() - cut], 1, "damaged or cut short");
            }
        }
    }

    #[test]
    fn what_follows_the_end_is_refused() {
        let mut more = good();
        more.extend([0; 4096]);
        Case::new().unpack(&more, 1).expect("padding to a record is normal");
        more.extend([7; 512]);
        check_refused(&more, 1, "something follows its end");
        for format in ["gz", "bz2", "xz"] {
            let mut packed = compressed(format, &good());
            packed.extend(b"garbage that is no member");
            check_refused(&packed, 1, "damaged or cut short");
        }
    }

    #[test]
    fn other_files_are_no_archives() {
        check_refused(b"", 1, "the file is empty");
        check_refused(b"<!DOCTYPE html><title>Gone</title>", 1, "a web page");
        check_refused(&[b'x'; 4096], 1, "damaged or cut short");
        check_refused(&[0; 1024], 1, "no file");
    }

    #[test]
    fn a_damaged_byte_is_found_by_the_compressor() {
        let mut packed = compressed("gz", &good());
        let middle = packed.len() - 6;
        packed[middle] ^= 1;
        check_refused(&packed, 1, "damaged or cut short");
    }

    #[test]
    fn bounds_stop_an_archive_made_to_fill_the_disk() {
        let case = Case::new();
        let path = case.temp.path().join("a.tar");
        fs::write(&path, good()).unwrap();
        for (entries, bytes, says) in [(2, 1 << 20, "more than 2 entries"), (99, 100, "more than 100 bytes")] {
            let error = unpack_within(&path, &case.dest(), 1, Bounds { entries, bytes }).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn other_files_in_the_destination_are_never_touched() {
        let case = Case::new();
        fs::write(case.dest().join("mine"), "x").unwrap();
        assert_eq!(case.unpack(&good(), 1).unwrap_err().exit(), Exit::Bug);
        assert!(case.dest().join("mine").exists());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged_without_panic_and_leave_nothing(noise in proptest::collection::vec(0_u8..=255, 0..8), at in 0_usize..6000) {
            let mut bytes = good();
            let at = at % bytes.len();
            let end = (at + noise.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&noise[..end - at]);
            let case = Case::new();
            let outcome = case.unpack(&bytes, 1);
            proptest::prop_assert_eq!(fs::read_dir(case.temp.path()).unwrap().count(), 2);
            if outcome.is_err() {
                proptest::prop_assert_eq!(fs::read_dir(case.dest()).unwrap().count(), 0);
            }
        }
    }
}
