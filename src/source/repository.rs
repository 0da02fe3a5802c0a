//! One git repository: how its children are started, how it is opened, made and searched.
//!
//! Knows no places and no pins.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

use fs_err as fs;
use git2::{ObjectType, Oid, Repository};

use crate::error::{Error, Exit, IoContext, Result};

/// `git` with the options that keep configuration and hooks out.
pub(super) fn hardened_argv() -> Vec<String> {
    let mut argv = vec!["git".to_owned()];
    for option in [
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.autocrlf=false",
        "protocol.ext.allow=never",
        "gc.auto=0",
        "maintenance.auto=false",
    ] {
        argv.extend(["-c".to_owned(), option.to_owned()]);
    }
    argv
}

/// The environment of a git child: `env` without any `GIT_*` of its own, and no configuration files.
pub(super) fn hardened_env(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut env = env.clone();
    env.retain(|name, _| !name.starts_with("GIT_"));
    for (name, value) in [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("LC_ALL", "C"),
    ] {
        env.insert(name.into(), value.into());
    }
    // ssh must fail rather than ask for a password or an unknown host key.
    env.insert("GIT_SSH_COMMAND".into(), "ssh -oBatchMode=yes".into());
    env
}

/// Opens a repository for reading, whoever owns it, without configuration of the user or the system.
pub(super) fn open(path: &Path) -> Result<Repository> {
    static SET_UP: Once = Once::new();
    SET_UP.call_once(|| {
        // SAFETY: the calls change global state of libgit2 and must not race with other calls that
        // read it; `Once` orders them before every repository this crate opens.
        // Owners do not matter: nothing a repository holds is run by us, only its objects are read.
        unsafe {
            let _ = git2::opts::set_verify_owner_validation(false);
            for level in [
                git2::ConfigLevel::System,
                git2::ConfigLevel::Global,
                git2::ConfigLevel::XDG,
            ] {
                let _ = git2::opts::set_search_path(level, "/nonexistent");
            }
        }
    });
    Repository::open(path).map_err(|e| {
        Error::new(Exit::Source, "cannot open a git repository")
            .detail("repository", path.display())
            .caused_by(e.message())
    })
}

/// A mirror appears with everything git needs in it, or not at all.
pub(super) fn create(path: &Path) -> Result<()> {
    let doing = || "cannot create a git mirror".to_owned();
    let parent = path.parent().expect("a mirror is below the mirrors directory");
    if path.exists() {
        fs::remove_dir_all(path).doing(doing)?;
    }
    let temp = tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(parent)
        .doing(doing)?;
    let bare = temp.path().join("git");
    let mut options = git2::RepositoryInitOptions::new();
    options.bare(true).external_template(false);
    Repository::init_opts(&bare, &options).map_err(|e| {
        Error::new(Exit::Host, doing())
            .detail("mirror", path.display())
            .caused_by(e.message())
    })?;
    fs::rename(&bare, path).doing(doing)
}

/// All commits whose id begins with `digits`.
pub(super) fn commits_with(repo: &Repository, digits: &str) -> Result<Vec<String>> {
    let unreadable = |e: git2::Error| {
        Error::new(Exit::Source, "cannot read a git repository")
            .detail("repository", repo.path().display())
            .caused_by(e.message())
    };
    let odb = repo.odb().map_err(unreadable)?;
    let mut found = Vec::new();
    odb.foreach(|oid| {
        if oid.to_string().starts_with(digits) {
            found.push(*oid);
        }
        true
    })
    .map_err(unreadable)?;
    let is_commit = |oid: &Oid| odb.read_header(*oid).is_ok_and(|(_, kind)| kind == ObjectType::Commit);
    let mut commits: Vec<String> = found.iter().filter(|o| is_commit(o)).map(Oid::to_string).collect();
    commits.sort();
    commits.dedup();
    Ok(commits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_git_holds_no_git_settings_of_the_user() {
        let given = [("GIT_DIR", "/x"), ("PATH", "/bin"), ("SSH_AUTH_SOCK", "/s")];
        let env = hardened_env(&given.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(env.get("GIT_DIR"), None);
        assert_eq!(env["SSH_AUTH_SOCK"], "/s");
        assert_eq!(env["GIT_CONFIG_GLOBAL"], "/dev/null");
    }

    #[test]
    fn a_half_made_mirror_is_made_anew() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("m.git");
        fs::create_dir_all(path.join("objects")).unwrap();
        create(&path).unwrap();
        assert!(open(&path).unwrap().is_bare());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "no litter");
    }

    #[test]
    fn only_commits_answer_to_an_abbreviated_id() {
        let temp = tempfile::tempdir().unwrap();
        let repo = Repository::init_bare(temp.path()).unwrap();
        let tree = repo
            .find_tree(repo.treebuilder(None).unwrap().write().unwrap())
            .unwrap();
        let who = git2::Signature::new("a", "a@b", &git2::Time::new(0, 0)).unwrap();
        let commit = repo.commit(None, &who, &who, "m", &tree, &[]).unwrap().to_string();
        assert_eq!(commits_with(&repo, &commit[..7]).unwrap(), [commit]);
        assert!(commits_with(&repo, &tree.id().to_string()[..7]).unwrap().is_empty());
    }
}
