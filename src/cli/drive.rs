//! Commands that hand a prefix over: exec, each, shell, server.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;

use crate::context::Context;
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::exec::{self, kept};
use crate::model::manifest::Manifest;
use crate::plan::show::shell_line;
use crate::process;
use crate::server::{self, Change, ServerOpts, State};

use super::args::{One, Server, ServerAt};
use super::prefixes::{canonical, pick, pick_one, variables};
use super::{Ended, one};

/// bm's own environment, which stays as it is, plus the prefix's variables and its programs first on
/// PATH. No library path: a client that is not the prefix's own must not load the prefix's libraries.
fn with_prefix(command: &mut Command, manifest: &Manifest) {
    let mut path = std::ffi::OsString::from(&manifest.bin);
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    process::unignore(command);
    command.env("PATH", path);
    for (name, value) in variables(manifest) {
        command.env(name, value);
    }
}

/// `bm exec`.
pub fn exec(ctx: &Context, which: &One, command: &[String]) -> Ended {
    let manifest = pick_one(ctx, which)?;
    // Looked up with the prefix first: PATH of the new process is not that of this one.
    let program = find(&command[0], &manifest);
    let mut child = Command::new(program);
    child.arg0(&command[0]).args(&command[1..]);
    with_prefix(&mut child, &manifest);
    let e = child.exec();
    Err(one(
        Error::new(Exit::Host, format!("cannot run `{}`", command[0])).caused_by(e)
    ))
}

fn find(program: &str, manifest: &Manifest) -> PathBuf {
    let own = Path::new(&manifest.bin).join(program);
    if !program.contains('/') && own.is_file() {
        own
    } else {
        PathBuf::from(program)
    }
}

/// `bm each`: one after another, never two at a time, also between two `bm each`.
pub fn each(ctx: &Context, selectors: &[String], logs: &Path, fail_fast: bool, command: &[String]) -> Ended {
    let picked = pick(ctx, selectors)?;
    fs::create_dir_all(logs)
        .doing(|| format!("cannot make `{}`", logs.display()))
        .map_err(one)?;
    ctx.make_root().map_err(one)?;
    let _alone = exec::locks(ctx)
        .each(exec::lock_wait(ctx), &exec::say_waiting(ctx, "another `bm each`"))
        .map_err(one)?;
    let mut well = 0;
    for manifest in &picked {
        if ctx.cancel.requested().is_some() {
            return Err(one(Error::new(
                Exit::Interrupted,
                "interrupted; the rest was not begun",
            )));
        }
        let status = run_one(ctx, manifest, logs, command).map_err(one)?;
        if status == 0 {
            well += 1;
        } else if fail_fast {
            break;
        }
    }
    ctx.shell.status(
        "Done",
        format!("{well} of {} ran well; logs in {}", picked.len(), logs.display()),
    );
    Ok(if well == picked.len() { Exit::Ok } else { Exit::Build })
}

fn run_one(ctx: &Context, manifest: &Manifest, logs: &Path, command: &[String]) -> Result<i32> {
    let fill = |word: &String| {
        word.replace("{prefix}", &manifest.prefix)
            .replace("{name}", &manifest.name)
            .replace("{bin}", &manifest.bin)
            .replace("{version}", &manifest.version)
    };
    let argv: Vec<String> = command.iter().map(fill).collect();
    let log = logs.join(format!("{}.log", manifest.name));
    ctx.shell.status(
        "Running",
        format!("{}: {}", manifest.name, shell_line(argv.iter().map(String::as_str))),
    );
    let out = fs::File::create(&log)
        .doing(|| "cannot write a driver's log".to_owned())?
        .into_file();
    let err = out.try_clone().doing(|| "cannot write a driver's log".to_owned())?;
    let mut child = Command::new(find(&argv[0], manifest));
    child.args(&argv[1..]).stdin(Stdio::null()).stdout(out).stderr(err);
    with_prefix(&mut child, manifest);
    let status = child
        .status()
        .map_err(|e| Error::new(Exit::Host, format!("cannot run `{}`", argv[0])).caused_by(e))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let file = logs.join(format!("{}.exit", manifest.name));
    fs::write(&file, format!("{code}\n")).doing(|| "cannot write an exit code".to_owned())?;
    if code == 0 {
        ctx.shell.status("Finished", manifest.name.as_str());
    } else {
        ctx.shell.failed(
            "Failed",
            format!("{} with status {code}, log {}", manifest.name, log.display()),
        );
    }
    Ok(code)
}

