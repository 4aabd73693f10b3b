//! The laws that every device obeys, whether it is built in, from a file or from an image.

use super::device::{Cache, Capacity, PageOrder, Profile, Suspend, Timing};
use crate::decay::Ecc;
use crate::energy::Energy;
use crate::geometry::{Geometry, MultiPlane};
use crate::image::NAME_BYTES_MAX;
use crate::invalid::{Invalid, ensure};
use crate::pairing::{PairTable, Pairing};
use std::time::Duration;

/// Maximum bytes of [`Profile::source`] that an image keeps.
pub(crate) const SOURCE_BYTES_MAX: usize = 160;

const HOUR_NS: u64 = 3_600_000_000_000;
/// Programs per page that any part allows, and a generous margin.
const NOP_MAX: u8 = 16;
const RETRIES_MAX: u32 = 100;
/// The largest page.
const CODEWORD_BYTES_MAX: u32 = 64 << 10;

impl Profile {
    /// Checks that such a device can exist. Its blocks may still be missing.
    ///
    /// # Errors
    ///
    /// One human-readable line: the figure and why it is impossible.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.check_texts()?;
        let blocks = match self.geometry.blocks {
            0 => self.one_block_per_plane(),
            blocks => blocks,
        };
        self.with_blocks(blocks).geometry.validate()?;
        self.check_multi_plane()?;
        let (dies, ways) = (self.dies_per_chip, self.geometry.ways);
        ensure(
            dies > 0 && ways.is_multiple_of(dies),
            Invalid::Geometry,
            || format!("{dies} dies per chip do not divide the {ways} dies of a channel"),
        )?;
        let some = self.capacity != Capacity::Blocks(0);
        ensure(some, Invalid::Geometry, || "blocks is 0".into())?;
        self.check_cells()?;
        self.check_figures()?;
        self.check_slc()?;
        self.energy.as_ref().map_or(Ok(()), Energy::validate)?;
        self.error_model.validate()
    }

    /// The least number of blocks that a device of this shape can have.
    fn one_block_per_plane(&self) -> u32 {
        let Geometry {
            channels,
            ways,
            planes,
            ..
        } = self.geometry;
        channels.saturating_mul(ways).saturating_mul(planes).max(1)
    }

    fn check_texts(&self) -> Result<(), Invalid> {
        let Profile { name, source, .. } = self;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(allowed);
        ensure(is_name, Invalid::Profile, || {
            format!("name {name:?}: need 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-'")
        })?;
        let is_line = source.len() <= SOURCE_BYTES_MAX && !source.chars().any(char::is_control);
        ensure(is_line, Invalid::Profile, || {
            format!("source: need one line of up to {SOURCE_BYTES_MAX} bytes")
        })
    }

    /// Checks the limits that the NAND rules of this device need.
    fn check_cells(&self) -> Result<(), Invalid> {
        let (pages, nop) = (self.geometry.pages_per_block, self.nop);
        ensure((1..=NOP_MAX).contains(&nop), Invalid::Profile, || {
            format!("a page is programmed {nop} times between erases, need 1 to {NOP_MAX}")
        })?;
        self.pairing.check(pages)?;
        if self.pairing == Pairing::None {
            return Ok(());
        }
        ensure(nop == 1, Invalid::Profile, || {
            format!(
                "pages that share a word line are programmed once between erases, not {nop} times"
            )
        })?;
        ensure(
            self.order == PageOrder::Consecutive,
            Invalid::Profile,
            || "pages that share a word line are programmed in page order: need consecutive".into(),
        )?;
        let span = PairTable::new(self.pairing, pages).span();
        ensure(pages >= 2 * span, Invalid::Profile, || {
            format!(
                "pairing {}: pages of a word line lie up to {span} apart, so a block needs {} pages, \
                 not {pages}",
                self.pairing.name(),
                2 * span
            )
        })
    }

    /// Figures that no part has; also, emulated time cannot overflow.
    fn check_figures(&self) -> Result<(), Invalid> {
        let Timing {
            read_ns,
            partial_read_ns,
            program_ns,
            oob_program_ns,
            erase_ns,
            bus_ns,
            controller_ns,
            suspend,
            cache: _,
        } = self.timing;
        let others = [
            partial_read_ns,
            oob_program_ns,
            erase_ns,
            bus_ns,
            controller_ns,
            suspend.resume_ns,
        ];
        let mut times = read_ns.into_iter().chain(program_ns).chain(others);
        ensure(times.all(|ns| ns <= HOUR_NS), Invalid::Profile, || {
            "an operation of more than an hour".into()
        })?;
        self.check_suspend()?;
        let (factory, most) = (self.factory_bad_permille, self.max_bad_permille);
        ensure(factory <= 500 && most <= 1000, Invalid::Profile, || {
            "more bad blocks than blocks".into()
        })?;
        ensure(factory <= most, Invalid::Profile, || {
            format!(
                "{factory} of 1000 blocks bad from the factory, {most} at most in the device's life"
            )
        })?;
        ensure(self.endurance > 0, Invalid::Profile, || {
            "an endurance of 0 cycles".into()
        })?;
        let Ecc {
            codeword_bytes: codeword,
            bits,
            retries,
        } = self.ecc;
        let fits = (1..=CODEWORD_BYTES_MAX).contains(&codeword) && bits < 8 * codeword;
        ensure(fits, Invalid::Profile, || {
            format!(
                "ECC that corrects {bits} bits of {codeword} bytes, need a codeword of 1 to \
                 {CODEWORD_BYTES_MAX} bytes"
            )
        })?;
        ensure(retries <= RETRIES_MAX, Invalid::Profile, || {
            format!("{retries} read retries, need up to {RETRIES_MAX}")
        })
    }
}

