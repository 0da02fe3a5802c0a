//! The files people write: recipes, toolchains, sets and the configuration, read from TOML into the
//! model.
//!
//! Owns the wire types, their JSON schemas, all checks of what is written, and the messages that
//! point into the file. Does no I/O: text comes in, checked values or a list of errors go out. Each
//! file is judged as a whole: syntax, unknown keys, wrong types and what does not make sense are all
//! reported in one run.

pub mod config;
pub mod diagnostic;
pub mod recipe;
pub mod set;
pub mod toolchain;

mod at;
mod read;
mod walk;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::{DeTable, Deserializer};

pub use at::At;
pub use diagnostic::{Kind, Paint, Source};
pub use read::{VERSION_FIELDS, WORD_FIELDS};

use diagnostic::Problem;
use walk::{Missing, walk};

/// JSON schema of `recipe`, `extension`, `toolchain`, `set` or `config`; `None` for any other word.
pub fn json_schema(kind: &str) -> Option<Value> {
    match kind {
        "recipe" => Some(schema_of::<recipe::RecipeFile>()),
        "extension" => Some(schema_of::<recipe::ExtensionFile>()),
        "toolchain" => Some(schema_of::<toolchain::ToolchainFile>()),
        "set" => Some(schema_of::<set::SetFile>()),
        "config" => Some(schema_of::<config::ConfigFile>()),
        _ => None,
    }
}

fn schema_of<W: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .with_transform(RecursiveTransform(drop_null))
        .into_generator()
        .into_root_schema_for::<W>()
        .to_value()
}

/// TOML has no null: an optional key is absent, so `null` has no place in the schema of its value.
fn drop_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|c| c.get("type").is_none_or(|t| t != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            for (key, value) in only {
                schema.insert(key, value);
            }
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}

/// Reads a wire type, and finds everything in the text that keeps it from being one. The value is
/// there when enough was left to judge further.
fn parse<W: JsonSchema + DeserializeOwned>(source: &Source) -> (Option<W>, Vec<Problem>) {
    if let Ok(wire) = toml::from_str(source.text()) {
        return (Some(wire), vec![]);
    }
    let (mut document, syntax) = DeTable::parse_recoverable(source.text());
    let missing = if syntax.is_empty() {
        Missing::Report
    } else {
        Missing::Allow
    };
    let mut problems: Vec<Problem> = syntax.iter().map(syntax_problem).collect();
    let misfits = walk(&mut document, &schema_of::<W>(), missing);
    // What the parser made of a line it could not read says nothing.
    let broken: Vec<_> = problems.iter().map(|p| source.line(p.at())).collect();
    problems.extend(misfits.into_iter().filter(|p| !broken.contains(&source.line(p.at()))));
    if !syntax.is_empty() {
        return (None, problems);
    }
    match W::deserialize(Deserializer::from(document)) {
        Ok(wire) => (Some(wire), problems),
        Err(_) if !problems.is_empty() => (None, problems),
        Err(e) => {
            problems.push(Problem::new(e.span().unwrap_or(0..0), "bad value", e.message()));
            (None, problems)
        }
    }
}

fn syntax_problem(e: &toml::de::Error) -> Problem {
    Problem::new(e.span().unwrap_or(0..0), "syntax error", e.message())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_that_refuses_unknown_keys_and_knows_no_null() {
        for kind in ["recipe", "toolchain", "set", "config"] {
            let schema = json_schema(kind).unwrap();
            assert_eq!(schema["additionalProperties"], false, "{kind}");
            assert!(!schema.to_string().contains("null"), "{kind}: {schema:#}");
            for (name, inner) in schema["$defs"].as_object().into_iter().flatten() {
                assert!(
                    inner.get("type").is_none_or(|t| t != "object") || inner["additionalProperties"] == false,
                    "{name}"
                );
            }
        }
        assert!(json_schema("manifest").is_none());
    }

    #[test]
    fn a_schema_describes_values_without_their_place() {
        let schema = json_schema("recipe").unwrap();
        assert_eq!(schema["properties"]["product"]["type"], "string");
        assert_eq!(schema["properties"]["driver"]["$ref"], "#/$defs/DriverTable");
        assert_eq!(schema["$defs"]["VersionRow"]["required"], serde_json::json!(["id"]));
        assert!(schema["properties"]["versions"]["description"].is_string());
    }
}
