//! The user's configuration.
//!
//! Owns the wire type, its checks and the checked form. Reads no environment: what is set elsewhere,
//! and which setting wins, is the command line's affair.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::model::caching::{CompilerCaching, ConfigureCaching};
use crate::model::recipe::SourceKind;

use super::at::At;
use super::diagnostic::{Kind, Paint, Problem, Source};
use super::parse;
use super::read::Reader;

/// Most jobs or builds that make sense; more is a slip of the finger.
const MANY: u32 = 4096;

/// The user's configuration: `config.toml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "bm config")]
pub struct ConfigFile {
    /// Root of prefixes.
    root: Option<At<String>>,
    /// Cache of mirrors and downloads.
    cache: Option<At<String>>,
    /// Kind of source to build from, where both are pinned.
    from: Option<From>,
    /// Job tokens over all builds, 1 to 4096.
    #[schemars(range(min = 1, max = 4096))]
    jobs: Option<At<u32>>,
    /// Builds in flight, 1 to 4096.
    #[schemars(range(min = 1, max = 4096))]
    builds: Option<At<u32>>,
    /// Whether objects may come from a compiler cache.
    ccache: Option<CompilerCaching>,
    /// Most bytes of the compiler cache: a number and `M`, `G` or `T`.
    ccache_size: Option<At<String>>,
    /// Whether answers of configure may come from an earlier build.
    configure_cache: Option<ConfigureCaching>,
    /// Directories with recipes, sets, toolchains and patches of the user's own; later ones win.
    #[serde(default)]
    recipes: Vec<At<String>>,
    /// URL prefix to a directory or another URL that holds the same.
    #[serde(default)]
    mirrors: BTreeMap<At<String>, At<String>>,
    /// Environment of children.
    #[serde(default)]
    env: EnvTable,
}

/// Kinds of source to prefer.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum From {
    /// Release archives.
    Tarball,
    /// Commits.
    Git,
}

/// Environment of children.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct EnvTable {
    /// Variables passed on to build steps. Their values become part of each build's identity.
    pass: Vec<At<String>>,
}

/// The configuration, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Root of prefixes; absolute.
    pub root: Option<PathBuf>,
    /// Cache; absolute.
    pub cache: Option<PathBuf>,
    /// Kind of source to prefer.
    pub from: Option<SourceKind>,
    /// Job tokens, at least 1.
    pub jobs: Option<u32>,
    /// Builds in flight, at least 1.
    pub builds: Option<u32>,
    /// Use of a compiler cache.
    pub ccache: Option<CompilerCaching>,
    /// Most bytes of the compiler cache, as ccache writes it.
    pub ccache_size: Option<String>,
    /// Use of configure's cached answers.
    pub configure_cache: Option<ConfigureCaching>,
    /// Overlay directories in order; absolute.
    pub recipes: Vec<PathBuf>,
    /// URL prefix to directory or URL.
    pub mirrors: BTreeMap<String, String>,
    /// Names of variables passed to children.
    pub pass: Vec<String>,
}

/// Reads the configuration; `file` is the name the user knows it by.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn config(text: &str, file: &str, paint: Paint) -> Result<Config, Vec<Error>> {
    let source = Source::new(Kind::Config, file, text, paint);
    let (wire, problems) = parse::<ConfigFile>(&source);
    let mut reader = Reader::new(&source, problems);
    let config = wire.map(|wire| convert(&wire, &mut reader));
    reader.finish(config)
}

fn convert(file: &ConfigFile, reader: &mut Reader<'_>) -> Config {
    for name in &file.env.pass {
        reader.variable(name);
    }
    for (prefix, place) in &file.mirrors {
        mirror(prefix, place, reader);
    }
    Config {
        root: file.root.as_ref().map(|path| absolute(path, reader)),
        cache: file.cache.as_ref().map(|path| absolute(path, reader)),
        from: file.from.map(|from| match from {
            From::Tarball => SourceKind::Tarball,
            From::Git => SourceKind::Git,
        }),
        jobs: file.jobs.as_ref().map(|n| count(n, "jobs", reader)),
        builds: file.builds.as_ref().map(|n| count(n, "builds", reader)),
        ccache: file.ccache,
        ccache_size: file.ccache_size.as_ref().map(|text| bytes(text, reader)),
        configure_cache: file.configure_cache,
        recipes: file.recipes.iter().map(|path| absolute(path, reader)).collect(),
        mirrors: file
            .mirrors
            .iter()
            .map(|(k, v)| ((**k).clone(), (**v).clone()))
            .collect(),
        pass: file.env.pass.iter().map(|name| (**name).clone()).collect(),
    }
}

