//! Whether the host has what a recipe needs, which packages bring what is missing, and installing
//! them.
//!
//! Asks the compiler, pkg-config and perl themselves rather than the package database: what counts
//! is whether a build will find it. Does not belong on the path of a build that is up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::host;
use super::tools::Prober;
use crate::error::{Error, Exit, Result};
use crate::model::recipe::{Need, Origin, Requirement, SourceKind, Toolchain};
use crate::process::{self, Cancel, Command, Ended, Limits};

const APT_INSTALL: [&str; 4] = ["apt-get", "install", "-y", "--no-install-recommends"];
/// Another package manager may be at work: wait, up to so many seconds.
const APT_WAIT: &str = "DPkg::Lock::Timeout=300";

/// Something the host lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What was looked for.
    pub need: Need,
    /// Packages of this distribution that bring it; empty where none are known.
    pub packages: Vec<String>,
    /// Who asks for it.
    pub origin: Origin,
}

/// What bm itself needs for a source of that kind, before any recipe speaks.
pub fn own_needs(kind: SourceKind) -> Vec<Requirement> {
    let source: &[&str] = match kind {
        SourceKind::Git => &["git"],
        SourceKind::Tarball | SourceKind::Local => &[],
    };
    std::iter::once(&"make")
        .chain(source)
        .map(|program| own(program))
        .collect()
}

/// A program of bm's own, in a Debian package of the same name.
fn own(program: &str) -> Requirement {
    Requirement {
        need: Need::Program(program.to_owned()),
        packages: BTreeMap::from([("debian".to_owned(), vec![program.to_owned()])]),
        origin: Origin::Bm("bm itself runs it"),
    }
}

/// Programs of a toolchain that the host lacks, with the toolchain's packages.
pub fn toolchain_missing(prober: &Prober, toolchain: &Toolchain) -> Vec<Missing> {
    let packages = super::host::os_release().packages(&toolchain.packages).to_vec();
    let programs = [&toolchain.cc, &toolchain.ar, &toolchain.nm, &toolchain.ranlib];
    programs
        .into_iter()
        .chain(&toolchain.lto_programs)
        .filter(|word| prober.program(&word.text).is_none())
        .map(|word| Missing {
            need: Need::Program(word.text.clone()),
            packages: packages.clone(),
            origin: word.origin.clone(),
        })
        .collect()
}

/// The line that installs what is missing, as far as packages are known.
pub fn apt_line(missing: &[Missing]) -> Option<String> {
    let packages: Vec<String> = missing.iter().flat_map(|m| m.packages.iter().cloned()).collect();
    apt_install(&packages)
}

/// The line that installs packages: sorted, each once.
pub fn apt_install(packages: &[String]) -> Option<String> {
    let sorted: BTreeSet<&str> = packages.iter().map(String::as_str).collect();
    let words: Vec<&str> = APT_INSTALL.into_iter().chain(sorted.iter().copied()).collect();
    (!sorted.is_empty()).then(|| words.join(" "))
}

/// One error for all that is missing: who needs it, and the line that brings it.
pub fn missing_error(missing: &[Missing]) -> Error {
    let count = missing.len();
    let things = if count == 1 { "thing" } else { "things" };
    let mut error = Error::new(Exit::Host, format!("this host lacks {count} {things} the build needs"));
    for it in missing {
        error = error.detail("missing", format!("{} ({})", it.need, it.origin));
    }
    match apt_line(missing) {
        Some(line) => error.hint(line),
        None => error.hint("install these with the distribution's package manager"),
    }
}

impl Prober {
    /// What of `requirements` the host lacks, in their order. Headers are looked for by `cc`; without
    /// one, in the system's own places.
    ///
    /// # Errors
    /// Exit 3 when a program that should answer cannot be run.
    pub fn check(&self, requirements: &[&Requirement], cc: Option<&Path>) -> Result<Vec<Missing>> {
        self.check_for(&host::os_release(), requirements, cc)
    }

