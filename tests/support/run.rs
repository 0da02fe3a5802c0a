//! A product of our own, `fakedb`, and a place to build it in.
//!
//! Its source is real: a `configure` script, a makefile that knows DESTDIR, C files. It builds in well
//! under a second. How it misbehaves is written into its tree or its recipe by the test, so nothing
//! passes through the environment, and every test has a root, a cache and recipes of its own.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bm::digest::sha256 as sha256_hex;
use fs_err as fs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

/// bm itself.
pub const BM: &str = env!("CARGO_BIN_EXE_bm");

/// Longest wait for anything; a failure is then a failed test and not a hang.
const BOUND: i64 = 120;

const CONFIGURE: &str = r##"#!/bin/sh
# The part of autoconf that fakedb needs.
PACKAGE_VERSION='@VERSION@'
srcdir=`dirname "$0"`
prefix=/usr/local CC=cc AR=ar CFLAGS=-O2 LDFLAGS= ASSERTS=
for arg
do
  case $arg in
    --prefix=*) prefix=${arg#*=} ;;
    --enable-cassert) ASSERTS=1 ;;
    CC=*) CC=${arg#*=} ;;
    AR=*) AR=${arg#*=} ;;
    CFLAGS=*) CFLAGS=${arg#*=} ;;
    LDFLAGS=*) LDFLAGS=${arg#*=} ;;
    CXX=*|NM=*|RANLIB=*|CXXFLAGS=*) ;;
    *) echo "configure: error: unknown argument $arg" >&2; exit 1 ;;
  esac
done
if test -f "$srcdir/hooks/configure"; then sh "$srcdir/hooks/configure" || exit 1; fi
# A site's settings and the caller's variables are what a real configure would pick up.
if test -n "$CONFIG_SITE"; then . "$CONFIG_SITE"; fi
if test -n "$cache_file" && test -r "$cache_file"; then echo "configure: loading cache $cache_file"; . "./$cache_file"; fi
if test -z "${fk_cv_sizeof_long+set}"; then
  fk_cv_sizeof_long=8
  if test -f "$srcdir/hooks/answer"; then fk_cv_sizeof_long=`sh "$srcdir/hooks/answer"`; fi
fi
echo "checking size of long... $fk_cv_sizeof_long"
case $fk_cv_sizeof_long in 4|8) ;; *) echo "configure: error: a long of $fk_cv_sizeof_long" >&2; exit 1 ;; esac
CFLAGS="-g $CFLAGS $COPT $PROFILE"
echo 'int main(void) { return 0; }' > conftest.c
$CC $CFLAGS $LDFLAGS conftest.c -o conftest || { echo 'configure: error: C compiler cannot create executables' >&2; exit 77; }
./conftest || exit 77
rm -f conftest conftest.c
{
  echo "/* made by configure */"
  echo "#define FK_VERSION \"$PACKAGE_VERSION\""
  echo "#define FK_LONG $fk_cv_sizeof_long"
  if test -n "$ASSERTS"; then echo "#define USE_ASSERT_CHECKING 1"; else echo "/* #undef USE_ASSERT_CHECKING */"; fi
} > fk_config.h
sed -e "s|@prefix@|$prefix|" -e "s|@srcdir@|$srcdir|" -e "s|@CC@|$CC|" -e "s|@AR@|$AR|" \
  -e "s|@CFLAGS@|$CFLAGS|" -e "s|@LDFLAGS@|$LDFLAGS|" "$srcdir/Makefile.in" > Makefile
if test -n "$cache_file"; then echo "fk_cv_sizeof_long=\${fk_cv_sizeof_long=$fk_cv_sizeof_long}" > "$cache_file"; fi
"##;

const MAKEFILE: &str = r#"prefix = @prefix@
srcdir = @srcdir@
CC = @CC@
AR = @AR@
CFLAGS = @CFLAGS@
LDFLAGS = @LDFLAGS@
# What a recipe passes on make's command line comes last.
LATE =
OBJS = main.o store.o page.o

