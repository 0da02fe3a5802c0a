//! What a compiler adds by itself when nothing is asked: distributions turn on hardening that costs
//! time and that no flag shows.
//!
//! Read from results, not from specs: from what the compiler predefines, and from a tiny program it
//! links. Knows nothing of the flags of a build.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};

use super::Answer;
use super::tools::{Found, Prober};
use crate::error::{Error, Exit, IoContext, Result};

/// Predefined macros and their values.
pub(super) type Macros = BTreeMap<String, String>;

/// What the linked program tells of compiler and linker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Linked {
    pie: bool,
    relro: bool,
    now: bool,
    build_id: bool,
    libraries: Vec<String>,
}

/// Uses nothing of the mathematics library it is linked with, so that the library stays in only if
/// the linker keeps what is not needed.
const PROGRAM: &str = "int main(void) { return 0; }\n";
const UNUSED: &str = "libm.";

impl Prober {
    /// Defaults of a compiler and of the linker it calls, by name: `pie`, `stack-protector`,
    /// `fortify`, `cet`, `stack-clash`, `relro`, `z-now`, `as-needed`, `build-id`, `std`, `std-cxx`.
    /// `linker` is the content hash of the linker, whose own defaults show in the answer.
    pub(super) fn defaults(&self, cc: &Found, cxx: Option<&Found>, linker: &str) -> Result<BTreeMap<String, String>> {
        let mut all = self.remember(cc, &format!("defaults {linker}"), || {
            let mut all = of_macros(&self.macros(cc, "c")?);
            all.extend(of_linked(&self.link(cc)?));
            all.insert("stack-clash".to_owned(), yes(self.stack_clash(cc)?));
            Ok(all)
        })?;
        if let Some(cxx) = cxx {
            let standard = self.remember(cxx, "std-cxx", || Ok(cxx_standard(&self.macros(cxx, "c++")?)))?;
            all.insert("std-cxx".to_owned(), standard);
        }
        Ok(all)
    }

    /// Everything predefined when optimising: fortification is there only then.
    pub(super) fn macros(&self, driver: &Found, language: &str) -> Result<Macros> {
        let argv = [&driver.word(), "-O2", "-dM", "-E", "-x", language, "/dev/null"];
        let said = self.run(&argv, Path::new("/"), "")?;
        let macros = parse_macros(&said.stdout);
        if !said.ok() || macros.is_empty() {
            return Err(broken(driver, "does not work as a compiler", &said));
        }
        Ok(macros)
    }

    fn link(&self, cc: &Found) -> Result<Linked> {
        let dir = tempfile::tempdir().doing(|| "cannot make a temporary directory".to_owned())?;
        let argv = [&cc.word(), "-x", "c", "-", "-o", "program", "-x", "none", "-lm"];
        let said = self.run(&argv, dir.path(), PROGRAM)?;
        if !said.ok() {
            return Err(broken(cc, "cannot link a program", &said)
                .hint("install the C library's development files (`libc6-dev` on Debian and Ubuntu)"));
        }
        let program = dir.path().join("program");
        let bytes = fs::read(&program).doing(|| format!("cannot read what `{}` linked", cc.path.display()))?;
        read_linked(&bytes).map_err(|e| {
            Error::new(
                Exit::Host,
                format!("`{}` linked no program for this system", cc.path.display()),
            )
            .caused_by(e)
        })
    }

    /// No macro shows it: gcc tells its switches, clang what it calls itself with.
    fn stack_clash(&self, cc: &Found) -> Result<bool> {
        let root = Path::new("/");
        // Without a file to compile, a driver that adds linker options by itself would go on to link.
        let file = ["-S", "-x", "c", "/dev/null", "-o", "-"];
        let driver = cc.word();
        let ask = [&[driver.as_str(), "-Q", "-O2", "--help=common"], file.as_slice()].concat();
        let gcc = self.run(&ask, root, "")?;
        if gcc.ok() && gcc.stdout.contains("-fstack-clash-protection") {
            return Ok(gcc.stdout.lines().any(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some("-fstack-clash-protection") && words.next() == Some("[enabled]")
            }));
        }
        let clang = self.run(&[&cc.word(), "-###", "-c", "-x", "c", "/dev/null"], root, "")?;
        Ok(clang.stderr.contains("\"-fstack-clash-protection\""))
    }
}

fn broken(driver: &Found, what: &str, said: &Answer) -> Error {
    Error::new(Exit::Host, format!("`{}` {what}", driver.path.display())).caused_by(said.complaint())
}

fn yes(it: bool) -> String {
    if it { "yes" } else { "no" }.to_owned()
}

