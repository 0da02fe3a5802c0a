//! Recorded compiler calls: their file format, and what kind of call each one was.
//!
//! Written by `launcher`, one JSON line a call; read back by `collect`. Knows no claims.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, IoContext, Result};

/// File below the record directory that all launchers append to.
const FILE: &str = "calls.jsonl";

/// One call of a compiler, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The command line, with the name the caller used first and response files expanded.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Nanoseconds since the epoch.
    pub time: u64,
    /// Parts the LTO link ran at once; 0 where the launcher left the call as it was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lto_jobs: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Appends one record. Concurrent writers are kept apart by a lock on the file; a writer that was
/// killed half way spoils its own line only.
///
/// # Errors
/// When the record directory cannot be written.
pub fn append(dir: &Path, record: &Record) -> std::io::Result<()> {
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, record)?;
    line.push(b'\n');
    let mut file = fs::OpenOptions::new().append(true).create(true).open(dir.join(FILE))?;
    rustix::fs::flock(file.file().as_fd(), rustix::fs::FlockOperation::LockExclusive)?;
    file.write_all(&line)
}

/// Makes an empty record where there is none: for a build that compiles nothing.
///
/// # Errors
/// When the record directory cannot be written.
pub fn none(dir: &Path) -> Result<()> {
    let file = dir.join(FILE);
    let doing = || format!("cannot make `{}`", file.display());
    fs::create_dir_all(dir).doing(doing)?;
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&file)
        .map(drop)
        .doing(doing)
}

/// Reads every call, in the order of time.
///
/// # Errors
/// When the record is missing or a line of it is torn: a build without its record proves nothing.
pub fn read_all(dir: &Path) -> Result<Vec<Call>> {
    let path = dir.join(FILE);
    let text = fs::read_to_string(&path).map_err(|e| {
        Error::new(Exit::Proof, "no compiler call was recorded")
            .caused_by(e)
            .hint("the build must find its compilers by name, on PATH, so that the recording launchers see each call")
    })?;
    let mut records = vec![];
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        records.push(serde_json::from_str::<Record>(line).map_err(|e| {
            Error::new(Exit::Proof, "the record of compiler calls is damaged")
                .detail("line", format!("{}:{}", path.display(), i + 1))
                .caused_by(e)
        })?);
    }
    records.sort_by_key(|r| r.time);
    Ok(records.into_iter().map(Call::new).collect())
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Source to object (`-c`).
    Compile,
    /// Objects to program, shared library or one object.
    Link,
    /// Source to program in one call.
    CompileAndLink,
    /// Leaves nothing that is installed: preprocessing, assembly text, questions, configure's trials.
    Probe,
}

/// A record and what it means.
#[derive(Debug, Clone)]
pub struct Call {
    /// As recorded.
    pub record: Record,
    /// Kind.
    pub kind: Kind,
    /// Source files, absolute.
    pub sources: Vec<PathBuf>,
    /// Other inputs named by path, absolute: objects, archives, libraries.
    pub inputs: Vec<PathBuf>,
    /// Outputs, absolute: one, or for `-c` without `-o` one per source.
    pub outputs: Vec<PathBuf>,
}

impl Call {
    /// Classifies a recorded call.
    pub fn new(record: Record) -> Self {
        let parsed = Parsed::of(&record.argv);
        let at = |p: &str| normalize(&record.cwd.join(p));
        let kind = parsed.kind();
        let outputs = match (&parsed.output, kind) {
            (Some(output), _) => vec![at(output)],
            (None, Kind::Compile) => parsed.sources.iter().map(|s| at(&object_name(s))).collect(),
            (None, Kind::Link | Kind::CompileAndLink) => vec![at("a.out")],
            (None, Kind::Probe) => vec![],
        };
        Call {
            kind,
            sources: parsed.sources.iter().map(|s| at(s)).collect(),
            inputs: parsed.inputs.iter().map(|s| at(s)).collect(),
            outputs,
            record,
        }
    }

