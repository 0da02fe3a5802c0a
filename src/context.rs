//! What every command starts from: paths, config, recipes, the terminal. The only place that reads
//! bm's own environment variables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use fs_err as fs;

use crate::cli::args::Global;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::layout::Layout;
use crate::library::Library;
use crate::model::recipe::{Origin, SourceKind, Word};
use crate::process::{self, Cancel};
use crate::schema::Paint;
use crate::schema::config::Config;
use crate::select::Names;
use crate::source::{MirrorMap, Net};
use crate::store::index::Index;
use crate::text::public_url;
use crate::ui::Shell;

/// The base of a command.
#[derive(Debug)]
pub struct Context {
    /// Paths.
    pub layout: Layout,
    /// What is remembered of the manifests below the root.
    pub index: Index,
    /// The user's config.
    pub config: Config,
    /// Recipes, toolchains, sets, patches.
    pub library: Library,
    /// Terminal.
    pub shell: Shell,
    /// Stop requests.
    pub cancel: Cancel,
    /// Options of every command.
    pub global: Global,
    /// bm's own command line, for lock holders and journals.
    pub command_line: String,
}

impl Context {
    /// Reads config and recipes.
    ///
    /// # Errors
    /// Everything wrong in the config or in any recipe file, in one run.
    pub fn new(global: Global, shell: Shell, cancel: Cancel) -> Result<Self, Vec<Error>> {
        let dirs = etcetera::choose_base_strategy().map_err(|e| {
            vec![
                Error::new(Exit::Host, "cannot find a home directory")
                    .caused_by(e)
                    .hint("set HOME, or give --root and --cache"),
            ]
        })?;
        let config_dir = dirs.config_dir().join("bm");
        let config = read_config(&global, &config_dir)?;
        let absolute = |p: PathBuf| std::path::absolute(&p).unwrap_or(p);
        let is_root = rustix::process::geteuid().is_root();
        let default_root = if is_root {
            PathBuf::from("/var/lib/bm")
        } else {
            dirs.data_dir().join("bm")
        };
        let root = absolute(
            global
                .root
                .clone()
                .or_else(|| config.root.clone())
                .unwrap_or(default_root),
        );
        let cache = absolute(
            global
                .cache
                .clone()
                .or_else(|| config.cache.clone())
                .unwrap_or_else(|| dirs.cache_dir().join("bm")),
        );
        let mut overlays = Vec::new();
        if config_dir.join("recipes").is_dir() || config_dir.join("toolchains").is_dir() {
            overlays.push(config_dir);
        }
        overlays.extend(config.recipes.iter().cloned());
        overlays.extend(global.recipes.iter().cloned());
        let library = Library::load_painted(&overlays, paint())?;
        // Shown to others: without passwords in URLs. A word that is not UTF-8 is no reason to stop.
        let words = std::env::args_os().map(|word| public_url(&word.to_string_lossy()));
        let command_line = words.collect::<Vec<_>>().join(" ");
        let layout = Layout::new(root, cache);
        Ok(Context {
            index: Index::new(&layout),
            layout,
            config,
            library,
            shell,
            cancel,
            global,
            command_line,
        })
    }

    /// Kind of source where the command line names none: `BM_FROM`, then the config.
    ///
    /// # Errors
    /// A `BM_FROM` that is no kind of source.
    pub fn default_from(&self) -> Result<Option<SourceKind>> {
        match std::env::var("BM_FROM").ok().filter(|v| !v.is_empty()).as_deref() {
            None => Ok(self.config.from),
            Some("git") => Ok(Some(SourceKind::Git)),
            Some("tarball") => Ok(Some(SourceKind::Tarball)),
            Some(other) => Err(
                Error::new(Exit::Usage, format!("`{other}` in BM_FROM is no kind of source"))
                    .hint("use `git` or `tarball`"),
            ),
        }
    }

    /// Variables of bm's own environment that the config lets through to build steps.
    pub fn passed_env(&self) -> BTreeMap<String, Word> {
        let value = |name: &String| {
            Some((
                name.clone(),
                Word {
                    text: std::env::var(name).ok()?,
                    origin: Origin::Environment,
                },
            ))
        };
        self.config.pass.iter().filter_map(value).collect()
    }

    /// How sources may be reached: mirrors of the config and of `BM_MIRROR`, proxies, certificates.
    ///
    /// # Errors
    /// A `BM_MIRROR` that cannot be read.
    pub fn net(&self, offline: bool) -> Result<Net> {
        let mut mirrors = MirrorMap::of_config(&self.config.mirrors);
        if let Ok(text) = std::env::var("BM_MIRROR") {
            mirrors = mirrors.merge(MirrorMap::parse(&text)?);
        }
        let home = self.layout.cache().join("home");
        fs::create_dir_all(&home).doing(|| format!("cannot make `{}`", home.display()))?;
        let mut env = process::base(&process::host_path(), &home, &std::env::temp_dir(), None)?;
        env.extend(process::fetch_extra());
        Ok(Net {
            offline,
            mirrors,
            env,
            cancel: self.cancel.clone(),
        })
    }

    /// Names for reading selectors.
    pub fn names(&self) -> Names<'_> {
        Names {
            recipes: &self.library.recipes,
            toolchains: &self.library.toolchains,
            sets: &self.library.sets,
        }
    }

    /// Makes root and state directories.
    ///
    /// # Errors
    /// When they cannot be made (permission, disk).
    pub fn make_root(&self) -> Result<()> {
        for dir in [
            self.layout.root().to_owned(),
            self.layout.state(),
            self.layout.cache().to_owned(),
        ] {
            fs::create_dir_all(&dir).doing(|| format!("cannot make `{}`", dir.display()))?;
        }
        Ok(())
    }
}

fn read_config(global: &Global, config_dir: &Path) -> Result<Config, Vec<Error>> {
    let chosen = global.config.clone();
    let file = chosen.clone().unwrap_or_else(|| config_dir.join("config.toml"));
    match fs::read_to_string(&file) {
        Ok(text) => crate::schema::config::config(&text, &file.display().to_string(), paint()),
        // Only a file that was named must be there.
        Err(e) if chosen.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(e) => Err(vec![Error::io(format!("cannot read config `{}`", file.display()), &e)]),
    }
}

fn paint() -> Paint {
    if anstream::AutoStream::choice(&std::io::stderr()) == anstream::ColorChoice::Never {
        Paint::Plain
    } else {
        Paint::Color
    }
}
