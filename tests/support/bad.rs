//! A space of its own for each end-to-end test: an overlay with the product `fakedb`, its real source
//! as an archive and as a repository, a root, a cache, and the real `bm` in an environment of its own.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sha2::{Digest as _, Sha256};

/// Longest one call of bm may take; a hang then fails its own test, with what was said so far.
const BOUND: Timespec = Timespec {
    tv_sec: 120,
    tv_nsec: 0,
};

const URL: &str = "https://fakedb.example/";

/// `{VERSIONS}`, and what tests put for `#MORE`, differ; the rest is one small product.
const RECIPE: &str = r#"product = "fakedb"
description = "a database that is none"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/fakedb", "--self-test"]
generated = ["generated.h"]
unlisted = ">=1, <30"
versions = [
{VERSIONS}]
#TOP

[names]
release = "fk{version.compact}"
series = "fk{version.series}"
build = "{release}_{variant}{_toolchain}"
git = "fk_git_{commit9}"

[source.git]
url = "https://fakedb.example/fakedb.git"
tag = "v{version}"

[source.tarball]
urls = ["https://fakedb.example/fakedb-{version}.tar.gz"]

[[configure]]
args = ["--enable-debug"]

[[compile]]
args = ["all"]

[[install]]
args = ["install"]

[version-from]
files = ["configure"]
parts = [{ before = "PACKAGE_VERSION='", after = "'" }]

[[atoms]]
name = "o2"
group = "optimisation"
cflags = ["-O2"]
cxxflags = ["-O2"]
claims = { optimisation = "2" }

[[atoms]]
name = "o3"
group = "optimisation"
cflags = ["-O3"]
cxxflags = ["-O3"]
claims = { optimisation = "3" }

[[atoms]]
name = "native"
cflags = ["-march=native", "-mtune=native"]
cxxflags = ["-march=native", "-mtune=native"]
claims = { march = "native" }

[[atoms]]
name = "lto"
lto = true
claims = { lto = true }

[variants]
o2 = ["o2"]
o3 = ["o3"]
o3_native = ["o3", "native"]
o3_native_lto = ["o3", "native", "lto"]

[[requires]]
program = "make"
packages = { debian = ["make"] }

[[expect]]
files = ["bin/fakedb"]

#MORE
[driver]
init = "none"
server = "bin/fakedb"
client = "bin/fakedb"
"#;

const CONFIGURE: &str = r#"#!/bin/sh
# Writes a Makefile; works in any directory.
PACKAGE_VERSION='@VERSION@'
src=$(dirname "$0")
prefix=/usr/local CC=cc CFLAGS= LDFLAGS= debug=
for arg do
  case $arg in
    --prefix=*) prefix=${arg#*=} ;;
    --enable-debug) debug=-g ;;
    CC=*) CC=${arg#*=} ;;
    CFLAGS=*) CFLAGS=${arg#*=} ;;
    LDFLAGS=*) LDFLAGS=${arg#*=} ;;
  esac
done
echo "checking for $CC"
#CONFIGURE
sed -e "s|@src@|$src|" -e "s|@prefix@|$prefix|" -e "s|@CC@|$CC|" \
  -e "s|@CFLAGS@|$debug $CFLAGS|" -e "s|@LDFLAGS@|$LDFLAGS|" "$src/Makefile.in" > Makefile || exit 1
echo "configured fakedb $PACKAGE_VERSION" > config.log
"#;

const MAKEFILE: &str = "\
CC = @CC@
CFLAGS = @CFLAGS@
LDFLAGS = @LDFLAGS@
prefix = @prefix@
VPATH = @src@

all: fakedb

fakedb: main.o pages.o
\t$(CC) $(CFLAGS) $(LDFLAGS) -o $@ main.o pages.o

.c.o:
\t$(CC) $(CFLAGS) -c -o $@ $<

install: all
\tmkdir -p $(DESTDIR)$(prefix)/bin
\tcp fakedb $(DESTDIR)$(prefix)/bin/fakedb
#INSTALL
";

const MAIN: &str = r#"#include <stdio.h>
#include <string.h>
int pages(int);
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--self-test"))
        return pages(41) == 42 ? 0 : 3;
    puts("fakedb @VERSION@");
    return 0;
}
"#;

