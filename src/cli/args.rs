//! The command line: definitions only.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exec::decide::Rebuild;
use crate::model::caching::{CompilerCaching, ConfigureCaching};
use crate::model::recipe::SourceKind;
use crate::plan::StepName;

/// Builds many versions of database servers, with exact flags, into named prefixes that can prove
/// what they are.
#[derive(Debug, Parser)]
#[command(name = "bm", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 good, 1 build failed, 2 usage or recipe, 3 host not fit, 4 source, 5 audit or smoke,\n6 store conflict, 70 bug, 130 interrupted. Docs: README.md and docs/."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Root of the prefixes [default: config, /var/lib/bm as root, else the XDG data directory]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BM_ROOT",
        help_heading = "Global options"
    )]
    pub root: Option<PathBuf>,

    /// Mirrors, downloads and remembered hashes [default: config, else the XDG cache directory]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BM_CACHE",
        help_heading = "Global options"
    )]
    pub cache: Option<PathBuf>,

    /// Directory with recipes/, toolchains/ and patches/ of your own; repeatable, later ones win
    #[arg(
        long = "recipes",
        global = true,
        value_name = "DIR",
        env = "BM_RECIPES",
        value_delimiter = ':',
        help_heading = "Global options"
    )]
    pub recipes: Vec<PathBuf>,

    /// Config file [default: bm/config.toml in the XDG config directory]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BM_CONFIG",
        help_heading = "Global options"
    )]
    pub config: Option<PathBuf>,

    /// Say only results and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,

    /// Use no locks (for file systems without them; nothing else may use the root meanwhile)
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_lock: bool,

    /// Give up waiting for another bm after this many seconds (0: at once) [default: wait]
    #[arg(long, global = true, value_name = "SECONDS", help_heading = "Global options")]
    pub lock_timeout: Option<u64>,
}

/// Variant of `--rev` and `--source` where none is given.
pub const DEFAULT_VARIANT: &str = "def";

/// Which builds, and of what.
#[derive(Debug, Clone, Args, Default)]
pub struct Selection {
    /// Names, patterns ('pg{15,16}*_o3*') or sets (@name); with --rev or --source: one product
    #[arg(required = true, value_name = "BUILD")]
    pub builds: Vec<String>,

    /// Kind of source [default: BM_FROM, config, else tarball where a checksum is pinned, else git];
    /// with `build` also the step at which to go on in the kept tree of a failed build
    #[arg(long, value_name = "KIND|STEP", help_heading = "Source")]
    pub from: Vec<From>,

    /// Branch, tag or commit of the product's repository
    #[arg(long, value_name = "REV", help_heading = "Source", conflicts_with = "source")]
    pub rev: Option<String>,

    /// Another repository that has the revision
    #[arg(long, value_name = "URL", help_heading = "Source", requires = "rev")]
    pub fork: Option<String>,

    /// A source tree of your own; copied, and marked as local in the manifest
    #[arg(long, value_name = "DIR", help_heading = "Source")]
    pub source: Option<PathBuf>,

    /// Variant for --rev and --source [default: def]
    #[arg(long, value_name = "VARIANT", help_heading = "Source")]
    pub variant: Option<String>,

    /// Toolchain for --rev and --source [default: the one names leave out]
    #[arg(long, value_name = "TOOLCHAIN", help_heading = "Source")]
    pub toolchain: Option<String>,

    /// Name of the prefix, in place of the recipe's
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub name: Option<String>,

    /// More C and C++ flags for a one-off sweep, after the variant's; needs --name
    #[arg(
        long,
        value_name = "FLAGS",
        help_heading = "Source",
        requires = "name",
        allow_hyphen_values = true
    )]
    pub cflags: Option<String>,

    /// Choose OPTION's CHOICE for the builds whose recipes declare it (ssl=system); shows in their names
    #[arg(long, value_name = "OPTION=CHOICE", help_heading = "Source")]
    pub set: Vec<String>,

    /// Use only what is already here
    #[arg(long, help_heading = "Source")]
    pub offline: bool,

    /// Go on although patterns picked more than 40 builds
    #[arg(long)]
    pub yes: bool,
}

