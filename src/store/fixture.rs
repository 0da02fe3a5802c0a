//! A sample manifest and an idle process, shared by the unit tests here and by tests/store.rs, which includes this file:
//! it may use no path of the crate.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

/// A process that does nothing: `cat` between two pipes. It ends with its test, however that ends.
pub struct Idle(pub Child);

impl Idle {
    /// Starts `program`, a `cat`. Returns when it has answered: just after its start a process does not
    /// show its environment yet.
    pub fn start(program: &std::path::Path, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(program);
        change(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut child = command.spawn().expect("a copy of `cat` starts");
        let input = child.stdin.as_mut().expect("its input is a pipe");
        input.write_all(b"\n").expect("it listens");
        let output = child.stdout.as_mut().expect("its output is a pipe");
        BufReader::new(output)
            .read_line(&mut String::new())
            .expect("it answers");
        Idle(child)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // It may be dead already, by the test's doing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The JSON of a manifest for the build at `prefix`; the caller reads it into its `Manifest`.
pub fn manifest(prefix: &std::path::Path, identity: &str, files_sha256: &str, serial: u64) -> serde_json::Value {
    let text = |path: &std::path::Path| path.to_str().expect("test paths are text").to_owned();
    let nothing = serde_json::json!({});
    serde_json::json!({
        "schema": 1,
        "name": prefix.file_name().and_then(|name| name.to_str()),
        "aliases": [], "product": "postgres", "version": "15.4", "version_num": 150_004, "series": "15",
        "variant": "o3", "prefix": text(prefix), "bin": text(&prefix.join("bin")), "lib": text(&prefix.join("lib")),
        "toolchain": { "name": "gcc12", "tools": {}, "native": "", "defaults": {} },
        "identity": identity, "inputs": { "serial": serial }, "unresolved": [], "sources": [], "submodules": [],
        "patches": [], "steps": [], "flags": {}, "dependencies": {}, "tools": {}, "libraries": [],
        "host": { "os": "", "os_id": "", "kernel": "", "libc": "", "cpu": "", "cpu_flags": [] },
        "profile": null,
        "evidence": { "units": [], "links": [], "sample_compile": [] },
        "audit": { "findings": [], "files": 0, "units": 0, "links": 0, "exempt": [] },
        "smoke": { "did": [], "server": {}, "mapped": [], "rows": 0, "tps": 1.5, "uid": 0, "warnings": [] },
        "driver": nothing, "times": [], "files": 1, "files_sha256": files_sha256, "size": 1,
        "built_at": format!("2024-01-01T00:00:{serial:02}Z"), "bm_version": "0.1.0",
    })
}
