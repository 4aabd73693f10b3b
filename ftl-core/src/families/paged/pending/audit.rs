//! The check of pending entries: the counts against a fresh count.

use super::table::Pending;
use std::collections::{BTreeMap, BTreeSet};

impl Pending {
    /// Compares the counts with the entries. Returns one line per difference.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        // Mapping pages of the dirty entries, by block.
        let mut by_block: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut dirty = vec![0; self.lists.len()];
        let (mut entries, mut tombstones) = (0, 0);
        for (lpn, entry) in self.entries() {
            let vtpn = lpn / self.per_page;
            entries += 1;
            if self.get(lpn) != Some(entry) {
                wrong.push(format!(
                    "the bit of logical page {lpn}, which has an entry, is not set"
                ));
            }
            tombstones += u32::from(entry.ppn().is_none());
            dirty[vtpn as usize] += u32::from(entry.update);
            match entry.ppn() {
                Some(ppn) if entry.update => {
                    let block = self.split.block_of(ppn);
                    by_block.entry(block.raw()).or_default().push(vtpn);
                }
                None if !entry.update => {
                    wrong.push(format!("tombstone of logical page {lpn} is not dirty"));
                }
                _ => {}
            }
        }
        if (entries, tombstones) != (self.entries, self.tombstones) {
            wrong.push(format!(
                "{entries} entries and {tombstones} tombstones exist, {} and {} are counted",
                self.entries, self.tombstones
            ));
        }
        let listed: Vec<_> = (self.blocks())
            .map(|(block, buffer)| (buffer.epoch, block.raw()))
            .collect();
        if !listed.is_sorted() {
            wrong.push(format!("blocks by epoch are listed as {listed:?}"));
        }
        for (block, buffer) in self.blocks() {
            let vtpns = by_block.remove(&block.raw()).unwrap_or_default();
            let cost = vtpns.iter().collect::<BTreeSet<_>>().len() as u32;
            let counted = buffer.known_cost().unwrap_or(cost);
            if (vtpns.len() as u32, cost) != (buffer.dirty(), counted) {
                wrong.push(format!(
                    "block {block}: {} dirty entries of {cost} mapping pages, but {} of {counted} are counted",
                    vtpns.len(),
                    buffer.dirty()
                ));
            }
        }
        if let Some(block) = by_block.keys().next() {
            wrong.push(format!(
                "block {block} has dirty entries, but is no buffer block"
            ));
        }
        for (vtpn, (dirty, list)) in (0..).zip(dirty.iter().zip(&self.lists)) {
            let mut order: Vec<u16> = list.changes().map(|change| change.order).collect();
            order.sort_unstable();
            if *dirty != list.dirty() || !order.iter().copied().eq(0..list.dirty() as u16) {
                wrong.push(format!(
                    "mapping page {vtpn}: {dirty} entries are dirty, {} are counted, in the order {order:?}",
                    list.dirty()
                ));
            }
        }
        wrong
    }
}
