//! Joins what was installed with the calls that made it.
//!
//! Owns the matching: unit to compile call by source, archive member to object by bytes, installed
//! file to link by build id. Judges nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::elf::{self, Compiled, Elf, Identity, Member, Payload, Role, Unit};
use super::flags::{self, Effective, Producer};
use super::record::{self, Call, Kind, normalize};
use crate::error::Result;
use crate::model::manifest::{CompileEvidence, Evidence, LinkEvidence, UnitEvidence};
use crate::model::recipe::Word;

/// Where to look.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The prefix as staged (or placed): the directory that holds `bin`.
    pub stage: &'a Path,
    /// Source tree; units below it, or below `build`, are the build's own.
    pub source: &'a Path,
    /// Build tree, with its objects still there.
    pub build: &'a Path,
    /// Directory of recorded calls.
    pub record: &'a Path,
    /// Builds it stands on, by name and prefix: what is linked from their static libraries is theirs.
    pub needs: &'a [(String, PathBuf)],
}

/// A unit of the build's own sources.
#[derive(Debug, Clone)]
pub struct OwnUnit {
    /// Source, absolute; `<artificial>` for what gcc's LTO made at link time.
    pub source: PathBuf,
    /// What its debug information says of the compiler.
    pub producer: Producer,
    /// Written in assembler.
    pub assembler: bool,
    /// Live compile calls of that source: places in [`Proof::calls`].
    pub calls: Vec<usize>,
}

/// The link of an installed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkMatch {
    /// The call: a place in [`Proof::calls`].
    Found(usize),
    /// None, and why none of the recorded ones fits.
    Missing(String),
}

/// An installed program or shared library.
#[derive(Debug, Clone)]
pub struct Linked {
    /// Relative to the prefix.
    pub file: String,
    /// What it says of itself.
    pub elf: Elf,
    /// The build's own units in it.
    pub units: Vec<OwnUnit>,
    /// Its link.
    pub link: LinkMatch,
    /// Compile calls behind it.
    pub calls: BTreeSet<usize>,
    /// Objects of the build named in the link that no recorded call made.
    pub unexplained: Vec<PathBuf>,
}

/// A member of an installed static library, or an installed object file.
#[derive(Debug, Clone)]
pub struct Loose {
    /// File relative to the prefix.
    pub file: String,
    /// Member; empty for an object file.
    pub member: String,
    /// The build's own units in it; none in bitcode.
    pub units: Vec<OwnUnit>,
    /// Payload.
    pub payload: Payload,
    /// Compile calls behind it.
    pub calls: BTreeSet<usize>,
}

/// Everything the audit judges.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The prefix as looked at.
    pub stage: PathBuf,
    /// What unit paths are shown relative to.
    pub root: PathBuf,
    /// Programs and shared libraries.
    pub linked: Vec<Linked>,
    /// Static libraries and objects, member by member.
    pub loose: Vec<Loose>,
    /// Recorded calls, in the order of time.
    pub calls: Vec<Call>,
    /// Their effective flags.
    pub effective: Vec<Effective>,
    /// Payload of each object in the build tree that a call behind an installed file made.
    pub objects: BTreeMap<PathBuf, Payload>,
    /// Units that came out of static libraries of builds it stands on: the build, and how many.
    pub borrowed: BTreeMap<String, usize>,
}

