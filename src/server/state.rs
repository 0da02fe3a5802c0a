//! What is known of the server of a data directory, from `postmaster.pid` and `/proc`.

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;

use crate::error::{Error, Exit, Result};
use crate::smoke::account;

use super::config;

/// A server, running or not, and how to connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
    /// Data directory, absolute, without symbolic links.
    pub datadir: PathBuf,
    /// Process id while it runs.
    pub pid: Option<u32>,
    /// Program that runs, where the system says so.
    pub program: Option<PathBuf>,
    /// Directory of the socket.
    pub socket: PathBuf,
    /// TCP port on 127.0.0.1, also part of the socket's name. `None` for a stopped server whose data
    /// directory bm did not make.
    pub port: Option<u16>,
    /// Superuser, who needs no password.
    pub superuser: String,
}

impl State {
    /// Options of `psql`, `pgbench` and their like.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["-h".to_owned(), self.socket.display().to_string()];
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        words.extend(["-U".to_owned(), self.superuser.clone()]);
        words
    }

    /// Reads what `datadir` says.
    pub(super) fn read(datadir: &Path) -> Result<Self> {
        let file = datadir.join("postmaster.pid");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io("cannot ask for the server", &e)),
        };
        let record = config::read(datadir);
        let running = Running::parse(&text).filter(|running| running.serves(datadir));
        let superuser = match &record {
            Some(record) => record.superuser.clone(),
            None => owner_name(datadir)?,
        };
        Ok(State {
            datadir: datadir.to_owned(),
            pid: running.as_ref().map(|r| r.pid),
            program: running.as_ref().and_then(Running::program),
            socket: running
                .as_ref()
                .and_then(|r| r.socket.clone())
                .unwrap_or_else(|| datadir.to_owned()),
            port: running.and_then(|r| r.port).or(record.map(|record| record.port)),
            superuser,
        })
    }
}

/// `initdb` names the superuser after the account unless told otherwise.
fn owner_name(datadir: &Path) -> Result<String> {
    use std::os::unix::fs::MetadataExt;
    let uid = fs::metadata(datadir).map_or_else(|_| account::own_uid(), |meta| meta.uid());
    account::name_of(uid)?.ok_or_else(|| Error::new(Exit::Host, format!("uid {uid} has no name")))
}

/// `postmaster.pid`, which outlives a server that was killed.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    pid: u32,
    port: Option<u16>,
    socket: Option<PathBuf>,
}

impl Running {
    /// Lines: pid, data directory, start time, port, socket directory, address, memory key, status.
    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let line = |n: usize| lines.get(n).copied().filter(|line| !line.is_empty());
        Some(Running {
            pid: line(0)?.parse().ok().filter(|pid| *pid > 1)?,
            port: line(3).and_then(|port| port.parse().ok()),
            socket: line(4).map(PathBuf::from),
        })
    }

    /// Whether the process is alive and a server of this data directory: servers make it their working
    /// directory, and a number alone may have gone to another process since.
    fn serves(&self, datadir: &Path) -> bool {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).is_ok_and(|cwd| cwd == datadir)
    }

    fn program(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_file_is_read_as_far_as_it_goes() {
        let running = |pid, port, socket: Option<&str>| {
            Some(Running {
                pid,
                port,
                socket: socket.map(PathBuf::from),
            })
        };
        for (text, want) in [
            (
                "77\n/d\n1\n5433\n/d\n127.0.0.1\n 1 2\nready   \n",
                running(77, Some(5433), Some("/d")),
            ),
            ("77\n/d\n1\n5433\n\n127.0.0.1\n", running(77, Some(5433), None)),
            ("77\n", running(77, None, None)),
            ("", None),
            ("-77\n", None),
            ("1\n", None),
            ("x\n", None),
        ] {
            assert_eq!(Running::parse(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_number_that_went_to_another_process_is_no_server() {
        let dir = tempfile::tempdir().unwrap();
        let datadir = dir.path().canonicalize().unwrap();
        // Our own process is alive, and its working directory is not the data directory.
        fs::write(
            datadir.join("postmaster.pid"),
            format!("{}\n/d\n1\n5433\n", std::process::id()),
        )
        .unwrap();
        let record = config::Record {
            schema: 1,
            superuser: "me".into(),
            port: 5999,
        };
        fs::write(datadir.join("bm.json"), serde_json::to_string(&record).unwrap()).unwrap();
        let state = State::read(&datadir).unwrap();
        assert_eq!((state.pid, state.port), (None, Some(5999)));
        let socket = datadir.display().to_string();
        assert_eq!(state.words(), ["-h", &socket, "-p", "5999", "-U", "me"]);
    }
}
