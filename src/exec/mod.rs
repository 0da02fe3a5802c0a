//! Running plans: decisions, the job budget, one build through its steps.

pub mod decide;
pub mod failure;
pub mod jobs;
