use super::*;
use crate::device::{BlockDevice, FlushOf};
use crate::instance::Dirs;
use crate::options::{DeviceArgs, DeviceOptions};
use crate::volume::{UNSYNCED_AGE_MAX, UnsyncedAge};
use std::time::Instant;

fn config(folder: &Path, profile: &str, size: Option<&str>) -> Config {
    let dirs = Dirs {
        config: folder.join("etc"),
        state: folder.join("state"),
        runtime: folder.join("run"),
    };
    let options = DeviceOptions {
        profile: Some(profile.into()),
        size: size.map(str::to_owned),
        ..DeviceOptions::default()
    };
    Config::new(
        &DeviceArgs {
            options,
            ..DeviceArgs::default()
        },
        &dirs,
    )
    .unwrap()
}

fn page(round: u64, at: u64) -> Vec<u8> {
    (0..1024u64)
        .map(|i| (i * 7 + round * 131 + at) as u8)
        .collect()
}

#[test]
fn overwriting_without_a_flush_outlives_the_spare_room_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "torture", Some("512KiB"));
    let stack = open_or_create(&config).unwrap();
    let spare = stack.volume.flash().erase_credit;
    let mut rng = nand_model::SplitMix::new(3);
    let mut rounds = vec![0; 512];
    for round in 1..8_000 {
        let at = rng.below(512);
        stack.volume.write(at * 1024, &page(round, at)).unwrap();
        rounds[at as usize] = round;
    }
    stack.volume.publish(true);
    let erases = stack.volume.flash().counters.total().erases;
    assert!(
        erases > 4 * u64::from(spare),
        "{erases} erases, room for {spare}"
    );
    close_stores(stack.volume.close().unwrap()).unwrap();
    let again = open_or_create(&config).unwrap();
    assert!(again.volume.flash().scheme.mount.clean);
    for (at, &round) in rounds.iter().enumerate().filter(|(_, round)| **round > 0) {
        let mut found = vec![0; 1024];
        again.volume.read(at as u64 * 1024, &mut found).unwrap();
        assert!(found == page(round, at as u64), "page {at}");
    }
}

#[test]
fn a_sync_without_a_request_leaves_a_start_nothing_to_verify() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), "torture", Some("8MiB"));
        config.requirements.shards = Some(shards);
        let kept_after_a_kill = |syncs: bool| {
            let stack = open_or_create(&config).unwrap();
            let before = stack.sync.stats().count;
            for at in 0..2048 {
                let data = page(u64::from(syncs), at);
                stack.volume.write(at * 1024, &data).unwrap();
            }
            if syncs {
                let now = Instant::now();
                let mut age = UnsyncedAge::new(now);
                stack.volume.sync_when_due(&mut age, now);
                assert_eq!(stack.sync.stats().count, before, "nothing is old");
                stack.volume.sync_when_due(&mut age, now + UNSYNCED_AGE_MAX);
                assert_eq!(stack.sync.stats().count, before + 1, "one sync for all");
            }
            drop(stack);
            let opened = FileStore::open_shards(&config.image, Access::ReadOnly);
            opened.unwrap().1.ops_kept
        };
        assert!(kept_after_a_kill(false) >= 2048);
        assert_eq!(kept_after_a_kill(true), 0);
    }
}

/// A mount rewrites pages that the end of the daemon may have left unstable: another start could
/// read them otherwise.
#[test]
fn a_mount_is_durable_before_the_first_request() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "torture", Some("512KiB"));
    create(&config).unwrap();
    let stack = open_or_create(&config).unwrap();
    stack.volume.write(0, &page(1, 0)).unwrap();
    drop(stack);
    let stack = open_or_create(&config).unwrap();
    let mount = &stack.volume.flash().scheme.mount;
    assert!(mount.pages_discarded > 0, "the mount changes the flash");
    assert_eq!(stack.sync.synced_seq(), stack.sync.last_seq());
}

