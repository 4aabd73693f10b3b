//! Fuzz targets as plain functions: libFuzzer drives them from `tests/fuzz/`,
//! `tests/tests/daemon/fuzz_corpus.rs` runs their committed inputs with every `cargo test`.
//!
//! A body returns for all inputs. It panics when a guarantee is violated: no panic, no endless
//! loop, bounded memory, and the properties in its module header.

pub mod codec;
pub mod config;
pub mod flash;
pub mod image;
pub mod nbd;
pub mod recording;

/// Fuzz target, with the name of its binary and of its corpus folder.
pub struct Target {
    /// Name.
    pub name: &'static str,
    /// Function that runs one input.
    pub body: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "nbd",
        body: nbd::run,
    },
    Target {
        name: "image",
        body: image::run,
    },
    Target {
        name: "flash",
        body: flash::run,
    },
    Target {
        name: "codec",
        body: codec::run,
    },
    Target {
        name: "config",
        body: config::run,
    },
    Target {
        name: "recording",
        body: recording::run,
    },
];

/// Reader of an input, field by field; returns zeros at its end.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count.min(self.0.len()));
        self.0 = tail;
        head
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
