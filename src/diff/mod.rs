//! What differs between two builds, from their manifests alone.
//!
//! Owns which parts are compared, in which order, and what is no difference. Reads no file, and does not judge:
//! a difference is never wrong here.

pub mod places;
mod sections;
pub mod show;
pub mod words;

use serde::Serialize;

use crate::model::manifest::Manifest;

pub use words::Words;

/// Version of the JSON of `diff`.
pub const SCHEMA: u32 = 1;

/// The section that never makes two builds different: no two builds take the same time.
pub const COSTS: &str = "costs";

/// Two builds compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The first build.
    pub a: Side,
    /// The second build.
    pub b: Side,
    /// Whether anything differs besides what the builds cost.
    pub differs: bool,
    /// All parts that were compared, also those that are equal, in a fixed order.
    pub sections: Vec<Section>,
}

/// Which build one side is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Build name.
    pub name: String,
    /// Product.
    pub product: String,
    /// Version.
    pub version: String,
    /// Identity.
    pub identity: String,
    /// RFC 3339, UTC.
    pub built_at: String,
}

impl From<&Manifest> for Side {
    fn from(m: &Manifest) -> Self {
        Side {
            name: m.name.clone(),
            product: m.product.clone(),
            version: m.version.clone(),
            identity: m.identity.clone(),
            built_at: m.built_at.clone(),
        }
    }
}

/// One part of two manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Section {
    /// `recipe`, `source`, `flags`, ...
    pub name: &'static str,
    /// Whether anything differs in it.
    pub differs: bool,
    /// Keys of what both have and is equal.
    pub equal: Vec<String>,
    /// Values that differ.
    pub values: Vec<Change>,
    /// Lists of words that differ.
    pub words: Vec<Words>,
}

/// A value that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it is: `version`, `cc`, `libz.so.1`.
    pub key: String,
    /// In the first build; `None` where that has none.
    pub a: Option<String>,
    /// In the second build.
    pub b: Option<String>,
    /// How to read it, where the values alone do not say.
    pub note: Option<String>,
}

impl Section {
    fn new(name: &'static str) -> Self {
        Section {
            name,
            ..Section::default()
        }
    }

    /// Compares a value; what neither build has is not compared.
    fn value(&mut self, key: &str, a: Option<&str>, b: Option<&str>) {
        self.noted(key, a, b, None);
    }

    fn noted(&mut self, key: &str, a: Option<&str>, b: Option<&str>, note: Option<String>) {
        let text = |value: Option<&str>| value.filter(|v| !v.is_empty()).map(str::to_owned);
        match (text(a), text(b)) {
            (None, None) => {}
            (a, b) if a == b => self.equal.push(key.to_owned()),
            (a, b) => self.values.push(Change {
                key: key.to_owned(),
                a,
                b,
                note,
            }),
        }
        self.differs = !self.values.is_empty() || !self.words.is_empty();
    }

    /// Compares lists of words; two empty lists are not compared.
    fn lists(&mut self, key: &str, a: &[String], b: &[String]) {
        if a.is_empty() && b.is_empty() {
            return;
        }
        let words = words::compare(key, a, b);
        if words.is_equal() {
            self.equal.push(key.to_owned());
        } else {
            self.words.push(words);
            self.differs = true;
        }
    }
}

/// Compares two builds.
pub fn diff(a: &Manifest, b: &Manifest) -> Report {
    let sections = sections::all(a, b);
    Report {
        schema: SCHEMA,
        a: a.into(),
        b: b.into(),
        differs: sections.iter().any(|s| s.differs && s.name != COSTS),
        sections,
    }
}

#[cfg(test)]
mod tests;
