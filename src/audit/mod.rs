//! Proof that a build is what its name says: evidence per compiled unit and per link.
//!
//! `launcher` records every call of the compiler while the build runs, `neutral` makes its words the same in every
//! work directory, `cached` says which may come from a compiler cache; `elf` reads what was
//! installed; `collect` joins the two; `judge` holds them against the claims, `prefix` against what
//! every prefix must be; `libraries` finds what the programs need from the system. What the build
//! says about itself (`pg_config`) counts for nothing. Nothing here changes a prefix.

pub mod cached;
pub mod collect;
pub mod elf;
pub mod flags;
pub mod judge;
pub mod launcher;
pub mod libraries;
pub mod neutral;
pub mod prefix;
pub mod record;
mod room;

pub use collect::{Proof, Scope, collect};
pub use judge::{Question, judge};
pub use libraries::libraries;
pub use prefix::Place;
