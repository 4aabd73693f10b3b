use super::*;
use crate::paged::tests::{Subject, agrees_with_a_model, profile, survives_cuts};
use nand_model::Geometry;

struct Dftl;

impl Subject for Dftl {
    type Policy = Cmt;
    fn start<S: Store>(chip: Chip<S>, config: &FtlConfig, how: Start) -> Result<Paged<S, Cmt>, FtlError> {
        new(chip, config, how)
    }
}

fn small_slc() -> Profile {
    let slc = profile("slc-2k", 72);
    Profile { geometry: Geometry { pages_per_block: 16, page_bytes: 512, ..slc.geometry }, ..slc }
}

#[test]
fn what_was_written_is_read_back() {
    let small = [("ckpt.interval", "500"), ("dftl.cache", "256"), ("map.age_window", "24")];
    agrees_with_a_model::<Dftl>(profile("torture", 64), 560, 40_000, 1, &small);
    agrees_with_a_model::<Dftl>(small_slc(), 600, 40_000, 2, &small[..2]);
    agrees_with_a_model::<Dftl>(small_slc(), 600, 20_000, 3, &[]);
}

#[test]
fn it_survives_cuts_anywhere() {
    let small = ("dftl.cache", "256");
    let checkpoints = survives_cuts::<Dftl>(profile("torture", 64), 400, 3, 20, &[("ckpt.interval", "120"), small]);
    assert!(checkpoints > 40, "{checkpoints}");
    let window = [("ckpt.interval", "0"), ("map.age_window", "12"), small];
    survives_cuts::<Dftl>(profile("torture", 64), 400, 4, 20, &window);
    survives_cuts::<Dftl>(small_slc(), 400, 5, 20, &[("ckpt.interval", "120"), small]);
}
