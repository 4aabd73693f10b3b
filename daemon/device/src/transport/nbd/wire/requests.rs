//! Decodes request headers.

use super::{EXTENDED_REQUEST_MAGIC, Mode, REQUEST_MAGIC, u16_at, u32_at, u64_at};

/// A request header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub(crate) flags: u16,
    /// Command.
    pub(crate) command: u16,
    /// The client's identifier of the request, echoed.
    pub(crate) cookie: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes affected, or bytes of payload.
    pub(crate) length: u64,
}

/// A message did not start with its magic number: the stream has lost its framing and can no longer
/// be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMagic;

/// Returns the length of a request header in bytes.
pub fn request_len(mode: Mode) -> usize {
    if mode == Mode::Extended { 32 } else { 28 }
}

/// Decodes a request header of [`request_len`] bytes; returns `None` if there are fewer. A wrong
/// magic number is detected from four bytes on.
///
/// # Errors
/// The header does not begin with the magic number of its mode.
pub fn decode_request(bytes: &[u8], mode: Mode) -> Result<Option<Request>, BadMagic> {
    let magic = if mode == Mode::Extended {
        EXTENDED_REQUEST_MAGIC
    } else {
        REQUEST_MAGIC
    };
    if bytes.len() >= 4 && u32_at(bytes, 0) != magic {
        return Err(BadMagic);
    }
    if bytes.len() < request_len(mode) {
        return Ok(None);
    }
    Ok(Some(Request {
        flags: u16_at(bytes, 4),
        command: u16_at(bytes, 6),
        cookie: u64_at(bytes, 8),
        offset: u64_at(bytes, 16),
        length: if mode == Mode::Extended {
            u64_at(bytes, 24)
        } else {
            u32_at(bytes, 24).into()
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMPACT: [u8; 28] = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0x10, 0, 0,
        0, 2, 0,
    ];

    #[test]
    fn compact_request_byte_by_byte() {
        let expected = Request {
            flags: 1,
            command: 1,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1_0000_1000,
            length: 512,
        };
        assert_eq!(decode_request(&COMPACT, Mode::Simple), Ok(Some(expected)));
        assert_eq!(decode_request(&COMPACT[..27], Mode::Structured), Ok(None));
        assert_eq!(decode_request(&COMPACT, Mode::Extended), Err(BadMagic));
    }

    #[test]
    fn extended_request_byte_by_byte() {
        let mut bytes = vec![0x21, 0xe4, 0x1c, 0x71];
        bytes.extend_from_slice(&COMPACT[4..24]);
        bytes.extend_from_slice(&[0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(
            decode_request(&bytes, Mode::Extended)
                .unwrap()
                .unwrap()
                .length,
            2 << 32
        );
        assert_eq!(decode_request(&bytes[..31], Mode::Extended), Ok(None));
    }

    #[test]
    fn bad_magic_needs_only_four_bytes() {
        assert_eq!(decode_request(b"GET ", Mode::Simple), Err(BadMagic));
        assert_eq!(decode_request(b"GET", Mode::Simple), Ok(None));
    }

    proptest! {
        #[test]
        fn requests_round_trip(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
            let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
            bytes.extend(flags.to_be_bytes());
            bytes.extend(command.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            bytes.extend(offset.to_be_bytes());
            bytes.extend(length.to_be_bytes());
            let expected = Request { flags, command, cookie, offset, length: length.into() };
            prop_assert_eq!(decode_request(&bytes, Mode::Simple), Ok(Some(expected)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for mode in [Mode::Simple, Mode::Structured, Mode::Extended] {
                let _ = decode_request(&bytes, mode);
            }
        }
    }
}
