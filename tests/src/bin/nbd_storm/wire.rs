//! Encoding of requests.

// The protocol is implemented again on purpose: the client must not repeat a mistake of the server.
pub(super) const READ: u16 = 0;

pub(super) const WRITE: u16 = 1;

pub(super) const FLUSH: u16 = 3;

pub(super) const TRIM: u16 = 4;

pub(super) const CACHE: u16 = 5;

pub(super) const WRITE_ZEROES: u16 = 6;

pub(super) const BLOCK_STATUS: u16 = 7;

pub(super) fn option(out: &mut Vec<u8>, option: u32, announced: u32, data: &[u8]) {
    out.extend(b"IHAVEOPT");
    out.extend(option.to_be_bytes());
    out.extend(announced.to_be_bytes());
    out.extend(data);
}

pub(super) fn request(
    extended: bool,
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u64,
) -> Vec<u8> {
    let mut out = (if extended {
        0x21e4_1c71u32
    } else {
        0x2560_9513
    })
    .to_be_bytes()
    .to_vec();
    out.extend(flags.to_be_bytes());
    out.extend(command.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(offset.to_be_bytes());
    if extended {
        out.extend(length.to_be_bytes())
    } else {
        out.extend((length as u32).to_be_bytes())
    }
    out
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