fn parse_macros(text: &str) -> Macros {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("#define "))
        .map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn of_macros(macros: &Macros) -> BTreeMap<String, String> {
    let has = |name: &str| macros.contains_key(name);
    let protector = [
        ("__SSP_ALL__", "all"),
        ("__SSP_STRONG__", "strong"),
        ("__SSP_EXPLICIT__", "explicit"),
        ("__SSP__", "basic"),
    ];
    let protector = protector
        .iter()
        .find(|(name, _)| has(name))
        .map_or("no", |(_, kind)| kind);
    let fortify = macros.get("_FORTIFY_SOURCE").map_or("no", String::as_str);
    let cet = match macros.get("__CET__").map(String::as_str) {
        None | Some("0") => "no",
        Some("1") => "branch",
        Some("2") => "return",
        Some(_) => "full",
    };
    // `pie` itself is what was linked; the code may be made for it all the same.
    let code = [("__PIE__", "pie"), ("__PIC__", "pic")];
    let code = code
        .iter()
        .find(|(name, _)| has(name))
        .map_or("fixed", |(_, kind)| kind);
    [
        ("stack-protector", protector.to_owned()),
        ("fortify", fortify.to_owned()),
        ("cet", cet.to_owned()),
        ("code", code.to_owned()),
        ("std", c_standard(macros)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn of_linked(linked: &Linked) -> BTreeMap<String, String> {
    let as_needed = !linked.libraries.iter().any(|l| l.starts_with(UNUSED));
    [
        ("pie", linked.pie),
        ("relro", linked.relro),
        ("z-now", linked.now),
        ("as-needed", as_needed),
        ("build-id", linked.build_id),
    ]
    .map(|(name, it)| (name.to_owned(), yes(it)))
    .into()
}

/// `gnu17` from 201710; drafts count as the standard they became.
fn c_standard(macros: &Macros) -> String {
    let year = match number(macros, "__STDC_VERSION__") {
        0..199_901 => "89",
        199_901..201_112 => "99",
        201_112..201_710 => "11",
        201_710..202_000 => "17",
        _ => "23",
    };
    format!(
        "{}{year}",
        if macros.contains_key("__STRICT_ANSI__") {
            "c"
        } else {
            "gnu"
        }
    )
}

fn cxx_standard(macros: &Macros) -> String {
    let year = match number(macros, "__cplusplus") {
        0..201_103 => "98",
        201_103..201_402 => "11",
        201_402..201_703 => "14",
        201_703..202_002 => "17",
        202_002..202_100 => "20",
        _ => "23",
    };
    let lead = if macros.contains_key("__STRICT_ANSI__") {
        "c++"
    } else {
        "gnu++"
    };
    format!("{lead}{year}")
}

fn number(macros: &Macros, name: &str) -> u32 {
    let digits = macros.get(name).map(|v| v.trim_end_matches(['L', 'l']));
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

fn read_linked(bytes: &[u8]) -> object::Result<Linked> {
    match FileKind::parse(bytes)? {
        FileKind::Elf32 => read_elf::<elf::FileHeader32<Endianness>>(bytes),
        _ => read_elf::<elf::FileHeader64<Endianness>>(bytes),
    }
}

fn read_elf<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> object::Result<Linked> {
    let header = E::parse(bytes)?;
    let endian = header.endian()?;
    let mut linked = Linked {
        pie: header.e_type(endian) == elf::ET_DYN,
        ..Linked::default()
    };
    for segment in header.program_headers(endian, bytes)? {
        linked.relro |= segment.p_type(endian) == elf::PT_GNU_RELRO;
        if let Some(mut notes) = segment.notes(endian, bytes)? {
            while let Some(note) = notes.next()? {
                linked.build_id |= note.name() == b"GNU" && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
            }
        }
    }
    let dynamic = header.sections(endian, bytes)?.dynamic_table(endian, bytes)?;
    for entry in &dynamic {
        match entry.tag {
            elf::DT_BIND_NOW => linked.now = true,
            elf::DT_FLAGS => linked.now |= entry.val & DF_BIND_NOW != 0,
            elf::DT_FLAGS_1 => linked.now |= entry.val & DF_1_NOW != 0,
            elf::DT_NEEDED => {
                let name = String::from_utf8_lossy(dynamic.string(entry)?).into_owned();
                linked.libraries.push(name);
            }
            _ => {}
        }
    }
    Ok(linked)
}

/// Bit of `DT_FLAGS`: all symbols are bound at start.
const DF_BIND_NOW: u64 = 0x8;
/// The same in `DT_FLAGS_1`.
const DF_1_NOW: u64 = 0x1;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Uses;
    use super::super::testing::*;
    use super::*;
    use crate::model::recipe::Toolchain;

    /// Defaults of a real compiler called with `flags`, as a distribution would build them in.
    fn defaults(toolchain: &Toolchain, flags: &str) -> BTreeMap<String, String> {
        let bench = Bench::new();
        let cc = &toolchain.cc.text;
        bench.script(cc, &format!("exec /usr/bin/{cc} {flags} \"$@\""));
        let probed = bench.over_system().toolchain(toolchain, Uses { cxx: true, lto: false });
        probed.unwrap().record.defaults
    }

    fn check(toolchain: &Toolchain, flags: &str, want: &[(&str, &str)]) {
        let found = defaults(toolchain, flags);
        for (name, value) in want {
            assert_eq!(
                found.get(*name).map(String::as_str),
                Some(*value),
                "{name} with {flags}: {found:?}"
            );
        }
    }

    fn compilers() -> impl Iterator<Item = Toolchain> {
        [14, 15, 19].into_iter().filter_map(clang).chain([gcc()])
    }

    #[test]
    fn hardening_built_into_a_compiler_is_seen() {
        for toolchain in compilers() {
            let x86 = cfg!(target_arch = "x86_64");
            let cet = if x86 { "-fcf-protection=full" } else { "" };
            let hard = format!(
                "-fstack-protector-strong -fstack-clash-protection -D_FORTIFY_SOURCE=2 {cet} \
                 -Wl,-z,now -Wl,-z,relro -Wl,--as-needed -Wl,--build-id -std=gnu11"
            );
            let want = [
                ("stack-protector", "strong"),
                ("stack-clash", "yes"),
                ("fortify", "2"),
                ("cet", if x86 { "full" } else { "no" }),
                ("z-now", "yes"),
                ("relro", "yes"),
                ("as-needed", "yes"),
                ("build-id", "yes"),
                ("std", "gnu11"),
            ];
            check(&toolchain, &hard, &want);
        }
    }

    #[test]
    fn its_absence_is_seen_too() {
        for toolchain in compilers() {
            let soft = "-fno-stack-protector -fno-stack-clash-protection -U_FORTIFY_SOURCE -fno-pie -no-pie \
                        -Wl,-z,lazy -Wl,-z,norelro -Wl,--no-as-needed -Wl,--build-id=none -std=c99";
            let want = [
                ("stack-protector", "no"),
                ("stack-clash", "no"),
                ("fortify", "no"),
                ("pie", "no"),
                ("code", "fixed"),
                ("z-now", "no"),
                ("relro", "no"),
                ("as-needed", "no"),
                ("build-id", "no"),
                ("std", "c99"),
            ];
            check(&toolchain, soft, &want);
        }
    }

    #[test]
    fn every_default_is_there_for_every_compiler() {
        for toolchain in compilers() {
            let found = defaults(&toolchain, "");
            let names: Vec<_> = found.keys().map(String::as_str).collect();
            let want = [
                "as-needed",
                "build-id",
                "cet",
                "code",
                "fortify",
                "pie",
                "relro",
                "stack-clash",
                "stack-protector",
                "std",
                "std-cxx",
                "z-now",
            ];
            assert_eq!(names, want);
            assert!(found["std"].starts_with("gnu") && found["std-cxx"].starts_with("gnu++"));
        }
    }

    #[test]
    fn standards_are_named_as_the_switch_spells_them() {
        let check = |text: &str, c: &str, cxx: &str| {
            let macros = parse_macros(text);
            assert_eq!(
                (c_standard(&macros), cxx_standard(&macros)),
                (c.to_owned(), cxx.to_owned()),
                "{text}"
            );
        };
        check("", "gnu89", "gnu++98");
        check(
            "#define __STDC_VERSION__ 201710L\n#define __cplusplus 201703L",
            "gnu17",
            "gnu++17",
        );
        check(
            "#define __STDC_VERSION__ 202311L\n#define __cplusplus 202302L",
            "gnu23",
            "gnu++23",
        );
        check(
            "#define __STRICT_ANSI__ 1\n#define __STDC_VERSION__ 199901L",
            "c99",
            "c++98",
        );
    }

    #[test]
    fn kinds_of_protection_are_told_apart() {
        let check = |text: &str, name: &str, want: &str| {
            assert_eq!(of_macros(&parse_macros(text))[name], want, "{text}");
        };
        check("#define __SSP__ 1", "stack-protector", "basic");
        check("#define __SSP_ALL__ 2", "stack-protector", "all");
        check("#define _FORTIFY_SOURCE 3", "fortify", "3");
        check("#define __CET__ 1", "cet", "branch");
        check("#define __CET__ 2", "cet", "return");
        check("#define __CET__ 3", "cet", "full");
        check("#define __PIC__ 2", "code", "pic");
    }

    #[test]
    fn a_compiler_that_cannot_link_says_why() {
        let bench = Bench::new();
        let body =
            "case \"$*\" in *program*) echo 'ld: cannot find Scrt1.o' >&2; exit 1;; esac\nexec /usr/bin/gcc \"$@\"";
        bench.script("gcc", body);
        let error = bench.over_system().toolchain(&gcc(), Uses::default()).unwrap_err();
        assert!(error.headline().ends_with("cannot link a program"), "{error}");
        assert_eq!(error.causes(), ["ld: cannot find Scrt1.o"]);
        assert!(error.hint_text().unwrap().contains("libc6-dev"));
    }
}
