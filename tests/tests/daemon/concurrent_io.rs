//! Many threads on one volume over an image: reads are copied outside the lock, writes are executed
//! together, garbage collection moves and erases what is read. A read returns one content of its
//! page, whole: the newest one acknowledged before it began, or a later one.

use ftl_core::schemes::Scheme;
use ftl_core::{FtlConfig, Params, Start};
use ftld_battery::rig::Cells;
use ftld_device::config::Latency;
use ftld_device::device::{BlockDevice, FlushOf};
use ftld_device::inject::{BitErrors, Injection};
use ftld_device::stack::{CacheUse, close_stores, volume_on};
use ftld_device::volume::Volume;
use ftld_host_disk::SimDisk;
use nand_model::store::Access;
use nand_model::{Chip, ImageSpec, SplitMix};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGES: u32 = 96;
/// Few, so that slots are reused at once.
const SPARE_SLOTS: u32 = 6;
const WRITES: u64 = 3_000;
const READERS: u64 = 3;
/// Reads at least, all readers together.
const READS: u64 = 200;

fn volume(scheme: &str) -> (Volume, usize) {
    let scheme = Scheme::find(scheme).expect("a scheme of the table");
    let profile = Cells::Mlc.profile();
    let page = profile.geometry.page_bytes;
    let size = u64::from(PAGES) * u64::from(page);
    let params = Params::default();
    let layout = scheme.layout(&profile, size, 0.15, &params).unwrap();
    let spec = ImageSpec {
        profile: layout.profile,
        size,
        scheme: scheme.name.into(),
        params: String::new(),
    };
    let (disk, store) = SimDisk::create(&spec, SPARE_SLOTS).unwrap();
    let chip = Chip::over(layout.profile, store).unwrap();
    let config = FtlConfig {
        logical_pages: PAGES,
        params,
    };
    let mut ftl = scheme.start(chip, &config, Start::Format).unwrap();
    ftl.shutdown(0).unwrap();
    close_stores([ftl.into_chip().into_store()]).unwrap();
    let (store, _) = disk.open(Access::ReadWrite).unwrap();
    let cache = CacheUse {
        options: None,
        boot_id: "boot",
    };
    let path = Path::new("simulated disk");
    let stack = volume_on(path, vec![store], false, Latency::None, cache, |inner| {
        inner
    });
    (stack.expect("a volume").volume, page as usize)
}

/// The content of a page: its address and version, repeated.
fn fill(page: u32, version: u64, buf: &mut [u8]) {
    for part in buf.chunks_exact_mut(16) {
        part[..8].copy_from_slice(&u64::from(page).to_le_bytes());
        part[8..].copy_from_slice(&version.to_le_bytes());
    }
}

/// Returns the version of a page's content, which must be whole.
fn version(page: u32, buf: &[u8]) -> u64 {
    let version = u64::from_le_bytes(buf[8..16].try_into().unwrap());
    let mut whole = vec![0; buf.len()];
    if version > 0 {
        fill(page, version, &mut whole);
    }
    assert!(
        whole == buf,
        "page {page} is no content of it, or a mixture"
    );
    version
}

