//! Tests of the smoke test of the MySQL family against a prefix of shell scripts that can misbehave.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::error::{Exit, Result};
use crate::model::recipe;
use crate::process::Cancel;
use crate::smoke::{SmokeExpect, fake::Fake};

/// Behaves like `mysqld`: `@PROC@` is what the test takes for `/proc`. The file that stands for the socket holds the
/// process id, so that the fake mysqladmin can reach the server.
const MYSQLD: &str = r#"#!/bin/sh
test "$1" = --no-defaults || exit 9
env | grep -q '^MYSQL' && exit 8
for word; do
  case $word in
    --datadir=*) data=${word#*=} ;;
    --socket=*) socket=${word#*=} ;;
    --initialize-insecure) new=yes ;;
    --skip-networking) quiet=yes ;;
  esac
done
if test "$new"; then
  test -z "$(ls -A "$data")" || exit 9
  mkdir "$data/mysql"
  exit 0
fi
test -d "$data/mysql" && test "$quiet" || exit 9
say() { echo "2026-01-01T00:00:00.000000Z 0 [$1] [MY-010931] [Server] @PREFIX@/bin/mysqld: $2"; }
say System 'starting as process'
mkdir @PROC@/$$ && ln -s @PREFIX@/bin/mysqld @PROC@/$$/exe && cp @PREFIX@/maps @PROC@/$$/maps
stop() {
  # Gone, and not only told to go, before the server is.
  kill $child
  wait $child
  rm -f "$socket"
  say System 'Shutdown complete (mysqld 8.0.40)  Source distribution.'
  exit 0
}
trap stop TERM
sleep 1000 &
child=$!
mkdir @PROC@/$child
echo $$ > "$socket"
say System "ready for connections. Version: '8.0.40'  socket: '$socket'  port: 0  Source distribution."
while :; do wait $child; done
"#;

/// Behaves like the script of 5.6, which makes tables through a server of its own and does not look how that ends.
const INSTALL_DB: &str = r#"#!/bin/sh
for word; do
  case $word in
    --datadir=*) data=${word#*=} ;;
    --defaults-file=*) test -f "${word#*=}" && test ! -s "${word#*=}" && empty=yes ;;
    --keep-my-cnf) keep=yes ;;
  esac
done
test "$1" != --no-defaults && test "$empty" && test "$keep" || exit 9
mkdir "$data/mysql" && touch "$data/mysql/user.frm"
exit 0
"#;

const MYSQLADMIN: &str = r#"#!/bin/sh
test "$1 $2" = '--no-defaults --protocol=socket' || exit 9
for word; do
  case $word in --socket=*) socket=${word#*=} ;; esac
  last=$word
done
case $last in
  ping) test -f "$socket" && echo 'mysqld is alive' ;;
  shutdown) kill -TERM "$(cat "$socket")" ;;
esac
"#;

const MYSQL: &str = r#"#!/bin/sh
test "$1 $2" = '--no-defaults --protocol=socket' || exit 9
for word; do
  case $word in --socket=*) socket=${word#*=} ;; esac
  last=$word
done
row() { printf '%s\t%s\n' "$@"; }
case $last in
  *'version()'*)
    row 'version()' 8.0.40 version 8.0.40 version_comment 'Source distribution' basedir @PREFIX@/ log_bin ON ;;
  *'from information_schema.engines'*) row InnoDB DEFAULT ;;
  *'create table'*) ;;
  *'from information_schema.tables'*) row kept InnoDB made InnoDB; echo '@KEPT@' ;;
  *'/proc/$PPID/maps'*) cat @PREFIX@/maps.mysql ;;
  *'check table'*)
    n=0
    while read -r m; do n=$((n + m)); done < "$socket.made"
    row rows $n updates $n
    printf '%s\tcheck\tstatus\tOK\n' bm_smoke.kept bm_smoke.made ;;
  *) echo "unexpected: $last"; exit 7 ;;
esac
"#;

