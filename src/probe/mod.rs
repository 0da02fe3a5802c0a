//! Looking at the host: programs, compilers, what they do by themselves, what is installed.
//!
//! Owns the questions and the memory of their answers. Knows nothing of products or builds. Probes
//! start from an empty environment with bm's own PATH, so that they see what a build will see.

pub mod defaults;
pub mod host;
pub mod machine;
pub mod native;
pub mod requirements;
pub mod tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Result};
use crate::model::manifest::{Tool, ToolchainRecord};
use crate::model::recipe::{Family, Toolchain};
use crate::model::version::Version;

pub use tools::{Found, Prober};

/// What a build wants from a toolchain besides a C compiler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uses {
    /// The C++ compiler.
    pub cxx: bool,
    /// Link-time optimisation.
    pub lto: bool,
}

/// A toolchain as found on this host. Paths are those to put on command lines (`llvm-ranlib` acts by
/// the name it is called by); the record has the files behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedToolchain {
    /// For the manifest and the identity. `native` is empty; [`Prober::native`] fills it.
    pub record: ToolchainRecord,
    /// Version of the C compiler.
    pub version: Version,
    /// Family of the C compiler, as it says itself.
    pub family: Family,
    /// C compiler.
    pub cc: PathBuf,
    /// C++ compiler, where there is one; in the record only if asked for.
    pub cxx: Option<PathBuf>,
    /// Archiver.
    pub ar: PathBuf,
    /// Symbol lister.
    pub nm: PathBuf,
    /// Archive indexer.
    pub ranlib: PathBuf,
}

/// What a compiler says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Compiler {
    family: Family,
    version: Version,
}

impl Prober {
    /// Finds the parts of a toolchain and checks that they are what its name says.
    ///
    /// # Errors
    /// Exit 3: a program is missing, is of another family or version, or does not work.
    pub fn toolchain(&self, toolchain: &Toolchain, uses: Uses) -> Result<ProbedToolchain> {
        let need = |name: &str| self.program(name).ok_or_else(|| self.missing_in(toolchain, name));
        let cc = need(&toolchain.cc.text)?;
        let (ar, nm, ranlib) = (
            need(&toolchain.ar.text)?,
            need(&toolchain.nm.text)?,
            need(&toolchain.ranlib.text)?,
        );
        let compiler = self.compiler(&cc, "c")?;
        self.check_compiler(toolchain, &cc, &compiler)?;
        let cxx = match self.program(&toolchain.cxx.text) {
            None if uses.cxx => return Err(self.missing_in(toolchain, &toolchain.cxx.text)),
            found => found,
        };

        let mut tools = BTreeMap::new();
        for (role, found) in [("cc", &cc), ("ar", &ar), ("nm", &nm), ("ranlib", &ranlib)] {
            tools.insert(role.to_owned(), self.describe(found)?);
        }
        let used_cxx = cxx.as_ref().filter(|_| uses.cxx);
        if let Some(cxx) = used_cxx {
            self.check_same(&cc, &compiler, cxx)?;
            tools.insert("cxx".to_owned(), self.describe(cxx)?);
        }
        self.add_parts(toolchain, uses, compiler.family, &cc, used_cxx, &mut tools)?;
        let linker = tools["ld"].sha256.clone();
        let record = ToolchainRecord {
            name: toolchain.name.to_string(),
            tools,
            native: String::new(),
            defaults: self.defaults(&cc, used_cxx, &linker)?,
        };
        Ok(ProbedToolchain {
            record,
            version: compiler.version,
            family: compiler.family,
            cc: cc.path,
            cxx: cxx.map(|f| f.path),
            ar: ar.path,
            nm: nm.path,
            ranlib: ranlib.path,
        })
    }