impl Profile {
    /// The model of suspended operations has one operation per die.
    fn check_multi_plane(&self) -> Result<(), Invalid> {
        let (cache, bus_ns) = (self.timing.cache, self.timing.bus_ns);
        ensure(cache == Cache::NONE || bus_ns > 0, Invalid::Profile, || {
            "cache_program and cache_read overlap transfers with the array: need a time of the bus \
             above 0"
                .into()
        })?;
        let alone = self.geometry.multi_plane == MultiPlane::Off && cache == Cache::NONE;
        let suspends = self.timing.suspend != Suspend::NONE;
        ensure(alone || !suspends, Invalid::Profile, || {
            "multi_plane, cache_program or cache_read with suspend_erase or suspend_program: need \
             one of the two"
                .into()
        })
    }

    /// Checks that a suspension is shorter than the operation that it suspends.
    fn check_suspend(&self) -> Result<(), Invalid> {
        let Suspend {
            erase_ns,
            program_ns,
            resume_ns,
        } = self.timing.suspend;
        for (name, suspend_ns, whole_ns) in [
            ("erase", erase_ns, self.timing.erase_ns),
            ("program", program_ns, self.timing.program_ns_max()),
        ] {
            if let Some(ns) = suspend_ns.filter(|ns| *ns >= whole_ns) {
                return Err(Invalid::Profile(format!(
                    "suspend_{name} of {:?}, a whole {name} takes {:?}: need less, or no \
                     suspend_{name}",
                    Duration::from_nanos(ns),
                    Duration::from_nanos(whole_ns)
                )));
            }
        }
        let alone = erase_ns.is_none() && program_ns.is_none();
        ensure(resume_ns == 0 || !alone, Invalid::Profile, || {
            "resume is the time after a suspension: need suspend_erase or suspend_program".into()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Capacity, Ecc, PageOrder, Pairing, Profile, Suspend};

    #[test]
    fn impossible_devices_are_refused_with_the_reason() {
        let refused = |change: fn(&mut Profile), part: &str| {
            let mut odd = *Profile::default_profile();
            change(&mut odd);
            let reason = odd.validate().unwrap_err().to_string();
            assert!(reason.contains(part), "{reason}, not {part}");
        };
        refused(|p| p.name = "", "name \"\"");
        refused(|p| p.name = "a b", "name \"a b\"");
        refused(|p| p.source = "two\nlines", "source");
        refused(|p| p.geometry.pages_per_block = 0, "0 pages per block");
        refused(|p| p.geometry.oob_bytes = 3, "3 OOB bytes");
        refused(|p| p.dies_per_chip = 2, "2 dies per chip");
        refused(|p| p.nop = 0, "programmed 0 times");
        refused(|p| p.nop = 2, "programmed once");
        refused(|p| p.order = PageOrder::Any, "in page order");
        let short = |p: &mut Profile| {
            p.geometry.pages_per_block = 4;
            p.pairing = Pairing::AdjacentOf { bits: 4 };
        };
        refused(short, "a block needs 6 pages");
        refused(|p| p.pairing = Pairing::Staggered { bits: 7 }, "7 bits");
        refused(
            |p| p.pairing = Pairing::Random { seed: 1, span: 16 },
            "span 16",
        );
        refused(
            |p| {
                p.pairing = Pairing::Table {
                    bits: 2,
                    back: &[0, 1],
                }
            },
            "word lines of 2 pages",
        );
        refused(|p| p.timing.controller_ns = u64::MAX, "more than an hour");
        refused(|p| p.timing.program_ns[3] = u64::MAX, "more than an hour");
        let suspend = |erase_ns, program_ns, resume_ns| Suspend {
            erase_ns,
            program_ns,
            resume_ns,
        };
        let of_mlc = |suspend| {
            let mut part = *Profile::default_profile();
            part.timing.suspend = suspend;
            part.validate()
                .err()
                .map_or(String::new(), |error| error.to_string())
        };
        assert_eq!(of_mlc(suspend(Some(0), Some(1_299_999), 5)), "");
        for (suspend, part) in [
            (
                suspend(Some(3_500_000), None, 0),
                "suspend_erase of 3.5ms, a whole erase takes 3.5ms",
            ),
            (
                suspend(None, Some(2_000_000), 0),
                "suspend_program of 2ms, a whole program takes 1.3ms",
            ),
            (
                suspend(None, None, 1),
                "need suspend_erase or suspend_program",
            ),
            (suspend(Some(1), None, u64::MAX), "more than an hour"),
        ] {
            let reason = of_mlc(suspend);
            assert!(reason.contains(part), "{reason}, not {part}");
        }
        refused(|p| p.factory_bad_permille = 40, "39 at most");
        refused(|p| p.endurance = 0, "0 cycles");
        refused(|p| p.ecc.codeword_bytes = 0, "of 0 bytes");
        refused(|p| p.ecc.retries = 1000, "1000 read retries");
        let small = Ecc {
            codeword_bytes: 1,
            bits: 8,
            retries: 0,
        };
        assert!(
            Profile {
                ecc: small,
                ..*Profile::default_profile()
            }
            .validate()
            .is_err()
        );
        let fixed = Profile {
            capacity: Capacity::Blocks(0),
            ..*Profile::default_profile()
        };
        assert!(fixed.validate().is_err());
    }
}