/// Where a build comes from or goes on: one option, since the words do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// A commit of the product's git repository
    Git,
    /// The release archive, from upstream or from the distribution's pool
    Tarball,
    /// Configure again in the kept tree
    Configure,
    /// Go on compiling in the kept tree
    Compile,
    /// Install from the kept tree
    Install,
}

impl From {
    /// The kind of source, if this is one.
    pub fn kind(self) -> Option<SourceKind> {
        match self {
            From::Git => Some(SourceKind::Git),
            From::Tarball => Some(SourceKind::Tarball),
            _ => None,
        }
    }

    /// The step, if this is one.
    pub fn step(self) -> Option<StepName> {
        match self {
            From::Configure => Some(StepName::Configure),
            From::Compile => Some(StepName::Compile),
            From::Install => Some(StepName::Install),
            _ => None,
        }
    }
}

/// `bm build`.
#[derive(Debug, Clone, Args)]
pub struct Build {
    /// Which.
    #[command(flatten)]
    pub selection: Selection,

    /// Show what would be done and stop
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Install missing system packages first (apt, as root or through sudo)
    #[arg(long)]
    pub install_deps: bool,

    /// Build again what is there: `stale` where something moved, `all` in any case
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub rebuild: Option<Rebuild>,

    /// Keep the work tree also after success
    #[arg(long)]
    pub keep: bool,

    /// Job tokens shared by all builds, makes and LTO links [default: config, else the number of cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub jobs: Option<u16>,

    /// Builds in flight [default: config, else as many as tokens]
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub parallel: Option<u16>,

    /// Start nothing new while the load of the machine is N or more
    #[arg(short = 'l', long, value_name = "N", value_parser = load)]
    pub load: Option<f64>,

    /// Begin no build that would not be done by TIME (`06:00`, the next one) or within it (`2h 30m`)
    #[arg(long, value_name = "TIME", value_parser = until)]
    pub until: Option<SystemTime>,

    /// Take objects from ccache: `auto` where it is installed, `on` always, `off` never [default: config, else auto]
    #[arg(long, value_name = "WHEN", hide_possible_values = true)]
    pub ccache: Option<CompilerCaching>,

    /// Take answers of configure from an equal one before: `auto` where all that decides is known, `on` always, `off`
    /// never, `check` to run it both ways and compare [default: config, else auto]
    #[arg(long, value_name = "WHEN", hide_possible_values = true)]
    pub configure_cache: Option<ConfigureCaching>,

    /// Go on with the other builds after a failure (the default)
    #[arg(long, conflicts_with = "fail_fast")]
    pub keep_going: bool,

    /// Stop all builds at the first failure
    #[arg(long)]
    pub fail_fast: bool,

    /// How to show what is at work [default: auto]
    #[arg(
        long,
        value_name = "HOW",
        default_value_t,
        hide_default_value = true,
        help_heading = "Watching"
    )]
    pub progress: Progress,

    /// What stdout is for [default: human]
    #[arg(
        long,
        value_name = "FORMAT",
        default_value_t,
        hide_default_value = true,
        help_heading = "Watching"
    )]
    pub message_format: MessageFormat,

    /// Write a page (HTML) with all steps on a time axis [default file: ROOT/.bm/timings/TIME.html]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Watching")]
    pub timings: Option<Option<PathBuf>>,
}

/// How a run is shown on stderr.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// Live on a terminal, except where CI is set, with --quiet or with --message-format json; else plain
    #[default]
    Auto,
    /// One line for each step and build
    Plain,
    /// Builds at work at the foot of the terminal, with keys (`?` shows them)
    Live,
}

/// What a run writes to stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum MessageFormat {
    /// Nothing: all is told on stderr
    #[default]
    Human,
    /// One JSON object a line for each event; the rest is told on stderr as always
    Json,
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        word(*self, f)
    }
}

impl std::fmt::Display for MessageFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        word(*self, f)
    }
}

/// A value as it is written on the command line.
fn word(value: impl ValueEnum, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let value = value.to_possible_value().expect("no value is skipped");
    f.write_str(value.get_name())
}

