//! The NBD protocol on the wire, as far as it is supported: its numbers, decoded requests, encoded
//! replies.
//!
//! Pure functions over slices. Decoding checks only the magic number; [`super::engine`] checks the
//! rest of a request. All integers are big-endian. Lengths and offsets are in bytes.

mod errno;
mod numbers;
mod replies;
mod requests;

pub(crate) use errno::Errno;
pub use numbers::*;
pub use replies::{
    Chunk, SIMPLE_REPLY_LEN, chunk_len, encode_chunk, push_option_reply, simple_reply,
};
pub use requests::{BadMagic, Request, decode_request, request_len};

/// Framing of replies on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Simple replies only.
    Simple,
    /// Structured replies to READ and BLOCK_STATUS and for errors, simple ones for the rest.
    Structured,
    /// 64-bit headers both ways, every reply structured.
    Extended,
}

/// Returns the big-endian integer at an offset that the caller checked.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the big-endian integer at an offset that the caller checked.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the big-endian integer at an offset that the caller checked.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
