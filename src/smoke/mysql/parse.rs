//! Reading what programs of the MySQL family print. Pure: text in, facts out.

use std::collections::BTreeMap;

/// What mysqlslap said of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Wall time in seconds, to the millisecond.
    pub(super) seconds: f64,
    /// Clients that ran at once.
    pub(super) clients: u32,
    /// Statements each of them was to send.
    pub(super) each: u32,
}

impl Load {
    /// Statements of all clients.
    pub(super) fn statements(&self) -> u64 {
        u64::from(self.clients) * u64::from(self.each)
    }

    /// Statements per second; a load too short for the clock counts as a millisecond.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.clients) * f64::from(self.each) / self.seconds.max(0.001)
    }
}

/// Reads mysqlslap's `--csv` line: engine, kind of load, average, least and most seconds, clients, statements of each.
/// `Err` says what is missing. The kind is `mixed` also for statements that were given, so it says nothing.
pub(super) fn load(text: &str) -> Result<Load, String> {
    let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
    let fields = |line: &str| -> Option<Load> {
        let fields: Vec<&str> = line.trim_end().split(',').collect();
        let [_, _, seconds, least, most, clients, each] = fields[..] else {
            return None;
        };
        number(least).and(number(most))?;
        Some(Load {
            seconds: number(seconds)?,
            clients: clients.parse().ok()?,
            each: each.parse().ok()?,
        })
    };
    let mut found = text.lines().filter_map(fields);
    match (found.next(), found.next()) {
        (Some(load), None) => Ok(load),
        (None, _) => Err("there is no line of results".into()),
        (Some(_), Some(_)) => Err("there is more than one line of results".into()),
    }
}

/// Rows of two columns. Lines without a tab, such as warnings of the client, are left out.
pub(super) fn pairs(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// What a server is built for when its version says that it is not for use: the words the server adds to it.
pub(super) fn special_build(version: &str) -> Option<&'static str> {
    version.split('-').find_map(|word| match word {
        "debug" => Some("debugging"),
        "valgrind" => Some("valgrind"),
        "asan" => Some("the address sanitizer"),
        "ubsan" => Some("the undefined behaviour sanitizer"),
        "tsan" => Some("the thread sanitizer"),
        _ => None,
    })
}

/// Whether the version a server says is the one wanted. Up to 5.7 the server adds `-log` when it writes some log.
pub(super) fn is_version(said: &str, wanted: &str) -> bool {
    said.strip_suffix("-log").unwrap_or(said) == wanted
}

/// Whether a server's log says that it takes connections. The X plugin says nearly the same of itself.
pub(super) fn says_ready(log: &str) -> bool {
    log.contains("mysqld: ready for connections")
}

/// Whether a server's log ends with an orderly shutdown.
pub(super) fn says_shut_down(log: &str) -> bool {
    log.contains("mysqld: Shutdown complete")
}

/// Lines of a server log that must not be there. InnoDB of 5.6 writes without a severity.
pub(super) fn log_errors(log: &str) -> Vec<&str> {
    const BAD: [&str; 4] = ["[ERROR]", "InnoDB: Error", "mysqld got signal", "Assertion failure"];
    log.lines()
        // A command line is not the server's.
        .filter(|line| !line.starts_with("$ ") && BAD.iter().any(|bad| line.contains(bad)))
        .collect()
}