    /// The command line as one line of text, for messages.
    pub fn line(&self) -> String {
        shlex::try_join(self.record.argv.iter().map(String::as_str)).unwrap_or_else(|_| self.record.argv.join(" "))
    }

    /// The words, for `flags::effective`.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.record.argv.iter().map(String::as_str)
    }

    /// Whether the call compiles a source.
    pub fn compiles(&self) -> bool {
        matches!(self.kind, Kind::Compile | Kind::CompileAndLink)
    }

    /// Whether the call links.
    pub fn links(&self) -> bool {
        matches!(self.kind, Kind::Link | Kind::CompileAndLink)
    }
}

/// The kind of a call that has not been recorded yet; `argv` with response files expanded.
pub fn kind_of(argv: &[String]) -> Kind {
    Parsed::of(argv).kind()
}

/// Number of sources that a call names; `argv` with response files expanded.
pub fn sources_of(argv: &[String]) -> usize {
    Parsed::of(argv).sources.len()
}

/// Whether the word after this one belongs to it.
pub fn takes_value(word: &str) -> bool {
    WITH_VALUE.contains(&word)
}

/// Options whose next word belongs to them.
const WITH_VALUE: &[&str] = &[
    "-o",
    "-x",
    "-I",
    "-L",
    "-D",
    "-U",
    "-l",
    "-T",
    "-u",
    "-z",
    "-e",
    "-h",
    "-A",
    "-B",
    "-G",
    "-F",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-imultilib",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-Xopenmp-target",
    "-mllvm",
    "-arch",
    "-target",
    "--param",
    "--sysroot",
    "-aux-info",
    "-wrapper",
    "-dumpbase",
    "-dumpdir",
    "-soname",
    "-rpath",
    "-gcc-toolchain",
];

/// Options that make a call a question or leave text only.
const PROBES: &[&str] = &[
    "-E",
    "-S",
    "-M",
    "-MM",
    "-fsyntax-only",
    "-###",
    "--help",
    "--version",
    "-dumpversion",
    "-dumpfullversion",
    "-dumpmachine",
    "-dumpspecs",
];

#[derive(Debug, Default)]
struct Parsed {
    compile: bool,
    probe: bool,
    stdin: bool,
    output: Option<String>,
    sources: Vec<String>,
    inputs: Vec<String>,
}

impl Parsed {
    fn of(argv: &[String]) -> Self {
        let mut parsed = Parsed::default();
        let mut language = None;
        let mut words = argv.iter().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().unwrap_or_default();
            match word.as_str() {
                "-c" => parsed.compile = true,
                "-" => parsed.stdin = true,
                "-o" => parsed.output = Some(value()),
                "-x" => language = Some(value()),
                w if PROBES.contains(&w) || w.starts_with("-print-") || w.starts_with("--print-") => {
                    parsed.probe = true;
                }
                w if WITH_VALUE.contains(&w) => drop(value()),
                w if w.starts_with("-x") => language = Some(w[2..].to_owned()),
                w if w.starts_with("-o") && !w.starts_with("-object") => parsed.output = Some(w[2..].to_owned()),
                w if w.starts_with('-') => {}
                w => {
                    let named = language.as_deref().is_some_and(|l| l != "none");
                    let list = if named || is_source(w) {
                        &mut parsed.sources
                    } else {
                        &mut parsed.inputs
                    };
                    list.push(w.to_owned());
                }
            }
        }
        parsed
    }

    fn kind(&self) -> Kind {
        let nothing = self.sources.is_empty() && self.inputs.is_empty();
        if self.probe || self.stdin || nothing || self.is_trial() {
            return Kind::Probe;
        }
        match (self.compile, self.sources.is_empty()) {
            (true, false) => Kind::Compile,
            (true, true) => Kind::Probe,
            (false, false) => Kind::CompileAndLink,
            (false, true) => Kind::Link,
        }
    }

    /// One of configure's or cmake's trials, or another output that no program is linked from.
    fn is_trial(&self) -> bool {
        let thrown_away = |path: &String| {
            path == "/dev/null"
                // For a JIT, beside the object the program is made of.
                || path.ends_with(".bc")
                || path.split('/').any(|part| part == "CMakeScratch" || part == "CMakeTmp")
                || Path::new(path)
                    .file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with("conftest"))
        };
        self.sources.iter().chain(&self.output).any(thrown_away)
    }
}

