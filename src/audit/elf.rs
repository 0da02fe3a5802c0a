//! What compiled files say of themselves: ELF files, archives of them, LLVM bitcode.
//!
//! Owns reading the dynamic section, notes, DWARF compile units and LTO payload. Knows nothing of
//! who compiled them or why.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use fs_err as fs;
use gimli::{AttributeValue, EndianSlice, RunTimeEndian, SectionId};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME};
use object::read::archive::ArchiveFile;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader as _};
use object::{Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationKind, RelocationTarget};
use sha2::{Digest as _, Sha256};

use crate::digest::hex;
use crate::error::{Error, Exit, IoContext, Result};

/// What an ELF file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Started by the kernel: it has a program interpreter, or is static.
    Program,
    /// Loaded by others.
    Shared,
    /// Input of a link.
    Object,
}

/// Code for link-time optimisation in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// None: machine code only.
    None,
    /// Nothing but it.
    Slim,
    /// Besides machine code.
    Fat,
}

impl Payload {
    /// Whether a link can optimise across this object.
    pub fn present(self) -> bool {
        self != Payload::None
    }
}

/// One compile unit, as its debug information says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Unit {
    /// `DW_AT_producer`.
    pub producer: String,
    /// `DW_AT_name`: the source as named on the command line.
    pub name: String,
    /// `DW_AT_comp_dir`.
    pub dir: String,
    /// Written in assembler: no optimisation took place.
    pub assembler: bool,
}

/// What one ELF file says.
#[derive(Debug, Clone)]
pub struct Elf {
    /// What it is for.
    pub role: Role,
    /// Class and machine, for comparing.
    pub machine: (u8, u16),
    /// `DT_NEEDED`, in order.
    pub needed: Vec<String>,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `DT_RPATH`, as written.
    pub rpath: Option<String>,
    /// `DT_RUNPATH`, as written.
    pub runpath: Option<String>,
    /// Program interpreter.
    pub interpreter: Option<String>,
    /// Whether `.symtab` is there.
    pub symbols: bool,
    /// Whether `.debug_info` is there.
    pub debug: bool,
    /// GNU build id, in hex.
    pub build_id: Option<String>,
    /// Strings of `.comment`: every compiler and linker that took part.
    pub comment: Vec<String>,
    /// Compile units.
    pub units: Vec<Unit>,
    /// Payload for link-time optimisation.
    pub payload: Payload,
}

/// sha256 of a file's or a member's bytes.
pub type Digest = [u8; 32];

/// sha256.
pub fn digest(data: &[u8]) -> Digest {
    Sha256::digest(data).into()
}

/// What tells one output of a link from another, however often it was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// GNU build id, in hex: it outlives stripping.
    BuildId(String),
    /// All bytes.
    Bytes(Digest),
}

/// The identity of a file, `None` when it cannot be read.
pub fn identity(path: &Path) -> Option<Identity> {
    let data = std::fs::read(path).ok()?;
    let id = object::File::parse(&*data)
        .ok()
        .and_then(|f| f.build_id().ok().flatten().map(hex));
    Some(id.map_or_else(|| Identity::Bytes(digest(&data)), Identity::BuildId))
}

/// One member of an archive.
#[derive(Debug, Clone)]
pub struct Member {
    /// Name.
    pub name: String,
    /// Compile units; none for bitcode.
    pub units: Vec<Unit>,
    /// Payload.
    pub payload: Payload,
    /// sha256 of the member's bytes, which are those of the object it was made from.
    pub digest: Digest,
}

/// A file compilers or archivers made.
#[derive(Debug, Clone)]
pub enum Compiled {
    /// ELF.
    Elf(Box<Elf>),
    /// A static library.
    Archive(Vec<Member>),
    /// LLVM bitcode alone.
    Bitcode,
}

const ELF_MAGIC: &[u8] = b"\x7fELF";
const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const BITCODE_MAGICS: [&[u8]; 2] = [b"BC\xC0\xDE", b"\xDE\xC0\x17\x0B"];