/// Reads all evidence.
///
/// # Errors
/// A stage or record that cannot be read, or a damaged compiled file in it.
pub fn collect(scope: &Scope<'_>) -> Result<Proof> {
    let calls = record::read_all(scope.record)?;
    let installed = elf::files_below(scope.stage)?
        .into_par_iter()
        .filter_map(|path| elf::read(&path).transpose().map(|c| c.map(|c| (path, c))))
        .collect::<Result<Vec<_>>>()?;
    let index = Index::new(scope, &calls, libraries_of(scope.needs)?);
    let (mut linked, mut loose) = (vec![], vec![]);
    for (path, compiled) in installed {
        let file = path
            .strip_prefix(scope.stage)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        match compiled {
            Compiled::Elf(elf) if elf.role != Role::Object => linked.push(index.linked(file, &path, *elf)),
            Compiled::Elf(elf) => loose.push(index.loose(file, object_member(&path, *elf))),
            Compiled::Archive(members) => loose.extend(members.into_iter().map(|m| index.loose(file.clone(), m))),
            // Installed for a JIT (`*.bc`): nothing runs it as it is.
            Compiled::Bitcode => {}
        }
    }
    let behind = linked
        .iter()
        .flat_map(|l| &l.calls)
        .chain(loose.iter().flat_map(|l| &l.calls));
    let objects = behind
        .copied()
        .collect::<BTreeSet<_>>()
        .into_par_iter()
        .filter(|i| calls[*i].kind == Kind::Compile)
        .flat_map_iter(|i| &calls[i].outputs)
        .filter_map(|object| Some((object.clone(), elf::payload_of(object)?)))
        .collect();
    let mut borrowed = BTreeMap::new();
    for (need, _) in index.borrowed.into_inner().expect("nobody panics while it is held") {
        *borrowed.entry(scope.needs[need].0.clone()).or_default() += 1;
    }
    Ok(Proof {
        stage: scope.stage.to_owned(),
        borrowed,
        root: index.root,
        effective: calls.iter().map(|c| flags::effective(c.words())).collect(),
        linked,
        loose,
        calls,
        objects,
    })
}

/// What debug information says of a unit: directory, source and compiler with its flags.
type Said = (String, String, String);

/// The units in static libraries of each build that is needed, to its place among them.
fn libraries_of(needs: &[(String, PathBuf)]) -> Result<HashMap<Said, usize>> {
    let mut units = HashMap::new();
    for (place, (_, prefix)) in needs.iter().enumerate() {
        let archives = elf::files_below(prefix)?;
        for path in archives.iter().filter(|p| p.extension().is_some_and(|e| e == "a")) {
            if let Some(Compiled::Archive(members)) = elf::read(path)? {
                let said = |unit: Unit| ((unit.dir, unit.name, unit.producer), place);
                units.extend(members.into_iter().flat_map(|m| m.units).map(said));
            }
        }
    }
    Ok(units)
}

fn object_member(path: &Path, elf: Elf) -> Member {
    Member {
        name: String::new(),
        units: elf.units,
        payload: elf.payload,
        digest: std::fs::read(path).map(|d| elf::digest(&d)).unwrap_or_default(),
    }
}

/// Recorded calls, ready to be looked up.
struct Index<'a> {
    calls: &'a [Call],
    root: PathBuf,
    own: Vec<PathBuf>,
    /// Source to the live calls that compile it.
    by_source: HashMap<&'a Path, Vec<usize>>,
    /// Output to the last call that wrote it.
    by_output: HashMap<&'a Path, usize>,
    /// File name of an object to the objects of that name.
    objects: HashMap<String, Vec<&'a Path>>,
    /// Last link of each output, with what the output is now.
    links: Vec<(&'a Path, usize, Option<Identity>)>,
    /// Directories as debug information spells them, to what they are on disk.
    dirs: std::sync::Mutex<HashMap<String, PathBuf>>,
    /// Units in static libraries of needed builds.
    libraries: HashMap<Said, usize>,
    /// Those of them that were met: the place of the build, and the source.
    borrowed: std::sync::Mutex<BTreeSet<(usize, String)>>,
}

impl<'a> Index<'a> {
    fn new(scope: &Scope<'_>, calls: &'a [Call], libraries: HashMap<Said, usize>) -> Self {
        let real = |p: &Path| std::fs::canonicalize(p).unwrap_or_else(|_| normalize(p));
        let (source, build) = (real(scope.source), real(scope.build));
        let mut by_output = HashMap::new();
        for (i, call) in calls.iter().enumerate().filter(|(_, c)| c.kind != Kind::Probe) {
            by_output.extend(call.outputs.iter().map(|o| (o.as_path(), i)));
        }
        let (mut by_source, mut objects) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        // A call whose every output was written again later left nothing behind.
        let live = |i: usize, call: &Call| call.outputs.iter().any(|o| by_output.get(o.as_path()) == Some(&i));
        for (i, call) in calls.iter().enumerate().filter(|(i, c)| c.compiles() && live(*i, c)) {
            for source in &call.sources {
                by_source.entry(source.as_path()).or_default().push(i);
            }
            for object in &call.outputs {
                objects.entry(file_name(object)).or_default().push(object.as_path());
            }
        }
        let mut links: Vec<_> = by_output
            .iter()
            .filter(|(_, i)| calls[**i].links())
            .map(|(o, i)| (*o, *i))
            .collect();
        links.sort_by_key(|(_, i)| *i);
        let links = links.into_par_iter().map(|(o, i)| (o, i, elf::identity(o))).collect();
        Index {
            calls,
            root: common_parent(&source, &build),
            own: vec![source, build],
            by_source,
            by_output,
            objects,
            links,
            dirs: Default::default(),
            libraries,
            borrowed: Default::default(),
        }
    }

