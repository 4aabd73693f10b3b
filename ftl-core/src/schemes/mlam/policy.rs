//! Choice of the data to flush (sections 4.1, 4.2): the candidate superblocks, and the virtual
//! superblock made of parts of them. This module writes nothing.

use super::buffer::{Buffer, Unit};
use super::shape::{QUARTERS, Shape};
use crate::error::FtlError;
use crate::int::{index, real, to_u32, to_u64};

/// Order of superblocks, and whether they are flushed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// All superblocks, once flushing begins.
    FlushAll,
    /// The least recently used superblock.
    Lru,
    /// The superblock with the most buffered pages.
    Size,
    /// Equation 2.
    LruSize,
    /// Virtual superblocks of the candidates that equation 2 gives.
    Mlam,
}

impl Policy {
    const NAMES: [(&'static str, Policy); 5] = [
        ("mlam", Policy::Mlam),
        ("flush_all", Policy::FlushAll),
        ("lru", Policy::Lru),
        ("size", Policy::Size),
        ("lru_size", Policy::LruSize),
    ];

    pub(super) fn named(name: &str) -> Result<Policy, FtlError> {
        let found = Policy::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, policy)| *policy);
        found.ok_or_else(|| {
            let names = Policy::NAMES.map(|(name, _)| name).join(", ");
            FtlError::Config(format!(
                "parameter mlam.policy: {name:?} is none of {names}"
            ))
        })
    }
}

/// A superblock that may be flushed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) logical: u32,
    /// Age in the buffer, 1 for the least recently used superblock.
    pub(super) age: f64,
    pub(super) unit: Unit,
}

/// Returns the first `count` candidates by priority.
pub(super) fn candidates(
    buffer: &Buffer,
    shape: &Shape,
    policy: Policy,
    alpha: f64,
    count: usize,
) -> Vec<Candidate> {
    let all = real(to_u64(buffer.superblocks()));
    let ages = (0u32..).map(|rank| (all - f64::from(rank)) / all);
    let oldest_first = buffer
        .oldest_first()
        .zip(ages)
        .map(|((logical, unit), age)| Candidate {
            logical,
            age,
            unit: *unit,
        });
    if matches!(policy, Policy::FlushAll | Policy::Lru) {
        return oldest_first.take(count).collect();
    }
    let alpha = if policy == Policy::Size { 0.0 } else { alpha };
    let size = |c: &Candidate| f64::from(c.unit.pages) / f64::from(shape.superblock_pages());
    let priority = |c: &Candidate| alpha * c.age + (1.0 - alpha) * size(c);
    let mut best: Vec<(f64, Candidate)> = Vec::with_capacity(count + 1);
    for candidate in oldest_first {
        let priority = priority(&candidate);
        if best.len() == count && best[count - 1].0 >= priority {
            continue;
        }
        let at = best.partition_point(|(other, _)| *other >= priority);
        best.insert(at, (priority, candidate));
        best.truncate(count);
    }
    best.into_iter().map(|(_, candidate)| candidate).collect()
}

/// A superblock, half or quarter, as a part of a virtual superblock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    /// Its first quarter.
    pub(super) first: u32,
    /// Number of quarters.
    pub(super) quarters: u32,
    /// Number of its buffered pages.
    pub(super) pages: u32,
    age: f64,
    /// Its current superchip; `None` if it has none.
    pub(super) superchip: Option<u32>,
}

/// Weight of recency relative to size of a piece (the paper gives no figure).
const WEIGHT_OF_AGE: f64 = 0.5;
/// Preference for whole superblocks (the paper gives no figure).
const WEIGHT_OF_WHOLE: f64 = 1.25;

impl Piece {
    fn weight(&self) -> f64 {
        let whole = if self.quarters == QUARTERS {
            WEIGHT_OF_WHOLE
        } else {
            1.0
        };
        f64::from(self.pages) * (1.0 + WEIGHT_OF_AGE * self.age) * whole
    }
}

