//! Pins of the recipe, of the lockfile, of nothing; no network.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::cli::args::Cli;
use crate::library::Library;
use crate::model::build::Variant;
use crate::process::Cancel;
use crate::sample::{self, COMMIT};
use crate::schema::config::Config;
use crate::source::distro::Distro;
use crate::source::lockfile::AliasLock;
use crate::ui::{Shell, Verbosity};

fn context(dir: &Path) -> Context {
    let cli = <Cli as clap::Parser>::try_parse_from(["bm", "list"]).unwrap();
    let mut library = Library::load(&[]).unwrap();
    library.recipes = sample::recipes(sample::recipe(&[]));
    library.toolchains = sample::toolchains();
    let layout = crate::layout::Layout::new(dir.join("root"), dir.join("cache"));
    Context {
        index: crate::store::index::Index::new(&layout),
        layout,
        config: Config::default(),
        library,
        shell: Shell::new(Verbosity::Quiet),
        cancel: Cancel::default(),
        global: cli.global,
        command_line: "bm".to_owned(),
    }
}

fn request(version: &str, from: Option<SourceKind>) -> (BuildName, Request) {
    let request = Request {
        product: "demo".parse().unwrap(),
        revision: Revision::Release(version.parse().unwrap()),
        variant: Variant {
            name: "o3".parse().unwrap(),
            atoms: vec!["o3".to_owned()],
        },
        toolchain: "gcc".parse().unwrap(),
        from,
        chosen_name: None,
        links: vec![],
        extra_cflags: vec![],
        choices: BTreeMap::new(),
    };
    ("d_o3".parse().unwrap(), request)
}

fn resolve(ctx: &Context, version: &str, from: Option<SourceKind>, reach: Reach) -> Result<SourcePlan> {
    let net = Net {
        offline: true,
        ..Net::default()
    };
    let (name, request) = request(version, from);
    let resolver = Resolver::new(ctx, &net, reach)?;
    resolver.resolve(name, request).map(|resolved| resolved.source)
}

#[test]
fn a_pin_of_the_recipe_needs_neither_lockfile_nor_network() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = context(dir.path());
    let source = resolve(&ctx, "2.1", None, Reach::Network).unwrap();
    assert_eq!((source.kind, source.reference.as_str()), (SourceKind::Git, "v2.1"));
    assert_eq!(
        (source.commit.as_deref(), source.pinned_by.as_str()),
        (Some(COMMIT), "overlay"),
        "only the shipped recipes' pins are upstream's"
    );
    assert_eq!(source.origin.unwrap().to_string(), "recipes/demo.toml:63");
    assert!(!dir.path().join("root").exists(), "nothing was written");
}

#[test]
fn what_was_locked_once_holds() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = context(dir.path());
    let (commit, sum) = ("ab".repeat(20), "cd".repeat(32));
    lockfile::update(&ctx.layout.lockfile(), &ctx.cancel, |lock| {
        lock.add_git(GitLock {
            product: "demo".into(),
            version: "3.4".into(),
            url: "https://example.org/demo.git".into(),
            commit: commit.clone(),
            locked_at: now(),
        });
        lock.add_tarball(TarballLock {
            product: "demo".into(),
            version: "3.5".into(),
            sha256: sum.clone(),
            file: "demo-3.5.tar.gz".into(),
            from: "mirror".into(),
            locked_at: now(),
        });
        Ok(())
    })
    .unwrap();
    for reach in [Reach::Known, Reach::Network] {
        let git = resolve(&ctx, "3.4", None, reach).unwrap();
        assert_eq!(
            (git.kind, git.commit.as_ref(), git.pinned_by.as_str()),
            (SourceKind::Git, Some(&commit), "lockfile")
        );
        // A locked checksum makes the archive the source, as a pinned one would.
        let tarball = resolve(&ctx, "3.5", None, reach).unwrap();
        assert_eq!(
            (tarball.kind, tarball.sha256.as_ref()),
            (SourceKind::Tarball, Some(&sum))
        );
        assert_eq!(tarball.urls, ["https://example.org/3/demo-3.5.tar.gz"]);
        assert_eq!(tarball.distro_package.as_deref(), Some("demo-3"));
    }
}

#[test]
fn what_is_pinned_nowhere_stays_open_or_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = context(dir.path());
    for from in [None, Some(SourceKind::Tarball)] {
        let open = resolve(&ctx, "3.9", from, Reach::Known).unwrap();
        assert_eq!(
            (open.commit, open.sha256, open.pinned_by.as_str()),
            (None, None, "lockfile")
        );
        let error = resolve(&ctx, "3.9", from, Reach::Network).unwrap_err();
        assert_eq!(error.exit(), Exit::Source, "{error}");
    }
    assert!(!ctx.layout.lockfile().exists(), "a failure locks nothing");
}

#[test]
fn a_locked_alias_gives_its_release_and_keeps_a_name_the_user_chose() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = context(dir.path());
    let net = Net {
        offline: true,
        ..Net::default()
    };
    let log = Log::none();
    let Ok(distro) = Distro::open(&ctx.layout.apt(), &net, &log) else {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: this system does not say which distribution it is");
        }
        return;
    };
    lockfile::update(&ctx.layout.lockfile(), &ctx.cancel, |lock| {
        lock.add_alias(AliasLock {
            name: "ddistro".into(),
            product: "demo".into(),
            version: "2.0".into(),
            sha256: "cd".repeat(32),
            platform: distro.platform(),
            passed_over: vec![],
            locked_at: now(),
        });
        Ok(())
    })
    .unwrap();
    let resolver = Resolver::new(&ctx, &net, Reach::Known).unwrap();
    let resolve = |chosen: Option<&str>| {
        let (name, mut request) = request("1.0", None);
        request.revision = Revision::Distro;
        request.chosen_name = chosen.map(|c| c.parse().unwrap());
        resolver.resolve(name, request).unwrap()
    };
    let plain = resolve(None);
    assert_eq!(
        (plain.name.as_str(), plain.version.to_string()),
        ("d20_o3", "2.0".to_owned())
    );
    assert_eq!(plain.source.kind, SourceKind::Tarball);
    // Flags of a sweep belong to the user's name: the release's own must not get them.
    assert_eq!(resolve(Some("mine")).name.as_str(), "mine");
}

#[test]
fn a_version_is_read_from_between_two_texts() {
    let between = |before: &str, after: &str| Between {
        before: before.to_owned(),
        after: after.to_owned(),
    };
    let from = VersionFrom {
        files: vec!["configure".into()],
        parts: vec![between("VERSION='", "'")],
    };
    let parts = VersionFrom {
        files: vec!["VERSION".into()],
        parts: vec![between("MAJOR=", "\n"), between("MINOR=", "\n")],
    };
    assert_eq!(
        read_version(&parts, "MAJOR=5\nMINOR=7\n", "here").unwrap().to_string(),
        "5.7"
    );
    assert!(read_version(&parts, "MAJOR=5\n", "here").is_err());
    let read = |text: &str| read_version(&from, text, "here");
    assert_eq!(read("x\nVERSION='17devel'\n").unwrap().to_string(), "17devel");
    for (text, found) in [
        ("", "nothing like it"),
        ("VERSION='1", "nothing like it"),
        ("VERSION='x'", "x"),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!((error.exit(), error.details()[2].1.as_str()), (Exit::Source, found));
    }
}
