//! Opening and closing blocks of streams.

use super::state::{NO_BLOCK, Space};
use super::streams::{NEVER, OpenBlock, StreamId};
use crate::block_table::State;
use crate::error::FtlError;
use crate::int::{index, to_u32};
use nand_model::{Cause, NandError, Pbn};

impl Space {
    pub(super) fn close(&mut self, stream: StreamId) {
        if let Some(open) = self.streams[stream].open.take() {
            assert!(
                !open.is_provisional(),
                "block {} is closed with uncommitted provisional pages",
                open.block
            );
            self.table.set_state(open.block, State::Full);
            self.note_sealed(open.block, stream);
            // The host may have refused the first page: the family may not have listed the block. A
            // block in SLC mode is folded at once; the family prepares it.
            let is_slc = self.flash.chip().is_slc(open.block);
            if self.streams[stream].spec.collectable || open.next == 0 || is_slc {
                self.table.set_collectable(open.block);
            }
        }
    }

    pub(super) fn abandon_failing(&mut self, stream: StreamId) {
        if let Some(open) = self.streams[stream].open.take() {
            self.table.set_state(open.block, State::Full);
            self.note_sealed(open.block, stream);
            self.failing.push(open.block);
            self.note_bad(open.block);
        }
    }

    pub(super) fn open_new(&mut self, stream: StreamId) -> Result<(), FtlError> {
        self.seal(stream)?;
        let spec = self.streams[stream].spec;
        let worn = std::mem::take(&mut self.streams[stream].for_cold);
        let die = self.streams[stream].die;
        let step = u32::from(self.streams[stream].die_step);
        // The most worn block of the device, whatever its die.
        let place = match self.place_of_next(stream) {
            (die, plane) if !worn || step == 0 => (die, plane.filter(|_| !worn)),
            _ => (None, None),
        };
        let block = match self.allocate_slc_block(spec.in_slc, place)? {
            Some(block) => block,
            None => self.allocate_block(worn, place)?,
        };
        self.streams[stream].die = die.map(|die| self.geometry().die_after(die, step));
        assert_eq!(
            self.table.state(block),
            State::Free,
            "block {block} of the pool is not free"
        );
        assert_eq!(
            self.flash.chip().frontier(block),
            0,
            "pages are programmed in block {block}, which is opened"
        );
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        self.table.set_open(block, spec.role, epoch);
        self.stream_of_block[block.index()] = to_u32(stream);
        let chip = self.flash.chip();
        let (is_slc, end) = (chip.is_slc(block), chip.pages_in(block));
        self.streams[stream].open = Some(OpenBlock::new((block, is_slc), epoch, 0, end));
        Ok(())
    }

    /// Takes an erased block of the region if one is `wanted` and there is any.
    fn allocate_slc_block(
        &mut self,
        wanted: bool,
        place: (Option<u32>, Option<u32>),
    ) -> Result<Option<Pbn>, FtlError> {
        while wanted && let Some((block, confirmed)) = self.take_slc(place) {
            if confirmed || self.erase_again(block)? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Erases a free block whose last erase may not have ended. Returns whether it is erased; if
    /// not, the block is bad.
    fn erase_again(&mut self, block: Pbn) -> Result<bool, FtlError> {
        match self.flash.erase(block, Cause::Recovery) {
            Ok(()) => {
                self.note_erased(block);
                Ok(true)
            }
            Err(NandError::EraseFailed(_)) => {
                self.set_bad(block);
                Ok(false)
            }
            Err(other) => {
                let erases = self.flash.chip().erase_count(block);
                self.pool_of(block).put(block, erases, false);
                Err(other.into())
            }
        }
    }

    /// Takes the least or the most worn free block, of this die and this plane if they have any.
    pub(super) fn allocate_block(
        &mut self,
        worn: bool,
        place: (Option<u32>, Option<u32>),
    ) -> Result<Pbn, FtlError> {
        loop {
            if self.free_blocks() == 0 {
                self.erase_released_or_fail()?;
                continue;
            }
            let (block, confirmed) = self.pool.take(worn, place).expect("a block is free");
            if confirmed || self.erase_again(block)? {
                return Ok(block);
            }
        }
    }

    /// Erases released blocks after failed erases emptied the pool: the caller ensured the blocks
    /// that it takes, but did not expect these failures.
    #[cold]
    pub(super) fn erase_released_or_fail(&mut self) -> Result<(), FtlError> {
        self.pad_released()?;
        if self.erase_released(Cause::Gc)? > 0 || self.borrow_kept_blocks() {
            Ok(())
        } else {
            Err(NO_BLOCK)
        }
    }

    /// Closes the stream's open block, if any; its remaining pages stay unused.
    pub(crate) fn seal(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.streams[stream]
            .open
            .as_ref()
            .is_some_and(OpenBlock::is_provisional)
        {
            self.make_stream_safe(stream)?;
        }
        self.close(stream);
        Ok(())
    }

    /// Closes this block, if it is open.
    pub(crate) fn seal_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        match self.table.state(block) {
            State::Open => self.seal(index(self.stream_of_block[block.index()])),
            _ => Ok(()),
        }
    }

    /// Moves the open block of one stream to another stream, which has none.
    pub(crate) fn hand_over(&mut self, from: StreamId, to: StreamId) {
        assert!(
            self.streams[to].open.is_none(),
            "stream {to} already has an open block"
        );
        assert_ne!(
            from, to,
            "stream {from} hands its open block over to itself"
        );
        let open = self.streams[from]
            .open
            .take()
            .expect("the stream has an open block");
        self.stream_of_block[open.block.index()] = to_u32(to);
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        let oldest = open.oldest_unsafe(pairs);
        self.streams[to].open = Some(open);
        if self.may_be_unsafe && oldest < NEVER {
            self.streams[to].listed = true;
            self.is_unsafe.put(oldest, to);
        }
    }

    /// Makes the stream open a worn block next, for cold data.
    pub(crate) fn use_worn_block(&mut self, stream: StreamId) -> Result<(), FtlError> {
        self.streams[stream].for_cold = true;
        self.seal(stream)
    }
}
