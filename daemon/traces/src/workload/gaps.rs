//! Time between the requests of a random arrival process.

use crate::error::ValueError;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp};
use rand_pcg::Pcg64;

/// Selects a sequence of random numbers that no generator of requests draws from.
const STREAM: u64 = 0x6172_7269_7661_6c73;

/// Gaps of Poisson arrivals. The seed determines them.
pub struct Gaps {
    gap_ns: Exp<f64>,
    rng: Pcg64,
}

impl Gaps {
    /// Returns the gaps of arrivals at this mean number per second.
    ///
    /// # Errors
    /// The number is not positive.
    pub fn new(rate: f64, seed: u64) -> Result<Gaps, ValueError> {
        Ok(Gaps {
            gap_ns: exponential(rate)?,
            rng: Pcg64::seed_from_u64(seed ^ STREAM),
        })
    }
}

impl Iterator for Gaps {
    type Item = f64;

    /// Returns the next gap in ns.
    fn next(&mut self) -> Option<f64> {
        Some(self.gap_ns.sample(&mut self.rng))
    }
}

/// Returns the distribution of the gaps in ns.
pub(super) fn exponential(rate: f64) -> Result<Exp<f64>, ValueError> {
    Exp::new(rate / 1e9).map_err(|error| ValueError::Misfit(format!("rate {rate}: {error}")))
}
