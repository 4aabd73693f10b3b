//! Where logical pages are on the flash, which older versions of them are left there, and what the
//! pages of a block hold.
//!
//! Invariants: a look reads OOB areas from the store, so it costs no emulated time and no counter.
//! It goes over the flash in slices. While there are requests, it waits as long as each took before
//! the next: they have the lock for half of the time. What moved in between is looked for again.
//! One look at a time.

use super::Volume;
use super::locked::Core;
use super::oob_areas::{Buffers, Found};
use super::shard::Shard;
use ftl_core::{Ftl, FtlError, Lpn};
use ftld_kit::convert::{index, nanos, narrow, to_u32, to_u64};
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::size::parse_size;
use nand_model::{Chip, Pbn, Ppn};
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum of logical pages in one answer.
pub const PLACES_MAX: usize = 4096;
/// Copies that are kept of all wanted pages; the current one of each page comes on top.
const COPIES_MAX: usize = 16_384;
/// Time after which the lock is given back; a run of [`RUN`] pages may be added.
const SLICE: Duration = Duration::from_micros(200);
/// Pages of a block whose OOB areas are read together.
const RUN: u32 = 64;
/// Time for a look at one block, and for the turn to look at all.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often pages are looked for that have moved meanwhile.
const ROUNDS: usize = 4;

/// Shard, block (numbered shard by shard) and page.
pub type Place = (usize, u32, u32);

/// Logical pages and their copies on the flash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The pages in the order of the bytes that were asked for, each once.
    pub pages: Vec<PagePlaces>,
    /// Whether there are more pages, copies or flash than one answer has.
    pub truncated: bool,
    /// The longest time that requests had to wait for this answer, ns.
    pub longest_lock_ns: u64,
}

/// A logical page and its copies on the flash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePlaces {
    /// Number in the device.
    pub lpn: u64,
    /// Version of the content that a read returns; `None` if it is not on the flash.
    pub version: Option<u64>,
    /// Where that content is.
    pub at: Option<Place>,
    /// Whether newer bytes of it wait in the write cache.
    #[serde(default)]
    pub cached: bool,
    /// Whether the look ended before this content was found: it moved while it was looked for, or
    /// waits in a buffer of the scheme.
    #[serde(default)]
    pub unsure: bool,
    /// Copies that no read returns any more, newest first: shard, block, page, version.
    pub dead: Vec<(usize, u32, u32, u64)>,
}

/// Pages of a block of flash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPages {
    /// Number in the device.
    pub block: u32,
    /// The pages in their order.
    pub pages: Vec<FlashPage>,
}

/// A page of flash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashPage {
    /// Number in the block.
    pub page: u32,
    /// `free`, `valid`, `invalid` or `unreadable`.
    pub state: String,
    /// Its role, such as `data` or `map`; `None` without a readable OOB area.
    pub kind: Option<String>,
    /// The logical page, if it has data of one.
    pub lpn: Option<u64>,
    /// Version of its content.
    pub version: Option<u64>,
}

/// A look at one shard.
struct Look {
    shard: usize,
    /// When it ends, found or not.
    until: Instant,
    /// Wanted pages by their number in the shard, with their index in the answer.
    wanted: HashMap<u32, usize>,
    found: Vec<Found>,
    truncated: bool,
    longest: Duration,
}

/// Reads ranges of bytes as `OFFSET+LENGTH,OFFSET+LENGTH`.
///
/// # Errors
/// The text is no such list.
pub fn parse_ranges(text: &str) -> Result<Vec<Range<u64>>, Failure> {
    text.split(',').map(parse_range).collect()
}

/// Reads a range of bytes as `OFFSET+LENGTH`; both may have units, such as `1MiB+64KiB`.
///
/// # Errors
/// The text is no such range.
pub fn parse_range(text: &str) -> Result<Range<u64>, Failure> {
    let parse = || {
        let (offset, bytes) = text.split_once('+')?;
        let (offset, bytes) = (parse_size(offset).ok()?, parse_size(bytes).ok()?);
        Some(offset..offset.checked_add(bytes)?)
    };
    parse().ok_or_else(|| {
        Failure::usage(format!(
            "range {text:?}: write OFFSET+LENGTH in bytes of the device, such as 4096+8192 or 1MiB+64KiB"
        ))
    })
}

