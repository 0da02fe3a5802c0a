//! A plan as JSON (`show --json`, the manifest's `steps`) and as text that explains every word.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::model::recipe::Word;

use super::{BuildPlan, StepName};

/// Version of the JSON of `show`.
pub const SCHEMA: u32 = 1;

/// The JSON of `bm show --json NAME`; the manifest has the same fields as they came out.
pub fn json(plan: &BuildPlan) -> Value {
    json!({
        "schema": SCHEMA,
        "name": plan.name,
        "aliases": plan.links,
        "product": plan.product,
        "version": plan.version,
        "version_num": plan.version_num,
        "series": plan.series,
        "variant": plan.variant.name,
        "toolchain": plan.toolchain.name,
        "prefix": plan.prefix,
        "identity": plan.identity,
        "unresolved": plan.unresolved,
        "sources": [source(plan)],
        "submodules": [],
        "patches": plan.patches.iter().map(|p| json!({"file": p.file, "strip": p.strip, "sha256": p.sha256})).collect::<Vec<_>>(),
        "steps": steps(plan),
        "flags": {
            "cflags": texts(&plan.flags.cflags),
            "cxxflags": texts(&plan.flags.cxxflags),
            "ldflags": texts(&plan.flags.ldflags),
        },
        "claims": plan.claims,
        "dependencies": {},
        "needs_system": plan.requires.iter().map(|r| json!({"need": r.need.to_string(), "packages": r.packages})).collect::<Vec<_>>(),
        "notes": plan.notes,
    })
}

fn texts(words: &[Word]) -> Vec<&str> {
    words.iter().map(|w| w.text.as_str()).collect()
}

fn source(plan: &BuildPlan) -> Value {
    let source = &plan.source;
    let mut value = json!({
        "kind": source.kind,
        "url": source.urls.first(),
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
pub fn steps(plan: &BuildPlan) -> Value {
    let env: Value = plan
        .env
        .iter()
        .map(|(k, v)| (k.clone(), json!(v.text)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    StepName::ALL
        .iter()
        .flat_map(|&step| {
            let calls: Vec<Value> = plan
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
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "{} = {} {}, variant {}, toolchain {}",
        plan.name, plan.product, plan.version, plan.variant.name, plan.toolchain.name
    ));
    for link in &plan.links {
        line(format!("  also named {link}"));
    }
    line(format!("prefix    {}", plan.prefix.display()));
    line(format!(
        "identity  {}",
        plan.identity.as_deref().unwrap_or("unresolved")
    ));
    for what in &plan.unresolved {
        line(format!("  unresolved: {what}"));
    }
    let source = &plan.source;
    line(format!(
        "source    {} {} ({})",
        source.kind,
        source.reference,
        source.urls.first().map_or("-", String::as_str)
    ));
    if let Some(pin) = source.commit.as_ref().or(source.sha256.as_ref()) {
        let from = source
            .origin
            .as_ref()
            .map_or_else(|| source.pinned_by.clone(), ToString::to_string);
        line(format!("  pinned to {pin}  [{from}]"));
    }
    for patch in &plan.patches {
        line(format!(
            "patch     {} -p{} sha256 {}  [{}]",
            patch.file, patch.strip, patch.sha256, patch.origin
        ));
    }
    for note in &plan.notes {
        line(format!("note      {note}"));
    }
    for call in &plan.calls {
        line(format!("{}:", call.step.as_str()));
        line(format!("  {}", shell_line(call.argv.iter().map(|a| a.text.as_str()))));
        let width = call
            .argv
            .iter()
            .flat_map(|a| &a.parts)
            .map(|w| w.text.len())
            .max()
            .unwrap_or(0)
            .min(48);
        for arg in &call.argv {
            if arg.parts.len() > 1 || arg.parts.first().is_some_and(|p| p.text != arg.text) {
                let head = arg.text.split('=').next().unwrap_or_default();
                line(format!("    {head}="));
                for part in &arg.parts {
                    line(format!("      {:width$}  {}", part.text, part.origin));
                }
            } else {
                for part in &arg.parts {
                    line(format!("    {:width$}    {}", part.text, part.origin));
                }
            }
        }
        if call.make {
            line("    parallelism: from the job budget; an LTO link takes what tokens are free then (outside the identity)".into());
        }
    }
    out
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
