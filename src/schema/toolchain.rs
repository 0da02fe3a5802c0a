//! A toolchain file: compilers, binary utilities, and how link-time optimisation is spelt.
//!
//! Owns the wire type and its checks. Looks for nothing on the host.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::model::recipe::{Flags, Toolchain};

use super::at::At;
use super::diagnostic::Source;
use super::parse;
use super::read::{Family, FlagLists, Packages, Reader};

/// A toolchain: `toolchains/<name>.toml`. The file's name is the toolchain's name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "bm toolchain")]
pub struct ToolchainFile {
    /// Compiler family.
    family: Family,
    /// Whether build names leave this toolchain out; exactly one toolchain says so.
    #[serde(default)]
    default: bool,
    /// C compiler, looked up on PATH.
    cc: At<String>,
    /// C++ compiler.
    cxx: At<String>,
    /// Archiver that understands this compiler's LTO objects.
    ar: At<String>,
    /// Symbol lister, likewise.
    nm: At<String>,
    /// Archive indexer, likewise.
    ranlib: At<String>,
    /// Range of compiler versions accepted under this name.
    version: Option<At<String>>,
    /// Flags of every build.
    #[serde(default)]
    flags: FlagsTable,
    /// Link-time optimisation.
    lto: LtoTable,
    /// Switches that change no code but make the compiler record its command line.
    #[serde(default)]
    record: FlagsTable,
    /// Packages that bring it.
    #[serde(default)]
    packages: Packages,
}

/// Flags by what they are for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct FlagsTable {
    /// For C.
    cflags: Vec<At<String>>,
    /// For C++.
    cxxflags: Vec<At<String>>,
    /// For linking.
    ldflags: Vec<At<String>>,
}

/// How link-time optimisation is spelt.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LtoTable {
    /// For C.
    cflags: At<Vec<At<String>>>,
    /// For C++.
    cxxflags: At<Vec<At<String>>>,
    /// For linking.
    ldflags: At<Vec<At<String>>>,
    /// Programs it needs besides: `ld.lld-14`.
    #[serde(default)]
    programs: Vec<At<String>>,
}

/// Reads a toolchain.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn toolchain(source: &Source) -> Result<Toolchain, Vec<Error>> {
    let (file, problems) = parse::<ToolchainFile>(source);
    let mut reader = Reader::new(source, problems);
    let toolchain = file.and_then(|file| convert(&file, source, &mut reader));
    reader.finish(toolchain)
}

fn convert(file: &ToolchainFile, source: &Source, reader: &mut Reader<'_>) -> Option<Toolchain> {
    let name = source
        .stem()
        .parse()
        .map_err(|e| reader.problem(0..0, "bad file name", e))
        .ok();
    for list in [&file.lto.cflags, &file.lto.cxxflags, &file.lto.ldflags] {
        reader.not_empty(list);
    }
    let lto = FlagLists {
        cflags: &file.lto.cflags,
        cxxflags: &file.lto.cxxflags,
        ldflags: &file.lto.ldflags,
    };
    Some(Toolchain {
        file: source.file().clone(),
        family: file.family.into(),
        default: file.default,
        cc: reader.plain(&file.cc, "program"),
        cxx: reader.plain(&file.cxx, "program"),
        ar: reader.plain(&file.ar, "program"),
        nm: reader.plain(&file.nm, "program"),
        ranlib: reader.plain(&file.ranlib, "program"),
        version: reader.parse_opt(file.version.as_ref(), "range"),
        flags: file.flags.read(reader),
        lto: reader.flags(&lto),
        record: file.record.read(reader),
        lto_programs: file.lto.programs.iter().map(|p| reader.plain(p, "program")).collect(),
        packages: reader.packages(&file.packages),
        text: source.text().clone(),
        name: name?,
    })
}

impl FlagsTable {
    fn read(&self, reader: &mut Reader<'_>) -> Flags {
        reader.flags(&FlagLists {
            cflags: &self.cflags,
            cxxflags: &self.cxxflags,
            ldflags: &self.ldflags,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::diagnostic::{Kind, Paint};
    use super::*;

    const GOOD: &str = r#"
family = "clang"
cc = "clang-14"
cxx = "clang++-14"
ar = "llvm-ar-14"
nm = "llvm-nm-14"
ranlib = "llvm-ranlib-14"
version = "=14"
lto = { cflags = ["-flto"], cxxflags = ["-flto"], ldflags = ["-flto", "-fuse-ld=lld"], programs = ["ld.lld-14"] }
[packages]
debian = ["clang-14"]
"#;

    fn read(file: &str, text: &str) -> Result<Toolchain, Vec<Error>> {
        toolchain(&Source::new(Kind::Toolchain, file, text, Paint::Plain))
    }

    #[test]
    fn a_toolchain_is_named_by_its_file_and_its_words_by_their_line() {
        let clang = read("toolchains/clang14.toml", GOOD).unwrap();
        assert_eq!(clang.name.as_str(), "clang14");
        assert_eq!(clang.cc.origin.to_string(), "toolchains/clang14.toml:3");
        assert_eq!(clang.lto.ldflags[1].text, "-fuse-ld=lld");
        assert!(!clang.default);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let bad = GOOD
            .replace("\"=14\"", "\"14\"")
            .replace("\"clang++-14\"", "\"clang++-14 -O1\"")
            .replace("cflags = [\"-flto\"], cxx", "cflags = [], cxx")
            .replace("[\"clang-14\"]", "[\"clang 14\"]");
        let headlines: Vec<_> = read("toolchains/Bad.toml", &bad)
            .unwrap_err()
            .iter()
            .map(|e| e.headline().to_owned())
            .collect();
        let want = [
            "bad file name",
            "blank in a program",
            "bad range",
            "empty list",
            "bad package name",
        ];
        assert_eq!(headlines, want.map(|w| format!("{w} in toolchain `Bad`")));
    }
}
