//! The audit against real compilers: a small project is compiled through the launchers, and each
//! way a build can lie about its name is tried.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bm::audit::launcher::{JobFifo, install_launchers};
use bm::audit::{Place, Proof, Question, Scope, collect, elf, judge, record};
use bm::exec::jobs::JobPool;
use bm::model::manifest::Audit;
use bm::model::recipe::{Claims, Expect, Family, Origin, Word};
use fs_err as fs;

const BM: &str = env!("CARGO_BIN_EXE_bm");

/// A work directory with a project of three sources, two of them in libraries.
struct Project {
    dir: tempfile::TempDir,
    family: Family,
    cc: PathBuf,
    ar: String,
}

/// The flags of one build, each place where a build can go wrong apart.
#[derive(Clone, Default)]
struct Build<'a> {
    cflags: &'a str,
    ldflags: &'a str,
    /// Instead of `cflags`, for `src/util.c`.
    util: Option<&'a str>,
    /// Linker words of the program only.
    program: &'a str,
    strip: bool,
}

impl Project {
    fn new(family: Family, cc: &str, ar: &str) -> Self {
        let project = Project {
            dir: tempfile::tempdir().unwrap(),
            family,
            cc: Path::new("/usr/bin").join(cc),
            ar: ar.to_owned(),
        };
        for sub in ["src/include", "build", "stage/bin", "stage/lib", "stage/include"] {
            fs::create_dir_all(project.path(sub)).unwrap();
        }
        for (file, text) in [
            (
                "main.c",
                "int util(int);\nint shared(int);\nint main(int c, char **v) { return util(c) - shared(c); }\n",
            ),
            (
                "util.c",
                "int util(int x) { int s = 0; while (x) s += x--; return s; }\n",
            ),
            (
                "shared.c",
                "int util(int);\nint shared(int x) { return util(x) + 1; }\n",
            ),
            (
                "include/config.h",
                "/* #undef USE_ASSERT_CHECKING */\n#define VERSION \"1\"\n",
            ),
        ] {
            fs::write(project.path("src").join(file), text).unwrap();
        }
        project.install_launchers(None);
        project
    }

    fn install_launchers(&self, jobs: Option<&JobFifo>) {
        let (bin, record) = (self.path("bin"), self.path("record"));
        let tools = [("cc", self.cc.as_path())];
        install_launchers(&bin, &record, jobs, None, self.family, &tools, Path::new(BM)).unwrap();
    }

    fn path(&self, sub: &str) -> PathBuf {
        self.dir.path().join(sub)
    }

    fn run(&self, line: &str) {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", line]).current_dir(self.path("build"));
        let done = shell.env_clear().env("PATH", path).output().unwrap();
        assert!(
            done.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// What a makefile would do.
    fn build(&self, build: &Build<'_>) {
        let record = match self.family {
            Family::Clang => "-grecord-command-line",
            Family::Gcc => "",
        };
        let common = format!("-g {record} {}", build.cflags);
        let util = format!("-g {record} {}", build.util.unwrap_or(build.cflags));
        let (ld, program, ar) = (build.ldflags, build.program, &self.ar);
        self.run(&format!("cc {common} -fPIC -c -o main.o ../src/main.c"));
        self.run(&format!("cc {util} -fPIC -c -o util.o ../src/util.c"));
        self.run(&format!("cc {common} -fPIC -c -o shared.o ../src/shared.c"));
        self.run(&format!("{ar} rcs libutil.a util.o"));
        self.run(&format!(
            "cc {common} {ld} -shared -o libshared.so shared.o libutil.a -Wl,-soname,libshared.so"
        ));
        self.run(&format!(
            "cc {common} {ld} {program} -o prog main.o libutil.a -L. -lshared -Wl,-rpath,/final/p/lib"
        ));
        if build.strip {
            self.run("strip prog");
        }
        self.run("install -m 755 prog ../stage/bin/prog && install libshared.so libutil.a ../stage/lib");
        self.run("install ../src/include/config.h ../stage/include/config.h");
    }

    fn proof(&self) -> Proof {
        collect(&Scope {
            stage: &self.path("stage"),
            source: &self.path("src"),
            build: &self.path("build"),
            record: &self.path("record"),
            needs: &[],
        })
        .unwrap()
    }

    fn audit(&self, claims: &Claims) -> Audit {
        self.audit_expecting(claims, &expectations())
    }

    fn audit_expecting(&self, claims: &Claims, expect: &Expect) -> Audit {
        let native = match self.family {
            Family::Gcc => native_of(&self.cc),
            Family::Clang => String::new(),
        };
        let compiler = version_line(&self.cc);
        judge(&self.proof(), &self.question(claims, expect, &native, &compiler)).unwrap()
    }

    fn question<'a>(
        &'a self,
        claims: &'a Claims,
        expect: &'a Expect,
        native: &'a str,
        compiler: &'a str,
    ) -> Question<'a> {
        Question {
            claims,
            expect,
            family: self.family,
            native,
            compiler,
            place: Place {
                prefix: Path::new("/final/p"),
                work: self.dir.path(),
            },
        }
    }
}

