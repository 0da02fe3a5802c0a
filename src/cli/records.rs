//! Commands that read what is known: list, history, log, verified.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::exec;
use crate::matrix;
use crate::model::build::Revision;
use crate::model::name::BuildName;
use crate::plan::StepName;
use crate::select;
use crate::store::lock::Locks;
use crate::store::{self, history as past};
use crate::text;
use crate::ui::table;
use crate::verified::{self, Verified};

use super::args;
use super::prefixes::{built, names, sealed};
use super::{Ended, one};

/// The list shipped with bm.
const SHIPPED: &str = include_str!("../../recipes/verified.toml");

/// `bm list`.
pub fn list(ctx: &Context, selectors: &[String], only_built: bool, all: bool, json: bool) -> Ended {
    if only_built {
        return list_built(ctx, selectors, json);
    }
    if selectors.is_empty() && !all && !json {
        ctx.shell.result(overview(ctx));
        return Ok(Exit::Ok);
    }
    let proved = Verified::parse(SHIPPED, "recipes/verified.toml").map_err(one)?;
    let mut found = Vec::new();
    if selectors.is_empty() {
        for recipe in ctx.library.recipes.values() {
            let toolchains = ctx.library.toolchains.values().filter(|t| all || t.default);
            for cell in matrix::cells(recipe, toolchains).map_err(one)? {
                let pre = matches!(&cell.request.revision, Revision::Release(v) if v.is_pre_release());
                if all || !pre {
                    found.push((cell.name, cell.request));
                }
            }
        }
    } else {
        found = ctx.names().select(selectors, None)?;
    }
    let mut rows = Vec::new();
    let mut builds = Vec::new();
    for (name, request) in found {
        let version = match &request.revision {
            Revision::Release(v) => v.to_string(),
            _ => "as the distribution has it".to_owned(),
        };
        let is_built = ctx.index.sealed(&name);
        let platforms = proved.platforms(name.as_str());
        builds.push(json!({
            "name": name, "product": request.product, "version": version, "variant": request.variant.name,
            "toolchain": request.toolchain, "built": is_built, "verified": platforms,
        }));
        let state = if is_built { "built" } else { "-" };
        let proof = if platforms.is_empty() {
            "not verified".to_owned()
        } else {
            format!("verified on {}", platforms.join(", "))
        };
        rows.push(vec![name.to_string(), version, state.to_owned(), proof]);
    }
    ctx.shell.result(if json {
        json!({"schema": 1, "builds": builds}).to_string()
    } else {
        table(&rows)
    });
    Ok(Exit::Ok)
}

fn overview(ctx: &Context) -> String {
    let mut out = Vec::new();
    for recipe in ctx.library.recipes.values() {
        out.push(format!("{} — {}", recipe.product, recipe.description));
        let mut series = BTreeMap::<Vec<u32>, Vec<String>>::new();
        for pinned in &recipe.versions {
            let key = pinned
                .version
                .numbers()
                .iter()
                .take(recipe.series_parts)
                .copied()
                .collect();
            series
                .entry(key)
                .or_default()
                .push(matrix::release_name(recipe, &pinned.version));
        }
        for releases in series.values() {
            if let (Some(first), Some(last)) = (releases.first(), releases.last()) {
                out.push(format!(
                    "  {first} to {last}  ({})",
                    text::count(releases.len(), "release")
                ));
            }
        }
        if let Some(distro) = &recipe.sources.distro {
            out.push(format!("  {}  (the newest this distribution has)", distro.alias));
        }
        let variants: Vec<&str> = recipe.variants.keys().map(|v| v.as_str()).collect();
        out.push(format!("  variants    {}", variants.join(" ")));
    }
    let toolchains: Vec<String> = ctx
        .library
        .toolchains
        .values()
        .map(|t| {
            if t.default {
                format!("{} (default, not in names)", t.name)
            } else {
                t.name.to_string()
            }
        })
        .collect();
    out.push(format!("toolchains    {}", toolchains.join(" ")));
    for set in ctx.library.sets.values() {
        out.push(format!(
            "@{:12} {} ({})",
            set.name.as_str(),
            set.description,
            text::count(set.builds.len(), "selector")
        ));
    }
    out.push("a build is RELEASE_VARIANT or RELEASE_VARIANT_TOOLCHAIN; `bm list 'pg16*'` lists them, `bm list --built` what is there".to_owned());
    out.join("\n")
}

fn list_built(ctx: &Context, selectors: &[String], json: bool) -> Ended {
    let (manifests, links) = built(ctx).map_err(one)?;
    let names = names(&manifests);
    let picked = if selectors.is_empty() {
        names
    } else {
        select::among(&names, &links, selectors)?
    };
    let chosen: Vec<_> = manifests
        .iter()
        .filter(|m| picked.iter().any(|p| p.as_str() == m.name))
        .collect();
    if json {
        ctx.shell.result(json!({"schema": 1, "builds": chosen}).to_string());
        return Ok(Exit::Ok);
    }
    let rows: Vec<Vec<String>> = chosen
        .iter()
        .map(|m| {
            let compiler = m.toolchain.tools.get("cc").map_or("", |t| t.version.as_str());
            vec![
                m.name.clone(),
                m.version.clone(),
                m.variant.clone(),
                compiler.to_owned(),
                text::size(m.size),
                m.built_at.clone(),
                m.prefix.clone(),
            ]
        })
        .collect();
    ctx.shell.result(table(&rows));
    Ok(Exit::Ok)
}

