//! A plan as JSON (`show --json`, the manifest's `steps`) and as text that explains every word.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::model::recipe::{BuildSystem, Family, Reason, Word};
use crate::text::public_url;

use super::{BuildPlan, Call, Commands, StepName};

/// Version of the JSON of `show`.
pub const SCHEMA: u32 = 1;

/// The JSON of `bm show --json NAME`; the manifest has the same fields as they came out.
pub fn json(plan: &BuildPlan) -> Value {
    let run = plan.run();
    json!({
        "schema": SCHEMA,
        "name": plan.name,
        "aliases": plan.links,
        "product": plan.product(),
        "version": plan.version,
        "version_num": plan.version_num(),
        "series": plan.series(),
        "variant": plan.variant.name,
        "toolchain": plan.toolchain.name,
        "prefix": plan.prefix,
        "identity": plan.identity,
        "unresolved": plan.unresolved,
        "sources": [source(plan)],
        "submodules": [],
        "patches": run.patches.iter().map(|p| json!({"file": p.file, "strip": p.strip, "sha256": p.sha256})).collect::<Vec<_>>(),
        "steps": steps(&run),
        "flags": {
            "cflags": texts(&run.flags.cflags),
            "cxxflags": texts(&run.flags.cxxflags),
            "ldflags": texts(&run.flags.ldflags),
        },
        "claims": plan.claims,
        "dependencies": dependencies(plan),
        "options": plan.choices,
        "needs_system": plan.requires().map(|r| json!({"need": r.need.to_string(), "packages": r.packages})).collect::<Vec<_>>(),
        "notes": notes(plan),
        "obstacles": obstacles(plan),
    })
}

/// Builds that it needs, by name, with their identities.
fn dependencies(plan: &BuildPlan) -> Value {
    let need = |n: &super::Need| (n.name.to_string(), json!(n.identity));
    plan.needs.iter().map(need).collect::<serde_json::Map<_, _>>().into()
}

/// Why conditional parts of the recipe took part.
pub fn notes(plan: &BuildPlan) -> Value {
    let note = |n: &&Reason| json!({"reason": n.text, "origin": n.origin.to_string()});
    plan.notes().iter().map(note).collect()
}

/// Why it must not be built like this.
pub fn obstacles(plan: &BuildPlan) -> Value {
    plan.obstacles.iter().map(|o| json!(o.headline())).collect()
}

fn texts(words: &[Word]) -> Vec<&str> {
    words.iter().map(|w| w.text.as_str()).collect()
}

fn source(plan: &BuildPlan) -> Value {
    let source = &plan.source;
    let mut value = json!({
        "kind": source.kind,
        "url": source.urls.first().map(|url| public_url(url)),
        "ref": source.reference,
        "pinned_by": source.pinned_by,
    });
    let map = value.as_object_mut().expect("made as an object above");
    if let Some(commit) = &source.commit {
        map.insert("commit".into(), json!(commit));
    }
    if let Some(sha256) = &source.sha256 {
        map.insert("sha256".into(), json!(sha256));
    }
    value
}

