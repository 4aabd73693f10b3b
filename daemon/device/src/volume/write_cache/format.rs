//! Bytes of the cache area: header copies, bitmap, ring of entries. docs/FORMAT.md describes the
//! same.
//!
//! Invariants: each header copy and each entry header is inside one sector. An entry is valid only
//! at its position, with its number and with the salt of its area.

use super::view::CutCounts;
use ftld_kit::convert::{to_u64, to_usize};
use nand_model::crc32c_append;

/// Bytes before the bitmap: two copies of the header.
pub(super) const HEAD_BYTES: u64 = 4096;
/// Alignment of entries; the bitmap has one bit for each of these blocks of the ring.
pub(super) const RING_BLOCK: u64 = 512;
const SECTOR: usize = 512;
/// Distance of the two header copies.
const COPY_STEP: u64 = 2048;
const MAGIC: &[u8; 8] = b"FTLDWCA\0";
const ENTRY_MAGIC: &[u8; 8] = b"FTLDWCE\0";
const VERSION: u32 = 1;
const CHECK_AT: usize = SECTOR - 4;
/// Longest boot id.
const BOOT_ID_MAX: usize = 64;

/// Returns the bytes of the bitmap of a ring.
pub(super) fn bitmap_bytes(ring_bytes: u64) -> u64 {
    ring_bytes.div_ceil(RING_BLOCK * 8).next_multiple_of(4096)
}

/// Use of the entries at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All entries, if the host has not crashed since.
    Live,
    /// The entries in the bitmap, which the cache wrote right before a power cut.
    Cut,
    /// All entries: a clean shutdown could not write them back.
    Closed,
}

/// Header of the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) state: State,
    pub(super) generation: u64,
    pub(super) uuid: [u8; 16],
    pub(super) ring_bytes: u64,
    pub(super) unit: u32,
    pub(super) salt: u64,
    /// Position and number of the first entry to replay.
    pub(super) tail: u64,
    pub(super) tail_seq: u64,
    pub(super) boot_id: String,
    /// Outcome of the power cut.
    pub(super) cut: CutCounts,
}

/// Reads the number at `at`.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Head {
    /// Returns the place of this copy.
    pub(super) fn copy_at(&self) -> u64 {
        (self.generation % 2) * COPY_STEP
    }

    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(MAGIC);
        put(&VERSION.to_le_bytes());
        let state: u32 = match self.state {
            State::Live => 1,
            State::Cut => 2,
            State::Closed => 3,
        };
        put(&state.to_le_bytes());
        put(&self.uuid);
        let CutCounts {
            new,
            torn,
            old,
            lost,
        } = self.cut;
        for number in [
            self.generation,
            self.ring_bytes,
            u64::from(self.unit),
            self.salt,
            self.tail,
            self.tail_seq,
            new,
            torn,
            old,
            lost,
        ] {
            put(&number.to_le_bytes());
        }
        let id = self.boot_id.as_bytes();
        let length = id.len().min(BOOT_ID_MAX);
        put(&to_u64(length).to_le_bytes());
        put(&id[..length]);
        let check = crc32c_append(0, &out[..CHECK_AT]);
        out[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        let whole = bytes[..8] == *MAGIC
            && u32_at(bytes, 8) == VERSION
            && u32_at(bytes, CHECK_AT) == crc32c_append(0, &bytes[..CHECK_AT]);
        let state = match u32_at(bytes, 12) {
            1 => State::Live,
            2 => State::Cut,
            3 => State::Closed,
            _ => return None,
        };
        let number = |place: usize| u64_at(bytes, 32 + 8 * place);
        let length = usize::try_from(number(10)).ok()?;
        let boot_id = bytes.get(120..120 + length.min(BOOT_ID_MAX))?;
        whole.then(|| Head {
            state,
            generation: number(0),
            uuid: bytes[16..32].try_into().expect("sixteen bytes"),
            ring_bytes: number(1),
            unit: u32::try_from(number(2)).unwrap_or(0),
            salt: number(3),
            tail: number(4),
            tail_seq: number(5),
            boot_id: String::from_utf8_lossy(boot_id).into_owned(),
            cut: CutCounts {
                new: number(6),
                torn: number(7),
                old: number(8),
                lost: number(9),
            },
        })
    }

    /// Returns the newest of the two copies in the first bytes of an area.
    pub(super) fn newest(bytes: &[u8]) -> Option<Head> {
        let copies = [0, COPY_STEP].map(|at| &bytes[usize::try_from(at).unwrap_or(0)..][..SECTOR]);
        let heads = copies.into_iter().filter_map(Head::decode);
        heads.max_by_key(|head| head.generation)
    }
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data of its units.
    Write,
    /// Its units read as zeros; the scheme has trimmed them.
    Trim,
}