const PAGES: &str = "int pages(int n)\n{\n    return n + 1;\n}\n";

/// A source tree: path to text. Paths that end in no suffix are programs.
#[derive(Debug, Clone)]
pub struct Tree(pub BTreeMap<String, String>);

impl Tree {
    /// The well-behaved tree of a version.
    pub fn of(version: &str) -> Self {
        let files = [
            ("configure", CONFIGURE),
            ("Makefile.in", MAKEFILE),
            ("main.c", MAIN),
            ("pages.c", PAGES),
            ("README", "fakedb\n"),
        ];
        Tree(
            files
                .map(|(name, text)| (name.to_owned(), text.replace("@VERSION@", version)))
                .into(),
        )
    }

    /// Replaces `from`, which must be there, in one file.
    #[must_use]
    pub fn with(mut self, file: &str, from: &str, to: &str) -> Self {
        let text = self.0.get_mut(file).unwrap();
        assert!(text.contains(from), "`{from}` is not in {file}");
        *text = text.replace(from, to);
        self
    }

    /// As a directory.
    pub fn write(&self, dir: &Path) {
        for (name, text) in &self.0 {
            let file = dir.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, std::fs::Permissions::from_mode(mode(name))).unwrap();
        }
    }

    /// As a gzipped archive with one top directory.
    pub fn pack(&self, version: &str) -> Vec<u8> {
        archive(|builder| {
            for (name, text) in &self.0 {
                let mut header = file_header(text.len());
                header.set_mode(mode(name));
                builder
                    .append_data(&mut header, format!("fakedb-{version}/{name}"), text.as_bytes())
                    .unwrap();
            }
        })
    }
}

fn mode(name: &str) -> u32 {
    if name == "configure" { 0o755 } else { 0o644 }
}

/// A header of a plain file of this size.
pub fn file_header(size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    header
}

/// A gzipped archive.
pub fn archive(fill: impl FnOnce(&mut tar::Builder<GzEncoder<Vec<u8>>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(vec![], Compression::fast()));
    fill(&mut builder);
    builder.into_inner().unwrap().finish().unwrap()
}

/// Lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// What a call of bm came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The words that must be in the message; in any failure the whole message is shown.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in:\n{}", self.err);
        }
        self
    }

    /// A failure with this code: nothing on stdout, at most one hint for each error, no panic.
    #[track_caller]
    pub fn fails(&self, code: i32) -> &Self {
        assert_eq!(
            self.code, code,
            "exit code\nstdout:\n{}\nstderr:\n{}",
            self.out, self.err
        );
        assert_eq!(self.out, "", "stdout of a failure");
        let errors = self.err.lines().filter(|l| l.starts_with("error")).count();
        let hints = self.err.lines().filter(|l| l.starts_with("hint:")).count();
        assert!(errors >= 1, "no error in:\n{}", self.err);
        assert!(hints <= errors, "{hints} hints for {errors} errors:\n{}", self.err);
        self
    }

    #[track_caller]
    pub fn works(&self) -> &Self {
        assert_eq!(self.code, 0, "exit code\nstdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// The value of a detail line.
    #[track_caller]
    pub fn detail(&self, label: &str) -> &str {
        let mark = format!("{label}: ");
        self.err
            .lines()
            .find_map(|l| l.trim_start().strip_prefix(&mark))
            .unwrap_or_else(|| panic!("no `{label}` in:\n{}", self.err))
    }
}

/// One test's world.
#[derive(Debug)]
pub struct Space {
    dir: tempfile::TempDir,
    versions: String,
    edits: Vec<(String, String)>,
    env: BTreeMap<String, String>,
    pub root: PathBuf,
}

impl Space {
    /// Only the overlay; no source anywhere.
    pub fn empty() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("bm-bad-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir_in("/tmp")
            .unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        for name in [
            "overlay/recipes",
            "overlay/patches",
            "overlay/toolchains",
            "overlay/recipes/sets",
        ] {
            at(name);
        }
        let mirror = at("mirror");
        let root = at("root");
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
            ("HOME".to_owned(), at("home").display().to_string()),
            ("BM_ROOT".to_owned(), root.display().to_string()),
            ("BM_CACHE".to_owned(), at("cache").display().to_string()),
            ("BM_RECIPES".to_owned(), at("overlay").display().to_string()),
            ("BM_MIRROR".to_owned(), format!("{URL}={}", mirror.display())),
            ("NO_COLOR".to_owned(), "1".to_owned()),
        ]);
        let space = Space {
            dir,
            versions: String::new(),
            edits: vec![],
            env,
            root,
        };
        space.write_recipe();
        space
    }

    /// fakedb 1.2 as a good archive.
    pub fn new() -> Self {
        Space::with_tree(&Tree::of("1.2"))
    }

    /// fakedb 1.2 as an archive of this tree.
    pub fn with_tree(tree: &Tree) -> Self {
        Space::with_archive(&tree.pack("1.2"))
    }

    /// fakedb 1.2 as these bytes, pinned by their checksum.
    pub fn with_archive(bytes: &[u8]) -> Self {
        let mut space = Space::empty();
        space.archive("1.2", bytes);
        space
    }

    /// Puts one more archive into the mirror and pins it.
    pub fn archive(&mut self, version: &str, bytes: &[u8]) {
        fs::write(self.path(&format!("mirror/fakedb-{version}.tar.gz")), bytes).unwrap();
        self.pin(&format!("{{ id = \"{version}\", sha256 = \"{}\" }}", sha256(bytes)));
    }

    /// One more line of `versions`.
    pub fn pin(&mut self, row: &str) {
        self.versions.push_str(&format!("  {row},\n"));
        self.write_recipe();
    }

    /// Forgets all pins.
    pub fn unpin(&mut self) {
        self.versions.clear();
        self.write_recipe();
    }

    /// Replaces a piece of the recipe, which must be there.
    pub fn edit(&mut self, from: &str, to: &str) {
        assert!(RECIPE.contains(from), "`{from}` is not in the recipe");
        self.edits.push((from.to_owned(), to.to_owned()));
        self.write_recipe();
    }

    fn write_recipe(&self) {
        let text = RECIPE.replace("{VERSIONS}", &self.versions);
        let text = self.edits.iter().fold(text, |text, (from, to)| text.replace(from, to));
        fs::write(self.recipe(), text).unwrap();
    }

    pub fn recipe(&self) -> PathBuf {
        self.path("overlay/recipes/fakedb.toml")
    }

    /// A file or directory of this space.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sets a variable of bm's own environment.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.insert(name.to_owned(), value.into());
    }

    /// A bare repository at the mirrored place; commits the tree, tags it, gives the commit.
    pub fn commit(&self, tree: &Tree, tag: Option<&str>) -> String {
        let at = self.path("mirror/fakedb.git");
        let repo = git2::Repository::open_bare(&at).unwrap_or_else(|_| {
            let repo = git2::Repository::init_bare(&at).unwrap();
            repo.set_head("refs/heads/main").unwrap();
            repo
        });
        let mut builder = repo.treebuilder(None).unwrap();
        for (name, text) in &tree.0 {
            let blob = repo.blob(text.as_bytes()).unwrap();
            builder.insert(name, blob, 0o100_000 + mode(name) as i32).unwrap();
        }
        let tree = repo.find_tree(builder.write().unwrap()).unwrap();
        let who = git2::Signature::new("a", "a@fakedb.example", &git2::Time::new(1_700_000_000, 0)).unwrap();
        let parent = repo.head().ok().map(|h| h.peel_to_commit().unwrap());
        let parents: Vec<_> = parent.iter().collect();
        let id = repo.commit(Some("HEAD"), &who, &who, "m", &tree, &parents).unwrap();
        if let Some(tag) = tag {
            repo.reference(&format!("refs/tags/{tag}"), id, true, "").unwrap();
        }
        id.to_string()
    }

    /// A command for bm in this space; stdin is empty.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bm"));
        command
            .args(args)
            .env_clear()
            .envs(&self.env)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs bm.
    pub fn bm(&self, args: &[&str]) -> Ran {
        self.run(self.command(args))
    }

    /// Runs a command that [`Space::command`] made.
    pub fn run(&self, mut command: Command) -> Ran {
        use std::os::unix::process::CommandExt as _;
        // Files, not pipes: a child that outlives bm must not keep this test waiting.
        let out = tempfile::NamedTempFile::new().unwrap();
        let err = tempfile::NamedTempFile::new().unwrap();
        let mut child = command
            .process_group(0)
            .stdout(out.reopen().unwrap())
            .stderr(err.reopen().unwrap())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let fd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&BOUND)).unwrap();
        let said = || {
            let read =
                |file: &tempfile::NamedTempFile| String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned();
            (read(&out), read(&err))
        };
        if ready == 0 {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
            panic!("bm hung: {:?}", said());
        }
        let code = child.wait().unwrap().code().unwrap();
        let (out, err) = said();
        assert!(code != 70 && code != 101, "a bug in bm:\n{err}");
        Ran { code, out, err }
    }

    /// Names in the root besides bm's own.
    pub fn names(&self) -> Vec<String> {
        names(&self.root).into_iter().filter(|n| n != ".bm").collect()
    }

    /// Nothing in the root but `names`; in `.bm` no journal, nothing half moved, no temporary file,
    /// no fifo, and no trees but `trees` kept ones and `failed` ones.
    #[track_caller]
    pub fn tidy(&self, prefixes: &[&str], trees: usize, failed: usize) {
        assert_eq!(self.names(), prefixes, "the root");
        let state = self.root.join(".bm");
        for empty in ["journal", "previous", "kept", "work/.trash"] {
            assert_eq!(names(&state.join(empty)), [""; 0], ".bm/{empty}");
        }
        let work: Vec<String> = names(&state.join("work"))
            .into_iter()
            .filter(|n| n != ".trash")
            .collect();
        assert_eq!(work.len(), trees, "kept work trees: {work:?}");
        let kept = names(&state.join("failed"));
        assert_eq!(kept.len(), failed, "failed trees: {kept:?}");
        let mut litter = vec![];
        for below in ["", "locks", "journal", "history"] {
            for name in names(&state.join(below)) {
                if name.starts_with('.') && name != ".bm" {
                    litter.push(name);
                }
            }
        }
        for below in ["cache", "cache/downloads", "cache/mirrors"] {
            for name in names(&self.path(below)) {
                if name.starts_with('.') {
                    litter.push(name);
                }
            }
        }
        assert_eq!(litter, [""; 0], "temporary files");
        let prefixes: Vec<_> = prefixes.iter().map(|p| self.root.join(p)).collect();
        for prefix in prefixes {
            assert!(fs::symlink_metadata(&prefix).is_ok());
        }
    }
}

/// Sorted names in a directory; none if it is not there.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Everything below a path as one text, to compare before and after.
pub fn picture(path: &Path) -> String {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return "absent".into();
    };
    let shown = path.display();
    if meta.is_symlink() {
        return format!("{shown} -> {}\n", fs::read_link(path).unwrap().display());
    }
    if meta.is_dir() {
        let below: String = names(path).iter().map(|n| picture(&path.join(n))).collect();
        return format!("{shown}/ {:o}\n{below}", meta.permissions().mode());
    }
    format!(
        "{shown} {:o} {}\n",
        meta.permissions().mode(),
        sha256(&fs::read(path).unwrap())
    )
}

/// A directory of links to every program of `PATH` but `without`.
pub fn path_without(dir: &Path, without: &[&str]) -> String {
    fs::create_dir_all(dir).unwrap();
    for place in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for name in names(&place) {
            if !without.contains(&name.as_str()) {
                // The first one on PATH stands.
                let _ = fs::os::unix::fs::symlink(place.join(&name), dir.join(&name));
            }
        }
    }
    dir.display().to_string()
}

/// Whether this test runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says why a test, or a part of it, is left out.
pub fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