impl Volume {
    /// Looks for the logical pages that hold these bytes of the device, and for the copies of each,
    /// for about `patience`. Waits for locks, but holds none for longer than a slice.
    ///
    /// # Errors
    /// A range is empty or leaves the device; the device has failed, or stops.
    pub fn places(&self, ranges: &[Range<u64>], patience: Duration) -> Result<Places, Failure> {
        let _one_at_a_time = self.one_at_a_time()?;
        let until = Instant::now() + patience;
        let (numbers, mut truncated) = self.pages_of(ranges)?;
        let page = u64::from(self.shape.page_bytes);
        let mut wanted = vec![HashMap::new(); self.shards.len()];
        let mut pages = Vec::with_capacity(numbers.len());
        for (i, lpn) in numbers.into_iter().enumerate() {
            let (shard, at) = self.shape.stripes.place(lpn * page);
            wanted[shard].insert(narrow(at / page), i);
            pages.push(PagePlaces {
                lpn,
                ..PagePlaces::default()
            });
        }
        let mut longest = Duration::ZERO;
        for (shard, wanted) in self.shards.iter().zip(wanted) {
            if wanted.is_empty() {
                continue;
            }
            let mut look = Look {
                shard: shard.number,
                until,
                wanted,
                found: Vec::new(),
                truncated: false,
                longest: Duration::ZERO,
            };
            self.look_at(shard, &mut look, &mut pages)?;
            truncated |= look.truncated;
            longest = longest.max(look.longest);
        }
        Ok(Places {
            pages,
            truncated,
            longest_lock_ns: nanos(longest),
        })
    }

    /// Returns the numbers of the pages that hold these bytes, each once, and whether there are
    /// more.
    fn pages_of(&self, ranges: &[Range<u64>]) -> Result<(Vec<u64>, bool), Failure> {
        let (size, page) = (self.shape.size, u64::from(self.shape.page_bytes));
        let (mut pages, mut seen) = (Vec::new(), std::collections::HashSet::new());
        for range in ranges {
            if range.is_empty() || range.end > size {
                return Err(Failure::usage(format!(
                    "bytes {}+{}: not on this device, which has {size} bytes; a range is OFFSET+LENGTH",
                    range.start,
                    range.end.saturating_sub(range.start),
                )));
            }
            for lpn in range.start / page..range.end.div_ceil(page) {
                if seen.contains(&lpn) {
                    continue;
                }
                if pages.len() == PLACES_MAX {
                    return Ok((pages, true));
                }
                seen.insert(lpn);
                pages.push(lpn);
            }
        }
        Ok((pages, false))
    }

