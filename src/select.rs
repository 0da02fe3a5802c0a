//! Selectors: names, globs, braces and `@set` of the command line, read into requests. Pure.
//!
//! A name is read through the recipes' templates; what it cannot mean is an error that shows the
//! nearest names or every reading.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobMatcher};

use crate::error::{Error, Exit, Result};
use crate::matrix;
use crate::model::build::{Request, Revision};
use crate::model::name::{BuildName, ProductName, SetName, ToolchainName};
use crate::model::recipe::{Recipe, Set, SourceKind, Toolchain};
use crate::model::version::Version;
use crate::text::{nearest, quoted};

/// More builds than this from patterns need `--yes`.
pub const MANY: usize = 40;

/// All that names can speak of.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// Recipes by product.
    pub recipes: &'a BTreeMap<ProductName, Recipe>,
    /// Toolchains by name.
    pub toolchains: &'a BTreeMap<ToolchainName, Toolchain>,
    /// Sets by name.
    pub sets: &'a BTreeMap<SetName, Set>,
}

/// How the release part of a name can be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Release {
    /// Exactly one release.
    One(Version),
    /// The newest pinned release of a series; the link keeps the series' name.
    Series(Version),
    /// A series of which no release is pinned.
    EmptySeries(String),
    /// The distribution's newest.
    Distro,
}

