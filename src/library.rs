//! All recipes, toolchains, sets and patches there are: those shipped inside the binary, overlaid by
//! the user's own directories.
//!
//! Owns finding and reading the files, and what holds between files. What holds inside a file is
//! `schema`'s.

mod known;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use include_dir::{Dir, include_dir};

use crate::error::{Error, Exit};
use crate::model::name::{ProductName, SetName, ToolchainName};
use crate::model::recipe::{Recipe, Set, Toolchain};
use crate::schema::{self, Kind, Paint, Source};

static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/recipes");
static TOOLCHAINS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/toolchains");
static PATCHES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/patches");

/// Stands among the recipes and is none: the record of verified builds.
const VERIFIED: &str = "verified.toml";

/// Everything that can be asked for.
#[derive(Debug, Clone)]
pub struct Library {
    /// Recipes by product.
    pub recipes: BTreeMap<ProductName, Recipe>,
    /// Toolchains; exactly one is the default.
    pub toolchains: BTreeMap<ToolchainName, Toolchain>,
    /// Sets.
    pub sets: BTreeMap<SetName, Set>,
    /// Directories laid over what is shipped, in order.
    overlays: Vec<PathBuf>,
}

impl Library {
    /// Reads what is shipped, then each overlay in order: `recipes/`, `recipes/sets/`, `toolchains/` and
    /// `patches/` below it. A file replaces an earlier one of the same name. Messages have no colour.
    ///
    /// # Errors
    /// Everything that is wrong in any file, and overlays that cannot be read.
    pub fn load(overlays: &[PathBuf]) -> Result<Library, Vec<Error>> {
        Library::load_painted(overlays, Paint::Plain)
    }

    /// As [`Library::load`]; `paint` says whether errors are rendered with colour.
    ///
    /// # Errors
    /// As [`Library::load`].
    pub fn load_painted(overlays: &[PathBuf], paint: Paint) -> Result<Library, Vec<Error>> {
        let mut files = Files::shipped();
        let mut errors: Vec<Error> = overlays.iter().flat_map(|overlay| files.lay_over(overlay)).collect();
        let has_patch = |file: &str| has_patch(overlays, file);
        let (forks, own) = files
            .recipes
            .part(|text| schema::recipe::extends(&Source::new(Kind::Recipe, "", text, paint)));
        let recipes = own.read(Kind::Recipe, paint, &mut errors, |s| {
            schema::recipe::recipe(s, &has_patch)
        });
        let mut recipes: BTreeMap<_, _> = recipes.into_iter().map(|r| (r.product.clone(), r)).collect();
        let forks = forks.read(Kind::Recipe, paint, &mut errors, |s| {
            schema::recipe::extension(s, &recipes)
        });
        recipes.extend(forks.into_iter().map(|r| (r.product.clone(), r)));
        let toolchains = files
            .toolchains
            .read(Kind::Toolchain, paint, &mut errors, schema::toolchain::toolchain);
        let mut library = Library {
            recipes,
            toolchains: toolchains.into_iter().map(|t| (t.name.clone(), t)).collect(),
            sets: BTreeMap::new(),
            overlays: overlays.to_vec(),
        };
        errors.extend(library.one_default());
        errors.extend(library.clashing_releases());
        // Names in sets can be judged only against recipes that could be read.
        let whole = errors.is_empty();
        let known = known::Known::new(&library);
        let judge = |name: &str| if whole { known.judge(name) } else { Ok(()) };
        let sets = files
            .sets
            .read(Kind::Set, paint, &mut errors, |s| schema::set::set(s, &judge));
        library.sets = sets.into_iter().map(|s| (s.name.clone(), s)).collect();
        if errors.is_empty() { Ok(library) } else { Err(errors) }
    }

    /// The text of a patch, by its path below `patches/`: the last overlay that has it, else the shipped one.
    pub fn patch(&self, file: &str) -> Option<Vec<u8>> {
        if !stays_inside(file) {
            return None;
        }
        let laid_over = self
            .overlays
            .iter()
            .rev()
            .find_map(|dir| fs::read(dir.join("patches").join(file)).ok());
        laid_over.or_else(|| PATCHES.get_file(file).map(|f| f.contents().to_vec()))
    }

