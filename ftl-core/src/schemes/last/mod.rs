//! LAST: separate log blocks for sequential writes, for hot pages, and for the others.
//!
//! Lee, Shin, Kim, Kim: *LAST: Locality-Aware Sector Translation for NAND Flash Memory-Based
//! Storage Systems*, ACM SIGOPS Operating Systems Review 42(6), 2008. Long requests are sequential:
//! several logical blocks may each have a log block for them. It becomes the data block with few
//! copies or none. All other overwrites go to random log blocks of any logical blocks. A page that
//! is overwritten again soon is hot, and goes to another partition than the cold ones. All pages of
//! a hot block become invalid together, so that it costs one erase. The victim among the cold ones
//! is the block whose merge is cheapest. If there are too many hot blocks, the valid pages of the
//! oldest are copied to the cold ones. [`crate::families::hybrid`] implements all that, with a log
//! stream per sequential block and one per partition. This module contains the detection of
//! sequential and hot pages, and the partition sizes.
//!
//! RAM: 4 bytes per logical block and 8 per page of a log block, for its physical page and its
//! write time. The report lists the allocated RAM alongside: times only of the writes that may
//! still count.
//!
//! Deviations, and choices where the paper is silent:
//! - The original was not available; this follows descriptions in later papers.
//! - A page is hot if its previous content is still in a log block and was among the last `n`
//!   writes to random log blocks. `n` is the number of pages in the hot partition.
//! - A request is sequential from `last.large_request` bytes on, if it begins at the first page of
//!   a logical block or where that one's log block ends. Up to an eighth of the log blocks may be
//!   sequential, `last.sequential` at most; the one written longest ago is merged for the next.
//! - The hot partition begins with half of the random log blocks. A reclamation grows it by a block
//!   if more than 0.2 of its pages and less than 0.9 of the cold ones are valid; else it shrinks.
//! - The cheapest merge is that of the fewest logical blocks, then of the fewest pages.
//! - MLC support, trims, mount by scan, wear levelling, refresh and scrub are additions. A mount
//!   does not restore partitions: pages found in log blocks are cold.
//!
//! Invariants and power failure: [`crate::families::hybrid`].

#[cfg(test)]
mod tests;

use crate::addr::{Lbn, Lpn};
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::int::{index, to_u32, to_u64};
use crate::ram::{hash_bytes, hash_most, vec_bytes, vec_most};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Geometry, Pbn};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Last::NAME,
    title: "LAST: log blocks for sequential, hot and cold writes",
    about: "There are three kinds of log blocks. Those for sequential writes become data blocks with few copies. Those for hot \
            pages: all pages of a block become invalid together, so it costs only an erase. Of the others, the block with the \
            cheapest merge is merged.",
    paper: "Lee, Shin, Kim, Kim: LAST, ACM SIGOPS OSR 2008",
    mapping: "block; page in log blocks: sequential, hot, cold",
    ram: "4 B per logical block + 8 B per page of a log block",
    fidelity: 'B',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "last.large_request",
            help: "bytes from which a request counts as sequential (default 8192)",
        },
        ParamDoc {
            key: "last.sequential",
            help: "maximum number of sequential log blocks, 1 to 4096, and at most an eighth of all log blocks (default 8)",
        },
    ],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

/// Log streams of the partitions; higher ones are sequential, one logical block each.
const HOT: LogStream = 0;
const COLD: LogStream = 1;
const FIRST_SEQUENTIAL: LogStream = 2;

/// Valid share of the hot pages above which their partition grows, and valid share of the cold
/// pages from which on it does not.
const HOT_USE: f64 = 0.2;
const COLD_USE: f64 = 0.9;

/// Largest value of `last.sequential`. ROSE's authors give LAST an eighth of 16,384 log blocks.
const MAX_SEQUENTIAL: usize = 4096;

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let policy = Last::new(&config.params, chip.geometry())?;
    Ok(Box::new(HybridFtl::create(chip, config, start, policy)?))
}

/// A sequential log block.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Its logical block.
    owner: Option<Lbn>,
    /// Its last write, in sequential writes.
    used: u64,
}

/// The last writes to random log blocks.
#[derive(Default)]
struct Recent {
    /// Pages in write order.
    written: VecDeque<Lpn>,
    /// By page: number of its latest write, counted from the first ever.
    latest: FxHashMap<Lpn, u64>,
    writes: u64,
}

impl Recent {
    fn contains(&self, lpn: Lpn) -> bool {
        self.latest.contains_key(&lpn)
    }

