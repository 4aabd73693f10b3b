//! Which bytes of a device have data.
//!
//! Invariants: a look changes nothing, does not wait for the end of a pause, and takes no step of
//! one. While there are requests, they have the lock for half of the time.

use super::Volume;
use std::io;
use std::ops::Range;
use std::time::Instant;

/// Pages that are looked at under the lock.
const PAGES: u64 = 1024;

impl Volume {
    /// Returns the ranges of bytes that have data, ascending.
    ///
    /// # Errors
    /// The device has failed, or the map cannot be read.
    pub fn content(&self) -> io::Result<Vec<Range<u64>>> {
        let bytes = PAGES * u64::from(self.shape.page_bytes);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while at < self.shape.size {
            let part = at..self.shape.size.min(at + bytes);
            for piece in self.shape.stripes.pieces(part) {
                let end = piece.at + piece.len;
                let mut own = piece.at;
                while own < end {
                    let mut guard = self.shards[piece.shard].lock();
                    let began = Instant::now();
                    let found =
                        self.run(&mut guard, false, |core| core.extents(own, end, usize::MAX));
                    drop(guard);
                    if self.unlocked.counters.depth() > 0 {
                        std::thread::sleep(began.elapsed());
                    }
                    for extent in found? {
                        let range = at..at + extent.len;
                        (at, own) = (range.end, own + extent.len);
                        match ranges.last_mut() {
                            _ if !extent.mapped => {}
                            Some(last) if last.end == range.start => last.end = range.end,
                            _ => ranges.push(range),
                        }
                    }
                }
            }
        }
        Ok(ranges)
    }
}
