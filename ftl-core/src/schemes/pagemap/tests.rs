use super::*;
use crate::format::UNMAPPED;
use nand_model::store::MemStore;
use nand_model::{Geometry, SplitMix};

fn torture(blocks: u32) -> Profile {
    Profile::find("torture").unwrap().with_blocks(blocks)
}

fn config(logical_pages: u32, params: &[(&str, &str)]) -> FtlConfig {
    let mut config = FtlConfig { logical_pages, params: Params::default() };
    params.iter().for_each(|(key, value)| config.params.set(key, value));
    config
}

fn format(profile: Profile, config: &FtlConfig) -> Box<dyn Ftl<MemStore>> {
    let chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
    start(chip, config, Start::Format).unwrap()
}

fn page(geometry: &Geometry, n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(geometry.page_bytes as usize / 8)
}

#[test]
fn what_was_written_is_read_back_through_collections_and_mounts() {
    let profile = torture(40);
    let config = config(300, &[("ckpt.interval", "500")]);
    let mut ftl = format(profile, &config);
    let mut rng = SplitMix::new(1);
    let mut model = vec![None; 300];
    for step in 0..20_000u64 {
        let lpn = rng.below(300) as u32;
        match rng.below(20) {
            0 => {
                let count = rng.below(20).min(300 - lpn as u64) as u32;
                ftl.trim(0, Lpn::new(lpn), count).unwrap();
                model[lpn as usize..][..count as usize].fill(None);
            }
            1 => drop(ftl.flush(0).unwrap()),
            2..12 => {
                ftl.write(0, Lpn::new(lpn), &page(&profile.geometry, step)).unwrap();
                model[lpn as usize] = Some(step);
            }
            _ => {
                let mut out = vec![1; 1024];
                ftl.read(0, Lpn::new(lpn), &mut out).unwrap();
                assert_eq!(out, page(&profile.geometry, model[lpn as usize].unwrap_or(0)), "page {lpn} at {step}");
            }
        }
        if step % 997 == 0 {
            assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
            if step % 1994 == 0 {
                ftl.shutdown(0).unwrap();
            }
            let mut chip = ftl.into_chip();
            chip.power_on();
            ftl = start(chip, &config, Start::Mount).unwrap();
            assert_eq!(ftl.stats().mount.clean, step % 1994 == 0, "at {step}");
        }
    }
    assert!(ftl.stats().mapped_pages > 100);
}

#[test]
fn lookups_cost_one_page_read_and_writes_one_program() {
    let profile = Profile::find("mnftl").unwrap().with_blocks(64);
    let mut ftl = format(profile, &config(1000, &[("ckpt.interval", "0")]));
    let data = page(&profile.geometry, 9);
    assert_eq!(ftl.write(0, Lpn::new(5), &data).unwrap(), 800_000);
    let mut out = vec![0; 2048];
    assert_eq!(ftl.read(1_000_000, Lpn::new(5), &mut out).unwrap(), 1_060_000);
    assert_eq!(ftl.read(2_000_000, Lpn::new(6), &mut out).unwrap(), 2_000_000, "an unmapped page costs nothing");
}

#[test]
fn the_map_is_dense_and_unmapped_is_all_ones() {
    assert_eq!(UNMAPPED, u32::MAX);
}
