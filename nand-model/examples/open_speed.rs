//! Measures how long an image takes to open after a kill, with all of it in the host's page cache:
//! `cargo run --release --example open_speed [GIB] [PATH]`. The scheme's mount comes on top.

use nand_model::{Access, Cause, Chip, FileStore, ImageSpec, Pbn, Profile};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let gib: u32 = args.next().map_or(Ok(4), |gib| gib.parse())?;
    let path = args.next().unwrap_or_else(|| "speed.ftld".into());
    let _ = std::fs::remove_file(&path);
    let geometry = Profile::default_profile().geometry;
    let per_gib = (1 << 30) / u64::from(geometry.page_bytes * geometry.pages_per_block);
    let blocks = gib * u32::try_from(per_gib)?;
    let profile = Profile::default_profile().with_blocks(blocks + blocks / 14);
    let spec = ImageSpec {
        profile,
        size: u64::from(gib) << 30,
        scheme: "none".into(),
        params: String::new(),
    };
    let mut chip = Chip::open(profile, FileStore::create(&path, &spec)?)?;
    let (pages, data) = (profile.geometry.pages_per_block, vec![0x5A; 64 * 4096]);
    for block in (0..blocks).chain(0..blocks / 8) {
        if chip.is_programmed(chip.geometry().page(Pbn::new(block), 0)) {
            chip.erase(0, Pbn::new(block), Cause::Gc)?;
        }
        for page in (0..pages).step_by(64) {
            let first = chip.geometry().page(Pbn::new(block), page);
            chip.program_run(0, first, 64, &data, &[7; 64 * 32], Cause::Host)
                .map_err(|e| e.error)?;
        }
        if nand_model::Store::erase_credit(chip.store()) == 0 {
            let handle = chip.store().sync_handle();
            handle.settle(handle.last_seq())?;
        }
    }
    let handle = chip.store().sync_handle();
    handle.settle(handle.last_seq())?;
    drop(chip);
    for _ in 0..5 {
        let (begun, cpu) = (Instant::now(), cpu_time()?);
        let (store, report) = FileStore::open(&path, Access::ReadWrite)?;
        let (opened, opened_cpu) = (begun.elapsed(), cpu_time()? - cpu);
        let chip = Chip::open(profile, store)?;
        println!(
            "{gib} GiB: open {opened:.1?}, CPU {opened_cpu:.1?}; with the chip {:.1?}; {report:?}",
            begun.elapsed()
        );
        drop(chip);
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// CPU time of this thread.
fn cpu_time() -> std::io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Ok(Duration::from_nanos(first.unwrap_or(0)))
}
