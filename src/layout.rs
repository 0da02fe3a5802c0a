//! Every path bm uses below the root and the cache. Arithmetic only: nothing here touches the disk.

use std::path::{Path, PathBuf};

use crate::model::name::BuildName;

/// Paths below a root of prefixes.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
    cache: PathBuf,
}

impl Layout {
    /// `root` and `cache` must be absolute.
    pub fn new(root: PathBuf, cache: PathBuf) -> Self {
        Layout { root, cache }
    }

    /// Root of prefixes.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Cache: mirrors, downloads, apt lists, tool hashes.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// `<root>/<name>`.
    pub fn prefix(&self, name: &BuildName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// `<root>/.bm`.
    pub fn state(&self) -> PathBuf {
        self.root.join(".bm")
    }

    /// Lock files; never unlinked.
    pub fn locks(&self) -> PathBuf {
        self.state().join("locks")
    }

    /// Journal records, one per build name in motion.
    pub fn journal(&self) -> PathBuf {
        self.state().join("journal")
    }

    /// The slot a tree takes while it is exchanged with the prefix.
    pub fn previous(&self, name: &BuildName) -> PathBuf {
        self.state().join("previous").join(name.as_str())
    }

    /// The journal record of one build name.
    pub fn journal_record(&self, name: &BuildName) -> PathBuf {
        self.journal().join(format!("{name}.json"))
    }

    /// A third place, for an exchange made of plain renames; no build name begins with a dot.
    pub fn swap(&self, name: &BuildName) -> PathBuf {
        self.state().join("previous").join(format!(".swap-{name}"))
    }

    /// Kept trees of failed builds.
    pub fn failed(&self) -> PathBuf {
        self.state().join("failed")
    }

    /// Old trees that hold something bm could not carry over; for the user to empty, never swept.
    pub fn kept(&self) -> PathBuf {
        self.state().join("kept")
    }

    /// Append-only store of manifests.
    pub fn history(&self) -> PathBuf {
        self.state().join("history")
    }

    /// Trees on their way out. Below the work directories, whose names never begin with a dot.
    pub fn trash(&self) -> PathBuf {
        self.work_root().join(".trash")
    }

    /// Logs of builds in progress or failed: `<state>/logs/<name>/<step>.log`.
    pub fn logs(&self, name: &BuildName) -> PathBuf {
        self.state().join("logs").join(name.as_str())
    }

    /// The job budget of all bm of this cache on one host.
    pub fn budget(&self, host: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        self.cache
            .join("jobs")
            .join(host.chars().map(plain).collect::<String>())
    }

    /// What builds cost here.
    pub fn measured(&self) -> PathBuf {
        self.state().join("measured.json")
    }

    /// Pages of `build --timings`: `<time>.html`; for the user to empty.
    pub fn timings(&self) -> PathBuf {
        self.state().join("timings")
    }

    /// What is remembered of manifests; made again from them at any time.
    pub fn index(&self) -> PathBuf {
        self.state().join("index.json")
    }

    /// The lockfile.
    pub fn lockfile(&self) -> PathBuf {
        self.state().join("lock.toml")
    }

    /// All work directories.
    pub fn work_root(&self) -> PathBuf {
        self.state().join("work")
    }

    /// Work directory of a build; depends on nothing but name and identity.
    pub fn work(&self, name: &BuildName, identity: &str) -> WorkDir {
        let id8 = &identity[..identity.len().min(8)];
        WorkDir(self.work_root().join(format!("{name}-{id8}")))
    }

    /// Bare git mirrors.
    pub fn mirrors(&self) -> PathBuf {
        self.cache.join("mirrors")
    }

    /// Downloads by sha256.
    pub fn downloads(&self) -> PathBuf {
        self.cache.join("downloads")
    }

    /// Private apt lists.
    pub fn apt(&self) -> PathBuf {
        self.cache.join("apt")
    }

    /// Locks of mirrors and downloads. Beside them, since several roots may share one cache.
    pub fn cache_locks(&self) -> PathBuf {
        self.cache.join("locks")
    }

    /// ccache's directory, with bm's own settings in it.
    pub fn ccache(&self) -> PathBuf {
        self.cache.join("ccache")
    }

    /// Cached answers of configure scripts: `<key>.cache`.
    pub fn configure_cache(&self) -> PathBuf {
        self.cache.join("configure")
    }

    /// Remembered tool hashes.
    pub fn tools(&self) -> PathBuf {
        self.cache.join("tools.json")
    }
}

/// `<prefix>/.bm`: what bm writes into a prefix.
pub fn prefix_state(prefix: &Path) -> PathBuf {
    prefix.join(".bm")
}

/// `<prefix>/.bm/manifest.json`, the commit point.
pub fn manifest_file(prefix: &Path) -> PathBuf {
    prefix_state(prefix).join("manifest.json")
}

/// `<prefix>/.bm/files.json`, the list of installed files.
pub fn files_file(prefix: &Path) -> PathBuf {
    prefix_state(prefix).join("files.json")
}

/// Paths inside the work directory of one build. The way from `build` to `src` is the same in every
/// build, with no version or variant in it, so that a compiler cache can share objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkDir(pub PathBuf);

impl WorkDir {
    /// Source tree, patched.
    pub fn src(&self) -> PathBuf {
        self.0.join("src")
    }

    /// Where it compiles.
    pub fn build(&self) -> PathBuf {
        self.0.join("build")
    }

    /// DESTDIR of the install step.
    pub fn stage(&self) -> PathBuf {
        self.0.join("stage")
    }

    /// TMPDIR of the children.
    pub fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }

    /// HOME of the children, empty.
    pub fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Where configure runs a second time, to be compared. Beside the build directory, so that the way to the source is
    /// the same.
    pub fn check(&self) -> PathBuf {
        self.0.join("check")
    }

    /// configure's answers, private to this build.
    pub fn configure_cache(&self) -> PathBuf {
        self.0.join("config.cache")
    }

    /// First on the children's PATH: the recording launchers.
    pub fn bin(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// Recorded compiler calls.
    pub fn record(&self) -> PathBuf {
        self.0.join("record")
    }
}
