//! Tests of the server commands against a prefix of shell scripts.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

const INITDB: &str = r#"#!/bin/sh
test "$1" = -D && test -z "$(ls -A "$2")" || exit 9
env | grep -q '^PG' && exit 8
echo 16 > "$2/PG_VERSION"
mkdir "$2/base"
echo '# defaults' > "$2/postgresql.conf"
"#;

/// Says the last `port` in its settings.
const POSTGRES: &str = r#"#!/bin/sh
cd "$2" && cat bm.conf user.conf 2>/dev/null | sed -n 's/^port = //p' | tail -n 1
"#;

/// Starts a copy of `sleep` that looks like a server: working directory, program, pid file.
const PG_CTL: &str = r#"#!/bin/sh
data=$2
for order; do :; done
case $order in
  start)
    cd "$data" && test "$(cat /proc/self/stat | cut -d' ' -f6)" = $$ || exit 9
    @PREFIX@/bin/server 60 < /dev/null >> "$4" 2>&1 &
    until test "$(readlink /proc/$!/exe)" = @PREFIX@/bin/server; do :; done
    printf '%s\n' $! "$data" 0 5999 "$data" 127.0.0.1 0 ready > postmaster.pid
    ;;
  stop)
    test "$3 $4" = '-m fast' || exit 9
    kill "$(head -n 1 "$data/postmaster.pid")" && rm "$data/postmaster.pid"
    ;;
esac
"#;

