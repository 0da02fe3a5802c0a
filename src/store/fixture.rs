//! A sample manifest, shared by the unit tests here and by tests/store.rs, which includes this file:
//! it may use no path of the crate.

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