/// Header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHead {
    /// Position in the ring: grows forever, the place is its remainder.
    pub(super) at: u64,
    pub(super) seq: u64,
    pub(super) kind: Kind,
    pub(super) first: u64,
    pub(super) units: u64,
}

impl EntryHead {
    /// Returns the bytes of the data behind the header.
    pub(super) fn data_bytes(&self, unit: u32) -> u64 {
        match self.kind {
            Kind::Write => self.units.saturating_mul(u64::from(unit)),
            Kind::Trim => 0,
        }
    }

    pub(super) fn bytes(&self, unit: u32) -> u64 {
        self.data_bytes(unit).saturating_add(RING_BLOCK)
    }

    /// Writes the header into the first sector of an entry whose data is there.
    pub(super) fn encode(&self, salt: u64, entry: &mut [u8]) {
        let (head, data) = entry.split_at_mut(SECTOR);
        head.fill(0);
        head[..8].copy_from_slice(ENTRY_MAGIC);
        let kind = match self.kind {
            Kind::Write => 1,
            Kind::Trim => 2,
        };
        for (place, number) in [self.at, self.seq, kind, self.first, self.units]
            .into_iter()
            .enumerate()
        {
            head[8 + 8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let check = entry_check(salt, &head[..CHECK_AT], data);
        head[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads the header of an entry; [`EntryHead::checks`] has to follow.
    pub(super) fn decode(head: &[u8]) -> Option<EntryHead> {
        let number = |place: usize| u64_at(head, 8 + 8 * place);
        let kind = match number(2) {
            1 => Kind::Write,
            2 => Kind::Trim,
            _ => return None,
        };
        (head[..8] == *ENTRY_MAGIC).then(|| EntryHead {
            at: number(0),
            seq: number(1),
            kind,
            first: number(3),
            units: number(4),
        })
    }

    /// Returns whether header and data are those that were written.
    pub(super) fn checks(salt: u64, entry: &[u8]) -> bool {
        let (head, data) = entry.split_at(SECTOR);
        u32_at(head, CHECK_AT) == entry_check(salt, &head[..CHECK_AT], data)
    }
}

fn entry_check(salt: u64, head: &[u8], data: &[u8]) -> u32 {
    let check = crc32c_append(0, &salt.to_le_bytes());
    crc32c_append(crc32c_append(check, head), data)
}

/// Blocks of a ring that survived a power cut.
#[derive(Clone, Debug)]
pub(super) struct Bitmap(pub(super) Vec<u8>);

impl Bitmap {
    pub(super) fn new(ring_bytes: u64) -> Bitmap {
        Bitmap(vec![0; to_usize(bitmap_bytes(ring_bytes))])
    }

    pub(super) fn set(&mut self, block: u64) {
        self.0[to_usize(block / 8)] |= 1 << (block % 8);
    }

    pub(super) fn has(&self, block: u64) -> bool {
        self.0
            .get(to_usize(block / 8))
            .is_some_and(|byte| byte & (1 << (block % 8)) != 0)
    }
}
