//! Mapping from trace addresses to device addresses.

use super::job::Address;
use super::progress::{TICK, Tick};
use super::source::Source;
use ftld_kit::convert::{to_f64, to_u64, to_usize, whole};
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use ftld_traces::{Op, Record};
use std::collections::BTreeSet;

/// Extent size of compaction: small enough to include little untouched space, large enough to keep
/// neighbours together.
const GRAIN: u64 = 1 << 20;

/// One extent of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub len: u64,
}

/// Touched extents of a trace, by disk and extent number.
#[derive(Default)]
pub(super) struct Footprint(BTreeSet<(u64, u64)>);

/// Maximum of extents in a footprint, 16 TiB: no supported device is larger.
const GRAINS_MAX: u64 = 1 << 24;

impl Footprint {
    /// Reads a source to its end. `workload` names it in messages.
    pub(super) fn of(
        source: &Source,
        workload: &str,
        tick: Tick<'_>,
    ) -> Result<Footprint, Failure> {
        let (mut stream, mut footprint) = (source.begin(0, 0)?, Footprint::default());
        let mut count = 0u64;
        while let Some(record) = stream.next() {
            count += 1;
            if count.is_multiple_of(TICK) {
                tick(stream.progress(), "scanning");
            }
            footprint
                .add(&record?)
                .map_err(|why| stream.misplaced(workload, &why))?;
        }
        Ok(footprint)
    }

    /// Adds the extents that a record touches.
    fn add(&mut self, record: &Record) -> Result<(), Failure> {
        if record.op == Op::Flush {
            return Ok(());
        }
        let (first, last) = (
            record.offset_bytes,
            record.offset_bytes + record.length_bytes - 1,
        );
        assert!(first <= last, "a record of no bytes");
        let grains = first / GRAIN..=last / GRAIN;
        if grains.end() - grains.start() + self.extents() >= GRAINS_MAX {
            return Err(Failure::failed(
                "with this the trace touches more than 16 TiB; check these units first (--format), then add --address fold",
            ));
        }
        self.0.extend(grains.map(|grain| (record.device, grain)));
        Ok(())
    }

    /// Returns the number of extents.
    pub(super) fn extents(&self) -> u64 {
        to_u64(self.0.len())
    }

    /// Returns the bytes of all extents.
    pub(super) fn bytes(&self) -> u64 {
        self.extents() * GRAIN
    }
}

/// A mapping of addresses.
pub(super) enum AddressMap {
    Exact {
        disk: Option<u64>,
    },
    Fold {
        disk: Option<u64>,
    },
    /// Sorted; the index is the new extent number.
    Compact(Vec<(u64, u64)>),
}

impl AddressMap {
    pub(super) fn new(address: Address, footprint: Option<Footprint>) -> AddressMap {
        match (address, footprint) {
            (_, Some(footprint)) => AddressMap::Compact(footprint.0.into_iter().collect()),
            (Address::Fold, None) => AddressMap::Fold { disk: None },
            (_, None) => AddressMap::Exact { disk: None },
        }
    }

    /// Maps a record to extents on a device of `size` bytes; a FLUSH has none. The error contains
    /// the mismatch and the remedy.
    pub(super) fn place(
        &mut self,
        record: &Record,
        size: u64,
        to: &mut Vec<Extent>,
    ) -> Result<(), Failure> {
        let Record {
            offset_bytes: offset,
            length_bytes: len,
            device,
            ..
        } = *record;
        to.clear();
        if record.op == Op::Flush {
            return Ok(());
        }
        match self {
            AddressMap::Exact { disk } => {
                one_disk(disk, device)?;
                let end = offset + len;
                if end > size {
                    return Err(Failure::failed(format!(
                        "{len} bytes at {offset} reach beyond the device of {size} bytes ({}); check these units first (--format), \
                         then add a larger --size, or --address compact or fold",
                        show_size(size)
                    )));
                }
                to.push(Extent { offset, len });
            }
            AddressMap::Fold { disk } => {
                one_disk(disk, device)?;
                if len > size {
                    return Err(Failure::failed(format!(
                        "{len} bytes are more than the device of {size} bytes; check these units first (--format), then add a larger --size"
                    )));
                }
                let offset = offset % size;
                let first = len.min(size - offset);
                assert!(
                    first > 0,
                    "no byte of {len} at {offset} on a device of {size}"
                );
                to.push(Extent { offset, len: first });
                if len > first {
                    to.push(Extent {
                        offset: 0,
                        len: len - first,
                    });
                }
            }
            AddressMap::Compact(touched) => {
                // A footprint has every extent between the first and the last byte of a record, so
                // the extents of a record stay adjacent.
                let place = touched
                    .binary_search(&(device, offset / GRAIN))
                    .map_err(|_| Failure::failed(CHANGED))?;
                let last = (offset + len - 1) / GRAIN;
                let end = place + to_usize(last - offset / GRAIN);
                if touched.get(end) != Some(&(device, last)) {
                    return Err(Failure::failed(CHANGED));
                }
                to.push(Extent {
                    offset: to_u64(place) * GRAIN + offset % GRAIN,
                    len,
                });
            }
        }
        assert!(
            (1..=2).contains(&to.len()),
            "a request at {offset} in {} extents",
            to.len()
        );
        assert_eq!(
            to.iter().map(|extent| extent.len).sum::<u64>(),
            len,
            "the bytes of a request at {offset}"
        );
        Ok(())
    }
}

/// Share of the device by which addresses move from one pass to the next: that of the golden
/// section, so that passes begin far from each other.
const ROTATION: f64 = 0.381_966;

