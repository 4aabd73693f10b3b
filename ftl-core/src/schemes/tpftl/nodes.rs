//! The two-level cache: a node per mapping page, entries inside. Nodes are ordered by the mean of
//! their entries' last uses, entries by their own.

use crate::families::paged::Policy;
use crate::families::paged::map::entry_at;
use crate::families::paged::pending::Pending;
use crate::format::UNMAPPED;
use crate::mapping::ram_entry;
use crate::ram::{hash_bytes, hash_most, run_pages, tree_bytes, tree_most, vec_bytes};
use crate::stats::{Evictions, RamEntry, RamPart};
use nand_model::Ppn;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};

/// Bytes of an entry and of a node's head by the paper's count.
pub(in crate::schemes) const ENTRY_BYTES: u32 = 6;
const NODE_BYTES: u32 = 8;

/// A cached entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    lpn: u32,
    /// Physical page, or [`UNMAPPED`].
    ppn: u32,
    used: u64,
}

impl Entry {
    fn to(&self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }
}

/// The cached entries of one mapping page.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Ascending by logical page.
    entries: Vec<Entry>,
    /// Last uses and logical pages, ascending.
    by_use: VecDeque<(u64, u32)>,
    /// Sum of the last uses.
    heat: u64,
}

impl Node {
    fn mean(&self) -> u64 {
        self.heat / self.entries.len().max(1) as u64
    }

    #[inline]
    fn find(&self, lpn: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&lpn, |entry| entry.lpn)
    }

    #[inline]
    fn get(&self, lpn: u32) -> Option<&Entry> {
        self.find(lpn).ok().map(|at| &self.entries[at])
    }

    /// Adds an entry, or replaces it. Its use is newer than all others.
    fn put(&mut self, entry: Entry) {
        match self.find(entry.lpn) {
            Ok(at) => {
                let old = std::mem::replace(&mut self.entries[at], entry);
                self.forget_use(old.used);
            }
            Err(at) => self.entries.insert(at, entry),
        }
        debug_assert!(
            self.by_use
                .back()
                .is_none_or(|(used, _)| *used < entry.used)
        );
        self.by_use.push_back((entry.used, entry.lpn));
        self.heat += entry.used;
        debug_assert_eq!(
            self.by_use.len(),
            self.entries.len(),
            "each cached entry has one place in the order of use"
        );
    }

    fn remove(&mut self, lpn: u32) {
        let at = self.find(lpn).expect("the entry is cached");
        let old = self.entries.remove(at);
        self.forget_use(old.used);
        let (used, capacity) = (self.entries.len(), self.entries.capacity());
        if capacity > KEPT && used < capacity / 4 {
            self.entries.shrink_to(KEPT.max(2 * used));
            self.by_use.shrink_to(KEPT.max(2 * used));
        }
    }

    fn forget_use(&mut self, used: u64) {
        let at = self.by_use.binary_search_by_key(&used, |(used, _)| *used);
        let at = at.expect("a cached entry has a place in the order of use");
        self.by_use.remove(at);
        self.heat -= used;
    }

    fn bytes(&self) -> u64 {
        vec_bytes::<Entry>(self.entries.capacity())
            + vec_bytes::<(u64, u32)>(self.by_use.capacity())
    }

    /// Returns the upper bound of the bytes of all nodes, for this many entries.
    fn bytes_most(entries: u64, nodes: u64) -> u64 {
        (4 * entries + KEPT as u64 * nodes) * (size_of::<Entry>() + size_of::<(u64, u32)>()) as u64
    }
}

/// Entries for which an almost empty node keeps its memory.
const KEPT: usize = 4;

/// Sequential phases: detected by a decreasing or increasing number of cached nodes.
#[derive(Clone, Copy, Debug)]
struct Phase {
    threshold: u32,
    balance: i64,
    sequential: bool,
}

impl Phase {
    fn count(&mut self, change: i64) {
        self.balance += change;
        if self.threshold > 0 && self.balance.unsigned_abs() >= self.threshold as u64 {
            self.sequential = self.balance < 0;
            self.balance = 0;
        }
    }
}

