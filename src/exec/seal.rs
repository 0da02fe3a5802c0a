//! The manifest of a finished build, and what is laid beside it in the prefix's `.bm/`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;

use crate::error::{IoContext as _, Result};
use crate::model::manifest::{Manifest, SCHEMA, Smoke, Tool};
use crate::model::recipe::Word;
use crate::plan::{BuildPlan, Need, StepName, show};
use crate::probe::host;
use crate::store::files::ListSummary;

use super::build::Attempt;
use super::prove::Proved;
use super::resolve::now;

/// Programs besides the toolchain whose version is worth knowing later.
const TOOLS: [&str; 4] = ["make", "bison", "flex", "perl"];

/// Puts together what the prefix will say about itself.
pub(super) fn manifest(attempt: &Attempt<'_>, proved: Proved, smoke: Smoke, files: &ListSummary) -> Manifest {
    let plan = attempt.plan;
    let toolchain = plan
        .facts
        .toolchain
        .as_ref()
        .expect("a build with an identity has a toolchain");
    let mut record = toolchain.record.clone();
    if plan.claims.march.as_deref() == Some("native") {
        record.native.clone_from(&toolchain.native);
    }
    let prefix = plan.prefix.display().to_string();
    let mut tools: BTreeMap<String, Tool> = TOOLS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), attempt.runner.prober.tool(name).ok()?)))
        .collect();
    tools.extend(plan.facts.cmake.clone().map(|cmake| ("cmake".to_owned(), cmake)));
    let run = plan.run();
    let texts = |words: &[Word]| words.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
    Manifest {
        schema: SCHEMA,
        name: plan.name.to_string(),
        aliases: plan.links.iter().map(ToString::to_string).collect(),
        product: plan.product().to_string(),
        version: plan.version.to_string(),
        version_num: plan.version_num(),
        series: plan.series(),
        variant: plan.variant.name.to_string(),
        toolchain: record,
        bin: format!("{prefix}/bin"),
        lib: format!("{prefix}/lib"),
        prefix,
        identity: attempt.identity.to_owned(),
        inputs: plan.inputs(),
        unresolved: vec![],
        sources: vec![attempt.source.clone()],
        submodules: vec![],
        patches: attempt.patches.clone(),
        steps: show::steps(&run),
        flags: BTreeMap::from([
            ("cflags".to_owned(), texts(&run.flags.cflags)),
            ("cxxflags".to_owned(), texts(&run.flags.cxxflags)),
            ("ldflags".to_owned(), texts(&run.flags.ldflags)),
        ]),
        dependencies: dependencies(plan),
        tools,
        libraries: proved.libraries,
        host: host::host(),
        profile: None,
        evidence: proved.evidence,
        audit: proved.audit,
        smoke,
        driver: plan.driver(),
        times: attempt.times.clone(),
        compiler_cache: attempt.compiler_cache(),
        configure_cache: attempt.configure_cache.clone(),
        files: files.files,
        files_sha256: files.files_sha256.clone(),
        size: files.size,
        built_at: now(),
        bm_version: env!("CARGO_PKG_VERSION").to_owned(),
        self_sha256: String::new(),
    }
}

/// Private dependencies: name to identity.
fn dependencies(plan: &BuildPlan) -> BTreeMap<String, String> {
    let of = |n: &Need| Some((n.name.to_string(), n.identity.clone()?));
    plan.needs.iter().filter_map(of).collect()
}

/// Lays logs (compressed), the recipe and patches as used, and the plan into `<prefix>/.bm/`.
pub(super) fn attach(attempt: &Attempt<'_>, prefix: &Path) -> Result<()> {
    let doing = || "cannot keep logs and recipe in the prefix".to_owned();
    let logs = prefix.join(".bm/logs");
    fs::create_dir_all(&logs).doing(doing)?;
    for step in StepName::ALL {
        let Ok(text) = fs::read(attempt.log(step)) else {
            continue;
        };
        let file = fs::File::create(logs.join(format!("{}.log.gz", step.as_str()))).doing(doing)?;
        let mut gz = GzEncoder::new(file, Compression::default());
        gz.write_all(&text).and_then(|()| gz.finish().map(drop)).doing(doing)?;
    }
    // Laid out as an overlay, so that `--recipes PREFIX/.bm/recipe` builds by it again.
    let recipe = prefix.join(".bm/recipe");
    let plan = attempt.plan;
    let keep = |file: PathBuf, text: &[u8]| {
        let dir = file.parent().expect("joined below the directory of the recipe");
        fs::create_dir_all(dir).doing(doing)?;
        fs::write(&file, text).doing(doing)
    };
    let recipe_file = recipe.join("recipes").join(format!("{}.toml", plan.product()));
    keep(recipe_file, plan.recipe.text.as_bytes())?;
    for (base, text) in &plan.recipe.bases {
        keep(recipe.join("recipes").join(format!("{base}.toml")), text.as_bytes())?;
    }
    let toolchain_file = recipe.join("toolchains").join(format!("{}.toml", plan.toolchain.name));
    keep(toolchain_file, plan.toolchain.text.as_bytes())?;
    for patch in &plan.run().patches {
        let text = attempt.runner.ctx.library.patch(&patch.file).unwrap_or_default();
        keep(recipe.join("patches").join(&patch.file), &text)?;
    }
    fs::write(recipe.join("plan.json"), format!("{:#}\n", show::json(plan))).doing(doing)
}