/// Moves extents on a device of `size` bytes, whole pages of `page` bytes, to where they are in
/// this pass. The part of an extent beyond the end continues at the start.
pub(super) fn rotate(extents: &mut Vec<Extent>, pass: u32, size: u64, page: u64) {
    // Whole units, so that pages and neighbours stay together.
    let unit = if size >= 16 * GRAIN { GRAIN } else { page };
    let step = whole(to_f64(size) * ROTATION) / unit * unit;
    let step = (step / page * page).max(page);
    let by = u64::from(pass) * step % size;
    for at in 0..extents.len() {
        let extent = &mut extents[at];
        extent.offset = (extent.offset + by) % size;
        let beyond = (extent.offset + extent.len).saturating_sub(size);
        if beyond > 0 {
            extent.len -= beyond;
            extents.push(Extent {
                offset: 0,
                len: beyond,
            });
        }
    }
}

const CHANGED: &str = "was not in the trace at the first pass; the file changed meanwhile";

fn one_disk(known: &mut Option<u64>, device: u64) -> Result<(), Failure> {
    match *known.get_or_insert(device) {
        first if first == device => Ok(()),
        first => Err(Failure::failed(format!(
            "disk {device}, after requests to disk {first}: each has its own addresses; select one with --disk N, or place them \
             one after another with --address compact"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(device: u64, offset_bytes: u64, length_bytes: u64) -> Record {
        Record {
            time_ns: 0,
            op: Op::Write,
            device,
            offset_bytes,
            length_bytes,
        }
    }

    fn place(map: &mut AddressMap, record: Record, size: u64) -> Result<Vec<(u64, u64)>, Failure> {
        let mut extents = Vec::new();
        map.place(&record, size, &mut extents)?;
        Ok(extents
            .iter()
            .map(|extent| (extent.offset, extent.len))
            .collect())
    }

    #[test]
    fn exact_addresses_fit_or_are_refused() {
        let mut map = AddressMap::new(Address::Exact, None);
        assert_eq!(place(&mut map, at(3, 512, 512), 1024), Ok(vec![(512, 512)]));
        assert!(
            place(&mut map, at(3, 513, 512), 1024)
                .unwrap_err()
                .message
                .contains("512 bytes at 513 reach beyond the device of 1024")
        );
        assert!(
            place(&mut map, at(4, 0, 512), 1024)
                .unwrap_err()
                .message
                .contains("disk 4, after requests to disk 3")
        );
    }

    #[test]
    fn folded_addresses_wrap() {
        let mut map = AddressMap::new(Address::Fold, None);
        assert_eq!(
            place(&mut map, at(0, 10 * 4096 + 100, 50), 4096),
            Ok(vec![(100, 50)])
        );
        assert_eq!(
            place(&mut map, at(0, 4000, 200), 4096),
            Ok(vec![(4000, 96), (0, 104)])
        );
        assert_eq!(
            place(&mut map, at(0, 8192, 4096), 4096),
            Ok(vec![(0, 4096)])
        );
        assert!(place(&mut map, at(0, 0, 4097), 4096).is_err());
    }

    #[test]
    fn rotated_passes_begin_elsewhere_and_keep_every_byte() {
        let size = 64 * MIB;
        let mut begins = BTreeSet::new();
        for pass in 0..8 {
            let mut extents = vec![Extent {
                offset: 60 * MIB + 512,
                len: 3 * MIB,
            }];
            rotate(&mut extents, pass, size, 4096);
            let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
            assert_eq!(bytes, 3 * MIB);
            assert!(
                extents
                    .iter()
                    .all(|extent| extent.len > 0 && extent.offset + extent.len <= size)
            );
            assert_eq!(extents[0].offset % MIB, 512, "pages stay aligned");
            begins.insert(extents[0].offset);
        }
        assert_eq!(begins.len(), 8);
        assert!(
            begins.contains(&(60 * MIB + 512)),
            "the first pass is not moved"
        );
        // Every pass of a device of few pages is elsewhere, too.
        let begins: BTreeSet<u64> = (0..3)
            .map(|pass| {
                let mut extents = vec![Extent {
                    offset: 0,
                    len: 16384,
                }];
                rotate(&mut extents, pass, 3 * 16384, 16384);
                extents[0].offset
            })
            .collect();
        assert_eq!(begins, BTreeSet::from([0, 16384, 32768]));
    }

    #[test]
    fn compaction_keeps_order_and_neighbours_and_leaves_nothing_out() {
        let records = [
            at(1, 7 * MIB - 10, 20),
            at(0, 1000 * MIB, 5),
            at(1, 5, 2 * MIB),
            at(1, 6 * MIB, 1),
        ];
        let mut footprint = Footprint::default();
        records
            .iter()
            .for_each(|record| footprint.add(record).unwrap());
        assert!(
            footprint
                .add(&at(0, 0, 16 << 40))
                .unwrap_err()
                .message
                .contains("more than 16 TiB")
        );
        assert_eq!(footprint.bytes(), 6 * MIB);
        let mut map = AddressMap::new(Address::Compact, Some(footprint));
        // Disk 0 first, then the five extents of disk 1: 0, 1, 2, 6, 7.
        let expected = [(5 * MIB - 10, 20), (0, 5), (MIB + 5, 2 * MIB), (4 * MIB, 1)];
        for (record, expected) in records.iter().zip(expected) {
            assert_eq!(place(&mut map, *record, 6 * MIB), Ok(vec![expected]));
        }
        assert!(
            place(&mut map, at(1, 2 * MIB, 2 * MIB), 6 * MIB)
                .unwrap_err()
                .message
                .contains("changed"),
            "a record that ends in an extent of no record of the first pass"
        );
        assert!(
            place(&mut map, at(2, 0, 1), 6 * MIB)
                .unwrap_err()
                .message
                .contains("changed")
        );
    }
}
