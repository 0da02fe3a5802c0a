//! What the installed programs need from the system, found as the loader would find it.
//!
//! Owns the search order and the question which package a library came from. Knows no claims.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rayon::prelude::*;

use super::elf::{self, Compiled, Elf, Role};
use super::prefix::expand_origin;
use super::record::normalize;
use crate::error::Result;
use crate::model::manifest::{Finding, Library};
use crate::process;

const DPKG_QUERY: &str = "/usr/bin/dpkg-query";

/// The package database answers at once or is locked up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Finds every library that the programs and libraries below `tree` name. `tree` is where the prefix
/// is now (staged or placed), `prefix` where it was configured to be. Libraries of the prefix's own
/// are checked, but only the system's are listed; each that cannot be found is a finding.
///
/// # Errors
/// A tree that cannot be read.
pub fn libraries(tree: &Path, prefix: &Path) -> Result<(Vec<Library>, Vec<Finding>)> {
    let installed = elf::files_below(tree)?
        .into_par_iter()
        .filter_map(|path| match elf::read(&path).transpose()? {
            Ok(Compiled::Elf(elf)) if elf.role != Role::Object => Some(Ok((path, *elf))),
            Ok(_) => None,
            Err(e) => Some(Err(e)),
        })
        .collect::<Result<Vec<_>>>()?;
    let search = Search {
        tree,
        prefix,
        system: System::ask(),
    };
    let (mut found, mut findings) = (BTreeMap::new(), vec![]);
    for (path, elf) in &installed {
        let file = path.strip_prefix(tree).unwrap_or(path);
        for needed in &elf.needed {
            match search.find(needed, file, elf) {
                Some(Home::Prefix) => {}
                Some(Home::System(at)) => drop(found.insert(needed.clone(), at)),
                None => findings.push(Finding {
                    subject: "library".to_owned(),
                    asked: format!("`{needed}`"),
                    found: "neither in the prefix nor known to the loader".to_owned(),
                    evidence: file.display().to_string(),
                }),
            }
        }
    }
    let packages = packages(&found.values().cloned().collect::<Vec<_>>());
    let list = found.into_iter().map(|(soname, path)| Library {
        package: packages.get(&path).cloned().unwrap_or_default(),
        path: path.display().to_string(),
        soname,
    });
    Ok((list.collect(), findings))
}

/// Whose a library is.
#[derive(Debug, PartialEq, Eq)]
enum Home {
    Prefix,
    System(PathBuf),
}

struct Search<'a> {
    tree: &'a Path,
    prefix: &'a Path,
    system: System,
}

impl Search<'_> {
    fn find(&self, needed: &str, file: &Path, elf: &Elf) -> Option<Home> {
        let fits = |path: &Path| elf::machine_of(path) == Some(elf.machine);
        if needed.contains('/') {
            return self
                .home(Path::new(needed))
                .filter(|(at, _)| fits(at))
                .map(|(_, home)| home);
        }
        // DT_RPATH counts only where there is no DT_RUNPATH.
        let run_path = elf.runpath.as_ref().or(elf.rpath.as_ref());
        let own = run_path.iter().flat_map(|p| p.split(':')).find_map(|entry| {
            let dir = expand_origin(entry, &self.prefix.join(file));
            self.home(&dir.join(needed))
                .filter(|(at, _)| fits(at))
                .map(|(_, home)| home)
        });
        own.or_else(|| {
            let candidates = self.system.candidates(needed);
            candidates.into_iter().find(|at| fits(at)).map(Home::System)
        })
    }

    /// Where a path, written for the placed prefix, is now. Paths of no directory are nobody's.
    fn home(&self, path: &Path) -> Option<(PathBuf, Home)> {
        let path = normalize(path);
        match path.strip_prefix(self.prefix) {
            Ok(inside) => Some((self.tree.join(inside), Home::Prefix)),
            Err(_) if path.is_absolute() => Some((path.clone(), Home::System(path))),
            Err(_) => None,
        }
    }
}

/// What the loader searches by itself.
#[derive(Debug, Default)]
struct System {
    cache: HashMap<String, Vec<PathBuf>>,
}

