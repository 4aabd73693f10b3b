//! Tests for every scheme of data blocks and log blocks, with its tables compared after every step,
//! and costs of operations. The schemes' own tests call these.

use super::{HybridFtl, Policy};
use crate::addr::Lpn;
use crate::config::{FtlConfig, Params};
use crate::events::EventKind;
use crate::ftl::{Ftl, Start};
use crate::schemes::Scheme;
use nand_model::store::MemStore;
use nand_model::{Chip, Geometry, Pbn, Profile, SplitMix};

/// A device of a scheme.
pub(crate) struct Device {
    pub(crate) ftl: Box<dyn Ftl>,
    scheme: &'static Scheme,
    config: FtlConfig,
}

/// Times of the profile `rose`, in emulated nanoseconds.
pub(crate) mod rose_part {
    pub(crate) const WRITE: u64 = 263_000;
    pub(crate) const COPY: u64 = 88_000 + WRITE;
    pub(crate) const ERASE: u64 = 2_000_000;
}

/// A profile with pages in any order. Blocks have few pages, so that they fill up.
pub(crate) const SLC: &str = "lazyftl";
/// A profile with paired pages in ascending order. Blocks have few pages, so that they fill up.
pub(crate) const MLC: &str = "torture";

/// Starts a policy on a new device, for tests that ask it.
pub(crate) fn started<P: Policy>(
    policy: P,
    profile: Profile,
    logical_pages: u32,
    params: &[(&str, &str)],
) -> HybridFtl<P> {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    params
        .iter()
        .for_each(|(key, value)| config.params.set(key, value));
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    HybridFtl::create(chip, &config, Start::Format, policy).unwrap()
}

/// Writes `count` pages in one request.
pub(crate) fn write(ftl: &mut dyn Ftl, lpn: u32, count: u32) {
    let page = ftl.chip().geometry().page_len();
    let at = ftl.chip().busy_until();
    ftl.write(at, Lpn::new(lpn), &vec![1; page * count as usize])
        .unwrap();
}

/// Returns the age rank of the log block that is merged when blocks are short: 0 for the oldest.
pub(crate) fn victim_rank<P: Policy>(ftl: &mut HybridFtl<P>) -> Option<usize> {
    ftl.map.with_policy_view(&ftl.space, |policy, view| {
        let victim = policy.victim(view)?;
        view.logs.iter().position(|log| log.block == victim)
    })
}

/// Starts a policy on blocks of four pages, writes ten logical blocks, then these single pages.
/// Returns the rank of its victim.
pub(crate) fn rank_after<P: Policy>(policy: P, writes: &[u32]) -> Option<usize> {
    let params = [("wear.policy", "none"), ("log.blocks", "8")];
    let mut ftl = started(policy, part_of_rose(64, 4), 40, &params);
    write(&mut ftl, 0, 40);
    writes.iter().for_each(|lpn| write(&mut ftl, *lpn, 1));
    victim_rank(&mut ftl)
}

/// Returns the pages programmed and the blocks erased so far.
pub(crate) fn work(ftl: &dyn Ftl) -> (u64, u64) {
    let total = ftl.chip().counters().total();
    (total.programs, total.erases)
}

/// Returns a part of the profile `rose`, with `blocks` blocks of `pages_per_block` pages.
pub(crate) fn part_of_rose(blocks: u32, pages_per_block: u32) -> Profile {
    let rose = *Profile::find("rose").unwrap();
    Profile {
        geometry: Geometry {
            blocks,
            pages_per_block,
            ..rose.geometry
        },
        ..rose
    }
}

impl Device {
    /// Creates a device of a built-in profile with `blocks` blocks.
    pub(crate) fn new(
        scheme: &str,
        profile: &str,
        blocks: u32,
        logical_pages: u32,
        params: &[(&str, &str)],
    ) -> Device {
        let profile = Profile::find(profile).unwrap().with_blocks(blocks);
        Device::of(scheme, profile, logical_pages, params)
    }

    /// Creates a device of this profile.
    pub(crate) fn of(
        scheme: &str,
        profile: Profile,
        logical_pages: u32,
        params: &[(&str, &str)],
    ) -> Device {
        let scheme = Scheme::find(scheme).unwrap();
        let mut config = FtlConfig {
            logical_pages,
            params: Params::default(),
        };
        params
            .iter()
            .for_each(|(key, value)| config.params.set(key, value));
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        Device {
            ftl: scheme.start(chip, &config, Start::Format).unwrap(),
            scheme,
            config,
        }
    }

    fn page(&self, n: u64) -> Vec<u8> {
        n.to_le_bytes()
            .repeat(self.ftl.chip().geometry().page_bytes as usize / 8)
    }

    /// Writes number `n` to the pages from `lpn` on. Returns the emulated duration.
    pub(crate) fn write(&mut self, lpn: u32, count: u32, n: u64) -> u64 {
        let at = self.ftl.chip().busy_until();
        let data = self.page(n).repeat(count as usize);
        self.ftl.write(at, Lpn::new(lpn), &data).unwrap() - at
    }

    /// Reads the number of a page. Returns it and the emulated duration.
    pub(crate) fn read(&mut self, lpn: u32) -> (u64, u64) {
        let at = self.ftl.chip().busy_until();
        let mut out = vec![1; self.ftl.chip().geometry().page_bytes as usize];
        let done = self.ftl.read(at, Lpn::new(lpn), &mut out).unwrap();
        let n = u64::from_le_bytes(out[..8].try_into().unwrap());
        assert!(
            out.chunks_exact(8).all(|word| word == n.to_le_bytes()),
            "page {lpn} is mixed"
        );
        (n, done - at)
    }

