//! The identity of a build: sha256 of its canonical inputs.
//!
//! | in | out |
//! |---|---|
//! | commit or sha256 of the source, patches in order | where the bytes came from, mirrors |
//! | every command with the final prefix, every flag | work paths, job counts, parallelism of LTO links |
//! | compiler, its parts, assembler, linker, archiver, make: version line and content | their paths |
//! | what `-march=native` means here, where it is asked for | the CPU otherwise |
//! | environment the recipe sets, profile, dependencies' identities | times, logs, bm's own version |
//!
//! What a recipe adds under a condition on the compiler follows from the host and stands apart: see
//! [`FOR_COMPILER`].

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::digest::{canonical, sha256};
use crate::model::manifest::Tool;

use super::{BuildPlan, Commands};

/// Version of the canonical form.
const FORMAT: u32 = 1;

/// Keys of the inputs that speak of the host's tools: a difference only there is no change of the
/// recipe, and the prefix is kept until the user asks for `--rebuild=stale`.
pub const HOST_KEYS: [&str; 4] = ["toolchain", "native", "make", FOR_COMPILER];

/// Key of the commands as they are with what the recipe adds for this very compiler; `commands`, `env`
/// and `patches` are without it then.
pub const FOR_COMPILER: &str = "for-compiler";

/// Computes inputs, identity and what is unresolved.
pub fn fill(plan: &mut BuildPlan) {
    let mut unresolved = std::mem::take(&mut plan.unresolved);
    if plan.source.commit.is_none() && plan.source.sha256.is_none() {
        unresolved.push(format!(
            "{} `{}` is not pinned",
            plan.source.kind, plan.source.reference
        ));
    }
    if plan.facts.toolchain.is_none() {
        let why = plan
            .facts
            .toolchain_missing
            .as_ref()
            .map_or("not looked at", |e| e.headline());
        unresolved.push(format!("toolchain `{}`: {why}", plan.toolchain.name));
    }
    if plan.facts.make.is_none() {
        unresolved.push("program `make` is not there".to_owned());
    }
    plan.inputs = inputs(plan);
    plan.identity = unresolved.is_empty().then(|| sha256(canonical(&plan.inputs)));
    plan.unresolved = unresolved;
}

fn inputs(plan: &BuildPlan) -> Value {
    let base = commands(plan.plain.as_deref().unwrap_or(&plan.run));
    let toolchain = plan.facts.toolchain.as_ref();
    let tools: BTreeMap<&str, Value> = toolchain
        .iter()
        .flat_map(|t| &t.record.tools)
        .map(|(role, tool)| (role.as_str(), content(tool)))
        .collect();
    let native = toolchain
        .filter(|_| plan.claims.march.as_deref() == Some("native"))
        .map(|t| t.native.as_str());
    let mut inputs = json!({
        "format": FORMAT,
        "product": plan.product,
        "version": plan.version,
        "source": {
            "kind": plan.source.kind,
            "commit": plan.source.commit,
            "sha256": plan.source.sha256,
        },
        "patches": base["patches"],
        "prefix": plan.prefix.display().to_string(),
        "commands": base["commands"],
        "env": base["env"],
        "toolchain": tools,
        "native": native,
        "make": plan.facts.make.as_ref().map(content),
        "dependencies": {},
        "profile": null,
    });
    if plan.plain.is_some() {
        inputs[FOR_COMPILER] = commands(&plan.run);
    }
    inputs
}

fn commands(run: &Commands) -> Value {
    let calls = run.calls.iter().map(|call| {
        let argv: Vec<&str> = call.argv.iter().map(|a| a.text.as_str()).collect();
        json!([call.step.as_str(), argv])
    });
    let env: BTreeMap<&str, &str> = run.env.iter().map(|(k, v)| (k.as_str(), v.text.as_str())).collect();
    let patches = run.patches.iter().map(|p| json!([p.file, p.strip, p.sha256]));
    json!({
        "commands": calls.collect::<Vec<_>>(),
        "env": env,
        "patches": patches.collect::<Vec<_>>(),
    })
}

/// A tool as it enters an identity: not by its path.
fn content(tool: &Tool) -> Value {
    json!({ "version": tool.version, "sha256": tool.sha256 })
}

/// One difference between the inputs of a prefix and those planned now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Dotted path: `source.commit`, `toolchain.cc.version`.
    pub path: String,
    /// In the prefix.
    pub was: String,
    /// Planned now.
    pub now: String,
}

impl Difference {
    /// Whether it only says that the host's tools moved.
    pub fn of_host(&self) -> bool {
        HOST_KEYS.contains(&self.key())
    }

    /// Whether it is about what the recipe adds for one compiler.
    pub fn of_compiler_words(&self) -> bool {
        self.key() == FOR_COMPILER
    }

    fn key(&self) -> &str {
        self.path.split('.').next().unwrap_or_default()
    }
}

/// All differences between two inputs, so that staleness can always be explained.
pub fn differences(was: &Value, now: &Value) -> Vec<Difference> {
    fn walk(path: &str, was: &Value, now: &Value, out: &mut Vec<Difference>) {
        match (was, now) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for key in keys {
                    let path = if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    };
                    walk(
                        &path,
                        a.get(key).unwrap_or(&Value::Null),
                        b.get(key).unwrap_or(&Value::Null),
                        out,
                    );
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (i, (x, y)) in a.iter().zip(b).enumerate() {
                    walk(&format!("{path}.{i}"), x, y, out);
                }
            }
            _ if was == now => {}
            _ => out.push(Difference {
                path: path.to_owned(),
                was: plain(was),
                now: plain(now),
            }),
        }
    }
    let mut out = Vec::new();
    walk("", was, now, &mut out);
    out
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Null => "nothing".to_owned(),
        other => canonical(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_path_and_tell_host_from_recipe() {
        let was = json!({"toolchain": {"cc": {"version": "gcc 12"}}, "source": {"commit": "a"}, "commands": [["x", ["-O2"]]]});
        let now = json!({"toolchain": {"cc": {"version": "gcc 13"}}, "source": {"commit": "a"}, "commands": [["x", ["-O3"]]]});
        let found = differences(&was, &now);
        let paths: Vec<_> = found
            .iter()
            .map(|d| (d.path.as_str(), d.was.as_str(), d.now.as_str(), d.of_host()))
            .collect();
        assert_eq!(
            paths,
            [
                ("commands.0.1.0", "-O2", "-O3", false),
                ("toolchain.cc.version", "gcc 12", "gcc 13", true)
            ]
        );
    }
}