    /// Looks for pages of one shard until all are found, or it has taken too long.
    fn look_at(
        &self,
        shard: &Shard,
        look: &mut Look,
        pages: &mut [PagePlaces],
    ) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            self.find_copies(shard, look)?;
            look.found
                .sort_by_key(|copy| (copy.own, copy.ver, copy.pseq));
            self.choose_current(shard, look, pages)?;
            look.found.clear();
            if look.wanted.is_empty() || look.is_late() {
                break;
            }
        }
        // They have moved in each round, or wait in a buffer of the scheme.
        look.truncated |= look.is_late() && !look.wanted.is_empty();
        look.wanted.values().for_each(|i| pages[*i].unsure = true);
        Ok(())
    }

    /// Lists the copies of the wanted pages.
    fn find_copies(&self, shard: &Shard, look: &mut Look) -> Result<(), Failure> {
        let (mut next, mut buffers) = (Some((0, 0)), Buffers::default());
        while let Some(from) = next.filter(|_| !look.is_late()) {
            next = self.slice(shard, look, |core, look, began| {
                let (mut block, mut page) = from;
                while block < core.ftl.chip().geometry().blocks {
                    let frontier = core.ftl.chip().frontier(Pbn::new(block));
                    if page < frontier {
                        let run = page..frontier.min(page + RUN);
                        page = run.end;
                        buffers.read(core.ftl.chip_mut(), Pbn::new(block), run)?;
                        look.keep(&*core.ftl, &buffers);
                    } else {
                        (block, page) = (block + 1, 0);
                    }
                    if began.elapsed() >= SLICE {
                        return Ok(Some((block, page)));
                    }
                }
                Ok(None)
            })?;
        }
        look.truncated |= next.is_some();
        Ok(())
    }

    /// Chooses the current copy of each wanted page from those that are still there, and takes the
    /// pages off the list that need no other look.
    fn choose_current(
        &self,
        shard: &Shard,
        look: &mut Look,
        pages: &mut [PagePlaces],
    ) -> Result<(), Failure> {
        let page_bytes = u64::from(self.shape.page_bytes);
        let mut left: Vec<_> = look.wanted.iter().map(|(own, i)| (*own, *i)).collect();
        left.sort_unstable();
        let found = std::mem::take(&mut look.found);
        let mut buffers = Buffers::default();
        while !left.is_empty() {
            left = self.slice(shard, look, |core, look, began| {
                while let Some((own, i)) = left.pop() {
                    let first = found.partition_point(|copy| copy.own < own);
                    let all = found[first..].iter().take_while(|copy| copy.own == own);
                    let mut copies = Vec::new();
                    for copy in all {
                        if buffers.has(core.ftl.chip_mut(), copy)? {
                            copies.push(*copy);
                        }
                    }
                    let is_mapped = core.ftl.is_mapped(Lpn::new(own))?;
                    let is_current = |copy: &&Found| is_mapped && core.ftl.is_valid(copy.at);
                    let current = copies.iter().rev().find(is_current).copied();
                    let first = u64::from(own) * page_bytes;
                    let cache = core.cache.as_deref();
                    let page = &mut pages[i];
                    page.cached =
                        cache.is_some_and(|cache| cache.covers_any(first, first + page_bytes));
                    let numbers = look.numbers(core.ftl.chip());
                    page.version = current.map(|copy| copy.ver);
                    page.at = current.map(|copy| numbers(copy.at));
                    let dead = copies.iter().rev().filter(|copy| Some(**copy) != current);
                    page.dead = dead
                        .map(|copy| {
                            let (shard, block, page) = numbers(copy.at);
                            (shard, block, page, copy.ver)
                        })
                        .collect();
                    // In the write cache alone, or in a buffer of the scheme: not on flash.
                    if current.is_some() || !is_mapped {
                        look.wanted.remove(&own);
                    }
                    if began.elapsed() >= SLICE {
                        break;
                    }
                }
                Ok(std::mem::take(&mut left))
            })?;
        }
        Ok(())
    }

    /// Does a part of a look under the lock, and waits as long as it took.
    fn slice<R>(
        &self,
        shard: &Shard,
        look: &mut Look,
        part: impl FnOnce(&mut Core, &mut Look, Instant) -> Result<R, FtlError>,
    ) -> Result<R, Failure> {
        let mut guard = shard.lock();
        let began = Instant::now();
        let done = self.run(&mut guard, false, |core| part(core, look, began));
        drop(guard);
        let took = began.elapsed();
        look.longest = look.longest.max(took);
        if self.unlocked.counters.depth() > 0 {
            std::thread::sleep(took);
        }
        done.map_err(|error| match self.failure() {
            Some(why) => Failure::failed(format!("the device has failed ({why}); restart it")),
            None => Failure::new(Exit::NotRunning, format!("the device stops: {error}")),
        })
    }

    /// Returns what the pages of a block hold. Blocks are numbered shard by shard.
    ///
    /// # Errors
    /// There is no such block; the device has failed, or stops.
    pub fn block_pages(&self, number: u32) -> Result<BlockPages, Failure> {
        let _one_at_a_time = self.one_at_a_time()?;
        let geometry = self.geometry().ok_or_else(|| {
            Failure::new(
                Exit::NotRunning,
                "the device stops and has no blocks to show",
            )
        })?;
        let shard = self.shards.get(index(number / geometry.blocks));
        let shard = shard.ok_or_else(|| {
            let blocks = u64::from(geometry.blocks) * to_u64(self.shards.len());
            Failure::usage(format!(
                "block {number}: the device has {blocks}, numbered from 0"
            ))
        })?;
        let block = Pbn::new(number % geometry.blocks);
        let page_bytes = u64::from(self.shape.page_bytes);
        let lpn = |own: u32| {
            let at = u64::from(own) * page_bytes;
            self.shape.stripes.offset_of(shard.number, at) / page_bytes
        };
        let mut look = Look {
            shard: shard.number,
            until: Instant::now() + PATIENCE,
            wanted: HashMap::new(),
            found: Vec::new(),
            truncated: false,
            longest: Duration::ZERO,
        };
        let (mut pages, mut buffers) = (Vec::new(), Buffers::default());
        while to_u32(pages.len()) < geometry.pages_per_block {
            let from = to_u32(pages.len());
            let to = geometry.pages_per_block.min(from + RUN);
            let run = self.slice(shard, &mut look, |core, _, _| {
                buffers.read(core.ftl.chip_mut(), block, from..to)?;
                let run = (from..to).map(|page| {
                    let at = geometry.page(block, page);
                    buffers.page(page, at, core.ftl.is_valid(at), lpn)
                });
                Ok(run.collect::<Vec<_>>())
            })?;
            pages.extend(run);
        }
        Ok(BlockPages {
            block: number,
            pages,
        })
    }

    fn one_at_a_time(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let looking = self.unlocked.looking.try_lock_for(PATIENCE);
        looking.ok_or_else(|| Failure::failed("others look at the flash; ask again"))
    }

    pub(super) fn geometry(&self) -> Option<nand_model::Geometry> {
        let guard = self.shards[0].lock();
        Some(*guard.as_ref()?.ftl.chip().geometry())
    }
}

impl Look {
    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Keeps the copies of wanted pages among those that were read.
    fn keep(&mut self, ftl: &dyn Ftl, read: &Buffers) {
        for (at, oob) in read.records() {
            let is_wanted = oob.tag.role.is_host_data() && self.wanted.contains_key(&oob.tag.lpn);
            if !is_wanted {
                continue;
            }
            if self.found.len() >= COPIES_MAX && !ftl.is_valid(at) {
                self.truncated = true;
                continue;
            }
            self.found.push(Found {
                own: oob.tag.lpn,
                ver: oob.tag.ver,
                pseq: oob.pseq,
                at,
            });
        }
    }

    /// Returns the numbers of a page in the device.
    fn numbers(&self, chip: &Chip) -> impl Fn(Ppn) -> Place + use<> {
        let (geometry, shard) = (*chip.geometry(), self.shard);
        move |at| {
            let block = to_u32(shard) * geometry.blocks + geometry.block_of(at).raw();
            (shard, block, geometry.offset_of(at))
        }
    }
}
