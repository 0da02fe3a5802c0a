//! bm's end of a supervised child: starting it, telling it to stop, and its report.
//!
//! Owns the supervisor process from outside; what it does inside is `supervisor`'s.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::protocol::{Control, Jobserver, Lines, Order, Report, Start, wait_readable};
use super::{Cancel, Command, Ended, Outcome, SUPERVISE, Urgency};
use crate::error::{Error, Exit, IoContext, Result};

/// How often a waiting thread looks whether a stop was asked for.
const GLANCE: Duration = Duration::from_millis(50);

static SUPERVISOR: OnceLock<PathBuf> = OnceLock::new();

/// Names the program to start as supervisor, for programs other than bm (integration tests) that use this
/// module; it must pass [`SUPERVISE`] to [`super::supervise`]. Only the first call counts.
pub fn set_supervisor(program: PathBuf) {
    let _ = SUPERVISOR.set(program);
}

/// bm itself, by the one path that stays right when the file is replaced while it runs.
fn supervisor_program() -> &'static Path {
    SUPERVISOR.get().map_or(Path::new("/proc/self/exe"), PathBuf::as_path)
}

/// A child that runs, or has ended and not been waited for. Dropping it kills it and everything below it.
#[derive(Debug)]
pub struct Running {
    program: String,
    log: PathBuf,
    supervisor: Child,
    control: Arc<Control>,
    reports: Lines<ChildStdout>,
    cancel: Cancel,
    /// The most urgent stop that was passed on.
    told: Option<Urgency>,
    pid: Option<i32>,
    outcome: Option<Outcome>,
}

/// Starts `command` under a supervisor. Between asking it to end and killing it `grace` passes.
///
/// # Errors
/// Only for failures of bm or the host; a program that cannot be started is [`Ended::NotStarted`] in the
/// outcome.
pub fn spawn(command: &Command, cancel: &Cancel, jobs: Option<&Jobserver>, grace: Duration) -> Result<Running> {
    let Some(program) = command.argv.first() else {
        return Err(Error::new(Exit::Bug, "a command without a program"));
    };
    let mut command = command.clone();
    command.dir =
        std::path::absolute(&command.dir).doing(|| format!("cannot use directory `{}`", command.dir.display()))?;
    if let Some(jobs) = jobs {
        // Options the recipe wants for make come first, as make itself writes it.
        command
            .env
            .entry("MAKEFLAGS".to_owned())
            .or_default()
            .push_str(&jobs.makeflags());
    }
    let mut supervisor = start_supervisor(&command.log, program)?;
    let control = Control::new(supervisor.stdin.take().expect("the pipe was asked for"));
    let reports = Lines::new(supervisor.stdout.take().expect("the pipe was asked for"));
    let mut running = Running {
        program: program.clone(),
        log: command.log.clone(),
        supervisor,
        control: Arc::new(control),
        reports,
        cancel: cancel.clone(),
        told: None,
        pid: None,
        outcome: None,
    };
    cancel.register(&running.control);
    let start = Start {
        command,
        jobs: jobs.cloned(),
        grace,
    };
    if running.control.send(&Order::Start(Box::new(start))).is_err() {
        return Err(running.lost());
    }
    while running.pid.is_none() && running.outcome.is_none() {
        running.listen(GLANCE)?;
    }
    Ok(running)
}

fn start_supervisor(log: &Path, program: &str) -> Result<Child> {
    let log = fs_err::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .doing(|| format!("cannot write the log of `{program}`"))?;
    let mut command = std::process::Command::new(supervisor_program());
    command.arg0("bm").arg(SUPERVISE).env_clear().current_dir("/");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log.into_file());
    // SAFETY: setsid is async-signal-safe. From the first moment the terminal's signals must not reach the
    // supervisor, so it cannot do this itself.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
    command
        .spawn()
        .doing(|| format!("cannot start the supervisor of `{program}`"))
}

impl Running {
    /// Process id of the program; `None` if it could not be started.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Whether it has ended (or was never started); looks without waiting, and passes a requested stop on.
    ///
    /// # Errors
    /// If the supervisor was lost.
    pub fn has_ended(&mut self) -> Result<bool> {
        if self.outcome.is_none() {
            self.pass_on_cancel();
            self.listen(Duration::ZERO)?;
        }
        Ok(self.outcome.is_some())
    }

