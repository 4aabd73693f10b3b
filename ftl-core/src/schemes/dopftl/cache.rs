//! The cache: mapping pages in both forms share one stock of equal blocks; an original page takes
//! `ratio` of them. The cache evicts the least recently used page. It compresses an original page
//! instead, if that is possible and was not tried since the page's last use. To measure the effect
//! of this, each form may have a fixed part of the stock, and lookups may search the LRU list.

use super::node::{Extent, Form, compress};
use crate::families::paged::Policy;
use crate::families::paged::pending::Pending;
use crate::format::UNMAPPED;
use crate::map_cache::Lists;
use crate::mapping::ram_entry;
use crate::ram::{run_pages, vec_bytes, vec_most};
use crate::stats::{Evictions, RamEntry, RamPart};
use nand_model::Ppn;

/// Sizes, all fixed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Cache blocks.
    pub(super) blocks: u32,
    /// Blocks of these reserved for original pages; the others are for compressed ones. `None`:
    /// shared.
    pub(super) original: Option<u32>,
    /// Whether lookups use the directory (CTPA).
    pub(super) ctpa: bool,
    pub(super) block_bytes: u32,
    /// Number of cache blocks of an original page.
    pub(super) ratio: u32,
    /// Maximum number of extents of a compressed page.
    pub(super) extents: u32,
    pub(super) per_page: u32,
    pub(super) logical_pages: u32,
}

/// Resources of a cached page: blocks, and the list it is on.
#[derive(Clone, Copy)]
struct Stock {
    list: u32,
    blocks: u32,
}

impl Shape {
    #[inline]
    fn stock(&self, form: &Form) -> Stock {
        match form {
            Form::Original(_) => Stock {
                list: 0,
                blocks: self.ratio,
            },
            Form::Compressed(_) => Stock {
                list: self.original.is_some() as u32,
                blocks: 1,
            },
        }
    }
}

struct Node {
    vtpn: u32,
    form: Form,
    /// The last compression attempt failed, and the page was not used since.
    tried: bool,
}

/// CTPA of a page that is not cached.
const ABSENT: u32 = u32::MAX;

/// Cache of mapping pages (see the module).
pub(super) struct Cache {
    shape: Shape,
    /// Cache index of each mapping page: the directory's field CTPA.
    slots: Vec<u32>,
    nodes: Vec<Option<Node>>,
    unused: Vec<u32>,
    /// Original pages, and compressed ones if they have a part of their own.
    used: Lists,
    /// Blocks of the pages on each list.
    blocks: [u32; 2],
    steps: u64,
    evictions: Evictions,
    /// The page just evicted, for the caller that writes it.
    evicted: Option<(u32, Form)>,
    /// Memory for an original page.
    unused_page: Option<Box<[u32]>>,
}

impl Cache {
    pub(super) fn new(shape: Shape) -> Self {
        assert!(
            shape
                .original
                .is_none_or(|original| original < shape.blocks),
            "{:?} blocks for original pages in a cache of {}",
            shape.original,
            shape.blocks
        );
        assert!(
            shape.per_page <= 1 << u16::BITS,
            "{} entries of a mapping page exceed the 16 bits of an offset",
            shape.per_page
        );
        Cache {
            shape,
            slots: vec![ABSENT; shape.logical_pages.div_ceil(shape.per_page) as usize],
            nodes: Vec::new(),
            unused: Vec::new(),
            used: Lists::new(2),
            blocks: [0; 2],
            steps: 0,
            evictions: Evictions::default(),
            evicted: None,
            unused_page: None,
        }
    }

    /// Updates blocks and list of a node whose form may have changed; `was` is its old stock.
    fn recount(&mut self, slot: u32, was: Stock) {
        let node = self.nodes[slot as usize]
            .as_ref()
            .expect("a listed slot is taken");
        let is = self.shape.stock(&node.form);
        self.blocks[was.list as usize] -= was.blocks;
        self.blocks[is.list as usize] += is.blocks;
        if is.list != was.list {
            self.used.remove(slot);
            self.used.push(is.list, slot);
        }
    }

    /// Returns the maximum number of blocks for the pages of a list.
    fn limit(&self, list: u32) -> u32 {
        match self.shape.original {
            None => self.shape.blocks,
            Some(original) if list == 0 => original,
            Some(original) => self.shape.blocks - original,
        }
    }