    fn linked(&self, file: String, path: &Path, elf: Elf) -> Linked {
        let units = self.own_units(&elf.units);
        let link = self.link_of(path, &elf);
        let mut calls: BTreeSet<usize> = units.iter().flat_map(|u| &u.calls).copied().collect();
        let mut unexplained = vec![];
        if let LinkMatch::Found(i) = link {
            let call = &self.calls[i];
            if call.compiles() {
                calls.insert(i);
            }
            for input in call.inputs.iter().filter(|p| is_object(p) && self.is_own(p)) {
                // A makefile may link an object of another directory into its own by name.
                let made = self.by_output.get(input.as_path()).or_else(|| {
                    let real = std::fs::canonicalize(input).ok()?;
                    self.by_output.get(real.as_path())
                });
                match made {
                    Some(made) if self.calls[*made].compiles() => drop(calls.insert(*made)),
                    // `-r`: its own inputs are units of this file, found by their debug information.
                    Some(_) => {}
                    None => unexplained.push(input.clone()),
                }
            }
        }
        Linked {
            file,
            elf,
            units,
            link,
            calls,
            unexplained,
        }
    }

    fn loose(&self, file: String, member: Member) -> Loose {
        let mut units = self.own_units(&member.units);
        let name = if member.name.is_empty() {
            file_name(Path::new(&file))
        } else {
            member.name.clone()
        };
        let same_bytes = |object: &Path| std::fs::read(object).is_ok_and(|d| elf::digest(&d) == member.digest);
        let exact: BTreeSet<usize> = self
            .objects
            .get(&name)
            .into_iter()
            .flatten()
            .filter(|object| same_bytes(object))
            .filter_map(|object| self.by_output.get(*object).copied())
            .collect();
        if !exact.is_empty() {
            for unit in &mut units {
                unit.calls.retain(|i| exact.contains(i));
            }
        }
        let calls = match exact.is_empty() {
            true => units.iter().flat_map(|u| &u.calls).copied().collect(),
            false => exact,
        };
        Loose {
            file,
            member: member.name,
            units,
            payload: member.payload,
            calls,
        }
    }

    /// Startup code and what came out of the system's own archives is left out, and so is what came out of those of a
    /// needed build: no call of this one made it, and such a library has that very unit.
    fn own_units(&self, units: &[Unit]) -> Vec<OwnUnit> {
        let mut own = vec![];
        for unit in units {
            let producer = flags::producer(&unit.producer);
            let dir = self.directory(&unit.dir);
            let source = if producer.ltrans {
                PathBuf::from(&unit.name)
            } else {
                normalize(&dir.join(&unit.name))
            };
            if !producer.ltrans && !self.is_own(&source) {
                continue;
            }
            let calls = self.calls_of(&source, &dir);
            if calls.is_empty()
                && let said = (unit.dir.clone(), unit.name.clone(), unit.producer.clone())
                && let Some(&need) = self.libraries.get(&said)
            {
                let mut borrowed = self.borrowed.lock().expect("nobody panics while it is held");
                borrowed.insert((need, unit.name.clone()));
                continue;
            }
            own.push(OwnUnit {
                calls,
                source,
                producer,
                assembler: unit.assembler,
            });
        }
        own
    }

