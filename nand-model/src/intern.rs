//! Names and tables of devices that come from a file or an image. A profile is copied freely, so
//! they live as long as the process, like those of the built-in profiles; each is kept once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static BYTES: Mutex<BTreeSet<&'static [u8]>> = Mutex::new(BTreeSet::new());

/// Returns these bytes for the life of the process.
pub(crate) fn bytes(of: &[u8]) -> &'static [u8] {
    let mut kept = BYTES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(of) {
        return known;
    }
    let new: &'static [u8] = Box::leak(of.into());
    kept.insert(new);
    new
}

/// Returns this text for the life of the process.
pub(crate) fn text(of: &str) -> &'static str {
    std::str::from_utf8(bytes(of.as_bytes())).expect("the bytes of a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once() {
        let first = text(&String::from("a device"));
        let second = text(&String::from("a device"));
        assert!(std::ptr::eq(first, second));
        assert_eq!(text(""), "");
    }
}
