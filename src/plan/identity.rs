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

use serde_json::{Map, Value, json};

use crate::digest::{canonical, sha256};
use crate::model::manifest::Tool;
use crate::model::recipe::BuildSystem;

use super::{BuildPlan, Call, Commands, assemble};

/// Version of the canonical form.
const FORMAT: u32 = 1;

/// Keys of the inputs that speak of the host's tools: a difference only there is no change of the
/// recipe, and the prefix is kept until the user asks for `--rebuild=stale`.
pub const HOST_KEYS: [&str; 5] = ["toolchain", "native", "make", "cmake", FOR_COMPILER];

/// Key of the commands as they are with what the recipe adds for this very compiler; `commands`, `env`
/// and `patches` are without it then.
pub const FOR_COMPILER: &str = "for-compiler";

/// Computes the identity, and says what is unresolved.
pub fn fill(plan: &mut BuildPlan) {
    let mut unresolved: Vec<String> = plan.obstacles.iter().map(|o| o.headline().to_owned()).collect();
    if plan.source.pin().is_none() {
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
    if plan.recipe.build_system == BuildSystem::Cmake && plan.facts.cmake.is_none() {
        unresolved.push("program `cmake` is not there".to_owned());
    }
    for need in plan.needs.iter().filter(|n| n.identity.is_none()) {
        unresolved.push(format!("`{}`, which it needs, is not resolved", need.name));
    }
    plan.identity = unresolved.is_empty().then(|| sha256(canonical(&inputs(plan))));
    plan.unresolved = unresolved;
}

/// The canonical inputs of a plan. Put together by moves: plans are many, and `json!` copies what it is given.
pub(super) fn inputs(plan: &BuildPlan) -> Value {
    let run = plan.run();
    let plain = assemble::plain(plan, &run);
    let base = commands(plain.as_ref().unwrap_or(&run));
    let toolchain = plan.facts.toolchain.as_ref();
    let tools = toolchain.iter().flat_map(|t| &t.record.tools);
    let native = toolchain.filter(|_| plan.claims.march.as_deref() == Some("native"));
    let mut inputs = Map::from_iter(base);
    inputs.extend(
        [
            ("format", FORMAT.into()),
            ("product", plan.product().as_str().into()),
            ("version", plan.version.to_string().into()),
            (
                "source",
                json!({
                    "kind": plan.source.kind,
                    "commit": plan.source.commit,
                    "sha256": plan.source.sha256,
                }),
            ),
            ("prefix", plan.prefix.display().to_string().into()),
            (
                "toolchain",
                tools.map(|(role, tool)| (role.as_str(), content(tool))).collect(),
            ),
            ("native", native.map(|t| t.native.as_str()).into()),
            ("make", plan.facts.make.as_ref().map(content).into()),
            (
                "dependencies",
                plan.needs
                    .iter()
                    .map(|n| (n.name.to_string(), Value::from(n.identity.as_deref())))
                    .collect(),
            ),
            ("profile", Value::Null),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    // Absent elsewhere, so that prefixes of other products keep the identity they were sealed with.
    if let Some(cmake) = &plan.facts.cmake {
        inputs.insert("cmake".to_owned(), content(cmake));
    }
    if plain.is_some() {
        inputs.insert(FOR_COMPILER.to_owned(), Map::from_iter(commands(&run)).into());
    }
    inputs.into()
}

fn commands(run: &Commands) -> [(String, Value); 3] {
    let argv = |call: &Call| -> Value { call.argv.iter().map(|a| a.text.as_str()).collect() };
    let calls = run.calls.iter();
    let calls = calls.map(|call| Value::from(vec![call.step.as_str().into(), argv(call)]));
    let env = run.env.iter().map(|(name, word)| (name.as_str(), word.text.as_str()));
    let patches = run.patches.iter().map(|p| json!([p.file, p.strip, p.sha256]));
    [
        ("commands".to_owned(), calls.collect()),
        (
            "env".to_owned(),
            Value::Object(env.map(|(k, v)| (k.to_owned(), v.into())).collect()),
        ),
        ("patches".to_owned(), patches.collect()),
    ]
}

/// A tool as it enters an identity: not by its path.
fn content(tool: &Tool) -> Value {
    let [version, sha256] = [&tool.version, &tool.sha256].map(|text| Value::from(text.as_str()));
    [("version", version), ("sha256", sha256)].into_iter().collect()
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
        HOST_KEYS.contains(&self.key()) || self.of_dependency()
    }

    /// Whether the same build that it needs is another one now, as when a compiler moved under it. That it needs
    /// another build is the recipe's change.
    fn of_dependency(&self) -> bool {
        self.key() == "dependencies" && self.was != NOTHING && self.now != NOTHING
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

/// How a value that is absent is shown.
const NOTHING: &str = "nothing";

fn plain(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Null => NOTHING.to_owned(),
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