    /// Adds a write; keeps the last `limit` of all.
    fn note(&mut self, lpn: Lpn, limit: usize) {
        self.written.push_back(lpn);
        self.latest.insert(lpn, self.writes);
        self.writes += 1;
        debug_assert!(
            self.latest.len() <= self.written.len(),
            "{} pages have a latest write, but only {} writes are listed",
            self.latest.len(),
            self.written.len()
        );
        while self.written.len() > limit {
            let number = self.writes - to_u64(self.written.len());
            let lpn = self
                .written
                .pop_front()
                .expect("the list is longer than the limit");
            if self.latest.get(&lpn) == Some(&number) {
                self.latest.remove(&lpn);
            }
        }
    }
}

/// LAST's policy.
struct Last {
    /// Minimum size of a sequential request, in pages.
    large: u32,
    pages_per_block: u32,
    slots: Vec<Slot>,
    /// Pages written sequentially so far.
    sequential: u64,
    /// Slots by owner.
    slot_of: FxHashMap<Lbn, usize>,
    /// Maximum number of hot log blocks, once the total maximum is known.
    hot_quota: Option<usize>,
    recent: Recent,
}

/// Returns the valid share of the pages written to a log stream.
fn utilisation(stream: LogStream, view: &View) -> f64 {
    let blocks = view
        .logs
        .of_stream(stream)
        .iter()
        .filter_map(|block| view.logs.get(*block));
    let (valid, written) = blocks.fold((0, 0), |(valid, written), log| {
        (valid + log.valid, written + log.written)
    });
    f64::from(valid) / f64::from(written.max(1))
}

impl Last {
    fn new(params: &Params, geometry: &Geometry) -> Result<Last, FtlError> {
        let sequential = params.within("last.sequential", 8, 1..=MAX_SEQUENTIAL)?;
        Ok(Last {
            large: params
                .get("last.large_request", 8192u32)?
                .div_ceil(geometry.page_bytes),
            pages_per_block: geometry.pages_per_block,
            slots: vec![Slot::default(); sequential],
            sequential: 0,
            slot_of: FxHashMap::default(),
            hot_quota: None,
            recent: Recent::default(),
        })
    }

    /// Returns the number of log blocks that may be sequential.
    fn slots_of(&self, limit: usize) -> usize {
        self.slots.len().min((limit / 8).max(1))
    }

    /// Returns the number of blocks for both partitions together.
    fn random_limit(&self, limit: usize) -> usize {
        (limit - self.slots_of(limit)).max(1)
    }

    /// Returns the target of a sequential page, or `None` if the page is not sequential.
    fn route_sequential(&mut self, write: &Write, view: &View) -> Option<Route> {
        if write.request < self.large {
            return None;
        }
        let slots = self.slots_of(view.limit);
        assert!(
            write.offset < self.pages_per_block,
            "offset {} is outside the logical block",
            write.offset
        );
        let stream = |slot: usize| FIRST_SEQUENTIAL + slot as LogStream;
        let written = |slot: usize| view.logs.newest(stream(slot)).map(|log| log.written);
        let own = self.slot_of.get(&write.lbn).copied();
        let own = own.filter(|slot| *slot < slots && written(*slot).is_some());
        let slot = match own {
            Some(slot) if written(slot) == Some(write.offset) => slot,
            Some(slot) if write.offset == 0 => return Some(Route::MergeNewest(stream(slot))),
            None if write.offset == 0 => match (0..slots).find(|slot| written(*slot).is_none()) {
                Some(slot) => slot,
                None => {
                    let oldest = (0..slots).min_by_key(|slot| self.slots[*slot].used)?;
                    return Some(Route::MergeNewest(stream(oldest)));
                }
            },
            _ => return None,
        };
        let owner = Some(write.lbn);
        if self.slots[slot].owner != owner {
            let previous = self.slots[slot].owner;
            if let Some(previous) = previous.filter(|lbn| self.slot_of.get(lbn) == Some(&slot)) {
                self.slot_of.remove(&previous);
            }
            self.slot_of.insert(write.lbn, slot);
        }
        self.sequential += 1;
        self.slots[slot] = Slot {
            owner,
            used: self.sequential,
        };
        Some(Route::Log(stream(slot)))
    }

    /// Returns the maximum number of hot blocks, which leaves some to the cold partition.
    fn most_hot(&self, limit: usize) -> usize {
        self.random_limit(limit).saturating_sub(2)
    }

    /// Returns the hot quota after a reclamation. It is at least 1 if possible, because an empty
    /// partition has no measurable utilisation.
    fn adapt(&self, quota: usize, view: &View) -> usize {
        let most = self.most_hot(view.limit);
        let grows = utilisation(HOT, view) > HOT_USE && utilisation(COLD, view) < COLD_USE;
        if grows {
            quota + 1
        } else {
            quota.saturating_sub(1)
        }
        .clamp(most.min(1), most)
    }

