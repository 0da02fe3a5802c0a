//! Carrying out a plan: steps, their order, and the budget they share.

pub mod jobs;
