//! Streams, their open blocks, and the unsafe pages of those blocks. There may be tens of thousands
//! of streams, so a stream keeps only the state that pairing needs, and a list holds the streams
//! with unsafe pages.

use super::state::Space;
use crate::format::Role;
use crate::int::{index, to_u16, to_u64};
use crate::ram::{vec_bytes, vec_most};
use crate::scan::provisional;
use crate::stats::{StreamKind, StreamView};
use nand_model::{PairTable, Pbn};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A write frontier: pages of one kind go to one open block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSpec {
    /// Kind of the stream.
    pub(crate) kind: StreamKind,
    /// Number among the streams of its kind, from 1; 0 if it is not counted apart from others.
    pub(crate) number: u8,
    /// Role of the stream's blocks.
    pub(crate) role: Role,
    /// Whether GC may take full blocks at once.
    pub(crate) collectable: bool,
    /// Whether pages have their own offsets in its blocks, with gaps between them. All of them are
    /// programmed with [`super::Space::program_at`].
    pub(crate) in_place: bool,
    /// Whether its blocks are in SLC mode. If the region has none left, it opens others.
    pub(crate) in_slc: bool,
}

impl StreamSpec {
    /// Creates the specification of a stream that appends its pages.
    pub(crate) const fn new(kind: StreamKind, role: Role, collectable: bool) -> Self {
        StreamSpec {
            kind,
            number: 0,
            role,
            collectable,
            in_place: false,
            in_slc: false,
        }
    }

    /// Returns the specification with blocks in SLC mode, or not.
    pub(crate) const fn in_slc(self, in_slc: bool) -> Self {
        StreamSpec { in_slc, ..self }
    }
}

/// Number of a stream, returned at its creation.
pub(crate) type StreamId = usize;

/// Sequence number of padding and of absent pages: they cannot be lost.
pub(super) const NEVER: u64 = u64::MAX;

/// Number of last programs that a block remembers: no pairing reaches further back.
pub(super) const RECENT: usize = 16;

/// An open block.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBlock {
    pub(super) block: Pbn,
    pub(super) epoch: u64,
    /// Pages programmed.
    pub(super) next: u32,
    /// Pages that the block can take.
    end: u16,
    /// Whether the block is in SLC mode: none of its pages shares a word line.
    is_slc: bool,
    /// Padding pages at the end of these.
    padding: u32,
    /// Sequence numbers of the last programs, by offset modulo [`RECENT`]; [`NEVER`] for padding.
    recent: [u64; RECENT],
    /// Whether there are gaps between programmed pages, which appending fills.
    pub(super) gaps: bool,
    /// First provisional page that no padding commits yet, and its sequence number.
    provisional: Option<(u32, u64)>,
}

impl OpenBlock {
    /// Creates an open block of `end` pages with `next` programmed ones, none of them unsafe.
    pub(super) fn new((block, is_slc): (Pbn, bool), epoch: u64, next: u32, end: u32) -> Self {
        OpenBlock {
            block,
            epoch,
            next,
            end: to_u16(end),
            is_slc,
            padding: 0,
            recent: [NEVER; RECENT],
            gaps: false,
            provisional: None,
        }
    }

    /// Returns the pages that the block can take.
    #[inline(always)]
    pub(super) fn end(&self) -> u32 {
        u32::from(self.end)
    }

    /// Whether the next page is appended to those before, in a block whose last `reserved` pages
    /// may not be used.
    #[inline(always)]
    pub(super) fn appends(&self, reserved: u32) -> bool {
        self.next + reserved < self.end() && !self.gaps
    }

    /// Whether its pages may be unsafe at first.
    #[inline(always)]
    pub(super) fn may_be_unsafe(&self) -> bool {
        !self.is_slc || self.provisional.is_some()
    }

