//! A scheme of another crate with its map on flash passes the batteries.

use ftl_core::author::{CachedMapScheme, Device, MapCache, MapPage};
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Lpn, Params};
use ftld_battery::{Budget, Share, judge_within};
use nand_model::Ppn;
use std::collections::{HashMap, VecDeque};

/// The youngest entries, in the order in which they were added; a miss also loads the next page.
struct Youngest {
    entries: HashMap<Lpn, Option<Ppn>>,
    order: VecDeque<Lpn>,
    most: usize,
}

impl Youngest {
    fn add(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        if self.entries.insert(lpn, ppn).is_none() {
            self.order.push_back(lpn);
        }
    }
}

impl MapCache for Youngest {
    fn new(device: &Device, _: &Params) -> Result<Self, FtlError> {
        Ok(Youngest {
            entries: HashMap::new(),
            order: VecDeque::new(),
            most: device.logical_pages as usize / 16,
        })
    }

    fn get(&mut self, lpn: Lpn) -> Option<Option<Ppn>> {
        self.peek(lpn)
    }

    fn peek(&self, lpn: Lpn) -> Option<Option<Ppn>> {
        self.entries.get(&lpn).copied()
    }

    fn load(&mut self, page: &MapPage, lpn: Lpn, _: u32) {
        for lpn in [lpn, lpn.plus(1)] {
            if page.contains(lpn) && !self.entries.contains_key(&lpn) {
                self.add(lpn, page.get(lpn));
            }
        }
    }

    fn insert(&mut self, lpn: Lpn, ppn: Ppn) {
        self.add(lpn, Some(ppn));
    }

    fn update(&mut self, lpn: Lpn, ppn: Option<Ppn>) -> bool {
        let entry = self.entries.get_mut(&lpn);
        entry.map(|entry| *entry = ppn).is_some()
    }

    fn evict(&mut self) -> Option<Lpn> {
        let lpn = match self.order.len() > self.most {
            true => self.order.pop_front(),
            false => None,
        };
        self.entries.remove(&lpn?);
        lpn
    }

    fn bytes(&self) -> (u64, u64) {
        let entries = self.entries.len() as u64;
        (8 * entries, 32 * entries)
    }
}

struct YoungestMap;

impl CachedMapScheme for YoungestMap {
    const NAME: &'static str = "youngest";
    type Cache = Youngest;
}

static SCHEME: Scheme = Scheme::of_cached_map::<YoungestMap>();

#[test]
fn cached_map_passes_every_case() {
    let budget = Budget {
        share: Share { taken: 1, of: 20 },
        ..Budget::default()
    };
    let score = judge_within(&SCHEME, &budget);
    assert!(score.is_perfect(), "\n{score}");
    assert!(score.lines.iter().all(|line| line.cases > 0), "\n{score}");
}
