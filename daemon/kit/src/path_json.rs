//! Paths in JSON, which has Unicode texts alone: readable under their key, exact beside it.

use serde::{Serialize, Serializer};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns a path as text; bytes that are no UTF-8 are replaced.
pub fn shown(path: &Path) -> Value {
    path.to_string_lossy().into()
}

/// Puts a path under `key`. One that is no UTF-8 is exact under `KEY_bytes`.
pub fn put(value: &mut Value, key: &str, path: &Path) {
    value[key] = shown(path);
    if path.to_str().is_none() {
        value[format!("{key}_bytes")] = path.as_os_str().as_bytes().into();
    }
}

/// Returns the exact path under `key`.
pub fn get(value: &Value, key: &str) -> Option<PathBuf> {
    let byte = |value: &Value| u8::try_from(value.as_u64()?).ok();
    match value[format!("{key}_bytes")].as_array() {
        None => value[key].as_str().map(PathBuf::from),
        Some(bytes) => {
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            Some(std::ffi::OsString::from_vec(bytes?).into())
        }
    }
}

/// Serializes a path as [`shown`].
pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    let text = path.as_deref().map(Path::to_string_lossy);
    text.serialize(to)
}

/// Returns a word as the name of an instance, unless it is a path.
pub fn name_in(word: &OsStr) -> Option<&str> {
    word.to_str().filter(|word| !word.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_of_any_bytes_is_readable_and_comes_back_exactly() {
        for bytes in [&b"/a/b.ftld"[..], b"/a/\xFFb", b"/\xC3\xA9", b"/a\nb"] {
            let path = Path::new(OsStr::from_bytes(bytes));
            let mut value = json!({});
            put(&mut value, "image", path);
            let text = value.to_string();
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(get(&read, "image").as_deref(), Some(path), "{text}");
            let is_exact = value.get("image_bytes").is_none();
            assert_eq!(is_exact, path.to_str().is_some(), "{text}");
        }
        assert_eq!(
            get(&json!({"image": "/x", "image_bytes": [256]}), "image"),
            None
        );
        assert_eq!(get(&json!({}), "image"), None);
    }
}
