//! Compares a parsed TOML document with the JSON schema of its kind, and finds everything that does
//! not fit, where serde stops at the first.
//!
//! The schema is made from the wire types, so the two cannot drift. What was found wrong is taken out
//! of the document, so that the rest can still be read and checked. Knows no kind of file.

use std::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::text::{did_you_mean, quoted, suggest};

use super::diagnostic::Problem;

/// More keys than this are not listed in a hint.
const FEW: usize = 10;

/// Whether keys the schema wants may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// They are reported.
    Report,
    /// Nothing is said: the parser lost some of the text.
    Allow,
}

/// Whether a value stays in the document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Drop,
}

/// Finds all that does not fit, and takes it out.
pub(super) fn walk(document: &mut Spanned<DeTable<'_>>, schema: &Value, missing: Missing) -> Vec<Problem> {
    let mut walk = Walk {
        root: schema,
        missing,
        problems: Vec::new(),
    };
    walk.table(document.get_mut(), 0..0, walk.root, "");
    walk.problems
}

struct Walk<'s> {
    root: &'s Value,
    missing: Missing,
    problems: Vec<Problem>,
}

impl<'s> Walk<'s> {
    /// The schema itself, or the one it refers to.
    fn follow(&self, schema: &'s Value) -> &'s Value {
        schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| self.root.pointer(reference.trim_start_matches('#')))
            .unwrap_or(schema)
    }

    /// `at` is where a missing key is shown.
    fn table(&mut self, table: &mut DeTable<'_>, at: Range<usize>, schema: &'s Value, path: &str) {
        let schema = self.follow(schema);
        let known = schema.get("properties").and_then(Value::as_object);
        let absent = self.absent(table, schema);
        let mut meant = Vec::new();
        for (key, mut value) in std::mem::replace(table, DeTable::new()) {
            let name = key.get_ref().as_ref();
            let inner = known
                .and_then(|known| known.get(name))
                .or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()));
            let Some(inner) = inner else {
                let keys: Vec<&str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                meant.extend(suggest(name, keys.iter().copied()));
                self.report_unknown(name, key.span(), &keys, path);
                continue;
            };
            if self.value(&mut value, self.follow(inner), &join(path, name)) == Verdict::Keep {
                table.insert(key, value);
            }
        }
        // A key that was only mistyped is not missing too.
        for key in absent.into_iter().filter(|key| !meant.contains(key)) {
            self.report_missing(key, at.clone(), path);
        }
    }

    /// Keys the schema wants and the table has not, not even wrongly.
    fn absent(&self, table: &DeTable<'_>, schema: &'s Value) -> Vec<&'s str> {
        if self.missing == Missing::Allow {
            return vec![];
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        required
            .filter_map(Value::as_str)
            .filter(|key| !table.contains_key(*key))
            .collect()
    }

    fn report_missing(&mut self, key: &str, at: Range<usize>, path: &str) {
        let place = if path.is_empty() { "from the file" } else { "here" };
        let what = format!("missing key `{}`", join(path, key));
        self.problems
            .push(Problem::new(at, what, format!("`{key}` is missing {place}")));
    }

    fn report_unknown(&mut self, name: &str, span: Range<usize>, known: &[&str], path: &str) {
        let label = if path.is_empty() {
            "not a key at the top of the file".to_owned()
        } else {
            format!("not a key of `{path}`")
        };
        let hint = did_you_mean(name, known.iter().copied()).or_else(|| {
            let few = known.len() <= FEW;
            few.then(|| format!("keys known here: {}", quoted(known.iter().copied(), "and")))
        });
        self.problems
            .push(Problem::new(span, format!("unknown key `{name}`"), label).hint(hint));
    }

    fn value(&mut self, value: &mut Spanned<DeValue<'_>>, schema: &'s Value, path: &str) -> Verdict {
        let span = value.span();
        let wanted = schema.get("type").and_then(Value::as_str);
        match (wanted, value.get_mut()) {
            (Some("object"), DeValue::Table(table)) => {
                self.table(table, span, schema, path);
                Verdict::Keep
            }
            (Some("array"), DeValue::Array(array)) => {
                if let Some(items) = schema.get("items") {
                    let items = self.follow(items);
                    *array = std::mem::replace(array, DeArray::new())
                        .into_iter()
                        .filter_map(|mut item| (self.value(&mut item, items, path) == Verdict::Keep).then_some(item))
                        .collect();
                }
                Verdict::Keep
            }
            (Some("integer"), DeValue::Integer(number)) => {
                let number = i64::from_str_radix(number.as_str(), number.radix()).ok();
                self.range(number, span, schema, path)
            }
            (Some("boolean"), DeValue::Boolean(_)) => Verdict::Keep,
            (Some("string") | None, DeValue::String(text)) => self.choice(text, span, schema, path),
            (_, found) => {
                let found = found.type_str();
                let hint = (wanted == Some("array") && found == "string").then(|| "put it in `[ ]`".to_owned());
                let label = format!("expected {}, found {}", self.describe(schema), with_article(found));
                self.problems
                    .push(Problem::new(span, format!("wrong type for `{path}`"), label).hint(hint));
                Verdict::Drop
            }
        }
    }

    fn range(&mut self, number: Option<i64>, span: Range<usize>, schema: &Value, path: &str) -> Verdict {
        let bound = |key: &str| schema.get(key).and_then(Value::as_i64);
        let (low, high) = (
            bound("minimum").unwrap_or(i64::MIN),
            bound("maximum").unwrap_or(i64::MAX),
        );
        if number.is_some_and(|n| (low..=high).contains(&n)) {
            return Verdict::Keep;
        }
        let label = match (bound("minimum"), bound("maximum")) {
            (Some(low), Some(high)) => format!("expected {low} to {high}"),
            (Some(low), None) => format!("expected {low} or more"),
            _ => "out of range".to_owned(),
        };
        self.problems
            .push(Problem::new(span, format!("bad number for `{path}`"), label));
        Verdict::Drop
    }

    /// Strings, and enumerations of strings.
    fn choice(&mut self, text: &str, span: Range<usize>, schema: &Value, path: &str) -> Verdict {
        let choices = choices(schema);
        if choices.is_empty() || choices.contains(&text) {
            return Verdict::Keep;
        }
        let label = format!("expected {}", quoted(choices.iter().copied(), "or"));
        let problem = Problem::new(span, format!("unknown value `{text}` for `{path}`"), label);
        self.problems.push(problem.hint(did_you_mean(text, choices)));
        Verdict::Drop
    }

    fn describe(&self, schema: &'s Value) -> String {
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => "a table".to_owned(),
            Some("array") => match schema.get("items").map(|items| self.follow(items)) {
                Some(items) if items.get("type").and_then(Value::as_str) == Some("object") => {
                    "an array of tables".to_owned()
                }
                _ => "an array of strings".to_owned(),
            },
            Some(other) => with_article(other),
            None => "a string".to_owned(),
        }
    }
}

