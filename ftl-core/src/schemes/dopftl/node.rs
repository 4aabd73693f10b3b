//! A cached mapping page in one of its two forms.

use crate::format::UNMAPPED;
use crate::ram::vec_bytes;

/// `len` entries from `offset` on: physical pages from `ppn` on, or unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u16,
    pub(super) len: u16,
    pub(super) ppn: u32,
}

impl Extent {
    #[inline]
    fn at(&self, offset: u32) -> Option<u32> {
        let distance = offset.wrapping_sub(self.offset as u32);
        let inside = distance < self.len as u32;
        inside.then(|| {
            if self.ppn == UNMAPPED {
                UNMAPPED
            } else {
                self.ppn + distance
            }
        })
    }

    /// Returns whether an entry continues the extent.
    fn is_followed_by(&self, offset: u32, ppn: u32) -> bool {
        let ends_at = |first: u32| first + self.len as u32;
        let next = if self.ppn == UNMAPPED {
            UNMAPPED
        } else {
            ends_at(self.ppn)
        };
        ends_at(self.offset as u32) == offset && next == ppn
    }
}

/// The content of a mapping page.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// One entry per logical page.
    Original(Box<[u32]>),
    /// Extents, the newest last; every entry is in at least one.
    Compressed(Vec<Extent>),
}

/// Entries between two looks at the number of runs.
const CHUNK: usize = 64;

/// Returns the runs of a mapping page, including unmapped ones; `None` if there are more than
/// `max`.
pub(super) fn compress(entries: &[u32], max: u32) -> Option<Vec<Extent>> {
    // Counted without a branch per entry: a page that does not compress is the rule.
    let begins = |(before, ppn): (&u32, &u32)| {
        u32::from(*ppn != before.wrapping_add(u32::from(*before != UNMAPPED)))
    };
    let mut runs = 1;
    for (before, entries) in entries.chunks(CHUNK).zip(entries[1..].chunks(CHUNK)) {
        let pairs = before.iter().zip(entries).map(begins);
        runs += pairs.fold(0, u32::wrapping_add);
        if runs > max {
            return None;
        }
    }
    let mut extents: Vec<Extent> = Vec::with_capacity(runs as usize);
    for (offset, ppn) in (0..).zip(entries) {
        match extents.last_mut() {
            Some(last) if last.is_followed_by(offset, *ppn) => last.len += 1,
            _ => extents.push(Extent {
                offset: offset as u16,
                len: 1,
                ppn: *ppn,
            }),
        }
    }
    Some(extents)
}

impl Form {
    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Form::Original(entries) => vec_bytes::<u32>(entries.len()),
            Form::Compressed(extents) => vec_bytes::<Extent>(extents.capacity()),
        }
    }

    /// Returns the smaller form of these entries.
    pub(super) fn new(entries: &[u32], max: u32) -> Form {
        match compress(entries, max) {
            Some(extents) => Form::Compressed(extents),
            None => Form::Original(entries.into()),
        }
    }

    /// Returns the raw entry.
    #[inline]
    pub(super) fn get(&self, offset: u32) -> u32 {
        self.look_up(offset).0
    }

    /// Returns the raw entry and the number of entries or extents examined.
    #[inline]
    pub(super) fn look_up(&self, offset: u32) -> (u32, u32) {
        match self {
            Form::Original(entries) => (entries[offset as usize], 1),
            Form::Compressed(extents) => {
                let newest_first = (1..).zip(extents.iter().rev());
                let mut covering = newest_first
                    .filter_map(|(looked_at, extent)| Some((extent.at(offset)?, looked_at)));
                covering
                    .next()
                    .expect("the extents cover every entry of the page")
            }
        }
    }

    /// Writes all entries into a mapping page.
    pub(super) fn encode(&self, page: &mut [u8]) {
        let (words, _) = page.as_chunks_mut::<4>();
        match self {
            Form::Original(entries) => {
                let pairs = words.iter_mut().zip(entries);
                pairs.for_each(|(word, ppn)| *word = ppn.to_le_bytes());
            }
            Form::Compressed(extents) => {
                for extent in extents {
                    let first = extent.offset as usize;
                    let words = words[first..].iter_mut().take(extent.len as usize);
                    for (word, offset) in words.zip(extent.offset as u32..) {
                        let ppn = extent.at(offset).expect("the offset is in the extent");
                        *word = ppn.to_le_bytes();
                    }
                }
            }
        }
    }

    /// Returns all entries, in order.
    pub(super) fn entries(&self, per_page: u32) -> Vec<u32> {
        match self {
            Form::Original(entries) => entries.to_vec(),
            Form::Compressed(extents) => {
                let mut entries = vec![UNMAPPED; per_page as usize];
                for extent in extents {
                    for offset in extent.offset as u32..extent.offset as u32 + extent.len as u32 {
                        entries[offset as usize] =
                            extent.at(offset).expect("the offset is in the extent");
                    }
                }
                entries
            }
        }
    }

    /// Changes an entry. A compressed page gets one more extent. A full one is built again, and
    /// becomes original if that does not help.
    pub(super) fn set(&mut self, offset: u32, ppn: u32, per_page: u32, max: u32) {
        match self {
            Form::Original(entries) => entries[offset as usize] = ppn,
            Form::Compressed(extents) => {
                if let Some(last) = extents
                    .last_mut()
                    .filter(|last| last.is_followed_by(offset, ppn))
                {
                    last.len += 1;
                } else if (extents.len() as u32) < max {
                    extents.push(Extent {
                        offset: offset as u16,
                        len: 1,
                        ppn,
                    });
                } else {
                    let mut entries = self.entries(per_page);
                    entries[offset as usize] = ppn;
                    *self = Form::new(&entries, max);
                }
            }
        }
    }
}