    pub(crate) fn assert_sound(&mut self) {
        assert_eq!(self.ftl.check().unwrap(), Vec::<String>::new());
    }

    /// Switches power off and on.
    pub(crate) fn remount(self) -> Device {
        let mut chip = self.ftl.into_chip();
        chip.power_on();
        Device {
            ftl: self.scheme.start(chip, &self.config, Start::Mount).unwrap(),
            ..self
        }
    }
}

/// Compares random writes, trims, flushes, checks and mounts with a plain table, on both kinds of
/// cells.
pub(crate) fn agrees_with_a_model(scheme: &str, params: &[(&str, &str)]) {
    for (profile, blocks, pages) in [(SLC, 48, 24 * 64 - 5), (MLC, 68, 40 * 16 - 5)] {
        agrees_on(Device::new(scheme, profile, blocks, pages, params), pages);
    }
}

fn agrees_on(mut device: Device, pages: u32) {
    let mut rng = SplitMix::new(7);
    let mut model = vec![0; pages as usize];
    let mut merges = 0;
    for step in 1..=12_000u64 {
        let lpn = rng.below(pages as u64) as u32;
        let extent = |rng: &mut SplitMix, max: u64| (1 + rng.below(max) as u32).min(pages - lpn);
        match rng.below(40) {
            0 => {
                let count = extent(&mut rng, if step % 7 == 0 { pages as u64 } else { 20 });
                device.ftl.trim(0, Lpn::new(lpn), count).unwrap();
                model[lpn as usize..][..count as usize].fill(0);
            }
            1 => drop(device.ftl.flush(0).unwrap()),
            2 => {
                let lpn = if rng.one_in(2) { lpn / 64 * 64 } else { lpn };
                let count = (1 + rng.below(140) as u32).min(pages - lpn);
                device.write(lpn, count, step);
                model[lpn as usize..][..count as usize].fill(step);
            }
            3 => drop(device.ftl.idle(0, 50).unwrap()),
            4..25 => {
                device.write(lpn, 1, step);
                model[lpn as usize] = step;
            }
            _ => assert_eq!(
                device.read(lpn).0,
                model[lpn as usize],
                "page {lpn} at step {step}"
            ),
        }
        if step % 499 == 0 {
            device.assert_sound();
            let clean = step % 998 == 0;
            if clean {
                device.ftl.shutdown(0).unwrap();
            }
            merges += device.ftl.stats().gc_runs;
            device = device.remount();
            assert_eq!(device.ftl.stats().mount.clean, clean, "at step {step}");
            device.assert_sound();
        }
    }
    for lpn in 0..pages {
        assert_eq!(
            device.read(lpn).0,
            model[lpn as usize],
            "page {lpn} at the end"
        );
    }
    assert!(merges > 10, "{merges} merges");
}

/// FAST merges its log blocks in the order in which it filled them. A mount finds their pages in
/// the order of logical pages, which is the opposite here.
#[test]
fn a_mount_keeps_the_order_of_log_blocks() {
    let params = [
        ("wear.policy", "none"),
        ("log.blocks", "3"),
        ("fast.predict", "np"),
    ];
    for clean in [true, false] {
        let mut device = Device::of("fast", part_of_rose(64, 64), 20 * 64, &params);
        device.write(0, 20 * 64, 1);
        let mut logs = Vec::new();
        for lbn in [9, 5, 1] {
            device.write(64 * lbn + 63, 1, 2);
            let chip = device.ftl.chip();
            let is_new = |block: &Pbn| chip.programmed(*block) == 1;
            logs.extend(chip.geometry().all_blocks().find(is_new));
            (0..63)
                .rev()
                .for_each(|page| _ = device.write(64 * lbn + page, 1, 2));
        }
        if clean {
            device.ftl.shutdown(0).unwrap();
        }
        let mut device = device.remount();
        let before = device.ftl.events().since(0).count();
        for page in 0..2 * 64 + 1 {
            device.write(64 * 12 + page, 1, 3);
        }
        let merged: Vec<Pbn> = (device.ftl.events().since(0).skip(before))
            .filter(|(_, event)| event.kind == EventKind::Gc)
            .filter_map(|(_, event)| event.block)
            .collect();
        assert!(
            merged.starts_with(&logs),
            "clean: {clean}: {merged:?}, not {logs:?}"
        );
        device.assert_sound();
    }
}

#[test]
fn after_a_clean_stop_places_between_the_pages_of_a_data_block_are_filled() {
    let mut device = Device::new("bast", SLC, 48, 20 * 64, &[]);
    [3, 10]
        .iter()
        .for_each(|page| _ = device.write(*page, 1, 1));
    device.ftl.shutdown(0).unwrap();
    let mut device = device.remount();
    assert!(device.ftl.stats().mount.clean);
    [5, 60, 0]
        .iter()
        .for_each(|page| _ = device.write(*page, 1, 2));
    let blocks = device.ftl.stats().blocks;
    assert_eq!(
        (blocks.data, blocks.log, blocks.open),
        (0, 0, 1),
        "all pages are in one data block"
    );
    assert_eq!(
        [0, 3, 5, 10, 60].map(|page| device.read(page).0),
        [2, 1, 2, 1, 2]
    );
    device.assert_sound();
}
