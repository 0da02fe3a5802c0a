//! Names of things, checked here and nowhere else, and the templates that format and read them.
//!
//! A template works both ways: axes to name, and name to axes by trying what each field accepts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name that breaks the rule of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadName {}

fn check(kind: &str, text: &str, extra: &[char]) -> Result<(), BadName> {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || extra.contains(&c);
    let first = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if first && text.len() <= 100 && text.chars().all(ok) {
        return Ok(());
    }
    let also = extra.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(" ");
    Err(BadName(format!(
        "`{text}` cannot name a {kind}: use a-z, 0-9 and {also}, beginning with a letter or digit, at most 100 characters"
    )))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $extra:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                check($kind, text, $extra)?;
                Ok($type(text.to_owned()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = BadName;

            fn try_from(text: String) -> Result<Self, BadName> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A product: `postgres`, `percona-server`.
    ProductName, "product", &['-']
);
name!(
    /// A variant: `def`, `o3_native_lto`, `rel_o2nofp`.
    VariantName, "variant", &['_', '-']
);
name!(
    /// A toolchain: `gcc`, `gcc12`, `clang14`.
    ToolchainName, "toolchain", &['-']
);
name!(
    /// A set of builds that belong to one study.
    SetName, "set", &['_', '-']
);
name!(
    /// A build, and so the last part of its prefix. Drivers split at dots and commas; dots are
    /// allowed only for products whose field uses them (`je-5.2.1.prod`).
    BuildName, "build", &['_', '-', '.']
);

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// A field; `lead` is written before it only where the field is present (`{_toolchain}`).
    Field {
        name: String,
        lead: &'static str,
    },
}

/// A text with fields in braces: `{release}_{variant}{_toolchain}`.
///
/// A field written with a leading underscore is optional: absent, it leaves nothing, not even the
/// underscore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    text: String,
}

/// Values of a template's fields.
pub type Fields = BTreeMap<String, String>;

impl Template {
    /// Names of all fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| match p {
            Piece::Field { name, .. } => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Whether a field may be absent: `{_toolchain}`.
    pub fn is_optional(&self, field: &str) -> bool {
        let optional = |p: &Piece| matches!(p, Piece::Field { name, lead } if name == field && !lead.is_empty());
        self.pieces.iter().any(optional)
    }

    /// The text with every field replaced.
    ///
    /// # Errors
    /// The name of a field that is not optional and that `value` does not know.
    pub fn format(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Field { name, lead } => match value(name) {
                    Some(v) => {
                        out.push_str(lead);
                        out.push_str(&v);
                    }
                    None if lead.is_empty() => return Err(name.clone()),
                    None => {}
                },
            }
        }
        Ok(out)
    }

    /// Every way to read `text`: `accepts(field, candidate)` says whether a field can have that value.
    pub fn read(&self, text: &str, accepts: &dyn Fn(&str, &str) -> bool) -> Vec<Fields> {
        let mut found = Vec::new();
        read(&self.pieces, text, accepts, &mut Fields::new(), &mut found);
        found
    }
}

fn read(
    pieces: &[Piece],
    text: &str,
    accepts: &dyn Fn(&str, &str) -> bool,
    so_far: &mut Fields,
    found: &mut Vec<Fields>,
) {
    let Some((piece, rest)) = pieces.split_first() else {
        if text.is_empty() {
            found.push(so_far.clone());
        }
        return;
    };
    match piece {
        Piece::Text(literal) => {
            if let Some(after) = text.strip_prefix(literal.as_str()) {
                read(rest, after, accepts, so_far, found);
            }
        }
        Piece::Field { name, lead } => {
            if !lead.is_empty() {
                read(rest, text, accepts, so_far, found);
            }
            let Some(body) = text.strip_prefix(lead) else { return };
            for end in (1..=body.len()).filter(|&i| body.is_char_boundary(i)) {
                if accepts(name, &body[..end]) {
                    so_far.insert(name.clone(), body[..end].to_owned());
                    read(rest, &body[end..], accepts, so_far, found);
                    so_far.remove(name);
                }
            }
        }
    }
}

impl FromStr for Template {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = |why: &str| BadName(format!("`{text}` is not a template: {why}"));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            if open > 0 {
                pieces.push(Piece::Text(rest[..open].to_owned()));
            }
            let close = rest[open..].find('}').ok_or_else(|| bad("a `{` is not closed"))? + open;
            let field = &rest[open + 1..close];
            let (name, lead) = field.strip_prefix('_').map_or((field, ""), |name| (name, "_"));
            if name.is_empty()
                || !name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-')
            {
                return Err(bad("a field is a word such as `{version.compact}` or `{_toolchain}`"));
            }
            pieces.push(Piece::Field {
                name: name.to_owned(),
                lead,
            });
            rest = &rest[close + 1..];
        }
        if rest.contains('}') {
            return Err(bad("a `}` has no `{`"));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template {
            pieces,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rule() {
        assert!("pg160_o3_native_lto".parse::<BuildName>().is_ok());
        assert!("je-5.2.1.prod".parse::<BuildName>().is_ok());
        for bad in ["", "-x", "Pg", "a/b", "..", ".bm", "a b", "a\n"] {
            assert!(bad.parse::<BuildName>().is_err(), "{bad:?}");
        }
        assert!("clang_14".parse::<ToolchainName>().is_err());
    }

    #[test]
    fn a_template_reads_what_it_wrote() {
        let t: Template = "{release}_{variant}{_toolchain}".parse().unwrap();
        let name = t
            .format(|f| {
                Some(
                    match f {
                        "release" => "pg151",
                        "variant" => "o3_native_lto",
                        _ => "clang15",
                    }
                    .into(),
                )
            })
            .unwrap();
        assert_eq!(name, "pg151_o3_native_lto_clang15");
        let plain = t
            .format(|f| match f {
                "release" => Some("pg151".into()),
                "variant" => Some("def".into()),
                _ => None,
            })
            .unwrap();
        assert_eq!(plain, "pg151_def");
        let variants = ["o3_native_lto", "o3_native", "def"];
        let accepts = |f: &str, v: &str| match f {
            "release" => v == "pg151",
            "variant" => variants.contains(&v),
            _ => v == "clang15" || v == "lto",
        };
        assert_eq!(t.read(&name, &accepts).len(), 1);
        // Two readings are both found; whoever asks reports them.
        assert_eq!(t.read("pg151_o3_native_lto", &accepts).len(), 2);
        assert!(t.read("pg151_", &accepts).is_empty());
    }

    #[test]
    fn bad_templates_are_refused() {
        for bad in ["{", "{}", "}", "{A}", "a{b"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }
}