/// Values of an enumeration: `enum`, or `oneOf` with constants where variants are documented.
fn choices(schema: &Value) -> Vec<&str> {
    let listed = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let constants = listed("oneOf").flat_map(|one| {
        let many = one.get("enum").and_then(Value::as_array).into_iter().flatten();
        one.get("const").into_iter().chain(many)
    });
    listed("enum").chain(constants).filter_map(Value::as_str).collect()
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {kind}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(text: &str, missing: Missing) -> Vec<String> {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "port": { "type": "integer", "minimum": 0, "maximum": 65535 },
                "kind": { "$ref": "#/$defs/Kind" },
                "rows": { "type": "array", "items": { "$ref": "#/$defs/Row" } },
                "words": { "type": "object", "additionalProperties": { "type": "array", "items": { "type": "string" } } },
            },
            "required": ["name"],
            "additionalProperties": false,
            "$defs": {
                "Kind": { "oneOf": [{ "const": "git", "type": "string" }, { "const": "tarball", "type": "string" }] },
                "Row": {
                    "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"],
                    "additionalProperties": false,
                },
            },
        });
        let (mut document, _) = DeTable::parse_recoverable(text);
        walk(&mut document, &schema, missing)
            .iter()
            .map(|p| format!("{p:?}"))
            .collect()
    }

    #[test]
    fn every_misfit_is_found() {
        let text = r#"
            nmae = "x"
            port = 70000
            kind = "gti"
            rows = [{ id = 1 }, { idd = "a" }, {}, 7]
            [words]
            a = "b"
            c = ["d", true]
        "#;
        let found = found(text, Missing::Report).join("\n");
        for part in [
            "unknown key `nmae`",
            "did you mean `name`?",
            "bad number for `port`",
            "expected 0 to 65535",
            "unknown value `gti` for `kind`",
            "did you mean `git`?",
            "wrong type for `rows.id`",
            "missing key `rows.id`",
            "wrong type for `rows`",
            "expected a table, found an integer",
            "wrong type for `words.a`",
            "expected an array of strings, found a string",
            "expected a string, found a boolean",
        ] {
            assert!(found.contains(part), "{part} not in\n{found}");
        }
        assert_eq!(found.lines().count(), 9, "{found}");
    }

    #[test]
    fn what_is_missing_after_a_syntax_error_is_not_reported() {
        assert!(found("port = 1", Missing::Allow).is_empty());
        assert_eq!(found("port = 1", Missing::Report).len(), 1);
        assert_eq!(
            found("port = 1\nnmae = \"x\"", Missing::Report).len(),
            1,
            "mistyped is not missing too"
        );
    }
}
