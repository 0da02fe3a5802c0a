//! The identity of a build: sha256 of its canonical inputs.
//!
//! | in | out |
//! |---|---|
//! | commit or sha256 of the source, patches in order | where the bytes came from, mirrors |
//! | every command with the final prefix, every flag | work paths, job counts, parallelism of LTO links |
//! | compiler, its parts, assembler, linker, archiver, make: version line and content | their paths |
//! | what `-march=native` means here, where it is asked for | the CPU otherwise |
//! | environment the recipe sets, profile, dependencies' identities | times, logs, bm's own version |

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::model::manifest::Tool;

use super::BuildPlan;

/// Version of the canonical form.
const FORMAT: u32 = 1;

/// Keys of the inputs that speak of the host's tools: a difference only there is no change of the
/// recipe, and the prefix is kept until the user asks for `--rebuild=stale`.
pub const HOST_KEYS: [&str; 3] = ["toolchain", "native", "make"];

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
    plan.identity = unresolved.is_empty().then(|| hash(&plan.inputs));
    plan.unresolved = unresolved;
}

fn inputs(plan: &BuildPlan) -> Value {
    let commands: Vec<Value> = plan
        .calls
        .iter()
        .map(|call| {
            json!([
                call.step.as_str(),
                call.argv.iter().map(|a| a.text.as_str()).collect::<Vec<_>>()
            ])
        })
        .collect();
    let env: BTreeMap<&str, &str> = plan.env.iter().map(|(k, v)| (k.as_str(), v.text.as_str())).collect();
    let patches: Vec<Value> = plan
        .patches
        .iter()
        .map(|p| json!([p.file, p.strip, p.sha256]))
        .collect();
    let toolchain = plan.facts.toolchain.as_ref();
    let tools: BTreeMap<&str, Value> = toolchain
        .iter()
        .flat_map(|t| &t.record.tools)
        .map(|(role, tool)| (role.as_str(), content(tool)))
        .collect();
    let native = toolchain
        .filter(|_| plan.claims.march.as_deref() == Some("native"))
        .map(|t| t.native.as_str());
    json!({
        "format": FORMAT,
        "product": plan.product,
        "version": plan.version,
        "source": {
            "kind": plan.source.kind,
            "commit": plan.source.commit,
            "sha256": plan.source.sha256,
        },
        "patches": patches,
        "prefix": plan.prefix.display().to_string(),
        "commands": commands,
        "env": env,
        "toolchain": tools,
        "native": native,
        "make": plan.facts.make.as_ref().map(content),
        "dependencies": {},
        "profile": null,
    })
}

/// A tool as it enters an identity: not by its path.
fn content(tool: &Tool) -> Value {
    json!({ "version": tool.version, "sha256": tool.sha256 })
}

/// sha256, in hex, of the canonical form of a value.
pub fn hash(value: &Value) -> String {
    hex(&Sha256::digest(canonical(value).as_bytes()))
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// JSON with sorted keys and no white space.
pub fn canonical(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let ordered: BTreeMap<&String, Value> = map.iter().map(|(k, v)| (k, sorted(v))).collect();
                Value::Object(ordered.into_iter().map(|(k, v)| (k.clone(), v)).collect::<Map<_, _>>())
            }
            Value::Array(list) => Value::Array(list.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    sorted(value).to_string()
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
        let key = self.path.split('.').next().unwrap_or_default();
        HOST_KEYS.contains(&key)
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
    fn canonical_form_does_not_depend_on_key_order() {
        let a = json!({"b": [1, {"z": null, "y": "é\n"}], "a": true});
        let b = json!({"a": true, "b": [1, {"y": "é\n", "z": null}]});
        assert_eq!(canonical(&a), r#"{"a":true,"b":[1,{"y":"é\n","z":null}]}"#);
        assert_eq!(hash(&a), hash(&b));
        assert_ne!(hash(&a), hash(&json!({"a": true, "b": [{"y": "é\n", "z": null}, 1]})));
    }

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
