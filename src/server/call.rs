//! How the prefix's programs are called for a data directory: supervised, or left running.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fs_err as fs;

use crate::error::{Error, Exit, IoContext, Result};
use crate::process::{self, Account, Cancel, Command, Ended, Limits};
use crate::smoke::child::{describe, environment};

/// Longest time of one call: more than `pg_ctl` waits by itself.
const BOUND: Duration = Duration::from_secs(600);

/// Time between two looks at a program that was left alone.
const GLANCE: Duration = Duration::from_millis(20);

/// Programs of one prefix, as one account, with an empty environment.
pub(super) struct Programs {
    prefix: PathBuf,
    account: Option<Account>,
    /// Data directory: working directory and HOME.
    home: PathBuf,
}

/// What a program left behind.
pub(super) struct Output {
    pub(super) status: ExitStatus,
    /// Both streams.
    pub(super) text: String,
}

impl Programs {
    pub(super) fn new(prefix: &Path, account: Option<Account>, home: &Path) -> Self {
        Programs {
            prefix: prefix.to_owned(),
            account,
            home: home.to_owned(),
        }
    }

    /// Runs a program that leaves nothing running, and returns what it printed.
    ///
    /// # Errors
    /// [`Exit::Host`] when it fails; `what` is the headline, its output a detail.
    pub(super) fn supervised(&self, what: &str, program: &str, args: &[&str], cancel: &Cancel) -> Result<String> {
        let doing = || "cannot make a temporary file".to_owned();
        let log = tempfile::NamedTempFile::with_prefix("bm-server-").doing(doing)?;
        let path = self.prefix.join(program).display().to_string();
        let command = Command {
            argv: std::iter::once(path)
                .chain(args.iter().map(|a| (*a).to_owned()))
                .collect(),
            env: environment(&self.home),
            dir: self.home.clone(),
            log: log.path().to_owned(),
            limits: Limits {
                wall: Some(BOUND),
                ..Limits::default()
            },
            run_as: self.account,
        };
        let outcome = process::run(&command, cancel, None)?;
        let text = fs::read(log.path()).doing(|| format!("cannot read the output of `{program}`"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        match outcome.ended {
            Ended::Exited(0) => Ok(text),
            Ended::Interrupted => Err(Error::new(Exit::Interrupted, format!("interrupted: {what}"))),
            ended => Err(Error::new(Exit::Host, what)
                .detail(program, describe(&ended))
                .detail("output", indented(&text))),
        }
    }

    /// Runs a program that starts a server: in a session of its own, without a supervisor, so that
    /// what it starts outlives bm and hears no Ctrl-C.
    ///
    /// # Errors
    /// [`Exit::Host`] when it cannot be started, [`Exit::Interrupted`] when the user does not want to
    /// wait for it; the server may be starting still.
    pub(super) fn detached(&self, program: &str, args: &[&str], cancel: &Cancel) -> Result<Output> {
        let path = self.prefix.join(program);
        let mut command = std::process::Command::new(&path);
        command
            .args(args)
            .env_clear()
            .envs(environment(&self.home))
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(account) = self.account {
            // With a uid and as root, the standard library also drops the supplementary groups.
            command.gid(account.gid).uid(account.uid);
        }
        // SAFETY: between fork and exec only `setsid` and `umask` are called, which are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
                Ok(())
            });
        }
        let doing = || format!("cannot run `{}`", path.display());
        let mut child = command.spawn().doing(doing)?;
        // It says a few lines at most, which the pipes hold until they are read.
        while child.try_wait().doing(doing)?.is_none() {
            if cancel.requested().is_some() {
                child.kill().and_then(|()| child.wait()).doing(doing)?;
                return Err(
                    Error::new(Exit::Interrupted, "interrupted while the server was starting")
                        .detail("data directory", self.home.display())
                        .hint("it may start still: ask with `bm server status`, end it with `bm server stop`"),
                );
            }
            std::thread::sleep(GLANCE);
        }
        let output = child.wait_with_output().doing(doing)?;
        let text = [output.stdout, output.stderr].concat();
        Ok(Output {
            status: output.status,
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n  {line}")).collect()
}