    /// Returns the pairs of this block.
    fn pairs_of<'a>(&self, pairs: Option<&'a PairTable>) -> Option<&'a PairTable> {
        pairs.filter(|_| !self.is_slc)
    }

    /// Records that `count` more pages are programmed. `last` is the number of the last program,
    /// `span` that of the pairing.
    #[inline(always)]
    pub(super) fn note(&mut self, count: u32, last: u64, span: u32) {
        debug_assert!(
            u64::from(count) <= last,
            "{count} pages are programmed, but the last program is number {last}"
        );
        let kept = if count == 1 { 1 } else { count.min(span) };
        self.next += count;
        self.padding = 0;
        for back in 0..kept {
            self.recent[index(self.next - 1 - back) % RECENT] = last - u64::from(back);
        }
    }

    /// Records that the pages from here on are committed only when padding follows.
    pub(super) fn note_provisional(&mut self, first: u32, seq: u64) {
        self.provisional.get_or_insert((first, seq));
    }

    /// Records that a page of padding is programmed, which may commit the provisional pages.
    pub(super) fn note_padding(&mut self, pairs: &PairTable) {
        self.recent[index(self.next) % RECENT] = NEVER;
        self.next += 1;
        self.padding += 1;
        let committed = provisional::commits(pairs, self.next - self.padding..self.next);
        if committed && self.oldest_unpaired(pairs) == NEVER {
            self.provisional = None;
        }
    }

    pub(super) fn is_provisional(&self) -> bool {
        self.provisional.is_some()
    }

    /// Returns whether a later program may destroy this page, or no padding commits it yet.
    pub(super) fn is_unsafe(&self, pairs: Option<&PairTable>, offset: u32) -> bool {
        let unpaired = |pairs: &PairTable| {
            pairs
                .last_threat(offset)
                .is_some_and(|threat| threat >= self.next)
        };
        self.provisional.is_some_and(|(first, _)| offset >= first)
            || self.pairs_of(pairs).is_some_and(unpaired)
    }

    /// Returns the sequence number of the oldest unsafe page. Without `pairs`, only provisional
    /// pages are unsafe.
    pub(super) fn oldest_unsafe(&self, pairs: Option<&PairTable>) -> u64 {
        let provisional = self.provisional.map_or(NEVER, |(_, seq)| seq);
        let pairs = self.pairs_of(pairs);
        provisional.min(pairs.map_or(NEVER, |pairs| self.oldest_unpaired(pairs)))
    }

    /// Returns the sequence number of the oldest page whose partner is not programmed yet.
    fn oldest_unpaired(&self, pairs: &PairTable) -> u64 {
        let is_unsafe = |offset: &u32| {
            pairs
                .last_threat(*offset)
                .is_some_and(|threat| threat >= self.next)
        };
        let recent = self.next.saturating_sub(pairs.span())..self.next;
        recent
            .filter(is_unsafe)
            .map(|offset| self.recent[index(offset) % RECENT])
            .min()
            .unwrap_or(NEVER)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) spec: StreamSpec,
    /// Index of its [`StreamView`].
    pub(super) view: u8,
    pub(super) open: Option<OpenBlock>,
    /// Whether the next block is for cold data and should be a worn one.
    pub(super) for_cold: bool,
    /// Preferred die of its next block.
    pub(super) die: Option<u32>,
    /// Dies from there to the one that it prefers afterwards.
    pub(super) die_step: u8,
    /// Whether it is in [`UnsafeStreams`].
    pub(super) listed: bool,
}

impl Stream {
    pub(super) fn new(spec: StreamSpec, view: u8) -> Self {
        Stream {
            spec,
            view,
            open: None,
            for_cold: false,
            die: None,
            die_step: 0,
            listed: false,
        }
    }
}

/// Streams that may have unsafe pages, each with a lower bound of their sequence numbers. A
/// stream's oldest unsafe page only gets newer, so an entry is corrected when it reaches the top.
#[derive(Debug, Default)]
pub(super) struct UnsafeStreams(BinaryHeap<Reverse<(u64, StreamId)>>);

impl UnsafeStreams {
    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<(u64, StreamId)>(self.0.capacity())
    }

    /// Returns the upper bound of the bytes for this many streams, each listed once.
    pub(super) fn bytes_most(streams: usize) -> u64 {
        vec_most::<(u64, StreamId)>(to_u64(streams))
    }

    pub(super) fn put(&mut self, seq: u64, stream: StreamId) {
        debug_assert!(seq < NEVER, "stream {stream} has no unsafe page");
        self.0.push(Reverse((seq, stream)));
    }

    /// Returns the oldest unsafe page and its stream. `oldest_of` returns that of one stream.
    /// Removes safe streams from the list and clears their `listed`.
    pub(super) fn oldest(
        &mut self,
        streams: &mut [Stream],
        oldest_of: impl Fn(&Stream) -> u64,
    ) -> Option<(u64, StreamId)> {
        while let Some(mut top) = self.0.peek_mut() {
            let Reverse((seq, stream)) = *top;
            let oldest = oldest_of(&streams[stream]);
            if oldest == NEVER {
                std::collections::binary_heap::PeekMut::pop(top);
                streams[stream].listed = false;
            } else if oldest == seq {
                return Some((seq, stream));
            } else {
                debug_assert!(
                    oldest > seq,
                    "oldest unsafe page of stream {stream} moved backwards, from {seq} to {oldest}"
                );
                top.0.0 = oldest;
            }
        }
        None
    }
}

