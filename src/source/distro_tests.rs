//! Tests of `distro`, offline: index text, and an apt that a script stands for.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::source::apt_index::tests::{index, package};
use crate::source::sha256;
use crate::source::testing::net;

/// A system with a list of sources, an index, and an `apt-get` that answers as told.
struct Host {
    temp: tempfile::TempDir,
    net: Net,
}

impl Host {
    fn new(update: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for dir in ["etc/apt/sources.list.d", "bin"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(root.join("etc/os-release"), "ID=debian\nVERSION_CODENAME=bookworm\n").unwrap();
        fs::write(
            root.join("etc/apt/sources.list"),
            "deb http://deb.example.org/debian bookworm main\n",
        )
        .unwrap();
        fs::write(root.join("index"), index()).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> {0}/calls\ncase \"$*\" in\n*update) {update} ;;\n\
             *indextargets*) printf 'Sources\\tDebian\\thttp://deb.example.org/debian/\\t{0}/index\\n' ;;\nesac\n",
            root.display()
        );
        let apt = root.join("bin/apt-get");
        fs::write(&apt, script).unwrap();
        fs::set_permissions(&apt, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut net = Net {
            offline: false,
            ..net()
        };
        let path = format!("{}:{}", root.join("bin").display(), net.env["PATH"]);
        net.env.insert("PATH".into(), path);
        Host { temp, net }
    }

    fn candidates(&self) -> Result<Vec<Candidate>> {
        let log = Log::none();
        let etc = self.temp.path().join("etc");
        // apt-get is looked up on the PATH of the environment it gets.
        Distro::of_system(&self.temp.path().join("apt"), &etc, &self.net, &log)?.candidates(&package)
    }

    fn updates(&self) -> usize {
        let calls = fs::read_to_string(self.temp.path().join("calls")).unwrap_or_default();
        calls.lines().filter(|l| l.ends_with("update")).count()
    }
}

#[test]
fn candidates_come_newest_first_from_private_lists() {
    let host = Host::new("exit 0");
    let found = host.candidates().unwrap();
    let versions: Vec<String> = found.iter().map(|c| c.version.to_string()).collect();
    assert_eq!(versions, ["16beta1", "15.20", "15.18", "14.9"]);
    let sources = fs::read_to_string(host.temp.path().join("apt/sources/bm.sources")).unwrap();
    assert!(
        sources.starts_with("Types: deb-src\nURIs: http://deb.example.org/debian\n"),
        "{sources}"
    );
    let calls = fs::read_to_string(host.temp.path().join("calls")).unwrap();
    let own = format!("-c={}", host.temp.path().join("apt/apt.conf").display());
    assert!(calls.lines().all(|l| l.starts_with(&own)), "{calls}");
}

#[test]
fn the_index_is_kept_while_it_is_fresh_and_the_sources_are_the_same() {
    let mut host = Host::new("exit 0");
    for _ in 0..2 {
        host.candidates().unwrap();
    }
    assert_eq!(host.updates(), 1);
    let stamp = fs::File::options()
        .write(true)
        .open(host.temp.path().join("apt/updated"))
        .unwrap();
    stamp
        .file()
        .set_modified(std::time::SystemTime::now() - 2 * FRESH)
        .unwrap();
    host.net.offline = true;
    host.candidates().unwrap();
    assert_eq!(host.updates(), 1, "offline, an old index serves");
    host.net.offline = false;
    host.candidates().unwrap();
    assert_eq!(host.updates(), 2);
    fs::write(
        host.temp.path().join("etc/apt/sources.list"),
        "deb http://new.example.org bookworm main\n",
    )
    .unwrap();
    host.candidates().unwrap();
    assert_eq!(host.updates(), 3);
}

#[test]
fn a_failed_update_is_an_error_even_when_apt_only_warns() {
    for update in [
        "echo 'E: no network' >&2; exit 100",
        "echo 'W: Failed to fetch http://x' >&2",
    ] {
        let host = Host::new(update);
        let error = host.candidates().unwrap_err();
        assert_eq!(
            (error.exit(), error.headline()),
            (Exit::Source, "cannot fetch the distribution's index")
        );
        assert!(!host.temp.path().join("apt/updated").exists());
    }
}

#[test]
fn hosts_without_an_index_say_why() {
    let mut host = Host::new("exit 0");
    host.net.offline = true;
    assert_eq!(host.candidates().unwrap_err().exit(), Exit::Source);
    fs::write(
        host.temp.path().join("etc/apt/sources.list"),
        "deb http://x.org bookworm-pgdg main\n",
    )
    .unwrap();
    let error = host.candidates().unwrap_err();
    assert_eq!(error.exit(), Exit::Host);
    assert!(error.to_string().contains("no archive of the distribution"), "{error}");
}

#[test]
fn as_a_place_the_distribution_serves_only_the_wanted_bytes() {
    let mut host = Host::new("exit 0");
    host.candidates().unwrap();
    host.net.offline = true;
    let log = Log::none();
    let etc = host.temp.path().join("etc");
    let distro = Distro::of_system(&host.temp.path().join("apt"), &etc, &host.net, &log).unwrap();
    let answer = |version: &str, sum: &str| {
        let version: Version = version.parse().unwrap();
        let place = DistroPlace {
            distro: &distro,
            package: &package,
            version: &version,
        };
        assert_eq!(place.label(), "distribution debian:bookworm");
        place
            .provide(Some(sum), Path::new("/nonexistent/x"))
            .unwrap()
            .unwrap_err()
    };
    assert_eq!(answer("15.1", &sha256("a")), "it does not list 15.1");
    assert!(answer("15.18", &sha256("z")).starts_with("its archive of 15.18 is another one"));
    assert_eq!(answer("15.18", &sha256("a")), "not asked: offline");
}

#[test]
fn a_missing_file_is_told_from_other_failures() {
    for (why, missing) in [
        (
            "E: Failed to fetch http://x/y.orig.tar.bz2  404  Not Found [IP: 192.0.2.1 80]",
            true,
        ),
        (
            "E: Failed to fetch file:/x  File not found - /x (2: No such file or directory)",
            true,
        ),
        ("E: Failed to fetch http://x  Hash Sum mismatch", false),
        ("E: Failed to fetch http://x  503  Service Unavailable", false),
    ] {
        assert_eq!(is_missing(why), missing, "{why}");
    }
}

/// Asks the real apt of this host. Not part of the tests: it needs the network.
#[test]
#[ignore = "needs a Debian or Ubuntu host whose mirror can be reached"]
fn the_distribution_of_this_host_has_a_release() {
    let temp = tempfile::tempdir().unwrap();
    let net = Net {
        offline: false,
        ..net()
    };
    let log_path = temp.path().join("log");
    let log = Log::to(&log_path);
    let distro = Distro::open(&temp.path().join("apt"), &net, &log).unwrap();
    let newest = distro.newest(&package, &temp.path().join("downloads")).unwrap();
    assert_eq!(newest.got.sha256, newest.candidate.sha256);
    assert_eq!(newest.got.obtained_from, newest.candidate.recorded());
    let tree = temp.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let report = super::super::archive::unpack(&newest.got.path, &tree, 1).unwrap();
    assert!(report.files > 1000 && tree.join("configure").is_file(), "{report:?}");
}
