//! The `bm` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Under a compiler's name this process becomes that compiler and does not come back.
    bm::audit::launcher::run_if_launched();
    // Before all else: a supervisor has one thread, no command line and no terminal.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|arg| arg == bm::process::SUPERVISE)
    {
        return bm::process::supervise();
    }
    ExitCode::SUCCESS
}