    fn check_for(&self, os: &host::OsRelease, wanted: &[&Requirement], cc: Option<&Path>) -> Result<Vec<Missing>> {
        let (mut headers, mut modules, mut perl) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for requirement in wanted {
            match &requirement.need {
                Need::Program(_) => {}
                Need::Header(name) => _ = headers.insert(name.as_str()),
                Need::PkgConfig(name) => _ = modules.insert(name.as_str()),
                Need::PerlModule(name) => _ = perl.insert(name.as_str()),
            }
        }
        // The program that answers is itself needed, whoever forgot to say so.
        let implied: Vec<Requirement> = [("pkg-config", &modules), ("perl", &perl)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(program, _)| own(program))
            .filter(|i| wanted.iter().all(|w| w.need != i.need))
            .collect();
        let no_headers = self.missing_headers(&headers, cc)?;
        let no_modules = self.missing_modules(&modules)?;
        let no_perl = self.missing_perl(&perl)?;
        let lacks = |need: &Need| match need {
            Need::Program(name) => self.program(name).is_none(),
            Need::Header(name) => no_headers.contains(name.as_str()),
            Need::PkgConfig(name) => no_modules.contains(name.as_str()),
            Need::PerlModule(name) => no_perl.contains(name.as_str()),
        };
        let all = implied.iter().chain(wanted.iter().copied());
        let mut seen = BTreeSet::new();
        Ok(all
            .filter(|r| lacks(&r.need) && seen.insert(&r.need))
            .map(|r| Missing {
                need: r.need.clone(),
                packages: os.packages(&r.packages).to_vec(),
                origin: r.origin.clone(),
            })
            .collect())
    }

    /// Which of `packages` do not exist in apt's index as it is now, or are there only by name.
    ///
    /// # Errors
    /// Exit 3 when `apt-cache` is missing or fails.
    pub fn unknown_packages(&self, packages: &[String]) -> Result<Vec<String>> {
        if packages.is_empty() {
            return Ok(vec![]);
        }
        let apt = self
            .program("apt-cache")
            .ok_or_else(|| self.missing("apt-cache"))?
            .word();
        let argv: Vec<&str> = [apt.as_str(), "policy", "--"]
            .into_iter()
            .chain(packages.iter().map(String::as_str))
            .collect();
        let said = self.run(&argv, Path::new("/"), "")?;
        if !said.ok() {
            return Err(Error::new(Exit::Host, "`apt-cache policy` failed").caused_by(said.complaint()));
        }
        let known = candidates(&said.stdout);
        Ok(packages
            .iter()
            .filter(|p| !known.contains(p.as_str()))
            .cloned()
            .collect())
    }

    /// Installs packages: `apt-get update`, then `apt-get install`, as root or through sudo, with all
    /// output in `log`. `network` is [`process::fetch_extra`]; sudo does not pass it on,
    /// there apt's own configuration has to hold it.
    ///
    /// # Errors
    /// Exit 3 when bm may not install, a package does not exist, or apt fails; 130 when interrupted.
    pub fn install(
        &self,
        packages: &[String],
        network: &BTreeMap<String, String>,
        log: &Path,
        cancel: &Cancel,
    ) -> Result<()> {
        let Some(line) = apt_install(packages) else {
            return Ok(());
        };
        let privilege = self.privilege(&line)?;
        let command = |words: &[&str]| self.apt_command(&privilege, words, network, log);

        // A broken third-party list fails the update and yet leaves what is needed installable, so
        // only the install decides.
        let update = process::run(&command(&["apt-get", "update"]), cancel, None)?;
        if update.ended == Ended::Interrupted {
            return Err(Error::new(
                Exit::Interrupted,
                "interrupted while packages were installed",
            ));
        }
        let unknown = self.unknown_packages(packages)?;
        if !unknown.is_empty() {
            return Err(no_such_packages(&unknown, update.ok(), log));
        }
        let words: Vec<&str> = line.split(' ').collect();
        let install = process::run(&command(&words), cancel, None)?;
        match &install.ended {
            Ended::Exited(0) => Ok(()),
            Ended::Interrupted => Err(
                Error::new(Exit::Interrupted, "interrupted while packages were installed").hint("dpkg --configure -a"),
            ),
            ended => Err(
                Error::new(Exit::Host, format!("`{line}` failed: {}", how_it_ended(ended)))
                    .detail("log", log.display())
                    .hint(format!("{}{line}", privilege.prefix())),
            ),
        }
    }

    fn privilege(&self, line: &str) -> Result<Privilege> {
        if host::is_root() {
            return Ok(Privilege::Root);
        }
        match self.program("sudo") {
            Some(sudo) => Ok(Privilege::Sudo(sudo.path)),
            None => Err(Error::new(
                Exit::Host,
                "bm may not install packages: it is not root, and there is no `sudo`",
            )
            .hint(format!("as root: {line}"))),
        }
    }

