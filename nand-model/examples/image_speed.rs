//! Measures the image file's time per operation when the host's page cache absorbs all writes:
//! `cargo run --release --example image_speed [PATH]`.

use nand_model::{Access, Cause, Chip, FileStore, ImageSpec, Pbn, Profile};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "speed.ftld".into());
    let _ = std::fs::remove_file(&path);
    let profile = Profile::default_profile().with_blocks(1024);
    let spec = ImageSpec {
        profile,
        size: 1 << 29,
        scheme: "none".into(),
        params: String::new(),
    };
    let begun = Instant::now();
    let mut chip = Chip::open(profile, FileStore::create(&path, &spec)?)?;
    println!("create {:?}", begun.elapsed());
    let handle = chip.store().sync_handle();
    let (pages, data) = (profile.geometry.pages_per_block, vec![0x5A; 128 * 4096]);
    for round in 0..3 {
        for run in [1, 8, 32] {
            let begun = Instant::now();
            for block in 0..1024 {
                for page in (0..pages).step_by(run as usize) {
                    let first = chip.geometry().page(Pbn::new(block), page);
                    let data = &data[..run as usize * 4096];
                    chip.program_run(
                        0,
                        first,
                        run,
                        data,
                        &[7; 32 * 32][..run as usize * 32],
                        Cause::Host,
                    )
                    .map_err(|e| e.error)?;
                }
            }
            let each = begun.elapsed().as_nanos() as f64 / (1024 * pages) as f64 / 1e3;
            println!("round {round}: program in runs of {run:2}: {each:.2} us per page");
            let (mut erase_ns, mut sync_ns) = (0, 0);
            for block in 0..1024 {
                if chip.store().sync_handle().last_seq() > 0
                    && nand_model::Store::erase_credit(chip.store()) == 0
                {
                    let begun = Instant::now();
                    handle.settle(handle.last_seq())?;
                    sync_ns += begun.elapsed().as_nanos();
                }
                let begun = Instant::now();
                chip.erase(0, Pbn::new(block), Cause::Gc)?;
                erase_ns += begun.elapsed().as_nanos();
            }
            println!(
                "round {round}: erase {:.2} us, syncs {:.1} ms",
                erase_ns as f64 / 1024e3,
                sync_ns as f64 / 1e6
            );
        }
    }
    for block in 0..1024 {
        let first = chip.geometry().page(Pbn::new(block), 0);
        chip.program_run(0, first, pages, &data, &[7; 128 * 32], Cause::Host)
            .map_err(|e| e.error)?;
    }
    let begun = Instant::now();
    let (mut page, mut oob) = (vec![0; 4096], [0; 32]);
    for i in 0..100_000u64 {
        let spread = (i * 2_654_435_761) % (1024 * pages as u64);
        let ppn = chip.geometry().page(
            Pbn::new((spread / pages as u64) as u32),
            (spread % pages as u64) as u32,
        );
        chip.read(0, ppn, &mut page, &mut oob, Cause::Host)?;
    }
    println!(
        "read one page {:.2} us",
        begun.elapsed().as_nanos() as f64 / 1e8
    );
    drop(chip);
    println!(
        "unclean open {:?}",
        FileStore::open(&path, Access::ReadOnly)?.1
    );
    let (store, report) = FileStore::open(&path, Access::ReadWrite)?;
    println!("again {report:?}");
    let begun = Instant::now();
    store.close()?;
    println!("close {:?}", begun.elapsed());
    println!(
        "clean open {:?}",
        FileStore::open(&path, Access::ReadOnly)?.1.took
    );
    std::fs::remove_file(&path)?;
    Ok(())
}
