//! Whether what runs is the prefix's own: the server's program, and the libraries of a process.
//!
//! Owns the comparison of a living process with the prefix. Knows no product.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};

use super::child::Programs;
use super::{Test, parse};

/// Where prefixes keep libraries; MySQL has those of its private dependencies in the second.
const LIBRARY_DIRS: [&str; 3] = ["lib", "lib/private", "lib64"];

/// Checks that the process runs `program` of the prefix.
///
/// # Errors
/// [`Exit::Proof`] when it is another program, [`Exit::Host`] when the system does not say.
pub(super) fn program(test: &Test<'_>, programs: &Programs<'_>, pid: i32, program: &str) -> Result<()> {
    let exe = test.terms.proc.join(pid.to_string()).join("exe");
    let exe = fs::read_link(exe).doing(|| "cannot see which program the server runs".into())?;
    let own = fs::canonicalize(test.prefix.join(program)).doing(|| "cannot look at the server program".into())?;
    if exe == own {
        return Ok(());
    }
    Err(programs
        .failure("the running server is not the prefix's own program")
        .detail("expected", own.display())
        .detail("actual", exe.display()))
}

/// What the server with this process id has mapped, as `/proc` shows it.
///
/// # Errors
/// [`Exit::Host`] when the system does not say.
pub(super) fn maps(test: &Test<'_>, pid: i32) -> Result<String> {
    let maps = test.terms.proc.join(pid.to_string()).join("maps");
    let bytes = fs::read(maps).doing(|| "cannot see what the server has mapped".into())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Programs and libraries in the maps of a process, which `who` names: each must be the prefix's own, of a private
/// dependency, or the system's.
///
/// # Errors
/// [`Exit::Proof`] for a foreign library, [`Exit::Host`] when the maps are empty.
pub(super) fn libraries(test: &Test<'_>, programs: &Programs<'_>, who: &str, maps: &str) -> Result<BTreeSet<PathBuf>> {
    let mapped = parse::mapped(maps);
    if mapped.is_empty() {
        return Err(
            Error::new(Exit::Host, format!("the system does not show what {who} has mapped"))
                .hint("mount /proc, also inside a chroot: mount -t proc proc /proc"),
        );
    }
    let trees: Vec<PathBuf> = (test.expect.libraries.iter())
        .map(|tree| fs::canonicalize(tree).unwrap_or_else(|_| tree.clone()))
        .collect();
    let ships = |name: &str| LIBRARY_DIRS.iter().any(|dir| test.prefix.join(dir).join(name).exists());
    for path in &mapped {
        if let Some(why) = parse::foreign(path, test.prefix, &trees, ships) {
            let headline = format!("{who} maps the foreign library `{}`", path.display());
            return Err(programs.failure(headline).detail("why", why));
        }
    }
    Ok(mapped)
}

/// The libraries among what is mapped, for the manifest.
pub(super) fn shown(mapped: &BTreeSet<PathBuf>, program: &Path) -> Vec<String> {
    let libraries = mapped.iter().filter(|path| *path != program);
    libraries.map(|path| path.display().to_string()).collect()
}