const MYSQLSLAP: &str = r#"#!/bin/sh
test "$1 $2" = '--no-defaults --protocol=socket' || exit 9
for word; do
  case $word in
    --socket=*) socket=${word#*=} ;;
    --number-of-queries=*) n=${word#*=} ;;
  esac
done
echo $((n / 3)) >> "$socket.made"
echo ",mixed,0.300,0.300,0.300,2,$((n / 2))"
"#;

const MAPS: &str = "5-6 r-xp 0 08:01 1 @PREFIX@/bin/mysqld\n\
                    6-7 r-xp 0 08:01 2 @PREFIX@/lib/private/libprotobuf-lite.so.3\n\
                    7-8 r-xp 0 08:01 3 /usr/lib/libc.so.6\n";

fn prefix() -> Fake {
    Fake::of(&[
        ("bin/mysqld", MYSQLD),
        ("bin/mysql", &MYSQL.replace("@KEPT@", &rows_written())),
        ("bin/mysqladmin", MYSQLADMIN),
        ("bin/mysqlslap", MYSQLSLAP),
        ("maps", MAPS),
        ("maps.mysql", MAPS),
    ])
}

fn expect(version: &str) -> SmokeExpect {
    SmokeExpect::version(version)
}

fn test(fake: &Fake, expect: &SmokeExpect) -> Result<Smoke> {
    fake.run(recipe::Smoke::Mysql, expect, &Cancel::default())
}

#[test]
fn the_checksum_is_that_of_the_rows() {
    // seq 8192 | sed 's/^/row /' | paste -sd, | tr -d '\n' | sha256sum
    assert_eq!(
        rows_written(),
        "8192\t33558528\te278466b49c7de46cd14bc929e9385fc40d3dc5c6695d9902f6da36f69182c7b"
    );
}

#[test]
fn a_good_prefix_passes_and_says_what_was_done() {
    let fake = prefix();
    let smoke = test(&fake, &expect("8.0.40")).unwrap();
    // 300 statements in 0.3 s ask for 3000 in 3 s, and those take the fake 0.3 s again.
    assert_eq!((smoke.rows, smoke.tps), (8192, 10_000.0));
    assert_eq!(
        (smoke.server["version"].as_str(), smoke.server["engine"].as_str()),
        ("8.0.40", "InnoDB")
    );
    assert!(!smoke.server.contains_key("performance_schema"), "{:?}", smoke.server);
    let own = fake
        .at("prefix/lib/private/libprotobuf-lite.so.3")
        .display()
        .to_string();
    assert_eq!(smoke.mapped, [own, "/usr/lib/libc.so.6".to_owned()]);
    assert_eq!(smoke.warnings, [""; 0]);
    assert_ne!(smoke.uid, 0, "a server never runs as root");
    assert_eq!(smoke.did.len(), 8, "{:?}", smoke.did);
    assert_eq!(fake.started(), 2, "the fake server and its child were seen");
    let log = fs::read_to_string(fake.at("log")).unwrap();
    assert!(
        log.contains("--initialize-insecure") && !log.contains("--loose-innodb=ON"),
        "{log}"
    );
}

#[test]
fn an_old_server_gets_its_tables_from_the_script() {
    let fake = prefix();
    for (file, from, to) in [
        ("bin/mysql", "8.0.40", "5.6.21-log"),
        (
            "bin/mysqld",
            "--initialize-insecure) new=yes",
            "--initialize-insecure) exit 9",
        ),
    ] {
        fake.edit(file, from, to);
    }
    let error = test(&fake, &expect("5.6.21")).unwrap_err();
    assert_eq!(error.headline(), "the prefix has no `scripts/mysql_install_db`");
    fake.write("scripts/mysql_install_db", INSTALL_DB);
    let smoke = test(&fake, &expect("5.6.21")).unwrap();
    assert_eq!(smoke.did[0], "mysql_install_db");
    for (from, to) in [
        ("user.frm", "other.frm"),
        ("other.frm\"\n", "user.frm\"\necho '7 [ERROR] Aborting'\n"),
    ] {
        fake.edit("scripts/mysql_install_db", from, to);
        let error = test(&fake, &expect("5.6.21")).unwrap_err();
        assert!(
            error.headline().ends_with("made no whole set of system tables"),
            "{error}"
        );
    }
}

#[test]
fn another_engine_is_switched_on_and_asked_for() {
    let fake = prefix();
    fake.edit("bin/mysql", "row InnoDB DEFAULT", "row ROCKSDB YES");
    fake.edit(
        "bin/mysql",
        "row kept InnoDB made InnoDB",
        "row kept ROCKSDB made ROCKSDB",
    );
    let expect = SmokeExpect {
        engine: "rocksdb".into(),
        ..expect("8.0.40")
    };
    assert_eq!(test(&fake, &expect).unwrap().server["engine"], "ROCKSDB");
    let log = fs::read_to_string(fake.at("log")).unwrap();
    assert!(
        log.contains("--loose-rocksdb=ON") && log.contains("engine = rocksdb"),
        "{log}"
    );
}

#[test]
fn a_private_dependency_is_not_foreign() {
    let fake = prefix();
    let tree = fake.at("openssl-1.1.1w");
    fs::create_dir(&tree).unwrap();
    let library = format!("7-8 r-xp 0 08:01 3 {}/lib/libssl.so.1.1\n", tree.display());
    fake.write("maps", &format!("{MAPS}{library}"));
    let error = test(&fake, &expect("8.0.40")).unwrap_err();
    assert!(error.headline().contains("maps the foreign library"), "{error}");
    let expect = SmokeExpect {
        libraries: vec![tree],
        ..expect("8.0.40")
    };
    test(&fake, &expect).unwrap();
}

#[test]
fn a_slow_load_warns() {
    let fake = prefix();
    fake.edit("bin/mysqlslap", ",mixed,0.300", ",mixed,100.000");
    let smoke = test(&fake, &expect("8.0.40")).unwrap();
    // 3 statements per second ask for less than the least: 10 rounds of 6 statements.
    assert!(
        smoke.warnings[0].starts_with("slow: 0.6 statements"),
        "{:?}",
        smoke.warnings
    );
}

#[test]
fn each_misbehaviour_fails_with_its_own_headline_and_leaves_nothing() {
    for (file, from, to, want) in [
        (
            "bin/mysqld",
            "  mkdir \"$data/mysql\"",
            "  exit 3",
            "cannot make a data directory: `bin/mysqld` exited with status 3",
        ),
        (
            "bin/mysqld",
            "trap stop TERM",
            "say ERROR 'no more'; exit 1",
            "the server ended before it took connections",
        ),
        (
            "bin/mysqld",
            "ready for",
            "not for",
            "the server took no connections within",
        ),
        (
            "bin/mysqld",
            "trap stop TERM",
            "trap '' TERM",
            "the server did not stop within",
        ),
        (
            "bin/mysqld",
            "  exit 0\n}",
            "  exit 2\n}",
            "the server did not stop cleanly",
        ),
        (
            "bin/mysqld",
            "  say System 'Shutdown",
            "  say System 'Shut",
            "does not say that it was shut down",
        ),
        (
            "bin/mysqld",
            "say System 'starting",
            "say ERROR 'starting",
            "the server's log has an error",
        ),
        (
            "bin/mysqladmin",
            "echo 'mysqld is alive'",
            "echo",
            "the server does not answer",
        ),
        (
            "bin/mysqladmin",
            "kill -TERM",
            "exit 1 #",
            "cannot ask the server to stop: `bin/mysqladmin` exited with status 1",
        ),
        (
            "bin/mysql",
            "'version()' 8.0.40",
            "'version()' 8.0.39",
            "the server is of another version",
        ),
        (
            "bin/mysql",
            "'version()' 8.0.40",
            "'version()' 8.0.40-debug",
            "the server is a build for debugging",
        ),
        (
            "bin/mysql",
            "log_bin ON",
            "innodb_sync_debug OFF",
            "the server is a build for debugging",
        ),
        (
            "bin/mysql",
            "row 'version()'",
            "echo",
            "the server's answers cannot be read",
        ),
        (
            "bin/mysql",
            "basedir @PREFIX@/",
            "basedir /usr/",
            "the server looks for its files in another place",
        ),
        (
            "bin/mysql",
            "row InnoDB DEFAULT",
            "",
            "the server has no engine `innodb`",
        ),
        (
            "bin/mysql",
            "row InnoDB DEFAULT",
            "row InnoDB DISABLED",
            "the server has no engine `innodb`",
        ),
        (
            "bin/mysql",
            "made InnoDB",
            "made MyISAM",
            "a table is not of the engine asked for",
        ),
        (
            "bin/mysql",
            "*'create table'*) ;;",
            "*'create table'*) exit 1 ;;",
            "cannot write rows",
        ),
        (
            "bin/mysql",
            "echo '8192",
            "echo '8191",
            "the rows read back are not those written",
        ),
        ("bin/mysql", "row rows $n", "row rows 1", "the load lost rows"),
        ("bin/mysql", "updates $n", "updates NULL", "the load lost updates"),
        (
            "bin/mysql",
            "tstatus\\tOK",
            "terror\\tCorrupt",
            "a table is damaged after the load",
        ),
        (
            "maps",
            "/usr/lib/libc",
            "/opt/x/libc",
            "the server maps the foreign library `/opt/x/libc.so.6`",
        ),
        (
            "maps.mysql",
            "/usr/lib/libc",
            "/usr/local/lib/libc",
            "mysql maps the foreign library `/usr/local/lib/libc.so.6`",
        ),
        (
            "bin/mysqlslap",
            "echo \",mixed",
            "exit 1 #",
            "the load failed: `bin/mysqlslap` exited with status 1",
        ),
        (
            "bin/mysqlslap",
            "echo \",mixed",
            "exit 0 #",
            "cannot read the result of the load",
        ),
        ("bin/mysqlslap", "$((n / 2))", "7", "the load was not the one asked for"),
    ] {
        let mut fake = prefix();
        // Paths are already written out in the scripts.
        let from = from.replace("@PREFIX@", &fake.at("prefix").display().to_string());
        fake.edit(file, &from, to);
        // Short where the bound is what is tested, and never reached elsewhere.
        if want.ends_with("stop within") {
            fake.terms.stop = Duration::from_millis(200);
        } else if want.ends_with("within") {
            fake.terms.start = Duration::from_millis(300);
        }
        let error = test(&fake, &expect("8.0.40")).unwrap_err();
        assert!(error.headline().contains(want), "{file}: {from} -> {to}: {error}");
        assert_eq!(error.exit(), Exit::Proof, "{error}");
        assert!(error.details().iter().any(|(label, _)| label == "log"), "{error}");
    }
}

#[test]
fn the_last_words_of_a_server_that_dies_are_shown() {
    let fake = prefix();
    fake.edit("bin/mysqld", "trap stop TERM", "say ERROR 'no more room'; exit 1");
    let error = test(&fake, &expect("8.0.40")).unwrap_err();
    let detail = |wanted: &str| {
        let found = error.details().iter().find(|(label, _)| label == wanted);
        found.unwrap().1.clone()
    };
    assert_eq!(detail("bin/mysqld"), "exited with status 1");
    assert!(detail("log").ends_with("mysqld: no more room"), "{error}");
}

#[test]
fn a_missing_program_is_named_before_anything_runs() {
    let fake = prefix();
    fs::remove_file(fake.at("prefix/bin/mysqlslap")).unwrap();
    let error = test(&fake, &expect("8.0.40")).unwrap_err();
    assert_eq!(
        (error.headline(), error.exit()),
        ("the prefix has no `bin/mysqlslap`", Exit::Proof)
    );
    assert!(!fake.at("log").exists());
}

#[test]
fn the_script_is_for_servers_that_cannot_do_it_themselves() {
    for (version, script) in [
        ("5.6.21", true),
        ("5.6.51", true),
        ("5.7.5-m15", true),
        ("5.7.10", false),
        ("8.0.33-25", false),
        ("9.7.2", false),
    ] {
        assert_eq!(needs_script(version), script, "{version}");
    }
}

/// `BM_TEST_MYSQL` is the prefix, `BM_TEST_MYSQL_VERSION` what its server says it is.
#[test]
#[ignore = "needs a real prefix in BM_TEST_MYSQL"]
fn a_real_server_passes() {
    let prefix = PathBuf::from(std::env::var_os("BM_TEST_MYSQL").unwrap());
    let version = std::env::var("BM_TEST_MYSQL_VERSION").unwrap();
    let fake = Fake::of(&[]);
    let (scratch, log) = (fake.at("scratch"), fake.at("log"));
    let test = |version: &str| {
        let kind = recipe::Smoke::Mysql;
        crate::smoke::run(&prefix, kind, &expect(version), &scratch, &log, &Cancel::default())
    };
    let smoke = test(&version).unwrap();
    assert!(smoke.tps > 0.0 && !smoke.mapped.is_empty(), "{smoke:#?}");
    // Of the same series, so that the data directory is made in the same way.
    let error = test(&format!("{version}9")).unwrap_err();
    assert_eq!(error.headline(), "the server is of another version");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}