    fn calls_of(&self, source: &Path, dir: &Path) -> Vec<usize> {
        let all = self.by_source.get(source).map_or(&[][..], Vec::as_slice);
        let here: Vec<_> = all
            .iter()
            .copied()
            .filter(|i| self.calls[*i].record.cwd == dir)
            .collect();
        if here.is_empty() { all.to_vec() } else { here }
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|dir| path.starts_with(dir))
    }

    /// A compile directory as it is on disk; a relative one came from `-ffile-prefix-map=<root>=.`.
    fn directory(&self, text: &str) -> PathBuf {
        let mut dirs = self.dirs.lock().expect("nobody panics while it is held");
        if let Some(dir) = dirs.get(text) {
            return dir.clone();
        }
        let path = self.root.join(text);
        let dir = std::fs::canonicalize(&path).unwrap_or_else(|_| normalize(&path));
        dirs.insert(text.to_owned(), dir.clone());
        dir
    }

    fn link_of(&self, path: &Path, elf: &Elf) -> LinkMatch {
        let name = file_name(path);
        let identity = elf
            .build_id
            .clone()
            .map(Identity::BuildId)
            .or_else(|| elf::identity(path));
        let same = |found: &Option<Identity>| found.is_some() && *found == identity;
        let named = |output: &Path| file_name(output) == name;
        // The last one wins: an earlier link of the same bytes tells no less, but is older.
        let links = || self.links.iter().rev();
        let found = links()
            .find(|(output, _, id)| named(output) && same(id))
            .or_else(|| links().find(|(_, _, id)| matches!(id, Some(Identity::BuildId(_))) && same(id)))
            // Linked straight into the stage, or built and removed again.
            .or_else(|| links().find(|(output, _, id)| named(output) && id.is_none()));
        if let Some((_, call, _)) = found {
            return LinkMatch::Found(*call);
        }
        LinkMatch::Missing(match links().find(|(output, _, _)| named(output)) {
            Some((output, ..)) => format!("`{}` was linked, but is another file", output.display()),
            None => "no recorded link made a file of that name or build id".to_owned(),
        })
    }
}

fn is_object(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "o" || e == "obj" || e == "lo")
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn common_parent(a: &Path, b: &Path) -> PathBuf {
    a.components()
        .zip(b.components())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect()
}

