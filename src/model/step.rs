//! Steps of a build, by name.

use serde::{Deserialize, Serialize};

/// Steps of a build, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepName {
    /// Mirror or download.
    Fetch,
    /// Checkout, unpack or copy into the work directory.
    Unpack,
    /// Patches, in order.
    Patch,
    /// The build system's own configuration.
    Configure,
    /// Compile and link.
    Compile,
    /// Into staging.
    Install,
    /// Proof from what was built.
    Audit,
    /// One rename to the final path.
    Place,
    /// The real server at its real path.
    Smoke,
    /// The manifest: the commit point.
    Seal,
}

impl StepName {
    /// All steps in order.
    pub const ALL: [StepName; 10] = [
        StepName::Fetch,
        StepName::Unpack,
        StepName::Patch,
        StepName::Configure,
        StepName::Compile,
        StepName::Install,
        StepName::Audit,
        StepName::Place,
        StepName::Smoke,
        StepName::Seal,
    ];

    /// As written on the command line, in logs and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StepName::Fetch => "fetch",
            StepName::Unpack => "unpack",
            StepName::Patch => "patch",
            StepName::Configure => "configure",
            StepName::Compile => "compile",
            StepName::Install => "install",
            StepName::Audit => "audit",
            StepName::Place => "place",
            StepName::Smoke => "smoke",
            StepName::Seal => "seal",
        }
    }

    /// What a status line says while the step runs.
    pub fn verb(self) -> &'static str {
        match self {
            StepName::Fetch => "Fetching",
            StepName::Unpack => "Unpacking",
            StepName::Patch => "Patching",
            StepName::Configure => "Configuring",
            StepName::Compile => "Compiling",
            StepName::Install => "Installing",
            StepName::Audit => "Auditing",
            StepName::Place => "Placing",
            StepName::Smoke => "Testing",
            StepName::Seal => "Sealing",
        }
    }

    /// Reads a name of [`StepName::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }
}