/// Runs one writer and, at the same time, readers. Returns the reads.
fn run(scheme: &str, seed: u64) -> u64 {
    let (volume, page) = volume(scheme);
    let (volume, stop, reads) = (&volume, &AtomicBool::new(false), &AtomicU64::new(0));
    // Per page: the version that was last issued, and the one last acknowledged.
    let table = || -> Vec<AtomicU64> { (0..PAGES).map(|_| AtomicU64::new(0)).collect() };
    let (issued, acknowledged) = (&table(), &table());
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            scope.spawn(move || {
                let mut rng = SplitMix::new(seed ^ (reader + 1) << 32);
                let mut buf = vec![0; page * PAGES as usize];
                while !stop.load(Ordering::Acquire) {
                    let first = rng.number(PAGES);
                    let count = 1 + rng.number((PAGES - first).min(16));
                    let oldest: Vec<u64> = (first..first + count)
                        .map(|at| acknowledged[at as usize].load(Ordering::SeqCst))
                        .collect();
                    let bytes = &mut buf[..count as usize * page];
                    volume.read(u64::from(first) * page as u64, bytes).unwrap();
                    for (i, content) in bytes.chunks_exact(page).enumerate() {
                        let at = first + i as u32;
                        let (seen, oldest) = (version(at, content), oldest[i]);
                        let newest = issued[at as usize].load(Ordering::SeqCst);
                        assert!(
                            (oldest..=newest).contains(&seen),
                            "page {at} has version {seen}, not one of {oldest} to {newest}"
                        );
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
                std::thread::yield_now();
            }
        });
        let mut rng = SplitMix::new(seed);
        let mut next = 0;
        // On a busy machine the readers may start late.
        while next < WRITES || reads.load(Ordering::Relaxed) < READS {
            let count = 1 + rng.index(12);
            let writes: Vec<(u32, Vec<u8>)> = (0..count)
                .map(|_| {
                    // Half of the writes go to a few pages: a batch may write one twice.
                    let at = if rng.one_in(2) {
                        rng.number(8)
                    } else {
                        rng.number(PAGES)
                    };
                    next += 1;
                    let mut data = vec![0; page];
                    fill(at, next, &mut data);
                    issued[at as usize].store(next, Ordering::SeqCst);
                    (at, data)
                })
                .collect();
            let parts: Vec<(u64, &[u8])> = writes
                .iter()
                .map(|(at, data)| (u64::from(*at) * page as u64, &data[..]))
                .collect();
            let mut results = Vec::new();
            volume.write_many(&parts, &mut results);
            assert_eq!(results.len(), count);
            for ((at, data), result) in writes.iter().zip(results) {
                result.unwrap();
                acknowledged[*at as usize].store(version(*at, data), Ordering::SeqCst);
            }
            if rng.one_in(16) {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
    });
    let host = volume.host();
    assert_eq!(
        host.reads_repeated, 0,
        "{scheme}: a slot was written under a reader"
    );
    assert_eq!(volume.failure(), None);
    volume.publish(true);
    let erases = volume.flash().counters.total().erases;
    assert!(erases > u64::from(PAGES), "{scheme}: only {erases} erases");
    reads.load(Ordering::Relaxed)
}

#[test]
fn readers_see_whole_pages_that_are_not_older_than_acknowledged() {
    for scheme in ["pagemap", "lazyftl", "dftl", "mnftl", "fast", "mlam"] {
        let reads = run(scheme, 1);
        println!("{scheme}: {reads} reads beside {WRITES} writes");
    }
}

/// A read that fails holds no slot: neither its thread nor another one waits for it later.
#[test]
fn a_read_that_failed_holds_nothing() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (volume, page) = volume("pagemap");
        let write = |at: u32, version| {
            let mut data = vec![0; page];
            fill(at, version, &mut data);
            volume.write(u64::from(at) * page as u64, &data).unwrap();
        };
        (0..PAGES).for_each(|at| write(at, 1));
        let lost = BitErrors {
            count: Some(4),
            seed: Some(1),
            ..BitErrors::default()
        };
        volume.inject(&Injection::BitErrors(lost)).unwrap();
        let mut buf = vec![0; 2 * page];
        let failed = (0..PAGES - 1)
            .filter(|at| volume.read(u64::from(*at) * page as u64, &mut buf).is_err())
            .count();
        // All writes are of this thread, and erase more often than there are spare slots.
        for version in 2..40 {
            (0..PAGES).for_each(|at| write(at, version));
            volume.flush(FlushOf::Everything).unwrap().wait().unwrap();
        }
        done.send(failed).unwrap();
    });
    let failed = ended.recv_timeout(std::time::Duration::from_secs(100));
    assert!(failed.expect("writes wait for a reader that has ended") > 0);
}

/// A read during which a block is erased returns what it found before, and is charged once.
#[test]
fn a_read_that_collects_garbage_is_charged_once() {
    for scheme in ["dftl", "gftl"] {
        let (volume, page) = volume(scheme);
        let (mut rng, mut contents) = (SplitMix::new(3), vec![0; PAGES as usize]);
        let (mut buf, mut read, mut during) = (vec![0; page * 16], 0, 0);
        let erases = || {
            volume.publish(true);
            volume.flash().counters.total().erases
        };
        for next in 1..=WRITES {
            let at = rng.number(PAGES);
            fill(at, next, &mut buf[..page]);
            let offset = |at: u32| u64::from(at) * page as u64;
            volume.write(offset(at), &buf[..page]).unwrap();
            contents[at as usize] = next;
            let first = rng.number(PAGES);
            let count = 1 + rng.number((PAGES - first).min(16));
            let (bytes, before) = (&mut buf[..count as usize * page], erases());
            volume.read(offset(first), bytes).unwrap();
            for (at, content) in (first..).zip(bytes.chunks_exact(page)) {
                let seen = version(at, content);
                assert_eq!(seen, contents[at as usize], "{scheme}: page {at}");
            }
            read += u64::from(count);
            during += erases() - before;
        }
        assert!(during > 0, "{scheme}: no read erased a block");
        assert_eq!(volume.host().reads_repeated, 0, "{scheme}");
        volume.publish(true);
        let charged = volume.flash().scheme.host_pages_read;
        assert_eq!(charged, read, "{scheme}: pages read");
    }
}
