//! Entries of an earlier daemon: found by following the ring from the tail in the header, number by
//! number.
//!
//! Why a replay restores the acknowledged contents, whatever was written back before: every change
//! of the device is an entry, trims included, in the order of their effect. So the newest entry
//! that names a unit has the unit's last content, and a replay writes that one. An entry that a
//! replay finds although it was written back is older than the newest, or is the newest itself.
//!
//! If power fails or the process ends during a replay, the next one finds the same entries: the
//! header changes only when everything is on the flash and synced.

use super::format::{Bitmap, EntryHead, HEAD_BYTES, Head, Kind, RING_BLOCK, State, bitmap_bytes};
use super::index::Version;
use super::ring::Ring;
use super::{
    Area, CACHE_BYTES_MAX, CACHE_BYTES_STEP, CacheOptions, CutCounts, Model, Outcome, Shape,
    WriteCache, area_of,
};
use crate::sys;
use ftld_kit::convert::{to_u64, to_usize};
use ftld_kit::size::show_size;
use nand_model::CacheSection;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bound of numbers that grow: no cache lives long enough to reach it, and sums stay below
/// `u64::MAX`.
const NUMBER_MAX: u64 = 1 << 62;

/// An attached cache area at the start of a daemon.
pub enum Loaded {
    /// Its entries are lost.
    Lost(Lost),
    /// Its entries have to be written back.
    Pending(Box<Pending>),
    /// Its header passes its check, and yet no cache wrote it: the reason.
    Damaged(String),
}

/// Entries that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The reason.
    pub why: &'static str,
    /// Units that were dirty at least.
    pub units: u64,
}

/// Entries that have to be written back.
pub struct Pending {
    /// The cache; it takes no new entries.
    pub cache: WriteCache,
    /// Number of entries.
    pub entries: u64,
    /// Number of units with a content to write back.
    pub units: u64,
    /// Outcome of the power cut, if there was one.
    pub cut: Option<CutCounts>,
}

/// Opening of an image with a cache area.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Identity of the image.
    pub uuid: [u8; 16],
    /// Boot id of the host.
    pub boot_id: &'a str,
    /// Whether a sync had failed before.
    pub sync_failed: bool,
    /// Bytes of a flash page.
    pub page_bytes: u32,
    /// Bytes that the scheme maps.
    pub logical_bytes: u64,
}

impl WriteCache {
    /// Reads an attached area.
    ///
    /// # Errors
    /// The host cannot read it.
    pub(crate) fn load(
        area: Box<dyn Area>,
        bytes: u64,
        opening: &Opening<'_>,
    ) -> io::Result<Loaded> {
        let lost = |why, units| Ok(Loaded::Lost(Lost { why, units }));
        let Some(head) = read_head(&*area, bytes)? else {
            return lost("the header of its area is damaged", 0);
        };
        if let Some(why) = contradiction(&head, bytes, opening) {
            return Ok(Loaded::Damaged(why));
        }
        fits_memory(head.ring_bytes, sys::memory_available())?;
        let chain = Chain::read(&*area, &head, opening.logical_bytes)?;
        let cache = chain.cache(area, head.clone(), opening)?;
        let units = cache.index.len();
        if opening.sync_failed {
            return lost("a sync of the image had failed", units);
        }
        if head.state == State::Live && head.boot_id != opening.boot_id {
            return lost("the host crashed", units);
        }
        Ok(Loaded::Pending(Box::new(Pending {
            entries: to_u64(cache.ring.entries.len()),
            units,
            cut: (head.state == State::Cut).then_some(head.cut),
            cache,
        })))
    }
}

fn read_head(area: &dyn Area, bytes: u64) -> io::Result<Option<Head>> {
    if bytes < HEAD_BYTES {
        return Ok(None);
    }
    let mut copies = vec![0; to_usize(HEAD_BYTES)];
    area.read_at(0, &mut copies)?;
    Ok(Head::newest(&copies))
}