/// Reads one file; `None` when it is not a compiled one.
///
/// # Errors
/// A file that cannot be read, or that starts like a compiled one and is damaged.
pub fn read(path: &Path) -> Result<Option<Compiled>> {
    let reading = || format!("cannot read `{}`", path.display());
    let mut file = fs::File::open(path).doing(reading)?;
    let mut head = Vec::with_capacity(ARCHIVE_MAGIC.len());
    file.by_ref()
        .take(ARCHIVE_MAGIC.len() as u64)
        .read_to_end(&mut head)
        .doing(reading)?;
    if !is_compiled(&head) {
        return Ok(None);
    }
    let mut data = head;
    file.read_to_end(&mut data).doing(reading)?;
    let damaged = |e: Fault| {
        Error::new(
            Exit::Proof,
            format!("cannot understand `{}` as a compiled file", path.display()),
        )
        .caused_by(e)
    };
    if data.starts_with(ARCHIVE_MAGIC) {
        return archive(&data).map(|m| Some(Compiled::Archive(m))).map_err(damaged);
    }
    if is_bitcode(&data) {
        return Ok(Some(Compiled::Bitcode));
    }
    elf(&data).map(|e| Some(Compiled::Elf(Box::new(e)))).map_err(damaged)
}

fn is_compiled(head: &[u8]) -> bool {
    head.starts_with(ELF_MAGIC) || head.starts_with(ARCHIVE_MAGIC) || is_bitcode(head)
}

fn is_bitcode(head: &[u8]) -> bool {
    BITCODE_MAGICS.iter().any(|m| head.starts_with(m))
}

/// The payload of one object file; `None` when it is no object or not there any more.
pub fn payload_of(path: &Path) -> Option<Payload> {
    let data = std::fs::read(path).ok()?;
    if is_bitcode(&data) {
        return Some(Payload::Slim);
    }
    let file = object::File::parse(&*data).ok()?;
    Some(payload(&file))
}

/// Class and machine of an ELF file, read from its first bytes only.
pub fn machine_of(path: &Path) -> Option<(u8, u16)> {
    let mut head = [0; 20];
    std::fs::File::open(path).ok()?.read_exact(&mut head).ok()?;
    machine(&head)
}

fn machine(data: &[u8]) -> Option<(u8, u16)> {
    let (class, order) = (*data.get(4)?, *data.get(5)?);
    let bytes = [*data.get(18)?, *data.get(19)?];
    let number = if order == 2 {
        u16::from_be_bytes(bytes)
    } else {
        u16::from_le_bytes(bytes)
    };
    data.starts_with(ELF_MAGIC).then_some((class, number))
}

/// Every regular file below `root` in the order of names; links are passed over, since what they
/// name is met by itself.
///
/// # Errors
/// A directory that cannot be read.
pub fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let reading = || format!("cannot list `{}`", dir.display());
        for entry in fs::read_dir(&dir).doing(reading)? {
            let entry = entry.doing(reading)?;
            let kind = entry.file_type().doing(reading)?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What goes wrong inside a file: the two readers' own errors.
type Fault = Box<dyn std::error::Error + Send + Sync>;

fn elf(data: &[u8]) -> Result<Elf, Fault> {
    let file = object::File::parse(data)?;
    let mut found = match &file {
        object::File::Elf32(f) => headers(f)?,
        object::File::Elf64(f) => headers(f)?,
        _ => return Err("neither 32-bit nor 64-bit ELF".into()),
    };
    found.machine = machine(data).ok_or("no ELF header")?;
    found.symbols = file.symbols().next().is_some();
    found.debug = file.section_by_name(".debug_info").is_some();
    found.build_id = file.build_id()?.map(hex);
    found.comment = comment(&file)?;
    found.payload = payload(&file);
    found.units = units(&file)?;
    Ok(found)
}

fn headers<'d, H: FileHeader<Endian = object::Endianness>>(file: &ElfFile<'d, H>) -> Result<Elf, Fault> {
    let mut elf = Elf {
        role: Role::Object,
        machine: (0, 0),
        needed: vec![],
        soname: None,
        rpath: None,
        runpath: None,
        interpreter: None,
        symbols: false,
        debug: false,
        build_id: None,
        comment: vec![],
        units: vec![],
        payload: Payload::None,
    };
    for segment in file.elf_program_headers() {
        if let Some(path) = segment.interpreter(file.endian(), file.data())? {
            elf.interpreter = Some(text(path));
        }
    }
    elf.role = match file.kind() {
        ObjectKind::Relocatable => Role::Object,
        ObjectKind::Executable => Role::Program,
        _ if elf.interpreter.is_some() => Role::Program,
        _ => Role::Shared,
    };
    let table = file.elf_dynamic_table()?;
    for entry in &table {
        let slot = match entry.tag {
            DT_NEEDED => {
                elf.needed.push(text(table.string(entry)?));
                continue;
            }
            DT_SONAME => &mut elf.soname,
            DT_RPATH => &mut elf.rpath,
            DT_RUNPATH => &mut elf.runpath,
            _ => continue,
        };
        *slot = Some(text(table.string(entry)?));
    }
    Ok(elf)
}