#[test]
fn shards_are_one_device_with_one_sync_and_are_named_where_the_options_differ() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "torture", Some("8MiB"));
    config.requirements.shards = Some(3);
    let made = create(&config).unwrap();
    assert_eq!((made.size, made.shards()), (8 << 20, 3));
    let stripe = made.striping.unwrap().stripe_bytes;
    let stack = open_or_create(&config).unwrap();
    let volume = &stack.volume;
    assert_eq!((volume.size(), volume.shards()), (8 << 20, 3));
    let mut content: Vec<u8> = (0..8u32 << 18).flat_map(u32::to_le_bytes).collect();
    for part in content.chunks(3 << 20).enumerate() {
        volume.write((part.0 as u64) * (3 << 20), part.1).unwrap();
    }
    let before = stack.sync.stats().count;
    volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
    assert_eq!(stack.sync.stats().count, before + 1, "one sync for all");
    // Across three stripes, from a byte inside a page.
    let (from, len) = (stripe as usize - 700, 2 * stripe as usize + 900);
    volume.trim(from as u64, len as u64).unwrap();
    content[from..from + len].fill(0);
    let extents = volume.extents(0, 8 << 20, 10).unwrap();
    assert_eq!(extents.iter().filter(|extent| !extent.mapped).count(), 1);
    assert_eq!(
        extents.iter().map(|extent| extent.len).sum::<u64>(),
        8 << 20
    );
    let read = |volume: &Volume| {
        let mut bytes = vec![1; 8 << 20];
        volume.read(0, &mut bytes).unwrap();
        bytes
    };
    assert!(read(volume) == content);
    volume.publish(true);
    let (sum, shards) = (volume.flash(), volume.flash_by_shard());
    let programs = |flash: &crate::volume::FlashSnapshot| flash.counters.total().programs;
    assert!(shards.iter().all(|shard| programs(shard) > 2000));
    assert_eq!(
        shards.iter().map(|s| programs(s)).sum::<u64>(),
        programs(&sum)
    );
    assert_eq!(sum.blocks, 3 * shards[0].blocks);
    close_stores(volume.close().unwrap()).unwrap();
    let again = open_or_create(&config).unwrap();
    assert!(again.was_clean && read(&again.volume) == content);
    // A daemon that dies: everything acknowledged is there.
    again.volume.write(stripe - 512, &[9; 1024]).unwrap();
    content[stripe as usize - 512..][..1024].fill(9);
    drop(again);
    config.requirements.shards = Some(2);
    let refused = open_or_create(&config).err().unwrap();
    assert!(
        refused.message.contains("the image has shards: 3, not 2"),
        "{refused}"
    );
    config.requirements.shards = None;
    let after = open_or_create(&config).unwrap();
    assert!(!after.was_clean && read(&after.volume) == content);
}

#[test]
fn two_flushes_that_overlap_share_a_sync_and_a_later_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "torture", Some("512KiB"));
    create(&config).unwrap();
    let (store, _) = FileStore::open(&config.image, Access::ReadWrite).unwrap();
    let sync = store.sync_handle();
    let cache = CacheUse {
        options: None,
        boot_id: "",
    };
    let stack = volume_on(
        &config.image,
        vec![store],
        false,
        Latency::None,
        cache,
        |durable| durable,
    )
    .unwrap();
    let volume = stack.volume;
    volume.write(0, &page(1, 0)).unwrap();
    let first = volume.flush(FlushOf::Everything).unwrap();
    volume.write(1024, &page(1, 1)).unwrap();
    let second = volume.flush(FlushOf::Everything).unwrap();
    let before = sync.stats().count;
    second.wait().unwrap();
    first.wait().unwrap();
    assert_eq!(
        sync.stats().count,
        before + 1,
        "one sync began after both flushes"
    );
    volume.write(0, &page(2, 0)).unwrap();
    volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
    assert_eq!(sync.stats().count, before + 2);
}

#[test]
fn one_sync_serves_many_erases_on_a_device_that_began_empty() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "torture", Some("512KiB"));
    create(&config).unwrap();
    let (store, _) = FileStore::open(&config.image, Access::ReadWrite).unwrap();
    let (sync, label) = (
        store.sync_handle(),
        read_label(&config.image, store.info()).unwrap(),
    );
    let ftl = mount(&config.image, store, &label).unwrap();
    let options = VolumeOptions {
        size: 512 << 10,
        read_only: false,
        emulate: false,
    };
    let volume = Volume::new(ftl, options, Some(Arc::new(ImageSync(sync.clone()))));
    let before = sync.stats().count;
    for at in (0..512).cycle().take(4_000) {
        volume.write(at * 1024, &page(0, at)).unwrap();
        volume.reclaim_when_short(std::time::Duration::ZERO);
    }
    volume.publish(true);
    let (erases, syncs) = (
        volume.flash().counters.total().erases,
        sync.stats().count - before,
    );
    assert!(
        syncs >= 2 && 2 * syncs < erases,
        "{syncs} syncs for {erases} erases"
    );
}

