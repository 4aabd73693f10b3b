//! Device profiles: those of the papers, chips by data sheet, and devices of the user's own.
//! docs/NAND.md repeats the figures of the built-in ones with their sources.

mod builtin;
mod device;
mod limits;
mod slc;

pub use builtin::PROFILES;
pub use device::{Cache, Capacity, PageOrder, PageTimes, Profile, Suspend, Timing};
pub(crate) use limits::SOURCE_BYTES_MAX;
pub use slc::SlcRegion;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_valid_and_found_by_their_names() {
        for profile in PROFILES {
            let blocks = match profile.capacity {
                Capacity::Blocks(n) => n,
                Capacity::BySize => 1024,
            };
            profile.with_blocks(blocks).geometry.validate().unwrap();
            profile.validate().unwrap();
            assert_eq!(Profile::find(profile.name), Some(profile));
            assert_eq!(
                profile.is_mlc(),
                profile.nop == 1,
                "{}: MLC pages are programmed once",
                profile.name
            );
        }
        assert!(Profile::find("nosuch").is_none());
    }

    /// Erases many blocks until each fails.
    #[test]
    fn as_many_blocks_fail_by_the_rated_cycles_as_the_sheet_allows() {
        let slc = Profile {
            endurance: 1_000,
            ..*Profile::find("slc-2k").unwrap()
        };
        let (mut rng, mut by_rated, mut by_twice) = (crate::SplitMix::new(1), 0, 0);
        const BLOCKS: u32 = 20_000;
        for _ in 0..BLOCKS {
            let life = (0..3_000)
                .find(|erases| rng.unit() < slc.erase_hazard(*erases, false))
                .unwrap_or(3_000);
            by_rated += (life < 1_000) as u32;
            by_twice += (life < 2_000) as u32;
        }
        // 2 % of the sheet less 1 % from the factory; 1 - exp(-0.01 * 2^4) at twice the cycles.
        assert!((150..250).contains(&by_rated), "{by_rated}");
        assert!((2_750..3_150).contains(&by_twice), "{by_twice}");
        assert_eq!(slc.erase_hazard(0, false), 0.0);
        let programs = slc.program_hazard(900, false) * slc.geometry.pages_per_block as f64;
        assert!((programs * 10.0 / slc.erase_hazard(900, false) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn paper_devices_have_the_papers_capacity() {
        let gib = |name| Profile::find(name).unwrap().geometry.data_bytes() >> 30;
        assert_eq!(
            [gib("mnftl"), gib("lazyftl"), gib("rose"), gib("mlam")],
            [8, 1, 80, 32]
        );
    }
}