struct Fake {
    base: tempfile::TempDir,
    driver: Driver,
    /// For the commands on a running server, whose program cannot be a script.
    runner: Driver,
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A failed test must not leave its server behind.
        for dir in fs::read_dir(self.base.path()).unwrap().flatten() {
            let pid = fs::read_to_string(dir.path().join("postmaster.pid")).unwrap_or_default();
            let pid = pid.lines().next().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Fake {
    fn new() -> Self {
        let base = tempfile::Builder::new().prefix("bm-fake-").tempdir_in("/tmp").unwrap();
        let driver = |server: &str| Driver {
            init: Some("initdb".into()),
            server: Some(server.into()),
            ..Driver::default()
        };
        let fake = Fake {
            base,
            driver: driver("bin/postgres"),
            runner: driver("bin/server"),
        };
        fs::create_dir_all(fake.at("prefix/bin")).unwrap();
        for dir in ["", "prefix", "prefix/bin"] {
            fs::set_permissions(fake.at(dir), PermissionsExt::from_mode(0o755)).unwrap();
        }
        fs::copy("/bin/sleep", fake.at("prefix/bin/server")).unwrap();
        fake.script("initdb", INITDB);
        fake.script("postgres", POSTGRES);
        fake.script("pg_ctl", PG_CTL);
        fake
    }

    fn at(&self, path: &str) -> PathBuf {
        self.base.path().join(path)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.at("prefix/bin").join(name);
        fs::write(&path, text.replace("@PREFIX@", self.at("prefix").to_str().unwrap())).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn init(&self, datadir: &Path, opts: &ServerOpts) -> Result<State> {
        init(&self.at("prefix"), &self.driver, datadir, opts, &Cancel::default())
    }

    /// With a cluster in `data`.
    fn with_cluster() -> Self {
        let fake = Fake::new();
        fake.init(&fake.at("data"), &port(5999)).unwrap();
        fake
    }

    fn start(&self) -> Result<Change> {
        start(&self.at("prefix"), &self.runner, &self.at("data"), &Cancel::default())
    }

    fn stop(&self) -> Result<Change> {
        stop(&self.at("prefix"), &self.runner, &self.at("data"), &Cancel::default())
    }
}

fn port(port: u16) -> ServerOpts {
    ServerOpts {
        port,
        ..ServerOpts::default()
    }
}

#[test]
fn a_cluster_belongs_to_its_account_and_knows_its_settings() {
    let fake = Fake::new();
    let config = fake.at("my.conf");
    fs::write(&config, "shared_buffers = 1GB").unwrap();
    let opts = ServerOpts {
        config: Some(config),
        superuser: Some("mark".into()),
        ..port(5999)
    };
    let state = fake.init(&fake.at("data"), &opts).unwrap();
    let data = fake.at("data");
    let place = data.display().to_string();
    assert_eq!(state.words(), ["-h", &place, "-p", "5999", "-U", "mark"]);
    assert_eq!(state.pid, None);
    let meta = fs::metadata(&data).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o700);
    assert_ne!(meta.uid(), 0, "servers refuse root");
    for file in ["bm.conf", "user.conf", "bm.json", "PG_VERSION"] {
        assert_eq!(fs::metadata(data.join(file)).unwrap().uid(), meta.uid(), "{file}");
    }
    assert_eq!(
        fs::read_to_string(data.join("user.conf")).unwrap(),
        "shared_buffers = 1GB"
    );
    let own = fs::read_to_string(data.join("bm.conf")).unwrap();
    assert!(own.contains("port = 5999\nlisten_addresses = '127.0.0.1'\n"), "{own}");
}

#[test]
fn a_place_that_does_not_fit_is_refused_and_left_alone() {
    let fake = Fake::new();
    fs::create_dir(fake.at("full")).unwrap();
    fs::write(fake.at("full/precious"), "x").unwrap();
    fs::write(fake.at("file"), "x").unwrap();
    std::os::unix::fs::symlink(fake.at("full"), fake.at("link")).unwrap();
    let long = "d".repeat(100);
    for (path, exit, want) in [
        ("full", Exit::Store, "is not empty"),
        ("link", Exit::Store, "is not empty"),
        ("file", Exit::Store, "is no directory"),
        ("none/data", Exit::Host, "no directory"),
        (long.as_str(), Exit::Usage, "is too long"),
        ("a\nb", Exit::Usage, "cannot be a data directory"),
        ("a,b", Exit::Usage, "cannot be a data directory"),
        ("a$(reboot)", Exit::Usage, "cannot be a data directory"),
    ] {
        let error = fake.init(&fake.at(path), &port(5999)).unwrap_err();
        assert!(
            error.exit() == exit && error.headline().contains(want),
            "{path}: {error}"
        );
    }
    assert_eq!(fs::read_to_string(fake.at("full/precious")).unwrap(), "x");
    assert_eq!(fake.init(&fake.at("data"), &port(0)).unwrap_err().exit(), Exit::Usage);
    let left = ["none", "data", &long].map(|path| fake.at(path).exists());
    assert_eq!(left, [false; 3]);
}

#[test]
fn after_a_failure_the_place_is_as_it_was() {
    for (initdb, postgres, settings, exit, want) in [
        (
            "mkdir \"$2/base\"; echo no >&2; exit 1",
            POSTGRES,
            "",
            Exit::Host,
            "cannot create a cluster",
        ),
        (
            INITDB,
            "#!/bin/sh\necho bad; exit 1",
            "",
            Exit::Host,
            "does not understand its settings",
        ),
        (
            INITDB,
            POSTGRES,
            "port = 7777\n",
            Exit::Usage,
            "the port asked for is not the one",
        ),
    ] {
        let fake = Fake::new();
        fake.script("initdb", &format!("#!/bin/sh\n{initdb}"));
        fake.script("postgres", postgres);
        let config = fake.at("my.conf");
        fs::write(&config, settings).unwrap();
        let opts = ServerOpts {
            config: Some(config),
            ..port(5999)
        };
        fs::create_dir(fake.at("empty")).unwrap();
        fs::set_permissions(fake.at("empty"), PermissionsExt::from_mode(0o751)).unwrap();
        for place in ["empty", "missing"] {
            let error = fake.init(&fake.at(place), &opts).unwrap_err();
            assert!(error.exit() == exit && error.headline().contains(want), "{error}");
        }
        assert!(!fake.at("missing").exists());
        let meta = fs::metadata(fake.at("empty")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o751, account::own_uid()));
        assert_eq!(fs::read_dir(fake.at("empty")).unwrap().count(), 0);
    }
}

#[test]
fn only_postgres_and_only_data_directories_are_served() {
    let fake = Fake::new();
    let mysql = Driver {
        init: Some("initialize-insecure".into()),
        ..Driver::default()
    };
    let error = status(&fake.at("prefix"), &mysql, &fake.at("data")).unwrap_err();
    assert_eq!(error.exit(), Exit::Usage);
    assert!(error.to_string().contains("initialize-insecure"), "{error}");
    fs::create_dir(fake.at("data")).unwrap();
    for place in ["data", "missing"] {
        let error = status(&fake.at("prefix"), &fake.driver, &fake.at(place)).unwrap_err();
        assert!(
            error.exit() == Exit::Store && error.headline().contains("is no data directory"),
            "{error}"
        );
    }
}

#[test]
fn a_server_starts_once_and_stops_once() {
    let fake = Fake::with_cluster();
    let Change::Already(state) = fake.stop().unwrap() else {
        panic!("nothing ran");
    };
    assert_eq!(state.pid, None);
    let Change::Done(started) = fake.start().unwrap() else {
        panic!("it was not running");
    };
    let program = fake.at("prefix/bin/server").canonicalize().unwrap();
    assert_eq!((started.port, started.program.as_ref()), (Some(5999), Some(&program)));
    assert_eq!(fake.start().unwrap(), Change::Already(started.clone()));
    assert_eq!(
        status(&fake.at("prefix"), &fake.runner, &fake.at("data")).unwrap(),
        started
    );
    let Change::Done(stopped) = fake.stop().unwrap() else {
        panic!("it was running");
    };
    assert_eq!(stopped.pid, None);
    assert!(matches!(fake.stop().unwrap(), Change::Already(_)));
}

#[test]
fn waiting_for_a_start_can_be_interrupted() {
    let fake = Fake::with_cluster();
    fake.script("pg_ctl", "#!/bin/sh\nexec sleep 1000\n");
    let cancel = Cancel::default();
    cancel.request(crate::process::Urgency::Orderly);
    let error = start(&fake.at("prefix"), &fake.runner, &fake.at("data"), &cancel).unwrap_err();
    assert_eq!(error.exit(), Exit::Interrupted, "{error}");
}

#[test]
fn another_prefixs_server_is_left_alone() {
    let fake = Fake::with_cluster();
    let Change::Done(started) = fake.start().unwrap() else {
        panic!("it was not running");
    };
    // The same data directory, asked about by a build with another server program.
    for result in [
        start(&fake.at("prefix"), &fake.driver, &fake.at("data"), &Cancel::default()),
        stop(&fake.at("prefix"), &fake.driver, &fake.at("data"), &Cancel::default()),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.exit(), Exit::Store);
        assert!(error.to_string().contains("bin/server (pid "), "{error}");
    }
    assert_eq!(
        status(&fake.at("prefix"), &fake.driver, &fake.at("data")).unwrap(),
        started
    );
}