/// Commands as data. `{stage}` is the staging directory of the build's work tree.
pub fn steps(run: &Commands) -> Value {
    let env: Value = run
        .env
        .iter()
        .map(|(k, v)| (k.clone(), json!(v.text)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    StepName::ALL
        .iter()
        .flat_map(|&step| {
            let calls: Vec<Value> = run
                .calls
                .iter()
                .filter(|c| c.step == step)
                .map(|c| json!({"name": step.as_str(), "argv": c.argv.iter().map(|a| a.text.as_str()).collect::<Vec<_>>(), "env": env, "dir": "{build}"}))
                .collect();
            // Steps that bm does itself have no argv.
            if calls.is_empty() { vec![json!({"name": step.as_str(), "argv": [], "env": {}, "dir": null})] } else { calls }
        })
        .collect()
}

/// The text of `bm show --explain`: every command, and where each word came from.
pub fn explain(plan: &BuildPlan) -> String {
    let run = plan.run();
    let mut lines = vec![format!(
        "{} = {} {}, variant {}, toolchain {}",
        plan.name,
        plan.product(),
        plan.version,
        plan.variant.name,
        plan.toolchain.name
    )];
    lines.extend(plan.links.iter().map(|link| format!("  also named {link}")));
    lines.push(format!("prefix    {}", plan.prefix.display()));
    lines.push(format!(
        "identity  {}",
        plan.identity.as_deref().unwrap_or("unresolved")
    ));
    lines.extend(plan.unresolved.iter().map(|what| format!("  unresolved: {what}")));
    for obstacle in &plan.obstacles {
        lines.push(format!("obstacle  {}", obstacle.headline()));
        lines.extend(
            obstacle
                .details()
                .iter()
                .map(|(label, value)| format!("  {label}: {value}")),
        );
    }
    explain_source(plan, &mut lines);
    lines.extend(run.patches.iter().map(|patch| {
        format!(
            "patch     {} -p{} sha256 {}  [{}]",
            patch.file, patch.strip, patch.sha256, patch.origin
        )
    }));
    lines.extend(plan.notes().iter().map(|note| format!("note      {note}")));
    for (option, choice) in &plan.choices {
        lines.push(format!("option    {option} = {choice}"));
    }
    for need in &plan.needs {
        let identity = need.identity.as_deref().unwrap_or("unresolved");
        lines.push(format!("builds on {} {identity}  [{}]", need.name, need.origin));
    }
    lines.extend(plan.requires().map(|r| format!("needs     {}  [{}]", r.need, r.origin)));
    if !run.env.is_empty() {
        lines.push("environment of the commands, besides bm's own:".to_owned());
        lines.extend(
            run.env
                .iter()
                .map(|(name, word)| format!("    {name}={}    {}", word.text, word.origin)),
        );
    }
    for call in &run.calls {
        explain_call(plan, call, &mut lines);
    }
    lines.join("\n") + "\n"
}

fn explain_source(plan: &BuildPlan, lines: &mut Vec<String>) {
    let source = &plan.source;
    let url = source
        .urls
        .first()
        .map_or_else(|| "-".to_owned(), |url| public_url(url));
    lines.push(format!("source    {} {} ({url})", source.kind, source.reference));
    if let Some(pin) = source.pin() {
        let by = &source.pinned_by;
        let from = source.origin.as_ref().map_or_else(|| by.clone(), ToString::to_string);
        lines.push(format!("  pinned to {pin}  [{from}]"));
    }
}

fn explain_call(plan: &BuildPlan, call: &Call, lines: &mut Vec<String>) {
    lines.push(format!("{}:", call.step.as_str()));
    lines.push(format!("  {}", shell_line(call.argv.iter().map(|a| a.text.as_str()))));
    let words = call.argv.iter().flat_map(|a| &a.parts);
    let width = words.map(|w| w.text.len()).max().unwrap_or(0).min(48);
    for arg in &call.argv {
        let head = arg.head();
        if head.is_empty() {
            lines.extend(
                arg.parts
                    .iter()
                    .map(|word| format!("    {:width$}    {}", word.text, word.origin)),
            );
        } else {
            lines.push(format!("    {head}"));
            lines.extend(
                arg.parts
                    .iter()
                    .map(|word| format!("      {:width$}  {}", word.text, word.origin)),
            );
        }
    }
    if call.make {
        lines.push(
            "    parallelism: from the job budget; an LTO link takes what tokens are free then (outside the identity)"
                .to_owned(),
        );
    }
    if call.step == StepName::Configure && plan.recipe.build_system == BuildSystem::Autoconf {
        lines.push(
            "    answers may come from an equal configure before (outside the identity; `--configure-cache off`)"
                .to_owned(),
        );
    }
    if call.step == StepName::Compile {
        lines.push(
            "    each compile also gets -fdebug-prefix-map=/proc/self/cwd=./DIR from bm's recording launcher, and paths that are \
             read in the work directory become relative: debug information names no work directory, and no code changes"
                .to_owned(),
        );
        lines.push("    objects may come from ccache (outside the identity; `--ccache off`)".to_owned());
    }
    if call.step == StepName::Compile && plan.claims.lto == Some(true) && plan.family() == Family::Gcc {
        lines.push(
            "    each LTO unit also gets -frandom-seed=HASH from bm's recording launcher: it names sections, changes no code"
                .to_owned(),
        );
    }
}

/// A command line that a shell reads back as the same words.
pub fn shell_line<'a>(argv: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for word in argv {
        if !out.is_empty() {
            out.push(' ');
        }
        let quoted = shlex::try_quote(word).unwrap_or_else(|_| word.into());
        let _ = write!(out, "{quoted}");
    }
    out
}
