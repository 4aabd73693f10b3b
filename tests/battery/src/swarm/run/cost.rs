//! The losses that the faults of a plan may cause.

use crate::rig::Cells;
use crate::swarm::oracle::Cost;
use crate::swarm::plan::{Plan, Step};

/// Returns the losses that a plan's faults may cause.
pub(super) fn cost_of(plan: &Plan) -> Cost {
    let costs_service = |step: &Step| match step {
        Step::BlockFails(_, fault) => fault.is_silent(),
        Step::DieFails(_) => true,
        _ => false,
    };
    let costs_pages = |step: &Step| match step {
        Step::WrongBits(_, bits, _) => *bits > correctable_bits(plan),
        Step::LostOob(..) => true,
        _ => false,
    };
    // With frequent bit errors, records are lost, too.
    let harsh = plan.parts.bit_errors > mild_bit_errors(plan);
    let silent = plan.parts.rates.iter().any(|(fault, _)| fault.is_silent());
    if harsh || silent || plan.steps.iter().any(costs_service) {
        Cost::Service
    } else if plan.steps.iter().any(costs_pages) {
        Cost::Pages
    } else {
        Cost::Nothing
    }
}

/// Wrong bits of a codeword that the plan's chip corrects.
pub(super) fn correctable_bits(plan: &Plan) -> u32 {
    if plan.device.cells() == Cells::Slc {
        4
    } else {
        60
    }
}

impl Plan {
    /// Whether its chip has bit errors, of which the ECC corrects all.
    pub(in crate::swarm) fn has_mild_bit_errors(&self) -> bool {
        self.parts.bit_errors > 0 && cost_of(self) == Cost::Nothing
    }
}

/// Multiple of the part's bit error rate up to which a run loses a page with a probability of less
/// than 1e-6.
fn mild_bit_errors(plan: &Plan) -> u32 {
    MILD_BIT_ERRORS[plan.device.cells() as usize]
}

/// Values of [`mild_bit_errors`], by kind of cells.
pub(super) const MILD_BIT_ERRORS: [u32; 4] = [2_000, 30, 30, 30];

#[cfg(test)]
mod tests {
    use super::*;

    /// Probability of more than `limit` wrong bits at a mean of `mean`.
    fn poisson_tail(mean: f64, limit: u32) -> f64 {
        let first = (1..=limit + 1).fold((-mean).exp(), |chance, k| chance * mean / f64::from(k));
        let chances = (limit + 2..limit + 100).scan(first, |chance, k| {
            *chance *= mean / f64::from(k);
            Some(*chance)
        });
        first + chances.sum::<f64>()
    }

    /// For 100,000 pages programmed in a run, at the wear, age and reads that blocks reach in one.
    #[test]
    fn mild_bit_errors_stay_within_the_ecc() {
        for cells in Cells::EVERY {
            let profile = cells.profile();
            let (ecc, bits) = (profile.ecc, f64::from(8 * profile.geometry.page_bytes));
            let rber = profile.error_model.rber(50, 90.0, 10_000)
                * f64::from(MILD_BIT_ERRORS[cells as usize]);
            // A read retry leaves three quarters of the wrong bits.
            let wrong = rber * bits * 0.75f64.powi(ecc.retries as i32);
            let chance = 1e5 * poisson_tail(wrong, ecc.bits);
            assert!(chance < 1e-6, "{}: {chance:e}", cells.name());
        }
    }
}
