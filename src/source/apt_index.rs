//! apt's index of source packages: which pristine archives it lists.
//!
//! Text in, values out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::apt_sources::stanzas;
use super::lockfile::is_hex;
use crate::model::version::Version;

/// Name of the source package that carries a version, if there can be one: `postgresql-15` for 15.18.
pub type PackageOf<'a> = &'a dyn Fn(&Version) -> Option<String>;

/// A pristine archive the index lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Source package.
    pub package: String,
    /// The distribution's version, `15.18-0+deb12u1`.
    pub debian_version: String,
    /// Upstream's version.
    pub version: Version,
    /// Of the archive, as the signed index says.
    pub sha256: String,
    /// Name of the archive.
    pub file: String,
    /// Bytes.
    pub size: u64,
    /// Full URI in the pool.
    pub uri: String,
}

impl Candidate {
    /// How the archive's origin is recorded.
    pub fn recorded(&self) -> String {
        format!("distro:{}={}", self.package, self.debian_version)
    }
}

/// One index of source packages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Index {
    /// Root of the archive, without a slash at its end.
    pub base: String,
    /// Uncompressed.
    pub file: PathBuf,
}

/// Reads `apt-get indextargets`. The origin is what the signed Release file says, so an archive that
/// merely uses the distribution's suite names is left out.
pub(super) fn read_targets(text: &str, distribution: &str) -> Vec<Index> {
    text.lines()
        .filter_map(|line| {
            let [kind, origin, base, file] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
            (kind == "Sources" && origin.eq_ignore_ascii_case(distribution)).then(|| Index {
                base: base.trim_end_matches('/').to_owned(),
                file: file.into(),
            })
        })
        .collect()
}

pub(super) fn read_index(text: &str, base: &str, package: PackageOf<'_>) -> Vec<Candidate> {
    // Parsing is the cost: only stanzas whose package begins like a wanted one are worth it, and an
    // index has tens of thousands. The archive's own name is the cheapest sign of all.
    text.split("\n\n")
        .filter(|s| s.contains(".orig.tar."))
        .filter(|s| may_match(s, package))
        .flat_map(stanzas)
        .filter_map(|s| candidate(&s, base, package))
        .collect()
}

/// Whether the stanza's package and version belong together; both are read without the rest.
fn may_match(stanza: &str, package: PackageOf<'_>) -> bool {
    let field = |name: &str| {
        let at = stanza.lines().find_map(|l| l.strip_prefix(name));
        at.map(str::trim)
    };
    let (Some(name), Some(version)) = (field("Package:"), field("Version:")) else {
        return false;
    };
    upstream(version).and_then(|v| package(&v)).is_some_and(|p| p == name)
}

fn candidate(stanza: &BTreeMap<String, String>, base: &str, package: PackageOf<'_>) -> Option<Candidate> {
    let name = stanza.get("package")?;
    let debian_version = stanza.get("version")?;
    let version = upstream(debian_version)?;
    if package(&version).as_ref() != Some(name) {
        return None;
    }
    let directory = stanza.get("directory")?;
    let stem = format!("{name}_{}.orig.tar.", upstream_text(debian_version));
    let (sha256, size, file) = stanza.get("checksums-sha256")?.lines().find_map(|line| {
        let [sha256, size, file] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let pristine = file
            .strip_prefix(&stem)
            .is_some_and(|end| ["gz", "bz2", "xz"].contains(&end));
        (pristine && is_hex(sha256, 64)).then_some((sha256, size, file))
    })?;
    Some(Candidate {
        package: name.clone(),
        debian_version: debian_version.clone(),
        version,
        sha256: sha256.to_owned(),
        file: file.to_owned(),
        size: size.parse().ok()?,
        uri: format!("{base}/{directory}/{file}"),
    })
}

/// `15.18` of `1:15.18-0+deb12u1`.
fn upstream_text(debian_version: &str) -> &str {
    let text = debian_version.split_once(':').map_or(debian_version, |(_, v)| v);
    text.rsplit_once('-').map_or(text, |(v, _)| v)
}