fn comment(file: &object::File<'_>) -> Result<Vec<String>, Fault> {
    let Some(section) = file.section_by_name(".comment") else {
        return Ok(vec![]);
    };
    let data = section.uncompressed_data()?;
    Ok(data.split(|b| *b == 0).filter(|s| !s.is_empty()).map(text).collect())
}

/// gcc writes `.gnu.lto_*` sections, and no code beside them unless asked for fat objects; clang
/// replaces the object by bitcode, or adds `.llvm.lto`.
fn payload(file: &object::File<'_>) -> Payload {
    let has = |prefix: &str| file.sections().any(|s| s.name().is_ok_and(|n| n.starts_with(prefix)));
    if has(".llvm.lto") {
        return Payload::Fat;
    }
    if !has(".gnu.lto_") {
        return Payload::None;
    }
    match file.symbols().any(|s| s.name_bytes() == Ok(b"__gnu_lto_slim")) {
        true => Payload::Slim,
        false => Payload::Fat,
    }
}

fn archive(data: &[u8]) -> Result<Vec<Member>, Fault> {
    let archive = ArchiveFile::parse(data)?;
    let mut members = vec![];
    for member in archive.members() {
        let member = member?;
        let name = text(member.name());
        let body = member.data(data)?;
        if is_bitcode(body) {
            members.push(Member {
                name,
                units: vec![],
                payload: Payload::Slim,
                digest: digest(body),
            });
        } else if body.starts_with(ELF_MAGIC) {
            let file = object::File::parse(body)?;
            members.push(Member {
                name,
                units: units(&file)?,
                payload: payload(&file),
                digest: digest(body),
            });
        }
    }
    Ok(members)
}

/// Compile units of a file. A slim LTO object of gcc keeps its debug information apart, under names
/// that the link takes off again.
fn units(file: &object::File<'_>) -> Result<Vec<Unit>, Fault> {
    const EARLY: &str = ".gnu.debuglto_";
    let early =
        file.section_by_name(".debug_info").is_none() && file.section_by_name(".gnu.debuglto_.debug_info").is_some();
    let prefix = if early { EARLY } else { "" };
    let sections = gimli::DwarfSections::load(|id| section(file, prefix, id))?;
    let order = if file.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let dwarf = sections.borrow(|data| EndianSlice::new(data, order));
    let mut found = vec![];
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        found.extend(unit(&dwarf, &header)?);
    }
    Ok(found)
}

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// One unit's first entry, if it is a compile unit: types, partial and imported units are parts of
/// one and have no flags of their own.
fn unit(dwarf: &gimli::Dwarf<Slice<'_>>, header: &gimli::UnitHeader<Slice<'_>>) -> Result<Option<Unit>, Fault> {
    // Only the first entry is read: decoding the rest, or the line table, costs a hundred times more.
    let abbreviations = header.abbreviations(&dwarf.debug_abbrev)?;
    let mut entries = header.entries(&abbreviations);
    let Some(root) = entries.next_dfs()? else {
        return Ok(None);
    };
    if root.tag != gimli::DW_TAG_compile_unit && root.tag != gimli::DW_TAG_skeleton_unit {
        return Ok(None);
    }
    let base = match root.attr_value(gimli::DW_AT_str_offsets_base) {
        Some(AttributeValue::DebugStrOffsetsBase(base)) => base,
        _ => gimli::DebugStrOffsetsBase::default_for_encoding_and_file(header.encoding(), dwarf.file_type),
    };
    let read = |name| -> Result<String, Fault> {
        let slice = match root.attr_value(name) {
            Some(AttributeValue::String(slice)) => slice,
            Some(AttributeValue::DebugStrRef(at)) => dwarf.debug_str.get_str(at)?,
            Some(AttributeValue::DebugLineStrRef(at)) => dwarf.debug_line_str.get_str(at)?,
            Some(AttributeValue::DebugStrOffsetsIndex(index)) => {
                let at = dwarf.debug_str_offsets.get_str_offset(header.format(), base, index)?;
                dwarf.debug_str.get_str(at)?
            }
            _ => return Ok(String::new()),
        };
        Ok(text(slice.slice()))
    };
    let assembler = matches!(
        root.attr_value(gimli::DW_AT_language),
        Some(AttributeValue::Language(
            gimli::DW_LANG_Mips_Assembler | gimli::DW_LANG_ALTIUM_Assembler
        ))
    );
    Ok(Some(Unit {
        producer: read(gimli::DW_AT_producer)?,
        name: read(gimli::DW_AT_name)?,
        dir: read(gimli::DW_AT_comp_dir)?,
        assembler,
    }))
}

