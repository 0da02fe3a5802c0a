//! Tests of `git`, against repositories made on the fly.
#![allow(clippy::unwrap_used)]

use fs_err as fs;
use git2::Repository;

use super::*;
use crate::source::MirrorMap;
use crate::source::testing::net;

const HOME: &str = "https://git.example.org/acme/tool.git";

struct Upstream {
    temp: tempfile::TempDir,
    repo: Repository,
    commits: Vec<String>,
}

/// Three commits on `main`; `v1` (annotated) and `v2` (light) tag the first two.
fn upstream() -> Upstream {
    let temp = tempfile::tempdir().unwrap();
    let repo = Repository::init_bare(temp.path().join("up.git")).unwrap();
    let who = git2::Signature::new("a", "a@b", &git2::Time::new(1_600_000_000, 0)).unwrap();
    let mut commits: Vec<String> = vec![];
    for n in 0..3 {
        let mut b = repo.treebuilder(None).unwrap();
        b.insert(
            "n.c",
            repo.blob(format!("int n = {n};\n").as_bytes()).unwrap(),
            0o100_644,
        )
        .unwrap();
        let tree = repo.find_tree(b.write().unwrap()).unwrap();
        let parent = commits
            .last()
            .map(|c| repo.find_commit(Oid::from_str(c).unwrap()).unwrap());
        let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
        let id = repo
            .commit(Some("refs/heads/main"), &who, &who, &format!("c{n}"), &tree, &parents)
            .unwrap();
        commits.push(id.to_string());
    }
    let object = |n: usize| repo.find_object(Oid::from_str(&commits[n]).unwrap(), None).unwrap();
    repo.tag("v1", &object(0), &who, "one", false).unwrap();
    repo.tag_lightweight("v2", &object(1), false).unwrap();
    Upstream { repo, commits, temp }
}

impl Upstream {
    fn net(&self) -> Net {
        let map = format!("{HOME}={}", self.repo.path().display());
        Net {
            mirrors: MirrorMap::parse(&map).unwrap(),
            ..net()
        }
    }

    fn ensure_with(&self, want: &Want, net: &Net) -> Result<Found> {
        let places = GitPlaces {
            urls: vec![HOME.into()],
        };
        ensure(&self.temp.path().join("mirrors"), &places, want, net, &Log::none())
    }

    fn ensure(&self, tag: Option<&str>, commit: Option<&str>) -> Result<Found> {
        let want = Want {
            tag: tag.map(Into::into),
            commit: commit.map(Into::into),
            rev: None,
        };
        self.ensure_with(&want, &self.net())
    }

    fn rev(&self, rev: &str) -> Result<Found> {
        let places = GitPlaces {
            urls: vec![HOME.into()],
        };
        resolve_rev(
            &self.temp.path().join("mirrors"),
            &places,
            rev,
            &self.net(),
            &Log::none(),
        )
    }

    fn move_tag(&self, tag: &str, to: usize) {
        let object = self
            .repo
            .find_object(Oid::from_str(&self.commits[to]).unwrap(), None)
            .unwrap();
        self.repo.tag_lightweight(tag, &object, true).unwrap();
    }
}

fn check_moved(outcome: Result<Found>, expected: &str, got: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.exit(), Exit::Source);
    let text = error.to_string();
    assert!(text.starts_with("moved tag"), "{text}");
    assert!(text.contains(&format!("expected: {expected}\ngot: {got}")), "{text}");
}

#[test]
fn tags_and_commits_are_found_and_checked_out() {
    let up = upstream();
    for (tag, commit, n) in [
        (Some("v1"), None, 0),
        (Some("v2"), Some(1), 1),
        (None, Some(2), 2),
        (Some("no-such-tag"), Some(1), 1),
    ] {
        let pin = commit.map(|c: usize| up.commits[c].as_str());
        let found = up.ensure(tag, pin).unwrap();
        assert_eq!(found.commit, up.commits[n], "{tag:?}");
        assert_eq!((found.time, found.obtained_from.as_str()), (1_600_000_000, "mirror"));
        assert_eq!(
            found.tag_seen.is_some(),
            tag.is_some_and(|t| t.starts_with('v')),
            "{tag:?}"
        );
        let dest = tempfile::tempdir().unwrap();
        checkout::checkout(&found.repository, &found.commit, dest.path()).unwrap();
        assert_eq!(
            fs::read_to_string(dest.path().join("n.c")).unwrap(),
            format!("int n = {n};\n")
        );
    }
}

#[test]
fn what_was_fetched_needs_no_place_any_more() {
    let up = upstream();
    up.ensure(Some("v1"), None).unwrap();
    let offline = net();
    let tag = Want {
        tag: Some("v1".into()),
        ..Want::default()
    };
    let commit = Want {
        commit: Some(up.commits[0].clone()),
        ..Want::default()
    };
    for want in [tag, commit] {
        assert_eq!(up.ensure_with(&want, &offline).unwrap().commit, up.commits[0]);
    }
    let other = Want {
        commit: Some(up.commits[1].clone()),
        ..Want::default()
    };
    let error = up.ensure_with(&other, &offline).unwrap_err();
    assert_eq!(error.exit(), Exit::Source);
    assert!(error.hint_text().unwrap().contains("--offline"), "{error}");
}