all: fakedb libfk.a

hook:
	@if test -f $(srcdir)/hooks/compile; then sh $(srcdir)/hooks/compile; fi
	@echo done > $@

fakedb: $(OBJS) libfk.a
	$(CC) $(CFLAGS) $(LATE) $(OBJS) libfk.a $(LDFLAGS) -o $@

$(OBJS) util.o: | hook

libfk.a: util.o
	rm -f $@
	$(AR) crs $@ util.o

%.o: $(srcdir)/src/%.c
	$(CC) $(CFLAGS) -I. -I$(srcdir)/src $(LATE) -c $< -o $@

install: all
	@if test -f $(srcdir)/hooks/install; then sh $(srcdir)/hooks/install; fi
	mkdir -p "$(DESTDIR)$(prefix)/bin" "$(DESTDIR)$(prefix)/lib" "$(DESTDIR)$(prefix)/include" "$(DESTDIR)$(prefix)/share"
	cp fakedb "$(DESTDIR)$(prefix)/bin/fakedb"
	cp $(srcdir)/status.sh "$(DESTDIR)$(prefix)/bin/fkstatus"
	chmod 755 "$(DESTDIR)$(prefix)/bin/fkstatus"
	cp libfk.a "$(DESTDIR)$(prefix)/lib/libfk.a"
	cp fk_config.h "$(DESTDIR)$(prefix)/include/fk_config.h"
	pwd > "$(DESTDIR)$(prefix)/share/cd.txt"
	(cd $(srcdir) && pwd) | wc -l > "$(DESTDIR)$(prefix)/share/lines.txt"
	umask > "$(DESTDIR)$(prefix)/share/umask.txt"

.PHONY: all install
"#;

const MAIN: &str = r#"#include <stdio.h>
#include <string.h>
#include "fk_config.h"
int store(const char *, int);
int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--version") == 0) { printf("fakedb %s\n", FK_VERSION); return 0; }
	return store("abc", 3) == 294 ? 0 : 1;
}
"#;

const STORE: &str = r#"int page(const char *, int);
int sum(const char *, int);
int store(const char *row, int n) { return sum(row, n) + page(row, 0); }
"#;

const PAGE: &str = "int page(const char *row, int n) { int s = 0; while (n-- > 0) s ^= row[n]; return s; }\n";
const UTIL: &str = "int sum(const char *row, int n) { int s = 0; while (n-- > 0) s += row[n]; return s; }\n";

/// The text of a recipe, with what tests change in it.
pub struct Recipe {
    /// Version to the words that pin it.
    pub versions: Vec<(String, String)>,
    /// Words for configure.
    pub configure: Vec<String>,
    /// Words for make in the compile step.
    pub compile: Vec<String>,
    /// TOML before the tables.
    pub keys: String,
    /// TOML after them.
    pub tail: String,
}

impl Recipe {
    fn text(&self) -> String {
        let list = |words: &[String]| format!("{words:?}");
        let versions: Vec<String> = self
            .versions
            .iter()
            .map(|(id, pin)| format!("  {{ id = {id:?}, {pin} }},\n"))
            .collect();
        format!(
            r#"product = "fakedb"
description = "A database for tests"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/fakedb", "--selftest"]
unlisted = ">=1, <90"
{keys}
versions = [
{versions}]

[names]
release = "fk{{version.compact}}"
series = "fk{{version.series}}"
build = "{{release}}_{{variant}}{{_toolchain}}"
git = "fk_git_{{commit9}}"

[source.git]
url = "https://fakedb.example/fakedb.git"
tag = "v{{version}}"

[source.tarball]
urls = ["https://fakedb.example/fakedb-{{version}}.tar.gz"]

{configure}[[compile]]
args = {compile}

[[install]]
args = ["install"]

[version-from]
files = ["configure"]
parts = [{{ before = "PACKAGE_VERSION='", after = "'" }}]

[claims]
lto = false

[[atoms]]
name = "o2"
group = "optimisation"
cflags = ["-O2"]
claims = {{ optimisation = "2" }}

[[atoms]]
name = "o3"
group = "optimisation"
cflags = ["-O3"]
claims = {{ optimisation = "3" }}

[[atoms]]
name = "native"
cflags = ["-march=native", "-mtune=native"]
claims = {{ march = "native" }}

[[atoms]]
name = "lto"
lto = true
claims = {{ lto = true }}

[variants]
o2 = ["o2"]
o3 = ["o3"]
o3_native = ["o3", "native"]
o3_native_lto = ["o3", "native", "lto"]

[variant-aliases]
fast = "o3"

[[expect]]
files = ["bin/fakedb", "lib/libfk.a"]
undefined = [{{ header = "include/fk_config.h", macro = "USE_ASSERT_CHECKING" }}]

[driver]
server = "bin/fakedb"
{tail}
"#,
            keys = self.keys,
            versions = versions.concat(),
            configure = if self.configure.is_empty() {
                String::new()
            } else {
                format!("[[configure]]\nargs = {}\n\n", list(&self.configure))
            },
            compile = list(&self.compile),
            tail = self.tail,
        )
    }
}

