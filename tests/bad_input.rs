//! Bad input of every kind, end to end through the real binary.
#![allow(clippy::unwrap_used)]

#[path = "support/bad.rs"]
mod bad;
use bad::*;

#[test]
fn a_good_build_works() {
    let space = Space::new();
    let ran = space.bm(&["build", "fk12_o3"]);
    eprintln!("{}", ran.err);
    ran.works();
    space.tidy(&["fk12_o3"], 0, 0);
}