#[test]
fn a_tag_that_is_not_its_pin_is_a_moved_tag() {
    let up = upstream();
    check_moved(
        up.ensure(Some("v1"), Some(&up.commits[1])),
        &up.commits[1],
        &up.commits[0],
    );
    // Seen once, then moved upstream, with no pin but the mirror's memory of it.
    up.ensure(Some("v2"), None).unwrap();
    up.move_tag("v2", 2);
    assert_eq!(
        up.ensure(Some("v2"), None).unwrap().commit,
        up.commits[1],
        "the cache holds what was seen"
    );
    check_moved(
        up.ensure(Some("v2"), Some(&up.commits[2])),
        &up.commits[2],
        &up.commits[1],
    );
    fs::remove_file(
        up.temp
            .path()
            .join("mirrors")
            .join(mirror_name(HOME))
            .join("bm-obtained")
            .join(&up.commits[1]),
    )
    .unwrap();
    check_moved(up.ensure(Some("v2"), None), &up.commits[1], &up.commits[2]);
}

#[test]
fn revisions_are_branches_tags_or_commits() {
    let up = upstream();
    for (rev, n) in [
        ("main", 2),
        ("v1", 0),
        ("v2", 1),
        (&up.commits[1], 1),
        (&up.commits[1][..9], 1),
        (&up.commits[2][..7].to_ascii_uppercase(), 2),
    ] {
        assert_eq!(up.rev(rev).unwrap().commit, up.commits[n], "{rev}");
    }
    for (rev, exit, says) in [
        ("nothing", Exit::Source, "no branch, tag or commit `nothing`"),
        ("abcdef0123", Exit::Source, "no branch, tag or commit `abcdef0123`"),
        ("--upload-pack=x", Exit::Usage, "is no branch"),
        ("a..b", Exit::Usage, "is no branch"),
        ("main^", Exit::Usage, "is no branch"),
    ] {
        let error = up.rev(rev).unwrap_err();
        assert_eq!(error.exit(), exit, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_name_that_is_branch_and_tag_is_ambiguous() {
    let up = upstream();
    let first = up.repo.find_commit(Oid::from_str(&up.commits[0]).unwrap()).unwrap();
    up.repo.branch("v2", &first, false).unwrap();
    let error = up.rev("v2").unwrap_err();
    assert_eq!(error.headline(), "revision `v2` is ambiguous");
    assert_eq!(error.details().len(), 2);
}

#[test]
fn a_commit_no_place_has_lists_the_places() {
    let up = upstream();
    let none = "0123456789".repeat(4);
    let error = up.ensure(None, Some(&none)).unwrap_err();
    assert_eq!(error.exit(), Exit::Source);
    let tried = &error.details()[0].1;
    assert!(tried.contains("up.git") && tried.contains("has no commit"), "{error}");
    assert_eq!(up.ensure(None, Some("abc")).unwrap_err().exit(), Exit::Usage);
}

#[test]
fn a_local_clone_that_lacks_a_file_is_named_with_it() {
    let up = upstream();
    let blob = up.repo.blob(b"int n = 1;\n").unwrap().to_string();
    fs::remove_file(up.repo.path().join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    let error = up.ensure(None, Some(&up.commits[1])).unwrap_err();
    assert!(error.to_string().contains("lacks files of it: n.c"), "{error}");
    up.ensure(None, Some(&up.commits[2])).expect("other commits are whole");
}

#[test]
fn the_next_place_serves_when_the_first_lacks_the_commit() {
    let up = upstream();
    let empty = up.temp.path().join("empty.git");
    Repository::init_bare(&empty).unwrap();
    let fork = "https://fork.example.org/tool.git";
    let map = format!("{HOME}={} {fork}={}", empty.display(), up.repo.path().display());
    let net = Net {
        mirrors: MirrorMap::parse(&map).unwrap(),
        ..net()
    };
    let places = GitPlaces {
        urls: vec![HOME.into(), fork.into()],
    };
    let want = Want {
        commit: Some(up.commits[1].clone()),
        ..Want::default()
    };
    let log = up.temp.path().join("log");
    let found = ensure(&up.temp.path().join("m"), &places, &want, &net, &Log::to(&log)).unwrap();
    assert_eq!(found.commit, up.commits[1]);
    assert!(
        fs::read_to_string(&log).unwrap().contains("+ git -c"),
        "commands are in the log"
    );
}

#[test]
fn mirrors_are_shared_by_spellings_of_one_url() {
    let name = mirror_name(HOME);
    assert!(name.starts_with("tool-") && name.ends_with(".git"), "{name}");
    for same in [
        "https://me:pw@git.example.org/acme/tool",
        "https://git.example.org/Acme/Tool.git/",
    ] {
        assert_eq!(mirror_name(same), name, "{same}");
    }
    assert_ne!(mirror_name("https://other.org/acme/tool.git"), name);
}

#[test]
fn remote_lists_are_peeled() {
    let list = "aa\trefs/heads/main\nbb\trefs/tags/v1\ncc\trefs/tags/v1^{}\n";
    let remote = Remote::read(list);
    assert_eq!(remote.tags["v1"], "cc");
    assert_eq!(remote.tips("a"), ["aa"]);
}
