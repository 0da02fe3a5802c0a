//! Tests of the whole smoke test against a prefix of shell scripts that can misbehave.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Behaves like `initdb`, as far as the smoke test can tell.
const INITDB: &str = r#"#!/bin/sh
test "$1" = -D && test -d "$2" && test -z "$(ls -A "$2")" || exit 9
env | grep -q '^PG' && exit 8
echo 16 > "$2/PG_VERSION"
"#;

/// Behaves like `postgres`: `@PROC@` is what the test takes for `/proc`.
const POSTGRES: &str = r#"#!/bin/sh
while test $# -gt 0; do
  case $1 in -D) data=$2 ;; -k) socket=$2 ;; -p) port=$2 ;; esac
  shift 2
done
say() { echo "2026-01-01 00:00:00.000 UTC [$$] $*"; }
say 'LOG:  starting PostgreSQL'
mkdir @PROC@/$$ && ln -s @PREFIX@/bin/postgres @PROC@/$$/exe && cp @PREFIX@/maps @PROC@/$$/maps
: > "$socket/.s.PGSQL.$port"
stop() {
  say 'LOG:  received fast shutdown request'
  # Gone, and not only told to go, before the server is.
  kill $child
  wait $child
  rm -f "$socket/.s.PGSQL.$port" "$data/postmaster.pid"
  say 'LOG:  database system is shut down'
  exit 0
}
trap stop INT
sleep 1000 &
child=$!
mkdir @PROC@/$child
printf '%s\n' $$ "$data" 0 $port "$socket" '' 0 ready > "$data/postmaster.pid"
while :; do wait $child; done
"#;

const PSQL: &str = r#"#!/bin/sh
case "$*" in
  *'select version()'*) printf '%s\n' 'PostgreSQL 16.4' 16.4 160004 off on 8192 8192 ;;
  *'create table'*) echo '@ROWS@' ;;
  *'create index'*) printf '%s\n' 'Index Only Scan using bm_smoke_v on bm_smoke' 'row 4711' ;;
  *'create extension'*) ;;
  *'from pgstattuple('*) echo 10000 ;;
  *'pg_read_file('*) cat @PREFIX@/maps.backend ;;
  *'/proc/$PPID/maps'*) cat @PREFIX@/maps.psql ;;
  *) echo "unexpected: $*"; exit 7 ;;
esac
"#;

const PGBENCH: &str = r#"#!/bin/sh
test "$1" = -i && exit 0
cat <<'TEXT'
number of transactions actually processed: 300
number of failed transactions: 0 (0.000%)
tps = 100.5 (without initial connection time)
TEXT
"#;

const MAPS: &str = "5-6 r-xp 0 08:01 1 @PREFIX@/bin/postgres\n\
                    6-7 r-xp 0 08:01 2 @PREFIX@/lib/libpq.so.5\n\
                    7-8 r-xp 0 08:01 3 /usr/lib/libc.so.6\n";

/// A prefix of scripts, a scratch directory, a log, and stand-ins for `/proc` and `/tmp`.
pub(super) struct Fake {
    base: tempfile::TempDir,
    pub(super) terms: Terms,
}

impl Fake {
    fn new() -> Self {
        Fake::of(&[
            ("bin/initdb", INITDB),
            ("bin/postgres", POSTGRES),
            ("bin/psql", PSQL),
            ("bin/pgbench", PGBENCH),
            ("lib/libpq.so.5", ""),
            ("maps", MAPS),
            ("maps.backend", MAPS),
            ("maps.psql", MAPS),
        ])
    }

