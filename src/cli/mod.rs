//! The command line: definitions in [`args`], one thin file per group of commands.

pub mod args;
mod builds;
mod diff;
mod drive;
mod host;
mod planning;
mod prefixes;
mod records;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::process::{self, Cancel};
use crate::ui::{Shell, Verbosity};

use args::{Cli, Command};

/// How a command ended when it did not fail as a whole.
pub(crate) type Ended = Result<Exit, Vec<Error>>;

/// Parses, runs, and maps the outcome to an exit code.
pub fn main() -> ExitCode {
    // A file size limit is met as an error of the write, not as a signal.
    // SAFETY: ignoring a signal has no preconditions.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    std::panic::set_hook(Box::new(say_bug));
    let outcome = std::panic::catch_unwind(run).unwrap_or(Exit::Bug);
    ExitCode::from(outcome.code())
}

fn say_bug(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let what = info.payload_as_str().unwrap_or("no message");
    Shell::new(Verbosity::Normal).error(
        &Error::new(
            Exit::Bug,
            format!("this is a bug in bm {}: {what}", env!("CARGO_PKG_VERSION")),
        )
        .detail("at", place)
        .hint("please report it with the command line; prefixes that are sealed are not affected"),
    );
}

fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // clap knows itself whether it is help (stdout, 0) or a mistake (stderr, 2).
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    let shell = Shell::new(if cli.global.quiet {
        Verbosity::Quiet
    } else {
        Verbosity::Normal
    });
    match cli.command {
        Command::Completions { shell: kind } => return completions(&shell, kind),
        Command::Schema { kind } => return schema(&shell, &kind),
        _ => {}
    }
    let cancel = Cancel::default();
    if let Err(error) = process::install_handlers(&cancel) {
        shell.error(&error);
        return error.exit();
    }
    let ctx = match Context::new(cli.global, shell, cancel) {
        Ok(ctx) => ctx,
        Err(errors) => {
            let shell = Shell::new(Verbosity::Normal);
            return tell(&shell, &errors);
        }
    };
    match dispatch(&ctx, cli.command) {
        Ok(exit) => exit,
        Err(errors) => tell(&ctx.shell, &errors),
    }
}

/// Prints all errors; the worst gives the exit code.
fn tell(shell: &Shell, errors: &[Error]) -> Exit {
    for error in errors {
        shell.error(error);
    }
    errors.iter().fold(Exit::Ok, |worst, e| worst.worst(e.exit()))
}

fn dispatch(ctx: &Context, command: Command) -> Ended {
    match command {
        Command::Build(args) => builds::build(ctx, &args),
        Command::Show {
            selection,
            explain,
            json,
        } => builds::show(ctx, &selection, explain, json.json),
        Command::Plan { selection, json } => builds::plan(ctx, &selection, json.json),
        Command::Fetch { selection } => builds::fetch(ctx, &selection),
        Command::Jobs { jobs } => host::jobs(ctx, jobs),
        Command::Deps {
            selection,
            install,
            json,
        } => host::deps(ctx, &selection, install, json.json),
        Command::Doctor { builds } => host::doctor(ctx, &builds),
        Command::List {
            builds,
            built,
            all,
            json,
        } => records::list(ctx, &builds, built, all, json.json),
        Command::History { builds, json } => records::history(ctx, &builds, json.json),
        Command::Diff(args) => diff::diff(ctx, &args),
        Command::Log { build, step, follow } => records::log(ctx, &build, step.as_deref(), follow),
        Command::Verified(command) => records::verified(ctx, command),
        Command::Path(built) => prefixes::path(ctx, &built),
        Command::Env { one, json } => prefixes::env(ctx, &one, json.json),
        Command::Smoke(built) => prefixes::smoke(ctx, &built),
        Command::Verify { built, json } => prefixes::verify(ctx, &built, json.json),
        Command::Rm(built) => prefixes::rm(ctx, &built),
        Command::Exec { one, command } => drive::exec(ctx, &one, &command),
        Command::Each {
            builds,
            logs,
            fail_fast,
            command,
        } => drive::each(ctx, &builds, &logs, fail_fast, &command),
        Command::Shell { build } => drive::shell(ctx, &build),
        Command::Server(command) => drive::server(ctx, command),
        Command::Completions { .. } | Command::Schema { .. } => unreachable!("answered before recipes are read"),
    }
}

fn completions(shell: &Shell, kind: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(kind, &mut Cli::command(), "bm", &mut script);
    shell.result(String::from_utf8_lossy(&script).trim_end());
    Exit::Ok
}

fn schema(shell: &Shell, kind: &str) -> Exit {
    let schema = crate::schema::json_schema(kind).expect("clap lets only known kinds through");
    shell.result(format!("{schema:#}"));
    Exit::Ok
}

/// One failure as the list that commands give.
pub(crate) fn one(error: Error) -> Vec<Error> {
    vec![error]
}