fn version_line(cc: &Path) -> String {
    let done = Command::new(cc).arg("--version").output().unwrap();
    String::from_utf8(done.stdout)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned()
}

fn native_of(cc: &Path) -> String {
    let done = Command::new(cc)
        .args(["-march=native", "-Q", "--help=target"])
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let line = text.lines().find(|l| l.trim_start().starts_with("-march=")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

fn expectations() -> Expect {
    Expect {
        compile_lines: vec![],
        files: ["bin/prog", "{lib64,lib}/libshared.so"]
            .map(|f| Word::bm(f, "test"))
            .into(),
        undefined: vec![("include/config.h".into(), "USE_ASSERT_CHECKING".into())],
        exempt: vec![],
    }
}

fn claims(optimisation: &str, march: Option<&str>, lto: bool) -> Claims {
    Claims {
        optimisation: Some(optimisation.to_owned()),
        march: march.map(str::to_owned),
        lto: Some(lto),
        frame_pointer: None,
    }
}

fn gcc() -> Project {
    Project::new(Family::Gcc, "gcc", "gcc-ar")
}

/// Every clang that can build with lld here, with the word that chooses its lld.
fn clangs() -> Vec<(Project, String)> {
    let mut found = vec![];
    for version in ["14", "15", "19"] {
        let tools = ["clang", "llvm-ar", "ld.lld"].map(|tool| format!("{tool}-{version}"));
        match tools.iter().find(|t| !Path::new("/usr/bin").join(t).exists()) {
            None => found.push((
                Project::new(Family::Clang, &tools[0], &tools[1]),
                format!("-fuse-ld=lld-{version}"),
            )),
            Some(missing) => eprintln!("skipped clang {version}: no `{missing}`"),
        }
    }
    found
}

#[track_caller]
fn accepted(audit: &Audit) {
    assert!(audit.findings.is_empty(), "{:#?}", audit.findings);
    assert!(audit.files >= 3 && audit.units >= 3 && audit.links == 2, "{audit:?}");
}

/// The audit has findings of the subject, and of no other; one says `told`.
#[track_caller]
fn refused(audit: &Audit, subject: &str, told: &str) {
    let subjects: BTreeSet<_> = audit.findings.iter().map(|f| f.subject.as_str()).collect();
    assert_eq!(subjects, BTreeSet::from([subject]), "{:#?}", audit.findings);
    let somewhere = audit
        .findings
        .iter()
        .any(|f| [&f.asked, &f.found, &f.evidence].iter().any(|t| t.contains(told)));
    assert!(somewhere, "`{told}` not in {:#?}", audit.findings);
}

const NATIVE: &str = "-O3 -march=native -mtune=native";
const NATIVE_LTO: &str = "-O3 -march=native -mtune=native -flto";

fn with(cflags: &str) -> Build<'_> {
    Build {
        cflags,
        ..Build::default()
    }
}

#[test]
fn gcc_truth_is_accepted() {
    for (cflags, claims) in [
        ("-O2", claims("2", None, false)),
        (NATIVE, claims("3", Some("native"), false)),
        (NATIVE_LTO, claims("3", Some("native"), true)),
        ("-O2 -gdwarf-4 -gz -flto -ffat-lto-objects", claims("2", None, true)),
    ] {
        let project = gcc();
        project.build(&with(cflags));
        accepted(&project.audit(&claims));
    }
    let project = gcc();
    project.build(&with("-O2 -fno-omit-frame-pointer"));
    accepted(&project.audit(&Claims {
        frame_pointer: Some(true),
        ..claims("2", None, false)
    }));
}

#[test]
fn evidence_is_compact_and_comes_from_three_sides() {
    let project = gcc();
    project.build(&with(NATIVE_LTO));
    let word = |text: &str| Word {
        text: text.to_owned(),
        origin: Origin::Bm("a test"),
    };
    // Known by the path below the tree; what was never compiled leaves no line.
    let lines = ["util.c", "main.c", "n.c"].map(word);
    let evidence = project.proof().evidence(&lines, Some("bin/prog"));
    let sides: BTreeSet<_> = evidence.units.iter().map(|u| u.from.as_str()).collect();
    assert_eq!(sides, BTreeSet::from(["command", "dwarf", "object"]));
    assert!(evidence.units.iter().all(|u| u.lto), "{:#?}", evidence.units);
    let files: Vec<_> = evidence.links.iter().map(|l| (l.file.as_str(), l.lto)).collect();
    assert_eq!(files, [("bin/prog", true), ("lib/libshared.so", true)]);
    let kept = evidence.compiles.iter().map(|c| (c.source.as_str(), c.dir.as_str()));
    assert!(
        kept.eq([("util.c", "build"), ("main.c", "build")]),
        "{:?}",
        evidence.compiles
    );
    assert!(evidence.compiles[0].argv.contains(&"../src/util.c".to_owned()));
    assert!(
        evidence.sample_compile.contains(&"../src/main.c".to_owned()),
        "{:?}",
        evidence.sample_compile
    );
    let program: Vec<_> = evidence
        .units
        .iter()
        .filter(|u| u.file == "bin/prog" && u.from == "command")
        .collect();
    assert_eq!(
        (program.len(), program[0].units),
        (1, 2),
        "main and util, counted together: {program:#?}"
    );
}

#[test]
fn gcc_lies_are_refused() {
    let native_lto = claims("3", Some("native"), true);
    let plain = claims("2", None, false);
    let lie = |build: Build<'_>, claims: &Claims, subject: &str, told: &str| {
        let project = gcc();
        project.build(&build);
        refused(&project.audit(claims), subject, told);
    };
    let one_unit = |util| Build {
        util: Some(util),
        ..with(NATIVE_LTO)
    };
    lie(
        one_unit("-O3 -march=native -flto -O0"),
        &native_lto,
        "optimisation",
        "src/util.c",
    );
    lie(one_unit(NATIVE), &native_lto, "lto", "util.o");
    lie(one_unit("-O3 -flto"), &native_lto, "march", "src/util.c");
    let no_lto_at_link = Build {
        ldflags: "-fno-lto",
        ..with("-O3 -march=native -flto -ffat-lto-objects")
    };
    lie(no_lto_at_link, &native_lto, "lto", "bin/prog");
    lie(with("-O2 -flto"), &plain, "lto", "an object with code for LTO");
    lie(with("-O2 -march=native"), &plain, "march", "-march=native");
    lie(
        with("-O2"),
        &claims("2", Some("native"), false),
        "march",
        "src/shared.c",
    );
    lie(
        with("-O2 -DUSE_ASSERT_CHECKING=1"),
        &plain,
        "asserts",
        "-DUSE_ASSERT_CHECKING",
    );
    let frame_pointers = Claims {
        frame_pointer: Some(true),
        ..plain.clone()
    };
    lie(with("-O2"), &frame_pointers, "frame-pointer", "src/main.c");
    let work_path = Build {
        program: "-Wl,-rpath,$PWD",
        ..with("-O2")
    };
    lie(work_path, &plain, "run-path", "in the work directory");
}

