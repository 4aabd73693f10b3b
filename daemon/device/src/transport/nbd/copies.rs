//! Copies of replies that are delayed for the emulated flash.
//!
//! Invariants: delayed copies and spare allocations are bounded together, whatever sizes the peer
//! requests; replies of similar size reuse allocations.

/// Delayed copies, as a number of bytes, and spare allocations of earlier ones.
pub(super) struct Copies {
    most: usize,
    waiting: usize,
    spares: Vec<Vec<u8>>,
    spare: usize,
}

impl Copies {
    /// Limits the copies to `most` bytes, or to one copy.
    pub(super) fn new(most: usize) -> Self {
        Copies {
            most,
            waiting: 0,
            spares: Vec::new(),
            spare: 0,
        }
    }

    /// Returns whether no copy is delayed.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns whether one more copy of this length may be delayed.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.is_empty() || self.waiting + len <= self.most
    }

    /// Copies `bytes`, into a spare allocation if there is one.
    pub(super) fn make(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.take_spare().unwrap_or_default();
        if self.waiting + copy.capacity() > self.most {
            copy = Vec::new();
        }
        copy.reserve_exact(bytes.len());
        copy.extend_from_slice(bytes);
        self.waiting += copy.capacity();
        assert_eq!(copy.len(), bytes.len(), "a copy is as long as its bytes");
        while self.waiting + self.spare > self.most && self.take_spare().is_some() {}
        assert!(
            self.waiting + self.spare <= self.most || self.spare == 0,
            "{} bytes of delayed replies and {} spare bytes, limited to {}",
            self.waiting,
            self.spare,
            self.most
        );
        copy
    }

    /// Frees a copy and keeps its allocation if there is room.
    pub(super) fn free(&mut self, mut copy: Vec<u8>) {
        assert!(
            copy.capacity() <= self.waiting,
            "a copy is freed that was not made here"
        );
        self.waiting -= copy.capacity();
        if self.waiting + self.spare + copy.capacity() <= self.most {
            copy.clear();
            self.spare += copy.capacity();
            self.spares.push(copy);
        }
    }

    fn take_spare(&mut self) -> Option<Vec<u8>> {
        let spare = self.spares.pop()?;
        assert!(spare.capacity() <= self.spare, "spares are counted");
        self.spare -= spare.capacity();
        Some(spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn memory_is_bounded_whatever_is_asked_for(asks in prop::collection::vec((1usize..1000, any::<bool>()), 1..200)) {
            let (mut copies, mut waiting) = (Copies::new(1000), std::collections::VecDeque::new());
            for (len, frees) in asks {
                if frees && let Some(copy) = waiting.pop_front() {
                    copies.free(copy);
                } else if copies.has_room(len) {
                    let copy = copies.make(&vec![7; len]);
                    prop_assert_eq!(&copy, &vec![7; len]);
                    waiting.push_back(copy);
                }
                let really: usize = waiting.iter().chain(&copies.spares).map(Vec::capacity).sum();
                prop_assert!(really == copies.waiting + copies.spare && really <= 1000, "{} bytes", really);
            }
        }
    }

    #[test]
    fn like_sizes_share_their_allocations() {
        let mut copies = Copies::new(10_000);
        for _ in 0..2 {
            let both = [copies.make(&[1; 4096]), copies.make(&[2; 4096])];
            both.into_iter().for_each(|copy| copies.free(copy));
        }
        assert_eq!(
            (copies.spares.len(), copies.spare, copies.is_empty()),
            (2, 8192, true)
        );
    }
}