#[test]
fn a_server_that_does_not_start_shows_why() {
    let bind = "x UTC [7] LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use";
    for (log, want, shown) in [
        (bind, "the server's port is in use", "LOG:  could not bind IPv4"),
        ("x UTC [7] FATAL:  no space", "did not start", "FATAL:  no space"),
        ("", "did not start", "pg_ctl: could not start"),
    ] {
        let fake = Fake::with_cluster();
        let fails =
            format!("#!/bin/sh\ntest -n '{log}' && echo '{log}' >> \"$4\"\necho 'pg_ctl: could not start'\nexit 1");
        fake.script("pg_ctl", &fails);
        // What an earlier start wrote is not this one's reason.
        fs::write(fake.at("data/server.log"), format!("{bind}\n")).unwrap();
        fs::set_permissions(fake.at("data/server.log"), PermissionsExt::from_mode(0o666)).unwrap();
        let error = fake.start().unwrap_err();
        assert_eq!(error.exit(), Exit::Host);
        assert!(
            error.headline().contains(want) && error.to_string().contains(shown),
            "{error}"
        );
    }
}

/// `BM_TEST_POSTGRES` is the prefix.
#[test]
#[ignore = "needs a real prefix in BM_TEST_POSTGRES"]
fn a_real_server_can_be_used() {
    let prefix = PathBuf::from(std::env::var_os("BM_TEST_POSTGRES").unwrap());
    let fake = Fake::new();
    let data = fake.at("it's data");
    // A port that is free now, and taken again below.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let number = listener.local_addr().unwrap().port();
    let made = init(&prefix, &fake.driver, &data, &port(number), &Cancel::default()).unwrap();
    let error = start(&prefix, &fake.driver, &data, &Cancel::default()).unwrap_err();
    assert_eq!(error.headline(), "the server's port is in use", "{error}");
    drop(listener);
    let Change::Done(started) = start(&prefix, &fake.driver, &data, &Cancel::default()).unwrap() else {
        panic!("it was not running");
    };
    assert_eq!(started.words(), made.words());
    let select = std::process::Command::new(prefix.join("bin/psql"))
        .env_clear()
        .args(started.words())
        .args(["-d", "postgres", "-X", "-A", "-t", "-c", "show data_checksums"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&select.stdout), "on\n", "{select:?}");
    assert_eq!(
        start(&prefix, &fake.driver, &data, &Cancel::default()).unwrap(),
        Change::Already(started)
    );
    assert!(matches!(
        stop(&prefix, &fake.driver, &data, &Cancel::default()).unwrap(),
        Change::Done(_)
    ));
    assert!(matches!(
        stop(&prefix, &fake.driver, &data, &Cancel::default()).unwrap(),
        Change::Already(_)
    ));
}