/// A root, a cache, recipes and sources, all below one directory.
pub struct Space {
    dir: tempfile::TempDir,
    /// The source tree, as the next release has it.
    pub tree: BTreeMap<String, String>,
    /// The recipe, written before every run.
    pub recipe: Recipe,
    /// Programs that stand before the system's.
    pub first_on_path: Option<PathBuf>,
    root: String,
}

impl Space {
    /// Release 1.0 is there, as an archive pinned by its checksum.
    pub fn new() -> Space {
        let mut space = Space::empty();
        space.release("1.0");
        space
    }

    /// No release yet.
    pub fn empty() -> Space {
        // The smoke test runs as an account without privileges, which must be able to come here.
        let dir = tempfile::Builder::new().prefix("bm-fk").tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for sub in ["home", "mirror", "recipes/recipes", "work"] {
            fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        let tree = [
            ("configure", CONFIGURE),
            ("Makefile.in", MAKEFILE),
            ("src/main.c", MAIN),
            ("src/store.c", STORE),
            ("src/page.c", PAGE),
            ("src/util.c", UTIL),
            ("status.sh", "#!/bin/sh\nexit \"$1\"\n"),
        ];
        Space {
            dir,
            tree: tree.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
            recipe: Recipe {
                versions: vec![],
                configure: vec![],
                compile: vec!["all".into()],
                keys: String::new(),
                tail: String::new(),
            },
            first_on_path: None,
            root: "root".into(),
        }
    }

    /// Another name of the directory of prefixes.
    pub fn with_root(mut self, root: &str) -> Space {
        self.root = root.to_owned();
        self
    }

    pub fn path(&self, sub: &str) -> PathBuf {
        self.dir.path().join(sub)
    }

    pub fn root(&self) -> PathBuf {
        self.path(&self.root)
    }

    pub fn prefix(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The tree as files of `version`.
    fn files(&self, version: &str) -> Vec<(String, String, u32)> {
        let mode = |name: &str| if name == "configure" { 0o755 } else { 0o644 };
        self.tree
            .iter()
            .map(|(name, text)| (name.clone(), text.replace("@VERSION@", version), mode(name)))
            .collect()
    }

    /// Makes the archive of a release and pins it.
    pub fn release(&mut self, version: &str) {
        let sum = self.tarball(version);
        self.recipe.versions.retain(|(id, _)| id != version);
        self.recipe
            .versions
            .push((version.to_owned(), format!("sha256 = {sum:?}")));
    }

    /// Makes the archive of a release; gives its checksum.
    pub fn tarball(&self, version: &str) -> String {
        let file = self.path("mirror").join(format!("fakedb-{version}.tar.gz"));
        let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gz);
        for (name, text, mode) in self.files(version) {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(mode);
            header.set_mtime(1_600_000_000);
            let path = format!("fakedb-{version}/{name}");
            tar.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        let bytes = tar.into_inner().unwrap().finish().unwrap();
        fs::write(&file, &bytes).unwrap();
        sha256_hex(&bytes)
    }

    /// Writes the tree into a directory, for `--source`.
    pub fn write_tree(&self, dir: &Path, version: &str) {
        for (name, text, mode) in self.files(version) {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
    }

    /// Commits the tree to a repository below the mirror, on `branch`; gives the commit.
    pub fn commit(&self, repository: &str, branch: &str, version: &str) -> String {
        let dir = self.path("mirror").join(repository);
        let repo = git2::Repository::open_bare(&dir).or_else(|_| git2::Repository::init_bare(&dir));
        let repo = repo.unwrap();
        repo.set_head("refs/heads/main").unwrap();
        let mut index = repo.index().unwrap();
        index.clear().unwrap();
        for (name, text, mode) in self.files(version) {
            let entry = git2::IndexEntry {
                ctime: git2::IndexTime::new(0, 0),
                mtime: git2::IndexTime::new(0, 0),
                dev: 0,
                ino: 0,
                mode: 0o100_000 | mode,
                uid: 0,
                gid: 0,
                file_size: 0,
                id: git2::Oid::ZERO_SHA1,
                flags: 0,
                flags_extended: 0,
                path: name.into_bytes(),
            };
            index.add_frombuffer(&entry, text.as_bytes()).unwrap();
        }
        let tree = repo.find_tree(index.write_tree().unwrap()).unwrap();
        let who = git2::Signature::new("fake", "fake@fakedb.example", &git2::Time::new(1_600_000_000, 0)).unwrap();
        let reference = format!("refs/heads/{branch}");
        let parent = repo
            .find_reference(&reference)
            .ok()
            .map(|r| r.peel_to_commit().unwrap());
        let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
        let message = format!("fakedb {version}");
        repo.commit(Some(&reference), &who, &who, &message, &tree, &parents)
            .unwrap()
            .to_string()
    }

    /// Points a tag of a repository at a commit, whatever it pointed at before.
    pub fn tag(&self, repository: &str, tag: &str, commit: &str) {
        let repo = git2::Repository::open_bare(self.path("mirror").join(repository)).unwrap();
        let object = repo.find_object(commit.parse().unwrap(), None).unwrap();
        repo.tag_lightweight(tag, &object, true).unwrap();
    }

    /// bm with nothing of the caller's surroundings.
    pub fn bm(&self, args: &[&str]) -> Command {
        fs::write(self.path("recipes/recipes/fakedb.toml"), self.recipe.text()).unwrap();
        let mut command = Command::new(BM);
        self.dress(&mut command);
        command.args(args);
        command
    }

    /// Gives a command the surroundings of this space.
    pub fn dress(&self, command: &mut Command) {
        let system = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
        let path = match &self.first_on_path {
            Some(first) => format!("{}:{system}", first.display()),
            None => system.to_owned(),
        };
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("BM_ROOT", self.root())
            .env("BM_CACHE", self.path("cache"))
            .env("BM_RECIPES", self.path("recipes"))
            .env(
                "BM_MIRROR",
                format!("https://fakedb.example/={}", self.path("mirror").display()),
            )
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Run::start(self.bm(args)).wait()
    }

    /// Runs and expects success.
    pub fn ok(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "bm {args:?}: {}", ran.all());
        ran
    }

    pub fn manifest(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.prefix(name).join(".bm/manifest.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Path to what a manifest's list of files says of it.
    pub fn files_of(&self, name: &str) -> BTreeMap<String, Value> {
        let text = fs::read_to_string(self.prefix(name).join(".bm/files.json")).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let found: BTreeMap<String, Value> = list["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| (f["path"].as_str().unwrap().to_owned(), f.clone()))
            .collect();
        assert!(found.contains_key("bin/fakedb"), "{text}");
        found
    }

    /// Everything below the root with what a write would change.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, (i64, i64, u64, u64)> {
        fn walk(dir: &Path, out: &mut BTreeMap<PathBuf, (i64, i64, u64, u64)>) {
            let meta = fs::symlink_metadata(dir).unwrap();
            let stamp = (meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino());
            out.insert(dir.to_owned(), stamp);
            if meta.is_dir() {
                for entry in fs::read_dir(dir).unwrap() {
                    walk(&entry.unwrap().path(), out);
                }
            }
        }
        let mut out = BTreeMap::new();
        walk(&self.root(), &mut out);
        out
    }

    /// Names in a directory below the root, sorted; nothing where there is none.
    pub fn names_in(&self, sub: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root().join(sub)).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// No half-done thing is left in the root.
    pub fn assert_tidy(&self) {
        for dir in [
            ".bm/journal",
            ".bm/previous",
            ".bm/failed",
            ".bm/logs",
            ".bm/work/.trash",
        ] {
            assert_eq!(self.names_in(dir), Vec::<String>::new(), "in {dir}");
        }
        let work: Vec<String> = self
            .names_in(".bm/work")
            .into_iter()
            .filter(|n| n != ".trash")
            .collect();
        assert_eq!(work, Vec::<String>::new());
        self.assert_no_jobs();
    }

    /// No bm is left in the books of the job budget.
    pub fn assert_no_jobs(&self) {
        for host in fs::read_dir(self.path("cache/jobs")).unwrap() {
            let names = fs::read_dir(host.unwrap().path()).unwrap();
            let names: Vec<String> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            assert!(names.iter().any(|n| n == "tokens"), "{names:?}");
            assert!(!names.iter().any(|n| n.starts_with("held-")), "{names:?}");
        }
    }

    /// Makes step `step` of the product stop at a gate while the file `armed` is there.
    pub fn gate(&mut self, step: &str) -> Gate {
        self.gate_with(step, "")
    }

    /// The same, with shell lines that come before the child says that it is there.
    pub fn gate_with(&mut self, step: &str, before: &str) -> Gate {
        let gate = Gate::new(self.path(""), step);
        let script = format!(
            "if test -e {armed}; then\nexec 9>{alive}\n{before}\necho {step} >&9\nread x <{go}\nfi\n",
            armed = gate.armed.display(),
            alive = gate.dir.join(format!("{step}.alive")).display(),
            go = gate.dir.join(format!("{step}.go")).display(),
        );
        self.tree.insert(format!("hooks/{step}"), script);
        gate
    }
}

/// A place in a build where its child waits for the test, and shows by a fifo that it lives.
pub struct Gate {
    dir: PathBuf,
    step: String,
    armed: PathBuf,
    alive: File,
}

impl Gate {
    fn new(dir: PathBuf, step: &str) -> Gate {
        let [alive, go] = ["alive", "go"].map(|what| dir.join(format!("{step}.{what}")));
        for fifo in [&alive, &go] {
            mknodat(CWD, fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        }
        let armed = dir.join(format!("{step}.armed"));
        fs::write(&armed, "").unwrap();
        let alive = read_end(&alive);
        Gate {
            dir,
            step: step.to_owned(),
            armed,
            alive,
        }
    }

    /// From now on nothing stops here.
    pub fn disarm(&self) {
        fs::remove_file(&self.armed).unwrap();
    }

    /// Lets things stop here again.
    pub fn arm(&self) {
        fs::write(&self.armed, "").unwrap();
    }

    /// Waits until a child stands at the gate.
    pub fn reached(&mut self) {
        assert_eq!(self.line(), self.step);
    }

    /// The next line that a child says.
    pub fn line(&mut self) -> String {
        let mut said = Vec::new();
        while !said.ends_with(b"\n") {
            assert!(readable(&self.alive), "nothing comes to gate {}", self.step);
            let mut byte = [0];
            match self.alive.read(&mut byte) {
                Ok(0) => panic!("the child died before gate {}", self.step),
                Ok(_) => said.push(byte[0]),
                Err(e) => panic!("{e}"),
            }
        }
        String::from_utf8(said).unwrap().trim_end().to_owned()
    }

    /// Lets the child go on.
    pub fn open(&mut self) {
        let go = self.dir.join(format!("{}.go", self.step));
        // The child reads, or has not opened yet: with both ends open nothing is lost.
        let mut go = File::options().read(true).write(true).open(go).unwrap();
        std::io::Write::write_all(&mut go, b"go\n").unwrap();
        // Held until the child has gone on: the line would be lost with the last end.
        self.all_dead();
    }

    /// Waits until all that stood at the gate are dead.
    pub fn all_dead(&mut self) {
        loop {
            assert!(readable(&self.alive), "something lives on");
            match self.alive.read(&mut [0; 64]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) => panic!("{e}"),
            }
        }
        // A new reader has seen no hang-up.
        self.alive = read_end(&self.dir.join(format!("{}.alive", self.step)));
    }
}

/// A read end that does not wait for a writer.
fn read_end(fifo: &Path) -> File {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(fifo)
        .unwrap()
}

fn bound() -> Timespec {
    Timespec {
        tv_sec: BOUND,
        tv_nsec: 0,
    }
}

fn readable(file: &File) -> bool {
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&bound())).unwrap() == 1
}

/// A bm that runs.
pub struct Run {
    child: Child,
    out: tempfile::NamedTempFile,
    err: tempfile::NamedTempFile,
}

/// A bm that ran.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn all(&self) -> String {
        format!("exit {}\n{}{}", self.code, self.out, self.err)
    }

