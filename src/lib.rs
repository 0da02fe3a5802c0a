//! bm builds many versions of database servers, with exact flags, in parallel, into named prefixes
//! that can prove what they are. ARCHITECTURE.md has the map.

pub mod audit;
pub mod cli;
pub mod context;
pub mod diff;
pub mod digest;
pub mod error;
pub mod exec;
pub mod layout;
pub mod library;
pub mod matrix;
pub mod model;
pub mod plan;
pub mod probe;
pub mod process;
#[cfg(test)]
mod sample;
pub mod schema;
pub mod select;
pub mod server;
pub mod smoke;
pub mod source;
pub mod store;
pub mod text;
pub mod ui;
pub mod verified;