/// Built prefixes to act on.
#[derive(Debug, Clone, Args)]
pub struct Built {
    /// Names (also links) or patterns of built prefixes
    #[arg(required = true, value_name = "BUILD")]
    pub builds: Vec<String>,
}

/// One built prefix.
#[derive(Debug, Clone, Args)]
pub struct One {
    /// Name (also a link) of a built prefix
    #[arg(value_name = "BUILD")]
    pub build: String,
}

/// `bm diff`.
#[derive(Debug, Clone, Args)]
pub struct Diff {
    /// Name (also a link) of a built prefix, a directory that holds one, or the file of a manifest
    #[arg(value_name = "A")]
    pub a: String,

    /// The build to compare it with
    #[arg(value_name = "B")]
    pub b: String,

    /// Also what is equal, one line for each part, and long lists in full
    #[arg(long)]
    pub all: bool,

    /// Output
    #[command(flatten)]
    pub json: Json,
}

/// Output as JSON.
#[derive(Debug, Clone, Copy, Args)]
pub struct Json {
    /// Print JSON with a `schema` field
    #[arg(long)]
    pub json: bool,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build, audit, smoke-test and install into named prefixes
    Build(Build),

    /// List what can be built, or with --built what is there
    List {
        /// Names or patterns to show [default: all]
        #[arg(value_name = "BUILD")]
        builds: Vec<String>,
        /// Only built prefixes
        #[arg(long)]
        built: bool,
        /// Also pre-releases and every toolchain
        #[arg(long)]
        all: bool,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// Show one build or more: source, flags, commands, identity
    Show {
        /// Which.
        #[command(flatten)]
        selection: Selection,
        /// Exact commands, and where each word came from
        #[arg(long)]
        explain: bool,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// Show what `build` would do, and why
    Plan {
        /// Which.
        #[command(flatten)]
        selection: Selection,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// Get all sources beforehand, so that `build --offline` can follow
    ///
    /// What no recipe pins is looked up once and then locked in ROOT/.bm/lock.toml: the commit of a tag,
    /// the checksum of an archive, the release that the distribution's alias stands for. It stays so
    /// when the distribution moves on; delete the entry there to look again.
    Fetch {
        /// Which.
        #[command(flatten)]
        selection: Selection,
    },

    /// Show the job budget of the builds that run now, or change it
    ///
    /// All bm of one cache and host share one budget. More jobs are there at once; fewer as soon as
    /// running ones end.
    Jobs {
        /// New number of jobs
        #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
        jobs: Option<u16>,
    },

    /// Print the paths of built prefixes, one a line, in version order
    Path(Built),

    /// Print shell lines that describe a prefix (safe to source in sh)
    Env {
        /// Which.
        #[command(flatten)]
        one: One,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// Run a command with a prefix's programs first on PATH; its exit status is returned
    Exec {
        /// Which.
        #[command(flatten)]
        one: One,
        /// Command and arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },

    /// Run a command once per built prefix, one after another; `{prefix}`, `{name}`, `{bin}`, `{version}` are replaced
    Each {
        /// Names (also links) or patterns of built prefixes
        #[arg(required = true, value_name = "BUILD")]
        builds: Vec<String>,
        /// Directory for logs and exit codes, one pair per build
        #[arg(long, value_name = "DIR", default_value = "bm-each")]
        logs: PathBuf,
        /// Stop at the first command that fails
        #[arg(long)]
        fail_fast: bool,
        /// Command and arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },

    /// Open a shell in the kept tree of a failed build, with the build's environment
    Shell {
        /// Name of the build
        #[arg(value_name = "BUILD")]
        build: String,
    },

    /// Print the log of a step
    Log {
        /// Name of the build
        #[arg(value_name = "BUILD")]
        build: String,
        /// Step [default: the last one that wrote a log]
        #[arg(value_name = "STEP")]
        step: Option<String>,
        /// Follow a build that is being made, over its steps, until it ends
        #[arg(short, long)]
        follow: bool,
    },

    /// Check the store and this host; with builds, what they need
    Doctor {
        /// Names, patterns or sets
        #[arg(value_name = "BUILD")]
        builds: Vec<String>,
    },

    /// Print the packages that are missing for builds, as one apt line
    Deps {
        /// Which.
        #[command(flatten)]
        selection: Selection,
        /// Install them (through sudo when not root)
        #[arg(long)]
        install: bool,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// Show what was built, also of prefixes that are gone
    History {
        /// Names or patterns [default: all]
        #[arg(value_name = "BUILD")]
        builds: Vec<String>,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// Show what differs between two builds: recipe, source, flags, tools, compile lines, libraries, host
    ///
    /// `-` is of the first build only, `+` of the second. Differences are no error: exit 0.
    Diff(Diff),

    /// Run the smoke test of built prefixes again
    Smoke(Built),

    /// Compare installed files with the manifest; files added later are normal
    Verify {
        /// Which.
        #[command(flatten)]
        built: Built,
        /// Output
        #[command(flatten)]
        json: Json,
    },

    /// The list of builds proved on real source (recipes/verified.toml)
    #[command(subcommand)]
    Verified(Verified),

    /// Make and run a database from a prefix, touching nothing but its directory
    #[command(subcommand)]
    Server(Server),

    /// Remove built prefixes (a link: only the link); their manifests stay in the history
    Rm(Built),

    /// Print a completion script
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },

    /// Print the JSON Schema of a file format, for editors
    Schema {
        /// Which
        #[arg(value_parser = ["recipe", "extension", "toolchain", "set", "config"])]
        kind: String,
    },
}

/// `bm verified`.
#[derive(Debug, Subcommand)]
pub enum Verified {
    /// Record built prefixes, from their sealed manifests
    Add {
        /// Which.
        #[command(flatten)]
        built: Built,
        /// The file to write
        #[arg(long, value_name = "FILE", default_value = "recipes/verified.toml")]
        file: PathBuf,
    },
    /// Show the list
    List {
        /// Output
        #[command(flatten)]
        json: Json,
    },
}

/// `bm server`.
#[derive(Debug, Subcommand)]
pub enum Server {
    /// Make a database in a new directory
    Init(ServerInit),
    /// Start it
    Start(ServerAt),
    /// Stop it
    Stop(ServerAt),
    /// Say whether it runs
    Status(ServerAt),
}

/// Which server, where.
#[derive(Debug, Clone, Args)]
pub struct ServerAt {
    /// Which.
    #[command(flatten)]
    pub one: One,
    /// Data directory; nothing else is touched
    #[arg(long, value_name = "DIR")]
    pub datadir: PathBuf,
}

/// `bm server init`.
#[derive(Debug, Clone, Args)]
pub struct ServerInit {
    /// Which server, where.
    #[command(flatten)]
    pub at: ServerAt,
    /// TCP port on the loopback interface, also part of the socket's name
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1024..))]
    pub port: u16,
    /// Configuration appended to the generated one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// System account that runs the server [default: you; as root an unprivileged one]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

fn load(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(load) if load > 0.0 && f64::is_finite(load) => Ok(load),
        _ => Err("a load is a number above 0, as `uptime` shows it".to_owned()),
    }
}

/// A moment to come, from a time of the day or a span of time.
fn until(text: &str) -> Result<SystemTime, String> {
    let now = SystemTime::now();
    if let Some(clock) = text.split_once(':') {
        let (Ok(hour), Ok(minute)) = (clock.0.parse(), clock.1.parse()) else {
            return Err("a time of the day is `HH:MM`".to_owned());
        };
        let time = jiff::civil::Time::new(hour, minute, 0, 0).map_err(|e| e.to_string())?;
        let here = jiff::ZonedDateTime::now();
        let today = here.with().time(time).build().map_err(|e| e.to_string())?;
        let next = if today > here { Ok(today) } else { today.tomorrow() };
        let next = next.map_err(|e| e.to_string())?.timestamp();
        let wait = next.duration_since(here.timestamp());
        return Ok(now + wait.try_into().unwrap_or_default());
    }
    let span = humantime::parse_duration(text).map_err(|e| format!("{e}; give `HH:MM`, or a span such as `2h 30m`"))?;
    now.checked_add(span).ok_or_else(|| "that is too far away".to_owned())
}
