//! Which states a power cut leaves at a point: one by the model `prefix`, many by the model
//! `cache`. A model chooses among contents of a unit: the whole ones are from `timeline.rs`, the
//! damaged ones of `--loss` from `losses.rs`; `cursor.rs` knows which are durable. The names are in
//! `args.rs` and `case.rs`; `explore.rs` and `visit.rs` dispatch.

use super::case::Case;
use super::content::{Content, Contents};
use super::cursor::{OpenUnit, Point};
use super::losses::Losses;
use super::timeline::Timeline;
use ftld_kit::convert::{index, to_u32, to_u64};
use nand_model::SplitMix;
use std::ops::Range;
use std::sync::Arc;

/// A state has contents of its own if more than one in this number is not shared.
const SHARED_MIN: usize = 16;

/// Content of a whole device.
#[derive(Clone)]
pub(super) struct State {
    /// Durable content by slot.
    pub(super) durable: Arc<Vec<Content>>,
    /// Slots that differ from `durable`, in order.
    pub(super) changed: Vec<(u32, Content)>,
    /// Units without a slot that have data, in order: a check on a state wrote it.
    pub(super) extra: Vec<(u32, Content)>,
    /// Those of the recovery that left it; `None` if no recovery did.
    pub(super) contents: Option<Arc<Contents>>,
    /// Equal for equal contents.
    pub(super) sum: u128,
}

impl State {
    /// Returns the state of a choice of candidates, one index per open unit.
    pub(super) fn of(point: &Point, choice: &[u32], contents: &Contents) -> State {
        assert_eq!(
            choice.len(),
            point.open.len(),
            "one candidate per open unit"
        );
        let mut sum = point.durable_sum;
        let mut changed = Vec::new();
        for (unit, candidate) in point.open.iter().zip(choice) {
            let (old, new) = (unit.candidates[0], unit.candidates[index(*candidate)]);
            if old != new {
                changed.push((unit.slot, new));
                sum = sum
                    .wrapping_sub(contents.term(unit.unit, old))
                    .wrapping_add(contents.term(unit.unit, new));
            }
        }
        State {
            durable: point.durable.clone(),
            changed,
            extra: Vec::new(),
            contents: None,
            sum,
        }
    }

    /// Returns the state of these contents by slot. It shares those of a `near` one if it differs
    /// in few.
    pub(super) fn found(durable: Vec<Content>, near: Option<&State>, of: &Timeline) -> State {
        let near = near.map(|near| {
            let pairs = near.durable.iter().zip(&durable);
            let differs = (0..).zip(pairs).filter(|(_, (old, new))| old != new);
            let changed: Vec<(u32, Content)> = differs.map(|(at, (_, new))| (at, *new)).collect();
            (near, changed)
        });
        let near = near.filter(|(_, changed)| changed.len() <= durable.len() / SHARED_MIN);
        let term =
            |(slot, content): (u32, Content)| of.contents.term(of.written[index(slot)], content);
        let (durable, changed, sum) = match near {
            Some((near, changed)) => {
                let delta = |changed: &[(u32, Content)]| {
                    changed.iter().fold(0u128, |sum, &(slot, new)| {
                        let old = near.durable[index(slot)];
                        sum.wrapping_add(term((slot, new)))
                            .wrapping_sub(term((slot, old)))
                    })
                };
                let shared = near.sum.wrapping_sub(delta(&near.changed));
                let sum = shared.wrapping_add(delta(&changed));
                (near.durable.clone(), changed, sum)
            }
            None => {
                let slots = (0..).zip(durable.iter().copied());
                let sum = slots.map(term).fold(0, u128::wrapping_add);
                (Arc::new(durable), Vec::new(), sum)
            }
        };
        State {
            durable,
            changed,
            extra: Vec::new(),
            contents: None,
            sum,
        }
    }

    /// Returns the content of a slot.
    pub(super) fn content(&self, slot: usize) -> Content {
        let changed = self
            .changed
            .binary_search_by_key(&slot, |(at, _)| index(*at));
        changed.map_or(self.durable[slot], |at| self.changed[at].1)
    }

