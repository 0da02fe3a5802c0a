//! The compiler cache of a run: whether there is one, its settings, and what decides on its hits besides a call's words.
//!
//! Owns `<cache>/ccache`. Which calls go through it is the launcher's affair. A cache that cannot be used is said once,
//! and builds go on without it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fs_err as fs;
use serde_json::json;

use crate::audit::cached::{self, CompilerCache};
use crate::context::Context;
use crate::digest;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::layout::WorkDir;
use crate::model::caching::CompilerCaching;
use crate::plan::BuildPlan;
use crate::probe::Prober;
use crate::process;
use crate::store::disk;

/// Most bytes of the cache, unless the config says otherwise.
pub const DEFAULT_SIZE: &str = "20G";

/// Longest time ccache may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cache of a run, looked at when the first build needs it: a run that finds everything up to date starts no
/// process.
#[derive(Debug)]
pub(super) struct Ccache {
    mode: CompilerCaching,
    program: Option<PathBuf>,
    ready: OnceLock<std::result::Result<(), Unusable>>,
    said: AtomicBool,
}

/// Why a ccache that is there takes no part.
#[derive(Debug, Clone)]
enum Unusable {
    /// It cannot say what it did for a build.
    TooOld,
    /// Its directory cannot be written, or it does not run.
    Broken(String),
}

impl Ccache {
    /// Looks on the PATH only.
    ///
    /// # Errors
    /// When it is asked for and not there.
    pub(super) fn new(mode: CompilerCaching, prober: &Prober) -> Result<Self> {
        let program = match mode {
            CompilerCaching::Off => None,
            CompilerCaching::Auto | CompilerCaching::On => prober.program("ccache").map(|f| f.path),
        };
        if mode == CompilerCaching::On && program.is_none() {
            return Err(prober
                .missing("ccache")
                .detail("asked by", "`--ccache on`, or `ccache` in the config")
                .hint("apt install ccache, or `--ccache auto` to use it only where it is there"));
        }
        Ok(Ccache {
            mode,
            program,
            ready: OnceLock::new(),
            said: AtomicBool::new(false),
        })
    }

    /// The cache as a build's launchers need it; `None` where it takes no part.
    ///
    /// # Errors
    /// When it is asked for, and the installed ccache is too old.
    pub(super) fn of_build(&self, ctx: &Context, plan: &BuildPlan) -> Result<Option<CompilerCache>> {
        let Some(program) = &self.program else { return Ok(None) };
        let dir = ctx.layout.ccache();
        let ready = self.ready.get_or_init(|| prepare(ctx, program));
        match ready {
            Ok(()) => {}
            Err(Unusable::TooOld) if self.mode == CompilerCaching::On => {
                return Err(Error::new(
                    Exit::Host,
                    format!("`{}` is too old: it keeps no log of what it did", program.display()),
                )
                .hint("install ccache 4.5 or later, or build with `--ccache off`"));
            }
            // What was not asked for by name is not missed.
            Err(Unusable::TooOld) => return Ok(None),
            Err(Unusable::Broken(why)) => {
                self.say(ctx, why);
                return Ok(None);
            }
        }
        let toolchain = plan.facts.toolchain.as_ref();
        let run = plan.run();
        let env: BTreeMap<&String, &String> = run.env.iter().map(|(name, word)| (name, &word.text)).collect();
        let tools = json!({
            "tools": plan.inputs()["toolchain"],
            "native": toolchain.map(|t| &t.native),
            "env": env,
        });
        // A compiler whose content nobody has hashed is not cached.
        let known = |role: &str| toolchain.is_some_and(|t| t.record.tools.contains_key(role));
        let of: BTreeSet<String> = [("cc", &plan.toolchain.cc), ("cxx", &plan.toolchain.cxx)]
            .into_iter()
            .filter(|(role, _)| known(role))
            .map(|(_, word)| word.text.clone())
            .collect();
        Ok(Some(CompilerCache {
            program: program.clone(),
            config: config_of(&dir),
            dir,
            tools: digest::sha256(digest::canonical(&tools)),
            of,
        }))
    }

    /// Says it if the cache failed in a build; once a run, since the next build will meet the same.
    pub(super) fn say_fault(&self, ctx: &Context, work: &WorkDir) {
        if let Some(said) = cached::fault(&work.record()) {
            self.say(ctx, said.lines().next().unwrap_or("it failed"));
        }
    }

    fn say(&self, ctx: &Context, why: &str) {
        if !self.said.swap(true, Ordering::SeqCst) {
            let dir = ctx.layout.ccache();
            ctx.shell.warning(format!(
                "the compiler cache `{}` cannot be used, builds go on without it: {why}",
                dir.display()
            ));
        }
    }
}

fn prepare(ctx: &Context, program: &Path) -> std::result::Result<(), Unusable> {
    let dir = ctx.layout.ccache();
    let config = config_of(&dir);
    let size = ctx.config.ccache_size.as_deref().unwrap_or(DEFAULT_SIZE);
    let write = || {
        fs::create_dir_all(dir.join("tmp")).doing(|| format!("cannot make `{}`", dir.display()))?;
        disk::write_atomic(&config, CompilerCache::settings(&dir, size).as_bytes())
    };
    let broken = |e: Error| Unusable::Broken([&[e.headline().to_owned()], e.causes()].concat().join(": "));
    write().map_err(broken)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let env = BTreeMap::from([
        ("PATH".to_owned(), text(program.parent().unwrap_or(program))),
        ("HOME".to_owned(), text(&dir)),
        ("CCACHE_DIR".to_owned(), text(&dir)),
        ("CCACHE_CONFIGPATH".to_owned(), text(&config)),
    ]);
    let question = [program.as_os_str(), "--get-config".as_ref(), "stats_log".as_ref()];
    let said = process::capture(&question, &env, &dir, None, PATIENCE).map_err(broken)?;
    if said.status.success() {
        Ok(())
    } else {
        Err(Unusable::TooOld)
    }
}

fn config_of(dir: &Path) -> PathBuf {
    dir.join("ccache.conf")
}