    /// The parts that make code: a driver only starts them, and an update may change them alone.
    fn add_parts(
        &self,
        toolchain: &Toolchain,
        uses: Uses,
        family: Family,
        cc: &Found,
        cxx: Option<&Found>,
        tools: &mut BTreeMap<String, Tool>,
    ) -> Result<()> {
        let version = tools["cc"].version.clone();
        let mut wanted = vec![(cc, "ld")];
        match family {
            Family::Gcc => {
                wanted.extend(["cc1", "collect2", "as"].map(|part| (cc, part)));
                wanted.extend(uses.lto.then_some((cc, "lto1")));
                wanted.extend(cxx.map(|cxx| (cxx, "cc1plus")));
            }
            Family::Clang => {
                for (name, library) in self.llvm_libraries(cc)? {
                    tools.insert(name, self.describe_part(&library, &version)?);
                }
            }
        }
        for (driver, part) in wanted {
            let found = self.part(driver, part)?.ok_or_else(|| {
                self.missing_in(toolchain, part)
                    .detail("asked by", driver.path.display())
            })?;
            let tool = if ["ld", "as"].contains(&part) {
                self.describe(&found)?
            } else {
                self.describe_part(&found, &version)?
            };
            tools.insert(part.to_owned(), tool);
        }
        for word in toolchain.lto_programs.iter().filter(|_| uses.lto) {
            let found = self.program(&word.text).ok_or_else(|| {
                self.missing_in(toolchain, &word.text)
                    .detail("needed for", "link-time optimisation")
            })?;
            tools.insert(word.text.clone(), self.describe(&found)?);
        }
        Ok(())
    }

    /// Family and version of a compiler, by what it predefines: `--version` is free text, and old
    /// clang says `4.2.1` to `-dumpversion`.
    fn compiler(&self, driver: &Found, language: &str) -> Result<Compiler> {
        self.remember(driver, "compiler", || {
            let macros = self.macros(driver, language)?;
            let number = |names: [&str; 3]| {
                let parts: Option<Vec<_>> = names.iter().map(|n| macros.get(*n).cloned()).collect();
                parts.and_then(|p| p.join(".").parse::<Version>().ok())
            };
            let clang = number(["__clang_major__", "__clang_minor__", "__clang_patchlevel__"]);
            let gcc = number(["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"]);
            let (family, version) = match (clang, gcc) {
                (Some(version), _) => (Family::Clang, version),
                (None, Some(version)) => (Family::Gcc, version),
                (None, None) => {
                    return Err(Error::new(
                        Exit::Host,
                        format!("`{}` is neither gcc nor clang", driver.path.display()),
                    ));
                }
            };
            Ok(Compiler { family, version })
        })
    }

    fn check_compiler(&self, toolchain: &Toolchain, cc: &Found, found: &Compiler) -> Result<()> {
        let name = &toolchain.name;
        let path = cc.path.display();
        let error = if found.family != toolchain.family {
            let wanted = toolchain.family;
            format!("toolchain `{name}` wants {wanted}, but `{path}` is {}", found.family)
        } else if let Some(range) = toolchain.version.as_ref().filter(|r| !r.matches(&found.version)) {
            format!(
                "toolchain `{name}` wants version `{range}`, found `{}` at `{path}`",
                found.version
            )
        } else {
            return Ok(());
        };
        Err(self.with_packages(
            toolchain,
            Error::new(Exit::Host, error).detail("wanted by", toolchain.file.as_ref()),
        ))
    }

    /// Objects of two compiler releases do not mix under link-time optimisation, and a build that has
    /// both is not what its name says.
    fn check_same(&self, cc: &Found, c: &Compiler, cxx: &Found) -> Result<()> {
        let cpp = self.compiler(cxx, "c++")?;
        if cpp == *c {
            return Ok(());
        }
        let say = |f: &Found, c: &Compiler| format!("{} {} at {}", c.family, c.version, f.path.display());
        Err(Error::new(Exit::Host, "the C and C++ compilers are not of one release")
            .detail("C", say(cc, c))
            .detail("C++", say(cxx, &cpp)))
    }

    /// A part of a compiler, where the driver itself would take it from.
    fn part(&self, driver: &Found, name: &str) -> Result<Option<Found>> {
        let ask = || {
            let said = self.run(
                &[&driver.word(), &format!("-print-prog-name={name}")],
                Path::new("/"),
                "",
            )?;
            Ok(said.stdout.trim().to_owned())
        };
        // A bare name in the answer means: whatever PATH has.
        let locate = |answer: &str| match answer.contains('/') {
            true => Prober::at(Path::new(answer)),
            false => self.program(answer),
        };
        let fact = format!("prog-name {name}");
        if let Some(found) = locate(&self.remember(driver, &fact, ask)?) {
            return Ok(Some(found));
        }
        // Removed or installed since, while the driver stayed the same.
        let answer = ask()?;
        self.keep(driver, &fact, &answer);
        Ok(locate(&answer))
    }