/// Two-level cache (see the module).
pub(in crate::schemes) struct Nodes {
    nodes: FxHashMap<u32, Node>,
    /// Mapping pages by the mean last use of their entries.
    by_heat: BTreeSet<(u64, u32)>,
    entries: u32,
    clock: u64,
    phase: Phase,
    bytes: u32,
    per_page: u32,
    logical_pages: u32,
    by_list: bool,
    steps: u64,
    evictions: Evictions,
}

impl Nodes {
    /// Creates a cache of `bytes` by the paper's count; mapping pages have `per_page` entries.
    pub(in crate::schemes) fn new(
        bytes: u32,
        threshold: u32,
        per_page: u32,
        logical_pages: u32,
    ) -> Self {
        Nodes {
            nodes: FxHashMap::default(),
            by_heat: BTreeSet::new(),
            entries: 0,
            clock: 0,
            phase: Phase {
                threshold,
                balance: 0,
                sequential: false,
            },
            bytes,
            per_page,
            logical_pages,
            by_list: false,
            steps: 0,
            evictions: Evictions::default(),
        }
    }

    /// Sets whether lookup steps are those of a search of the lists.
    pub(in crate::schemes) fn count_by_list(self, by_list: bool) -> Self {
        Nodes { by_list, ..self }
    }

    /// Returns the number of nodes and entries that a search of both levels of lists examines, the
    /// hottest nodes and the most recently used entries first.
    fn examined(&self, lpn: u32) -> u64 {
        let vtpn = lpn / self.per_page;
        let Some(node) = self.nodes.get(&vtpn) else {
            return self.nodes.len() as u64;
        };
        let mut nodes = self.by_heat.iter().rev();
        let hotter = nodes.position(|(_, other)| *other == vtpn);
        let mut entries = node.by_use.iter().rev();
        let newer = entries.position(|(_, other)| *other == lpn);
        let in_node = newer.map_or(node.entries.len(), |newer| newer + 1);
        (hotter.expect("a cached node is on the list") + 1 + in_node) as u64
    }

    fn size(&self) -> u32 {
        self.entries * ENTRY_BYTES + self.nodes.len() as u32 * NODE_BYTES
    }

    /// Changes a node and keeps the order of nodes; removes a node without entries.
    fn with_node<R>(&mut self, vtpn: u32, change: impl FnOnce(&mut Node) -> R) -> R {
        let node = self.nodes.entry(vtpn).or_default();
        let (before, count) = (node.mean(), node.entries.len());
        let result = change(node);
        let (after, left) = (node.mean(), node.entries.len());
        self.entries = self.entries + left as u32 - count as u32;
        if before != after || (count == 0) != (left == 0) {
            self.by_heat.remove(&(before, vtpn));
            if left > 0 {
                self.by_heat.insert((after, vtpn));
            }
        }
        if left == 0 {
            self.nodes.remove(&vtpn);
        }
        debug_assert_eq!(
            self.by_heat.len(),
            self.nodes.len(),
            "each node has one place in the order of heat"
        );
        self.phase.count((left > 0) as i64 - (count > 0) as i64);
        result
    }

    fn insert(&mut self, lpn: u32, to: Option<Ppn>) {
        self.clock += 1;
        let (used, ppn) = (self.clock, to.map_or(UNMAPPED, Ppn::raw));
        self.with_node(lpn / self.per_page, |node| {
            node.put(Entry { lpn, ppn, used })
        });
    }

    fn set(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        let Some(node) = self.nodes.get_mut(&(lpn / self.per_page)) else {
            return false;
        };
        let at = node.find(lpn);
        if let Ok(at) = at {
            node.entries[at].ppn = to.map_or(UNMAPPED, Ppn::raw);
        }
        at.is_ok()
    }

    /// Returns the number of entries to load beyond the request: in a sequential phase, as many as
    /// are cached right before the missed one. Free space and the entries of the coldest node limit
    /// it.
    fn prefetch(&self, lpn: u32) -> u32 {
        let Some(node) = self
            .nodes
            .get(&(lpn / self.per_page))
            .filter(|_| self.phase.sequential)
        else {
            return 0;
        };
        let before = (1..=lpn % self.per_page)
            .take_while(|back| node.find(lpn - back).is_ok())
            .count();
        let room = self.bytes.saturating_sub(self.size()) / ENTRY_BYTES;
        let coldest = self
            .by_heat
            .first()
            .map_or(0, |(_, vtpn)| self.nodes[vtpn].entries.len());
        (before as u32).min(room.max(coldest as u32))
    }
}

