//! Fields of the header: numbers and texts in sequence, and the codes of a profile's enumerations.
//!
//! Invariants: numbers are little-endian; a text has a fixed size whatever its length, so every
//! field has a fixed offset; a code of an older image keeps its meaning.

use crate::convert::{index, to_u32};
use crate::pairing::Pairing;
use crate::profile::PageOrder;

pub(super) struct Put(pub(super) Vec<u8>);

impl Put {
    pub(super) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    pub(super) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    /// Length, then room for the longest text.
    pub(super) fn text(&mut self, text: &str, bytes_max: usize) {
        assert!(
            text.len() <= bytes_max,
            "{text:?} is longer than {bytes_max} bytes"
        );
        self.u32(to_u32(text.len()));
        let end = self.0.len() + bytes_max;
        self.0.extend_from_slice(text.as_bytes());
        self.0.resize(end, 0);
    }
}

/// Reads fields in order; the header's fixed size is long enough for all of them.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        head
    }
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().expect("four bytes"))
    }
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }
    pub(super) fn text(&mut self, bytes_max: usize) -> Result<String, String> {
        let length = index(self.u32());
        let room = self.bytes(bytes_max);
        let text = room
            .get(..length)
            .ok_or_else(|| format!("a text of {length} bytes"))?;
        String::from_utf8(text.to_vec()).map_err(|_| "a text that is not UTF-8".into())
    }
}

/// Codes in the file are positions in this list.
const PAIRINGS: [Pairing; 6] = [
    Pairing::None,
    Pairing::Adjacent,
    Pairing::Dist3,
    Pairing::Dist6,
    Pairing::Shared4,
    Pairing::Group4,
];

/// Code of a random table; its span and seed are in the bytes above.
const RANDOM_PAIRING: u32 = to_u32(PAIRINGS.len());

pub(super) fn pairing_code(pairing: Pairing) -> u32 {
    match pairing {
        Pairing::Random { seed, span } => {
            RANDOM_PAIRING | u32::from(span) << 8 | u32::from(seed) << 16
        }
        listed => {
            let code = PAIRINGS.iter().position(|&pairing| pairing == listed);
            to_u32(code.expect("every other pairing is in the list"))
        }
    }
}

pub(super) fn pairing_of(code: u32) -> Result<Pairing, String> {
    let [kind, span, low, high] = code.to_le_bytes();
    if u32::from(kind) == RANDOM_PAIRING && (1..=Pairing::SPAN_MAX).contains(&span) {
        return Ok(Pairing::Random {
            seed: u16::from_le_bytes([low, high]),
            span,
        });
    }
    PAIRINGS
        .get(index(code))
        .copied()
        .ok_or_else(|| format!("pairing {code:#x} is unknown"))
}

pub(super) fn order_code(order: PageOrder) -> u32 {
    match order {
        PageOrder::Any => 0,
        PageOrder::Ascending => 1,
        PageOrder::Consecutive => 2,
    }
}