    /// Whether a line of stderr holds all the words.
    pub fn says(&self, words: &[&str]) -> bool {
        self.err.lines().any(|line| words.iter().all(|w| line.contains(w)))
    }

    pub fn assert(&self, code: i32, lines: &[&[&str]]) {
        assert_eq!(self.code, code, "{}", self.all());
        for words in lines {
            assert!(self.says(words), "no line with {words:?} in {}", self.all());
        }
    }

    pub fn json(&self) -> Value {
        let value: Value = serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.all()));
        assert!(value["schema"].is_u64(), "{}", self.out);
        value
    }
}

/// A failed test leaves no bm behind; its supervisors end with it.
impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// Its output goes to files: nothing it leaves behind could keep a pipe open.
    pub fn start(mut command: Command) -> Run {
        let [out, err] = [(), ()].map(|()| tempfile::NamedTempFile::new().unwrap());
        command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
        Run {
            child: command.spawn().unwrap(),
            out,
            err,
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.err.path()).unwrap()
    }

    /// Waits until it has said something.
    pub fn wait_for(&mut self, text: &str) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(BOUND.unsigned_abs());
        let gone = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).unwrap();
        while !self.said().contains(text) {
            assert!(
                std::time::Instant::now() < end,
                "bm does not say {text:?}: {}",
                self.said()
            );
            // A file cannot be waited for; the look is repeated until bm ends or the time is over.
            let tick = Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            let ended = poll(
                &mut [PollFd::from_borrowed_fd(gone.as_fd(), PollFlags::IN)],
                Some(&tick),
            )
            .unwrap()
                == 1;
            assert!(!ended || self.said().contains(text), "bm ended: {}", self.said());
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn wait(mut self) -> Ran {
        let gone = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).unwrap();
        let ended = poll(
            &mut [PollFd::from_borrowed_fd(gone.as_fd(), PollFlags::IN)],
            Some(&bound()),
        )
        .unwrap()
            == 1;
        if !ended {
            self.child.kill().unwrap();
        }
        let status = self.child.wait().unwrap();
        let ran = Ran {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap()),
            out: fs::read_to_string(self.out.path()).unwrap(),
            err: self.said(),
        };
        assert!(ended, "bm does not end: {}", ran.all());
        ran
    }
}

/// Writes a program.
pub fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Whether a program is there; says why a test passes without it.
#[allow(clippy::print_stderr)]
pub fn has(program: &str) -> bool {
    let there = ["/usr/bin", "/usr/local/bin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists());
    if !there {
        eprintln!("skipped: no `{program}` here");
    }
    there
}