/// Cuts a candidate. It stays whole if at most `k_empty` of its logical blocks have no buffered
/// page. Else it is cut into the quarters with buffered pages, and into halves if both quarters
/// remain on one superchip.
pub(super) fn pieces(
    candidate: &Candidate,
    shape: &Shape,
    k_empty: u32,
    superchip: impl Fn(u32) -> Option<u32>,
) -> Vec<Piece> {
    let first = candidate.logical * QUARTERS;
    // Superblocks of few pages have fewer logical blocks.
    let step = index(8 / shape.superblock_pages().min(8));
    let empty = candidate
        .unit
        .eighths
        .iter()
        .step_by(step)
        .filter(|pages| **pages == 0)
        .count();
    let piece = |first: u32, quarters: u32, superchip: Option<u32>| {
        let pages = (first..first + quarters)
            .map(|quarter| candidate.unit.of_quarter(quarter))
            .sum();
        Piece {
            first,
            quarters,
            pages,
            age: candidate.age,
            superchip,
        }
    };
    let quarters = first..first + QUARTERS;
    if empty <= index(k_empty) {
        return vec![piece(
            first,
            QUARTERS,
            quarters.clone().find_map(&superchip),
        )];
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for quarter in quarters.filter(|quarter| candidate.unit.of_quarter(*quarter) > 0) {
        let here = superchip(quarter);
        let joins = |last: &&mut Piece| {
            let together = last.superchip.is_none() || here.is_none() || last.superchip == here;
            last.first + 1 == quarter && quarter % 2 == 1 && last.quarters == 1 && together
        };
        match pieces.last_mut().filter(joins) {
            Some(last) => *last = piece(last.first, 2, last.superchip.or(here)),
            None => pieces.push(piece(quarter, 1, here)),
        }
    }
    debug_assert_eq!(
        pieces.iter().map(|piece| piece.pages).sum::<u32>(),
        candidate.unit.pages,
        "the pieces of superblock {} have all its buffered pages",
        candidate.logical
    );
    pieces
}

/// A virtual superblock: quarters by location, and the superchip with most of the data, if any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Virtual {
    pub(super) slots: Vec<u32>,
    pub(super) superchip: Option<u32>,
    pages: u32,
}

impl Virtual {
    /// Creates one of these quarters, without a page count.
    pub(super) fn new(slots: Vec<u32>, superchip: Option<u32>) -> Self {
        Virtual {
            slots,
            superchip,
            pages: 0,
        }
    }

    /// Returns whether all its locations are taken.
    pub(super) fn is_full(&self) -> bool {
        self.slots.len() == index(QUARTERS)
    }
}

/// Composes a virtual superblock per superchip from the heaviest pieces that fit; pieces without a
/// superchip fit everywhere. Returns the one with the most buffered pages.
pub(super) fn compose(pieces: &[Piece]) -> Option<Virtual> {
    let mut superchips: Vec<Option<u32>> = pieces.iter().map(|piece| piece.superchip).collect();
    superchips.sort_unstable();
    superchips.dedup();
    let mut by_weight: Vec<&Piece> = pieces.iter().collect();
    by_weight.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
    let on = |superchip: Option<u32>| {
        let mut chosen: Vec<Piece> = Vec::new();
        let mut room = QUARTERS;
        for piece in &by_weight {
            let fits = piece.superchip.is_none() || piece.superchip == superchip;
            if fits && piece.quarters <= room {
                room -= piece.quarters;
                chosen.push(**piece);
            }
        }
        assert!(
            chosen.iter().map(|piece| piece.quarters).sum::<u32>() <= QUARTERS,
            "{} pieces exceed a superblock",
            chosen.len()
        );
        let pages = chosen.iter().map(|piece| piece.pages).sum();
        Virtual {
            slots: arrange(chosen.iter().map(|piece| (piece.first, piece.quarters))),
            superchip,
            pages,
        }
    };
    let best = superchips
        .into_iter()
        .map(on)
        .max_by_key(|composed| (composed.pages, composed.superchip.is_some()));
    best.filter(|composed| !composed.slots.is_empty())
}

/// Returns locations for these pieces: halves first, so that each is aligned, then quarters; holes
/// are at the end.
pub(super) fn arrange(pieces: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut pieces: Vec<(u32, u32)> = pieces.collect();
    pieces.sort_by_key(|(first, quarters)| (std::cmp::Reverse(*quarters), *first));
    pieces
        .into_iter()
        .flat_map(|(first, quarters)| first..first + quarters)
        .collect()
}

