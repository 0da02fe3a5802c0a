//! Proof that a build is what its name says: evidence per compiled unit and per link.
//!
//! `launcher` records every call of the compiler while the build runs; `elf` reads what was
//! installed; `collect` joins the two; `judge` holds them against the claims; `libraries` finds
//! what the programs need from the system. What the build says about itself (`pg_config`) counts
//! for nothing. Nothing here changes a prefix.

pub mod elf;
pub mod flags;
pub mod launcher;
pub mod record;