    fn apt_command(
        &self,
        privilege: &Privilege,
        words: &[&str],
        network: &BTreeMap<String, String>,
        log: &Path,
    ) -> Command {
        let (apt, arguments) = words.split_first().expect("a command has a first word");
        let words = [&[*apt, "-o", APT_WAIT], arguments].concat();
        let frontend = ("DEBIAN_FRONTEND", "noninteractive");
        let mut argv = Vec::new();
        if let Privilege::Sudo(sudo) = privilege {
            // Never a prompt: the child has no terminal to answer on. sudo drops the environment.
            let lead = [&*sudo.to_string_lossy(), "-n", "env", "LC_ALL=C"].map(str::to_owned);
            argv.extend(lead);
            argv.push(format!("{}={}", frontend.0, frontend.1));
        }
        argv.extend(words.iter().map(|w| (*w).to_owned()));
        let mut env = network.clone();
        let path = self.path_variable();
        for (name, value) in [("PATH", path.as_str()), ("LC_ALL", "C"), ("HOME", "/"), frontend] {
            env.insert(name.to_owned(), value.to_owned());
        }
        Command {
            argv,
            env,
            dir: PathBuf::from("/"),
            log: log.to_owned(),
            limits: Limits::default(),
            run_as: None,
        }
    }

    fn missing_headers<'a>(&self, headers: &BTreeSet<&'a str>, cc: Option<&Path>) -> Result<BTreeSet<&'a str>> {
        let (sound, mut missing): (Vec<&str>, BTreeSet<&str>) =
            parted(headers, |c| c.is_ascii_alphanumeric() || "/._+-".contains(c));
        if sound.is_empty() {
            return Ok(missing);
        }
        let Some(cc) = cc else {
            missing.extend(sound.iter().filter(|h| !in_system_places(h)));
            return Ok(missing);
        };
        // One call for all; the numbers of those that are there come out.
        let text: String = sound
            .iter()
            .enumerate()
            .map(|(i, h)| format!("#if __has_include(<{h}>)\nbm_has {i}\n#endif\n"))
            .collect();
        let said = self.run(&[&cc.to_string_lossy(), "-E", "-x", "c", "-"], Path::new("/"), &text)?;
        if !said.ok() {
            return Err(
                Error::new(Exit::Host, format!("`{}` cannot look for headers", cc.display()))
                    .caused_by(said.complaint()),
            );
        }
        let has: BTreeSet<usize> = said
            .stdout
            .lines()
            .filter_map(|l| l.trim().strip_prefix("bm_has ")?.trim().parse().ok())
            .collect();
        missing.extend(
            sound
                .iter()
                .enumerate()
                .filter(|(i, _)| !has.contains(i))
                .map(|(_, h)| h),
        );
        Ok(missing)
    }

    fn missing_modules<'a>(&self, modules: &BTreeSet<&'a str>) -> Result<BTreeSet<&'a str>> {
        let Some(program) = self.program("pkg-config") else {
            return Ok(modules.clone());
        };
        // A word may carry a version: `icu-uc >= 60`.
        let (sound, mut missing) = parted(modules, |c| c.is_ascii_alphanumeric() || " .<>=_+-".contains(c));
        missing.extend(self.missing_by(&sound.into_iter().collect(), |names| {
            [program.word(), "--exists".to_owned()]
                .into_iter()
                .chain(names.iter().map(|n| (*n).to_owned()))
                .collect()
        })?);
        Ok(missing)
    }

    fn missing_perl<'a>(&self, modules: &BTreeSet<&'a str>) -> Result<BTreeSet<&'a str>> {
        let Some(perl) = self.program("perl") else {
            return Ok(modules.clone());
        };
        let (sound, mut missing) = parted(modules, |c| c.is_ascii_alphanumeric() || "_:".contains(c));
        missing.extend(self.missing_by(&sound.into_iter().collect(), |names| {
            std::iter::once(perl.word())
                .chain(names.iter().map(|n| format!("-M{n}")))
                .chain(["-e", "1"].map(str::to_owned))
                .collect()
        })?);
        Ok(missing)
    }

    /// Asks for all at once, which mostly suffices, and only then for each.
    fn missing_by<'a>(
        &self,
        names: &BTreeSet<&'a str>,
        question: impl Fn(&[&str]) -> Vec<String>,
    ) -> Result<BTreeSet<&'a str>> {
        let has = |names: &[&str]| -> Result<bool> {
            let argv = question(names);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            Ok(self.run(&argv, Path::new("/"), "")?.ok())
        };
        let all: Vec<&'a str> = names.iter().copied().collect();
        let mut missing = BTreeSet::new();
        if all.is_empty() || has(&all)? {
            return Ok(missing);
        }
        for name in all {
            if !has(&[name])? {
                missing.insert(name);
            }
        }
        Ok(missing)
    }
}

