//! The `bm` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: a supervisor has one thread, no command line and no terminal.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|arg| arg == bm::process::SUPERVISE)
    {
        return bm::process::supervise();
    }
    ExitCode::SUCCESS
}
