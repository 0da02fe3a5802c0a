//! Reading what a server's programs print and what `/proc` says of it. Pure: text in, facts out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What pgbench said of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Transactions that were committed.
    pub(super) transactions: u64,
    /// Transactions that failed; Postgres says so since 15.
    pub(super) failed: u64,
    /// Clients that gave up.
    pub(super) aborted: usize,
    /// Transactions per second, time to connect left out.
    pub(super) tps: f64,
}

/// Reads pgbench's summary; `Err` says what is missing in it.
///
/// Up to 13 there are two `tps` lines (including, then excluding the time to connect), from 14 on
/// there is one (`without initial connection time`).
pub(super) fn load(text: &str) -> Result<Load, String> {
    let after = |label: &str| text.lines().find_map(|line| line.trim().strip_prefix(label));
    let transactions = after("number of transactions actually processed:")
        .and_then(|rest| rest.trim().split('/').next()?.trim().parse().ok())
        .ok_or("no number of transactions")?;
    let failed = match after("number of failed transactions:") {
        None => 0,
        Some(rest) => first_word(rest)
            .parse()
            .map_err(|_| "no number of failed transactions")?,
    };
    let tps = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tps = "))
        .find(|rest| !rest.contains("(including"))
        .and_then(|rest| first_word(rest).parse().ok())
        .filter(|tps: &f64| tps.is_finite())
        .ok_or("no transactions per second")?;
    let aborted = text
        .lines()
        .filter(|line| line.contains("client ") && line.contains(" aborted "))
        .count();
    Ok(Load {
        transactions,
        failed,
        aborted,
        tps,
    })
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Lines of a server log that must not be there: errors of any session, and crashed processes.
///
/// The severity is looked for right after the line's prefix (`... UTC [123] `), so that a statement
/// or a row that contains the word does not count. Sessions that a requested shutdown ended are fine.
pub(super) fn log_errors(text: &str) -> Vec<&str> {
    let bad = |line: &&str| {
        let message = line.split_once("] ").map_or(*line, |(_, rest)| rest);
        let error = ["ERROR:", "FATAL:", "PANIC:"].iter().any(|s| message.starts_with(s));
        error && !message.ends_with(" due to administrator command")
            || message.starts_with("LOG:") && message.contains(" was terminated by signal ")
    };
    text.lines().filter(bad).collect()
}

/// Whether a server log ends with an orderly shutdown.
pub(super) fn says_shut_down(text: &str) -> bool {
    text.lines()
        .any(|line| line.ends_with("LOG:  database system is shut down"))
}

/// Programs and libraries in a `/proc/<pid>/maps`, each once: what is mapped executable, and files
/// that are libraries by name (some hold data only).
pub(super) fn mapped(maps: &str) -> BTreeSet<PathBuf> {
    maps.lines().filter_map(mapped_file).map(PathBuf::from).collect()
}

fn mapped_file(line: &str) -> Option<&str> {
    let path = &line[line.find('/')?..];
    let fields: Vec<&str> = line.split_whitespace().take(5).collect();
    let [_, permissions, _, _, inode] = fields[..] else {
        return None;
    };
    // A package manager may replace a library while we look: it is the same library still.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let memory = ["/dev/", "/SYSV", "/memfd:", "/anon_hugepage"]
        .iter()
        .any(|start| path.starts_with(start));
    let name = path.rsplit('/').next().unwrap_or(path);
    let library = name.ends_with(".so") || name.contains(".so.");
    (inode != "0" && !memory && (permissions.contains('x') || library)).then_some(path)
}

/// Directories whose libraries are the system's own. `/usr/local` is not: what lies there is
/// somebody's private build.
const SYSTEM: [&str; 8] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
];

/// A library that a server of `prefix` must not map, with the reason; `None` where all is well.
///
/// `trees` are further directories whose libraries are the build's own (private dependencies), and
/// `ships` tells whether the prefix has a library of that name itself.
pub(super) fn foreign(path: &Path, prefix: &Path, trees: &[PathBuf], ships: impl Fn(&str) -> bool) -> Option<String> {
    if path.starts_with(prefix) || trees.iter().any(|tree| path.starts_with(tree)) {
        return None;
    }
    if !SYSTEM.iter().any(|dir| path.starts_with(dir)) {
        return Some("it is neither the prefix's own nor the system's".into());
    }
    let name = path.file_name()?.to_string_lossy();
    ships(&name).then(|| "the prefix has a library of this name, and the system's was taken instead".into())
}