/// How bm may install.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Privilege {
    Root,
    Sudo(PathBuf),
}

impl Privilege {
    fn prefix(&self) -> &'static str {
        match self {
            Privilege::Root => "",
            Privilege::Sudo(_) => "sudo ",
        }
    }
}

/// Names made only of such characters, and the others: no host has those, and they must not reach a
/// command.
fn parted<'a>(names: &BTreeSet<&'a str>, sound: impl Fn(char) -> bool) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let (good, bad): (Vec<&str>, Vec<&str>) = names
        .iter()
        .copied()
        .partition(|n| !n.is_empty() && !n.starts_with('-') && n.chars().all(&sound));
    (good, bad.into_iter().collect())
}

fn in_system_places(header: &str) -> bool {
    let triplet = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/include", "/usr/local/include", &triplet]
        .iter()
        .any(|dir| Path::new(dir).join(header).is_file())
}

/// Packages that `apt-cache policy` could install.
fn candidates(policy: &str) -> BTreeSet<&str> {
    let mut package = "";
    let mut known = BTreeSet::new();
    for line in policy.lines() {
        match line.trim().strip_prefix("Candidate: ") {
            Some("(none)") => {}
            Some(_) => _ = known.insert(package),
            None if line.starts_with(' ') => {}
            None => package = line.trim_end_matches(':'),
        }
    }
    known
}

fn no_such_packages(unknown: &[String], up_to_date: bool, log: &Path) -> Error {
    let names = unknown.iter().map(|p| format!("`{p}`")).collect::<Vec<_>>().join(", ");
    if up_to_date {
        let os = host::os_release();
        return Error::new(Exit::Host, format!("{} has no package {names}", os.pretty))
            .detail("log", log.display())
            .hint("add a repository that has it, or choose another toolchain or version");
    }
    Error::new(
        Exit::Host,
        format!("`apt-get update` failed, and without it there is no package {names}"),
    )
    .detail("log", log.display())
}

