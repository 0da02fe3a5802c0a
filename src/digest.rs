//! Hashes in hex, and the one form of a JSON value that is hashed.
//!
//! Opens nothing: whoever has a file hands its reader over.

use std::io::{self, Read};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Lower-case hex.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// sha256 of bytes, in hex.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(bytes.as_ref()))
}

/// sha256 of all that a reader gives, in hex.
///
/// # Errors
/// Those of the reader.
pub fn sha256_of(reader: &mut impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hex(hash.finalize())),
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// JSON with sorted keys and no white space: equal values give equal bytes.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    let text = |s: &str| Value::from(s).to_string();
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                out.push(if i == 0 { '[' } else { ',' });
                write_canonical(item, out);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            for (i, key) in keys.iter().enumerate() {
                out.push(if i == 0 { '{' } else { ',' });
                out.push_str(&text(key));
                out.push(':');
                write_canonical(&map[key.as_str()], out);
            }
            out.push_str(if keys.is_empty() { "{}" } else { "}" });
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_text_does_not_depend_on_key_order() {
        let a = json!({"b": [1, {"y": null, "x": "q\"\n"}], "a": {}, "é": []});
        let b = json!({"é": [], "a": {}, "b": [1, {"x": "q\"\n", "y": null}]});
        assert_eq!(canonical(&a), canonical(&b));
        assert_eq!(canonical(&a), r#"{"a":{},"b":[1,{"x":"q\"\n","y":null}],"é":[]}"#);
        assert_eq!(serde_json::from_str::<Value>(&canonical(&a)).ok(), Some(a));
    }

    #[test]
    fn hashes_are_lower_case_hex() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256("abc"), abc);
        assert_eq!(sha256_of(&mut "abc".as_bytes()).ok().as_deref(), Some(abc));
    }
}