/// What `check table` says of `tables` tables; the first line that is not good, `None` where all is well.
pub(super) fn bad_tables(text: &str, tables: usize) -> Option<String> {
    let checks: Vec<&str> = text.lines().filter(|line| line.contains("\tcheck\t")).collect();
    let bad = checks.iter().find(|line| !line.ends_with("\tcheck\tstatus\tOK"));
    match bad {
        Some(line) => Some((*line).to_owned()),
        None if checks.len() == tables => None,
        None => Some(format!("{} of {tables} tables were checked", checks.len())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_load_is_read_and_nothing_else() {
        let fine = Load {
            seconds: 1.25,
            clients: 2,
            each: 150,
        };
        let none = || Err("there is no line of results".to_owned());
        for (text, want) in [
            (",mixed,1.250,1.250,1.250,2,150\n", Ok(fine)),
            ("innodb,mixed,1.250,1.250,1.250,2,150\n", Ok(fine)),
            (
                "bin/mysqlslap: [Warning] a, b, c, d, e, f, g\n,mixed,1.250,1.250,1.250,2,150\n",
                Ok(fine),
            ),
            ("bin/mysqlslap: Cannot run query x ERROR : y\n", none()),
            (",mixed,nan,1.250,1.250,2,150\n", none()),
            (",mixed,1.250,1.250,1.250,2,-150\n", none()),
            (
                ",mixed,1.250,1.250,1.250,2,150\n,mixed,1.250,1.250,1.250,2,150\n",
                Err("there is more than one line of results".to_owned()),
            ),
        ] {
            assert_eq!(load(text), want, "{text}");
        }
        assert_eq!((fine.statements(), fine.rate()), (300, 240.0));
        assert_eq!(Load { seconds: 0.0, ..fine }.rate(), 300_000.0);
    }

    #[test]
    fn a_version_is_the_wanted_one_or_a_special_build() {
        for (said, wanted, same, special) in [
            ("5.6.21", "5.6.21", true, None),
            ("5.7.18-log", "5.7.18", true, None),
            ("8.0.33-25", "8.0.33-25", true, None),
            ("8.0.33", "8.0.33-25", false, None),
            ("8.0.33-25", "8.0.33", false, None),
            ("5.7.1", "5.7.18", false, None),
            ("5.7.18-debug", "5.7.18", false, Some("debugging")),
            ("5.7.18-debug-log", "5.7.18", false, Some("debugging")),
            ("8.0.40-asan", "8.0.40", false, Some("the address sanitizer")),
            ("8.0.40-0ubuntu1", "8.0.40", false, None),
        ] {
            assert_eq!(
                (is_version(said, wanted), special_build(said)),
                (same, special),
                "{said}"
            );
        }
    }

    #[test]
    fn logs_of_all_series_are_read() {
        let old = "2026-01-01 00:00:00 7 [Note] /p/bin/mysqld: ready for connections.\nVersion: '5.6.21'  socket: \
                   '/t/mysql.sock'  port: 0  Source distribution\n2026-01-01 00:00:01 7 [Note] /p/bin/mysqld: Shutdown \
                   complete\n";
        let new = "2026-01-01T00:00:00.000000Z 0 [System] [MY-010931] [Server] /p/bin/mysqld: ready for connections. \
                   Version: '8.0.40'  socket: '/t/mysql.sock'  port: 0  Source distribution.\n\
                   2026-01-01T00:00:01.000000Z 0 [System] [MY-010910] [Server] /p/bin/mysqld: Shutdown complete (mysqld \
                   8.0.40)  Source distribution.\n";
        for log in [old, new] {
            assert!(says_ready(log) && says_shut_down(log), "{log}");
            assert_eq!(log_errors(log), [""; 0]);
        }
        let plugin = "0 [System] [MY-011323] [Server] X Plugin ready for connections. Socket: /tmp/mysqlx.sock\n\
                      0 [Note] InnoDB: Shutdown completed; log sequence number 1\n";
        assert!(!says_ready(plugin) && !says_shut_down(plugin));
        for line in [
            "2026-01-01T00:00:00.000000Z 0 [ERROR] [MY-010119] [Server] Aborting",
            "2026-01-01 00:00:00 7f0 InnoDB: Error: page 3 log sequence number 5",
            "00:00:00 UTC - mysqld got signal 11 ;",
            "2026-01-01 00:00:00 7f0  InnoDB: Assertion failure in thread 1 in file x.cc line 2",
        ] {
            let log =
                format!("$ bin/mysql -e 'select \"[ERROR]\"'\n{line}\n2026-01-01 00:00:00 7 [Warning] an error\n");
            assert_eq!(log_errors(&log), [line]);
        }
    }

    #[test]
    fn checked_tables_are_counted() {
        let fine = "rows\t7\nbm_smoke.kept\tcheck\tstatus\tOK\nbm_smoke.made\tcheck\tstatus\tOK\n";
        assert_eq!(bad_tables(fine, 2), None);
        assert_eq!(bad_tables(fine, 3).unwrap(), "2 of 3 tables were checked");
        let bad = fine.replace("made\tcheck\tstatus\tOK", "made\tcheck\terror\tCorrupt");
        assert_eq!(bad_tables(&bad, 2).unwrap(), "bm_smoke.made\tcheck\terror\tCorrupt");
    }

    #[test]
    fn pairs_leave_out_what_is_no_row() {
        let got = pairs("mysql: [Warning] unknown\nversion\t8.0.40\nbasedir\t/p/\n");
        assert_eq!(
            got.into_iter().collect::<Vec<_>>(),
            [
                ("basedir".to_owned(), "/p/".to_owned()),
                ("version".to_owned(), "8.0.40".to_owned())
            ]
        );
    }
}
