//! Logical addresses, as the host numbers them. [`Span`] is the only code that converts sectors
//! into pages.

use crate::int::{index, narrow};
use std::fmt;

/// Logical page number: the unit of mapping, one flash page of data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lpn(u32);

impl Lpn {
    /// Returns the page with this number.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Lpn(raw)
    }
    /// Returns the raw number.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }
    /// Returns the index into a table with one entry per logical page.
    #[inline]
    pub const fn index(self) -> usize {
        index(self.0)
    }
    /// Returns the page `n` after this one.
    #[inline]
    pub const fn plus(self, n: u32) -> Self {
        Lpn(self.0 + n)
    }
    /// Iterates over `count` pages upwards from this one.
    #[inline]
    pub(crate) fn run(self, count: u32) -> impl DoubleEndedIterator<Item = Lpn> + Clone + use<> {
        (self.0..self.0 + count).map(Lpn)
    }
    /// Returns the page's logical block, of `pages_per_block` pages, and its offset there.
    #[inline]
    pub(crate) const fn split(self, pages_per_block: u32) -> (Lbn, u32) {
        (Lbn(self.0 / pages_per_block), self.0 % pages_per_block)
    }
}

/// Logical block number: aligned group of as many logical pages as an erase block has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lbn(u32);

impl Lbn {
    /// Returns the logical block with this number.
    #[inline]
    pub(crate) const fn new(raw: u32) -> Self {
        Lbn(raw)
    }
    /// Returns the raw number.
    #[inline]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }
    /// Returns the index into a table with one entry per logical block.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        index(self.0)
    }
    /// Returns the page at this offset of a logical block of `pages_per_block` pages.
    #[inline]
    pub(crate) const fn page(self, pages_per_block: u32, offset: u32) -> Lpn {
        debug_assert!(
            offset < pages_per_block,
            "the offset is outside the logical block"
        );
        Lpn(self.0 * pages_per_block + offset)
    }
}

impl fmt::Debug for Lbn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lb{}", self.0)
    }
}

impl fmt::Display for Lbn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Lpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

impl fmt::Display for Lpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A byte extent of the host, cut at page boundaries. At most one partial page, whole pages, at
/// most one partial page. An extent inside one page is all `head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Partial page at the front: page, first byte inside it, length.
    pub head: Option<(Lpn, u32, u32)>,
    /// First whole page and number of whole pages.
    pub body: (Lpn, u32),
    /// Partial page at the end: page and length of its first bytes.
    pub tail: Option<(Lpn, u32)>,
}

impl Span {
    /// Cuts `len` bytes at `offset` into pages of `page_bytes`.
    pub fn new(offset: u64, len: u64, page_bytes: u32) -> Span {
        assert!(page_bytes > 0, "the page size is 0 bytes");
        let page = u64::from(page_bytes);
        let lpn = |byte: u64| Lpn(narrow(byte / page));
        let (start, end) = (offset, offset + len);
        let (first_whole, past_whole) = (start.div_ceil(page), end / page);
        let inside = |byte: u64| narrow(byte % page);
        if first_whole > past_whole {
            return Span {
                head: Some((lpn(start), inside(start), narrow(len))),
                body: (lpn(start), 0),
                tail: None,
            };
        }
        let head =
            (inside(start) > 0).then(|| (lpn(start), inside(start), page_bytes - inside(start)));
        let tail = (inside(end) > 0).then(|| (lpn(end), inside(end)));
        let body = (Lpn(narrow(first_whole)), narrow(past_whole - first_whole));
        let partial = head.map_or(0, |(.., n)| n) + tail.map_or(0, |(_, n)| n);
        debug_assert_eq!(
            u64::from(partial) + u64::from(body.1) * page,
            len,
            "the parts of {len} bytes at {offset}"
        );
        Span { head, body, tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_exactly_the_extent() {
        for offset in 0..40 {
            for len in 1..40 {
                let span = Span::new(offset, len, 8);
                let mut bytes = Vec::new();
                if let Some((lpn, from, n)) = span.head {
                    assert!(n < 8);
                    bytes.extend((from..from + n).map(|b| lpn.raw() as u64 * 8 + b as u64));
                }
                bytes.extend((0..span.body.1 as u64 * 8).map(|b| span.body.0.raw() as u64 * 8 + b));
                if let Some((lpn, n)) = span.tail {
                    assert!(n < 8);
                    bytes.extend((0..n).map(|b| lpn.raw() as u64 * 8 + b as u64));
                }
                assert_eq!(
                    bytes,
                    (offset..offset + len).collect::<Vec<_>>(),
                    "{offset}+{len}"
                );
            }
        }
    }
}
