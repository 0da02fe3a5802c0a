//! Selectors: names, globs, braces and `@set` of the command line, read into requests. Pure.
//!
//! A name is read through the recipes' templates; what it cannot mean is an error that shows the
//! nearest names or every reading.

mod pattern;
mod unlisted;

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Exit, Result};
use crate::matrix::{self, choices};
use crate::model::build::{Request, Revision};
use crate::model::name::{BuildName, ProductName, SetName, ToolchainName};
use crate::model::recipe::{Recipe, Set, SourceKind, Toolchain};
use crate::model::version::Version;
use crate::text::{did_you_mean, quoted};

pub use pattern::{among, glob, is_pattern};

use pattern::spells_pre_release;
use unlisted::unlisted;

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
        let mut picked = Picked::default();
        let mut errors = Vec::new();
        for selector in selectors {
            match self.selector(selector) {
                Ok(requests) => {
                    for (name, mut request) in requests {
                        request.from = from;
                        picked.add(name, request);
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok(picked.found)
        } else {
            Err(errors)
        }
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
                let known: Vec<String> = self.sets.keys().map(|set| format!("@{set}")).collect();
                let error = Error::new(Exit::Usage, format!("unknown set `@{name}`"));
                let near = did_you_mean(&format!("@{name}"), known.iter().map(String::as_str));
                error.hint(near.unwrap_or_else(|| format!("sets are {}", quoted(known, "and"))))
            })?;
        let mut picked = Picked::default();
        for word in &set.builds {
            let requests = self.selector(&word.text).map_err(|e| e.detail("in", &word.origin))?;
            for (name, request) in requests {
                picked.add(name, request);
            }
        }
        Ok(picked.found)
    }

    fn pattern(&self, pattern: &str) -> Result<Vec<(BuildName, Request)>> {
        let matcher = glob(pattern)?;
        let mut found = Vec::new();
        for recipe in self.recipes.values() {
            // Toolchains besides the default one and pre-releases take part only where the pattern
            // spells them.
            let spelled = |t: &&Toolchain| t.default || pattern.contains(&format!("_{}", t.family));
            for cell in matrix::cells(recipe, self.toolchains.values().filter(spelled))? {
                let pre = matches!(&cell.request.revision, Revision::Release(v) if v.is_pre_release());
                if (!pre || spells_pre_release(pattern)) && matcher.is_match(cell.name.as_str()) {
                    found.push((cell.name, cell.request));
                }
            }
        }
        if found.is_empty() {
            // What matches no build's own name may spell another one.
            let mut picked = Picked::default();
            for name in self.other_names().iter().filter(|name| matcher.is_match(name)) {
                let (name, request) = self.name(name)?;
                picked.add(name, request);
            }
            found = picked.found;
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
            let Some((plain, choices)) = choices::split(recipe, text) else {
                continue;
            };
            for fields in recipe.names.build.read(plain, &accepts) {
                for release in self.releases(recipe, &fields["release"]) {
                    if let Release::EmptySeries(series) = &release {
                        empty_series = Some((recipe.product.clone(), series.clone()));
                        continue;
                    }
                    let mut request = self.request(
                        recipe,
                        &release,
                        matrix::spelled_variant(recipe, &fields),
                        fields.get("toolchain").map(String::as_str),
                    );
                    request.choices.clone_from(&choices);
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
        Request::new(recipe.product.clone(), revision, variant, toolchain.name.clone())
    }

    /// The canonical name of a request, and the text as a link where it is another name.
    fn finish(&self, recipe: &Recipe, mut request: Request, text: &str) -> Result<(BuildName, Request)> {
        let asked: BuildName = text.parse().map_err(|e| Error::new(Exit::Usage, format!("{e}")))?;
        // Until the distribution's index has been read, the alias stands.
        let name = self.settle(recipe, &mut request)?.unwrap_or_else(|| asked.clone());
        if asked != name || request.revision == Revision::Distro {
            request.links.push(asked);
        }
        Ok((name, request))
    }

    /// Leaves of a request's choices those that are not the release's own, and gives the canonical name of the release's
    /// build; `None` while the release is not known.
    ///
    /// # Errors
    /// Exit 2 where the release does not have a choice.
    fn settle(&self, recipe: &Recipe, request: &mut Request) -> Result<Option<BuildName>> {
        let Revision::Release(version) = &request.revision else {
            return Ok(None);
        };
        choices::in_force(recipe, version, &request.choices)?;
        request.choices = choices::beside_default(recipe, version, &request.choices);
        let toolchain = &self.toolchains[&request.toolchain];
        let release = matrix::release_name(recipe, version);
        let variant = request.variant.name.as_str();
        matrix::name_with(recipe, &release, variant, toolchain, &request.choices).map(Some)
    }

    /// Makes choices for the builds of every product that declares the option. Links of a name are dropped where the
    /// name changes: they stand for another build.
    ///
    /// # Errors
    /// Exit 2 where no selected product has an option, or a release not the choice.
    pub fn choose(&self, requests: &mut [(BuildName, Request)], made: &choices::Choices) -> Result<()> {
        for (option, choice) in made {
            let mut taken = false;
            for (name, request) in requests.iter_mut() {
                let recipe = &self.recipes[&request.product];
                if recipe.options.iter().all(|o| o.name != *option) {
                    continue;
                }
                taken = true;
                request.choices.insert(option.clone(), choice.clone());
                if let Some(chosen) = self.settle(recipe, request)?
                    && chosen != *name
                {
                    *name = chosen;
                    request.links.clear();
                }
            }
            if !taken {
                let mut known: Vec<String> = Vec::new();
                for (_, request) in requests.iter() {
                    let options = self.recipes[&request.product].options.iter();
                    known.extend(
                        options
                            .map(|o| o.name.clone())
                            .filter(|o| !known.contains(o))
                            .collect::<Vec<_>>(),
                    );
                }
                let error = Error::new(Exit::Usage, format!("no selected build has an option `{option}`"));
                return Err(error.hint(
                    match (did_you_mean(option, known.iter().map(String::as_str)), known.is_empty()) {
                        (Some(near), _) => near,
                        (None, true) => "their recipes declare none".to_owned(),
                        (None, false) => format!("options are {}", quoted(&known, "and")),
                    },
                ));
            }
        }
        Ok(())
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
        if text.contains('/') {
            return error.hint("a build is named without a directory");
        }
        let names = self.all_names();
        let near = did_you_mean(text, names.iter().map(String::as_str));
        error.hint(near.unwrap_or_else(|| "`bm list` shows all names".to_owned()))
    }

    fn all_names(&self) -> Vec<String> {
        let cells = self
            .recipes
            .values()
            .map(|r| matrix::cells(r, self.toolchains.values()));
        let mut names: Vec<String> = cells.flatten().flatten().map(|c| c.name.to_string()).collect();
        names.extend(self.other_names());
        names
    }

    /// Names that stand for another one: series, the distribution's alias, other spellings of variants.
    fn other_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for recipe in self.recipes.values() {
            let releases = recipe
                .versions
                .iter()
                .map(|p| (matrix::release_name(recipe, &p.version), p));
            let mut aliases: Vec<String> = recipe
                .versions
                .iter()
                .map(|p| matrix::series_name(recipe, &p.version))
                .collect();
            aliases.extend(recipe.sources.distro.as_ref().map(|d| d.alias.clone()));
            aliases.dedup();
            let spellings = recipe.variant_aliases.keys();
            let pinned = releases
                .filter(|(_, p)| !p.version.is_pre_release())
                .flat_map(|(release, _)| spellings.clone().map(move |variant| (release.clone(), variant)));
            let variants = recipe.variants.keys().chain(spellings.clone());
            let standing = aliases
                .into_iter()
                .flat_map(|alias| variants.clone().map(move |variant| (alias.clone(), variant)));
            for (release, variant) in pinned.chain(standing) {
                let name = matrix::build_name(recipe, &release, variant.as_str(), self.default_toolchain());
                names.extend(name.map(|n| n.to_string()));
            }
        }
        names
    }
}

/// Requests in the order asked, each build once.
#[derive(Default)]
struct Picked {
    found: Vec<(BuildName, Request)>,
    places: HashMap<BuildName, usize>,
}

impl Picked {
    /// Adds a request; of one that is there already only the links are news.
    fn add(&mut self, name: BuildName, request: Request) {
        let Some(&at) = self.places.get(&name) else {
            self.places.insert(name.clone(), self.found.len());
            self.found.push((name, request));
            return;
        };
        let known = &mut self.found[at].1.links;
        for link in request.links {
            if !known.contains(&link) {
                known.push(link);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample;

    /// Names that selectors give, each with its links; or the headlines and hints of the errors.
    fn select(recipe: &Recipe, selectors: &[&str]) -> Result<Vec<String>, Vec<String>> {
        let (recipes, toolchains, sets) = (sample::recipes(recipe.clone()), sample::toolchains(), BTreeMap::new());
        let names = Names {
            recipes: &recipes,
            toolchains: &toolchains,
            sets: &sets,
        };
        let selectors: Vec<String> = selectors.iter().map(|s| (*s).to_owned()).collect();
        let shown = |(name, request): &(BuildName, Request)| {
            let links: Vec<_> = request.links.iter().map(BuildName::as_str).collect();
            if links.is_empty() {
                name.to_string()
            } else {
                format!("{name} <- {}", links.join(" "))
            }
        };
        names
            .select(&selectors, None)
            .map(|found| found.iter().map(shown).collect())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn check(selectors: &[&str], want: &[&str]) {
        assert_eq!(select(&sample::recipe(&[]), selectors).unwrap(), want, "{selectors:?}");
    }

    #[test]
    fn names_are_read_and_other_names_become_links() {
        check(&["d21_o3"], &["d21_o3"]);
        check(&["d21_fast"], &["d21_o3_lto <- d21_fast"]);
        check(&["d2_o3_clang15"], &["d21_o3_clang15 <- d2_o3_clang15"]);
        check(&["d2beta1_def"], &["d2beta1_def"]);
        check(&["ddistro_o3"], &["ddistro_o3 <- ddistro_o3"]);
        check(&["d2_o3", "d21_o3", "d2_o3"], &["d21_o3 <- d2_o3"]);
        check(&["d34_o3"], &["d34_o3"]);
    }

    #[test]
    fn patterns_pick_pinned_releases_of_the_default_toolchain() {
        check(&["d*_o3"], &["d10_o3", "d20_o3", "d21_o3"]);
        check(&["d{1,2}0_{def,o3}"], &["d10_def", "d10_o3", "d20_def", "d20_o3"]);
        check(&["d21_o3{,_lto}"], &["d21_o3", "d21_o3_lto"]);
        check(&["d2*beta*_o3"], &["d2beta1_o3"]);
        check(&["d21_o3*_clang15"], &["d21_o3_clang15", "d21_o3_lto_clang15"]);
    }

    #[test]
    fn patterns_take_aliases_only_where_they_match_nothing_else() {
        check(&["d2_*o3"], &["d21_o3 <- d2_o3"]);
        check(&["d2[01]_fast"], &["d20_o3_lto <- d20_fast", "d21_o3_lto <- d21_fast"]);
        check(
            &["ddistro_{def,o3}"],
            &["ddistro_def <- ddistro_def", "ddistro_o3 <- ddistro_o3"],
        );
        assert!(select(&sample::recipe(&[]), &["x*"]).unwrap_err()[0].starts_with("no build matches `x*`"));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_the_nearest_all_at_once() {
        let errors = select(
            &sample::recipe(&[]),
            &["d21_o4", "d9_o3", "a/d21_o3", "@nights", "d21_o3_gcc"],
        )
        .unwrap_err();
        let starts = [
            "unknown build `d21_o4`\nhint: did you mean `d21_o3`",
            "`d9_o3` names series 9 of demo, of which no release is pinned",
            "unknown build `a/d21_o3`\nhint: a build is named without a directory",
            "unknown set `@nights`",
            "unknown build `d21_o3_gcc`",
        ];
        assert_eq!(errors.len(), starts.len());
        for (error, start) in errors.iter().zip(starts) {
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn digits_that_can_be_read_two_ways_list_the_readings() {
        let error = |recipe: &Recipe, name: &str| select(recipe, &[name]).unwrap_err().join("\n");
        let one = error(&sample::recipe(&[]), "d345_o3");
        assert!(one.starts_with("`d345_o3` can be read in 2 ways"), "{one}");
        for reading in ["demo 3.45, variant o3", "demo 34.5, variant o3"] {
            assert!(one.contains(reading), "{one}");
        }
        // A release of a series of two numbers has three.
        let two = sample::recipe(&sample::TWO_PARTS);
        assert_eq!(select(&two, &["d578_o3"]).unwrap(), ["d578_o3"]);
        let readings = error(&two, "d5744_o3");
        for reading in ["demo 5.7.44,", "demo 5.74.4,"] {
            assert!(readings.contains(reading), "{readings}");
        }
        assert!(!readings.contains("57.4.4"), "outside the range: {readings}");
        assert!(error(&two, "d58_o3").contains("names series 5.8 of demo"));
        assert_eq!(select(&two, &["d57_o3"]).unwrap(), ["d571_o3 <- d57_o3"]);
    }
}
