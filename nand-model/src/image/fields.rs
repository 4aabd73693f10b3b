//! Fields of the header: numbers and texts in sequence, and the codes of a profile's enumerations.
//!
//! Invariants: numbers are little-endian; nothing is read beyond the bytes that there are; a
//! code of an older image keeps its meaning.

use crate::convert::{index, to_u32};
use crate::invalid::{Invalid, ensure};
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
    /// Length, then the text.
    pub(super) fn text(&mut self, text: &str, bytes_max: usize) {
        assert!(
            text.len() <= bytes_max,
            "{text:?} is longer than {bytes_max} bytes"
        );
        self.u32(to_u32(text.len()));
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// Reads fields in order; one that does not fit in what is left is an error.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Invalid> {
        let left = self.0.len();
        let (head, tail) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| Invalid::Image(format!("{count} bytes where {left} are left")))?;
        self.0 = tail;
        Ok(head)
    }
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("as many bytes as were taken"))
    }
    pub(super) fn u32(&mut self) -> Result<u32, Invalid> {
        self.array().map(u32::from_le_bytes)
    }
    pub(super) fn u64(&mut self) -> Result<u64, Invalid> {
        self.array().map(u64::from_le_bytes)
    }
    /// A number of bytes.
    pub(super) fn length(&mut self) -> Result<usize, Invalid> {
        self.u32().map(index)
    }
    pub(super) fn text(&mut self, bytes_max: usize) -> Result<String, Invalid> {
        let length = self.length()?;
        ensure(length <= bytes_max, Invalid::Image, || {
            format!("a text of {length} bytes")
        })?;
        let text = self.bytes(length)?.to_vec();
        String::from_utf8(text).map_err(|_| Invalid::Image("a text that is not UTF-8".into()))
    }
    /// An error if something is left.
    pub(super) fn end(&self) -> Result<(), Invalid> {
        let left = self.0.len();
        ensure(left == 0, Invalid::Image, || {
            format!("{left} bytes behind its last field")
        })
    }
}

/// Rules without a parameter; codes in the file are positions in this list.
const PLAIN_PAIRINGS: [Pairing; 6] = [
    Pairing::None,
    Pairing::Adjacent,
    Pairing::Dist3,
    Pairing::Dist6,
    Pairing::Shared4,
    Pairing::Group4,
];

/// Code of a random table; its span and seed are in the bytes above.
const RANDOM_PAIRING: u32 = to_u32(PLAIN_PAIRINGS.len());
/// Codes of the rules that need the bits per cell, and of a table.
const ADJACENT: u32 = 7;
const STAGGERED: u32 = 8;
const TABLE: u32 = 9;

pub(super) fn pairing_code(pairing: Pairing) -> u32 {
    match pairing {
        Pairing::None => 0,
        Pairing::Adjacent => 1,
        Pairing::Dist3 => 2,
        Pairing::Dist6 => 3,
        Pairing::Shared4 => 4,
        Pairing::Group4 => 5,
        Pairing::Random { seed, span } => {
            RANDOM_PAIRING | u32::from(span) << 8 | u32::from(seed) << 16
        }
        Pairing::AdjacentOf { .. } => ADJACENT,
        Pairing::Staggered { .. } => STAGGERED,
        Pairing::Table { .. } => TABLE,
    }
}

/// The pairing of a code, for cells of `bits` bits; `back` is that of a table.
pub(super) fn pairing_of(code: u32, bits: u8, back: &[u8]) -> Result<Pairing, Invalid> {
    let [kind, span, low, high] = code.to_le_bytes();
    if u32::from(kind) == RANDOM_PAIRING && (1..=Pairing::SPAN_MAX).contains(&span) {
        return Ok(Pairing::Random {
            seed: u16::from_le_bytes([low, high]),
            span,
        });
    }
    match code {
        ADJACENT => Ok(Pairing::AdjacentOf { bits }),
        STAGGERED => Ok(Pairing::Staggered { bits }),
        TABLE => Pairing::from_back(bits, back),
        _ => PLAIN_PAIRINGS
            .get(index(code))
            .copied()
            .ok_or_else(|| Invalid::Image(format!("pairing {code:#x} is unknown"))),
    }
}

pub(super) fn order_code(order: PageOrder) -> u32 {
    match order {
        PageOrder::Any => 0,
        PageOrder::Ascending => 1,
        PageOrder::Consecutive => 2,
    }
}

pub(super) fn order_of(code: u32) -> Result<PageOrder, Invalid> {
    [PageOrder::Any, PageOrder::Ascending, PageOrder::Consecutive]
        .into_iter()
        .find(|order| order_code(*order) == code)
        .ok_or_else(|| Invalid::Image(format!("page order {code} is unknown")))
}