fn how_it_ended(ended: &Ended) -> String {
    match ended {
        Ended::Exited(status) => format!("exit status {status}"),
        Ended::Signaled(signal) => format!("killed by signal {signal}"),
        Ended::Limit(bound) => format!("stopped: {bound}"),
        Ended::Interrupted => "interrupted".to_owned(),
        Ended::NotStarted(why) => why.clone(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn debian() -> host::OsRelease {
        host::OsRelease::parse("ID=debian\nVERSION_ID=12\n")
    }

    fn requirement(need: Need) -> Requirement {
        let package = match &need {
            Need::Program(n) | Need::Header(n) | Need::PkgConfig(n) | Need::PerlModule(n) => format!("pkg-{n}"),
        };
        Requirement {
            need,
            packages: BTreeMap::from([("debian".to_owned(), vec![package])]),
            origin: Origin::Bm("test"),
        }
    }

    fn check(prober: &Prober, os: &host::OsRelease, needs: &[Need], cc: Option<&Path>) -> Vec<Missing> {
        let requirements: Vec<_> = needs.iter().cloned().map(requirement).collect();
        prober
            .check_for(os, &requirements.iter().collect::<Vec<_>>(), cc)
            .unwrap()
    }

    fn program(name: &str) -> Need {
        Need::Program(name.to_owned())
    }

    fn header(name: &str) -> Need {
        Need::Header(name.to_owned())
    }

    #[test]
    fn what_the_host_has_is_not_missing() {
        let bench = Bench::new();
        let needs = [
            program("sh"),
            header("stdio.h"),
            header("sys/types.h"),
            program("no-such"),
            header("no/such.h"),
        ];
        for cc in [Some(Path::new("/usr/bin/gcc")), None] {
            let missing = check(&bench.over_system(), &debian(), &needs, cc);
            let names: Vec<_> = missing.iter().map(|m| m.need.clone()).collect();
            // Without a compiler `sys/types.h` is found in the multiarch directory.
            assert_eq!(names, [program("no-such"), header("no/such.h")], "{cc:?}");
            assert_eq!(missing[0].packages, ["pkg-no-such"]);
        }
    }

    #[test]
    fn clang_finds_headers_too() {
        for toolchain in [14, 15, 19].into_iter().filter_map(clang) {
            let bench = Bench::new();
            let cc = Path::new("/usr/bin").join(toolchain.cc.text);
            let missing = check(
                &bench.over_system(),
                &debian(),
                &[header("stdio.h"), header("x.h")],
                Some(&cc),
            );
            assert_eq!(missing.len(), 1);
            assert_eq!(missing[0].need, header("x.h"));
        }
    }

    #[test]
    fn all_headers_take_one_call() {
        let bench = Bench::new();
        bench.wrap("gcc", "/usr/bin/gcc");
        let needs: Vec<_> = ["stdio.h", "errno.h", "a.h", "b.h"].map(header).into();
        let missing = check(&bench.over_system(), &debian(), &needs, Some(&bench.bin("gcc")));
        assert_eq!(missing.len(), 2);
        assert_eq!(calls(&bench), ["gcc -E -x c -"]);
    }

    #[test]
    fn names_that_are_no_names_are_missing_and_reach_no_command() {
        let bench = Bench::new();
        bench.wrap("gcc", "/usr/bin/gcc");
        bench.script("perl", "exit 0");
        bench.script("pkg-config", "exit 0");
        let needs = [
            header("a>)\nbm_has 0"),
            header(""),
            Need::PerlModule("X;system(1)".to_owned()),
        ];
        let missing = check(&bench.prober(), &debian(), &needs, Some(&bench.bin("gcc")));
        assert_eq!(missing.len(), 3);
        assert_eq!(calls(&bench), [] as [String; 0]);
    }

    #[test]
    fn modules_are_asked_for_together_and_singly_only_when_one_is_missing() {
        let bench = Bench::new();
        bench.script("pkg-config", "case \"$*\" in *absent*) exit 1;; esac");
        bench.script("perl", "case \"$*\" in *Absent*) exit 2;; esac");
        let module = |n: &str| Need::PkgConfig(n.to_owned());
        let perl = |n: &str| Need::PerlModule(n.to_owned());
        let there = [module("a"), module("b"), perl("A"), perl("B::C")];
        assert_eq!(check(&bench.prober(), &debian(), &there, None), []);
        assert_eq!(calls(&bench), ["pkg-config --exists a b", "perl -MA -MB::C -e 1"]);
        let needs = [there.as_slice(), &[module("absent"), perl("Absent")]].concat();
        let missing: Vec<_> = check(&bench.prober(), &debian(), &needs, None)
            .into_iter()
            .map(|m| m.need)
            .collect();
        assert_eq!(missing, [module("absent"), perl("Absent")]);
    }

    #[test]
    fn the_program_that_would_answer_is_missing_too() {
        let bench = Bench::new();
        let needs = [
            Need::PkgConfig("icu-uc".to_owned()),
            Need::PerlModule("IPC::Run".to_owned()),
        ];
        let missing = check(&bench.prober(), &debian(), &needs, None);
        let names: Vec<_> = missing.iter().map(|m| m.need.to_string()).collect();
        let want = [
            "program `pkg-config`",
            "program `perl`",
            "pkg-config module `icu-uc`",
            "perl module `IPC::Run`",
        ];
        assert_eq!(names, want);
    }

    #[test]
    fn the_apt_line_is_sorted_and_names_each_package_once() {
        let missing = |packages: &[&str]| Missing {
            need: program("x"),
            packages: packages.iter().map(|p| (*p).to_owned()).collect(),
            origin: Origin::Bm("test"),
        };
        assert_eq!(
            apt_line(&[missing(&["zlib1g-dev", "bison"]), missing(&[]), missing(&["bison"])]),
            Some("apt-get install -y --no-install-recommends bison zlib1g-dev".to_owned())
        );
        assert_eq!(apt_line(&[missing(&[])]), None);
        assert_eq!(apt_line(&[]), None);
    }

    #[test]
    fn an_unknown_distribution_gets_the_needs_without_packages() {
        let bench = Bench::new();
        let fedora = host::OsRelease::parse("ID=fedora\nVERSION_ID=40\n");
        let missing = check(&bench.prober(), &fedora, &[program("bison")], None);
        assert_eq!(missing[0].packages, [] as [String; 0]);
        let error = missing_error(&missing);
        assert_eq!(error.headline(), "this host lacks 1 thing the build needs");
        assert_eq!(
            error.details(),
            [("missing".to_owned(), "program `bison` (bm: test)".to_owned())]
        );
        assert_eq!(
            error.hint_text(),
            Some("install these with the distribution's package manager")
        );
        let error = missing_error(&check(&bench.prober(), &debian(), &[program("bison")], None));
        assert_eq!(
            error.hint_text(),
            Some("apt-get install -y --no-install-recommends pkg-bison")
        );
    }

    #[test]
    fn packages_without_a_candidate_do_not_exist() {
        let bench = Bench::new();
        bench.script(
            "apt-cache",
            "printf 'bison:\\n  Installed: (none)\\n  Candidate: 2:3.8\\n  Version table:\\n     2:3.8 500\\n'\n\
             printf 'clang-13:\\n  Installed: (none)\\n  Candidate: (none)\\n'",
        );
        let packages = ["bison", "clang-13", "nonsense"].map(str::to_owned);
        assert_eq!(
            bench.prober().unknown_packages(&packages).unwrap(),
            ["clang-13", "nonsense"]
        );
        assert_eq!(calls(&bench), ["apt-cache policy -- bison clang-13 nonsense"]);
        let error = Bench::new().prober().unknown_packages(&packages).unwrap_err();
        assert_eq!(error.headline(), "program `apt-cache` is not on bm's PATH");
    }

    #[test]
    fn apt_never_asks_and_knows_only_what_it_is_given() {
        let bench = Bench::new();
        let proxy = BTreeMap::from([("https_proxy".to_owned(), "http://proxy:3128".to_owned())]);
        let log = Path::new("/x/apt.log");
        let prober = bench.prober();
        let command = prober.apt_command(&Privilege::Root, &["apt-get", "update"], &proxy, log);
        assert_eq!(command.argv, ["apt-get", "-o", APT_WAIT, "update"]);
        let names: Vec<_> = command.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["DEBIAN_FRONTEND", "HOME", "LC_ALL", "PATH", "https_proxy"]);
        assert_eq!(command.log, log);
        let sudo = Privilege::Sudo("/usr/bin/sudo".into());
        let command = prober.apt_command(&sudo, &["apt-get", "install", "-y", "bison"], &proxy, log);
        assert_eq!(
            command.argv.join(" "),
            format!(
                "/usr/bin/sudo -n env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o {APT_WAIT} install -y bison"
            )
        );
    }

    #[test]
    fn a_package_that_does_not_exist_is_told_from_an_index_that_could_not_be_read() {
        let unknown = ["clang-13".to_owned(), "x".to_owned()];
        let error = no_such_packages(&unknown, true, Path::new("/x/apt.log"));
        assert!(error.headline().ends_with(" has no package `clang-13`, `x`"), "{error}");
        assert!(error.hint_text().is_some());
        let error = no_such_packages(&unknown, false, Path::new("/x/apt.log"));
        assert!(error.headline().starts_with("`apt-get update` failed"), "{error}");
        assert_eq!(error.details(), [("log".to_owned(), "/x/apt.log".to_owned())]);
    }

    #[test]
    fn bm_has_needs_of_its_own() {
        let names = |kind| -> Vec<String> { own_needs(kind).iter().map(|r| r.need.to_string()).collect() };
        assert_eq!(names(SourceKind::Git), ["program `make`", "program `git`"]);
        assert_eq!(names(SourceKind::Tarball), ["program `make`"]);
        assert_eq!(names(SourceKind::Local), ["program `make`"]);
    }

    #[test]
    fn nothing_to_install_is_no_work() {
        let bench = Bench::new();
        let log = bench.cache_file();
        bench
            .prober()
            .install(&[], &BTreeMap::new(), &log, &Cancel::default())
            .unwrap();
        assert!(!log.exists());
    }
}
