//! `sepbit`: separates pages by their inferred invalidation time, in six classes. A host write is
//! short-lived if the version that it replaces was; copies of short-lived pages go to one class,
//! the others to three by their age.
//!
//! Wang, Li, Lee, et al.: *Separating Data via Block Invalidation Time Inference for Write
//! Amplification Reduction in Log-Structured Storage*, FAST 2022. Fidelity B: the rules are those
//! of the authors' published program (github.com/fallfish/sepbit); the paper's text was not
//! available. Of the paper's `GcWrite` and `UserWrite`:
//!
//! - *Threshold ℓ*: the mean lifetime of the last 16 collected blocks of class 1, in pages that the
//!   host wrote; infinite before ([`SepBit::on_collect`]).
//! - *Host writes*: class 1 if the page is in the queue and its replaced version lived less than ℓ
//!   writes, else class 2. A first write is of class 2 ([`SepBit::stream_of_write`]).
//! - *Queue*: a FIFO of the pages written last bounds the RAM. It is as long as ℓ, at most one
//!   entry per page that was written; when ℓ has shrunk, each write removes two entries
//!   ([`Recent`]).
//! - *Copies*: class 3 out of a block of class 1; else class 4, 5 or 6 by the time since the host
//!   wrote the page: below 4 ℓ, below 16 ℓ, or above ([`SepBit::stream_of_copy`]).
//!
//! RAM: 8 B per page in the queue, its number and its position, as the authors count. A row of
//! `ftld replay` has the value at its end. The times of copies are in their spare bytes, as the
//! authors' are in metadata on the disk. In place of their hash table and queue, an array of 4 B
//! per page has the position of its last write, and a bitmap has the positions that the queue
//! contains.
//!
//! Deviations: the authors' GC collects the block with the highest cost-benefit as soon as 15 % of
//! all pages are invalid; here `gc.policy` and the free blocks of the device decide. A trim is no
//! write, and leaves the page in the queue.
//!
//! A mount forgets ℓ and the queue: until 16 blocks of class 1 were collected, a page written twice
//! since the mount is short-lived. Blocks from before are of class 2, whose stream has number 0.

use crate::addr::Lpn;
use crate::gc::policy::{DataBlock, HostWrite, PageCopy, Policy};

/// Blocks of class 1 in the mean.
const SAMPLE: u64 = 16;
/// Stream of class 2; blocks from before a mount count as its own.
const CLASS_2: u32 = 0;
/// Stream of class 1.
const CLASS_1: u32 = 1;

pub(super) struct SepBit {
    /// ℓ, in pages that the host wrote.
    threshold: f64,
    /// Sum of the lifetimes sampled for the next ℓ, and their number.
    sum: u64,
    sampled: u64,
    recent: Recent,
}

impl SepBit {
    pub(super) fn new(logical_pages: u32) -> Self {
        SepBit {
            threshold: f64::INFINITY,
            sum: 0,
            sampled: 0,
            recent: Recent::new(logical_pages as usize),
        }
    }
}

impl Policy for SepBit {
    fn streams(&self) -> (u32, u32) {
        (2, 4)
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        let lived = self.recent.push(write.lpn, self.threshold);
        match lived.is_some_and(|lived| f64::from(lived) < self.threshold) {
            true => CLASS_1,
            false => CLASS_2,
        }
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        match copy.age as f64 / self.threshold {
            _ if copy.stream == CLASS_1 => 2,
            age if age < 4.0 => 3,
            age if age < 16.0 => 4,
            _ => 5,
        }
    }

    fn on_collect(&mut self, block: &DataBlock) {
        if block.stream != CLASS_1 {
            return;
        }
        (self.sum, self.sampled) = (self.sum + block.age, self.sampled + 1);
        if self.sampled == SAMPLE {
            self.threshold = self.sum as f64 / SAMPLE as f64;
            (self.sum, self.sampled) = (0, 0);
        }
    }

    fn bytes(&self) -> (u64, u64) {
        (8 * u64::from(self.recent.pages), self.recent.bytes())
    }

    fn needs_replaced(&self) -> bool {
        false
    }
}

