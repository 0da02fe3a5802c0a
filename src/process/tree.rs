//! The processes below a supervisor: finding, signalling and reaping them.
//!
//! Reads `/proc`. Knows nothing of steps, limits or bm.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, waitpid};

/// After this long a killed process that is still there (stuck in the kernel, or of an account we may not
/// signal) is given up and named as such.
const UNKILLABLE: Duration = Duration::from_secs(30);

/// One line of the process table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: i32,
    parent: i32,
    name: String,
    dead: bool,
}

impl Process {
    /// Reads `pid (name) state parent ...`; the name may hold anything, parentheses too.
    fn parse(stat: &str) -> Option<Process> {
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let mut rest = stat.get(close + 1..)?.split_ascii_whitespace();
        let state = rest.next()?;
        Some(Process {
            pid: stat[..open].trim().parse().ok()?,
            parent: rest.next()?.parse().ok()?,
            name: stat.get(open + 1..close)?.to_owned(),
            dead: matches!(state, "Z" | "X" | "x"),
        })
    }
}

/// All descendants of this process, dead ones that nobody has reaped included.
pub(super) fn descendants() -> io::Result<Vec<Process>> {
    let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        // A process that ended since the directory was read is no process. Names need not be UTF-8.
        let Ok(stat) = fs::read(std::path::Path::new("/proc").join(&name).join("stat")) else {
            continue;
        };
        if let Some(process) = Process::parse(&String::from_utf8_lossy(&stat)) {
            by_parent.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = by_parent.remove(&own_pid()).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let children = by_parent.remove(&process.pid).unwrap_or_default();
        found.extend(children);
        next += 1;
    }
    Ok(found)
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Signals the group of the leader, which must not have been reaped yet, and every descendant that left
/// the group. Processes that are gone already are no failure.
pub(super) fn signal_all(leader: Pid, signal: Signal) {
    let _ = kill_process_group(leader, signal);
    for process in descendants().unwrap_or_default().iter().filter(|p| !p.dead) {
        signal_one(process.pid, signal);
    }
}

fn signal_one(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether the leader has ended. Its id stays reserved until it is reaped.
pub(super) fn is_dead(leader: Pid) -> io::Result<bool> {
    Ok(peek(libc::P_PID, leader.as_raw_nonzero().get().cast_unsigned())? == Peek::Dead(leader.as_raw_nonzero().get()))
}

/// Reaps adopted processes that have ended, so that a long step does not pile them up. Stops at the
/// leader, whose end is another matter.
pub(super) fn reap_adopted(leader: Pid) -> io::Result<()> {
    while let Peek::Dead(pid) = peek(libc::P_ALL, 0)?
        && pid != leader.as_raw_nonzero().get()
    {
        reap(pid);
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Peek {
    Dead(i32),
    AllAlive,
    NoChild,
}

/// Looks for an ended child without reaping it.
fn peek(kind: libc::idtype_t, id: u32) -> io::Result<Peek> {
    // SAFETY: siginfo_t is plain data, for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` lives across the call, which only writes to it.
    let answer = unsafe { libc::waitid(kind, id, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
    if answer == 0 {
        // SAFETY: waitid fills this member, or leaves it zero when no child has ended.
        return Ok(match unsafe { info.si_pid() } {
            0 => Peek::AllAlive,
            pid => Peek::Dead(pid),
        });
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ECHILD) => Ok(Peek::NoChild),
        e => Err(e),
    }
}

fn reap(pid: i32) -> Option<WaitStatus> {
    waitpid(Some(Pid::from_raw(pid)?), WaitOptions::NOHANG)
        .ok()
        .flatten()
        .map(|(_, status)| status)
}

/// Ends everything after the leader has died: kills its group and all descendants until none is left,
/// reaps them, and the leader last. Gives the leader's status and who had to be killed.
pub(super) fn sweep(leader: Pid) -> io::Result<(WaitStatus, Vec<String>)> {
    let mut strays = BTreeMap::new();
    let give_up = Instant::now() + UNKILLABLE;
    kill_descendants(Some(leader), &mut strays, give_up)?;
    let status =
        reap(leader.as_raw_nonzero().get()).ok_or_else(|| io::Error::other("the leader was reaped by someone else"))?;
    // A walk through /proc can miss a process that forks at the same time. Now that the leader is out of the
    // way "no child" is exact: as a subreaper we are the parent of every orphan.
    kill_descendants(None, &mut strays, give_up)?;
    Ok((
        status,
        strays.into_iter().map(|(pid, name)| format!("{pid} {name}")).collect(),
    ))
}

fn kill_descendants(leader: Option<Pid>, strays: &mut BTreeMap<i32, String>, give_up: Instant) -> io::Result<()> {
    let leader_pid = leader.map(|l| l.as_raw_nonzero().get());
    // Without a known pause a parent that forks faster than we look could stay ahead for ever: all are killed
    // in each round, so the pause only has to be short.
    let mut pause = Duration::from_micros(200);
    loop {
        if leader.is_none() && peek(libc::P_ALL, 0)? == Peek::NoChild {
            return Ok(());
        }
        let others: Vec<Process> = descendants()?
            .into_iter()
            .filter(|p| Some(p.pid) != leader_pid)
            .collect();
        let (dead, alive): (Vec<_>, Vec<_>) = others.into_iter().partition(|p| p.dead);
        if let Some(leader) = leader {
            // The group first: it is one atomic step, no fork escapes it.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        for process in &alive {
            signal_one(process.pid, Signal::KILL);
            strays.entry(process.pid).or_insert_with(|| process.name.clone());
        }
        let own = own_pid();
        let mut reaped = HashSet::new();
        for process in dead.iter().filter(|p| p.parent == own) {
            reap(process.pid);
            reaped.insert(process.pid);
        }
        if leader.is_some() && alive.is_empty() && dead.len() == reaped.len() {
            return Ok(());
        }
        if Instant::now() > give_up {
            for process in alive {
                strays.insert(process.pid, format!("{} (could not be killed)", process.name));
            }
            return Ok(());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_whatever_the_name_holds() {
        let cases = [
            ("7 (sh) S 3 7 7 0", Some((7, 3, "sh", false))),
            ("7 (a b) c) (d) Z 3 7", Some((7, 3, "a b) c) (d", true))),
            ("7 (new\nline) R 1 7", Some((7, 1, "new\nline", false))),
            ("7 () D 2", Some((7, 2, "", false))),
            ("7 (cut", None),
            ("7 (sh) S", None),
            ("", None),
            (")(", None),
        ];
        for (stat, want) in cases {
            let want = want.map(|(pid, parent, name, dead)| Process {
                pid,
                parent,
                name: name.to_owned(),
                dead,
            });
            assert_eq!(Process::parse(stat), want, "{stat:?}");
        }
    }

    #[test]
    fn a_child_is_a_descendant() {
        let (reader, writer) = io::pipe().unwrap();
        let mut child = std::process::Command::new("/bin/cat").stdin(reader).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(descendants().unwrap().iter().any(|p| p.pid == pid));
        drop(writer);
        child.wait().unwrap();
        assert!(!descendants().unwrap().iter().any(|p| p.pid == pid));
    }
}
