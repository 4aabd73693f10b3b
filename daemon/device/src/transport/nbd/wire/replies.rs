//! Encodes replies: simple ones, the chunks of structured ones, and those to options.

use super::{
    EXTENDED_REPLY_MAGIC, Mode, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    chunk,
};

/// Bytes of a simple reply.
pub const SIMPLE_REPLY_LEN: usize = 16;

/// Encodes a simple reply; 0 is success.
pub fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_LEN] {
    let mut bytes = [0; SIMPLE_REPLY_LEN];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Header of a reply chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Whether the chunk ends the reply.
    pub(crate) done: bool,
    /// A constant of [`chunk`].
    pub(crate) kind: u16,
    /// Cookie of the request.
    pub(crate) cookie: u64,
    /// Offset of the request (sent in extended mode only).
    pub(crate) offset: u64,
    /// Bytes of payload that follow.
    pub(crate) length: u32,
}

/// Returns the length of a chunk header in bytes.
pub fn chunk_len(mode: Mode) -> usize {
    if mode == Mode::Extended { 32 } else { 20 }
}

/// Encodes a chunk header into the first [`chunk_len`] bytes of `bytes`.
pub fn encode_chunk(bytes: &mut [u8], mode: Mode, head: Chunk) {
    assert_ne!(mode, Mode::Simple, "a simple reply has no chunks");
    assert!(
        bytes.len() >= chunk_len(mode),
        "{} bytes for the header of a chunk in mode {mode:?}",
        bytes.len()
    );
    assert!(
        head.done || head.kind != chunk::NONE,
        "a chunk without content that does not end its reply"
    );
    let extended = mode == Mode::Extended;
    let magic = if extended {
        EXTENDED_REPLY_MAGIC
    } else {
        STRUCTURED_REPLY_MAGIC
    };
    bytes[..4].copy_from_slice(&magic.to_be_bytes());
    bytes[4..6].copy_from_slice(&(if head.done { chunk::DONE } else { 0 }).to_be_bytes());
    bytes[6..8].copy_from_slice(&head.kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&head.cookie.to_be_bytes());
    if extended {
        bytes[16..24].copy_from_slice(&head.offset.to_be_bytes());
        bytes[24..32].copy_from_slice(&u64::from(head.length).to_be_bytes());
    } else {
        bytes[16..20].copy_from_slice(&head.length.to_be_bytes());
    }
}

/// Appends an option reply.
pub fn push_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    assert!(
        kind != super::reply::ACK || length == 0,
        "an acknowledgement of option {option} with {length} bytes"
    );
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&ftld_kit::convert::to_u32(length).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_headers_byte_by_byte() {
        let head = Chunk {
            done: true,
            kind: chunk::OFFSET_DATA,
            cookie: 3,
            offset: 9,
            length: 4,
        };
        let mut bytes = [0xff; 32];
        encode_chunk(&mut bytes, Mode::Structured, head);
        assert_eq!(
            bytes[..20],
            [
                0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4
            ]
        );
        encode_chunk(&mut bytes, Mode::Extended, head);
        assert_eq!(bytes[..8], [0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 1]);
        assert_eq!(
            bytes[16..],
            [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 4]
        );
    }
}
