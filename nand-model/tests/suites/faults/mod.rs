//! Faults without a power cut: reported ones, silent ones, and bit errors, over memory and over an
//! image file. A read always returns the right bytes or an error.

mod decay;
mod reported;
mod silent;

use nand_model::store::MemStore;
use nand_model::{
    Access, Bad, BlockFault, Cause, Chip, Cut, DieFailure, EraseCut, Fault, FaultPlan, FileStore,
    Health, ImageSpec, NandError, Nanos, PartnerCut, Pbn, Ppn, Profile, ProgramCut, SplitMix,
    Store,
};
use std::path::Path;

const OOB: usize = 16;

fn small(name: &str) -> Profile {
    let mut profile = Profile::find(name).unwrap().with_blocks(8);
    (
        profile.geometry.pages_per_block,
        profile.geometry.page_bytes,
        profile.geometry.oob_bytes,
    ) = (16, 512, OOB as u32);
    profile
}

fn in_memory(profile: Profile) -> Chip<MemStore> {
    Chip::open(profile, MemStore::new(profile.geometry)).unwrap()
}

fn in_file(profile: Profile, folder: &Path) -> Chip<FileStore> {
    let spec = ImageSpec {
        profile,
        size: 4096,
        scheme: "none".into(),
        params: String::new(),
    };
    Chip::open(
        profile,
        FileStore::create(folder.join("t.ftld"), &spec).unwrap(),
    )
    .unwrap()
}

fn reopened(chip: Chip<FileStore>, folder: &Path, clean: bool) -> Chip<FileStore> {
    let (profile, store) = (*chip.profile(), chip.into_store());
    if clean {
        store.close().unwrap()
    } else {
        drop(store)
    }
    let (store, report) = FileStore::open(folder.join("t.ftld"), Access::ReadWrite).unwrap();
    assert_eq!((report.was_clean, report.ops_dropped), (clean, 0));
    Chip::open(profile, store).unwrap()
}

fn content(value: u64) -> ([u8; 512], [u8; OOB]) {
    let mut rng = SplitMix::new(value);
    let mut page = [[0; 8]; 64];
    page.iter_mut()
        .for_each(|word| *word = rng.next_u64().to_le_bytes());
    let mut oob = [0; OOB];
    oob[..8].copy_from_slice(&value.to_le_bytes());
    (page.as_flattened().try_into().unwrap(), oob)
}

fn program<S: Store>(
    chip: &mut Chip<S>,
    block: u32,
    page: u32,
    value: u64,
) -> Result<Nanos, NandError> {
    let (data, oob) = content(value);
    chip.program(
        0,
        chip.geometry().page(Pbn::new(block), page),
        &data,
        &oob,
        Cause::Host,
    )
}

fn erase<S: Store>(chip: &mut Chip<S>, block: u32) -> Result<Nanos, NandError> {
    chip.erase(0, Pbn::new(block), Cause::Gc)
}

/// The content of a readable page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Blank,
    Value(u64),
    Garbage,
}

fn what(data: &[u8], oob: &[u8]) -> Seen {
    if data.iter().chain(oob).all(|&b| b == 0xFF) {
        return Seen::Blank;
    }
    let value = u64::from_le_bytes(oob[..8].try_into().unwrap());
    if content(value) == (data.try_into().unwrap(), oob.try_into().unwrap()) {
        Seen::Value(value)
    } else {
        Seen::Garbage
    }
}

fn read_at<S: Store>(chip: &mut Chip<S>, ppn: Ppn) -> Result<Seen, NandError> {
    let (mut data, mut oob) = ([0; 512], [0; OOB]);
    chip.read(0, ppn, &mut data, &mut oob, Cause::Host)?;
    Ok(what(&data, &oob))
}

fn read<S: Store>(chip: &mut Chip<S>, block: u32, page: u32) -> Result<Seen, NandError> {
    read_at(chip, chip.geometry().page(Pbn::new(block), page))
}

fn lost(result: Result<Seen, NandError>) -> bool {
    matches!(result, Err(NandError::Uncorrectable { .. }))
}

/// All ways of reading agree that the page is lost.
fn lost_every_way<S: Store>(chip: &mut Chip<S>, block: u32, page: u32) -> bool {
    let ppn = chip.geometry().page(Pbn::new(block), page);
    let (mut data, mut oob, mut health) = ([0; 512], [0; OOB], [Health::Good]);
    let oob_alone = chip.read_oob(0, ppn, &mut oob, Cause::Host);
    chip.read_run(0, ppn, &mut data, &mut oob, &mut health, Cause::Host)
        .unwrap();
    let in_run = health[0];
    chip.read_pages(0, &[ppn], &mut data, &mut oob, &mut health, Cause::Host)
        .unwrap();
    let told = chip.counters().uncorrectable_reads;
    let alone = lost(read(chip, block, page));
    assert_eq!(chip.counters().uncorrectable_reads, told + alone as u64);
    let all = [
        alone,
        oob_alone.is_err(),
        in_run == Health::Lost,
        health[0] == Health::Lost,
    ];
    assert!(all == [true; 4] || all == [false; 4], "{all:?}");
    alone
}

fn plan(block_faults: Vec<BlockFault>) -> FaultPlan {
    FaultPlan {
        block_faults,
        seed: 5,
        ..FaultPlan::default()
    }
}

fn block_fault(block: u32, fault: Fault, after: u32) -> BlockFault {
    BlockFault {
        block: Pbn::new(block),
        fault,
        after,
    }
}