fn is_source(path: &str) -> bool {
    const SUFFIXES: &[&str] = &[
        "c", "i", "ii", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "m", "mm", "s", "S", "sx", "ll",
    ];
    path.rsplit_once('.')
        .is_some_and(|(_, suffix)| SUFFIXES.contains(&suffix))
}

fn object_name(source: &str) -> String {
    let name = source.rsplit('/').next().unwrap_or(source);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    format!("{stem}.o")
}

/// Removes `.` and `..` without looking at the disk.
pub fn normalize(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            // The parent of the root is the root.
            Component::ParentDir if out.has_root() || out.file_name().is_some_and(|n| n != "..") => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

/// Replaces every `@file` by the words in it, as the compilers do. A file that cannot be read stays
/// a word, and files that name each other stop at a depth no real build reaches.
pub fn expand_response_files(argv: Vec<String>, cwd: &Path) -> Vec<String> {
    fn expand(words: Vec<String>, cwd: &Path, depth: usize, out: &mut Vec<String>) {
        for word in words {
            let text = word
                .strip_prefix('@')
                .filter(|_| depth < 16)
                .and_then(|file| std::fs::read(cwd.join(file)).ok());
            match text {
                Some(text) => expand(response_words(&String::from_utf8_lossy(&text)), cwd, depth + 1, out),
                None => out.push(word),
            }
        }
    }
    if argv.iter().all(|w| !w.starts_with('@')) {
        return argv;
    }
    let mut out = Vec::with_capacity(argv.len());
    expand(argv, cwd, 0, &mut out);
    out
}

/// GNU's rule: blanks part words, quotes of both kinds keep them, a backslash keeps any character.
fn response_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (vec![], None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(chars.next()),
            (c, Some(q)) if c == q => quote = None,
            ('\'' | '"', None) => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A record made now.
pub fn now(argv: Vec<String>, cwd: PathBuf, lto_jobs: u32) -> Record {
    let time = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    Record {
        argv,
        cwd,
        time,
        lto_jobs,
    }
}

/// Makes the record directory.
///
/// # Errors
/// When it cannot be made.
pub fn prepare(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).doing(|| "cannot make the directory of recorded compiler calls".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        Call::new(now(
            line.split(' ').map(str::to_owned).collect(),
            "/w/build/src".into(),
            0,
        ))
    }

    #[test]
    fn kinds_of_calls() {
        for (line, want) in [
            ("gcc -O2 -c -o a.o a.c", Kind::Compile),
            ("gcc -c ../x/a.c", Kind::Compile),
            ("gcc -O2 a.o -L. -lz -o postgres", Kind::Link),
            ("gcc -shared -o x.so a.o", Kind::Link),
            ("gcc -o prog a.c b.o", Kind::CompileAndLink),
            ("gcc -E a.c", Kind::Probe),
            ("gcc -S a.c", Kind::Probe),
            ("gcc -o conftest conftest.c", Kind::Probe),
            ("gcc -c conftest.c", Kind::Probe),
            ("gcc --version", Kind::Probe),
            ("gcc -print-prog-name=ld", Kind::Probe),
            ("gcc -v", Kind::Probe),
            ("clang -O2 -emit-llvm -c -o a.bc a.c", Kind::Probe),
            ("gcc -x c -c - -o /dev/null", Kind::Probe),
            ("gcc -dM -E -x c /dev/null", Kind::Probe),
            ("g++ -x c++ -c strange.name", Kind::Compile),
            ("gcc -x c a -x none b.o", Kind::CompileAndLink),
            ("cc -o CMakeFiles/CMakeScratch/t a.c", Kind::Probe),
        ] {
            assert_eq!(call(line).kind, want, "{line}");
        }
    }

    #[test]
    fn outputs_are_resolved_against_the_directory() {
        assert_eq!(call("gcc -c ../x/a.c").outputs, [Path::new("/w/build/src/a.o")]);
        assert_eq!(call("gcc -c -o ../y/./b.o a.c").outputs, [Path::new("/w/build/y/b.o")]);
        assert_eq!(call("gcc -c -ob.o a.c").outputs, [Path::new("/w/build/src/b.o")]);
        assert_eq!(call("gcc a.o").outputs, [Path::new("/w/build/src/a.out")]);
        assert_eq!(call("gcc -c a.c b.c").outputs.len(), 2);
        assert_eq!(call("gcc -c a.c ../x/a.c").sources[1], Path::new("/w/build/x/a.c"));
    }

    #[test]
    fn values_of_options_are_no_inputs() {
        let c = call("gcc -I a.c -Xlinker b.o -o p -l foo.c -include c.c d.o ../lib/libx.a");
        assert_eq!(
            c.inputs,
            [Path::new("/w/build/src/d.o"), Path::new("/w/build/lib/libx.a")]
        );
        assert!(c.sources.is_empty());
    }

    #[test]
    fn paths_are_normalized_without_the_disk() {
        for (path, want) in [
            ("/a/./b/../c", "/a/c"),
            ("/../a", "/a"),
            ("../../a", "../../a"),
            ("a/../../b", "../b"),
            ("./a", "a"),
        ] {
            assert_eq!(normalize(Path::new(path)), Path::new(want), "{path}");
        }
    }

    #[test]
    fn response_files_are_expanded_as_the_compilers_do() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("r"), "-O2 '-DX=a b'\n\"\" -DY=\\\"c\\\" @s").unwrap();
        fs::write(dir.path().join("s"), "last.o").unwrap();
        fs::write(dir.path().join("loop"), "@loop").unwrap();
        let expand =
            |words: &[&str]| expand_response_files(words.iter().map(|w| (*w).to_owned()).collect(), dir.path());
        assert_eq!(
            expand(&["gcc", "@r", "@missing"]),
            ["gcc", "-O2", "-DX=a b", "", "-DY=\"c\"", "last.o", "@missing"]
        );
        assert_eq!(expand(&["gcc", "@loop"]), ["gcc", "@loop"]);
    }

    #[test]
    fn a_torn_line_is_an_error_and_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_all(dir.path()).unwrap_err().exit(), Exit::Proof);
        append(
            dir.path(),
            &now(vec!["gcc".into(), "-c".into(), "a.c".into()], "/w".into(), 0),
        )
        .unwrap();
        assert_eq!(read_all(dir.path()).unwrap().len(), 1);
        let mut file = fs::OpenOptions::new().append(true).open(dir.path().join(FILE)).unwrap();
        file.write_all(b"\n{\"argv\":[").unwrap();
        append(dir.path(), &now(vec!["gcc".into()], "/w".into(), 3)).unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        let good = text
            .lines()
            .filter(|l| serde_json::from_str::<Record>(l).is_ok())
            .count();
        assert_eq!(good, 2);
        assert_eq!(read_all(dir.path()).unwrap_err().exit(), Exit::Proof);
    }

    #[test]
    fn calls_come_back_in_the_order_of_time() {
        let dir = tempfile::tempdir().unwrap();
        for time in [30, 10, 20] {
            let record = Record {
                time,
                ..now(vec!["gcc".into()], "/w".into(), 0)
            };
            append(dir.path(), &record).unwrap();
        }
        let times: Vec<_> = read_all(dir.path()).unwrap().iter().map(|c| c.record.time).collect();
        assert_eq!(times, [10, 20, 30]);
    }
}