#[test]
fn a_stripped_program_is_refused() {
    let project = gcc();
    project.build(&Build {
        strip: true,
        ..with("-O2")
    });
    let audit = project.audit(&claims("2", None, false));
    refused(&audit, "stripped", "bin/prog");
    assert_eq!(audit.findings.len(), 1);
}

#[test]
fn asserts_in_a_header_and_missing_files_are_refused() {
    let project = gcc();
    project.build(&with("-O2"));
    let claims = claims("2", None, false);
    let header = project.path("stage/include/config.h");
    fs::write(&header, "#define USE_ASSERT_CHECKING 1\n").unwrap();
    refused(&project.audit(&claims), "asserts", "line 1");
    fs::remove_file(&header).unwrap();
    refused(&project.audit(&claims), "file", "include/config.h");
    fs::write(&header, "").unwrap();
    let mut expect = expectations();
    expect.files.push(Word::bm("{lib,lib/x}/absent.so", "test"));
    refused(&project.audit_expecting(&claims, &expect), "file", "absent.so");
}

#[test]
fn a_unit_of_another_compiler_is_refused() {
    let project = gcc();
    project.build(&with("-O2"));
    let (claims, expect) = (claims("2", None, false), expectations());
    let (proof, native) = (project.proof(), native_of(&project.cc));
    for (family, line) in [(Family::Gcc, "gcc (x) 4.8.5"), (Family::Clang, "clang version 15.0.6")] {
        let question = Question {
            family,
            ..project.question(&claims, &expect, &native, line)
        };
        refused(&judge(&proof, &question).unwrap(), "compiler", line);
    }
}