    /// Returns a hot block without valid pages, which costs only an erase.
    fn hot_block_without_valid_pages(view: &View) -> Option<Pbn> {
        let is_empty = |block: &&Pbn| {
            view.logs
                .get(**block)
                .is_some_and(|log| log.valid == 0 && view.is_full(**block))
        };
        view.logs.of_stream(HOT).iter().find(is_empty).copied()
    }

    fn oldest_hot(view: &View) -> Option<Pbn> {
        view.logs
            .of_stream(HOT)
            .iter()
            .find(|block| view.is_full(**block))
            .copied()
    }

    /// Returns the cold block whose merge is cheapest.
    fn cheapest_cold(view: &View) -> Option<Pbn> {
        let is_cold =
            |log: &&LogBlock| matches!(log.stream, Some(COLD) | None) && view.is_full(log.block);
        let cost = |log: &&LogBlock| (log.associated.len(), log.valid);
        view.logs
            .iter()
            .filter(is_cold)
            .min_by_key(cost)
            .map(|log| log.block)
    }
}

impl Policy for Last {
    const NAME: &'static str = "last";

    fn shared_streams(&self) -> u32 {
        FIRST_SEQUENTIAL + to_u32(self.slots.len())
    }

    fn route(&mut self, write: &Write, view: &View) -> Route {
        if let Some(route) = self.route_sequential(write, view) {
            return route;
        }
        let most = self.most_hot(view.limit);
        let quota = self
            .hot_quota
            .map_or(most.div_ceil(2), |quota| quota.min(most));
        self.hot_quota = Some(quota);
        let lpn = write.lbn.page(self.pages_per_block, write.offset);
        let is_hot = quota > 0 && self.recent.contains(lpn) && view.logs.ppn_of(lpn).is_some();
        self.recent.note(lpn, quota * index(self.pages_per_block));
        Route::Log(if is_hot { HOT } else { COLD })
    }

    fn select_reclaim(&mut self, stream: LogStream, view: &View) -> Option<LogReclaim> {
        if stream >= FIRST_SEQUENTIAL {
            return if view.logs.len() >= view.limit {
                self.victim(view).map(LogReclaim::Merge)
            } else {
                None
            };
        }
        let quota = self.hot_quota.unwrap_or(0);
        let blocks = |stream| view.logs.of_stream(stream).len();
        let sequential: usize = (FIRST_SEQUENTIAL..self.shared_streams()).map(blocks).sum();
        let all_used = view.logs.len() - sequential >= self.random_limit(view.limit);
        let too_hot = stream == HOT && blocks(HOT) >= quota;
        if !all_used && !too_hot {
            return None;
        }
        self.hot_quota = Some(self.adapt(quota, view));
        let empty = Self::hot_block_without_valid_pages(view).map(LogReclaim::Merge);
        match all_used {
            true => empty.or_else(|| self.victim(view).map(LogReclaim::Merge)),
            false => {
                empty.or_else(|| Self::oldest_hot(view).map(|block| LogReclaim::Move(block, COLD)))
            }
        }
    }

    fn victim(&mut self, view: &View) -> Option<Pbn> {
        let any = || {
            view.logs
                .iter()
                .find(|log| !view.is_emptied(log.block))
                .map(|log| log.block)
        };
        let cold = || Self::cheapest_cold(view);
        Self::hot_block_without_valid_pages(view)
            .or_else(cold)
            .or_else(|| Self::oldest_hot(view))
            .or_else(any)
    }

    fn may_become_data(&self, block: &LogBlock) -> bool {
        block
            .stream
            .is_some_and(|stream| stream >= FIRST_SEQUENTIAL)
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64 {
        4 * logical_blocks + 8 * log_blocks * pages_per_block
    }

    fn bytes(&self) -> u64 {
        let Recent {
            written, latest, ..
        } = &self.recent;
        vec_bytes::<Slot>(self.slots.capacity())
            + hash_bytes::<Lbn, usize>(self.slot_of.capacity())
            + vec_bytes::<Lpn>(written.capacity())
            + hash_bytes::<Lpn, u64>(latest.capacity())
    }

    fn bytes_most(&self, _: u64, log_pages: u64) -> u64 {
        let slots = self.slots.capacity();
        vec_bytes::<Slot>(slots)
            + hash_most::<Lbn, usize>(to_u64(slots))
            + vec_most::<Lpn>(log_pages)
            + hash_most::<Lpn, u64>(log_pages)
    }
}