/// Returns a contradiction in the header of an area of `bytes`: a value that no cache writes.
fn contradiction(head: &Head, bytes: u64, opening: &Opening<'_>) -> Option<String> {
    let Head {
        generation,
        uuid,
        ring_bytes,
        unit,
        tail,
        tail_seq,
        cut,
        ..
    } = head;
    if *uuid != opening.uuid {
        return Some("it is that of another image".into());
    }
    let is_unit =
        [512, 1024, 2048, 4096].contains(unit) && opening.page_bytes.is_multiple_of(*unit);
    if !is_unit {
        let page = opening.page_bytes;
        return Some(format!("units of {unit} bytes in pages of {page} bytes"));
    }
    // The least ring has room for the entries of one trim, twice.
    let least = 2 * (4 * RING_BLOCK + 2 * u64::from(*unit));
    let is_ring = (least..=CACHE_BYTES_MAX).contains(ring_bytes)
        && ring_bytes.is_multiple_of(CACHE_BYTES_STEP)
        && area_of(*ring_bytes) == bytes;
    if !is_ring {
        return Some(format!("a ring of {ring_bytes} bytes in {bytes} bytes"));
    }
    if *generation >= NUMBER_MAX || *tail_seq >= NUMBER_MAX {
        return Some("a number that cannot have been reached".into());
    }
    if *tail >= NUMBER_MAX || !tail.is_multiple_of(RING_BLOCK) {
        return Some(format!("entries from byte {tail} on"));
    }
    // Each dirty unit is in the ring.
    let room = ring_bytes / u64::from(*unit);
    let counts = cut.by_name().into_iter();
    let units = counts.fold(0u64, u64::saturating_add);
    (units > room).then(|| format!("a power cut of {units} units in a ring of {room}"))
}

