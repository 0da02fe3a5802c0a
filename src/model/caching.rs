//! How far builds may take over what earlier ones worked out.

use schemars::JsonSchema;
use serde::Deserialize;

/// Whether objects may come from a compiler cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CompilerCaching {
    /// Where ccache is on the PATH.
    #[default]
    Auto,
    /// Always; a host without ccache is not fit.
    On,
    /// Never.
    Off,
}

/// Whether answers of configure may come from an earlier build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigureCaching {
    /// Where all that can change an answer is known.
    #[default]
    Auto,
    /// Also where the configure line names directories that bm does not watch.
    On,
    /// Never.
    Off,
    /// Run configure both ways and compare what it made; the build goes on with what was made without.
    Check,
}