impl Proof {
    /// A source or object as findings show it.
    pub fn show(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// Links of installed files: the file and the call.
    pub fn links(&self) -> impl Iterator<Item = (&Linked, &Call, &Effective)> {
        self.linked.iter().filter_map(|l| match l.link {
            LinkMatch::Found(i) => Some((l, &self.calls[i], &self.effective[i])),
            LinkMatch::Missing(_) => None,
        })
    }

    /// All units of debug information with the file they are in.
    pub fn units(&self) -> impl Iterator<Item = (&str, &OwnUnit)> {
        let linked = self
            .linked
            .iter()
            .flat_map(|l| l.units.iter().map(|u| (l.file.as_str(), u)));
        linked.chain(
            self.loose
                .iter()
                .flat_map(|l| l.units.iter().map(|u| (l.file.as_str(), u))),
        )
    }

    /// Each installed file with a compile call behind it.
    pub fn commands(&self) -> impl Iterator<Item = (&str, usize)> {
        let linked = self
            .linked
            .iter()
            .flat_map(|l| l.calls.iter().map(|i| (l.file.as_str(), *i)));
        linked.chain(
            self.loose
                .iter()
                .flat_map(|l| l.calls.iter().map(|i| (l.file.as_str(), *i))),
        )
    }

    /// The architecture a unit was compiled for; empty when no call asked for one and the compiler
    /// merely names its default.
    pub fn march<'u>(&self, unit: &OwnUnit, flags: &'u Effective) -> &'u str {
        let asked = unit.calls.iter().any(|i| !self.effective[*i].march.is_empty());
        let plain = unit.calls.is_empty() && flags.march == "x86-64";
        if (asked || unit.calls.is_empty()) && !plain {
            &flags.march
        } else {
            ""
        }
    }

    /// The call that compiled a source: `source` is its path below the source or the build tree. One that is
    /// behind the installed file `server` comes first, since a tree may compile a source again for something else.
    pub fn compile_of(&self, source: &str, server: Option<&str>) -> Option<&Call> {
        let first = self.commands().filter(|(file, _)| Some(*file) == server);
        let call =
            |(_, i): (&str, usize)| Some(&self.calls[i]).filter(|c| c.sources.iter().any(|s| self.is_at(s, source)));
        first.chain(self.commands()).find_map(call)
    }

    /// The tree itself has a name below the root, but where source and build are one.
    fn is_at(&self, path: &Path, source: &str) -> bool {
        let Ok(below) = path.strip_prefix(&self.root) else {
            return false;
        };
        let in_tree: PathBuf = below.components().skip(1).collect();
        [below, &in_tree].contains(&Path::new(source))
    }

    fn compiles(&self, sources: &[Word], server: Option<&str>) -> Vec<CompileEvidence> {
        let kept = |word: &Word| {
            let call = self.compile_of(&word.text, server)?;
            Some(CompileEvidence {
                source: word.text.clone(),
                dir: self.show(&call.record.cwd),
                argv: call.record.argv.clone(),
            })
        };
        sources.iter().filter_map(kept).collect()
    }

    /// The evidence in the manifest's compact form, with the whole compile lines of `sources`, as they are behind
    /// the installed file `server`.
    pub fn evidence(&self, sources: &[Word], server: Option<&str>) -> Evidence {
        let mut counts = BTreeMap::<UnitEvidence, usize>::new();
        let mut count = |evidence: UnitEvidence| *counts.entry(evidence).or_default() += 1;
        for (file, unit) in self.units() {
            let flags = unit.producer.flags.clone().unwrap_or_default();
            let lto = flags.lto.on() || unit.producer.ltrans;
            let march = self.march(unit, &flags).to_owned();
            count(unit_evidence(
                file,
                "dwarf",
                &unit.producer.compiler,
                &Effective { march, ..flags },
                lto,
            ));
        }
        for (file, i) in self.commands() {
            let call = &self.calls[i];
            let compiler = file_name(Path::new(call.record.argv.first().map_or("", String::as_str)));
            let flags = &self.effective[i];
            count(unit_evidence(file, "command", &compiler, flags, flags.lto.on()));
            for payload in call.outputs.iter().filter_map(|o| self.objects.get(o)) {
                count(unit_evidence(
                    file,
                    "object",
                    &compiler,
                    &Effective::default(),
                    payload.present(),
                ));
            }
        }
        let mut links: Vec<_> = self
            .links()
            .map(|(linked, call, flags)| LinkEvidence {
                file: linked.file.clone(),
                argv: call.record.argv.clone(),
                lto: flags.lto.on(),
                lto_jobs: call.record.lto_jobs,
            })
            .collect();
        links.sort();
        Evidence {
            units: counts
                .into_iter()
                .map(|(evidence, units)| UnitEvidence { units, ..evidence })
                .collect(),
            links,
            sample_compile: self.sample_compile(),
            compiles: self.compiles(sources, server),
        }
    }

    /// The compile line of the largest program's `main`, or of its first unit.
    fn sample_compile(&self) -> Vec<String> {
        let programs = self.linked.iter().filter(|l| l.elf.role == Role::Program);
        let Some(largest) = programs.max_by_key(|l| l.units.len()) else {
            return vec![];
        };
        let stem = |u: &&OwnUnit| u.source.file_stem().map(|s| s.to_string_lossy().into_owned());
        let own_name = file_name(Path::new(&largest.file));
        let with_call = || largest.units.iter().filter(|u| !u.calls.is_empty());
        let unit = with_call()
            .find(|u| stem(u).is_some_and(|s| s == "main" || s == own_name))
            .or_else(|| with_call().next());
        unit.map(|u| self.calls[u.calls[0]].record.argv.clone())
            .unwrap_or_default()
    }
}

fn unit_evidence(file: &str, from: &str, compiler: &str, flags: &Effective, lto: bool) -> UnitEvidence {
    UnitEvidence {
        file: file.to_owned(),
        from: from.to_owned(),
        compiler: compiler.to_owned(),
        optimisation: flags.optimisation.clone(),
        march: flags.march.clone(),
        lto,
        frame_pointer: flags.frame_pointer,
        units: 0,
    }
}
