//! A small product for unit tests: recipe, toolchains, plans, without a file or a host.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::matrix;
use crate::model::build::{Request, Revision};
use crate::model::manifest::{Manifest, Tool, ToolchainRecord};
use crate::model::name::{ProductName, ToolchainName};
use crate::model::recipe::{Recipe, SourceKind, Toolchain, Word};
use crate::plan::{self, BuildPlan, Facts, FoundToolchain, Ground, Resolved, SourcePlan};
use crate::schema::{Kind, Paint, Source};

/// A commit.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

const RECIPE: &str = r#"
product = "demo"
description = "a demonstration"
build-system = "autoconf"
series-parts = 1
smoke = "command"
smoke-command = ["bin/demo", "{version}"]
compile = [{ args = ["all"] }]
install = [{ args = ["install"] }]
unlisted = ">=1"
[[configure]]
args = ["--with-tag={version.tag}", "--docs={prefix}/doc"]
[[configure]]
when = { versions = ">=2" }
reason = "fast came with 2"
args = ["--fast"]
[[configure]]
when = { source = "git" }
args = ["--from-git"]
[[env]]
set = { DEMO = "{release}-{variant}-{toolchain}-{version.series}" }
[[flags]]
cflags = ["-DV={version.compact}"]
[[flags]]
when = { family = "gcc", compiler = ">=15" }
reason = "C17"
cflags = ["-std=gnu17"]
[implied]
cflags = ["-O2"]
[[compilers]]
when = { versions = "<2" }
reason = "it does not compile with later ones"
family = "gcc"
works = "<14"
[[atoms]]
name = "o3"
group = "level"
cflags = ["-O3"]
claims = { optimisation = "3" }
[[atoms]]
name = "native"
cflags = ["-march=native"]
claims = { march = "native" }
[[atoms]]
name = "lto"
lto = true
[variants]
def = []
o3 = ["o3"]
o3_lto = ["o3", "lto"]
[variant-aliases]
fast = "o3_lto"
[[versions]]
id = "1.0"
commit = "0123456789abcdef0123456789abcdef01234567"
[[versions]]
id = "2beta1"
commit = "0123456789abcdef0123456789abcdef01234567"
[[versions]]
id = "2.0"
commit = "0123456789abcdef0123456789abcdef01234567"
[[versions]]
id = "2.1"
commit = "0123456789abcdef0123456789abcdef01234567"
[names]
release = "d{version.compact}"
series = "d{version.series}"
build = "{release}_{variant}{_toolchain}"
git = "d_git_{commit9}"
[source.git]
url = "https://user:secret@example.org/demo.git"
tag = "v{version}"
[source.tarball]
urls = ["https://example.org/{version.series}/demo-{version}.tar.gz"]
[source.distro]
package = "demo-{version.series}"
alias = "ddistro"
"#;

