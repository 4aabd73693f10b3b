//! Draws the plan of a seed: a random subset of everything that can vary.

use super::parameters::{LEAST, PARAMETERS};
use super::steps::Steps;
use super::{ChipKind, Device, LARGE, Parts, Plan};
use crate::rig::{Cells, has_param};
use ftl_core::schemes::Scheme;
use nand_model::{Fault, SplitMix};

/// No scheme needs as many free blocks on these devices.
const MOST_TRIED: u32 = 1000;

impl Plan {
    /// The scheme of the plan of a seed ([`Plan::draw`]).
    pub fn scheme_of(schemes: &'static [Scheme], seed: u64) -> &'static Scheme {
        draw_scheme(schemes, &mut SplitMix::new(seed))
    }

    /// The plan of a seed, for one of these schemes. It differs from [`Plan::of`] even with one
    /// scheme, because the choice of the scheme is a draw, too.
    pub fn draw(schemes: &'static [Scheme], seed: u64) -> Plan {
        let mut rng = SplitMix::new(seed);
        let scheme = draw_scheme(schemes, &mut rng);
        Plan::draw_for(scheme, seed, &mut rng)
    }

    /// The plan of a seed, for this scheme.
    pub fn of(scheme: &'static Scheme, seed: u64) -> Plan {
        Plan::draw_for(scheme, seed, &mut SplitMix::new(seed))
    }

    fn draw_for(scheme: &'static Scheme, seed: u64, rng: &mut SplitMix) -> Plan {
        let mut device = draw_device(scheme, rng);
        // A block has to hold twice the padding of a mount (docs/DURABILITY.md). The padding grows
        // with this span, and the span may grow with the block.
        while device.pages_per_block < 2 * device.span() {
            device.pages_per_block = 2 * device.span();
        }
        let parts = draw_parts(device.cells() == Cells::Slc, rng);
        let mut plan = Plan {
            seed,
            scheme,
            device,
            parts,
            steps: Vec::new(),
        };
        // Parameters that the scheme refuses on this shape get their defaults.
        if !plan.starts() {
            let params = std::mem::take(&mut plan.device.params).into_iter();
            // The least value depends on the others.
            let (least, others): (Vec<_>, Vec<_>) = params.partition(|(_, value)| value == LEAST);
            for (key, value) in others {
                plan.accepts(key, value);
            }
            for (key, _) in least {
                let found = (0..MOST_TRIED).find(|n| plan.accepts(key.clone(), n.to_string()));
                found.expect("some number is accepted");
            }
        }
        plan.steps = Steps::new(&plan, rng).draw();
        plan
    }

    /// Sets a parameter, unless the scheme refuses it; returns whether it did.
    fn accepts(&mut self, key: String, value: String) -> bool {
        self.device.params.push((key, value));
        let starts = self.starts();
        if !starts {
            self.device.params.pop();
        }
        starts
    }
}

fn draw_scheme(schemes: &'static [Scheme], rng: &mut SplitMix) -> &'static Scheme {
    &schemes[rng.below(schemes.len() as u64) as usize]
}

pub(super) fn pick<T: Copy>(rng: &mut SplitMix, list: &[T]) -> T {
    list[rng.below(list.len() as u64) as usize]
}

fn draw_device(scheme: &'static Scheme, rng: &mut SplitMix) -> Device {
    let on_disk = rng.one_in(2);
    let others = [
        ChipKind::Adjacent,
        ChipKind::Dist3,
        ChipKind::Dist6,
        ChipKind::Shared4,
        ChipKind::Group4,
    ];
    let chip = match rng.below(8) {
        0 | 1 => ChipKind::Slc,
        2 | 3 => ChipKind::Mlc,
        4 => ChipKind::Random {
            seed: rng.next_u64() as u16,
            span: 1 + rng.below(7) as u8,
        },
        5 => ChipKind::Tlc,
        6 => ChipKind::Qlc,
        _ if on_disk => ChipKind::Mlc,
        _ => pick(rng, &others),
    };
    // Longer word lines, and so larger blocks.
    let word_lines = match chip {
        ChipKind::Tlc | ChipKind::Qlc => 2,
        _ => 1,
    };
    let large = rng.one_in(7);
    let dies = pick(rng, &[(1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (4, 2)]);
    let pages = if large {
        LARGE + 512 * rng.below(3) as u32
    } else {
        8 * (8 + rng.below(40) as u32)
    };
    let op_percent = pick(rng, &[7, 7, 4, 12, 28]);
    let mut params = Vec::new();
    let some = rng.below(4);
    for (key, values) in PARAMETERS {
        if has_param(scheme, key) && rng.below(4) < some {
            params.push(((*key).to_owned(), pick(rng, values).to_owned()));
        }
    }
    Device {
        chip,
        pages_per_block: pick(rng, &[16, 16, 16, 8, 32, 24]) * word_lines,
        dies,
        planes: draw_planes(rng),
        pages,
        op_percent,
        params,
        worn: rng.one_in(5),
        on_disk,
    }
}

/// Draws from numbers of its own, so that the plan of a seed is otherwise the same as without.
fn draw_planes(rng: &SplitMix) -> u32 {
    let mut own = SplitMix::new(!rng.clone().next_u64());
    match own.one_in(6) {
        true => pick(&mut own, &[2, 4, 4, 3]),
        false => 0,
    }
}

fn draw_parts(slc: bool, rng: &mut SplitMix) -> Parts {
    let mut parts = Parts {
        in_flight: rng.one_in(2),
        ..Parts::default()
    };
    match rng.below(8) {
        0 => {
            // Faults that the part reports.
            parts
                .rates
                .push((Fault::ProgramFail, 200_000 << rng.below(5)));
            parts
                .rates
                .push((Fault::EraseFail, 200_000 << rng.below(5)));
        }
        1 => parts
            .rates
            .push((Fault::ProgramFail, 500_000 << rng.below(4))),
        2 => parts
            .rates
            .push((Fault::EraseFail, 2_000_000 << rng.below(3))),
        // Silent faults.
        3 => {
            let silent = pick(
                rng,
                &[
                    Fault::LostProgram,
                    Fault::MisdirectedProgram,
                    Fault::LostErase,
                    Fault::StaleRead,
                ],
            );
            let ppb = if silent == Fault::LostErase {
                8_000_000
            } else {
                800_000
            };
            parts.rates.push((silent, ppb << rng.below(3)));
            if rng.one_in(2) {
                parts
                    .rates
                    .push((Fault::ProgramFail, 500_000 << rng.below(4)));
            }
        }
        _ => {}
    }
    if rng.one_in(6) {
        // Mostly within the ECC limit, sometimes beyond it.
        parts.bit_errors = pick(
            rng,
            if slc {
                &[2_000, 2_000, 400_000]
            } else {
                &[30, 30, 100]
            },
        );
    }
    if rng.one_in(10) {
        parts.wear_out = pick(rng, &[1, 3]);
    }
    parts
}