/// Upstream's version, unless the archive was repacked (`5.7+dfsg`) or is numbered in another way.
fn upstream(debian_version: &str) -> Option<Version> {
    upstream_text(debian_version).replace('~', "").parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(in crate::source) mod tests {
    use super::*;
    use crate::source::sha256;

    pub(in crate::source) fn package(version: &Version) -> Option<String> {
        Some(format!("postgresql-{}", version.series(1)))
    }

    fn stanza(package: &str, version: &str, files: &[(&str, &str)]) -> String {
        let sums: String = files.iter().map(|(sum, file)| format!(" {sum} 42 {file}\n")).collect();
        format!(
            "Package: {package}\nBinary: a,\n b\nVersion: {version}\nFiles:\n 0123 42 {package}.dsc\nChecksums-Sha256:\n{sums}Directory: pool/main/p/{package}\n\n"
        )
    }

    pub(in crate::source) fn index() -> String {
        let (a, b, c, d) = (sha256("a"), sha256("b"), sha256("c"), sha256("d"));
        [
            stanza(
                "postgresql-15",
                "15.18-0+deb12u1",
                &[
                    (&b, "postgresql-15_15.18-0+deb12u1.dsc"),
                    (&a, "postgresql-15_15.18.orig.tar.bz2"),
                ],
            ),
            stanza("postgresql-15", "15.20-1", &[(&b, "postgresql-15_15.20.orig.tar.bz2")]),
            stanza(
                "postgresql-16",
                "16~beta1-1~exp1",
                &[(&c, "postgresql-16_16~beta1.orig.tar.gz")],
            ),
            stanza("postgresql-common", "248", &[(&d, "postgresql-common_248.tar.xz")]),
            stanza(
                "postgresql-15",
                "15.3+dfsg-1",
                &[(&d, "postgresql-15_15.3+dfsg.orig.tar.xz")],
            ),
            stanza(
                "postgresql-15-ext",
                "15.1-1",
                &[(&d, "postgresql-15-ext_15.1.orig.tar.xz")],
            ),
            stanza(
                "postgresql-14",
                "1:14.9-1",
                &[
                    (&d, "postgresql-14_14.9.orig-docs.tar.xz"),
                    (&c, "postgresql-14_14.9.orig.tar.xz"),
                ],
            ),
            stanza(
                "postgresql-13",
                "13.1-1",
                &[("short", "postgresql-13_13.1.orig.tar.xz")],
            ),
            "Package: broken\nVersion\n\n".into(),
        ]
        .concat()
    }

    #[test]
    fn pristine_archives_of_the_product_are_found() {
        let found = read_index(&index(), "http://deb.example.org/debian", &package);
        let shown: Vec<String> = found
            .iter()
            .map(|c| format!("{} {} {}", c.version, c.recorded(), c.uri))
            .collect();
        assert_eq!(
            shown,
            [
                "15.18 distro:postgresql-15=15.18-0+deb12u1 http://deb.example.org/debian/pool/main/p/postgresql-15/postgresql-15_15.18.orig.tar.bz2",
                "15.20 distro:postgresql-15=15.20-1 http://deb.example.org/debian/pool/main/p/postgresql-15/postgresql-15_15.20.orig.tar.bz2",
                "16beta1 distro:postgresql-16=16~beta1-1~exp1 http://deb.example.org/debian/pool/main/p/postgresql-16/postgresql-16_16~beta1.orig.tar.gz",
                "14.9 distro:postgresql-14=1:14.9-1 http://deb.example.org/debian/pool/main/p/postgresql-14/postgresql-14_14.9.orig.tar.xz",
            ]
        );
        assert_eq!((found[0].size, found[0].sha256.clone()), (42, sha256("a")));
    }

    #[test]
    fn only_indexes_signed_by_the_distribution_count() {
        let text = "Sources\tDebian\thttp://d.org/debian/\t/l/a\nSources\tOther\thttp://o.org/\t/l/b\n\
                Packages\tDebian\thttp://d.org/debian/\t/l/c\nnonsense\n";
        let base = "http://d.org/debian".to_owned();
        assert_eq!(
            read_targets(text, "debian"),
            [Index {
                base,
                file: "/l/a".into()
            }]
        );
    }
}