#[test]
fn what_no_launcher_saw_is_refused() {
    let project = gcc();
    project.build(&with("-O2"));
    let claims = claims("2", None, false);
    let cc = project.cc.display();
    // The same flags, but past the launcher: nobody can tell what else was said.
    project.run(&format!(
        "{cc} -g -O2 -o ../stage/bin/extra ../src/main.c ../src/util.c ../src/shared.c"
    ));
    refused(&project.audit(&claims), "compiler", "bin/extra");
    fs::remove_file(project.path("stage/bin/extra")).unwrap();
    // Linked anew after the recorded link, with other bytes.
    project.run(&format!(
        "{cc} -g -O2 -o ../stage/bin/prog main.o libutil.a -L. -lshared"
    ));
    refused(&project.audit(&claims), "compiler", "is another file");
}

#[test]
fn a_unit_compiled_past_the_launcher_is_refused() {
    let project = gcc();
    fs::write(project.path("src/hidden.c"), "int hidden(void) { return 1; }\n").unwrap();
    project.run(&format!(
        "{} -g -O2 -fPIC -c -o hidden.o ../src/hidden.c",
        project.cc.display()
    ));
    project.build(&Build {
        program: "hidden.o",
        ..with("-O2")
    });
    refused(&project.audit(&claims("2", None, false)), "compiler", "src/hidden.c");
}

#[test]
fn a_unit_without_debug_information_is_judged_by_its_command() {
    let project = gcc();
    project.build(&Build {
        util: Some("-O1 -g0"),
        ..with("-O2")
    });
    refused(&project.audit(&claims("2", None, false)), "optimisation", "src/util.c");
}

#[test]
fn exempt_units_are_listed_with_the_reason() {
    let project = gcc();
    project.build(&Build {
        util: Some("-O3 -msse4.2 -march=native"),
        ..with("-O2")
    });
    let mut expect = expectations();
    expect.exempt = vec![("*/util.c".into(), "the tree compiles it for one CPU".into())];
    let audit = project.audit_expecting(&claims("2", None, false), &expect);
    accepted(&audit);
    assert_eq!(audit.exempt, ["src/util.c: the tree compiles it for one CPU"]);
}

#[test]
fn only_the_last_compile_of_an_object_counts() {
    let project = gcc();
    project.run("cc -g -O0 -fPIC -c -o util.o ../src/util.c");
    project.run("cc -g -O0 -o conftest ../src/main.c ../src/util.c ../src/shared.c");
    project.build(&with("-O2"));
    accepted(&project.audit(&claims("2", None, false)));
}

#[test]
fn clang_truth_is_accepted_and_lies_refused() {
    for (project, lld) in clangs() {
        project.build(&with("-O2"));
        accepted(&project.audit(&claims("2", None, false)));
        let native_lto = claims("3", Some("native"), true);
        for cflags in [NATIVE_LTO, "-O3 -march=native -flto=thin -gdwarf-4"] {
            project.build(&Build {
                ldflags: &lld,
                ..with(cflags)
            });
            accepted(&project.audit(&native_lto));
        }
        let one_unit = |util| Build {
            util: Some(util),
            ldflags: &lld,
            ..with(NATIVE_LTO)
        };
        project.build(&one_unit("-O3 -march=native -flto -O0"));
        refused(&project.audit(&native_lto), "optimisation", "src/util.c");
        project.build(&one_unit(NATIVE));
        refused(&project.audit(&native_lto), "lto", "util.o");
        project.build(&one_unit("-O3 -flto"));
        refused(&project.audit(&native_lto), "march", "src/util.c");
        project.build(&with(NATIVE));
        refused(&project.audit(&native_lto), "lto", "bin/prog");
    }
}