    /// The shared libraries that hold the optimiser and the code generator: distributions link clang
    /// against them, so that the program itself says little.
    fn llvm_libraries(&self, clang: &Found) -> Result<Vec<(String, Found)>> {
        let Some(ldd) = self.program("ldd") else {
            return Ok(vec![]);
        };
        let ask = || {
            let said = self.run(&[&ldd.word(), &clang.real.to_string_lossy()], Path::new("/"), "")?;
            Ok(llvm_libraries(&said.stdout))
        };
        let locate = |list: Vec<(String, PathBuf)>| -> Option<Vec<(String, Found)>> {
            list.into_iter()
                .map(|(name, path)| Some((name, Prober::at(&path)?)))
                .collect()
        };
        if let Some(found) = locate(self.remember(clang, "llvm-libraries", ask)?) {
            return Ok(found);
        }
        let list = ask()?;
        self.keep(clang, "llvm-libraries", &list);
        Ok(locate(list).unwrap_or_default())
    }

    fn missing_in(&self, toolchain: &Toolchain, program: &str) -> Error {
        let mut error = Error::new(
            Exit::Host,
            format!(
                "toolchain `{}` needs program `{program}`, which is not on bm's PATH",
                toolchain.name
            ),
        );
        for (label, value) in self.missing(program).details() {
            error = error.detail(label, value);
        }
        self.with_packages(toolchain, error.detail("wanted by", toolchain.file.as_ref()))
    }

    /// Adds how to get the toolchain on this distribution.
    fn with_packages(&self, toolchain: &Toolchain, error: Error) -> Error {
        match requirements::apt_install(host::os_release().packages(&toolchain.packages)) {
            Some(line) => error.hint(line),
            None => error.hint(format!(
                "install {} {} and put it on PATH, or choose another toolchain",
                toolchain.family,
                toolchain.version.as_ref().map(|v| format!("`{v}`")).unwrap_or_default()
            )),
        }
    }
}

/// Name and path of each LLVM library in what `ldd` says.
fn llvm_libraries(ldd: &str) -> Vec<(String, PathBuf)> {
    ldd.lines()
        .filter_map(|line| line.trim().split_once(" => "))
        .filter(|(name, _)| name.starts_with("libLLVM") || name.starts_with("libclang-cpp"))
        .filter_map(|(name, rest)| Some((name.to_owned(), PathBuf::from(rest.split(" (0x").next()?))))
        .filter(|(_, path)| path.is_absolute())
        .collect()
}

/// What a probe answered.
#[derive(Debug)]
struct Answer {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Answer {
    fn ok(&self) -> bool {
        self.status.success()
    }

