//! The view for programs: one event a line, as JSON on stdout.
//!
//! Owns the number of the format and its first line. What the events are is the model's.

use serde_json::json;

use crate::model::event::Event;

use super::{Shell, View};

/// Raised when a reader of the events would have to change. New events and new fields do not raise it.
pub const SCHEMA: u32 = 1;

/// Writes every event as a line.
#[derive(Debug)]
pub struct Json<'a>(&'a Shell);

impl<'a> Json<'a> {
    /// Writes the first line, which says what the others are.
    pub fn begin(shell: &'a Shell) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        shell.result(json!({"schema": SCHEMA, "event": "stream", "bm_version": version}).to_string());
        Json(shell)
    }
}

impl View for Json<'_> {
    fn on(&self, event: &Event) {
        let line = serde_json::to_string(event).expect("events are plain data");
        self.0.result(line);
    }
}
