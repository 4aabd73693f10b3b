//! Places of logical pages: of every scheme, they are those from which a read is answered.

use super::*;
use crate::device::{BlockDevice, FlushOf};
use ftl_core::schemes::SCHEMES;
use ftl_core::{FtlConfig, Params, Start};
use std::time::Duration;

/// Pages of a device of one shard.
const OWN: u64 = 300;

/// A volume of these shards on a small device.
fn volume(scheme: &ftl_core::schemes::Scheme, shards: u32) -> Volume {
    let profile = Profile::find("torture").unwrap().with_blocks(201);
    let bytes = u64::from(profile.geometry.page_bytes);
    let striping = striping(&profile.geometry, shards);
    let own = striping.map_or(OWN, |striping| striping.stripe_bytes / bytes);
    let chips = (0..shards).map(|_| {
        let config = FtlConfig {
            logical_pages: own as u32,
            params: Params::default(),
        };
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        MountedChip {
            ftl: scheme.start(chip, &config, Start::Format).unwrap(),
            durable: None,
        }
    });
    let options = VolumeOptions {
        size: u64::from(shards) * own * bytes,
        read_only: false,
        emulate: false,
    };
    Volume::sharded(chips.collect(), striping, options)
}

/// Returns the data of a flash page, by its numbers in the device.
fn content(volume: &Volume, (shard, block, page): Place) -> Vec<u8> {
    let mut guard = volume.shards[shard].lock();
    let chip = guard.as_mut().unwrap().ftl.chip_mut();
    let geometry = *chip.geometry();
    let own = Pbn::new(block - shard as u32 * geometry.blocks);
    let mut data = vec![0; geometry.page_bytes as usize];
    let ppn = geometry.page(own, page);
    chip.read(0, ppn, &mut data, &mut [], nand_model::Cause::Host)
        .unwrap();
    data
}

#[test]
fn every_scheme_reads_a_page_where_it_is_said_to_be() {
    for scheme in SCHEMES {
        check_places(&volume(scheme, 1), scheme.name);
    }
    check_places(&volume(&SCHEMES[0], 2), "two shards");
}

/// Overwrites and trims pages, looks for all, and compares the places with blocks, and their
/// content with what a read returns.
fn check_places(volume: &Volume, named: &str) {
    let bytes = volume.shape.page_bytes as usize;
    let pages = volume.size() / bytes as u64;
    let at = |page: u64| page * bytes as u64;
    for round in 0..6u64 {
        for page in (0..pages).map(|n| n * 7 % pages) {
            if (page + round) % 3 != 0 {
                let data = vec![(page + round) as u8; bytes];
                volume.write(at(page), &data).unwrap();
            }
            if (page + round) % 13 == 0 {
                volume.trim(at(page), bytes as u64).unwrap();
            }
        }
    }
    let flush = volume.flush(FlushOf::Everything).unwrap();
    flush.wait().unwrap();
    let spent = || {
        let core = volume.shards[0].lock();
        let chip = core.as_ref().unwrap().ftl.chip();
        (chip.counters().total(), chip.busy_until())
    };
    let before = spent();
    let found = volume
        .places(
            std::slice::from_ref(&(0..volume.size())),
            Duration::from_secs(60),
        )
        .unwrap();
    let geometry = volume.geometry().unwrap();
    let blocks = (0..geometry.blocks * volume.shards.len() as u32)
        .map(|block| volume.block_pages(block).unwrap());
    let blocks: Vec<_> = blocks.collect();
    assert_eq!(before, spent(), "{named}: a look costs no operation");
    assert_eq!(found.pages.len() as u64, pages, "{named}");
    assert!(!found.truncated && found.longest_lock_ns > 0, "{named}");
    let seen = |(shard, block, page): Place| {
        assert_eq!(shard as u32, block / geometry.blocks, "{named}");
        &blocks[block as usize].pages[page as usize]
    };
    let (mut dead, mut contents) = (0, Vec::new());
    for (number, page) in (0..).zip(&found.pages) {
        assert_eq!(page.lpn, number);
        dead += page.dead.len();
        for &(shard, block, at, version) in &page.dead {
            let copy = seen((shard, block, at));
            let is = (copy.lpn, copy.version);
            assert_eq!(is, (Some(number), Some(version)), "{named}");
        }
        let versions = page.dead.iter().map(|(.., version)| *version);
        assert!(versions.clone().is_sorted_by(|a, b| a >= b), "{named}");
        if let (Some(version), Some(newest)) = (page.version, versions.max()) {
            assert!(version >= newest, "{named}: page {number}");
        }
        contents.push(page.at.map(|place| {
            let current = seen(place);
            let is = (current.lpn, &*current.state);
            assert_eq!(is, (Some(number), "valid"), "{named}");
            content(volume, place)
        }));
    }
    let none = contents.iter().filter(|content| content.is_none()).count();
    assert!(
        dead > 0 && none > 0,
        "{named}: {dead} dead copies, {none} trimmed"
    );
    // Last: a read may move pages.
    for (number, content) in (0..).zip(contents) {
        let mut data = vec![0; bytes];
        volume.read(at(number), &mut data).unwrap();
        assert_eq!(content.unwrap_or(vec![0; bytes]), data, "{named}: {number}");
    }
}

#[test]
fn bytes_are_pages_of_the_device_once_and_no_others() {
    let volume = volume(ftl_core::schemes::Scheme::find("pagemap").unwrap(), 1);
    let bytes = u64::from(volume.shape.page_bytes);
    let numbers = |ranges: &[std::ops::Range<u64>]| {
        let found = volume.places(ranges, Duration::from_secs(60)).unwrap();
        found.pages.iter().map(|page| page.lpn).collect::<Vec<_>>()
    };
    assert_eq!(
        numbers(&[bytes - 1..bytes + 1, 5 * bytes..6 * bytes, 0..1]),
        [0, 1, 5]
    );
    for range in [3..3, volume.size() - 1..volume.size() + 1] {
        let refused = volume
            .places(std::slice::from_ref(&range), Duration::from_secs(60))
            .unwrap_err();
        assert!(
            refused.message.contains("not on this device"),
            "{refused:?}"
        );
    }
    let refused = volume.block_pages(201).unwrap_err();
    assert!(refused.message.contains("201"), "{refused:?}");
    let late = volume
        .places(std::slice::from_ref(&(0..bytes)), Duration::ZERO)
        .unwrap();
    assert!(late.truncated && late.pages[0].unsure, "{late:?}");
    let blank = volume.block_pages(200).unwrap();
    assert!(blank.pages.iter().all(|page| page.state == "free"));
    drop(volume.close());
    let refused = volume
        .places(std::slice::from_ref(&(0..1)), Duration::from_secs(60))
        .unwrap_err();
    assert_eq!(
        refused.exit,
        ftld_kit::failure::Exit::NotRunning,
        "{refused:?}"
    );
}