/// `bm shell`.
pub fn shell(ctx: &Context, build: &str) -> Ended {
    let name = canonical(ctx, build).map_err(one)?;
    let tree = kept::kept_tree(&ctx.layout, &name).ok_or_else(|| {
        one(Error::new(Exit::Usage, format!("no tree of `{name}` was kept"))
            .detail("looked in", ctx.layout.work_root().display())
            .hint("a failed build keeps its tree; so does `bm build --keep`"))
    })?;
    let dir = if tree.build.is_dir() { tree.build } else { tree.work };
    ctx.shell.note(format!(
        "in {} with the build's environment; leave with `exit`",
        dir.display()
    ));
    let mut shell = Command::new("/bin/sh");
    shell.arg("-i").env_clear().envs(tree.env).current_dir(&dir);
    // HOME and TMPDIR of the steps mark children that an attempt left behind and the next one ends; this
    // shell is the user's.
    for name in ["TERM", "HOME", "TMPDIR"] {
        match std::env::var_os(name) {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    process::unignore(&mut shell);
    let e = shell.exec();
    Err(one(Error::new(Exit::Host, "cannot start `/bin/sh`").caused_by(e)))
}

/// `bm server`.
pub fn server(ctx: &Context, command: Server) -> Ended {
    match command {
        Server::Init(args) => {
            let manifest = pick_one(ctx, &args.at.one)?;
            let opts = ServerOpts {
                port: args.port,
                config: args.config,
                superuser: None,
                user: args.user,
                initdb: vec![],
            };
            let state = server::init(
                Path::new(&manifest.prefix),
                &manifest.driver,
                &args.at.datadir,
                &opts,
                &ctx.cancel,
            )
            .map_err(one)?;
            ctx.shell.status(
                "Made",
                format!("a database of {} in {}", manifest.name, state.datadir.display()),
            );
            ctx.shell.note(format!(
                "\n  next  bm server start {} --datadir {}",
                manifest.name,
                state.datadir.display()
            ));
            Ok(Exit::Ok)
        }
        Server::Start(at) => change(ctx, &at, "Started", server::start),
        Server::Stop(at) => change(ctx, &at, "Stopped", server::stop),
        Server::Status(at) => {
            let manifest = pick_one(ctx, &at.one)?;
            let state = server::status(Path::new(&manifest.prefix), &manifest.driver, &at.datadir).map_err(one)?;
            match state.pid {
                Some(pid) => ctx.shell.result(format!("running, pid {pid}, psql {}", words(&state))),
                None => ctx.shell.result("stopped"),
            }
            Ok(Exit::Ok)
        }
    }
}

type Operation = fn(&Path, &crate::model::recipe::Driver, &Path, &crate::process::Cancel) -> Result<Change>;

fn change(ctx: &Context, at: &ServerAt, verb: &str, operation: Operation) -> Ended {
    let manifest = pick_one(ctx, &at.one)?;
    match operation(Path::new(&manifest.prefix), &manifest.driver, &at.datadir, &ctx.cancel).map_err(one)? {
        Change::Done(state) => {
            ctx.shell
                .status(verb, format!("{} on {}", manifest.name, state.datadir.display()));
            if state.pid.is_some() {
                ctx.shell.note(format!(
                    "\n  connect  bm exec {} -- psql {} postgres",
                    manifest.name,
                    words(&state)
                ));
            }
        }
        Change::Already(state) => ctx.shell.status(
            "Already",
            format!("{} on {}", verb.to_lowercase(), state.datadir.display()),
        ),
    }
    Ok(Exit::Ok)
}

fn words(state: &State) -> String {
    shell_line(state.words().iter().map(String::as_str))
}
