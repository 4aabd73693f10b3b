//! A power cut of a chip, at once or within a later program or erase.

use super::chance::{choose, fresh_seed};
use super::options::{ERASE_CUTS, PARTNER_CUTS, PROGRAM_CUTS};
use super::{Injected, Kind, PowerCut};
use ftld_kit::failure::Failure;
use nand_model::{Chip, Cut, SplitMix};
use serde_json::json;

impl PowerCut {
    /// Injects the fault into a chip.
    ///
    /// # Errors
    /// There is no outcome of that name.
    pub fn apply(&self, chip: &mut Chip) -> Result<Injected, Failure> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        let injected = |text: String, facts| Injected {
            kind: Kind::PowerCut,
            count: 1,
            text,
            facts,
            cut_seed: Some(seed),
        };
        let Some(at_op) = self.after else {
            chip.power_off();
            let text = format!("power cut: device removed; restart to recover (seed {seed})");
            return Ok(injected(text, json!({"after": null, "seed": seed})));
        };
        let mut rng = SplitMix::new(seed);
        let (program_name, program) = choose(&PROGRAM_CUTS, self.program.as_deref(), &mut rng)?;
        let (partner_name, partner) = choose(&PARTNER_CUTS, self.partner.as_deref(), &mut rng)?;
        let (erase_name, erase) = choose(&ERASE_CUTS, self.erase.as_deref(), &mut rng)?;
        chip.update_faults(|plan| {
            plan.cut = Some(Cut {
                at_op,
                program,
                partner,
                erase,
                seed,
            })
        });
        Ok(injected(
            format!(
                "power fails after {at_op} more programs or erases; the next is left {program_name} with its partner \
                 {partner_name} if it is a program, {erase_name} if it is an erase (seed {seed})"
            ),
            json!({
                "after": at_op, "program": program_name, "partner": partner_name, "erase": erase_name, "seed": seed,
            }),
        ))
    }
}