/// One section's bytes, decompressed; in object files also relocated, since there the offsets of
/// strings are still to be filled in.
fn section<'d>(file: &object::File<'d>, prefix: &str, id: SectionId) -> Result<Cow<'d, [u8]>, Fault> {
    let wanted = matches!(
        id,
        SectionId::DebugInfo
            | SectionId::DebugAbbrev
            | SectionId::DebugStr
            | SectionId::DebugLineStr
            | SectionId::DebugStrOffsets
    );
    let Some(section) = file
        .section_by_name(&format!("{prefix}{}", id.name()))
        .filter(|_| wanted)
    else {
        return Ok(Cow::Borrowed(&[]));
    };
    let mut data = section.uncompressed_data()?;
    if file.kind() == ObjectKind::Relocatable {
        relocate(file, &section, data.to_mut());
    }
    Ok(data)
}

/// Applies plain absolute relocations; others (thread-local addresses) are in no unit's first entry.
fn relocate(file: &object::File<'_>, section: &object::Section<'_, '_>, data: &mut [u8]) {
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        let width = usize::from(relocation.size()) / 8;
        let Some(place) = usize::try_from(offset)
            .ok()
            .and_then(|at| data.get_mut(at..at.checked_add(width)?))
        else {
            continue;
        };
        if relocation.kind() != RelocationKind::Absolute || relocation.has_implicit_addend() || width > 8 {
            continue;
        }
        let address = file.symbol_by_index(index).map_or(0, |s| s.address());
        let value = address.wrapping_add_signed(relocation.addend());
        if file.is_little_endian() {
            place.copy_from_slice(&value.to_le_bytes()[..width]);
        } else {
            place.copy_from_slice(&value.to_be_bytes()[8 - width..]);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Compiles a two-line program in a new directory; `None` where the compiler is not installed.
    fn built(compiler: &str, args: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("a.c"),
            "int twice(int x) { return 2 * x; }\nint main(void) { return twice(0); }\n",
        )
        .unwrap();
        let done = Command::new(compiler)
            .args(args)
            .args(["-o", "out", "a.c"])
            .current_dir(&dir)
            .output()
            .ok()?;
        assert!(
            done.status.success(),
            "{compiler}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        let out = dir.path().join("out");
        Some((dir, out))
    }

    fn elf_at(path: &Path) -> Elf {
        match read(path).unwrap().unwrap() {
            Compiled::Elf(elf) => *elf,
            other => panic!("not ELF: {other:?}"),
        }
    }

    #[test]
    fn units_are_read_from_every_form_of_dwarf() {
        for (args, role, payload) in [
            (&["-g", "-gdwarf-4", "-O2"][..], Role::Program, Payload::None),
            (&["-g", "-gdwarf-5", "-O2"], Role::Program, Payload::None),
            (&["-g", "-gz", "-O2"], Role::Program, Payload::None),
            (&["-g", "-O2", "-shared", "-fPIC"], Role::Shared, Payload::None),
            (&["-g", "-O2", "-c"], Role::Object, Payload::None),
            (&["-g", "-gz", "-gdwarf-4", "-O2", "-c"], Role::Object, Payload::None),
            (&["-g", "-O2", "-c", "-flto"], Role::Object, Payload::Slim),
            (&["-g", "-gz", "-O2", "-c", "-flto"], Role::Object, Payload::Slim),
            (
                &["-g", "-O2", "-c", "-flto", "-ffat-lto-objects"],
                Role::Object,
                Payload::Fat,
            ),
        ] {
            let (dir, path) = built("gcc", args).expect("gcc is installed");
            let elf = elf_at(&path);
            assert_eq!((elf.role, elf.payload), (role, payload), "{args:?}");
            let unit = elf
                .units
                .iter()
                .find(|u| u.name == "a.c")
                .unwrap_or_else(|| panic!("{args:?}: {elf:?}"));
            assert!(unit.producer.starts_with("GNU C"), "{unit:?}");
            assert!(unit.producer.contains(" -O2"), "{unit:?}");
            assert_eq!(
                fs::canonicalize(&unit.dir).unwrap(),
                fs::canonicalize(&dir).unwrap(),
                "{args:?}"
            );
            assert_eq!(payload_of(&path), Some(payload));
        }
    }

    #[test]
    fn units_of_gcc_lto_show_the_link_and_each_source() {
        let (_dir, path) = built("gcc", &["-g", "-O2", "-flto"]).expect("gcc is installed");
        let elf = elf_at(&path);
        assert!(
            elf.units
                .iter()
                .any(|u| u.producer.starts_with("GNU GIMPLE") && u.producer.contains("-fltrans"))
        );
        assert!(
            elf.units
                .iter()
                .any(|u| u.name == "a.c" && u.producer.contains("-flto"))
        );
    }

    #[test]
    fn units_of_clang_hold_the_recorded_command() {
        for compiler in ["clang-14", "clang-15", "clang-19"] {
            for dwarf in ["-gdwarf-4", "-gdwarf-5"] {
                for kind in [&["-c"][..], &[]] {
                    let args = [&["-g", dwarf, "-O3", "-grecord-command-line"], kind].concat();
                    let Some((_dir, path)) = built(compiler, &args) else {
                        #[expect(clippy::print_stderr, reason = "a test says why it skips")]
                        {
                            eprintln!("skipped: `{compiler}` is not installed");
                        }
                        continue;
                    };
                    let units = elf_at(&path).units;
                    let unit = units.iter().find(|u| u.name == "a.c").unwrap();
                    assert!(unit.producer.contains("clang version"), "{unit:?}");
                    assert!(unit.producer.contains(" -O3 "), "{unit:?}");
                }
            }
            if let Some((_dir, path)) = built(compiler, &["-flto", "-c"]) {
                assert!(matches!(read(&path).unwrap(), Some(Compiled::Bitcode)));
                assert_eq!(payload_of(&path), Some(Payload::Slim));
            }
        }
    }

    #[test]
    fn dynamic_section_notes_and_symbols() {
        let (_dir, path) = built(
            "gcc",
            &[
                "-g",
                "-shared",
                "-fPIC",
                "-Wl,-soname,liba.so.5",
                "-Wl,--enable-new-dtags,-rpath,/p/lib",
                "-Wl,--build-id",
            ],
        )
        .unwrap();
        let elf = elf_at(&path);
        assert_eq!(elf.soname.as_deref(), Some("liba.so.5"));
        assert_eq!((elf.runpath.as_deref(), elf.rpath.as_deref()), (Some("/p/lib"), None));
        assert!(elf.symbols && elf.debug && elf.build_id.is_some());
        assert!(elf.comment.iter().any(|c| c.starts_with("GCC:")));
        assert_eq!(machine_of(&path), Some(elf.machine));

        let (_dir, path) = built("gcc", &["-s", "-Wl,--disable-new-dtags,-rpath,/old"]).unwrap();
        let elf = elf_at(&path);
        assert!(!elf.symbols && !elf.debug && elf.units.is_empty());
        assert_eq!(elf.rpath.as_deref(), Some("/old"));
        assert!(elf.needed.iter().any(|n| n.starts_with("libc.so")));
        assert!(elf.interpreter.is_some());
    }

    #[test]
    fn archives_show_each_member() {
        let (dir, _) = built("gcc", &["-g", "-O3", "-c", "-flto"]).unwrap();
        let made = Command::new("gcc-ar")
            .args(["rcs", "liba.a", "out"])
            .current_dir(&dir)
            .status()
            .unwrap();
        assert!(made.success());
        let Some(Compiled::Archive(members)) = read(&dir.path().join("liba.a")).unwrap() else {
            panic!("not an archive");
        };
        assert_eq!(members.len(), 1);
        assert_eq!((members[0].name.as_str(), members[0].payload), ("out", Payload::Slim));
        assert!(members[0].units[0].producer.contains(" -O3"));
    }

    #[test]
    fn other_files_are_passed_over_and_damaged_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        for text in [&b""[..], b"#!/bin/sh\n", b"\x7fEL"] {
            fs::write(&file, text).unwrap();
            assert!(read(&file).unwrap().is_none());
        }
        for damaged in [&b"\x7fELF\x02\x01\x01"[..], b"!<arch>\nabc"] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file).unwrap_err().exit(), Exit::Proof);
        }
        assert_eq!(payload_of(&dir.path().join("absent")), None);
    }
}