impl Policy for Nodes {
    const LOOKS_UP_WRITES: bool = true;

    fn get(&mut self, lpn: u32, _: bool) -> Option<Option<Ppn>> {
        let node = self.nodes.get(&(lpn / self.per_page));
        self.steps += if self.by_list {
            self.examined(lpn)
        } else {
            1 + u64::from(node.is_some())
        };
        let to = node?.get(lpn)?.to();
        self.insert(lpn, to);
        Some(to)
    }

    fn peek(&self, lpn: u32) -> Option<Option<Ppn>> {
        let node = self.nodes.get(&(lpn / self.per_page))?;
        node.get(lpn).map(Entry::to)
    }

    fn load(&mut self, vtpn: u32, page: &[u8], lpn: u32, more: u32, pending: &Pending) {
        let end = ((vtpn + 1) * self.per_page).min(self.logical_pages);
        let ahead = more.max(self.prefetch(lpn));
        // Loads the missed entry last, so that it is the most recently used.
        for wanted in (lpn..end.min(lpn + 1 + ahead)).rev() {
            if self.peek(wanted).is_none() {
                let to = match pending.get(wanted) {
                    Some(entry) => entry.ppn(),
                    None => entry_at(page, wanted % self.per_page),
                };
                self.insert(wanted, to);
            }
        }
    }

    fn on_relocate(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        self.set(lpn, to)
    }

    fn on_write(&mut self, lpn: u32, to: Ppn, _: bool, _: &Pending) {
        if !self.set(lpn, Some(to)) {
            self.insert(lpn, Some(to));
        }
    }

    fn evict(&mut self, pending: &Pending) -> Option<u32> {
        while self.size() > self.bytes {
            let &(_, vtpn) = self.by_heat.first()?;
            let node = &self.nodes[&vtpn];
            let known = node
                .by_use
                .iter()
                .map(|(_, lpn)| *lpn)
                .find(|lpn| !pending.has(*lpn));
            let (evicted, written) = match known {
                Some(lpn) => (lpn, false),
                None => {
                    let oldest = node.by_use.front();
                    (oldest.expect("a node has at least one entry").1, true)
                }
            };
            self.with_node(vtpn, |node| node.remove(evicted));
            self.evictions.note(written);
            if written {
                return Some(vtpn);
            }
        }
        None
    }

    fn on_writeback(&mut self, _: u32, _: &[u8], _: &Pending) {}

    fn dropped(&mut self, vtpn: u32) {
        if let Some(node) = self.nodes.get_mut(&vtpn) {
            let entries = node.entries.iter_mut();
            entries.for_each(|entry| entry.ppn = UNMAPPED);
        }
    }

    fn copy_page(&mut self, _: u32, _: bool, _: &mut [u8]) -> bool {
        false
    }

    /// The node of the mapping page; if it is cached, the entry in it. Or the nodes and entries
    /// that a search of the lists examines.
    fn lookup_steps(&self) -> u64 {
        self.steps
    }

    fn evictions(&self) -> Evictions {
        self.evictions
    }

    fn ram(&self) -> Vec<RamEntry> {
        let real = hash_bytes::<u32, Node>(self.nodes.capacity())
            + tree_bytes::<(u64, u32), ()>(self.by_heat.len())
            + self.nodes.values().map(Node::bytes).sum::<u64>();
        // Prefetches and the entries of a request exceed the limit until the next eviction.
        let entries =
            (self.bytes / ENTRY_BYTES) as u64 + run_pages(4 * self.per_page) + self.per_page as u64;
        let pages = self.logical_pages.div_ceil(self.per_page);
        let nodes = (self.bytes / (ENTRY_BYTES + NODE_BYTES)).min(pages) as u64 + 2;
        let most = hash_most::<u32, Node>(nodes)
            + tree_most::<(u64, u32), ()>(nodes)
            + Node::bytes_most(entries, nodes);
        let (cached, paper) = (self.entries as u64, self.bytes as u64);
        vec![ram_entry(RamPart::MapCache, cached, paper, real, most)]
    }
}
