//! The machine itself: distribution, kernel, libc, CPU, memory, who runs bm.
//!
//! Reads files and asks the kernel; starts no process. Knows nothing of compilers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::model::manifest::Host;

/// The distribution, from `os-release`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsRelease {
    /// `debian`, `ubuntu`; `linux` where nothing is said.
    pub id: String,
    /// `12`, `24.04`; the codename where there is no number (Debian before its release); else empty.
    pub version: String,
    /// Distributions it descends from, nearest first.
    pub like: Vec<String>,
    /// `Debian GNU/Linux 12 (bookworm)`.
    pub pretty: String,
}

impl OsRelease {
    /// Reads the text of an `os-release` file.
    pub fn parse(text: &str) -> Self {
        let values: BTreeMap<&str, String> = text
            .lines()
            .filter_map(|line| line.trim().split_once('='))
            .filter(|(key, _)| !key.starts_with('#'))
            .map(|(key, value)| (key, unquote(value)))
            .collect();
        let get = |key: &str| values.get(key).cloned().filter(|v| !v.is_empty());
        let id = get("ID").unwrap_or_else(|| "linux".to_owned());
        OsRelease {
            version: get("VERSION_ID")
                .or_else(|| get("VERSION_CODENAME"))
                .unwrap_or_default(),
            like: get("ID_LIKE")
                .map(|l| l.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            pretty: get("PRETTY_NAME").or_else(|| get("NAME")).unwrap_or_else(|| id.clone()),
            id,
        }
    }

    /// `debian-12`.
    pub fn tag(&self) -> String {
        match self.version.as_str() {
            "" => self.id.clone(),
            version => format!("{}-{version}", self.id),
        }
    }

    /// Whether packages come by apt.
    pub fn has_apt(&self) -> bool {
        self.names().any(|n| n == "debian" || n == "ubuntu")
    }

    /// The packages a recipe or a toolchain names for this distribution, else for one it descends
    /// from. Nothing where packages do not come by apt: bm would not know how to install them.
    pub fn packages<'a>(&self, by_distribution: &'a BTreeMap<String, Vec<String>>) -> &'a [String] {
        if !self.has_apt() {
            return &[];
        }
        let tag = self.tag();
        let mut names = std::iter::once(tag.as_str())
            .chain(self.names())
            // Derivatives do not always say all of their line: Mint's `ID_LIKE` may end at ubuntu.
            .chain(["debian"]);
        names.find_map(|n| by_distribution.get(n)).map_or(&[], Vec::as_slice)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.id.as_str()).chain(self.like.iter().map(String::as_str))
    }
}

/// A value as a shell would read it.
fn unquote(value: &str) -> String {
    match shlex::split(value) {
        Some(words) => words.join(" "),
        None => value.trim_matches(['"', '\'']).to_owned(),
    }
}

/// The distribution of this host.
pub fn os_release() -> OsRelease {
    let text = ["/etc/os-release", "/usr/lib/os-release"]
        .into_iter()
        .find_map(|p| fs::read_to_string(p).ok());
    OsRelease::parse(&text.unwrap_or_default())
}

/// The host, for the manifest.
pub fn host() -> Host {
    let os = os_release();
    let cpu = Cpu::of_this_machine();
    Host {
        os_id: os.tag(),
        os: os.pretty,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        libc: libc_version(),
        cpu: cpu.model(),
        cpu_flags: cpu.flags(),
    }
}

/// CPUs bm may use: affinity and cgroup quota count.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of memory bm may use: what the machine has, or less where a cgroup bounds it.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    cgroup_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |limit| limit.min(machine))
}

/// The machine's name in its network.
pub fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether bm runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The least memory bound of the own group and those above it, in either version of cgroups.
fn cgroup_limit(groups: &str, mount: &Path) -> Option<u64> {
    let files = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let below = path.trim_start_matches('/');
        match (id, controllers.split(',').any(|c| c == "memory")) {
            ("0", _) => Some((mount.to_owned(), below, "memory.max")),
            (_, true) => Some((mount.join("memory"), below, "memory.limit_in_bytes")),
            _ => None,
        }
    });
    let bounds = files.flat_map(|(top, below, file)| {
        let groups: Vec<PathBuf> = top
            .join(below)
            .ancestors()
            .take_while(|dir| dir.starts_with(&top))
            .map(|dir| dir.join(file))
            .collect();
        groups
    });
    // `max` is no number, and so no bound.
    bounds
        .filter_map(|f| fs::read_to_string(f).ok()?.trim().parse().ok())
        .min()
}

