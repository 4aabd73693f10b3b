//! Mounts of flash with readable but impossible metadata: checkpoints, mapping pages, trims and
//! records. A mount returns an error or a device; neither the mount nor the device panics.

use crate::addr::Lpn;
use crate::config::{FtlConfig, Params};
use crate::error::FtlError;
use crate::format::{COUNTER_FOUND_MAX, Flags, Oob, PageTag, Role};
use crate::ftl::Start;
use crate::schemes::{SCHEMES, Scheme};
use nand_model::store::{Cells, MemStore};
use nand_model::{Chip, Pbn, Ppn, Profile, SplitMix, Store};

const PAGES: u32 = 64;

/// Words that no device writes there, or not at every offset.
const WORDS: [u64; 7] = [
    0,
    1,
    2,
    PAGES as u64 - 1,
    COUNTER_FOUND_MAX + 1,
    u32::MAX as u64 - 1,
    u64::MAX,
];

/// A stopped device, as its scheme left it.
struct Stopped {
    scheme: &'static Scheme,
    config: FtlConfig,
    profile: Profile,
    pages: Vec<(Ppn, Cells)>,
}

impl Stopped {
    /// Runs writes, trims and GC, and then stops the device cleanly or by a power cut.
    fn new(scheme: &'static Scheme, clean: bool) -> Stopped {
        let mut base = *Profile::find("slc-2k").unwrap();
        (base.geometry.pages_per_block, base.geometry.page_bytes) = (16, 512);
        let mut params = Params::default();
        if scheme.knows("ckpt.interval") {
            params.set("ckpt.interval", "100");
        }
        let size = PAGES as u64 * base.geometry.page_bytes as u64;
        let layout = scheme.layout(&base, size, 0.28, &params).unwrap();
        let (profile, config) = (
            layout.profile,
            FtlConfig {
                logical_pages: layout.logical_pages,
                params,
            },
        );
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let mut ftl = scheme.start(chip, &config, Start::Format).unwrap();
        let mut rng = SplitMix::new(7);
        for step in 0..500u64 {
            let lpn = Lpn::new(rng.below(PAGES as u64 - 4) as u32);
            match rng.below(12) {
                0 => ftl.trim(0, lpn, 1 + rng.below(4) as u32).unwrap(),
                1 => ftl.flush(0).unwrap(),
                _ => ftl.write(0, lpn, &step.to_le_bytes().repeat(64)).unwrap(),
            };
        }
        ftl.trim(0, Lpn::new(0), 3).unwrap();
        ftl.flush(0).unwrap();
        if clean {
            ftl.shutdown(0).unwrap();
        }
        let mut store = ftl.into_chip().into_store();
        let all = (0..profile.geometry.page_slots() as u32).map(Ppn::new);
        let pages = all
            .filter_map(|ppn| Some((ppn, store.cells(ppn).unwrap()?)))
            .collect();
        Stopped {
            scheme,
            config,
            profile,
            pages,
        }
    }

    /// Returns the indexes of the pages whose records have one of these roles.
    fn of_roles(&self, roles: &[Role]) -> Vec<usize> {
        let role = |cells: &Cells| Oob::decode(&cells.oob).map(|oob| oob.tag.role);
        let pages = self.pages.iter().enumerate();
        pages
            .filter(|(_, (_, cells))| role(cells).is_some_and(|role| roles.contains(&role)))
            .map(|(i, _)| i)
            .collect()
    }

    /// Mounts with one page changed. If the mount succeeds, runs every operation on the device.
    fn mount_with(&self, page: usize, change: impl Fn(&mut Cells)) -> Result<(), FtlError> {
        let mut store = MemStore::new(self.profile.geometry);
        for (i, (ppn, cells)) in self.pages.iter().enumerate() {
            let mut cells = cells.clone();
            if i == page {
                change(&mut cells);
            }
            store.program(*ppn, 1, &cells.data, &cells.oob).unwrap();
        }
        let mut ftl = self.scheme.start(
            Chip::over(self.profile, store).unwrap(),
            &self.config,
            Start::Mount,
        )?;
        let bytes = self.profile.geometry.page_bytes as usize;
        for lpn in (0..PAGES).map(Lpn::new) {
            let _ = ftl.read(0, lpn, &mut vec![0; bytes]);
        }
        for lpn in (0..PAGES).step_by(5).map(Lpn::new) {
            let _ = ftl.write(0, lpn, &vec![1; bytes]);
        }
        let _ = (
            ftl.trim(0, Lpn::new(9), 7),
            ftl.flush(0),
            ftl.check(),
            ftl.shutdown(0),
        );
        Ok(())
    }
}

