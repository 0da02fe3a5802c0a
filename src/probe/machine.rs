//! How busy the machine is at this moment: memory, load, what a tree of processes holds.
//!
//! Reads `/proc` and control groups; knows no builds. What cannot be read is taken for plenty, or for nothing
//! used: a machine without these files is no reason not to build.

use std::path::Path;

use fs_err as fs;

/// Bytes of memory that could still be used without swapping, the bounds of control groups included.
pub fn available_memory() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = meminfo(&info, "MemAvailable").unwrap_or(u64::MAX);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_room(&groups, Path::new("/sys/fs/cgroup")).map_or(free, |room| room.min(free))
}

/// A field of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The least room in the own control group (version 2) and those above it. Memory of files counts as room: the
/// kernel gives it back.
fn group_room(groups: &str, mount: &Path) -> Option<u64> {
    let below = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let number = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let room = |dir: &Path| {
        let limit = number(&dir.join("memory.max"))?;
        let used = number(&dir.join("memory.current"))?;
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let of = |field: &str| {
            stat.lines()
                .find_map(|l| l.strip_prefix(field)?.trim().parse::<u64>().ok())
        };
        let files = of("inactive_file ").unwrap_or(0) + of("active_file ").unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(files)))
    };
    let own = mount.join(below);
    own.ancestors()
        .take_while(|dir| dir.starts_with(mount))
        .filter_map(room)
        .min()
}

/// Average number of processes that ran or wanted to, over the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|w| w.parse().ok())
        .unwrap_or(0.0)
}

/// Resident memory of all descendants of a process, KiB; memory they share counts for each. 0 where the kernel
/// does not list children.
pub fn resident_below(pid: u32) -> u64 {
    let mut total = 0;
    let mut way = vec![pid.to_string()];
    while let Some(pid) = way.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                let statm = std::fs::read_to_string(format!("/proc/{child}/statm")).unwrap_or_default();
                let pages: u64 = statm
                    .split_whitespace()
                    .nth(1)
                    .and_then(|p| p.parse().ok())
                    .unwrap_or(0);
                total += pages * (rustix::param::page_size() as u64 >> 10);
                way.push(child.to_owned());
            }
        }
    }
    total
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_a_group_above_counts_less_the_files_it_caches() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("user/build");
        fs::create_dir_all(&inner).unwrap();
        let write = |dir: &Path, max: &str, current: &str, stat: &str| {
            fs::write(dir.join("memory.max"), max).unwrap();
            fs::write(dir.join("memory.current"), current).unwrap();
            fs::write(dir.join("memory.stat"), stat).unwrap();
        };
        write(&inner, "max\n", "50\n", "");
        write(
            inner.parent().unwrap(),
            "1000\n",
            "900\n",
            "anon 500\ninactive_file 300\nactive_file 100\n",
        );
        assert_eq!(group_room("0::/user/build\n", dir.path()), Some(500));
        assert_eq!(group_room("5:memory:/x\n", dir.path()), None);
    }

    #[test]
    fn numbers_of_the_kernel_are_read() {
        assert_eq!(
            meminfo("MemTotal: 8 kB\nMemAvailable:    123 kB\n", "MemAvailable"),
            Some(123 << 10)
        );
        assert!(available_memory() > 0 && load() >= 0.0);
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert!(resident_below(std::process::id()) > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