#[test]
fn an_lto_link_borrows_free_tokens_and_gives_them_back() {
    let project = gcc();
    let (pool, _) = JobPool::open(&project.path("jobs"), 3).unwrap();
    let fifo = pool.fifo().to_owned();
    project.install_launchers(Some(&JobFifo {
        path: fifo,
        at_most: 3,
        memory: 0,
    }));
    project.build(&with(NATIVE_LTO));
    accepted(&project.audit(&claims("3", Some("native"), true)));
    let links = project.proof().evidence(&[], None).links;
    assert!(
        links
            .iter()
            .all(|l| l.lto_jobs == 3 && l.argv.contains(&"-flto=3".to_owned())),
        "{links:#?}"
    );
    assert_eq!(pool.free().unwrap(), 3);
}

/// A launcher in front of a program of our own that tells what it got.
struct Probe(tempfile::TempDir);

impl Probe {
    fn new(script: &str) -> Self {
        Self::with_jobs(script, |_| None)
    }

    fn with_jobs(script: &str, jobs: impl FnOnce(&Path) -> Option<JobFifo>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::write(&real, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&real, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (bin, record, jobs) = (dir.path().join("bin"), dir.path().join("record"), jobs(dir.path()));
        install_launchers(
            &bin,
            &record,
            jobs.as_ref(),
            None,
            Family::Gcc,
            &[("cc", &real)],
            Path::new(BM),
        )
        .unwrap();
        Probe(dir)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0.path().join("bin/cc"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.0.path());
        command
    }

    fn calls(&self) -> Vec<record::Call> {
        record::read_all(&self.0.path().join("record")).unwrap()
    }
}

fn told(output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_real_program_gets_words_environment_and_input_unchanged() {
    let probe = Probe::new(r#"printf '%s\n' "$0" "$@"; tr '\0' '\n' < /proc/$$/environ; cat"#);
    let input = probe.0.path().join("input");
    fs::write(&input, "from stdin\n").unwrap();
    let output = probe
        .command()
        .args(["a b", "", "-DX=\"q\"", "*", "@absent", "$HOME"])
        .env("ODD", "x y\nz")
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    let real = probe.0.path().join("real").display().to_string();
    let want = [&real, "a b", "", "-DX=\"q\"", "*", "@absent", "$HOME"].join("\n");
    assert_eq!(
        told(&output),
        format!("{want}\nODD=x y\nz\nPATH=/usr/bin:/bin\nfrom stdin\n")
    );
    let calls = probe.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].record.argv.join("\n"), want);
    assert_eq!(calls[0].record.cwd, fs::canonicalize(probe.0.path()).unwrap());
}

#[test]
fn words_that_are_no_text_reach_the_real_program() {
    use std::os::unix::ffi::OsStrExt;
    let probe = Probe::new(r#"printf '%s' "$1""#);
    let word = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let output = probe.command().arg(word).output().unwrap();
    assert_eq!(output.stdout, b"\xff\xfe");
    assert_eq!(probe.calls().len(), 1);
}

#[test]
fn status_and_signals_pass_through() {
    for status in [0, 1, 4, 77, 255] {
        let done = Probe::new(&format!("exit {status}")).command().status().unwrap();
        assert_eq!(done.code(), Some(status));
    }
    for signal in [9, 15, 2] {
        let done = Probe::new(&format!("kill -{signal} $$")).command().status().unwrap();
        assert_eq!(done.signal(), Some(signal));
    }
}

/// A probe whose calls are LTO links that borrow, and the budget of two tokens they borrow from.
fn borrowing(script: &str) -> (Probe, JobPool) {
    let mut pool = None;
    let probe = Probe::with_jobs(script, |dir| {
        let (budget, _) = JobPool::open(&dir.join("jobs"), 2).unwrap();
        let path = budget.fifo().to_owned();
        pool = Some(budget);
        Some(JobFifo {
            path,
            at_most: 4,
            memory: 0,
        })
    });
    (probe, pool.unwrap())
}

#[test]
fn a_borrowing_link_ends_as_the_compiler_ended() {
    for (script, code, signal) in [
        ("[ \"$2\" = -flto=3 ] && exit 7", Some(7), None),
        ("kill -15 $$", None, Some(15)),
        ("kill -9 $$", None, Some(9)),
    ] {
        let (probe, pool) = borrowing(script);
        let done = probe
            .command()
            .args(["-O2", "-flto", "a.o", "-o", "p"])
            .status()
            .unwrap();
        assert_eq!((done.code(), done.signal()), (code, signal), "{script}");
        assert_eq!(pool.free().unwrap(), 2, "{script}");
    }
}

#[test]
fn a_borrowing_link_outlives_a_signal_to_its_group_until_tokens_are_back() {
    // The compiler signals the whole group, its launcher included, and ends by it.
    let (probe, pool) = borrowing("kill -15 0; sleep 60");
    let done = probe
        .command()
        .args(["-flto", "a.o", "-o", "p"])
        .process_group(0)
        .status()
        .unwrap();
    assert_eq!(done.signal(), Some(15));
    assert_eq!(pool.free().unwrap(), 2);
}

#[test]
fn a_program_that_cannot_start_is_told() {
    let probe = Probe::new("exit 0");
    fs::remove_file(probe.0.path().join("real")).unwrap();
    let output = probe.command().output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("cannot start `"),
        "{output:?}"
    );
}

#[test]
fn a_call_that_cannot_be_recorded_is_not_made() {
    let probe = Probe::new("echo ran");
    fs::remove_dir_all(probe.0.path().join("record")).unwrap();
    let output = probe.command().output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("cannot record a compiler call"),
        "{output:?}"
    );
}

