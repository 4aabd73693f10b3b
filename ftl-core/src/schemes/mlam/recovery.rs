//! Mount: the newest version of every page by all records ([`crate::recovery`]); then the superblocks, by the serial number that their pages
//! carry; then for every quarter the place where most of its pages are. The others are buffered pages that are on flash.

use super::mapping::Place;
use super::shape::QUARTERS;
use super::{COMMON, Mlam, SPARE_BYTES};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::{COUNTER_FOUND_MAX, UNMAPPED};
use crate::gc::Collect;
use crate::recovery::{CleanStop, Newest, find_newest, scan_heads};
use nand_model::{Cause, Pbn, Ppn, Store};
use std::collections::BTreeMap;

impl<S: Store> Mlam<S> {
    /// Finds what an earlier run left.
    pub(super) fn mount(&mut self) -> Result<(), FtlError> {
        self.space.flash.begin(0);
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let pages = self.logical_pages;
        let stop = CleanStop::load(&mut self.space, &mut self.checkpoints, &heads, pages, &mut scanned)?;
        self.end_step("load checkpoint");
        let free = stop.as_ref().map(CleanStop::free);
        let (space, trims) = (&mut self.space, &mut self.trims);
        let mut newest = find_newest(space, &heads, trims, &self.checkpoints, pages, free.as_ref(), &mut scanned)?;
        self.end_step("scan pages");
        self.next_ver = newest.next_ver;
        self.stats.mount.pages_scanned = scanned;
        self.stats.mount.clean = stop.is_some();
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        match stop {
            Some(stop) => {
                self.next_ver = self.next_ver.max(stop.next_ver);
                stop.resume(&mut self.space);
                self.adopt(&newest)?;
            }
            None => self.put_right(&mut newest)?,
        }
        // From now on superblocks are collected together.
        let blocks: Vec<Pbn> = self.superblocks.iter().flat_map(|(_, superblock)| superblock.blocks()).collect();
        for block in blocks {
            self.space.table.withdraw(block);
        }
        self.stats.mount.pages_discarded = newest.discarded;
        self.end_step("rebuild tables");
        Ok(())
    }

    /// After a cut: rescues, and collects until the free blocks are back at their usual number.
    fn put_right(&mut self, newest: &mut Newest) -> Result<(), FtlError> {
        self.space.begin_mount();
        self.mounting = true;
        let rescued = newest.rescue(&mut self.space, &mut self.trims, COMMON);
        self.adopt(newest)?;
        match rescued.and_then(|()| self.collect_until(self.gc.threshold + 1)) {
            // Reading goes on.
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            other => other?,
        }
        self.mounting = false;
        self.space.end_mount()
    }

    fn end_step(&mut self, name: &'static str) {
        let before = self.stats.mount.total_ns();
        let now = self.space.flash.now();
        self.stats.mount.steps.push((name, now - before));
    }

    fn adopt(&mut self, newest: &Newest) -> Result<(), FtlError> {
        self.adopt_blocks()?;
        for logical in 0..self.shape.superblocks(self.logical_pages) {
            self.adopt_superblock(logical, newest);
        }
        let empty = |psb: &u32| self.superblocks.get(*psb).held().next().is_none();
        let all: Vec<u32> = self.superblocks.iter().map(|(psb, _)| psb).collect();
        for psb in all.into_iter().filter(empty).collect::<Vec<_>>() {
            // Their live pages are buffered; the blocks are collectable already.
            self.superblocks.dissolve(psb);
        }
        Ok(())
    }

    /// Puts blocks together that carry the same serial number, the older ones first: of two that claim to be the same chip's, one is a
    /// copy that was not finished.
    fn adopt_blocks(&mut self) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let is_full = |block: &Pbn| self.space.table.state(*block) == State::Full && self.space.table.valid(*block) > 0;
        let mut blocks: Vec<Pbn> = geometry.all_blocks().filter(is_full).collect();
        blocks.sort_by_key(|block| self.space.table.epoch(*block));
        let mut by_serial: BTreeMap<u64, u32> = BTreeMap::new();
        let mut live = Vec::new();
        for block in blocks {
            live.clear();
            self.space.table.live_pages(block, &mut live);
            let Some((serial, chip)) = self.serial_of(live[0])? else { continue };
            let superchip = self.shape.superchip_of(geometry.die_of(block), chip);
            let psb =
                *by_serial.entry(serial).or_insert_with(|| self.superblocks.open(self.shape.chips, superchip, serial));
            if self.superblocks.block(psb, chip).is_none() {
                self.superblocks.set_block(psb, chip, block);
            }
        }
        Ok(())
    }

    /// The superblock that a page was written for, and its chip there.
    fn serial_of(&mut self, ppn: Ppn) -> Result<Option<(u64, u32)>, FtlError> {
        let Some((oob, spare)) = self.space.flash.read_spare(ppn, Cause::Recovery)? else { return Ok(None) };
        let mut bytes = [0; 8];
        bytes[..SPARE_BYTES].copy_from_slice(&spare[..SPARE_BYTES]);
        let serial = u64::from_le_bytes(bytes);
        let is_regular = oob.tag.role.is_host_data() && oob.tag.lpn < self.logical_pages && serial <= COUNTER_FOUND_MAX;
        Ok(is_regular.then(|| (serial, self.shape.spot(oob.tag.lpn).chip)))
    }

    fn adopt_superblock(&mut self, logical: u32, newest: &Newest) {
        let mut found = Vec::new();
        for quarter in logical * QUARTERS..(logical + 1) * QUARTERS {
            if let Some(place) = self.adopt_quarter(quarter, newest) {
                found.push((quarter, place));
            }
        }
        self.remap(logical, &found);
    }

    /// A quarter lies where most of its pages do; of equal places in the youngest superblock.
    fn adopt_quarter(&mut self, quarter: u32, newest: &Newest) -> Option<Place> {
        let first = quarter * self.shape.quarter_pages();
        let end = (first + self.shape.quarter_pages()).min(self.logical_pages);
        let on_flash: Vec<(u32, Ppn)> = (first..end)
            .map(|lpn| (lpn, newest.map[lpn as usize]))
            .filter(|(_, ppn)| *ppn != UNMAPPED)
            .map(|(lpn, ppn)| (lpn, Ppn::new(ppn)))
            .collect();
        let mut counts: BTreeMap<Place, u32> = BTreeMap::new();
        for (lpn, ppn) in &on_flash {
            if let Some(place) = self.place_by_position(*lpn, *ppn) {
                *counts.entry(place).or_default() += 1;
            }
        }
        let most = counts.into_iter().max_by_key(|(place, pages)| (*pages, self.superblocks.get(place.psb).serial));
        if let Some((place, pages)) = most {
            self.superblocks.hold(place, quarter, pages);
        }
        let place = most.map(|(place, _)| place);
        for (lpn, ppn) in on_flash {
            if place.is_none() || self.place_by_position(lpn, ppn) != place {
                self.buffer.moved(lpn, ppn.raw());
            }
        }
        place
    }
}
