//! Health marks of single pages.
//!
//! Invariants: a mark is written to the file before RAM is updated, and belongs to the operation
//! that programmed its page. A block with a marked page has no seal: the first mark clears the seal
//! and waits until that is synced, under the caller's lock. Only injected faults set marks. A host
//! crash may lose a mark; a mark of an undone operation is void.

use super::file_store::FileStore;
use crate::addr::Ppn;
use crate::convert::to_u64;
use crate::image::Mark;
use crate::store::contents::Health;
use std::io;

impl FileStore {
    /// Returns the page's mark; reading an unstable or flickering page changes it.
    pub(super) fn use_mark(&mut self, ppn: Ppn, seq: u64) -> io::Result<Health> {
        let Mark { health, cause } = self.unhealthy.get(&ppn.raw()).copied().unwrap_or_default();
        if let Some(after) = health.after_read() {
            let next = Mark {
                health: after,
                cause,
            };
            self.write_mark(ppn, seq, next)?;
            self.unhealthy.insert(ppn.raw(), next);
        }
        Ok(health)
    }

    fn write_mark(&self, ppn: Ppn, seq: u64, mark: Mark) -> io::Result<()> {
        let (_, slot, page) = self.locate(ppn).expect("a page with a number has a place");
        debug_assert_ne!(seq, 0, "a mark of a page that no operation programmed");
        Ok(self.disk.write_at(
            self.layout.record_at(slot, page) + to_u64(Mark::AT),
            &mark.encode(seq),
        )?)
    }

    /// Marks a programmed page. `cause` is the page whose interrupted program has this effect, if
    /// there is one.
    pub(super) fn mark(&mut self, ppn: Ppn, health: Health, cause: Option<u16>) -> io::Result<()> {
        let mut record = std::mem::take(&mut self.scratch);
        let found = self.read_record(ppn, &mut record);
        self.scratch = record;
        let Some((slot, _, core)) = found? else {
            return Ok(());
        };
        // A page with an older mark gets no cause: undoing the cause would clear that mark, too.
        let cause = cause.filter(|_| !self.unhealthy.contains_key(&ppn.raw()));
        let mark = Mark { health, cause };
        self.sync.unseal(slot)?;
        self.write_mark(ppn, core.seq, mark)?;
        if health == Health::Good {
            self.unhealthy.remove(&ppn.raw());
        } else {
            self.unhealthy.insert(ppn.raw(), mark);
        }
        Ok(())
    }
}