#[test]
fn response_files_reach_the_program_as_they_are_and_the_record_expanded() {
    let probe = Probe::new(r#"printf '%s\n' "$@""#);
    fs::write(probe.0.path().join("words"), "-O2 \"-DX=a b\" -c a.c").unwrap();
    let output = probe.command().arg("@words").output().unwrap();
    // The file is left as it is; what the launcher adds comes after it.
    assert_eq!(told(&output), "@words\n-fdebug-prefix-map=/proc/self/cwd=.\n");
    let call = &probe.calls()[0];
    assert_eq!(
        call.record.argv[1..],
        ["-O2", "-DX=a b", "-c", "a.c", "-fdebug-prefix-map=/proc/self/cwd=."]
    );
    assert_eq!(call.kind, record::Kind::Compile);
}

#[test]
fn parallel_calls_are_all_recorded_whole() {
    let probe = Probe::new("exit 0");
    // Longer than what a pipe or a page takes in one piece.
    let long = format!("-DLONG={}", "x".repeat(20_000));
    std::thread::scope(|scope| {
        for i in 0..50 {
            let (probe, long) = (&probe, &long);
            scope.spawn(move || {
                let done = probe.command().args([long, "-c", &format!("u{i}.c")]).status().unwrap();
                assert!(done.success());
            });
        }
    });
    let sources: BTreeSet<_> = probe.calls().iter().map(|c| c.record.argv[3].clone()).collect();
    assert_eq!(sources, (0..50).map(|i| format!("u{i}.c")).collect());
}

#[test]
fn a_launcher_is_found_through_path_and_bm_itself_is_none() {
    let probe = Probe::new("echo real");
    let path = format!("{}:/usr/bin:/bin", probe.0.path().join("bin").display());
    let by_name = |name: &str| {
        let mut command = Command::new(BM);
        command
            .arg0(name)
            .arg("--version")
            .env_clear()
            .env("PATH", &path)
            .output()
            .unwrap()
    };
    assert_eq!(told(&by_name("cc")), "real\n");
    assert!(!String::from_utf8_lossy(&by_name("bm").stdout).contains("real"));
    // A link to bm under another name, in a directory that is no launchers', is bm.
    let other = probe.0.path().join("other");
    fs::create_dir(&other).unwrap();
    symlink(BM, other.join("cc")).unwrap();
    let output = Command::new(other.join("cc")).arg("--version").output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("real"));
    assert_eq!(probe.calls().len(), 1);
}

#[test]
fn what_was_installed_is_read_as_compiled() {
    let project = gcc();
    project.build(&with("-O2"));
    let read = |file: &str| elf::read(&project.path(file)).unwrap();
    assert!(matches!(read("stage/lib/libutil.a"), Some(elf::Compiled::Archive(m)) if m.len() == 1));
    assert!(read("stage/include/config.h").is_none());
}
