//! The space during a mount: pages are provisional until it ends, and its rewrites may take the
//! blocks kept for them. So may its GC, if no other block is free.
//!
//! If power fails before the end, the next mount finds the same state as this one ([`super`]).

use super::state::Space;
use crate::error::FtlError;
use crate::format::{COUNTER_FOUND_MAX, Flags};
use crate::int::to_u32;
use crate::scan::provisional;

impl Space {
    /// Sets whether a mount rewrites pages now: only then it may take the blocks reserved for it.
    pub(crate) fn set_rewriting(&mut self, on: bool) {
        assert!(self.mounting, "pages are rewritten outside a mount");
        self.takes_kept = on;
    }

    /// Sets whether a mount may borrow the blocks kept for its rewrites while no other block is
    /// free: for GC, and for the mapping pages that it writes. An earlier mount may have taken the
    /// last other blocks before power failed, or programs failed in them. A lost copy changes no
    /// content: its source stays until the copy is safe.
    pub(crate) fn let_mount_borrow(&mut self, allowed: bool) {
        self.may_borrow = allowed;
        self.takes_kept = false;
    }

    /// Borrows the kept blocks if no other block is free. Returns whether it did.
    pub(crate) fn borrow_kept_blocks(&mut self) -> bool {
        let borrows = self.may_borrow && self.free_blocks() == 0 && self.pool.len() > 0;
        self.takes_kept |= borrows;
        borrows
    }

    /// Gives the borrowed blocks back as soon as more are free than those kept.
    pub(crate) fn give_back_kept_blocks(&mut self) {
        self.takes_kept &= to_u32(self.pool.len()) <= self.kept_for_mount;
    }

    /// Begins a mount: pages programmed from now on are provisional. (Blocks of very few pages have
    /// no room for the padding; there, pages of a mount are not provisional.)
    pub(crate) fn begin_mount(&mut self) {
        assert!(!self.mounting, "a mount begins during a mount");
        self.mounting = true;
        let pages = self.geometry().pages_per_block;
        let reserved_pages = provisional::padding_per_block(self.flash.chip().pairs(), pages);
        self.flash.set_mark(Flags::OF_MOUNT);
        if pages > 2 * reserved_pages {
            self.reserved_pages = reserved_pages;
            self.may_be_unsafe = true;
            self.flash.set_mark(Flags::MOUNT_MARKS);
        }
    }

    /// Returns an error if the counters that a mount found are too large: mount must accept the
    /// records that this device will write.
    pub(crate) fn check_counters(&self, next_ver: u64) -> Result<(), FtlError> {
        let most = self.flash.pseq().max(self.next_epoch).max(next_ver);
        if most > COUNTER_FOUND_MAX / 2 {
            return Err(FtlError::Corrupt(format!(
                "a sequence number exceeds the maximum: {most}"
            )));
        }
        Ok(())
    }

    /// Ends the mount and commits the pages that it programmed.
    pub(crate) fn end_mount(&mut self) -> Result<(), FtlError> {
        assert!(self.mounting, "no mount is in progress");
        self.make_safe()?;
        assert!(
            self.streams
                .iter()
                .all(|stream| stream.open.is_none_or(|open| !open.is_provisional())),
            "a mount ends with uncommitted provisional pages"
        );
        self.mounting = false;
        self.reserved_pages = 0;
        self.set_pair_protection(self.pair_protection);
        self.flash.set_mark(Flags::NONE);
        Ok(())
    }

    /// Returns whether a mount programs its pages now.
    #[inline]
    pub(crate) fn is_mounting(&self) -> bool {
        self.mounting
    }
}
