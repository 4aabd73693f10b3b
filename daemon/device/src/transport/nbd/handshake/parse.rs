//! Data of the options INFO, GO and the metadata contexts.
//!
//! Invariants: a length that a peer claims is never trusted beyond the bytes received. Power
//! failure has no effect.

use crate::transport::nbd::wire::{u16_at, u32_at};
use ftld_kit::convert::index;

/// Parses name and requested items (two bytes each) of INFO and GO.
pub(super) fn parse_go(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = take_string(data)?;
    let count = rest.get(..2).map(|c| usize::from(u16_at(c, 0)))?;
    let wanted = &rest[2..];
    (wanted.len() == count * 2).then_some((name, wanted))
}

/// Parses export name and queries of the metadata options.
pub(super) fn parse_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = take_string(data)?;
    let count = rest.get(..4).map(|c| u32_at(c, 0))?;
    let mut rest = &rest[4..];
    let mut queries = Vec::new();
    // Each query takes at least four bytes, so that `rest` bounds the loop whatever `count` claims.
    for _ in 0..count {
        let (query, tail) = take_string(rest)?;
        queries.push(query);
        rest = tail;
    }
    rest.is_empty().then_some((name, queries))
}

fn take_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = data.get(..4).map(|l| index(u32_at(l, 0)))?;
    data[4..].split_at_checked(length)
}