/// Returns at most `most` elements of a list, evenly spaced.
fn some<T: Copy>(list: &[T], most: usize) -> Vec<T> {
    list.iter()
        .step_by(list.len().div_ceil(most).max(1))
        .copied()
        .collect()
}

#[test]
fn metadata_that_says_what_cannot_be_gives_an_error_or_a_device() {
    let (mut refused, mut mounted) = (0, 0);
    for (scheme, clean) in SCHEMES
        .iter()
        .flat_map(|scheme| [true, false].map(|clean| (scheme, clean)))
    {
        let stopped = Stopped::new(scheme, clean);
        let checkpoints = stopped.of_roles(&[Role::Checkpoint]);
        // Mounts use the newest checkpoints.
        let newest = &checkpoints[checkpoints.len().saturating_sub(4)..];
        let others = some(&stopped.of_roles(&[Role::Map, Role::Trim]), 6);
        for &page in newest.iter().chain(&others) {
            for at in (0..96).step_by(8).chain([200, 504]) {
                for word in WORDS {
                    let outcome = stopped.mount_with(page, |cells| {
                        cells.data[at..at + 8].copy_from_slice(&word.to_le_bytes())
                    });
                    *if outcome.is_ok() {
                        &mut mounted
                    } else {
                        &mut refused
                    } += 1;
                }
            }
        }
    }
    assert!(
        refused > 50 && mounted > 1000,
        "{refused} refused, {mounted} mounted"
    );
}

#[test]
fn records_that_say_what_cannot_be_give_an_error_or_a_device() {
    let (mut refused, mut mounted) = (0, 0);
    let roles = [
        Role::Data,
        Role::Log,
        Role::Map,
        Role::Cold,
        Role::Update,
        Role::Trim,
        Role::Checkpoint,
        Role::Pad,
    ];
    for (scheme, clean) in SCHEMES
        .iter()
        .flat_map(|scheme| [true, false].map(|clean| (scheme, clean)))
    {
        let stopped = Stopped::new(scheme, clean);
        for role in roles {
            for page in some(&stopped.of_roles(&[role]), 4) {
                let record = Oob::decode(&stopped.pages[page].1.oob).unwrap();
                let tags = roles.map(|role| PageTag { role, ..record.tag }).into_iter();
                let tags =
                    tags.chain([0, PAGES, u32::MAX].map(|lpn| PageTag { lpn, ..record.tag }));
                let tags =
                    tags.chain([0, COUNTER_FOUND_MAX].map(|ver| PageTag { ver, ..record.tag }));
                let flags = [Flags::COMMIT, Flags::PROVISIONAL, Flags::LOST];
                let tags = tags.chain(flags.map(|flags| PageTag {
                    flags,
                    ..record.tag
                }));
                let counters = [
                    (0, record.epoch),
                    (COUNTER_FOUND_MAX, record.epoch),
                    (record.pseq, COUNTER_FOUND_MAX),
                ];
                let records = tags.map(|tag| Oob { tag, ..record });
                for forged in records.chain(counters.map(|(pseq, epoch)| Oob {
                    pseq,
                    epoch,
                    ..record
                })) {
                    let outcome = stopped.mount_with(page, |cells| {
                        // The scheme's own bytes after the record stay.
                        cells.oob[..crate::format::OOB_BYTES]
                            .copy_from_slice(&forged.encode()[..crate::format::OOB_BYTES]);
                    });
                    *if outcome.is_ok() {
                        &mut mounted
                    } else {
                        &mut refused
                    } += 1;
                }
                for byte in [0, 40, 63] {
                    let outcome = stopped.mount_with(page, |cells| cells.oob[byte] ^= 0x5A);
                    *if outcome.is_ok() {
                        &mut mounted
                    } else {
                        &mut refused
                    } += 1;
                }
            }
        }
    }
    assert!(mounted > 1000, "{refused} refused, {mounted} mounted");
}

#[test]
fn blocks_that_read_badly_give_an_error_or_a_device() {
    for (scheme, clean) in SCHEMES
        .iter()
        .flat_map(|scheme| [true, false].map(|clean| (scheme, clean)))
    {
        let stopped = Stopped::new(scheme, clean);
        let blocks: Vec<Pbn> = stopped.profile.geometry.all_blocks().collect();
        for block in blocks {
            let first = stopped.profile.geometry.page(block, 0);
            let page = stopped.pages.iter().position(|(ppn, _)| *ppn == first);
            if let Some(page) = page {
                // Without a valid record, the head of the block is lost.
                let _ = stopped.mount_with(page, |cells| cells.oob.fill(0));
            }
        }
    }
}