impl<'a> Names<'a> {
    /// Reads all selectors, in order, without repeating a build.
    ///
    /// # Errors
    /// Unknown or ambiguous names, patterns that match nothing, unknown sets: all of them in one run.
    pub fn select(
        &self,
        selectors: &[String],
        from: Option<SourceKind>,
    ) -> Result<Vec<(BuildName, Request)>, Vec<Error>> {
        let mut found: Vec<(BuildName, Request)> = Vec::new();
        let mut errors = Vec::new();
        for selector in selectors {
            match self.selector(selector) {
                Ok(requests) => {
                    for (name, mut request) in requests {
                        request.from = from;
                        merge(&mut found, name, request);
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(found) } else { Err(errors) }
    }

    fn selector(&self, selector: &str) -> Result<Vec<(BuildName, Request)>> {
        if let Some(set) = selector.strip_prefix('@') {
            return self.set(set);
        }
        if is_pattern(selector) {
            return self.pattern(selector);
        }
        Ok(vec![self.name(selector)?])
    }

    fn set(&self, name: &str) -> Result<Vec<(BuildName, Request)>> {
        let set = name
            .parse::<SetName>()
            .ok()
            .and_then(|n| self.sets.get(&n))
            .ok_or_else(|| {
                let known: Vec<&str> = self.sets.keys().map(SetName::as_str).collect();
                let error = Error::new(Exit::Usage, format!("unknown set `@{name}`"));
                match nearest(name, known.iter().copied()).first() {
                    Some(near) => error.hint(format!("did you mean `@{near}`?")),
                    None => error.hint(format!("sets are {}", quoted(known.iter().map(|s| format!("@{s}"))))),
                }
            })?;
        let mut found = Vec::new();
        for word in &set.builds {
            let requests = self.selector(&word.text).map_err(|e| e.detail("in", &word.origin))?;
            for (name, request) in requests {
                merge(&mut found, name, request);
            }
        }
        Ok(found)
    }

    fn pattern(&self, pattern: &str) -> Result<Vec<(BuildName, Request)>> {
        let matcher = glob(pattern)?;
        let mut found = Vec::new();
        for recipe in self.recipes.values() {
            // Toolchains besides the default one and pre-releases take part only where the pattern
            // spells them.
            let spelled = |name: &str| pattern.contains(name);
            let toolchains = self
                .toolchains
                .values()
                .filter(|t| t.default || spelled(&format!("_{}", t.family)));
            for cell in matrix::cells(recipe, toolchains)? {
                let Revision::Release(version) = &cell.request.revision else {
                    continue;
                };
                let shown = !version.is_pre_release() || ["beta", "rc", "devel"].iter().any(|w| spelled(w));
                if shown && matcher.is_match(cell.name.as_str()) {
                    found.push((cell.name, cell.request));
                }
            }
        }
        if found.is_empty() {
            return Err(Error::new(Exit::Usage, format!("no build matches `{pattern}`"))
                .hint("`bm list` shows the names; pre-releases, aliases and other toolchains must be spelled"));
        }
        Ok(found)
    }

    /// Reads one name.
    ///
    /// # Errors
    /// Unknown (with the nearest names) or readable in several ways (with all of them).
    pub fn name(&self, text: &str) -> Result<(BuildName, Request)> {
        let mut readings: Vec<(BuildName, Request)> = Vec::new();
        let mut empty_series = None;
        for recipe in self.recipes.values() {
            let accepts = |field: &str, value: &str| match field {
                "release" => !self.releases(recipe, value).is_empty(),
                "variant" => matrix::variant(recipe, value).is_some(),
                "toolchain" => matrix::toolchain(self.toolchains, value).is_some_and(|t| !t.default),
                _ => false,
            };
            for fields in recipe.names.build.read(text, &accepts) {
                for release in self.releases(recipe, &fields["release"]) {
                    if let Release::EmptySeries(series) = &release {
                        empty_series = Some((recipe.product.clone(), series.clone()));
                        continue;
                    }
                    let request = self.request(
                        recipe,
                        &release,
                        &fields["variant"],
                        fields.get("toolchain").map(String::as_str),
                    );
                    readings.push(self.finish(recipe, request, text)?);
                }
            }
        }
        match readings.len() {
            1 => Ok(readings.swap_remove(0)),
            0 => Err(self.unknown(text, empty_series)),
            _ => {
                let error = Error::new(Exit::Usage, format!("`{text}` can be read in {} ways", readings.len()));
                let error = readings
                    .iter()
                    .fold(error, |e, (_, r)| e.detail("reading", matrix::describe(r)));
                Err(error.hint("write the release with a name that is pinned, or use `bm build PRODUCT --rev TAG --variant VARIANT`"))
            }
        }
    }

    fn request(&self, recipe: &Recipe, release: &Release, variant: &str, toolchain: Option<&str>) -> Request {
        let variant = matrix::variant(recipe, variant).expect("the template accepted it");
        let toolchain = match toolchain {
            Some(name) => matrix::toolchain(self.toolchains, name).expect("the template accepted it"),
            None => self.default_toolchain(),
        };
        let revision = match release {
            Release::One(v) | Release::Series(v) => Revision::Release(v.clone()),
            Release::Distro => Revision::Distro,
            Release::EmptySeries(_) => unreachable!("filtered by the caller"),
        };
        Request {
            product: recipe.product.clone(),
            revision,
            variant,
            toolchain: toolchain.name.clone(),
            from: None,
            chosen_name: None,
            links: vec![],
            extra_cflags: vec![],
        }
    }

    /// The canonical name of a request, and the text as a link where it is another name.
    fn finish(&self, recipe: &Recipe, mut request: Request, text: &str) -> Result<(BuildName, Request)> {
        let asked: BuildName = text.parse().map_err(|e| Error::new(Exit::Usage, format!("{e}")))?;
        let name = match &request.revision {
            Revision::Release(version) => {
                let toolchain = &self.toolchains[&request.toolchain];
                let release = matrix::release_name(recipe, version);
                matrix::build_name(recipe, &release, request.variant.name.as_str(), toolchain)?
            }
            // Known only when the distribution's index has been read; until then the alias stands.
            _ => asked.clone(),
        };
        if asked != name || request.revision == Revision::Distro {
            request.links.push(asked);
        }
        Ok((name, request))
    }

    /// The toolchain that names leave out.
    pub fn default_toolchain(&self) -> &'a Toolchain {
        self.toolchains
            .values()
            .find(|t| t.default)
            .expect("the library has exactly one default toolchain")
    }

    fn releases(&self, recipe: &Recipe, text: &str) -> Vec<Release> {
        if recipe.sources.distro.as_ref().is_some_and(|d| d.alias == text) {
            return vec![Release::Distro];
        }
        let pinned: Vec<Release> = recipe
            .versions
            .iter()
            .filter(|p| matrix::release_name(recipe, &p.version) == text)
            .map(|p| Release::One(p.version.clone()))
            .collect();
        if !pinned.is_empty() {
            return pinned;
        }
        let of_series = recipe
            .versions
            .iter()
            .map(|p| &p.version)
            .filter(|v| matrix::series_name(recipe, v) == text);
        let newest = of_series
            .clone()
            .filter(|v| !v.is_pre_release())
            .max()
            .or_else(|| of_series.max());
        if let Some(version) = newest {
            return vec![Release::Series(version.clone())];
        }
        unlisted(recipe, text)
    }

    fn unknown(&self, text: &str, empty_series: Option<(ProductName, String)>) -> Error {
        if let Some((product, series)) = empty_series {
            return Error::new(
                Exit::Usage,
                format!("`{text}` names series {series} of {product}, of which no release is pinned"),
            )
            .hint("name one release of it, with its last number: it is resolved by its tag and then locked");
        }
        let error = Error::new(Exit::Usage, format!("unknown build `{text}`"));
        if let Ok(path) = text.parse::<BuildName>().map(|_| std::path::Path::new(text))
            && path.components().count() > 1
        {
            return error.hint("a build is named without a directory");
        }
        let names = self.all_names();
        let near = nearest(text, names.iter().map(String::as_str));
        if near.is_empty() {
            error.hint("`bm list` shows all names")
        } else {
            error.hint(format!("did you mean {}?", quoted(near)))
        }
    }

    fn all_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for recipe in self.recipes.values() {
            let toolchains = self.toolchains.values();
            names.extend(
                matrix::cells(recipe, toolchains)
                    .into_iter()
                    .flatten()
                    .map(|c| c.name.to_string()),
            );
            let mut releases: Vec<String> = recipe
                .versions
                .iter()
                .map(|p| matrix::series_name(recipe, &p.version))
                .collect();
            releases.extend(recipe.sources.distro.as_ref().map(|d| d.alias.clone()));
            releases.dedup();
            for release in releases {
                for variant in recipe.variants.keys().chain(recipe.variant_aliases.keys()) {
                    let name = matrix::build_name(recipe, &release, variant.as_str(), self.default_toolchain());
                    names.extend(name.map(|n| n.to_string()));
                }
            }
        }
        names
    }
}

/// Releases that no recipe lists: every way to put dots into the digits that fits the recipe's
/// `unlisted` range and writes the same name back.
fn unlisted(recipe: &Recipe, text: &str) -> Vec<Release> {
    let Some(range) = &recipe.unlisted else { return vec![] };
    let digits_and_stage = |field: &str, value: &str| {
        field == "version.compact" && value.starts_with(|c: char| c.is_ascii_digit()) && value.len() <= 12
    };
    let mut readings = Vec::new();
    for fields in recipe.names.release.read(text, &digits_and_stage) {
        let Some(compact) = fields.get("version.compact") else {
            continue;
        };
        let end = compact.find(|c: char| !c.is_ascii_digit()).unwrap_or(compact.len());
        let (digits, stage) = compact.split_at(end);
        for numbers in splits(digits) {
            let full = numbers.len() > recipe.series_parts || !stage.is_empty();
            let dotted = numbers.join(".") + stage;
            let Ok(version) = dotted.parse::<Version>() else {
                continue;
            };
            if !range.matches(&version) || version.compact() != *compact {
                continue;
            }
            if full && numbers.len() == recipe.series_parts + usize::from(stage.is_empty()) {
                readings.push(Release::One(version));
            } else if numbers.len() == recipe.series_parts && stage.is_empty() {
                readings.push(Release::EmptySeries(dotted));
            }
        }
    }
    // A whole release is meant where both a release and a bare series can be read.
    if readings.iter().any(|r| matches!(r, Release::One(_))) {
        readings.retain(|r| matches!(r, Release::One(_)));
    }
    readings
}

/// All ways to cut digits into one to four numbers without leading zeros.
fn splits(digits: &str) -> Vec<Vec<String>> {
    fn go(rest: &str, left: usize, so_far: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
        if rest.is_empty() {
            out.push(so_far.clone());
            return;
        }
        if left == 0 {
            return;
        }
        for end in 1..=rest.len().min(4) {
            if rest.starts_with('0') && end > 1 {
                break;
            }
            so_far.push(rest[..end].to_owned());
            go(&rest[end..], left - 1, so_far, out);
            so_far.pop();
        }
    }
    let mut out = Vec::new();
    if !digits.is_empty() {
        go(digits, 4, &mut Vec::new(), &mut out);
    }
    out
}

fn merge(found: &mut Vec<(BuildName, Request)>, name: BuildName, request: Request) {
    match found.iter_mut().find(|(n, _)| *n == name) {
        Some((_, known)) => {
            for link in request.links {
                if !known.links.contains(&link) {
                    known.links.push(link);
                }
            }
        }
        None => found.push((name, request)),
    }
}

/// Whether a selector is a pattern and not a name.
pub fn is_pattern(selector: &str) -> bool {
    selector.contains(['*', '?', '[', '{'])
}

/// A matcher over names.
///
/// # Errors
/// A pattern that is not well formed.
pub fn glob(pattern: &str) -> Result<GlobMatcher> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|g| g.compile_matcher())
        .map_err(|e| Error::new(Exit::Usage, format!("`{pattern}` is not a pattern")).caused_by(e.kind()))
}

