//! Domain types. No I/O, no clock, no environment.

pub mod manifest;
pub mod name;
pub mod recipe;
pub mod version;