/// The recipe, with some of its text replaced.
pub fn recipe(changes: &[(&str, &str)]) -> Recipe {
    // URLs of recipes hold no user name; that of a fork may.
    let mut text = RECIPE.replace("user:secret@", "");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let source = Source::new(Kind::Recipe, "recipes/demo.toml", &text, Paint::Plain);
    crate::schema::recipe::recipe(&source, &|_| true).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// `gcc` (the default) and `clang15`.
pub fn toolchains() -> BTreeMap<ToolchainName, Toolchain> {
    let read = |name: &str, text: &str| {
        let file = format!("toolchains/{name}.toml");
        let source = Source::new(Kind::Toolchain, &file, text, Paint::Plain);
        let toolchain = crate::schema::toolchain::toolchain(&source).unwrap();
        (toolchain.name.clone(), toolchain)
    };
    let gcc = "family = \"gcc\"\ndefault = true\ncc = \"gcc\"\ncxx = \"g++\"\nar = \"gcc-ar\"\nnm = \"gcc-nm\"\n\
               ranlib = \"gcc-ranlib\"\nlto = { cflags = [\"-flto\"], cxxflags = [\"-flto\"], ldflags = [\"-flto\"] }\n";
    let clang = "family = \"clang\"\ncc = \"clang-15\"\ncxx = \"clang++-15\"\nar = \"llvm-ar-15\"\nnm = \"llvm-nm-15\"\n\
                 ranlib = \"llvm-ranlib-15\"\nversion = \"=15\"\nflags = { cflags = [\"-DT\"] }\n\
                 record = { cflags = [\"-grecord-command-line\"] }\n\
                 lto = { cflags = [\"-flto\"], cxxflags = [\"-flto\"], ldflags = [\"-flto\", \"-fuse-ld=lld\"] }\n";
    BTreeMap::from([read("gcc", gcc), read("clang15", clang)])
}

/// All recipes there are.
pub fn recipes(recipe: Recipe) -> BTreeMap<ProductName, Recipe> {
    BTreeMap::from([(recipe.product.clone(), recipe)])
}

fn tool(version: &str) -> Tool {
    Tool {
        path: "/usr/bin/x".to_owned(),
        version: version.to_owned(),
        sha256: crate::digest::sha256(version),
    }
}

/// A host whose compiler has this version; `None`: it has none.
pub fn facts(compiler: Option<&str>) -> Facts {
    Facts {
        toolchain: compiler.map(|version| FoundToolchain {
            record: ToolchainRecord {
                tools: BTreeMap::from([("cc".to_owned(), tool(version))]),
                ..ToolchainRecord::default()
            },
            version: Some(version.parse().unwrap()),
            native: format!("-march=of-{version}"),
        }),
        toolchain_missing: None,
        make: Some(tool("GNU Make 4.3")),
        cmake: None,
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub version: &'a str,
    pub variant: &'a str,
    pub toolchain: &'a str,
    pub compiler: Option<&'a str>,
    pub source: SourceKind,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask {
            version: "2.1",
            variant: "o3",
            toolchain: "gcc",
            compiler: Some("12.2.0"),
            source: SourceKind::Git,
        }
    }
}

/// A plan below `/r`.
pub fn plan(recipe: &Recipe, ask: Ask<'_>) -> BuildPlan {
    plan_with(recipe, ask, &[], &BTreeMap::new())
}

/// A plan with flags of the command line and variables of the user.
pub fn plan_with(recipe: &Recipe, ask: Ask<'_>, cflags: &[Word], passed: &BTreeMap<String, Word>) -> BuildPlan {
    let toolchain = toolchains().remove(&ask.toolchain.parse().unwrap()).unwrap();
    let version: crate::model::version::Version = ask.version.parse().unwrap();
    let variant = matrix::variant(recipe, ask.variant).unwrap();
    let release = matrix::release_name(recipe, &version);
    let name = matrix::build_name(recipe, &release, variant.name.as_str(), &toolchain).unwrap();
    let resolved = Resolved {
        name,
        links: vec![],
        request: Request {
            product: recipe.product.clone(),
            revision: Revision::Release(version.clone()),
            variant,
            toolchain: toolchain.name.clone(),
            from: None,
            chosen_name: None,
            links: vec![],
            extra_cflags: cflags.to_vec(),
            choices: BTreeMap::new(),
        },
        version,
        source: SourcePlan {
            kind: ask.source,
            urls: vec!["https://user:secret@example.org/demo.git".to_owned()],
            is_tag: true,
            reference: format!("v{}", ask.version),
            commit: (ask.source == SourceKind::Git).then(|| COMMIT.to_owned()),
            sha256: (ask.source == SourceKind::Tarball).then(|| crate::digest::sha256("tarball")),
            distro_package: None,
            pinned_by: "recipe".to_owned(),
            origin: None,
        },
        choices: matrix::choices::in_force(recipe, &ask.version.parse().unwrap(), &BTreeMap::new()).unwrap(),
        needs: vec![],
    };
    let patches = recipe.patches.iter().map(|p| p.value.file.clone());
    let ground = Ground {
        root: "/r".into(),
        patch_sha256: patches
            .map(|file| (file.clone(), crate::digest::sha256(file)))
            .collect(),
        passed: passed.clone(),
    };
    plan::plan(
        resolved,
        &Arc::new(recipe.clone()),
        &Arc::new(toolchain),
        &Arc::new(facts(ask.compiler)),
        &Arc::new(ground),
    )
}

/// The manifest of a prefix built from a plan.
pub fn manifest(plan: &BuildPlan) -> Box<Manifest> {
    let value = crate::store::fixture::manifest(&plan.prefix, "", "", 1);
    let mut manifest: Manifest = serde_json::from_value(value).unwrap();
    manifest.identity = plan.identity.clone().unwrap();
    manifest.inputs = plan.inputs();
    Box::new(manifest)
}

/// Changes that make it a product whose series have two numbers.
pub const TWO_PARTS: [(&str, &str); 6] = [
    ("series-parts = 1", "series-parts = 2"),
    ("unlisted = \">=1\"", "unlisted = \">=5, <9\""),
    ("id = \"1.0\"", "id = \"5.6.0\""),
    ("id = \"2beta1\"", "id = \"5.7.0\""),
    ("id = \"2.0\"", "id = \"5.7.1\""),
    ("id = \"2.1\"", "id = \"8.0.1\""),
];