    /// Finds a cached page and counts the lookup steps: its directory entry, or the list.
    #[inline]
    fn find(&mut self, vtpn: u32) -> Option<u32> {
        let slot = Some(self.slots[vtpn as usize]).filter(|slot| *slot != ABSENT);
        if self.shape.ctpa {
            self.steps += 1;
            return slot;
        }
        for other in (0..2).flat_map(|list| self.used.newest_first(list)) {
            self.steps += 1;
            if Some(other) == slot {
                break;
            }
        }
        slot
    }

    fn node(&self, lpn: u32) -> Option<&Node> {
        self.nodes
            .get(self.slots[(lpn / self.shape.per_page) as usize] as usize)?
            .as_ref()
    }

    fn insert(&mut self, vtpn: u32, form: Form) {
        debug_assert_eq!(
            self.slots[vtpn as usize], ABSENT,
            "mapping page {vtpn} is cached twice"
        );
        let Stock { list, blocks } = self.shape.stock(&form);
        self.blocks[list as usize] += blocks;
        let node = Some(Node {
            vtpn,
            form,
            tried: false,
        });
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.slots[vtpn as usize] = slot;
        self.used.push(list, slot);
    }

    fn remove(&mut self, vtpn: u32) -> Option<Form> {
        let slot = std::mem::replace(&mut self.slots[vtpn as usize], ABSENT);
        let node = self.nodes.get_mut(slot as usize)?.take()?;
        self.used.remove(slot);
        self.unused.push(slot);
        let Stock { list, blocks } = self.shape.stock(&node.form);
        self.blocks[list as usize] -= blocks;
        Some(node.form)
    }

    /// Changes an entry of a cached page. Returns false if the page is not cached.
    fn set(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        let (vtpn, offset) = (lpn / self.shape.per_page, lpn % self.shape.per_page);
        let (shape, slot) = (self.shape, self.slots[vtpn as usize]);
        let Some(Some(node)) = self.nodes.get_mut(slot as usize) else {
            return false;
        };
        let was = shape.stock(&node.form);
        node.form.set(
            offset,
            to.map_or(UNMAPPED, Ppn::raw),
            shape.per_page,
            shape.extents,
        );
        self.recount(slot, was);
        true
    }

    /// Caches a mapping page: `fill` writes what is on flash, pending entries are newer.
    fn insert_page(&mut self, vtpn: u32, pending: &Pending, fill: impl FnOnce(&mut [u32])) {
        let mut entries = match self.unused_page.take() {
            Some(unused) => unused,
            None => vec![UNMAPPED; self.shape.per_page as usize].into(),
        };
        fill(&mut entries);
        for change in pending.changes(vtpn) {
            entries[usize::from(change.index)] = change.entry.ppn().map_or(UNMAPPED, Ppn::raw);
        }
        let form = match compress(&entries, self.shape.extents) {
            Some(extents) => {
                self.unused_page = Some(entries);
                Form::Compressed(extents)
            }
            None => Form::Original(entries),
        };
        self.insert(vtpn, form);
    }

    /// Keeps the memory of a page that leaves the cache.
    fn discard(&mut self, form: Form) {
        if let Form::Original(entries) = form {
            self.unused_page = Some(entries);
        }
    }

    /// Forgets the page just evicted, if it is this one.
    fn discard_evicted(&mut self, vtpn: u32) {
        if let Some((_, form)) = self.evicted.take_if(|(evicted, _)| *evicted == vtpn) {
            self.discard(form);
        }
    }

    /// Compresses an original page instead of its eviction. Returns false if it must be evicted.
    fn shrink(&mut self, slot: u32) -> bool {
        let node = self.nodes[slot as usize]
            .as_mut()
            .expect("a listed slot is taken");
        if std::mem::replace(&mut node.tried, true) {
            return false;
        }
        let Form::Original(entries) = &node.form else {
            return false;
        };
        let Some(extents) = compress(entries, self.shape.extents) else {
            return false;
        };
        let was = self.shape.stock(&node.form);
        node.form = Form::Compressed(extents);
        self.recount(slot, was);
        true
    }
}

impl Policy for Cache {
    const LOOKS_UP_WRITES: bool = true;

    #[inline]
    fn get(&mut self, lpn: u32, _: bool) -> Option<Option<Ppn>> {
        let slot = self.find(lpn / self.shape.per_page)?;
        let node = self.nodes[slot as usize].as_mut()?;
        node.tried = false;
        let (raw, looked_at) = node.form.look_up(lpn % self.shape.per_page);
        self.steps += looked_at as u64;
        self.used.touch(self.shape.stock(&node.form).list, slot);
        Some(mapped(raw))
    }