fn absolute(path: &At<String>, reader: &mut Reader<'_>) -> PathBuf {
    if !Path::new(path.as_str()).is_absolute() {
        let problem = Problem::new(path.span(), "relative path", "expected an absolute path");
        reader.report(problem.hint("`~` and variables are not replaced here: write the whole path".to_owned()));
    }
    PathBuf::from(path.as_str())
}

fn count(number: &At<u32>, key: &str, reader: &mut Reader<'_>) -> u32 {
    if !(1..=MANY).contains(&**number) {
        reader.problem(
            number.span(),
            format!("bad number for `{key}`"),
            format!("expected 1 to {MANY}"),
        );
    }
    **number
}

fn bytes(text: &At<String>, reader: &mut Reader<'_>) -> String {
    let number = text.strip_suffix(['M', 'G', 'T']).unwrap_or_default();
    let is_number = (1..=6).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    if !is_number || number.bytes().all(|b| b == b'0') {
        reader.problem(
            text.span(),
            "bad size",
            "expected a number and `M`, `G` or `T`, such as `20G`",
        );
    }
    text.to_string()
}

fn mirror(prefix: &At<String>, place: &At<String>, reader: &mut Reader<'_>) {
    if !prefix.contains("://") {
        let label = "expected the beginning of a URL, such as `https://ftp.postgresql.org/`";
        reader.problem(prefix.span(), "bad mirror", label);
    }
    if !place.contains("://") && !Path::new(place.as_str()).is_absolute() {
        reader.problem(place.span(), "bad mirror", "expected a URL or an absolute directory");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn headlines(text: &str) -> Vec<String> {
        let errors = config(text, "config.toml", Paint::Plain).unwrap_err();
        errors.iter().map(|e| e.headline().to_owned()).collect()
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        assert_eq!(config("", "config.toml", Paint::Plain).unwrap(), Config::default());
    }

    #[test]
    fn every_setting_is_read() {
        let text = r#"
            root = "/srv/bm"
            cache = "/srv/cache"
            from = "git"
            jobs = 8
            builds = 2
            ccache = "off"
            ccache-size = "5G"
            configure-cache = "check"
            recipes = ["/srv/recipes"]
            [mirrors]
            "https://ftp.postgresql.org/" = "/srv/mirror"
            [env]
            pass = ["PKG_CONFIG_PATH"]
        "#;
        let config = config(text, "config.toml", Paint::Plain).unwrap();
        assert_eq!(config.root.as_deref(), Some(Path::new("/srv/bm")));
        assert_eq!(
            (config.from, config.jobs, config.builds),
            (Some(SourceKind::Git), Some(8), Some(2))
        );
        assert_eq!(
            (config.ccache, config.ccache_size.as_deref(), config.configure_cache),
            (Some(CompilerCaching::Off), Some("5G"), Some(ConfigureCaching::Check))
        );
        assert_eq!(config.recipes, [Path::new("/srv/recipes")]);
        assert_eq!(config.mirrors["https://ftp.postgresql.org/"], "/srv/mirror");
        assert_eq!(config.pass, ["PKG_CONFIG_PATH"]);
    }

    #[test]
    fn each_bad_setting_is_reported() {
        let cases = [
            ("root = \"~/bm\"", "relative path in the config"),
            ("jobs = 0", "bad number for `jobs` in the config"),
            ("jobs = 5000", "bad number for `jobs` in the config"),
            ("jobs = -1", "bad number for `jobs` in the config"),
            ("ccache-size = \"0G\"", "bad size in the config"),
            ("ccache-size = \"20\"", "bad size in the config"),
            ("ccache = \"yes\"", "unknown value `yes` for `ccache` in the config"),
            ("from = \"local\"", "unknown value `local` for `from` in the config"),
            ("[mirrors]\n\"ftp\" = \"/x\"", "bad mirror in the config"),
            ("[mirrors]\n\"http://x/\" = \"x\"", "bad mirror in the config"),
            ("[env]\npass = [\"PATH\"]", "variable `PATH` is not free in the config"),
            ("[env]\npass = [\"A-B\"]", "bad variable name in the config"),
            ("job = 1", "unknown key `job` in the config"),
        ];
        for (text, want) in cases {
            assert_eq!(headlines(text), [want], "{text}");
        }
    }

    #[test]
    fn unknown_keys_do_not_hide_what_else_is_wrong() {
        assert_eq!(
            headlines("job = 1\njobs = 0\nroot = \"x\""),
            [
                "unknown key `job` in the config",
                "bad number for `jobs` in the config",
                "relative path in the config"
            ]
        );
    }
}
