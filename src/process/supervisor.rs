//! Inside the supervisor process: runs one program, keeps its bounds, obeys bm, leaves nothing behind.
//!
//! One thread (the program's parent-death signal follows the thread that started it). Orders come on stdin,
//! reports go to stdout, stderr is the step's log. Knows nothing of what the step is for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use rustix::process::Pid;

use super::launch::{self, Setup};
use super::protocol::{Jobserver, Lines, Order, Report, Start, send};
use super::watch::Watch;
use super::{Command, Ended, Outcome, tree};

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
    // Before the program can write to it.
    let log_start = log.metadata()?.len();
    let began = Instant::now();
    let leader = match launch(&start, &log) {
        Ok(leader) => leader,
        Err(why) => return report_not_started(why),
    };
    // If bm is gone its end of the pipe is closed, which the loop sees. Writing to it is no failure then.
    let _ = report(&Report::Started {
        pid: leader.as_raw_nonzero().get(),
    });

    let mut watch = Watch::new(leader, log, log_start, &start);
    while !tree::is_dead(leader)? {
        let step = watch.check_bounds(Instant::now())?;
        watch.wait_and_obey(&mut orders, children, step)?;
        tree::reap_adopted(leader)?;
    }
    let wall = began.elapsed().as_secs_f64();
    let (status, strays) = tree::sweep(leader)?;
    let ended = watch.verdict(status)?;
    let (cpu, max_rss_kib) = cost(libc::RUSAGE_CHILDREN);
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
    let mut child = std::process::Command::new(launch::as_called(name, &program));
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

/// CPU seconds of this process itself so far, its children not included.
pub fn own_cpu() -> f64 {
    cost(libc::RUSAGE_SELF).0
}

/// CPU seconds and largest resident size (KiB) of this process, or of everything it has reaped.
fn cost(of: libc::c_int) -> (f64, u64) {
    // SAFETY: rusage is plain data, and getrusage only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &raw mut usage);
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
