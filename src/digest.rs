//! Hashes in hex, and the one form of a JSON value that is hashed.
//!
//! Opens nothing: whoever has a file hands its reader over.

use std::io::{self, Read};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Lower-case hex.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    let bytes = bytes.as_ref().iter();
    bytes.flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
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
    let mut out = Vec::new();
    write_canonical(value, &mut out);
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    fn plain(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
        serde_json::to_writer(out, value).expect("text and numbers always become JSON");
    }
    match value {
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_canonical(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push(b'{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                plain(key.as_str(), out);
                out.push(b':');
                write_canonical(value, out);
            }
            out.push(b'}');
        }
        scalar => plain(scalar, out),
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
