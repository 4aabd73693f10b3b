//! Magic numbers, options, commands, flags and types of the protocol.

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
