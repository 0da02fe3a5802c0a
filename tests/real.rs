//! Real Postgres builds: the newest release this distribution has, plain and with everything on, built,
//! audited, tested, handed to a driver. Takes minutes, so `tests/run` asks for it by name.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        // As root the server runs as an unprivileged account, which must be able to come here.
        let dir = tempfile::Builder::new()
            .prefix("bm-real-")
            .tempdir_in("/var/tmp")
            .unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Store { dir }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn bm(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bm"))
            .args(args)
            .env("BM_ROOT", self.path("root"))
            .env("BM_CACHE", self.path("cache"))
            .env_remove("BM_FROM")
            .env_remove("BM_MIRROR")
            // Must change nothing.
            .env("CFLAGS", "-O0")
            .env("MAKEFLAGS", "-n")
            .env("COPT", "-O1")
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.bm(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "bm {args:?}: {}\n{stderr}", output.status);
        eprintln!("$ bm {}\n{stderr}", args.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn manifest(prefix: &str) -> Value {
    serde_json::from_slice(&std::fs::read(Path::new(prefix).join(".bm/manifest.json")).unwrap()).unwrap()
}

/// Levels, LTO and march of all units of the server's own program, from its debug information.
fn evidence(manifest: &Value) -> Vec<(String, bool, bool)> {
    let units = manifest["evidence"]["units"].as_array().unwrap();
    let of_server = units
        .iter()
        .filter(|u| u["file"] == "bin/postgres" && u["from"] == "dwarf");
    let mut seen: Vec<_> = of_server
        .map(|u| {
            (
                u["optimisation"].as_str().unwrap().to_owned(),
                u["lto"].as_bool().unwrap(),
                u["march"] != "",
            )
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

#[test]
#[ignore = "builds Postgres twice; tests/run asks for it"]
fn two_builds_of_the_distributions_postgres_prove_themselves_and_serve_a_driver() {
    let store = Store::new();
    store.ok(&["build", "pgdistro_def", "pgdistro_o3_native_lto"]);

    // Links carry the names that were asked for; the prefixes are named after the release.
    let paths = store.ok(&["path", "pg*"]);
    let prefixes: Vec<&str> = paths.lines().collect();
    assert_eq!(prefixes.len(), 2, "{paths}");
    let link = std::fs::read_link(store.path("root/pgdistro_def")).unwrap();
    assert!(prefixes[0].ends_with(link.to_str().unwrap()), "{prefixes:?} {link:?}");

    let (def, lto) = (manifest(prefixes[0]), manifest(prefixes[1]));
    assert_eq!(
        (def["variant"].as_str(), lto["variant"].as_str()),
        (Some("def"), Some("o3_native_lto"))
    );
    assert_eq!(evidence(&def), [("2".to_owned(), false, false)]);
    assert!(
        evidence(&lto)
            .iter()
            .all(|(level, lto, march)| level == "3" && *lto && *march),
        "{:?}",
        evidence(&lto)
    );
    for m in [&def, &lto] {
        assert!(m["audit"]["units"].as_u64().unwrap() > 1000, "{}", m["audit"]);
        assert_eq!(m["audit"]["findings"], serde_json::json!([]));
        assert_eq!(m["smoke"]["rows"], 10_000);
        assert_eq!(m["smoke"]["server"]["debug_assertions"], "off");
        assert_eq!(m["sources"][0]["sha256"].as_str().unwrap().len(), 64);
    }

    // Everything is there: nothing is built again.
    let again = store.bm(&["build", "pgdistro_def", "pgdistro_o3_native_lto"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("0 built, 2 fresh"));
    store.ok(&["verify", "pg*"]);
    store.ok(&["smoke", "pgdistro_o3_native_lto"]);

    // A database on a free port, through nothing but bm's commands.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let data = store.path("data");
    let data = data.to_str().unwrap();
    store.ok(&["server", "init", "pgdistro_def", "--datadir", data, "--port", &port]);
    store.ok(&["server", "start", "pgdistro_def", "--datadir", data]);
    let user = if rustix::process::geteuid().is_root() {
        "postgres".to_owned()
    } else {
        std::env::var("USER").unwrap()
    };
    let pgbench = [
        "exec",
        "pgdistro_def",
        "--",
        "pgbench",
        "-h",
        data,
        "-p",
        &port,
        "-U",
        &user,
    ];
    let run = |more: &[&str]| store.bm(&[&pgbench[..], more].concat());
    let init = run(&["-i", "-q", "postgres"]);
    let load = run(&["-T", "2", "-c", "2", "postgres"]);
    store.ok(&["server", "stop", "pgdistro_def", "--datadir", data]);
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
    assert!(
        load.status.success() && String::from_utf8_lossy(&load.stdout).contains("tps = "),
        "{load:?}"
    );

    // A driver over both, one after another.
    store.ok(&[
        "each",
        "pg*",
        "--logs",
        store.path("each").to_str().unwrap(),
        "--",
        "{prefix}/bin/postgres",
        "--version",
    ]);
    for prefix in &prefixes {
        let name = Path::new(prefix).file_name().unwrap().to_str().unwrap();
        assert!(
            std::fs::read_to_string(store.path(&format!("each/{name}.log")))
                .unwrap()
                .contains("PostgreSQL")
        );
        assert_eq!(
            std::fs::read_to_string(store.path(&format!("each/{name}.exit")))
                .unwrap()
                .trim(),
            "0"
        );
    }
}
