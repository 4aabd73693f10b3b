//! Outcome of a power cut: which versions in the ring the cache had written to the flash in the
//! instant before.
//!
//! The flash is off, so nothing can be programmed. The survivors are marked in the area instead,
//! and the next start writes them to the flash before its first request.
//!
//! Invariants: a survivor is a whole unit. Only versions that no completed FLUSH covers take part:
//! the ring has no others. With the model `ordered` the survivors are all versions up to one entry,
//! and perhaps some units of that entry. The prefix never ends before an entry that the flash may
//! have.

use super::format::{Bitmap, Head, Kind, State};
use super::index::Version;
use super::view::{CutCounts, Model, Outcome};
use super::{RING_BLOCK, WriteCache};
use ftld_kit::convert::to_usize;
use nand_model::SplitMix;
use std::collections::{BTreeMap, BTreeSet};

impl WriteCache {
    /// Sets the seed of the outcome of the next power cut.
    pub(in crate::volume) fn set_cut_seed(&mut self, seed: u64) {
        self.cut_seed = Some(seed);
    }

    /// Decides the outcome of a power cut, once, and records it in the area. Returns the counts of
    /// the first call.
    pub(in crate::volume) fn lose_power(&mut self) -> Option<CutCounts> {
        if self.is_cut || self.is_frozen {
            return None;
        }
        self.is_cut = true;
        let (counts, survivors) = self.draw(self.cut_seed);
        let saved = self
            .area
            .write_at(Self::bitmap_at(), &survivors.0)
            .and_then(|()| {
                self.head.cut = counts;
                self.save(State::Cut)
            });
        if let Err(error) = saved {
            tracing::error!(
                "the outcome of the power cut is not in the image: {error}; everything in the \
                 write cache survives"
            );
        }
        Some(counts)
    }

    /// Returns what a power cut now would change in the area, for a copy of it. `None` after a cut.
    pub(in crate::volume) fn outcome(&self, seed: Option<u64>) -> Option<Outcome> {
        if self.is_cut || self.is_frozen {
            return None;
        }
        let (counts, survivors) = self.draw(seed);
        let head = Head {
            cut: counts,
            ..self.next_head(State::Cut)
        };
        Some(Outcome {
            counts,
            changes: vec![
                (Self::bitmap_at(), survivors.0),
                (head.copy_at(), head.encode().to_vec()),
            ],
        })
    }

    fn draw(&self, seed: Option<u64>) -> (CutCounts, Bitmap) {
        let mut rng = SplitMix::new(seed.unwrap_or(self.head.salt) ^ 0xCA_C8E0);
        let survivors = self.survivors(&mut rng);
        (self.count(&survivors), survivors)
    }

    fn survivors(&self, rng: &mut SplitMix) -> Bitmap {
        let mut survivors = Bitmap::new(self.ring.size());
        match self.shape.options.model {
            _ if self.shape.options.protected => {
                self.keep_first(self.ring.entries.len(), &mut survivors)
            }
            Model::Any => self.keep_any(rng, &mut survivors),
            Model::Ordered => self.keep_prefix(rng, &mut survivors),
            Model::Lost => {}
        }
        survivors
    }

    fn block_of(&self, at: u64) -> u64 {
        self.ring.place_of(at) / RING_BLOCK
    }

    /// Keeps all of the first entries.
    fn keep_first(&self, count: usize, survivors: &mut Bitmap) {
        for entry in self.ring.entries.iter().take(count) {
            match entry.head.kind {
                Kind::Trim => survivors.set(self.block_of(entry.head.at)),
                Kind::Write => {
                    for number in entry.units() {
                        survivors.set(self.block_of(entry.data_at(number, self.shape.unit)));
                    }
                }
            }
        }
    }

    /// Keeps a prefix, and perhaps some units of the next entry.
    fn keep_prefix(&self, rng: &mut SplitMix, survivors: &mut Bitmap) {
        let entries = &self.ring.entries;
        let begun = entries.get(self.ring.done).is_some_and(|entry| entry.begun);
        let trim = entries
            .iter()
            .rposition(|entry| entry.head.kind == Kind::Trim);
        let least = (self.ring.done + usize::from(begun)).max(trim.map_or(0, |place| place + 1));
        let count = least + rng.index(entries.len() - least + 1);
        self.keep_first(count, survivors);
        if let Some(torn) = entries.get(count).filter(|_| rng.one_in(2)) {
            for number in torn.units() {
                if rng.one_in(2) {
                    survivors.set(self.block_of(torn.data_at(number, self.shape.unit)));
                }
            }
        }
    }

    /// Decides each dirty unit on its own. Of one write, all units survive, none, or each at
    /// random.
    fn keep_any(&self, rng: &mut SplitMix, survivors: &mut Bitmap) {
        let older = self.versions();
        let mut tendency: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, newest) in self.index.all() {
            let of_write = *tendency.entry(newest.seq).or_insert_with(|| rng.below(3));
            let survives = match of_write {
                0 => true,
                1 => false,
                _ => rng.one_in(2),
            };
            let versions = older.get(&number).map_or(&[][..], Vec::as_slice);
            let before = versions.partition_point(|version| version.seq < newest.seq);
            let version = if survives {
                Some(newest)
            } else if before > 0 && rng.one_in(2) {
                Some(versions[rng.index(before)])
            } else {
                None
            };
            if let Some(version) = version {
                survivors.set(self.block_of(version.at));
            }
        }
    }

    /// Returns all versions of the dirty units in the ring, oldest first.
    fn versions(&self) -> BTreeMap<u64, Vec<Version>> {
        let mut versions: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
        let entries = self.ring.entries.iter().skip(self.ring.done);
        for entry in entries.filter(|entry| entry.head.kind == Kind::Write) {
            for number in entry.units() {
                if self.index.get(number).is_some() {
                    versions.entry(number).or_default().push(Version {
                        at: entry.data_at(number, self.shape.unit),
                        seq: entry.head.seq,
                    });
                }
            }
        }
        versions
    }

    /// Counts the dirty units by outcome.
    fn count(&self, survivors: &Bitmap) -> CutCounts {
        let has = |version: &Version| survivors.has(self.block_of(version.at));
        let newest: Vec<_> = self.index.all().collect();
        let torn: BTreeSet<u64> = newest
            .iter()
            .filter(|(_, version)| !has(version))
            .map(|(_, version)| version.seq)
            .collect();
        let older = self.versions();
        let mut counts = CutCounts::default();
        for (number, version) in &newest {
            let is_old = || {
                let versions = older.get(number).into_iter().flatten();
                versions.filter(|older| older.seq < version.seq).any(has)
            };
            let count = match has(version) {
                true if torn.contains(&version.seq) => &mut counts.torn,
                true => &mut counts.new,
                false if is_old() => &mut counts.old,
                false => &mut counts.lost,
            };
            *count += 1;
        }
        assert_eq!(
            to_usize(counts.units()),
            newest.len(),
            "each dirty unit has one outcome"
        );
        counts
    }
}
