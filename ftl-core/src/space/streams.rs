//! Streams, the blocks they fill, and which of those blocks' pages can still be lost. There may be
//! tens of thousands: a stream keeps the little that pairing asks for, and those that are at risk
//! are on a list.

use crate::convert::{index, to_u32};
use crate::format::Role;
use crate::recovery::provisional;
use nand_model::{PairTable, Pbn};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A write frontier: pages of one kind go to one open block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSpec {
    /// Role of the stream's blocks.
    pub(crate) role: Role,
    /// Whether full blocks may be collected at once.
    pub(crate) collectable: bool,
    /// Whether pages have their own offsets in its blocks, with gaps between them: they all go by
    /// [`super::Space::program_at`].
    pub(crate) in_place: bool,
}

/// Number of a stream, as given when it was made.
pub(crate) type StreamId = usize;

/// The sequence number of what cannot be lost: filler, and nothing at all.
pub(super) const NEVER: u64 = u64::MAX;

/// Programs of a block that are remembered: no pairing reaches further back.
pub(super) const RECENT: usize = 8;

/// A block that is being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBlock {
    pub(super) block: Pbn,
    pub(super) epoch: u64,
    /// Pages programmed.
    pub(super) next: u32,
    /// Of these, filler at the end.
    filler: u32,
    /// Sequence numbers of the last programs, by offset modulo [`RECENT`]; [`NEVER`] for filler.
    recent: [u64; RECENT],
    /// Whether the pages that are programmed are not all at the beginning: appending fills the gaps
    /// between them.
    pub(super) gaps: bool,
    /// First of the provisional pages that no filler vouches for yet, and its sequence number.
    provisional: Option<(u32, u64)>,
}

impl OpenBlock {
    /// A block of which `next` pages are programmed, none of them at risk.
    pub(super) fn new(block: Pbn, epoch: u64, next: u32) -> Self {
        OpenBlock {
            block,
            epoch,
            next,
            filler: 0,
            recent: [NEVER; RECENT],
            gaps: false,
            provisional: None,
        }
    }

    /// `count` pages more are programmed, the last of them as number `last`.
    #[inline(always)]
    pub(super) fn note(&mut self, count: u32, last: u64) {
        debug_assert!(
            u64::from(count) <= last,
            "{count} pages up to program {last}"
        );
        let kept = if count == 1 {
            1
        } else {
            count.min(to_u32(RECENT))
        };
        self.next += count;
        self.filler = 0;
        for back in 0..kept {
            self.recent[index(self.next - 1 - back) % RECENT] = last - u64::from(back);
        }
    }

    /// The pages from here on count only when filler follows.
    pub(super) fn note_provisional(&mut self, first: u32, seq: u64) {
        self.provisional.get_or_insert((first, seq));
    }

    /// A page of filler is programmed. Returns whether what was provisional counts now.
    pub(super) fn note_filler(&mut self, pairs: &PairTable) {
        self.recent[index(self.next) % RECENT] = NEVER;
        self.next += 1;
        self.filler += 1;
        let vouched = provisional::vouches(pairs, self.next - self.filler..self.next);
        if vouched && self.oldest_unpaired(pairs) == NEVER {
            self.provisional = None;
        }
    }

    pub(super) fn is_provisional(&self) -> bool {
        self.provisional.is_some()
    }

    /// Whether a later program may destroy this page, or nothing vouches for it yet.
    pub(super) fn at_risk(&self, pairs: Option<&PairTable>, offset: u32) -> bool {
        let unpaired = |pairs: &PairTable| {
            pairs
                .last_threat(offset)
                .is_some_and(|threat| threat >= self.next)
        };
        self.provisional.is_some_and(|(first, _)| offset >= first) || pairs.is_some_and(unpaired)
    }

    /// Sequence number of the oldest page at risk; without `pairs` no partner threatens any.
    pub(super) fn oldest_unsafe(&self, pairs: Option<&PairTable>) -> u64 {
        let provisional = self.provisional.map_or(NEVER, |(_, seq)| seq);
        provisional.min(pairs.map_or(NEVER, |pairs| self.oldest_unpaired(pairs)))
    }

    /// Of the pages whose partner is not programmed yet, the oldest.
    fn oldest_unpaired(&self, pairs: &PairTable) -> u64 {
        let at_risk = |offset: &u32| {
            pairs
                .last_threat(*offset)
                .is_some_and(|threat| threat >= self.next)
        };
        let recent = self.next.saturating_sub(pairs.span())..self.next;
        recent
            .filter(at_risk)
            .map(|offset| self.recent[index(offset) % RECENT])
            .min()
            .unwrap_or(NEVER)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) spec: StreamSpec,
    pub(super) open: Option<OpenBlock>,
    /// The next block is for data that is expected to stay: it shall be a worn one.
    pub(super) for_cold: bool,
    /// Where its blocks should be.
    pub(super) die: Option<u32>,
    /// Whether it is on the list of those that may be at risk.
    pub(super) listed: bool,
}

impl Stream {
    pub(super) fn new(spec: StreamSpec) -> Self {
        Stream {
            spec,
            open: None,
            for_cold: false,
            die: None,
            listed: false,
        }
    }
}

/// The streams that may have pages at risk, by a number that none of those is older than. A
/// stream's oldest page at risk only ever gets younger, so entries are put right when they come to
/// the top.
#[derive(Debug, Default)]
pub(super) struct AtRisk(BinaryHeap<Reverse<(u64, StreamId)>>);

impl AtRisk {
    pub(super) fn put(&mut self, seq: u64, stream: StreamId) {
        debug_assert!(seq < NEVER, "nothing of stream {stream} is at risk");
        self.0.push(Reverse((seq, stream)));
    }

    /// The oldest page at risk and its stream. `oldest_of` tells of a stream; one that is safe is
    /// taken off the list and `unlisted`.
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
                debug_assert!(oldest > seq, "pages of stream {stream} at risk got older");
                top.0.0 = oldest;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::{Pairing, SplitMix};

    const PAGES: u32 = 64;

    /// What the list replaces: every number is kept, every page looked at.
    fn oldest_by_search(pairs: &PairTable, seqs: &[u64]) -> u64 {
        let next = seqs.len() as u32;
        let at_risk = |offset: &u32| {
            pairs
                .last_threat(*offset)
                .is_some_and(|threat| threat >= next)
        };
        (0..next)
            .filter(at_risk)
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
        ] {
            let pairs = PairTable::new(rule, PAGES);
            assert!(pairs.span() as usize <= RECENT);
            let mut rng = SplitMix::new(1);
            let spec = StreamSpec {
                role: Role::Data,
                collectable: true,
                in_place: false,
            };
            let mut streams = vec![Stream::new(spec); 40];
            let (mut all, mut list, mut seq) = (vec![Vec::new(); 40], AtRisk::default(), 0);
            for _ in 0..5_000 {
                let id = rng.below(40) as usize;
                let stream = &mut streams[id];
                let open = stream
                    .open
                    .get_or_insert_with(|| OpenBlock::new(Pbn::new(id as u32), 1, 0));
                if rng.one_in(4) {
                    open.note_filler(&pairs);
                    all[id].push(NEVER);
                } else {
                    let count = (1 + rng.below(12) as u32).min(PAGES - open.next);
                    all[id].extend(seq + 1..=seq + count as u64);
                    open.note(count, seq + count as u64);
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