/// Returns quarters as pieces: whole superblocks, halves, and single quarters.
pub(super) fn joined(quarters: &mut [u32]) -> Vec<(u32, u32)> {
    quarters.sort_unstable();
    let mut pieces = Vec::new();
    for superblock in quarters.chunk_by(|a, b| a / QUARTERS == b / QUARTERS) {
        if superblock.len() == index(QUARTERS) {
            pieces.push((superblock[0], QUARTERS));
        } else {
            let halves = superblock.chunk_by(|a, b| a / 2 == b / 2);
            pieces.extend(halves.map(|half| (half[0], to_u32(half.len()))));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Lpn;
    use nand_model::{Geometry, Profile};

    /// Superblocks of 8 chips with blocks of 128 pages, as in the paper: N = 1024 pages.
    fn shape() -> Shape {
        let geometry = Geometry {
            page_bytes: 512,
            ..Profile::find("mlam").unwrap().geometry
        };
        Shape::new(&geometry, 8).unwrap()
    }

    /// Equation 2 with T = 3 superblocks in the buffer. By last access, the oldest first (t / T =
    /// 1, 2/3, 1/3), they have 100, 200 and 900 of N = 1024 pages (n / N = 0.098, 0.195, 0.879).
    /// Alpha 0.5: 0.549, 0.431 and 0.606. Alpha 0.75: 0.774, 0.549 and 0.470.
    #[test]
    fn the_eviction_priority_is_that_of_equation_2() {
        let shape = shape();
        let mut buffer = Buffer::new(shape, 4096, 512, false);
        for (logical, pages) in [(7, 100), (5, 200), (6, 900)] {
            let first = Lpn::new(logical * shape.superblock_pages());
            first
                .run(pages)
                .for_each(|lpn| buffer.write(lpn, &[0; 512]));
        }
        let order = |policy, alpha| {
            let found = candidates(&buffer, &shape, policy, alpha, 3);
            found.iter().map(|c| c.logical).collect::<Vec<_>>()
        };
        assert_eq!(order(Policy::LruSize, 0.5), [6, 7, 5]);
        assert_eq!(order(Policy::Mlam, 0.75), [7, 5, 6]);
        assert_eq!(order(Policy::Lru, 0.5), [7, 5, 6]);
        assert_eq!(order(Policy::Size, 0.5), [6, 5, 7]);
        let tied = Lpn::new(4 * shape.superblock_pages()).run(200);
        tied.for_each(|lpn| buffer.write(lpn, &[0; 512]));
        let order = |policy, alpha| {
            let found = candidates(&buffer, &shape, policy, alpha, 4);
            found.iter().map(|c| c.logical).collect::<Vec<_>>()
        };
        assert_eq!(
            order(Policy::Size, 0.5),
            [6, 5, 4, 7],
            "of equal sizes the older"
        );
        let best = candidates(&buffer, &shape, Policy::Mlam, 0.5, 1);
        assert_eq!(best[0].logical, 6, "the first of |R| = 1");
    }

    fn piece(first: u32, quarters: u32, pages: u32, age: f64) -> Piece {
        let superchip = Some(0);
        Piece {
            first,
            quarters,
            pages,
            age,
            superchip,
        }
    }

    /// Section 4.2: a whole superblock "has some weight", and sizes are weighed with recency. The
    /// figures are ours: 1.25, and 1 + 0.5 age.
    #[test]
    fn wholes_and_old_pieces_outweigh_larger_ones() {
        // 100 x 1.25 = 125 against 120.
        let slots = compose(&[piece(8, 1, 120, 0.0), piece(4, 4, 100, 0.0)]);
        assert_eq!(slots.unwrap().slots, [4, 5, 6, 7]);
        // 60 x 1.5 = 90 against 80 x 1.05 = 84; there is room for four.
        let mut five: Vec<Piece> = (0..4).map(|n| piece(4 * n, 1, 80 + n, 0.1)).collect();
        five.push(piece(16, 1, 60, 1.0));
        assert_eq!(compose(&five).unwrap().slots, [4, 8, 12, 16]);
    }
}