/// Refuses a ring for which this host has no memory; an allocation that fails ends the process.
fn fits_memory(ring_bytes: u64, available: Option<u64>) -> io::Result<()> {
    match available {
        Some(available) if ring_bytes > available => Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "it is kept in memory and has {}, and this host has {} to spare; open the image on \
                 a host with more",
                show_size(ring_bytes),
                show_size(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// Entries from the tail on.
struct Chain {
    ring: Ring,
    survivors: Option<Bitmap>,
}

impl Chain {
    fn read(area: &dyn Area, head: &Head, logical_bytes: u64) -> io::Result<Chain> {
        let ring = Ring::new(
            head.ring_bytes,
            head.unit,
            head.salt,
            head.tail,
            head.tail_seq,
        );
        let mut survivors = None;
        if head.state == State::Cut {
            let mut bitmap = Bitmap::new(head.ring_bytes);
            area.read_at(HEAD_BYTES, &mut bitmap.0)?;
            survivors = Some(bitmap);
        }
        let mut chain = Chain { ring, survivors };
        let mut at = head.tail;
        while let Some(entry) = chain.entry(area, head, at, logical_bytes)? {
            chain.ring.push(entry);
            at = entry.at + entry.bytes(head.unit);
        }
        Ok(chain)
    }

    /// Reads the next entry: at this position, or at the begin of the ring.
    fn entry(
        &mut self,
        area: &dyn Area,
        head: &Head,
        at: u64,
        logical_bytes: u64,
    ) -> io::Result<Option<EntryHead>> {
        let again = at.next_multiple_of(head.ring_bytes);
        for at in [at, again] {
            let found = self.entry_at(area, head, at, logical_bytes)?;
            if found.is_some() || again == at {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn entry_at(
        &mut self,
        area: &dyn Area,
        head: &Head,
        at: u64,
        logical_bytes: u64,
    ) -> io::Result<Option<EntryHead>> {
        let (size, unit) = (head.ring_bytes, u64::from(head.unit));
        if self.ring.fit(at, RING_BLOCK) != at || at + RING_BLOCK - head.tail > size {
            return Ok(None);
        }
        let place = HEAD_BYTES + bitmap_bytes(size) + at % size;
        area.read_at(place, self.ring.slice_mut(at, RING_BLOCK))?;
        let Some(entry) = EntryHead::decode(self.ring.slice(at, RING_BLOCK)) else {
            return Ok(None);
        };
        let bytes = entry.bytes(head.unit);
        let end = entry.first.checked_add(entry.units);
        let is_next = entry.at == at
            && entry.seq == self.ring.next_seq()
            && entry.units > 0
            && end.is_some_and(|end| end <= logical_bytes / unit)
            && bytes <= size
            && self.ring.fit(at, bytes) == at
            && at + bytes - head.tail <= size;
        if !is_next {
            return Ok(None);
        }
        let data = self.ring.slice_mut(at + RING_BLOCK, bytes - RING_BLOCK);
        area.read_at(place + RING_BLOCK, data)?;
        Ok(EntryHead::checks(head.salt, self.ring.slice(at, bytes)).then_some(entry))
    }

    /// Makes a frozen cache of the entries that count.
    fn cache(
        self,
        area: Box<dyn Area>,
        head: Head,
        opening: &Opening<'_>,
    ) -> io::Result<WriteCache> {
        let shape = Shape {
            options: CacheOptions {
                bytes: head.ring_bytes,
                model: Model::Any,
                tear: Some(head.unit),
                protected: false,
            },
            unit: head.unit,
            page_bytes: opening.page_bytes,
            logical_bytes: opening.logical_bytes,
        };
        let Chain { ring, survivors } = self;
        let mut cache = WriteCache::of(area, shape, head, ring);
        cache.is_frozen = true;
        cache.flush_to = cache.ring.next_seq();
        let counts = |block: u64| survivors.as_ref().is_none_or(|bitmap| bitmap.has(block));
        let block_of = |cache: &WriteCache, at| cache.ring.place_of(at) / RING_BLOCK;
        for place in 0..cache.ring.entries.len() {
            let entry = cache.ring.entries[place];
            match entry.head.kind {
                Kind::Write => {
                    for number in entry.units() {
                        let at = entry.data_at(number, cache.shape.unit);
                        if counts(block_of(&cache, at)) {
                            let seq = entry.head.seq;
                            cache.index.put(number, Version { at, seq });
                        }
                    }
                }
                Kind::Trim if counts(block_of(&cache, entry.head.at)) => {
                    cache.index.remove_all(entry.units());
                    // The scheme had trimmed the units. After a cut it may have forgotten that.
                    if survivors.is_some() {
                        cache.trims.add(entry.units());
                    }
                }
                Kind::Trim => {}
            }
        }
        Ok(cache)
    }
}

/// Bytes of a file from a position on; the file refuses writes if it is open for reading only.
struct FileArea(File, u64);

impl Area for FileArea {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, self.1 + at)
    }
    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write_all_at(buf, self.1 + at)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn detach(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn fail(&self, _: &io::Error) {}
}

/// Reads the cache area of an image without locking the file; the image may be in use.
///
/// # Errors
/// The host cannot read the file.
pub fn peek(path: &Path, section: CacheSection, opening: &Opening<'_>) -> io::Result<Loaded> {
    let area = FileArea(File::open(path)?, section.at);
    WriteCache::load(Box::new(area), section.bytes, opening)
}

/// Applies the outcome of a power cut to a copy of an image.
///
/// # Errors
/// The host cannot write the file, or the outcome is of another area.
pub fn apply(outcome: &Outcome, copy: &Path, section: CacheSection) -> io::Result<()> {
    let area = FileArea(File::options().write(true).open(copy)?, section.at);
    for (at, bytes) in &outcome.changes {
        if at
            .checked_add(to_u64(bytes.len()))
            .is_none_or(|end| end > section.bytes)
        {
            return Err(io::Error::other("the outcome of a larger write cache"));
        }
        area.write_at(*at, bytes)?;
    }
    area.sync()
}