/// The queue of the pages that the host wrote last.
///
/// Always: the queue has the positions from `next - len` to `next - 1`; `is_last` has a bit for
/// those of them that are the last write of their page, and `pages` is their number.
struct Recent {
    /// By page: the position of its last write; 0 for none.
    last: Vec<u32>,
    /// By position, modulo the size, which is a power of two.
    is_last: Vec<u64>,
    /// Position of the next write, from 1 on.
    next: u32,
    len: u32,
    /// Pages in the queue.
    pages: u32,
    /// Pages that were ever written.
    written: u32,
}

impl Recent {
    fn new(logical_pages: usize) -> Self {
        // The queue has one entry more than there are pages while a write adds its own.
        let positions = (logical_pages + 2).next_power_of_two().max(64);
        Recent {
            last: vec![0; logical_pages],
            is_last: vec![0; positions / 64],
            next: 1,
            len: 0,
            pages: 0,
            written: 0,
        }
    }

    /// Adds a write of this page. Returns the writes since its last one, if that is in the queue.
    /// `most`: the wanted length of the queue.
    #[inline]
    fn push(&mut self, lpn: Lpn, most: f64) -> Option<u32> {
        if lpn.index() >= self.last.len() || self.next == u32::MAX {
            self.grow(lpn);
        }
        let now = self.next;
        let before = std::mem::replace(&mut self.last[lpn.index()], now);
        let age = now - before;
        let found = (before != 0 && age <= self.len).then_some(age);
        if found.is_some() {
            self.clear(before);
        } else {
            self.pages += 1;
        }
        self.written += u32::from(before == 0);
        let (word, bit) = self.place(now);
        self.is_last[word] |= bit;
        (self.next, self.len) = (now + 1, self.len + 1);
        if f64::from(self.len) > most.min(f64::from(self.written)) {
            self.pop();
            if f64::from(self.len) > most {
                self.pop();
            }
        }
        found
    }

    /// Removes the oldest entry.
    fn pop(&mut self) {
        if self.len > 0 {
            let removed = self.clear(self.next - self.len);
            self.pages -= u32::from(removed);
            self.len -= 1;
        }
    }

    /// Clears the bit of a position. Returns whether it was set.
    fn clear(&mut self, position: u32) -> bool {
        let (word, bit) = self.place(position);
        let was_set = self.is_last[word] & bit != 0;
        self.is_last[word] &= !bit;
        was_set
    }

    fn place(&self, position: u32) -> (usize, u64) {
        let position = position as usize & (64 * self.is_last.len() - 1);
        (position / 64, 1 << (position % 64))
    }

    /// Makes room for a page, and for the next position. The queue begins again.
    #[cold]
    fn grow(&mut self, lpn: Lpn) {
        let pages = (lpn.index() + 1).next_power_of_two();
        *self = Recent::new(pages.max(self.last.len()));
    }

