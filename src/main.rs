//! The `bm` command: as itself, as the supervisor of a child, or as a compiler's launcher.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: a supervisor has one thread, no command line and no terminal.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|arg| arg == bm::process::SUPERVISE)
    {
        return bm::process::supervise();
    }
    // Started under a compiler's name: records the call and becomes the compiler.
    bm::audit::launcher::run_if_launched();
    bm::cli::main()
}