    fn peek(&self, lpn: u32) -> Option<Option<Ppn>> {
        Some(mapped(self.node(lpn)?.form.get(lpn % self.shape.per_page)))
    }

    fn load(&mut self, vtpn: u32, page: &[u8], _: u32, _: u32, pending: &Pending) {
        let (words, _) = page.as_chunks::<4>();
        self.insert_page(vtpn, pending, |entries| {
            let pairs = entries.iter_mut().zip(words);
            pairs.for_each(|(entry, word)| *entry = u32::from_le_bytes(*word));
        });
    }

    fn on_relocate(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        self.set(lpn, to)
    }

    fn on_write(&mut self, lpn: u32, to: Ppn, is_new: bool, pending: &Pending) {
        if !self.set(lpn, Some(to)) && is_new {
            let vtpn = lpn / self.shape.per_page;
            self.insert_page(vtpn, pending, |entries| entries.fill(UNMAPPED));
        }
    }

    #[inline]
    fn evict(&mut self, pending: &Pending) -> Option<u32> {
        while let Some(list) = (0..2).find(|list| self.blocks[*list as usize] > self.limit(*list)) {
            let slot = self.used.oldest(list)?;
            if self.shrink(slot) {
                continue;
            }
            let vtpn = self.nodes[slot as usize]
                .as_ref()
                .expect("a listed slot is taken")
                .vtpn;
            let form = self.remove(vtpn)?;
            let is_dirty = pending.dirty(vtpn) > 0;
            self.evictions.note(is_dirty);
            if is_dirty {
                self.evicted = Some((vtpn, form));
                return Some(vtpn);
            }
            self.discard(form);
        }
        None
    }

    fn on_writeback(&mut self, vtpn: u32, _: &[u8], _: &Pending) {
        self.discard_evicted(vtpn);
    }

    fn dropped(&mut self, vtpn: u32) {
        self.remove(vtpn);
        self.discard_evicted(vtpn);
    }

    fn copy_page(&mut self, vtpn: u32, plain: bool, out: &mut [u8]) -> bool {
        let evicted = self
            .evicted
            .as_ref()
            .filter(|(evicted, _)| *evicted == vtpn)
            .map(|(_, form)| form);
        let slot = self.slots[vtpn as usize] as usize;
        let cached = self
            .nodes
            .get(slot)
            .and_then(Option::as_ref)
            .map(|node| &node.form);
        let Some(form) = cached.or(evicted).filter(|_| plain) else {
            return false;
        };
        form.encode(out);
        true
    }

    fn lookup_steps(&self) -> u64 {
        self.steps
    }

    fn evictions(&self) -> Evictions {
        self.evictions
    }

    fn ram(&self) -> Vec<RamEntry> {
        let forms = self.nodes.iter().flatten().map(|node| node.form.bytes());
        let evicted = self.evicted.iter().map(|(_, form)| form.bytes());
        let real = vec_bytes::<Option<Node>>(self.nodes.capacity())
            + vec_bytes::<u32>(self.unused.capacity())
            + forms.chain(evicted).sum::<u64>()
            + (self
                .unused_page
                .iter()
                .map(|page| vec_bytes::<u32>(page.len())))
            .sum::<u64>()
            + self.used.bytes();
        let shape = &self.shape;
        let pages = self.slots.len() as u64;
        // As many compressed pages as fit, or original ones; and those of a request.
        let (blocks, extra) = (
            shape.blocks as u64,
            run_pages(4 * shape.per_page) / shape.per_page as u64 + 2,
        );
        let nodes = blocks.min(pages) + extra;
        let compressed = vec_most::<Extent>(shape.extents as u64);
        let original = vec_bytes::<u32>(shape.per_page as usize);
        let forms = (nodes * compressed).max((blocks / shape.ratio as u64).min(pages) * original);
        let most = vec_most::<Option<Node>>(nodes)
            + vec_most::<u32>(nodes)
            + forms
            + (extra + 1) * original
            + self.used.bytes_most(nodes);
        let paper = shape.blocks as u64 * shape.block_bytes as u64;
        let cached = self.nodes.iter().flatten().count() as u64;
        let slots = vec_bytes::<u32>(self.slots.capacity());
        vec![
            ram_entry(RamPart::MapCache, cached, paper, real, most),
            ram_entry(RamPart::Ctpa, pages, 2 * pages, slots, slots),
        ]
    }
}

fn mapped(raw: u32) -> Option<Ppn> {
    Some(raw).filter(|raw| *raw != UNMAPPED).map(Ppn::new)
}
