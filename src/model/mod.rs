//! Domain types. No I/O, no clock, no environment.

pub mod build;
pub mod caching;
pub mod event;
pub mod manifest;
pub mod name;
pub mod recipe;
pub mod step;
pub mod version;
