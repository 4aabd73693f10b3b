//! Address distributions.

use super::Shape;
use crate::convert::{to_f64, whole};
use crate::error::ValueError;
use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;

/// Generator of addresses in a span of bytes.
pub(super) struct Addresses {
    span: u64,
    align: Option<u64>,
    pattern: Pattern,
    /// Next address of the sequential stream.
    next: u64,
}

enum Pattern {
    Uniform,
    HotCold {
        hot: f64,
        access: f64,
    },
    /// Ranks over slots of [`Addresses::SLOT`] bytes. Rank r maps to slot r x step mod slots, which
    /// spreads the popular slots.
    Zipf {
        ranks: Zipf<f64>,
        slots: u64,
        step: u64,
    },
    Sequential,
    Mixed {
        sequential: f64,
    },
}

impl Addresses {
    /// Bytes per slot.
    const SLOT: u64 = 4096;

    pub(super) fn new(
        shape: Shape,
        span: u64,
        align: Option<u64>,
        largest: u64,
    ) -> Result<Addresses, ValueError> {
        if largest > span {
            return Err(ValueError::Misfit(format!(
                "requests of up to {largest} bytes in a span of {span} bytes"
            )));
        }
        assert!(
            align.is_none_or(u64::is_power_of_two),
            "addresses that are multiples of {align:?}"
        );
        let pattern = match shape {
            Shape::HotCold { hot, access } => Pattern::HotCold { hot, access },
            Shape::Zipf { theta } => {
                let slots = span.div_ceil(Self::SLOT);
                let ranks = Zipf::new(to_f64(slots), theta)
                    .map_err(|error| ValueError::Misfit(format!("theta {theta}: {error}")))?;
                Pattern::Zipf {
                    ranks,
                    slots,
                    step: coprime(slots),
                }
            }
            Shape::Sequential => Pattern::Sequential,
            Shape::Mixed { sequential } => Pattern::Mixed { sequential },
            Shape::Uniform | Shape::Usr2(_) => Pattern::Uniform,
        };
        Ok(Addresses {
            span,
            align,
            pattern,
            next: 0,
        })
    }

    /// Draws an address for a request of `len` bytes, a multiple of `grain` unless an alignment is
    /// set.
    pub(super) fn draw(&mut self, len: u64, grain: u64, rng: &mut Pcg64) -> u64 {
        let grain = self.align.unwrap_or(grain);
        assert!(grain > 0, "addresses that are multiples of nothing");
        assert!(len <= self.span, "a request longer than its span");
        let places = (self.span - len) / grain + 1;
        let place = match &self.pattern {
            Pattern::Sequential => return self.follow(len, grain),
            Pattern::Mixed { sequential } if rng.random_bool(*sequential) => {
                return self.follow(len, grain);
            }
            Pattern::Uniform | Pattern::Mixed { .. } => rng.random_range(0..places),
            Pattern::HotCold { hot, access } => {
                let hot = (whole((to_f64(places) * hot).round())).clamp(1, places);
                match rng.random_bool(*access) {
                    true => rng.random_range(0..hot),
                    false if hot < places => rng.random_range(hot..places),
                    false => rng.random_range(0..places),
                }
            }
            Pattern::Zipf { ranks, slots, step } => {
                let rank = whole(ranks.sample(rng)) - 1;
                let slot = u128::from(rank) * u128::from(*step) % u128::from(*slots);
                let slot = u64::try_from(slot).expect("a rest is below the number of slots");
                // Any address inside the slot.
                let offset = slot * Self::SLOT
                    + if grain < Self::SLOT {
                        rng.random_range(0..Self::SLOT / grain) * grain
                    } else {
                        0
                    };
                (offset / grain).min(places - 1)
            }
        };
        assert!(
            place < places,
            "place {place} of {places} for {len} bytes in a span of {}",
            self.span
        );
        place * grain
    }

    fn follow(&mut self, len: u64, grain: u64) -> u64 {
        assert!(
            self.next <= self.span,
            "the stream is at byte {} of a span of {}",
            self.next,
            self.span
        );
        let at = self.next.next_multiple_of(grain);
        let at = if at + len > self.span { 0 } else { at };
        self.next = at + len;
        assert!(self.next <= self.span, "a stream stays inside its span");
        at
    }
}

/// Returns a number near the golden section of `n` that is coprime to it: its multiples visit every
/// residue, far apart.
fn coprime(n: u64) -> u64 {
    assert!(n > 0, "no number shares no divisor with 0");
    let divides = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = whole(to_f64(n) * 0.618_033_988_749_895).max(1);
    (near..)
        .find(|&step| divides(step, n) == 1)
        .expect("a prime comes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_visit_every_slot_once() {
        for n in [1, 2, 3, 4, 100, 1024, 1031, 262_144] {
            let step = coprime(n);
            let mut seen = vec![false; n as usize];
            (0..n).for_each(|rank| seen[(rank * step % n) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{n}");
        }
    }
}