impl System {
    /// Asks `ldconfig` for its cache; a system without one has the loader's default directories.
    fn ask() -> Self {
        let told = ["/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .iter()
            .find_map(|ldconfig| answer(&[OsStr::new(ldconfig), OsStr::new("-p")]));
        System {
            cache: told.map(|text| parse_cache(&text)).unwrap_or_default(),
        }
    }

    fn candidates(&self, needed: &str) -> Vec<PathBuf> {
        let cached = self.cache.get(needed).cloned().unwrap_or_default();
        let defaults = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
        cached
            .into_iter()
            .chain(defaults.iter().map(|dir| Path::new(dir).join(needed)))
            .collect()
    }
}

/// Reads lines such as `libz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1`.
fn parse_cache(text: &str) -> HashMap<String, Vec<PathBuf>> {
    let mut cache = HashMap::<String, Vec<PathBuf>>::new();
    for line in text.lines() {
        if let Some((name, path)) = line.trim().split_once(" => ")
            && let Some(name) = name.split(" (").next()
        {
            cache.entry(name.to_owned()).or_default().push(path.into());
        }
    }
    cache
}

/// What a short question prints, an unsuccessful one too: `dpkg-query -S` fails when one of many
/// paths belongs to no package.
fn answer(argv: &[&OsStr]) -> Option<String> {
    let env = [("LC_ALL", "C"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let said = process::capture(argv, &env, Path::new("/"), None, PATIENCE).ok()?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Package and version of each path, where dpkg knows them.
fn packages(paths: &[PathBuf]) -> HashMap<PathBuf, String> {
    if paths.is_empty() {
        return HashMap::new();
    }
    let spelled: Vec<_> = paths.iter().flat_map(|p| spellings(p)).collect();
    let query = |option: &[&'static str], of: Vec<&OsStr>| {
        let program = [DPKG_QUERY].iter().chain(option).map(OsStr::new);
        answer(&program.chain(of).collect::<Vec<_>>()).unwrap_or_default()
    };
    let owners = query(&["-S"], spelled.iter().map(|p| p.as_os_str()).collect());
    let owners = parse_owners(&owners);
    let mut names: Vec<_> = owners.values().collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return HashMap::new();
    }
    let format = "-f=${binary:Package} ${Version}\\n";
    let text = query(&["-W", format], names.iter().map(OsStr::new).collect());
    let versions: HashMap<_, _> = text.lines().filter_map(|l| l.split_once(' ')).collect();
    let package_of = |path: &PathBuf| {
        let name = spellings(path).iter().find_map(|s| owners.get(s))?;
        // `zlib1g:amd64` is how one system names what another calls `zlib1g`.
        let plain = name.split(':').next().unwrap_or(name);
        let version = versions.get(name.as_str()).or_else(|| versions.get(plain))?;
        Some((path.clone(), format!("{plain} {version}")))
    };
    paths.iter().filter_map(package_of).collect()
}

/// A path as packages may spell it: `/lib` may be a link to `/usr/lib`, and the database knows the
/// one or the other, and links only where they are shipped.
fn spellings(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    all.extend(std::fs::canonicalize(path));
    for spelled in all.clone() {
        match spelled.strip_prefix("/usr") {
            Ok(rest) => all.push(Path::new("/").join(rest)),
            Err(_) => all.extend(spelled.strip_prefix("/").map(|rest| Path::new("/usr").join(rest))),
        }
    }
    all.dedup();
    all
}

/// Reads `libc6:amd64, libc6:i386: /lib/x`; lines about diversions say nothing of the owner.
fn parse_owners(text: &str) -> HashMap<PathBuf, String> {
    let mut owners = HashMap::new();
    for line in text.lines().filter(|l| !l.starts_with("diversion by ")) {
        if let Some((names, path)) = line.split_once(": ")
            && let Some(name) = names.split(", ").next()
        {
            owners.insert(PathBuf::from(path), name.to_owned());
        }
    }
    owners
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fs_err as fs;

    use super::*;

    #[test]
    fn the_loaders_cache_is_read() {
        let cache = parse_cache(
            "2 libs found in cache `/etc/ld.so.cache'\n\tlibz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1\n\
             \tlibz.so.1 (libc6) => /lib/i386-linux-gnu/libz.so.1\nCache generated by: ldconfig",
        );
        assert_eq!(cache.len(), 1);
        assert_eq!(cache["libz.so.1"].len(), 2);
    }

    #[test]
    fn owners_are_read_and_diversions_passed_over() {
        let owners = parse_owners(
            "zlib1g:amd64: /lib/x86_64-linux-gnu/libz.so.1\nlibc6:amd64, libc6:i386: /lib/x\n\
             diversion by dash from: /bin/sh\nnonsense",
        );
        assert_eq!(owners[Path::new("/lib/x86_64-linux-gnu/libz.so.1")], "zlib1g:amd64");
        assert_eq!(owners[Path::new("/lib/x")], "libc6:amd64");
        assert_eq!(owners.len(), 2);
    }

    #[test]
    fn both_spellings_of_a_merged_usr_are_asked_for() {
        for (path, other) in [
            ("/lib/none.so", "/usr/lib/none.so"),
            ("/usr/lib/none.so", "/lib/none.so"),
        ] {
            assert_eq!(spellings(Path::new(path)), [Path::new(path), Path::new(other)]);
        }
    }

    fn link(dir: &Path, args: &[&str]) {
        let done = std::process::Command::new("gcc")
            .args(args)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn libraries_are_found_as_the_loader_would() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("stage");
        for sub in ["bin", "lib", "lib2"] {
            fs::create_dir_all(tree.join(sub)).unwrap();
        }
        fs::write(tree.join("a.c"), "int f(void) { return 1; }\n").unwrap();
        fs::write(tree.join("m.c"), "int f(void); int main(void) { return f(); }\n").unwrap();
        link(
            &tree,
            &[
                "-shared",
                "-fPIC",
                "-o",
                "lib/libown.so",
                "a.c",
                "-Wl,-soname,libown.so",
            ],
        );
        let program = |out: &str, path: &str| {
            link(
                &tree,
                &["-o", out, "m.c", "-Llib", "-lown", &format!("-Wl,-rpath,{path}")],
            );
        };
        program("bin/absolute", "/final/pg/lib");
        program("bin/origin", "$ORIGIN/../lib");
        program("bin/lost", "/final/pg/lib2");
        program("bin/elsewhere", "/final/other/lib");

        let (list, findings) = libraries(&tree, Path::new("/final/pg")).unwrap();
        let lost: Vec<_> = findings
            .iter()
            .map(|f| (f.asked.as_str(), f.evidence.as_str()))
            .collect();
        assert_eq!(lost, [("`libown.so`", "bin/elsewhere"), ("`libown.so`", "bin/lost")]);
        let libc = list
            .iter()
            .find(|l| l.soname.starts_with("libc.so"))
            .expect("every program needs it");
        assert!(Path::new(&libc.path).is_absolute());
        if Path::new("/usr/bin/dpkg-query").exists() {
            assert!(libc.package.starts_with("libc6 "), "{libc:?}");
        }
        assert!(list.iter().all(|l| l.soname != "libown.so"));
    }

    #[test]
    fn a_library_of_another_machine_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("m.c"), "int main(void) { return 0; }\n").unwrap();
        link(dir.path(), &["-o", "m", "m.c", "-Wl,-rpath,/final/pg/lib"]);
        fs::create_dir(dir.path().join("lib")).unwrap();
        let Some(Compiled::Elf(elf)) = elf::read(&dir.path().join("m")).unwrap() else {
            panic!("not ELF");
        };
        let search = Search {
            tree: dir.path(),
            prefix: Path::new("/final/pg"),
            system: System::default(),
        };
        let other = [b"\x7fELF\x01\x02\x01".as_slice(), &[0; 40]].concat();
        fs::write(dir.path().join("lib/libx.so"), other).unwrap();
        assert_eq!(search.find("libx.so", Path::new("bin/m"), &elf), None);
        fs::copy(dir.path().join("m"), dir.path().join("lib/libx.so")).unwrap();
        assert_eq!(search.find("libx.so", Path::new("bin/m"), &elf), Some(Home::Prefix));
    }
}
