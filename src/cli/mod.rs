//! The command line: definitions in [`args`], one thin file per group of commands.

pub mod args;