    /// Returns the allocated bytes.
    fn bytes(&self) -> u64 {
        (4 * self.last.len() + 8 * self.is_last.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::Pbn;

    fn write(lpn: u32) -> HostWrite {
        HostWrite {
            lpn: Lpn::new(lpn),
            hint: 0,
            replaces: None,
            lifespan: None,
            now: 0,
        }
    }

    fn taken(stream: u32, age: u64) -> DataBlock {
        DataBlock {
            block: Pbn::new(0),
            stream,
            lifetime: 1,
            age,
            now: 0,
        }
    }

    fn copy(stream: u32, age: u64) -> PageCopy {
        PageCopy {
            lpn: Some(Lpn::new(0)),
            block: Pbn::new(0),
            stream,
            age,
            now: 0,
        }
    }

    /// Collects 16 blocks of class 1 of this mean lifetime, and others that do not count.
    fn learn(sepbit: &mut SepBit, mean: u64) {
        for i in 0..SAMPLE {
            sepbit.on_collect(&taken(
                CLASS_1,
                mean + i - if i % 2 == 0 { 0 } else { 2 * i },
            ));
            sepbit.on_collect(&taken(3, 1));
            sepbit.on_collect(&taken(CLASS_2, u64::MAX));
        }
    }

    #[test]
    fn a_write_is_short_lived_if_the_replaced_version_was() {
        let mut sepbit = SepBit::new(100);
        // New pages are of class 2, whatever ℓ is; a replaced one is of class 1 while ℓ is
        // infinite.
        let of = |sepbit: &mut SepBit, lpn| sepbit.stream_of_write(&write(lpn));
        assert_eq!([0, 1, 2, 0].map(|lpn| of(&mut sepbit, lpn)), [0, 0, 0, 1]);
        // 100 + (0 - 1 + 2 - 3 ... + 14 - 15) / 16 = 99.5.
        learn(&mut sepbit, 100);
        assert_eq!(sepbit.threshold, 99.5);
        sepbit.threshold = 4.0;
        // The queue is 1, 2, 0: three pages were written. Page 2 lived for 2 writes.
        assert_eq!(of(&mut sepbit, 2), CLASS_1);
        // The queue is 2, 0, 2: page 1 is no longer in it.
        assert_eq!(of(&mut sepbit, 1), CLASS_2);
        // The queue is 0, 2, 1: page 0 lived for 3 writes, and for as many after its next two.
        assert_eq!([0, 2, 1, 0].map(|lpn| of(&mut sepbit, lpn)), [1; 4]);
        // Not shorter than ℓ, though it is in the queue.
        sepbit.threshold = 3.0;
        assert_eq!(of(&mut sepbit, 2), CLASS_2);
    }

    #[test]
    fn copies_go_by_the_class_of_their_block_and_by_age() {
        let mut sepbit = SepBit::new(100);
        sepbit.threshold = 1_015.0;
        assert_eq!(sepbit.stream_of_copy(&copy(CLASS_1, 1 << 40)), 2);
        // 4 ℓ is 4,060, 16 ℓ is 16,240.
        for from in [CLASS_2, 2, 3, 4, 5] {
            let ages = [0, 4_059, 4_060, 16_239, 16_240];
            let streams = ages.map(|age| sepbit.stream_of_copy(&copy(from, age)));
            assert_eq!(streams, [3, 3, 4, 4, 5]);
        }
    }

    /// The queue has the content of a plain list, under lengths that grow and shrink.
    #[test]
    fn the_queue_has_the_pages_of_a_list() {
        let (mut recent, mut list) = (Recent::new(50), std::collections::VecDeque::new());
        let (mut rng, mut written) = (
            nand_model::SplitMix::new(3),
            std::collections::BTreeSet::new(),
        );
        for step in 0..5_000u32 {
            let most = [f64::INFINITY, 30.5, 7.0, 20.0][(step / 600 % 4) as usize];
            let lpn = rng.below(if step % 3 == 0 { 50 } else { 5 }) as u32;
            let expected = list.iter().rev().position(|known| *known == lpn);
            let found = recent.push(Lpn::new(lpn), most);
            assert_eq!(
                found,
                expected.map(|behind| behind as u32 + 1),
                "step {step}"
            );
            list.push_back(lpn);
            written.insert(lpn);
            if list.len() as f64 > most.min(written.len() as f64) {
                list.pop_front();
                if list.len() as f64 > most {
                    list.pop_front();
                }
            }
            let pages: std::collections::BTreeSet<_> = list.iter().collect();
            assert_eq!(
                (recent.len as usize, recent.pages as usize),
                (list.len(), pages.len())
            );
        }
        assert_eq!(recent.written, 50);
    }

    #[test]
    fn ram_is_eight_bytes_for_each_page_in_the_queue() {
        let mut sepbit = SepBit::new(1_000);
        for lpn in [1, 2, 1, 1, 3] {
            sepbit.stream_of_write(&write(lpn));
        }
        // The queue has at most as many entries as pages were written: 2, 1, 1, then 1, 1, 3.
        assert_eq!(sepbit.bytes().0, 8 * 2);
        assert_eq!(sepbit.bytes().1, 4_000 + 1_024 / 8);
        // A page beyond the expected ones.
        assert_eq!(sepbit.stream_of_write(&write(5_000)), CLASS_2);
    }
}