    /// Waits for its end, and passes a requested stop on.
    ///
    /// # Errors
    /// If the supervisor was lost.
    pub fn wait(mut self) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.outcome.take() {
                return self.finish(outcome);
            }
            self.pass_on_cancel();
            self.listen(GLANCE)?;
        }
    }

    /// Ends a server: sends `signal` (a number) to the program alone, and KILL to it and all its descendants
    /// after `grace`. The outcome holds the program's own exit status, or [`Ended::Limit`] if it had to be killed.
    ///
    /// # Errors
    /// If the supervisor was lost.
    pub fn stop(self, signal: i32, grace: Duration) -> Result<Outcome> {
        self.control.tell(&Order::Quit { signal, grace });
        self.wait()
    }

    /// Kills it and all its descendants at once.
    ///
    /// # Errors
    /// If the supervisor was lost.
    pub fn kill(self) -> Result<Outcome> {
        self.control.tell(&Order::Kill);
        self.wait()
    }

    fn pass_on_cancel(&mut self) {
        let requested = self.cancel.requested();
        if requested > self.told {
            self.told = requested;
            match requested {
                Some(Urgency::Kill) => self.control.tell(&Order::Kill),
                Some(Urgency::Orderly) => self.control.tell(&Order::Interrupt),
                None => {}
            }
        }
    }

    /// Takes in reports; waits for one at most `timeout`.
    fn listen(&mut self, timeout: Duration) -> Result<()> {
        let doing = || format!("cannot hear from the supervisor of `{}`", self.program);
        let [readable] = wait_readable([self.reports.as_fd()], Some(timeout)).doing(doing)?;
        if !readable {
            return Ok(());
        }
        self.reports.fill().doing(doing)?;
        while let Some(line) = self.reports.next() {
            match serde_json::from_slice(&line) {
                Ok(Report::Started { pid }) => self.pid = Some(pid),
                Ok(Report::Ended(outcome)) => self.outcome = Some(outcome),
                Err(e) => {
                    return Err(Error::new(
                        Exit::Bug,
                        format!("the supervisor of `{}` talks nonsense", self.program),
                    )
                    .detail("line", String::from_utf8_lossy(&line))
                    .caused_by(e));
                }
            }
        }
        if self.reports.ended() && self.outcome.is_none() {
            return Err(self.lost());
        }
        Ok(())
    }

    fn finish(mut self, outcome: Outcome) -> Result<Outcome> {
        self.collect()
            .doing(|| format!("cannot wait for the supervisor of `{}`", self.program))?;
        // `Drop` has nothing left to do.
        self.outcome = Some(outcome.clone());
        Ok(outcome)
    }

    fn collect(&mut self) -> io::Result<ExitStatus> {
        self.supervisor.wait()
    }

    /// The supervisor died without a report. The program died with it (parent-death signal); here go the other
    /// members of its group. Only what left the group may still run.
    fn lost(&mut self) -> Error {
        let status = self.collect();
        if let Some(leader) = self.pid.take().and_then(Pid::from_raw) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        self.outcome = Some(Outcome {
            ended: Ended::Signaled(libc::SIGKILL),
            wall: 0.0,
            cpu: 0.0,
            max_rss_kib: 0,
            strays: vec![],
        });
        let error = Error::new(Exit::Host, format!("the supervisor of `{}` was lost", self.program))
            .detail("log", self.log.display())
            .hint("if the system ran out of memory, run fewer jobs with `-j`");
        match status {
            Ok(status) => error.caused_by(status),
            Err(e) => error.caused_by(e),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            self.control.tell(&Order::Kill);
            // The end of its reports is the end of its work; what they say no longer matters.
            while !self.reports.ended() && self.reports.fill().is_ok() {
                while self.reports.next().is_some() {}
            }
            let _ = self.collect();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::process::{GRACE, Limits, run};

    fn sh(dir: &Path, script: &str) -> Command {
        Command {
            argv: ["sh", "-c", script].map(str::to_owned).into(),
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            dir: dir.to_owned(),
            log: dir.join("log"),
            limits: Limits::default(),
            run_as: None,
        }
    }

    #[test]
    fn the_end_of_a_child_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            ("exit 0", Ended::Exited(0)),
            ("exit 3", Ended::Exited(3)),
            ("kill -USR1 $$", Ended::Signaled(libc::SIGUSR1)),
        ];
        for (script, want) in cases {
            let outcome = run(&sh(dir.path(), script), &Cancel::default(), None).unwrap();
            assert_eq!(outcome.ended, want, "{script}");
            assert_eq!(outcome.strays, Vec::<String>::new(), "{script}");
        }
    }

    #[test]
    fn output_is_appended_to_the_log_in_order() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("log"), "before\n").unwrap();
        run(
            &sh(dir.path(), "echo one; echo two >&2; echo three"),
            &Cancel::default(),
            None,
        )
        .unwrap();
        assert_eq!(
            fs_err::read_to_string(dir.path().join("log")).unwrap(),
            "before\none\ntwo\nthree\n"
        );
    }

    #[test]
    fn a_log_that_cannot_be_written_is_an_error_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = sh(dir.path(), "true");
        command.log = dir.path().join("none/log");
        let e = run(&command, &Cancel::default(), None).unwrap_err();
        assert_eq!((e.exit(), e.headline()), (Exit::Host, "cannot write the log of `sh`"));
        command.argv.clear();
        assert_eq!(run(&command, &Cancel::default(), None).unwrap_err().exit(), Exit::Bug);
    }

    #[test]
    fn a_lost_supervisor_is_an_error_and_takes_the_child_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let command = sh(dir.path(), "sleep 1000 & sleep 1000");
        let running = spawn(&command, &Cancel::default(), None, GRACE).unwrap();
        let pid = Pid::from_raw(running.pid().unwrap()).unwrap();
        let leader = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let supervisor = Pid::from_child(&running.supervisor);
        rustix::process::kill_process(supervisor, Signal::KILL).unwrap();
        let e = running.wait().unwrap_err();
        assert_eq!(
            (e.exit(), e.headline()),
            (Exit::Host, "the supervisor of `sh` was lost")
        );
        assert!(e.causes()[0].contains("signal: 9"), "{e}");
        assert_eq!(
            wait_readable([leader.as_fd()], Some(GRACE)).unwrap(),
            [true],
            "the child lives"
        );
    }
}