    /// Whether a recipe is the shipped one, to the letter: its pins are upstream's then, as far as bm knows.
    pub fn is_shipped(&self, recipe: &Recipe) -> bool {
        let file = RECIPES.get_file(format!("{}.toml", recipe.product));
        file.is_some_and(|file| file.contents() == recipe.text.as_bytes())
    }

    /// The toolchain that names leave out.
    pub fn default_toolchain(&self) -> &Toolchain {
        let default = self.toolchains.values().find(|t| t.default);
        default.expect("a library without exactly one default toolchain is never made")
    }

    fn one_default(&self) -> Option<Error> {
        let defaults: Vec<_> = self.toolchains.values().filter(|t| t.default).collect();
        let error = match defaults.as_slice() {
            [_] => return None,
            [] => Error::new(Exit::Usage, "no toolchain is the default"),
            many => many.iter().fold(
                Error::new(Exit::Usage, "more than one toolchain is the default"),
                |e, t| e.detail("default", &t.file),
            ),
        };
        Some(error.hint("write `default = true` in exactly one toolchain file"))
    }

    /// Two products whose releases would share a name.
    fn clashing_releases(&self) -> Vec<Error> {
        let mut owners: BTreeMap<String, (&Recipe, String)> = BTreeMap::new();
        let mut errors = Vec::new();
        for recipe in self.recipes.values() {
            for (name, origin) in known::releases(recipe) {
                if let Some((other, first)) = owners.insert(name.clone(), (recipe, origin.to_string())) {
                    let headline = format!(
                        "recipes `{}` and `{}` both name a release `{name}`",
                        other.product, recipe.product
                    );
                    errors.push(
                        Error::new(Exit::Usage, headline)
                            .detail("one", first)
                            .detail("other", origin),
                    );
                }
            }
        }
        errors
    }
}

/// Whether a patch is shipped or laid over.
fn has_patch(overlays: &[PathBuf], file: &str) -> bool {
    stays_inside(file)
        && (PATCHES.get_file(file).is_some() || overlays.iter().any(|dir| dir.join("patches").join(file).is_file()))
}

fn stays_inside(file: &str) -> bool {
    !file.is_empty() && Path::new(file).components().all(|c| matches!(c, Component::Normal(_)))
}

/// Texts by file name, each with the name the user knows.
#[derive(Default)]
struct Shelf(BTreeMap<String, (String, Cow<'static, str>)>);

impl Shelf {
    /// The TOML files directly in a shipped directory. `shown` is that directory's name.
    fn add_shipped(&mut self, dir: Option<&Dir<'static>>, shown: &str) {
        for file in dir.into_iter().flat_map(Dir::files) {
            let name = file.path().file_name().and_then(|n| n.to_str()).unwrap_or("");
            if is_toml(name) {
                let text = String::from_utf8_lossy(file.contents());
                self.0.insert(name.to_owned(), (format!("{shown}/{name}"), text));
            }
        }
    }

    /// The TOML files directly in a directory; none if there is no such directory.
    fn add_directory(&mut self, dir: &Path) -> Vec<Error> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return vec![],
            Err(e) => return vec![Error::io(format!("cannot read `{}`", dir.display()), &e)],
        };
        let mut errors = Vec::new();
        for entry in entries {
            match entry.map(|entry| entry.path()) {
                Ok(path) => errors.extend(self.add_file(&path)),
                Err(e) => errors.push(Error::io(format!("cannot read `{}`", dir.display()), &e)),
            }
        }
        errors
    }

    fn add_file(&mut self, path: &Path) -> Option<Error> {
        let name = path.file_name()?.to_str()?;
        if !is_toml(name) || path.is_dir() {
            return None;
        }
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) => return Some(Error::io(format!("cannot read `{}`", path.display()), &e)),
        };
        match String::from_utf8(bytes) {
            Ok(text) => {
                self.0
                    .insert(name.to_owned(), (path.display().to_string(), text.into()));
                None
            }
            Err(e) => Some(
                Error::new(Exit::Usage, format!("`{}` is not UTF-8", path.display()))
                    .detail("first bad byte", e.utf8_error().valid_up_to()),
            ),
        }
    }

    /// Those whose text is `chosen`, and the others.
    fn part(self, chosen: impl Fn(&str) -> bool) -> (Shelf, Shelf) {
        let (yes, no) = self.0.into_iter().partition(|(_, (_, text))| chosen(text));
        (Shelf(yes), Shelf(no))
    }

    fn read<T>(
        &self,
        kind: Kind,
        paint: Paint,
        errors: &mut Vec<Error>,
        parse: impl Fn(&Source) -> Result<T, Vec<Error>>,
    ) -> Vec<T> {
        let mut read = Vec::new();
        for (file, text) in self.0.values() {
            match parse(&Source::new(kind, file, text, paint)) {
                Ok(value) => read.push(value),
                Err(found) => errors.extend(found),
            }
        }
        read
    }
}

