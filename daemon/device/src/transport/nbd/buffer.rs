//! A byte queue in one allocation: filled at the end, consumed at the front.
//!
//! Invariants: every byte of the allocation is initialised once and never zeroed again, so that a
//! read goes straight into the reply. An allocation grows only as far as its owner requests, and
//! by two alignments. [`Buffer::relax`] shrinks it to its resting size.

/// Alignment of a payload that [`Buffer::align`] makes room for: that of the host's pages. The
/// kernel copies an unaligned one a third slower into the page cache.
const ALIGN: usize = 4096;

/// The queue.
#[derive(Debug)]
pub struct Buffer {
    data: Vec<u8>,
    start: usize,
    end: usize,
    resting: usize,
}

impl Buffer {
    /// Creates an empty queue with this resting size in bytes.
    pub fn new(resting: usize) -> Self {
        Buffer {
            data: vec![0; resting],
            start: 0,
            end: 0,
            resting,
        }
    }

    /// Returns the number of queued bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns whether no byte is queued.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the queued bytes.
    pub fn filled(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// Drops the first `n` queued bytes.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "more consumed than was there");
        self.start += n;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Begins an empty queue where what follows its first `head` bytes is aligned in memory.
    pub(crate) fn align(&mut self, head: usize) {
        let after = self.data.as_ptr().addr() + head;
        let begin = after.next_multiple_of(ALIGN) - after;
        if self.is_empty() && begin + head < self.data.len() {
            (self.start, self.end) = (begin, begin);
        }
    }

    /// Returns exactly `n` bytes to be filled and then [`committed`](Self::commit); their contents
    /// are stale.
    pub(crate) fn space(&mut self, n: usize) -> &mut [u8] {
        if self.data.len() - self.end < n {
            self.make_room(n);
        }
        &mut self.data[self.end..self.end + n]
    }

    /// Returns all free space, at least one byte, for a queue that must contain `want` bytes in
    /// total. Grows by doubling, so that a peer that only announces much costs little.
    pub fn spare(&mut self, want: usize) -> &mut [u8] {
        if self.start > 0 && (self.start + want > self.data.len() || self.end == self.data.len()) {
            self.compact();
        }
        if self.end == self.data.len() {
            let grown = (self.data.len() * 2).min(want.max(self.end + 1) + 2 * ALIGN);
            self.data.resize(grown.max(self.end + 1), 0);
        }
        assert!(
            self.end < self.data.len(),
            "no free space after byte {} of a buffer of {} bytes",
            self.end,
            self.data.len()
        );
        &mut self.data[self.end..]
    }

    /// Appends the next `n` bytes of space to the queue.
    pub fn commit(&mut self, n: usize) {
        assert!(
            self.end + n <= self.data.len(),
            "more committed than there was space"
        );
        self.end += n;
    }

    /// Removes the last `n` queued bytes.
    pub(crate) fn retract(&mut self, n: usize) {
        assert!(n <= self.len(), "more taken back than was there");
        self.end -= n;
        self.consume(0);
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// Returns whether the allocation exceeds its resting size.
    pub(crate) fn is_stretched(&self) -> bool {
        self.data.len() > self.resting
    }

    /// Shrinks the allocation to its resting size, if the queued bytes fit.
    pub(crate) fn relax(&mut self) {
        if self.is_stretched() && self.len() <= self.resting {
            self.compact();
            assert!(
                self.end <= self.resting,
                "a buffer of {} bytes shrinks to {}",
                self.end,
                self.resting
            );
            self.data.truncate(self.resting);
            self.data.shrink_to_fit();
        }
    }

    fn compact(&mut self) {
        assert!(self.start <= self.end, "a buffer begins before its end");
        self.data.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    fn make_room(&mut self, n: usize) {
        self.compact();
        if self.data.len() - self.end < n {
            self.data.resize(self.end + n, 0);
        }
        assert!(self.data.len() - self.end >= n, "room was made");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_announcement_costs_nothing_until_bytes_arrive() {
        let mut buffer = Buffer::new(64);
        assert_eq!(buffer.spare(1 << 20).len(), 64);
        buffer.commit(64);
        assert_eq!(buffer.spare(1 << 20).len(), 64, "doubles, and no more");
    }

    #[test]
    fn what_follows_the_head_is_aligned_if_there_is_room() {
        let mut buffer = Buffer::new(3 * ALIGN);
        buffer.push(&[1; 10]);
        buffer.consume(10);
        buffer.align(28);
        buffer.push(&[2; 28]);
        buffer.push(&[3; 100]);
        buffer.align(28);
        assert_eq!(buffer.filled()[..28], [2; 28]);
        assert!(buffer.filled()[28..].as_ptr().addr().is_multiple_of(ALIGN));
        buffer.consume(28);
        assert_eq!(buffer.filled(), [3; 100]);
        let mut small = Buffer::new(8);
        small.align(28);
        small.push(&[4; 9]);
        assert_eq!(small.filled(), [4; 9]);
    }

    #[test]
    fn a_queue_without_room_gets_some() {
        let mut buffer = Buffer::new(0);
        assert!(!buffer.spare(10).is_empty());
        buffer.commit(1);
        assert!(
            !buffer.spare(1).is_empty(),
            "also beyond what was announced"
        );
        buffer.push(&[1; 7]);
        assert_eq!(buffer.len(), 8);
    }

    #[test]
    fn relaxing_keeps_what_waits() {
        let mut buffer = Buffer::new(8);
        buffer.push(&[7; 100]);
        buffer.relax();
        assert!(buffer.is_stretched());
        buffer.consume(95);
        buffer.relax();
        assert!(!buffer.is_stretched());
        assert_eq!(buffer.filled(), [7; 5]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_queue(steps in prop::collection::vec((0u8..4, 1usize..300), 1..60)) {
            let mut buffer = Buffer::new(32);
            let mut model = std::collections::VecDeque::new();
            let mut next = 0u8;
            for (kind, n) in steps {
                match kind {
                    0 => for _ in 0..n {
                        buffer.push(&[next]);
                        model.push_back(next);
                        next = next.wrapping_add(1);
                    },
                    1 => {
                        let space = buffer.spare(n);
                        prop_assert!(!space.is_empty());
                        space[0] = next;
                        buffer.commit(1);
                        model.push_back(next);
                        next = next.wrapping_add(1);
                    }
                    2 => {
                        let n = n.min(buffer.len());
                        buffer.consume(n);
                        model.drain(..n);
                    }
                    _ => buffer.relax(),
                }
                prop_assert!(buffer.filled().iter().eq(model.iter()));
            }
        }
    }
}