/// `bm history`.
pub fn history(ctx: &Context, selectors: &[String], json: bool) -> Ended {
    let names = past::remembered_names(&ctx.layout).map_err(one)?;
    let picked = if selectors.is_empty() {
        names
    } else {
        select::among(&names, &BTreeMap::new(), selectors)?
    };
    let mut rows = Vec::new();
    let mut builds = Vec::new();
    for name in picked {
        let now = sealed(ctx, &name);
        for remembered in past::history(&ctx.layout, &name).map_err(one)? {
            // A record that cannot be read any more is not a build that never was.
            let Ok(m) = &remembered.manifest else { continue };
            let here = now
                .as_ref()
                .is_some_and(|n| n.identity == m.identity && n.built_at == m.built_at);
            let compiler = m
                .toolchain
                .tools
                .get("cc")
                .map_or("", |t| t.version.as_str())
                .to_owned();
            rows.push(vec![
                m.built_at.clone(),
                m.name.clone(),
                m.version.clone(),
                compiler,
                m.identity[..12].to_owned(),
                if here { "there" } else { "gone" }.to_owned(),
            ]);
            builds.push(json!({"there": here, "manifest": m}));
        }
    }
    rows.sort();
    ctx.shell.result(if json {
        json!({"schema": 1, "builds": builds}).to_string()
    } else {
        table(&rows)
    });
    Ok(Exit::Ok)
}

/// `bm log`.
pub fn log(ctx: &Context, build: &str, step: Option<&str>, follow: bool) -> Ended {
    let name = super::prefixes::canonical(ctx, build).map_err(one)?;
    if let Some(step) = step.filter(|s| StepName::parse(s).is_none()) {
        let known: Vec<&str> = StepName::ALL.iter().map(|s| s.as_str()).collect();
        return Err(one(Error::new(Exit::Usage, format!("unknown step `{step}`"))
            .hint(format!("steps are {}", text::quoted(known, "and")))));
    }
    let live = ctx.layout.logs(&name);
    // Of a build that is not being made there is nothing to follow.
    let locks = exec::locks(ctx);
    if follow && locks.is_taken(&name) {
        return follow_log(ctx, &locks, &name, &live, step).map_err(one);
    }
    let sealed = ctx.layout.prefix(&name).join(".bm/logs");
    let file = pick_log(&live, step, "log")
        .or_else(|| pick_log(&sealed, step, "log.gz"))
        .ok_or_else(|| {
            one(Error::new(Exit::Usage, format!("there is no log of `{name}`"))
                .hint("`bm list --built` shows what is there"))
        })?;
    ctx.shell.result(read_log(&file).map_err(one)?.trim_end());
    Ok(Exit::Ok)
}

/// The log of a step, or of the last step that has one.
fn pick_log(dir: &Path, step: Option<&str>, ending: &str) -> Option<PathBuf> {
    let steps = StepName::ALL
        .iter()
        .rev()
        .map(|s| s.as_str())
        .filter(|s| step.is_none_or(|want| want == *s));
    steps.map(|s| dir.join(format!("{s}.{ending}"))).find(|p| p.is_file())
}

