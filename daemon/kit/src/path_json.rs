//! Paths in JSON, which has Unicode texts alone: readable under their key, exact beside it.

use serde::{Deserialize, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The path of an image: readable under `image`. One that is no UTF-8 is exact under `image_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePath {
    /// The path; bytes that are no UTF-8 are replaced.
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image_bytes: Option<Vec<u8>>,
}

impl ImagePath {
    /// Returns both forms of a path.
    pub fn new(path: &Path) -> ImagePath {
        let bytes = || path.as_os_str().as_bytes().to_vec();
        ImagePath {
            image: shown(path),
            image_bytes: path.to_str().is_none().then(bytes),
        }
    }

    /// Returns the exact path.
    pub fn path(&self) -> PathBuf {
        match &self.image_bytes {
            Some(bytes) => OsString::from_vec(bytes.clone()).into(),
            None => PathBuf::from(&self.image),
        }
    }
}

/// Returns a path as text; bytes that are no UTF-8 are replaced.
pub fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Serializes a path as [`shown`].
///
/// # Errors
/// The serializer fails.
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

    #[test]
    fn a_path_of_any_bytes_is_readable_and_comes_back_exactly() {
        for bytes in [&b"/a/b.ftld"[..], b"/a/\xFFb", b"/\xC3\xA9", b"/a\nb"] {
            let path = Path::new(OsStr::from_bytes(bytes));
            let text = serde_json::to_string(&ImagePath::new(path)).unwrap();
            let read: ImagePath = serde_json::from_str(&text).unwrap();
            assert_eq!(read.path(), path, "{text}");
            assert_eq!(
                !text.contains("image_bytes"),
                path.to_str().is_some(),
                "{text}"
            );
        }
        for wrong in [r#"{"image": "/x", "image_bytes": [256]}"#, "{}"] {
            assert!(serde_json::from_str::<ImagePath>(wrong).is_err(), "{wrong}");
        }
    }
}