    /// Calls `each` with every slot and its content, in order.
    pub(super) fn each(&self, each: impl FnMut(u32, Content)) {
        self.each_of(0..to_u32(self.durable.len()), each);
    }

    /// Calls `each` with these slots and their contents, in order.
    pub(super) fn each_of(&self, slots: Range<u32>, mut each: impl FnMut(u32, Content)) {
        let place = |slot| self.changed.partition_point(|(at, _)| *at < slot);
        let changed = place(slots.start)..place(slots.end);
        let mut changed = self.changed[changed].iter().peekable();
        let durable = &self.durable[index(slots.start)..index(slots.end)];
        for (slot, durable) in slots.zip(durable) {
            let new = changed.next_if(|(at, _)| *at == slot);
            each(slot, new.map_or(*durable, |(_, content)| *content));
        }
        assert!(changed.next().is_none(), "changed slots in order");
    }
}

/// Returns the newest acknowledged content of every open unit.
pub(super) fn newest(point: &Point) -> Vec<u32> {
    point.open.iter().map(|unit| unit.newest).collect()
}

/// Returns the only choice of the model `prefix`.
pub(super) fn prefix(point: &Point) -> (Case, Vec<u32>) {
    let entry = point.number;
    (Case::Prefix { entry }, newest(point))
}

/// Returns the number of choices of the model `cache`; the largest number if they are more.
pub(super) fn count(point: &Point) -> u64 {
    let counts = point.open.iter().map(|unit| to_u64(unit.candidates.len()));
    counts.fold(1u64, u64::saturating_mul)
}

/// Returns choices of the model `cache`: all of them if they are at most `most`, otherwise `most`
/// by seed. The first loses nothing, the second all that is not durable.
pub(super) fn cache(point: &Point, losses: &Losses, most: u32, seed: u64) -> Vec<Vec<u32>> {
    let all = count(point);
    if all <= u64::from(most) {
        return (0..all).map(|number| nth(&point.open, number)).collect();
    }
    let mut rng = SplitMix::new(seed ^ point.number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let lost = vec![0; point.open.len()];
    let drawn = (0..most.saturating_sub(2)).map(|number| {
        // With such losses, every second one has them.
        let damaged = (number % 2 == 1).then(|| losses.draw(point, &mut rng));
        damaged
            .flatten()
            .unwrap_or_else(|| draw(&point.open, number, &mut rng))
    });
    let choices = [newest(point), lost].into_iter().chain(drawn);
    choices.take(index(most)).collect()
}

/// Returns the choice with this number among all of them.
fn nth(open: &[OpenUnit], mut number: u64) -> Vec<u32> {
    let digit = |unit: &OpenUnit| {
        let base = to_u64(unit.candidates.len());
        let digit = number % base;
        number /= base;
        to_u32(ftld_kit::convert::to_usize(digit))
    };
    open.iter().map(digit).collect()
}

/// Draws a choice. Four shapes take turns: each unit on its own; one request lost, all others
/// there; one request there, all others lost; a prefix of the requests.
fn draw(open: &[OpenUnit], shape: u32, rng: &mut SplitMix) -> Vec<u32> {
    let any = |rng: &mut SplitMix| {
        &open[index(to_u32(ftld_kit::convert::to_usize(
            rng.below(to_u64(open.len())),
        )))]
    };
    if shape.is_multiple_of(4) {
        let one = |unit: &OpenUnit| {
            to_u32(ftld_kit::convert::to_usize(
                rng.below(to_u64(unit.candidates.len())),
            ))
        };
        return open.iter().map(one).collect();
    }
    let of = any(rng);
    let at = rng.below(to_u64(of.requests.len() - 1)) + 1;
    let request = of.requests[ftld_kit::convert::to_usize(at)];
    let choose = |unit: &OpenUnit| {
        let found = unit.requests.iter().position(|at| *at == request);
        let found = found.map(to_u32);
        match shape % 4 {
            1 => found.map_or(unit.newest, |at| at - 1),
            2 => found.unwrap_or(0),
            _ => {
                let upto = unit.requests.partition_point(|at| *at <= request);
                to_u32(upto.max(1) - 1)
            }
        }
    };
    open.iter().map(choose).collect()
}