/// `glibc 2.36`.
#[cfg(target_env = "gnu")]
fn libc_version() -> String {
    // SAFETY: the function takes nothing and returns a static, terminated string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// The host's glibc by its file name: bm itself is linked with another libc, and cannot ask it.
#[cfg(not(target_env = "gnu"))]
fn libc_version() -> String {
    let places = [
        "/lib",
        "/lib64",
        "/usr/lib",
        "/lib/x86_64-linux-gnu",
        "/lib/aarch64-linux-gnu",
    ];
    let text = places
        .iter()
        .filter_map(|dir| fs::read(Path::new(dir).join("libc.so.6")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .next()
        .unwrap_or_default();
    text.split("GNU C Library ")
        .nth(1)
        .and_then(|rest| rest.split("release version ").nth(1))
        .map(|rest| {
            rest.chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect::<String>()
        })
        .map_or_else(
            || "unknown".to_owned(),
            |v| format!("glibc {}", v.trim_end_matches('.')),
        )
}

/// The first CPU as the kernel tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Cpu(BTreeMap<String, String>);

impl Cpu {
    fn of_this_machine() -> Self {
        // Only the first CPU is read: on machines with hundreds the whole file takes milliseconds.
        fs::File::open("/proc/cpuinfo").map_or_else(|_| Cpu::default(), |f| Cpu::parse(BufReader::new(f)))
    }

    fn parse(text: impl BufRead) -> Self {
        let lines = text.lines().map_while(Result::ok).take_while(|l| !l.trim().is_empty());
        let fields = lines.filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            Some((key.trim().to_owned(), value.trim().to_owned()))
        });
        Cpu(fields.collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The model's name; ARM kernels tell only numbers.
    fn model(&self) -> String {
        if let Some(name) = self.get("model name") {
            return name.to_owned();
        }
        match (self.get("CPU implementer"), self.get("CPU part")) {
            (Some(implementer), Some(part)) => format!("implementer {implementer} part {part}"),
            _ => std::env::consts::ARCH.to_owned(),
        }
    }

    fn flags(&self) -> Vec<String> {
        let text = self.get("flags").or_else(|| self.get("Features")).unwrap_or_default();
        let mut flags: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        flags.sort_unstable();
        flags.dedup();
        flags
    }

    /// The fields a compiler's view of the CPU can depend on; not clock rates, not microcode.
    fn key(&self) -> String {
        const FIELDS: [&str; 10] = [
            "vendor_id",
            "cpu family",
            "model",
            "model name",
            "stepping",
            "cache size",
            "CPU implementer",
            "CPU variant",
            "CPU part",
            "CPU revision",
        ];
        let mut text: Vec<_> = FIELDS
            .iter()
            .map(|f| format!("{f}={}", self.get(f).unwrap_or_default()))
            .collect();
        text.extend(self.flags());
        text.join("\n")
    }
}

/// A short hash that changes with the CPU, its features and its caches.
pub(super) fn cpu_key() -> String {
    let mut hash = Sha256::new();
    hash.update(Cpu::of_this_machine().key());
    for index in 0..4 {
        let size = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        hash.update(fs::read_to_string(size).unwrap_or_default());
    }
    hex(&hash.finalize()[..8])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const BOOKWORM: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n\
                            VERSION=\"12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n";
    const SID: &str =
        "PRETTY_NAME=\"Debian GNU/Linux forky/sid\"\nNAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=forky\nID=debian\n";
    const NOBLE: &str = "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n\
                         # a comment\nID=ubuntu\nID_LIKE=debian\n";
    const ROCKY: &str = "NAME='Rocky Linux'\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n";
    const ARCH: &str = "NAME=\"Arch Linux\"\nID=arch\nBUILD_ID=rolling\n";

    #[test]
    fn distributions_are_told_apart() {
        let check = |text: &str, tag: &str, pretty: &str, apt: bool| {
            let os = OsRelease::parse(text);
            assert_eq!(
                (os.tag().as_str(), os.pretty.as_str(), os.has_apt()),
                (tag, pretty, apt)
            );
        };
        check(BOOKWORM, "debian-12", "Debian GNU/Linux 12 (bookworm)", true);
        check(SID, "debian-forky", "Debian GNU/Linux forky/sid", true);
        check(NOBLE, "ubuntu-24.04", "Ubuntu 24.04.1 LTS", true);
        check(ROCKY, "rocky-9.4", "Rocky Linux", false);
        check(ARCH, "arch", "Arch Linux", false);
        check("", "linux", "linux", false);
        assert_eq!(OsRelease::parse(ROCKY).like, ["rhel", "centos", "fedora"]);
    }

    #[test]
    fn the_nearest_distribution_names_the_packages() {
        let table = |names: &[&str]| -> BTreeMap<String, Vec<String>> {
            names
                .iter()
                .map(|n| ((*n).to_owned(), vec![format!("for-{n}")]))
                .collect()
        };
        let check = |text: &str, names: &[&str], want: &[&str]| {
            assert_eq!(OsRelease::parse(text).packages(&table(names)), want, "{text}");
        };
        check(NOBLE, &["debian", "ubuntu"], &["for-ubuntu"]);
        check(NOBLE, &["debian"], &["for-debian"]);
        check(NOBLE, &["debian", "ubuntu", "ubuntu-24.04"], &["for-ubuntu-24.04"]);
        check(BOOKWORM, &["ubuntu"], &[]);
        check(ROCKY, &["debian", "fedora"], &[]);
        check("ID=linuxmint\nID_LIKE=ubuntu\n", &["debian"], &["for-debian"]);
    }

    #[test]
    fn the_first_cpu_speaks_for_all() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\ncpu MHz\t\t: 2100.5\n\
                    flags\t\t: sse2 avx fpu avx\n\nprocessor\t: 1\nmodel name\t: other\n";
        let cpu = Cpu::parse(text.as_bytes());
        assert_eq!(cpu.model(), "Xeon");
        assert_eq!(cpu.flags(), ["avx", "fpu", "sse2"]);
        let arm = Cpu::parse("Features : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd40\n".as_bytes());
        assert_eq!(arm.model(), "implementer 0x41 part 0xd40");
        assert_eq!(arm.flags(), ["asimd", "fp"]);
    }

    #[test]
    fn the_key_of_a_cpu_leaves_out_what_changes_by_itself() {
        let key = |text: &str| Cpu::parse(text.as_bytes()).key();
        let one = key("model : 1\ncpu MHz : 1000\nflags : a b\n");
        assert_eq!(key("model : 1\ncpu MHz : 3000\nmicrocode : 0x2\nflags : b a\n"), one);
        assert_ne!(key("model : 1\ncpu MHz : 1000\nflags : a\n"), one);
        assert_ne!(key("model : 2\ncpu MHz : 1000\nflags : a b\n"), one);
    }

    #[test]
    fn the_tightest_memory_bound_counts() {
        let mount = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = mount.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        put("a/memory.max", "2000\n");
        put("a/b/memory.max", "max\n");
        put("memory/x/memory.limit_in_bytes", "1500\n");
        let limit = |groups: &str| cgroup_limit(groups, mount.path());
        assert_eq!(limit("0::/a/b\n"), Some(2000));
        assert_eq!(limit("4:cpu,memory:/x\n0::/a/b\n"), Some(1500));
        assert_eq!(limit("3:cpu:/x\n0::/\n"), None);
        assert_eq!(limit("0::/gone/from/here\nnonsense\n"), None);
    }

    #[test]
    fn this_host_has_an_answer_to_everything() {
        let host = host();
        for (what, text) in [
            ("os", &host.os),
            ("os_id", &host.os_id),
            ("kernel", &host.kernel),
            ("cpu", &host.cpu),
        ] {
            assert!(!text.is_empty(), "{what}");
        }
        let digits = host.libc.strip_prefix("glibc 2.");
        assert!(digits.is_some_and(|d| d.parse::<u32>().is_ok()), "{}", host.libc);
        assert!(!host.cpu_flags.is_empty() && host.cpu_flags.is_sorted());
        assert!(cores() >= 1 && memory_bytes() > 1 << 20);
        assert_eq!(cpu_key(), cpu_key());
    }
}