impl Space {
    /// Returns the index of the view of such streams.
    pub(super) fn view_of(&mut self, spec: StreamSpec) -> u8 {
        let StreamSpec { kind, number, .. } = spec;
        let is_it = |view: &StreamView| (view.kind, view.number) == (kind, number);
        let at = self.views.iter().position(is_it).unwrap_or_else(|| {
            self.views.push(StreamView {
                kind,
                number,
                pages: 0,
                block: None,
            });
            self.views.len() - 1
        });
        u8::try_from(at).expect("kinds and numbers of streams are few")
    }

    /// Numbers a stream that is the first of several of its kind.
    pub(crate) fn number_first(&mut self, stream: StreamId) {
        let Stream { spec, view, .. } = &mut self.streams[stream];
        spec.number = 1;
        self.views[usize::from(*view)].number = 1;
    }

    /// Returns the programs of every stream.
    pub(crate) fn stream_views(&self) -> &[StreamView] {
        &self.views
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::{Pairing, SplitMix};

    const PAGES: u32 = 64;

    /// Reference for the list: keeps every number and searches every page.
    fn oldest_by_search(pairs: &PairTable, seqs: &[u64]) -> u64 {
        let next = seqs.len() as u32;
        let is_unsafe = |offset: &u32| {
            pairs
                .last_threat(*offset)
                .is_some_and(|threat| threat >= next)
        };
        (0..next)
            .filter(is_unsafe)
            .map(|offset| seqs[offset as usize])
            .min()
            .unwrap_or(NEVER)
    }

    #[test]
    fn the_last_numbers_and_the_list_tell_what_a_search_of_all_pages_tells() {
        for rule in [
            Pairing::None,
            Pairing::Adjacent,
            Pairing::Dist3,
            Pairing::Dist6,
            Pairing::Shared4,
            Pairing::Group4,
            Pairing::AdjacentOf { bits: 3 },
            Pairing::Staggered { bits: 3 },
            Pairing::AdjacentOf { bits: 4 },
            Pairing::Staggered { bits: 4 },
        ] {
            let pairs = PairTable::new(rule, PAGES);
            assert!(pairs.span() as usize <= RECENT);
            let mut rng = SplitMix::new(1);
            let spec = StreamSpec::new(StreamKind::Host, Role::Data, true);
            let mut streams = vec![Stream::new(spec, 0); 40];
            let (mut all, mut list, mut seq) = (vec![Vec::new(); 40], UnsafeStreams::default(), 0);
            for _ in 0..5_000 {
                let id = rng.below(40) as usize;
                let stream = &mut streams[id];
                let open = stream.open.get_or_insert_with(|| {
                    OpenBlock::new((Pbn::new(id as u32), false), 1, 0, PAGES)
                });
                if rng.one_in(4) {
                    open.note_padding(&pairs);
                    all[id].push(NEVER);
                } else {
                    let count = (1 + rng.below(12) as u32).min(PAGES - open.next);
                    all[id].extend(seq + 1..=seq + count as u64);
                    open.note(count, seq + count as u64, pairs.span());
                    if !stream.listed {
                        list.put(seq + 1, id);
                        stream.listed = true;
                    }
                    seq += count as u64;
                }
                if streams[id].open.is_some_and(|open| open.next == PAGES) {
                    streams[id].open = None;
                    all[id].clear();
                }
                let by_search = all
                    .iter()
                    .map(|seqs| oldest_by_search(&pairs, seqs))
                    .min()
                    .unwrap();
                let of = |stream: &Stream| {
                    stream
                        .open
                        .map_or(NEVER, |open| open.oldest_unsafe(Some(&pairs)))
                };
                let oldest = list.oldest(&mut streams, of);
                assert_eq!(oldest.map_or(NEVER, |(seq, _)| seq), by_search, "{rule:?}");
            }
        }
    }
}