    /// A prefix of these files. In their text `@PREFIX@` and `@PROC@` are places, `@ROWS@` what psql shows of the rows.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        // Below /tmp, for TMPDIR may be closed to the account the programs run as.
        let base = tempfile::Builder::new().prefix("bm-fake-").tempdir_in("/tmp").unwrap();
        let fake = Fake {
            terms: Terms {
                proc: base.path().join("proc"),
                sockets: base.path().join("tmp"),
                ..Terms::default()
            },
            base,
        };
        for (dir, mode) in [
            ("", 0o755),
            ("proc", 0o777),
            ("tmp", 0o777),
            ("scratch", 0o711),
            ("prefix", 0o755),
            ("prefix/bin", 0o755),
            ("prefix/lib", 0o755),
            ("prefix/scripts", 0o755),
        ] {
            let dir = fake.at(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
        }
        for (file, text) in files {
            fake.write(file, text);
        }
        fake
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.base.path().join(path)
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        let text = text
            .replace("@PREFIX@", &self.at("prefix").display().to_string())
            .replace("@PROC@", &self.terms.proc.display().to_string())
            .replace("@ROWS@", &postgres::rows_written());
        let path = self.at("prefix").join(file);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Changes one thing in a script.
    pub(super) fn edit(&self, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.at("prefix").join(file)).unwrap();
        assert!(text.contains(from), "`{from}` is not in {file}");
        self.write(file, &text.replace(from, to));
    }