fn is_toml(name: &str) -> bool {
    name.ends_with(".toml") && !name.starts_with('.')
}

/// The texts of all files.
#[derive(Default)]
struct Files {
    recipes: Shelf,
    toolchains: Shelf,
    sets: Shelf,
}

impl Files {
    fn shipped() -> Self {
        let mut files = Files::default();
        files.recipes.add_shipped(Some(&RECIPES), "recipes");
        files.sets.add_shipped(RECIPES.get_dir("sets"), "recipes/sets");
        files.toolchains.add_shipped(Some(&TOOLCHAINS), "toolchains");
        files.recipes.0.remove(VERIFIED);
        files
    }

    fn lay_over(&mut self, overlay: &Path) -> Vec<Error> {
        if !overlay.is_dir() {
            let headline = format!("recipe directory `{}` is not there", overlay.display());
            return vec![
                Error::new(Exit::Usage, headline).hint("it is named by `--recipes`, `BM_RECIPES` or the config"),
            ];
        }
        let recipes = overlay.join("recipes");
        let mut errors = self.recipes.add_directory(&recipes);
        self.recipes.0.remove(VERIFIED);
        errors.extend(self.sets.add_directory(&recipes.join("sets")));
        errors.extend(self.toolchains.add_directory(&overlay.join("toolchains")));
        errors
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn overlay(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn load(files: &[(&str, &str)]) -> Result<Library, Vec<Error>> {
        Library::load(&[overlay(files).path().to_owned()])
    }

    fn headlines(files: &[(&str, &str)]) -> Vec<String> {
        load(files)
            .unwrap_err()
            .iter()
            .map(|e| e.headline().to_owned())
            .collect()
    }

    const GCC: &str = r#"
family = "gcc"
cc = "mygcc"
cxx = "myg++"
ar = "gcc-ar"
nm = "gcc-nm"
ranlib = "gcc-ranlib"
lto = { cflags = ["-flto"], cxxflags = ["-flto"], ldflags = ["-flto"] }
"#;

    #[test]
    fn the_shipped_files_make_a_library() {
        let library = Library::load(&[]).unwrap();
        assert!(library.recipes.keys().any(|p| p.as_str() == "postgres"));
        assert_eq!(library.default_toolchain().name.as_str(), "gcc");
        assert!(!library.sets.is_empty());
    }

    #[test]
    fn a_file_of_the_same_name_replaces_the_shipped_one() {
        let text = format!("default = true\n{GCC}");
        let library = load(&[("toolchains/gcc.toml", &text), ("toolchains/notes.txt", "not read")]).unwrap();
        assert_eq!(library.default_toolchain().cc.text, "mygcc");
        assert!(library.default_toolchain().file.ends_with("/toolchains/gcc.toml"));
    }

    #[test]
    fn the_last_overlay_wins() {
        let texts = ["one", "two"].map(|name| format!("default = true\n{}", GCC.replace("mygcc", name)));
        let dirs = [0, 1].map(|i| overlay(&[("toolchains/gcc.toml", &texts[i])]));
        let paths = dirs.each_ref().map(|d| d.path().to_owned());
        assert_eq!(Library::load(&paths).unwrap().default_toolchain().cc.text, "two");
    }

    #[test]
    fn exactly_one_toolchain_is_the_default() {
        let another = format!("default = true\n{GCC}");
        let errors = load(&[("toolchains/mine.toml", &another)]).unwrap_err();
        assert_eq!(errors[0].headline(), "more than one toolchain is the default");
        assert_eq!(errors[0].details().len(), 2);
        assert_eq!(
            headlines(&[("toolchains/gcc.toml", GCC)]),
            ["no toolchain is the default"]
        );
    }

    #[test]
    fn an_overlay_that_is_not_there_is_an_error() {
        let errors = Library::load(&[PathBuf::from("/nonexistent/recipes")]).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].headline().contains("/nonexistent/recipes"));
        assert_eq!(errors[0].exit(), Exit::Usage);
    }

