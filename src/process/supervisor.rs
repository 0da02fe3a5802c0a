//! Inside the supervisor process: runs one program, keeps its bounds, obeys bm, leaves nothing behind.
//!
//! One thread (the program's parent-death signal follows the thread that started it). Orders come on stdin,
//! reports go to stdout, stderr is the step's log. Knows nothing of what the step is for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus};

use super::launch::{self, Setup};
use super::protocol::{Jobserver, Lines, Order, Report, Start, send, wait_readable};
use super::{Command, Ended, Limits, Outcome, tree};

/// How often the log is looked at when one of its bounds is set.
const LOG_GLANCE: Duration = Duration::from_millis(50);

/// Runs as the supervisor of the one program that the first line on stdin describes. `main` calls this, before
/// anything else, when the first argument is [`super::SUPERVISE`]. Prints only what its starter reads; failures
/// of its own go to the log and the exit code.
pub fn supervise() -> ExitCode {
    close_inherited();
    match prepare().and_then(|children| supervise_one(&children)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // stderr is the log of the step: the only place where anyone can find this.
            let _ = io::Write::write_all(&mut io::stderr(), format!("bm: supervisor: {e}\n").as_bytes());
            ExitCode::from(crate::error::Exit::Bug.code())
        }
    }
}

/// Closes what bm itself inherited from its own parent: nothing above stderr is ours.
fn close_inherited() {
    // SAFETY: this process has opened nothing yet, so no descriptor above 2 has an owner.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // Linux before 5.9. The limit is the soft one, at most some thousands.
    // SAFETY: as above.
    unsafe {
        let limit = libc::sysconf(libc::_SC_OPEN_MAX);
        for fd in 3..i32::try_from(limit).unwrap_or(1024) {
            libc::close(fd);
        }
    }
}