    /// Runs the test and checks that nothing is left behind, however it ended.
    pub(super) fn run(&self, kind: Smoke, expect: &SmokeExpect, cancel: &Cancel) -> Result<manifest::Smoke> {
        let (prefix, scratch, log) = (self.at("prefix"), self.at("scratch"), self.at("log"));
        let test = Test {
            prefix: &prefix,
            expect,
            scratch: &scratch,
            log: &log,
            cancel,
            terms: &self.terms,
        };
        let result = match kind {
            Smoke::Postgres => postgres::run(test),
            Smoke::Mysql => mysql::run(test),
            Smoke::Command => test.command(),
            Smoke::Files => unreachable!("it runs nothing"),
        };
        for dir in ["scratch", "tmp"] {
            let left: Vec<_> = fs::read_dir(self.at(dir)).unwrap().map(|e| e.unwrap().path()).collect();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
        for pid in fs::read_dir(&self.terms.proc).unwrap() {
            let pid = pid.unwrap().file_name();
            assert!(
                !Path::new("/proc").join(&pid).exists(),
                "process {pid:?} is still there"
            );
        }
        result
    }

    fn postgres(&self) -> Result<manifest::Smoke> {
        self.run(Smoke::Postgres, &SmokeExpect::version("16.4"), &Cancel::default())
    }

    pub(super) fn started(&self) -> usize {
        fs::read_dir(&self.terms.proc).unwrap().count()
    }
}

#[test]
fn a_good_prefix_passes_and_says_what_was_done() {
    let fake = Fake::new();
    let smoke = fake.postgres().unwrap();
    assert_eq!((smoke.rows, smoke.tps), (10_000, 100.5));
    assert_eq!(smoke.server["server_version_num"], "160004");
    let own = fake.at("prefix/lib/libpq.so.5").display().to_string();
    assert_eq!(smoke.mapped, [own, "/usr/lib/libc.so.6".to_owned()]);
    assert_eq!(smoke.warnings, [""; 0]);
    assert_ne!(smoke.uid, 0, "a server never runs as root");
    assert_eq!(smoke.did.len(), 9, "{:?}", smoke.did);
    assert_eq!(fake.started(), 2, "the fake server and its child were seen");
    let log = fs::read_to_string(fake.at("log")).unwrap();
    assert!(
        log.contains("/bin/initdb -D ") && log.contains("LOG:  database system is shut down"),
        "{log}"
    );
}

#[test]
fn a_slow_load_warns() {
    let fake = Fake::new();
    fake.edit("bin/pgbench", "tps = 100.5", "tps = 1.5");
    let smoke = fake.postgres().unwrap();
    assert!(
        smoke.warnings[0].starts_with("slow: 1.5 transactions"),
        "{:?}",
        smoke.warnings
    );
}

#[test]
fn each_misbehaviour_fails_with_its_own_headline_and_leaves_nothing() {
    for (file, from, to, want) in [
        (
            "bin/initdb",
            "echo 16",
            "exit 3; echo 16",
            "cannot create a cluster: `bin/initdb` exited with status 3",
        ),
        (
            "bin/initdb",
            "#!/bin/sh",
            "#!/nonexistent/sh",
            "cannot create a cluster: `bin/initdb` could not be started",
        ),
        (
            "bin/postgres",
            "trap stop INT",
            "say 'FATAL:  no'; exit 1",
            "the server ended before it took connections",
        ),
        (
            "bin/postgres",
            "0 ready",
            "0 starting",
            "the server took no connections within",
        ),
        (
            "bin/postgres",
            "trap stop INT",
            "trap '' INT",
            "the server did not stop within",
        ),
        (
            "bin/postgres",
            "  exit 0",
            "  exit 2",
            "the server did not stop cleanly",
        ),
        (
            "bin/postgres",
            "  say 'LOG:  database system is shut down'",
            "",
            "does not say that it was shut down",
        ),
        (
            "bin/postgres",
            "say 'LOG:  starting",
            "say 'PANIC:  starting",
            "the server's log has an error",
        ),
        (
            "bin/psql",
            "16.4 160004",
            "16.3 160003",
            "the server is of another version",
        ),
        (
            "bin/psql",
            "16.4 160004",
            "'16.4 (Debian 16.4-1)' 160004",
            "the server is of another version",
        ),
        (
            "bin/psql",
            "160004 off on",
            "160004 on on",
            "the server was built with assertions",
        ),
        (
            "bin/psql",
            "160004 off on",
            "160004 off off",
            "the cluster has no data checksums",
        ),
        ("bin/psql", " 8192 8192", " 8192", "the server's answers cannot be read"),
        (
            "bin/psql",
            "echo '10000|",
            "echo '9999|",
            "the rows read back are not those written",
        ),
        (
            "bin/psql",
            "Index Only Scan",
            "Seq Scan",
            "an index-only query does not use its index",
        ),
        (
            "bin/psql",
            "'row 4711'",
            "'row 4712'",
            "an index-only query has a wrong answer",
        ),
        (
            "bin/psql",
            "*'create extension'*) ;;",
            "*'create extension'*) exit 3 ;;",
            "extension `pgstattuple` does not",
        ),
        ("bin/psql", "echo 10000", "echo 1", "`pgstattuple` counts wrongly"),
        (
            "maps",
            "/usr/lib/libc",
            "/opt/x/libc",
            "the server maps the foreign library `/opt/x/libc.so.6`",
        ),
        (
            "maps.backend",
            "/usr/lib/libc",
            "/usr/local/lib/libc",
            "a session of the server maps the foreign library",
        ),
        (
            "maps.psql",
            "libc.so.6",
            "libpq.so.5",
            "psql maps the foreign library `/usr/lib/libpq.so.5`",
        ),
        (
            "bin/pgbench",
            "exit 0",
            "exit 1",
            "cannot prepare the load: `bin/pgbench` exited with status 1",
        ),
        (
            "bin/pgbench",
            "transactions: 0",
            "transactions: 4",
            "transactions of the load failed",
        ),
        (
            "bin/pgbench",
            "processed: 300",
            "processed: 0",
            "transactions of the load failed",
        ),
        ("bin/pgbench", "tps", "speed", "cannot read the result of the load"),
    ] {
        let mut fake = Fake::new();
        fake.edit(file, from, to);
        // Short where the bound is what is tested, and never reached elsewhere.
        if want.ends_with("within") {
            fake.terms.stop = Duration::from_millis(200);
            fake.terms.start = if want.contains("took") {
                Duration::from_millis(300)
            } else {
                fake.terms.start
            };
        }
        let error = fake.postgres().unwrap_err();
        assert!(error.headline().contains(want), "{file}: {from} -> {to}: {error}");
        assert_eq!(error.exit(), Exit::Proof, "{error}");
        assert!(error.details().iter().any(|(label, _)| label == "log"), "{error}");
    }
}

#[test]
fn a_missing_program_is_named_before_anything_runs() {
    let fake = Fake::new();
    fs::remove_file(fake.at("prefix/bin/pgbench")).unwrap();
    let error = fake.postgres().unwrap_err();
    assert_eq!(
        (error.headline(), error.exit()),
        ("the prefix has no `bin/pgbench`", Exit::Proof)
    );
    assert!(!fake.at("log").exists());
}

#[test]
fn root_needs_a_scratch_directory_that_others_can_pass() {
    let fake = Fake::new();
    fs::set_permissions(fake.at("scratch"), PermissionsExt::from_mode(0o700)).unwrap();
    match fake.postgres() {
        Ok(_) => assert!(!account::is_root(), "nobody cannot pass a closed directory"),
        Err(error) => {
            assert_eq!(error.exit(), Exit::Host);
            assert!(error.headline().contains("/scratch`"), "{error}");
            assert!(error.hint_text().unwrap().contains("BM_ROOT"), "{error}");
        }
    }
}

#[test]
fn what_a_killed_run_left_is_replaced() {
    let fake = Fake::new();
    fs::create_dir_all(fake.at("scratch/smoke/data/base")).unwrap();
    fake.postgres().unwrap();
}

#[test]
fn the_server_is_found_out_when_it_is_another_program() {
    let fake = Fake::new();
    fake.edit("bin/postgres", "/bin/postgres ", "/bin/psql ");
    let error = fake.postgres().unwrap_err();
    assert_eq!(error.headline(), "the running server is not the prefix's own program");
}

#[test]
fn an_interrupt_ends_client_and_server() {
    let fake = Fake::new();
    let fifo = fake.at("prefix/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    fs::set_permissions(&fifo, PermissionsExt::from_mode(0o666)).unwrap();
    let hang = format!(
        "*'create index'*) echo > {}; sleep 1000 ;;\n  *'no such'*)",
        fifo.display()
    );
    fake.edit("bin/psql", "*'create index'*)", &hang);
    let cancel = Cancel::default();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Returns when the client has begun.
            fs::read(&fifo).unwrap();
            cancel.request(crate::process::Urgency::Orderly);
        });
        fake.run(Smoke::Postgres, &SmokeExpect::version("16.4"), &cancel)
            .unwrap_err()
    });
    assert_eq!(error.exit(), Exit::Interrupted, "{error}");
    assert_eq!(fake.started(), 2);
}