fn read_log(file: &Path) -> Result<String> {
    let bytes = fs::read(file).doing(|| "cannot read a log".to_owned())?;
    let mut text = Vec::new();
    if file.extension().is_some_and(|e| e == "gz") {
        flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_end(&mut text)
            .doing(|| format!("cannot read `{}`", file.display()))?;
    } else {
        text = bytes;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Prints what is appended, step after step, until nobody builds it any more.
fn follow_log(ctx: &Context, locks: &Locks, name: &BuildName, live: &Path, step: Option<&str>) -> Result<Exit> {
    let wanted: Vec<StepName> = StepName::ALL
        .into_iter()
        .filter(|s| step.is_none_or(|want| want == s.as_str()))
        .collect();
    let mut follow = Follow {
        ctx,
        live,
        wanted,
        now: None,
    };
    // What is through is not told again.
    let has_log = |s: &&StepName| follow.live_log(**s).is_file();
    if let Some(begin) = follow.wanted.iter().rev().find(has_log).copied() {
        follow.open(begin);
    }
    while locks.is_taken(name) {
        follow.catch_up();
        if ctx.cancel.requested().is_some() {
            return Err(Error::new(Exit::Interrupted, "interrupted"));
        }
        std::thread::sleep(FOLLOWING);
    }
    follow.catch_up();
    follow.end_line();
    if !live.is_dir() {
        follow.rest(&ctx.layout.prefix(name).join(".bm/logs"))?;
    }
    Ok(Exit::Ok)
}

/// Time between two looks at a log that is followed.
const FOLLOWING: Duration = Duration::from_millis(100);

/// The steps of one build as their logs grow.
struct Follow<'a> {
    ctx: &'a Context,
    live: &'a Path,
    wanted: Vec<StepName>,
    now: Option<Reading>,
}

/// A log that is being read. It is held open: when the build is sealed, its name goes.
struct Reading {
    step: StepName,
    file: fs::File,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
}

impl Follow<'_> {
    fn live_log(&self, step: StepName) -> PathBuf {
        self.live.join(format!("{}.log", step.as_str()))
    }

    fn later(&self) -> impl Iterator<Item = StepName> {
        let now = self.now.as_ref().map(|reading| reading.step);
        self.wanted.iter().copied().filter(move |step| Some(*step) > now)
    }

    fn open(&mut self, step: StepName) {
        let path = self.live_log(step);
        if let Ok(file) = fs::File::open(&path) {
            self.end_line();
            self.ctx.shell.status(step.verb(), path.display().to_string());
            self.now = Some(Reading {
                step,
                file,
                begun: Vec::new(),
            });
        }
    }

    /// Prints whole lines up to where the last step is now. A step is done with when a later one has a log.
    fn catch_up(&mut self) {
        loop {
            let later = self.later().find(|step| self.live_log(*step).is_file());
            self.print_new();
            let before = self.now.as_ref().map(|reading| reading.step);
            if let Some(step) = later {
                self.open(step);
            }
            if self.now.as_ref().map(|reading| reading.step) == before {
                return;
            }
        }
    }

    fn print_new(&mut self) {
        let Some(reading) = &mut self.now else { return };
        // What cannot be read now may be read at the next look.
        let _ = reading.file.read_to_end(&mut reading.begun);
        if let Some(end) = reading.begun.iter().rposition(|b| *b == b'\n') {
            let rest = reading.begun.split_off(end + 1);
            self.ctx.shell.result(String::from_utf8_lossy(&reading.begun[..end]));
            reading.begun = rest;
        }
    }

    /// A last line without an end is a line all the same.
    fn end_line(&mut self) {
        if let Some(reading) = &mut self.now
            && !reading.begun.is_empty()
        {
            self.ctx.shell.result(String::from_utf8_lossy(&reading.begun));
            reading.begun.clear();
        }
    }

    /// Logs of steps that came and went between two looks, from the sealed prefix.
    fn rest(&self, sealed: &Path) -> Result<()> {
        for step in self.later() {
            let file = sealed.join(format!("{}.log.gz", step.as_str()));
            if file.is_file() {
                self.ctx.shell.status(step.verb(), file.display().to_string());
                self.ctx.shell.result(read_log(&file)?.trim_end());
            }
        }
        Ok(())
    }
}

/// `bm verified`.
pub fn verified(ctx: &Context, command: args::Verified) -> Ended {
    match command {
        args::Verified::List { json } => {
            let proved = Verified::parse(SHIPPED, "recipes/verified.toml").map_err(one)?;
            let rows: Vec<Vec<String>> = proved
                .builds
                .iter()
                .map(|b| {
                    vec![
                        b.name.clone(),
                        b.platform.clone(),
                        b.compiler.clone(),
                        b.date.clone(),
                        b.source.clone(),
                        b.smoke.clone(),
                    ]
                })
                .collect();
            ctx.shell.result(if json.json {
                json!({"schema": 1, "builds": proved.builds}).to_string()
            } else {
                table(&rows)
            });
            Ok(Exit::Ok)
        }
        args::Verified::Add { built: selectors, file } => {
            let (manifests, links) = built(ctx).map_err(one)?;
            let picked = select::among(&names(&manifests), &links, &selectors.builds)?;
            let display = file.display().to_string();
            let mut list = match fs::read_to_string(&file) {
                Ok(text) => Verified::parse(&text, &display).map_err(one)?,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Verified::default(),
                Err(e) => return Err(one(Error::io(format!("cannot read `{display}`"), &e))),
            };
            let mut errors = Vec::new();
            for name in picked {
                let manifest = sealed(ctx, &name).expect("picked among sealed prefixes");
                // The manifest speaks of files; they must still be those.
                match store::verify::verify(&ctx.layout.prefix(&name))
                    .and_then(|r| intact(&name, r.is_intact()))
                    .and_then(|()| {
                        let needed = |name: &str| sealed(ctx, &name.parse().ok()?).map(|m| *m);
                        verified::entry(&manifest, needed)
                    }) {
                    Ok(entry) => {
                        ctx.shell.status("Verified", format!("{name} on {}", entry.platform));
                        list.add(entry);
                    }
                    Err(error) => errors.push(error),
                }
            }
            store::disk::write_atomic(&file, list.render().as_bytes()).map_err(one)?;
            if errors.is_empty() { Ok(Exit::Ok) } else { Err(errors) }
        }
    }
}

fn intact(name: &BuildName, intact: bool) -> Result<()> {
    if intact {
        Ok(())
    } else {
        Err(
            Error::new(Exit::Proof, format!("`{name}` has changed since it was sealed"))
                .hint(format!("bm verify {name}")),
        )
    }
}