/// Picks among prefixes that exist: exact names (also links) and patterns over canonical names.
///
/// `names` are the built ones in the order wanted; `links` map other names to them.
///
/// # Errors
/// A selector that picks nothing.
pub fn among(
    names: &[BuildName],
    links: &BTreeMap<BuildName, BuildName>,
    selectors: &[String],
) -> Result<Vec<BuildName>, Vec<Error>> {
    let mut picked: Vec<BuildName> = Vec::new();
    let mut errors = Vec::new();
    for selector in selectors {
        let hits: Vec<&BuildName> = if is_pattern(selector) {
            match glob(selector) {
                Ok(matcher) => names.iter().filter(|n| matcher.is_match(n.as_str())).collect(),
                Err(e) => {
                    errors.push(e);
                    continue;
                }
            }
        } else {
            let target = selector
                .parse()
                .ok()
                .and_then(|n: BuildName| links.get(&n).cloned().or(Some(n)));
            names.iter().filter(|n| target.as_ref() == Some(n)).collect()
        };
        if hits.is_empty() {
            let error = Error::new(Exit::Usage, format!("nothing built matches `{selector}`"));
            let near = nearest(selector, names.iter().map(BuildName::as_str));
            errors.push(match near.first() {
                Some(near) if !is_pattern(selector) => error.hint(format!("did you mean `{near}`?")),
                _ => error.hint("`bm list --built` shows what is there"),
            });
        }
        for hit in hits {
            if !picked.contains(hit) {
                picked.push(hit.clone());
            }
        }
    }
    if errors.is_empty() { Ok(picked) } else { Err(errors) }
}