    /// First line of its complaint, for `caused by:`.
    fn complaint(&self) -> String {
        let first = self.stderr.lines().map(str::trim).find(|l| !l.is_empty());
        first.map_or_else(|| format!("it ended with {}", self.status), str::to_owned)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing {
    //! A directory of fake programs that write down each call, and toolchains.

    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use fs_err as fs;

    use super::*;
    use crate::model::recipe::{Flags, Word};

    pub struct Bench(tempfile::TempDir);

    impl Bench {
        pub fn new() -> Self {
            let bench = Bench(tempfile::tempdir().unwrap());
            fs::create_dir(bench.bin_dir()).unwrap();
            bench
        }

        pub fn bin_dir(&self) -> PathBuf {
            self.0.path().join("bin")
        }

        pub fn bin(&self, name: &str) -> PathBuf {
            self.bin_dir().join(name)
        }

        pub fn dir(&self, name: &str) -> PathBuf {
            let dir = self.0.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        }

        pub fn cache_file(&self) -> PathBuf {
            self.0.path().join("cache/tools.json")
        }

        pub fn calls_file(&self) -> PathBuf {
            self.0.path().join("calls")
        }

        /// A shell program. Written by a child: were the file open here while another test's thread
        /// forks, running it could fail with "text file busy".
        pub fn script(&self, name: &str, body: &str) {
            let text = format!(
                "#!/bin/sh\necho \"{name} $*\" >> '{}'\n{body}\n",
                self.calls_file().display()
            );
            let done = Command::new("/bin/sh")
                .args(["-c", r#"rm -f "$1"; printf %s "$2" > "$1"; chmod 755 "$1""#, "sh"])
                .arg(self.bin(name))
                .arg(text)
                .stdin(Stdio::null())
                .status();
            assert!(done.unwrap().success());
        }

        /// A program that writes down its calls and does what the real one does.
        pub fn wrap(&self, name: &str, real: &str) {
            self.script(name, &format!("exec {real} \"$@\""));
        }

        pub fn prober(&self) -> Prober {
            self.prober_with(vec![self.bin_dir()])
        }

        /// Fakes first, then what the system has.
        pub fn over_system(&self) -> Prober {
            self.prober_with(vec![self.bin_dir(), "/usr/bin".into(), "/bin".into()])
        }

        pub fn prober_with(&self, path: Vec<PathBuf>) -> Prober {
            Prober::new(&self.cache_file(), path)
        }
    }

    /// Calls of the bench's programs so far.
    pub fn calls(bench: &Bench) -> Vec<String> {
        let text = fs::read_to_string(bench.calls_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn toolchain(name: &str, family: Family, programs: [&str; 5], version: Option<&str>) -> Toolchain {
        let word = |text: &str| Word::bm(text, "test");
        let [cc, cxx, ar, nm, ranlib] = programs.map(word);
        Toolchain {
            name: name.parse().unwrap(),
            file: format!("toolchains/{name}.toml").into(),
            family,
            default: false,
            cc,
            cxx,
            ar,
            nm,
            ranlib,
            version: version.map(|v| v.parse().unwrap()),
            flags: Flags::default(),
            lto: Flags::default(),
            record: Flags::default(),
            lto_programs: vec![],
            packages: BTreeMap::from([("debian".to_owned(), vec![format!("{name}-package")])]),
            text: "".into(),
        }
    }

    pub fn gcc() -> Toolchain {
        let programs = ["gcc", "g++", "gcc-ar", "gcc-nm", "gcc-ranlib"];
        toolchain("gcc", Family::Gcc, programs, None)
    }

    /// The clang of that release, unless this machine lacks it.
    pub fn clang(release: u32) -> Option<Toolchain> {
        let names = ["clang", "clang++", "llvm-ar", "llvm-nm", "llvm-ranlib"].map(|n| format!("{n}-{release}"));
        if !Path::new("/usr/bin").join(&names[0]).exists() {
            skip(&names[0]);
            return None;
        }
        let mut it = toolchain(
            &format!("clang{release}"),
            Family::Clang,
            names.each_ref().map(String::as_str),
            Some(&format!("={release}")),
        );
        it.lto_programs = vec![Word::bm(format!("ld.lld-{release}"), "test")];
        Some(it)
    }

    #[allow(clippy::print_stderr)]
    fn skip(what: &str) {
        eprintln!("skipped: `{what}` is not installed");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::testing::*;
    use super::*;

    const ALL: Uses = Uses { cxx: true, lto: true };

    #[test]
    fn gcc_is_found_with_the_parts_that_make_code() {
        let bench = Bench::new();
        let probed = bench.over_system().toolchain(&gcc(), ALL).unwrap();
        let keys: Vec<_> = probed.record.tools.keys().map(String::as_str).collect();
        let want = [
            "ar", "as", "cc", "cc1", "cc1plus", "collect2", "cxx", "ld", "lto1", "nm", "ranlib",
        ];
        assert_eq!(keys, want);
        assert_eq!(probed.family, Family::Gcc);
        assert_eq!(probed.cc, Path::new("/usr/bin/gcc"));
        let tools = &probed.record.tools;
        assert!(tools["cc"].version.contains(&probed.version.to_string()), "{tools:?}");
        assert_eq!(tools["cc1"].version, tools["cc"].version);
        assert!(tools["as"].version.starts_with("GNU assembler"));
        assert!(tools.values().all(|t| t.sha256.len() == 64 && t.path.starts_with('/')));
        assert_ne!(tools["cc1"].sha256, tools["lto1"].sha256);
    }

    #[test]
    fn a_c_only_build_does_not_depend_on_the_cxx_compiler() {
        let bench = Bench::new();
        let mut toolchain = gcc();
        toolchain.cxx.text = "no-such-cxx".to_owned();
        let probed = bench.over_system().toolchain(&toolchain, Uses::default()).unwrap();
        assert_eq!(probed.cxx, None);
        assert!(!probed.record.tools.contains_key("lto1"));
        let with = bench.over_system().toolchain(&gcc(), Uses::default()).unwrap();
        assert_eq!(with.record, probed.record);
        let error = bench.over_system().toolchain(&toolchain, ALL).unwrap_err();
        assert!(error.headline().contains("needs program `no-such-cxx`"), "{error}");
    }

    #[test]
    fn a_second_run_starts_no_process() {
        let bench = Bench::new();
        for program in ["gcc", "g++", "gcc-ar", "gcc-nm", "gcc-ranlib", "as", "ld"] {
            bench.wrap(program, &format!("/usr/bin/{program}"));
        }
        let first = bench.over_system().toolchain(&gcc(), ALL).unwrap();
        let before = calls(&bench).len();
        assert!(before >= 12, "{:?}", calls(&bench));
        assert_eq!(bench.over_system().toolchain(&gcc(), ALL).unwrap(), first);
        assert_eq!(calls(&bench)[before..], [] as [String; 0]);
    }

    #[test]
    fn clang_is_found_with_its_libraries_and_linker() {
        for toolchain in [14, 15, 19].into_iter().filter_map(clang) {
            let bench = Bench::new();
            let probed = bench.over_system().toolchain(&toolchain, ALL).unwrap();
            assert_eq!(probed.family, Family::Clang);
            let tools = &probed.record.tools;
            assert!(tools["cc"].path.ends_with("/clang") || tools["cc"].path.contains("clang-"));
            assert!(probed.cxx.unwrap().to_string_lossy().contains("clang++"));
            assert!(tools.contains_key("ld") && tools.contains_key(&toolchain.lto_programs[0].text));
            assert!(tools.keys().any(|k| k.starts_with("libLLVM")), "{:?}", tools.keys());
        }
    }

    #[test]
    fn another_version_or_family_is_refused() {
        let bench = Bench::new();
        let programs = ["gcc", "g++", "gcc-ar", "gcc-nm", "gcc-ranlib"];
        let check = |family, range, want: &str| {
            let toolchain = toolchain("odd", family, programs, range);
            let error = bench.over_system().toolchain(&toolchain, Uses::default()).unwrap_err();
            assert_eq!(error.exit(), Exit::Host);
            assert!(error.headline().starts_with(want), "{error}");
            assert!(error.headline().contains("`/usr/bin/gcc`"), "{error}");
        };
        check(Family::Gcc, Some("=4"), "toolchain `odd` wants version `=4`, found `");
        check(Family::Clang, None, "toolchain `odd` wants clang, but `");
    }

    #[test]
    fn compilers_of_two_releases_are_not_mixed() {
        let (Some(a), Some(b)) = (clang(14), clang(15)) else {
            return;
        };
        let bench = Bench::new();
        let mixed = Toolchain { cxx: b.cxx, ..a };
        let error = bench.over_system().toolchain(&mixed, ALL).unwrap_err();
        assert_eq!(error.headline(), "the C and C++ compilers are not of one release");
        assert!(error.details()[1].1.starts_with("clang 15."), "{error}");
    }

    #[test]
    fn a_missing_compiler_names_the_program_and_what_brings_it() {
        let bench = Bench::new();
        let programs = ["no-gcc", "g++", "ar", "nm", "ranlib"];
        let toolchain = toolchain("gcc99", Family::Gcc, programs, Some("=99"));
        let error = bench.over_system().toolchain(&toolchain, Uses::default()).unwrap_err();
        assert_eq!(error.exit(), Exit::Host);
        assert_eq!(
            error.headline(),
            "toolchain `gcc99` needs program `no-gcc`, which is not on bm's PATH"
        );
        let wanted = ("wanted by".to_owned(), "toolchains/gcc99.toml".to_owned());
        assert!(error.details().contains(&wanted), "{error}");
        let hint = match host::os_release().packages(&toolchain.packages) {
            [] => "install gcc `=99` and put it on PATH, or choose another toolchain",
            _ => "apt-get install -y --no-install-recommends gcc99-package",
        };
        assert_eq!(error.hint_text(), Some(hint));
    }

    #[test]
    fn a_compiler_that_does_not_work_is_named_with_its_complaint() {
        let bench = Bench::new();
        bench.script("gcc", "echo 'gcc: fatal error: cannot execute cc1' >&2; exit 1");
        let error = bench.over_system().toolchain(&gcc(), Uses::default()).unwrap_err();
        assert!(error.headline().ends_with("does not work as a compiler"), "{error}");
        assert_eq!(error.causes(), ["gcc: fatal error: cannot execute cc1"]);
    }

    #[test]
    fn llvm_libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibclang-cpp.so.15 => /lib/x/libclang-cpp.so.15 (0x00007f)\n\
                    \tlibLLVM-15.so.1 => /lib/x/libLLVM-15.so.1 (0x00007f)\n\tlibLLVM-9.so => not found\n\
                    \tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n";
        let want = ["libclang-cpp.so.15", "libLLVM-15.so.1"].map(|n| (n.to_owned(), Path::new("/lib/x").join(n)));
        assert_eq!(llvm_libraries(text), want);
    }
}