/// Makes this process fit to supervise; the descriptor becomes readable when a child ends.
fn prepare() -> io::Result<OwnedFd> {
    // SAFETY: plain system calls on local values; the new descriptor is owned by nobody else.
    let children = unsafe {
        libc::prctl(libc::PR_SET_NAME, c"bm-supervisor".as_ptr());
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGPIPE,
            libc::SIGXFSZ,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // An inherited "ignore" would reap children behind our back.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Without /proc nobody can say what the program left behind.
    tree::descendants()?;
    Ok(children)
}

fn supervise_one(children: &OwnedFd) -> io::Result<()> {
    // Not `io::stdin()`: its buffer could hold an order that a poll of the descriptor does not see.
    let mut orders = Lines::new(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    let Some(Order::Start(start)) = first_order(&mut orders)? else {
        return Err(io::Error::other(
            "started without an order; this is a part of bm, not a command",
        ));
    };
    let log = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let began = Instant::now();
    let leader = match launch(&start, &log) {
        Ok(leader) => leader,
        Err(why) => return report_not_started(why),
    };
    // If bm is gone its end of the pipe is closed, which the loop sees. Writing to it is no failure then.
    let _ = report(&Report::Started {
        pid: leader.as_raw_nonzero().get(),
    });

    let mut watch = Watch::new(leader, log, start.command.limits, start.grace)?;
    while !tree::is_dead(leader)? {
        let step = watch.check_bounds(Instant::now())?;
        watch.wait_and_obey(&mut orders, children, step)?;
        tree::reap_adopted(leader)?;
    }
    let wall = began.elapsed().as_secs_f64();
    let (status, strays) = tree::sweep(leader)?;
    let ended = watch.verdict(status)?;
    let (cpu, max_rss_kib) = cost();
    let _ = report(&Report::Ended(Outcome {
        ended,
        wall,
        cpu,
        max_rss_kib,
        strays,
    }));
    Ok(())
}

fn first_order(orders: &mut Lines<File>) -> io::Result<Option<Order>> {
    loop {
        if let Some(line) = orders.next() {
            return Ok(Some(serde_json::from_slice(&line)?));
        }
        if orders.ended() {
            return Ok(None);
        }
        orders.fill()?;
    }
}

fn report(report: &Report) -> io::Result<()> {
    send(io::stdout().lock(), report)
}

fn report_not_started(why: String) -> io::Result<()> {
    let ended = Ended::NotStarted(why);
    let _ = report(&Report::Ended(Outcome {
        ended,
        wall: 0.0,
        cpu: 0.0,
        max_rss_kib: 0,
        strays: vec![],
    }));
    Ok(())
}

/// Starts the program; says in a sentence why it cannot.
fn launch(start: &Start, log: &File) -> Result<Pid, String> {
    let command = &start.command;
    let name = command.argv.first().ok_or("a command without a program")?;
    if !command.dir.is_dir() {
        return Err(format!("its directory `{}` does not exist", command.dir.display()));
    }
    let program = launch::find_program(name, command.env.get("PATH").map(String::as_str), &command.dir)?;
    let jobs = start.jobs.as_ref().map(open_jobs).transpose()?;
    let setup = Setup {
        account: account_to_become(command)?,
        jobs: jobs.as_ref().map(|(read, write)| (read.as_raw_fd(), write.as_raw_fd())),
    };
    let stream = || {
        log.try_clone()
            .map(Stdio::from)
            .map_err(|e| format!("cannot use the log: {e}"))
    };
    let mut child = std::process::Command::new(&program);
    std::os::unix::process::CommandExt::arg0(&mut child, name);
    child
        .args(&command.argv[1..])
        .env_clear()
        .envs(&command.env)
        .current_dir(&command.dir);
    child.stdin(Stdio::null()).stdout(stream()?).stderr(stream()?);
    let child = launch::start(&mut child, setup).map_err(|e| launch::explain(&program, &e))?;
    Ok(Pid::from_child(&child))
}

/// Two descriptions of the same fifo: make 4.3 makes the one it reads from non-blocking, and each step has
/// its own. Both are opened for reading and writing, so that opening never waits for the other end.
fn open_jobs(jobs: &Jobserver) -> Result<(File, File), String> {
    let open = || {
        let file = File::options().read(true).write(true).open(&jobs.fifo);
        file.map_err(|e| format!("cannot open the job budget `{}`: {e}", jobs.fifo.display()))
    };
    Ok((open()?, open()?))
}

fn account_to_become(command: &Command) -> Result<Option<super::Account>, String> {
    let Some(account) = command.run_as else { return Ok(None) };
    let own = rustix::process::geteuid().as_raw();
    match own {
        0 => Ok(Some(account)),
        own if own == account.uid => Ok(None),
        own => Err(format!(
            "only root can start it as uid {}, this is uid {own}",
            account.uid
        )),
    }
}

/// The state of the one supervised program.
struct Watch {
    leader: Pid,
    log: File,
    limits: Limits,
    grace: Duration,
    /// Start, moved forward by the time spent suspended.
    since: Instant,
    log_start: u64,
    log_size: u64,
    log_grew: Instant,
    suspended: Option<Instant>,
    /// Why it was told to end; the first reason stays.
    reason: Option<Ended>,
    /// When everything is to be killed, and the reason if there is none yet.
    kill_at: Option<(Instant, String)>,
    /// Whether bm can still speak.
    connected: bool,
}

impl Watch {
    fn new(leader: Pid, log: File, limits: Limits, grace: Duration) -> io::Result<Self> {
        let (now, log_size) = (Instant::now(), log.metadata()?.len());
        Ok(Watch {
            leader,
            log,
            limits,
            grace,
            since: now,
            log_start: log_size,
            log_size,
            log_grew: now,
            suspended: None,
            reason: None,
            kill_at: None,
            connected: true,
        })
    }

    /// Acts on passed bounds; gives the time until the next look, `None` for no bound.
    fn check_bounds(&mut self, now: Instant) -> io::Result<Option<Duration>> {
        if self.suspended.is_some() {
            return Ok(None);
        }
        if let Some((_, why)) = self.kill_at.take_if(|(at, _)| *at <= now) {
            self.reason.get_or_insert(Ended::Limit(why));
            tree::signal_all(self.leader, Signal::KILL);
        }
        if self.reason.is_none() {
            self.check_limits(now)?;
        }
        Ok(self.next_look(now))
    }

    fn check_limits(&mut self, now: Instant) -> io::Result<()> {
        let limits = self.limits;
        if limits.silent.is_some() || limits.log_bytes.is_some() {
            let size = self.log.metadata()?.len();
            if size != self.log_size {
                (self.log_size, self.log_grew) = (size, now);
            }
        }
        let written = self.log_size.saturating_sub(self.log_start);
        if let Some(limit) = limits.log_bytes.filter(|&limit| written > limit) {
            // At once: a grace would let it fill the disk.
            self.reason = Some(Ended::Limit(format!("its log grew beyond {limit} bytes")));
            tree::signal_all(self.leader, Signal::KILL);
        } else if let Some(limit) = limits.wall.filter(|&limit| now - self.since >= limit) {
            self.end_orderly(
                Ended::Limit(format!("it ran longer than {}", humantime::format_duration(limit))),
                now,
            );
        } else if let Some(limit) = limits.silent.filter(|&limit| now - self.log_grew >= limit) {
            self.end_orderly(
                Ended::Limit(format!("it wrote nothing for {}", humantime::format_duration(limit))),
                now,
            );
        }
        Ok(())
    }

    fn next_look(&self, now: Instant) -> Option<Duration> {
        let kill = self.kill_at.as_ref().map(|(at, _)| at.saturating_duration_since(now));
        if self.reason.is_some() {
            return kill;
        }
        let log = (self.limits.silent.is_some() || self.limits.log_bytes.is_some()).then_some(LOG_GLANCE);
        let wall = self.limits.wall.map(|limit| limit.saturating_sub(now - self.since));
        [kill, log, wall].into_iter().flatten().min()
    }

    /// Waits for an order, the end of a child, or the next look at the bounds.
    fn wait_and_obey(
        &mut self,
        orders: &mut Lines<File>,
        children: &OwnedFd,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.connected {
            let [order, child] = wait_readable([orders.as_fd(), children.as_fd()], timeout)?;
            if order {
                orders.fill()?;
            }
            if child {
                forget(children);
            }
        } else if wait_readable([children.as_fd()], timeout)? == [true] {
            forget(children);
        }
        while let Some(line) = orders.next() {
            self.obey(&serde_json::from_slice(&line)?, Instant::now());
        }
        if self.connected && orders.ended() {
            self.connected = false;
            self.obey(&Order::Kill, Instant::now());
        }
        Ok(())
    }

    fn obey(&mut self, order: &Order, now: Instant) {
        match *order {
            // A second start is a bug of bm that does no harm.
            Order::Start(_) => {}
            Order::Interrupt => self.end_orderly(Ended::Interrupted, now),
            Order::Kill => {
                self.reason.get_or_insert(Ended::Interrupted);
                tree::signal_all(self.leader, Signal::KILL);
            }
            Order::Suspend if self.suspended.is_none() => {
                self.suspended = Some(now);
                tree::signal_all(self.leader, Signal::STOP);
            }
            Order::Suspend => {}
            Order::Resume => self.resume(now),
            Order::Quit { signal, grace } => self.quit(signal, grace, now),
        }
    }

    fn end_orderly(&mut self, reason: Ended, now: Instant) {
        self.resume(now);
        self.reason.get_or_insert(reason);
        self.kill_after(self.grace, "it did not end when asked to".to_owned(), now);
        let _ = rustix::process::kill_process_group(self.leader, Signal::TERM);
    }

    fn quit(&mut self, signal: i32, grace: Duration, now: Instant) {
        self.resume(now);
        // The bounds of a server end with the wish to stop it; from now on the grace is the bound.
        self.limits = Limits::default();
        let shown = humantime::format_duration(grace);
        self.kill_after(grace, format!("it still ran {shown} after signal {signal}"), now);
        // SAFETY: a plain system call; the leader has not been reaped, so its id is its own.
        unsafe {
            libc::kill(self.leader.as_raw_nonzero().get(), signal);
        }
    }

    /// Sets the time of the kill, unless an earlier one is set.
    fn kill_after(&mut self, grace: Duration, why: String, now: Instant) {
        let at = now.checked_add(grace);
        if let Some(at) = at.filter(|at| self.kill_at.as_ref().is_none_or(|(earlier, _)| at < earlier)) {
            self.kill_at = Some((at, why));
        }
    }

    fn resume(&mut self, now: Instant) {
        let Some(suspended) = self.suspended.take() else { return };
        let lost = now - suspended;
        self.since += lost;
        self.log_grew += lost;
        if let Some((at, _)) = &mut self.kill_at {
            *at += lost;
        }
        tree::signal_all(self.leader, Signal::CONT);
    }

    /// How it ended, and the last word on the log.
    fn verdict(&mut self, status: WaitStatus) -> io::Result<Ended> {
        if let Some(limit) = self.limits.log_bytes {
            let bound = self.log_start.saturating_add(limit);
            if self.log.metadata()?.len() > bound {
                self.log.set_len(bound)?;
                self.reason
                    .get_or_insert(Ended::Limit(format!("its log grew beyond {limit} bytes")));
            }
        }
        Ok(self.reason.take().unwrap_or_else(|| match status.exit_status() {
            Some(code) => Ended::Exited(code),
            None => Ended::Signaled(status.terminating_signal().unwrap_or(libc::SIGKILL)),
        }))
    }
}

/// Clears the notice that a child ended; who it was is asked elsewhere.
fn forget(children: &OwnedFd) {
    // One notice stands for any number of children.
    let mut notice = [0u8; size_of::<libc::signalfd_siginfo>()];
    let _ = rustix::io::read(children, &mut notice);
}

/// CPU seconds and largest resident size (KiB) of everything reaped.
fn cost() -> (f64, u64) {
    // SAFETY: rusage is plain data, and getrusage only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    #[expect(clippy::cast_precision_loss, reason = "seconds of CPU time are far below 2^52")]
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        u64::try_from(usage.ru_maxrss).unwrap_or(0),
    )
}

/// Makes the unit test binary of this crate able to be its own supervisor, as bm is: a function that the loader
/// calls before `main`, with the arguments.
#[cfg(test)]
mod reexec {
    use std::ffi::{CStr, c_char, c_int};

    extern "C" fn enter(argc: c_int, argv: *const *const c_char) {
        // SAFETY: the loader passes the arguments of the program; `argc` says how many there are.
        let is_supervisor = argc > 1 && unsafe { CStr::from_ptr(*argv.add(1)) }.to_bytes() == b"__supervise";
        if is_supervisor {
            let code = super::supervise();
            std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
        }
    }

    #[used]
    #[unsafe(link_section = ".init_array")]
    static ENTER: extern "C" fn(c_int, *const *const c_char) = enter;
}