#[test]
fn a_client_that_hangs_is_stopped() {
    let mut fake = Fake::new();
    fake.terms.call = Duration::from_millis(500);
    fake.edit("bin/pgbench", "test \"$1\" = -i", "test \"$1\" = -i && sleep 1000");
    let error = fake.postgres().unwrap_err();
    assert_eq!(error.exit(), Exit::Proof, "{error}");
    assert!(
        error
            .headline()
            .starts_with("cannot prepare the load: `bin/pgbench` was stopped: "),
        "{error}"
    );
}

/// `BM_TEST_POSTGRES` is the prefix, `BM_TEST_POSTGRES_VERSION` what its server says it is.
#[test]
#[ignore = "needs a real prefix in BM_TEST_POSTGRES"]
fn a_real_server_passes() {
    let prefix = PathBuf::from(std::env::var_os("BM_TEST_POSTGRES").unwrap());
    let version = std::env::var("BM_TEST_POSTGRES_VERSION").unwrap();
    let fake = Fake::new();
    let (scratch, log) = (fake.at("scratch"), fake.at("log"));
    let test = |version: &str| {
        let expect = SmokeExpect::version(version);
        run(&prefix, Smoke::Postgres, &expect, &scratch, &log, &Cancel::default())
    };
    let smoke = test(&version).unwrap();
    assert!(smoke.tps > 0.0 && !smoke.mapped.is_empty(), "{smoke:#?}");
    let error = test("1.0").unwrap_err();
    assert_eq!(error.headline(), "the server is of another version");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn a_command_must_succeed() {
    let fake = Fake::new();
    for (script, want) in [
        ("#!/bin/sh\ntest \"$1\" = --version && touch ok && echo 5.3.0\n", None),
        (
            "#!/bin/sh\necho broken; exit 4\n",
            Some("smoke test: `bin/jeprof` exited with status 4"),
        ),
    ] {
        fake.write("bin/jeprof", script);
        let expect = SmokeExpect {
            command: vec!["bin/jeprof".into(), "--version".into()],
            ..SmokeExpect::version("5.3.0")
        };
        let result = fake.run(Smoke::Command, &expect, &Cancel::default());
        match (result, want) {
            (Ok(smoke), None) => assert_eq!(smoke.did, ["ran bin/jeprof --version"]),
            (Err(error), Some(want)) => {
                assert_eq!(error.headline(), want);
                assert!(error.to_string().contains("\n  broken"), "{error}");
            }
            (result, _) => panic!("{result:?}"),
        }
    }
    let error = fake
        .run(Smoke::Command, &SmokeExpect::version("5.3.0"), &Cancel::default())
        .unwrap_err();
    assert_eq!(error.exit(), Exit::Usage);
}
