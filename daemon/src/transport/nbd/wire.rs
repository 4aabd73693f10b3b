//! Constants, request decoding and reply encoding of the NBD protocol, as far as it is supported.
//!
//! Pure functions over slices. Decoding checks only the magic number; [`super::engine`] checks the
//! rest of a request. All integers are big-endian. Lengths and offsets are in bytes.

/// `NBDMAGIC`, the first eight bytes of a greeting.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: newstyle, and the start of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of every option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of an extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Start of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags of both sides.
pub mod handshake {
    /// Fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zero bytes after an `EXPORT_NAME` answer.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export, the old way: it has no error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Upgrade to TLS.
    pub const STARTTLS: u32 = 5;
    /// Get information about an export.
    pub const INFO: u32 = 6;
    /// Choose an export and start transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of option replies.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One item of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    /// Not allowed now.
    pub const ERR_POLICY: u32 = 0x8000_0002;
    /// Malformed or out of sequence.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// TLS must come first.
    pub const ERR_TLS_REQD: u32 = 0x8000_0005;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// Exceeds a limit of the server.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
    /// Extended headers were chosen, which excludes structured replies.
    pub const ERR_EXT_HEADER_REQD: u32 = 0x8000_000a;
}

/// Items of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Human-readable description.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum request sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is honoured.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF is honoured.
    pub const SEND_DF: u16 = 1 << 7;
    /// A FLUSH on one connection covers writes acknowledged on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is served.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO is honoured.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// BLOCK_STATUS takes a list of contexts as payload.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Commands.
pub mod command {
    /// Read bytes.
    pub const READ: u16 = 0;
    /// Write bytes.
    pub const WRITE: u16 = 1;
    /// Disconnect; never answered.
    pub const DISC: u16 = 2;
    /// Make acknowledged writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard data.
    pub const TRIM: u16 = 4;
    /// Prefetch.
    pub const CACHE: u16 = 5;
    /// Write zeros without sending them.
    pub const WRITE_ZEROES: u16 = 6;
    /// Get the allocation state.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Durable before the answer.
    pub const FUA: u16 = 1;
    /// Keep the space allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One chunk only.
    pub const DF: u16 = 1 << 2;
    /// One extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Only if faster than writing zeros.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of the payload that follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of reply chunks.
pub mod chunk {
    /// No content; ends the reply.
    pub const NONE: u16 = 0;
    /// Data of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros of a read.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// An error.
    pub const ERROR: u16 = 0x8001;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = 0x8002;
    /// Flag: last chunk of the reply.
    pub const DONE: u16 = 1;
}

/// State bits of `base:allocation`.
pub mod state {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeros.
    pub const ZERO: u32 = 2;
}

/// The only metadata context offered.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// Error numbers of the protocol, equal to those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Out of memory.
    NoMem = 12,
    /// Invalid argument.
    Inval = 22,
    /// No space left.
    NoSpace = 28,
    /// Does not fit one chunk.
    Overflow = 75,
    /// Not supported.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the closest protocol error; an I/O error if there is none.
    pub fn from_io(error: &std::io::Error) -> Errno {
        use std::io::ErrorKind as Kind;
        match (error.raw_os_error(), error.kind()) {
            (Some(22), _) => Errno::Inval,
            (Some(75), _) => Errno::Overflow,
            (Some(95), _) => Errno::NotSup,
            (Some(108), _) => Errno::Shutdown,
            (_, Kind::PermissionDenied | Kind::ReadOnlyFilesystem) => Errno::Perm,
            (_, Kind::OutOfMemory) => Errno::NoMem,
            (_, Kind::InvalidInput) => Errno::Inval,
            (_, Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge) => Errno::NoSpace,
            (_, Kind::Unsupported) => Errno::NotSup,
            _ => Errno::Io,
        }
    }
}

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

/// A request header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub flags: u16,
    /// Command.
    pub command: u16,
    /// The client's identifier of the request, echoed.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes affected, or bytes of payload.
    pub length: u64,
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
    pub done: bool,
    /// One of [`chunk`].
    pub kind: u16,
    /// Cookie of the request.
    pub cookie: u64,
    /// Offset of the request (sent in extended mode only).
    pub offset: u64,
    /// Bytes of payload that follow.
    pub length: u32,
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
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&crate::convert::to_u32(length).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Error, ErrorKind};

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

    #[test]
    fn errors_of_the_host_become_protocol_errors() {
        for (raw, errno) in [
            (1, 1),
            (5, 5),
            (12, 12),
            (13, 1),
            (22, 22),
            (28, 28),
            (30, 1),
            (95, 95),
            (108, 108),
            (2, 5),
        ] {
            assert_eq!(
                Errno::from_io(&Error::from_raw_os_error(raw)) as u32,
                errno,
                "errno {raw}"
            );
        }
        assert_eq!(
            Errno::from_io(&Error::new(ErrorKind::InvalidInput, "x")),
            Errno::Inval
        );
        assert_eq!(Errno::from_io(&Error::other("x")), Errno::Io);
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