/// The server's own checks of a `postmaster.pid`: its process id, and whether it takes connections.
///
/// The eighth line has been the status since Postgres 10.
pub(super) fn postmaster_pid(text: &str) -> Option<(i32, Readiness)> {
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok().filter(|pid| *pid > 1)?;
    let ready = lines.nth(6).is_some_and(|status| status.trim() == "ready");
    Some((pid, if ready { Readiness::Ready } else { Readiness::Starting }))
}

/// What `postmaster.pid` says of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Not yet.
    Starting,
    /// It takes connections.
    Ready,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STYLE_11: &str = "transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 1\nquery mode: simple\n\
        number of clients: 2\nnumber of threads: 2\nduration: 3 s\nnumber of transactions actually processed: 3210\n\
        latency average = 1.869 ms\ntps = 1069.912345 (including connections establishing)\n\
        tps = 1071.223344 (excluding connections establishing)\n";
    const STYLE_14: &str = "pgbench (14.9)\ntransaction type: <builtin: TPC-B (sort of)>\nnumber of clients: 2\n\
        number of transactions actually processed: 3210\nlatency average = 1.869 ms\n\
        initial connection time = 3.456 ms\ntps = 1071.223344 (without initial connection time)\n";
    const STYLE_15: &str = "pgbench (15.18)\nmaximum number of tries: 1\nduration: 3 s\n\
        number of transactions actually processed: 3210\nnumber of failed transactions: 0 (0.000%)\n\
        latency average = 1.869 ms\ninitial connection time = 3.456 ms\n\
        tps = 1071.223344 (without initial connection time)\n";

    #[test]
    fn pgbench_is_read_in_all_its_styles() {
        let fine = Load {
            transactions: 3210,
            failed: 0,
            aborted: 0,
            tps: 1071.223344,
        };
        let per_client = STYLE_11.replace("processed: 3210", "processed: 3210/3210");
        let reconnecting = STYLE_15.replace("without initial connection time", "including reconnection times");
        for (text, want) in [
            (STYLE_11, Ok(fine)),
            (&per_client, Ok(fine)),
            (STYLE_14, Ok(fine)),
            (STYLE_15, Ok(fine)),
            (
                &STYLE_15.replace("transactions: 0 (0.000%)", "transactions: 7 (0.217%)"),
                Ok(Load { failed: 7, ..fine }),
            ),
            (
                &format!("client 1 aborted in command 4 (SQL) of script 0; x\n{STYLE_11}"),
                Ok(Load { aborted: 1, ..fine }),
            ),
            (
                &format!("pgbench: error: client 0 script 0 aborted in command 4\n{STYLE_14}"),
                Ok(Load { aborted: 1, ..fine }),
            ),
            (&reconnecting, Err("no transactions per second".to_owned())),
            (
                &STYLE_14.replace("1071.223344", "nan"),
                Err("no transactions per second".to_owned()),
            ),
            ("", Err("no number of transactions".to_owned())),
        ] {
            assert_eq!(load(text), want, "{text}");
        }
    }

    #[test]
    fn errors_count_by_severity_and_not_by_word() {
        let log = "2026-01-01 00:00:00.000 UTC [7] LOG:  database system is ready to accept connections\n\
            2026-01-01 00:00:01.000 UTC [8] LOG:  statement: select '[x] ERROR:  no'\n\
            2026-01-01 00:00:02.000 UTC [8] ERROR:  relation \"x\" does not exist at character 15\n\
            2026-01-01 00:00:02.000 UTC [8] STATEMENT:  select * from x where a = 'FATAL:'\n\
            2026-01-01 00:00:03.000 UTC [7] LOG:  server process (PID 8) was terminated by signal 11: Segmentation fault\n\
            2026-01-01 00:00:03.000 UTC [9] FATAL:  the database system is in recovery mode\n\
            2026-01-01 00:00:04.000 UTC [9] FATAL:  terminating connection due to administrator command\n";
        let found: Vec<_> = log_errors(log)
            .into_iter()
            .map(|line| line.split_once("] ").unwrap().1.split_once(':').unwrap().0)
            .collect();
        assert_eq!(found, ["ERROR", "LOG", "FATAL"]);
        assert_eq!(log_errors("FATAL:  could not create shared memory segment\n").len(), 1);
    }

    #[test]
    fn shutdown_is_read_from_the_log() {
        assert!(says_shut_down(
            "x UTC [7] LOG:  shutting down\nx UTC [7] LOG:  database system is shut down\n"
        ));
        assert!(!says_shut_down(
            "x UTC [7] LOG:  database system was shut down at 2026-01-01\n"
        ));
    }

    #[test]
    fn maps_give_programs_and_libraries_once() {
        let maps = "\
55d0a-55d0b r--p 00000000 08:01 11 /p/bin/postgres
55d0b-55d0c r-xp 00001000 08:01 11 /p/bin/postgres
7f00a-7f00b rw-s 00000000 00:01 22 /dev/zero (deleted)
7f00b-7f00c rw-s 00000000 00:01 23 /SYSV0052e2c1 (deleted)
7f00b-7f00c rw-s 00000000 00:1a 24 /dev/shm/PostgreSQL.12345
7f00c-7f00d r--p 00000000 08:01 33 /usr/lib/locale/C.utf8/LC_CTYPE
7f00d-7f00e r--p 00000000 08:01 44 /usr/lib/x86_64-linux-gnu/libicudata.so.72.1
7f00e-7f00f r-xp 00000000 08:01 55 /usr/lib/x86_64-linux-gnu/libc.so.6 (deleted)
7f00e-7f00f r-xp 00000000 08:01 56 /opt/with blank/libz.so.1
7f00f-7f010 rw-p 00000000 00:00 0 [heap]
7f010-7f011 r-xp 00000000 00:00 0 [vdso]
7f011-7f012 r-xp 00000000 00:01 66 /memfd:jit (deleted)
7f012-7f013 rw-p 00000000 00:00 0
";
        let got: Vec<_> = mapped(maps).into_iter().map(|p| p.display().to_string()).collect();
        assert_eq!(
            got,
            [
                "/opt/with blank/libz.so.1",
                "/p/bin/postgres",
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                "/usr/lib/x86_64-linux-gnu/libicudata.so.72.1",
            ]
        );
    }

    #[test]
    fn a_library_is_the_prefixs_own_the_systems_or_foreign() {
        let trees = [PathBuf::from("/store/openssl-1.1.1w")];
        let ships = |name: &str| name == "libpq.so.5";
        for (path, fine) in [
            ("/p/lib/libpq.so.5", true),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", true),
            ("/lib64/ld-linux-x86-64.so.2", true),
            ("/store/openssl-1.1.1w/lib/libssl.so.1.1", true),
            ("/usr/lib/x86_64-linux-gnu/libpq.so.5", false),
            ("/usr/local/lib/libz.so.1", false),
            ("/p2/lib/libpq.so.5", false),
            ("/home/x/lib/libz.so.1", false),
        ] {
            let got = foreign(Path::new(path), Path::new("/p"), &trees, ships);
            assert_eq!(got.is_none(), fine, "{path}: {got:?}");
        }
    }

    #[test]
    fn the_pid_file_tells_when_the_server_is_ready() {
        let file = |status: &str| format!("4711\n/d\n1790000000\n5432\n/tmp/bm-x\n\n  1234   5\n{status}");
        for (text, want) in [
            (file("ready   \n"), Some((4711, Readiness::Ready))),
            (file("starting\n"), Some((4711, Readiness::Starting))),
            (file(""), Some((4711, Readiness::Starting))),
            ("4711\n/d\n".into(), Some((4711, Readiness::Starting))),
            ("".into(), None),
            // A negative number is what a single-user server writes, and 0 would be our own group.
            ("-4711\n".into(), None),
            ("0\n".into(), None),
        ] {
            assert_eq!(postmaster_pid(&text), want, "{text:?}");
        }
    }
}