    #[test]
    fn files_that_are_not_text_are_named() {
        let dir = overlay(&[]);
        fs::create_dir(dir.path().join("toolchains")).unwrap();
        fs::write(dir.path().join("toolchains/odd.toml"), b"a\xff").unwrap();
        let errors = Library::load(&[dir.path().to_owned()]).unwrap_err();
        assert!(errors[0].headline().ends_with("/toolchains/odd.toml` is not UTF-8"));
    }

    #[test]
    fn errors_of_all_files_come_in_one_run() {
        let found = headlines(&[
            ("toolchains/a.toml", "x = "),
            ("recipes/b.toml", "y = 1"),
            ("recipes/sets/c.toml", "z"),
        ]);
        for part in ["toolchain `a`", "recipe `b`", "set `c`"] {
            assert!(found.iter().any(|h| h.contains(part)), "{part}: {found:?}");
        }
    }

    #[test]
    fn the_record_of_verified_builds_is_no_recipe() {
        assert!(load(&[("recipes/verified.toml", "[[build]]\n")]).is_ok());
    }

    #[test]
    fn names_in_sets_must_be_possible() {
        let good = "description = \"x\"\nbuilds = [\"pg1417_o3\", \"pg16_o3_native_lto_clang15\", \"pgdistro_o3\", \"pg160_o2_lto\", \"my5718_rel_ssl-bundled\", \"openssl-1.1.1w\"]";
        assert!(load(&[("recipes/sets/mine.toml", good)]).is_ok());
        let bad =
            "description = \"x\"\nbuilds = [\"my8034_real\", \"pg160_o3_nativ\", \"pg160_lto_o3\", \"pg160_o3_gcc99\"]";
        let errors = load(&[("recipes/sets/mine.toml", bad)]).unwrap_err();
        let found: Vec<_> = errors.iter().map(Error::headline).collect();
        let want = ["my8034_real", "pg160_o3_nativ", "pg160_lto_o3", "pg160_o3_gcc99"];
        assert_eq!(found, want.map(|w| format!("unknown build `{w}` in set `mine`")));
        assert!(
            errors[1]
                .hint_text()
                .is_some_and(|h| h.starts_with("did you mean `pg160_o3_native`, "))
        );
    }

    #[test]
    fn two_products_cannot_share_a_release_name() {
        let shipped = RECIPES
            .get_file("postgres.toml")
            .and_then(|f| f.contents_utf8())
            .unwrap();
        let copy = shipped.replace("product = \"postgres\"", "product = \"fork\"");
        let found = headlines(&[("recipes/fork.toml", &copy)]);
        assert!(
            found.contains(&"recipes `fork` and `postgres` both name a release `pg160`".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn patches_are_found_and_stay_inside() {
        let dir = overlay(&[("patches/x/a.patch", "text"), ("secret", "no")]);
        let library = Library::load(&[dir.path().to_owned()]).unwrap();
        assert_eq!(library.patch("x/a.patch").as_deref(), Some(&b"text"[..]));
        for file in ["x/b.patch", "../secret", "/etc/passwd", "", "x/../../secret"] {
            assert_eq!(library.patch(file), None, "{file}");
        }
    }
}