#[test]
fn after_a_failed_sync_the_device_reads_only_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "torture", Some("512KiB"));
    create(&config).unwrap();
    let (store, _) = FileStore::open(&config.image, Access::ReadWrite).unwrap();
    let (sync, label) = (
        store.sync_handle(),
        read_label(&config.image, store.info()).unwrap(),
    );
    let ftl = mount(&config.image, store, &label).unwrap();
    let options = VolumeOptions {
        size: 512 << 10,
        read_only: false,
        emulate: false,
    };
    let volume = Volume::new(ftl, options, Some(Arc::new(ImageSync(sync.clone()))));
    volume.write(0, &page(1, 0)).unwrap();
    volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
    volume.write(0, &page(2, 0)).unwrap();
    sync.fail_next_sync();
    assert!(volume.flush(FlushOf::Everything).unwrap().wait().is_err());
    assert!(volume.write(0, &page(3, 0)).is_err() && volume.flush(FlushOf::Everything).is_err());
    let mut found = vec![0; 1024];
    volume.read(0, &mut found).unwrap();
    assert!(found == page(2, 0));
    assert!(
        volume
            .failure()
            .unwrap()
            .contains("sync of the image failed")
    );
    drop(volume);
    let again = open_or_create(&config).unwrap();
    again.volume.read(0, &mut found).unwrap();
    assert!(
        found == page(1, 0),
        "only what was synced before is trusted"
    );
}

#[test]
fn a_sync_that_fails_under_a_scheme_ends_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "torture", Some("512KiB"));
    create(&config).unwrap();
    let (store, _) = FileStore::open(&config.image, Access::ReadWrite).unwrap();
    let (sync, label) = (
        store.sync_handle(),
        read_label(&config.image, store.info()).unwrap(),
    );
    let ftl = mount(&config.image, store, &label).unwrap();
    let options = VolumeOptions {
        size: 512 << 10,
        read_only: false,
        emulate: false,
    };
    let volume = Volume::new(ftl, options, Some(Arc::new(ImageSync(sync.clone()))));
    volume.write(0, &page(1, 0)).unwrap();
    sync.fail_next_sync();
    assert!(sync.sync_through(sync.last_seq()).is_err());
    assert!((0..99).any(|at| volume.write(at * 1024, &page(2, at)).is_err()));
    assert!(
        volume
            .failure()
            .unwrap()
            .contains("sync of the image failed")
    );
}

#[test]
fn a_papers_device_fixes_the_flash_and_the_size_follows() {
    let folder = tempfile::tempdir().unwrap();
    let made = create(&config(folder.path(), "lazyftl", None)).unwrap();
    let raw = made.layout.profile.geometry.data_bytes();
    assert_eq!(raw, 1 << 30);
    assert!(
        made.size.is_multiple_of(4096) && made.size < raw && made.size > raw * 8 / 10,
        "{}",
        made.size
    );
    let too_large = create(&config(folder.path(), "lazyftl", Some("1GiB")))
        .map(drop)
        .unwrap_err();
    assert_eq!(too_large.exit, Exit::Usage);
    assert!(
        too_large
            .message
            .contains("profile lazyftl has 8192 blocks: at most"),
        "{too_large}"
    );
}

/// A shard whose flash takes no more writes keeps its write cache; the other shards serve.
#[test]
fn one_worn_out_shard_does_not_freeze_the_caches_of_the_others() {
    // The last shard has entries to write back at the next start only if the daemon dies.
    for dies in [true, false] {
        serve_beside_a_worn_out_shard(dies);
    }
}

fn serve_beside_a_worn_out_shard(dies: bool) {
    use crate::inject::{BadBlock, Injection};
    use crate::volume::write_cache::Model;
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "torture", Some("2MiB"));
    config.requirements.shards = Some(3);
    config.write_cache = Some(CacheOptions {
        bytes: 1 << 20,
        model: Model::Any,
        tear: None,
        protected: false,
    });
    let first = open_or_create(&config).unwrap().volume;
    let stripe = {
        let info = peek(&config.image).unwrap();
        info.shard.unwrap().striping.stripe_bytes
    };
    // A page of each shard waits in the caches; the flash of the middle one takes nothing more.
    let place = |shard: u64| shard * stripe;
    (0..3).for_each(|shard| drop(first.write(place(shard), &page(1, shard)).unwrap()));
    let middle = &first.flash_by_shard()[1];
    let bad = BadBlock {
        count: Some(middle.blocks - middle.scheme.blocks.bad),
        shard: Some(1),
        ..BadBlock::default()
    };
    first.inject(&Injection::BadBlock(bad)).unwrap();
    let flush = |volume: &Volume| {
        let flush = volume.flush(FlushOf::Everything);
        flush.and_then(|flush| flush.wait()).is_ok()
    };
    assert!(!flush(&first), "the middle shard refuses");
    let read = |volume: &Volume, shard: u64| {
        let mut found = vec![0; 1024];
        volume.read(place(shard), &mut found).unwrap();
        found
    };
    match dies {
        true => drop(first),
        false => close_stores(first.close().unwrap()).unwrap(),
    }
    for round in 2..4 {
        let again = open_or_create(&config).unwrap().volume;
        for shard in 0..3 {
            let before = if shard == 1 { 1 } else { round - 1 };
            assert!(read(&again, shard) == page(before, shard), "shard {shard}");
            let written = again.write(place(shard), &page(round, shard));
            assert_eq!(written.is_ok(), shard != 1, "shard {shard}");
        }
        assert!(!flush(&again));
        // One start ends with a clean stop, one with the daemon's death.
        if round == 2 {
            close_stores(again.close().unwrap()).unwrap();
        }
    }
    let last = open_or_create(&config).unwrap().volume;
    let rounds = [3, 1, 3];
    assert!((0..3).all(|shard| read(&last, shard) == page(rounds[shard as usize], shard)));
}

/// A unit of several pages could be torn; one that is a part of a page is what hosts are told.
#[test]
fn a_unit_of_atomicity_is_a_page_or_a_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "mlc-4k", Some("64MiB"));
    for (unit, taken) in [(8 << 10, false), (4 << 10, true), (8 << 10, false)] {
        config.atomic_unit = Some(unit);
        let before = config.image.exists();
        match open_or_create(&config) {
            Ok(stack) => {
                assert!(taken, "{unit}");
                assert_eq!(stack.volume.physical_block(), unit);
                close_stores(stack.volume.close().unwrap()).unwrap();
            }
            Err(refused) => {
                assert!(!taken, "{refused}");
                assert_eq!(refused.exit, Exit::Usage);
                let part = "--atomic-unit 8 KiB: a page of mlc-4k has 4096 bytes";
                assert!(refused.message.contains(part), "{refused}");
                assert_eq!(config.image.exists(), before, "an image was made");
            }
        }
    }
    let mut config = self::config(folder.path(), "tlc-16k", Some("64MiB"));
    config.image = folder.path().join("large pages");
    for (unit, physical) in [
        (None, 4 << 10),
        (Some(16 << 10), 16 << 10),
        (Some(8 << 10), 8 << 10),
    ] {
        config.atomic_unit = unit;
        let volume = open_or_create(&config).unwrap().volume;
        assert_eq!(volume.physical_block(), physical);
        close_stores(volume.close().unwrap()).unwrap();
    }
    let profile = Profile::find("tlc-16k").unwrap();
    let odd = refuse_unit(Some(16 << 10), profile, 101 << 12).unwrap_err();
    assert!(
        odd.message.contains("413696 bytes, which is no multiple"),
        "{odd}"
    );
}

/// More pages than one chip can have are on several, and ageing numbers those of the device.
#[test]
fn ageing_a_device_of_too_many_pages_is_refused_before_an_image_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "mlc-4k", Some("17TiB"));
    config.requirements.shards = Some(3);
    let refused = create_aged(&config, Some("0".parse().unwrap()), &mut |_| ());
    let refused = refused.err().unwrap();
    assert_eq!(refused.exit, Exit::Usage);
    let parts = [
        "--age",
        "2^32 - 1 pages of 4096 bytes",
        "--size of at most 17592186040320",
    ];
    assert!(
        parts.iter().all(|part| refused.message.contains(part)),
        "{refused}"
    );
    assert!(!config.image.exists());
}
