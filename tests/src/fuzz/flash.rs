//! Device with forged flash: pages with valid check values, and arbitrary records and marks.
//!
//! Properties: every scheme mounts the device or reports the damage. After a mount, every page is
//! readable or an error, and the check of all tables ends. A violation of the NAND rules is a panic
//! of the chip and so a finding: mounting must not violate them either.

use super::Input;
use crate::suite;
use ftl_core::format::{Flags, Oob, PageTag, Role};
use ftl_core::schemes::SCHEMES;
use ftl_core::{Lpn, Params};
use ftld_battery::host::Host;
use ftld_battery::rig::{Cells, Rig, into_memory};
use ftld_battery::workload::{Kind, Workload};
use nand_model::store::{BlockFacts, Health, MemStore};
use nand_model::{Bad, Chip, Pbn, Ppn, Store};
use std::sync::OnceLock;

/// Pages of the device.
const PAGES: u32 = 96;
/// Requests before the flash is forged.
const REQUESTS: usize = 400;

/// Device in use, with its flash after a clean shutdown and after a cut.
struct Base {
    rig: Rig,
    stopped: MemStore,
    cut: MemStore,
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        SCHEMES
            .iter()
            .flat_map(|scheme| Cells::ALL.map(|cells| base(scheme, cells)))
            .collect()
    })
}

fn base(scheme: &'static ftl_core::schemes::Scheme, cells: Cells) -> Base {
    let mut params = Params::default();
    params.set("ckpt.interval", "100");
    let rig = Rig {
        seed: 1,
        ..Rig::with_params(scheme, cells, PAGES, params, suite::seed())
    };
    let mut host = Host::format(&rig);
    for op in Workload::new(Kind::Mixed, PAGES, 1).take(REQUESTS) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{}: {trouble:?}", rig.path()));
    }
    let (chip, _) = host.cut_power();
    let cut = into_memory(chip);
    let mut ftl = rig
        .mount(rig.open(cut.clone()))
        .expect("an honest flash mounts");
    ftl.shutdown(0).expect("an honest flash shuts down");
    Base {
        stopped: into_memory(ftl.into_chip()),
        cut,
        rig,
    }
}

/// Runs one input. The first byte selects the device; edits follow.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = usize::from(input.u8());
    let base = &bases()[choice / 2 % bases().len()];
    let mut store = if choice % 2 == 0 {
        &base.stopped
    } else {
        &base.cut
    }
    .clone();
    while !input.is_empty() {
        edit(&base.rig, &mut store, &mut input);
    }
    let chip = Chip::over(base.rig.profile, store).expect("memory does not fail");
    let Ok(mut ftl) = base.rig.mount(chip) else {
        return;
    };
    let mut page = vec![0; base.rig.profile.geometry.page_bytes as usize];
    for lpn in (0..ftl.logical_pages()).map(Lpn::new) {
        let mapped = ftl.is_mapped(lpn);
        let read = ftl.read(0, lpn, &mut page);
        assert!(
            !matches!((mapped, read), (Ok(false), Ok(_))) || page.iter().all(|b| *b == 0),
            "{lpn:?} is not mapped"
        );
    }
    let _ = ftl.check();
    let _ = (ftl.stats(), ftl.ram_report());
}

const ROLES: [Role; 9] = [
    Role::Data,
    Role::Log,
    Role::Map,
    Role::Cold,
    Role::Update,
    Role::Trim,
    Role::Checkpoint,
    Role::Journal,
    Role::Pad,
];

fn edit(rig: &Rig, store: &mut MemStore, input: &mut Input) {
    let geometry = rig.profile.geometry;
    let block = |input: &mut Input| Pbn::new(u32::from(input.u8()) % geometry.blocks);
    let page = |input: &mut Input| {
        let block = block(input);
        geometry.page(block, u32::from(input.u8()) % geometry.pages_per_block)
    };
    let kind = input.u8() % 8;
    let done = match kind {
        0 => {
            let ppn = page(input);
            patch(rig, store, ppn, input, true)
        }
        1 => {
            let ppn = page(input);
            patch(rig, store, ppn, input, false)
        }
        2 => {
            let ppn = page(input);
            let (role, lpn) = (
                ROLES[usize::from(input.u8()) % ROLES.len()],
                u32::from(input.u8()),
            );
            // Small numbers match existing ones; a few more bits reach the limits of each field.
            let lpn = if input.u8() & 1 == 0 { lpn } else { !lpn };
            let counter = |input: &mut Input| {
                (u64::from(input.u16()) << (input.u8() % 33)) & 0xFFFF_FFFF_FFFF
            };
            let (ver, pseq, epoch) = (counter(input), counter(input), counter(input));
            let flags = [
                Flags::NONE,
                Flags::COPY,
                Flags::COMMIT,
                Flags::LOST,
                Flags::INVALID,
            ];
            let tag = PageTag {
                role,
                flags: flags[usize::from(input.u8()) % flags.len()],
                lpn,
                ver,
            };
            let (data, _) = contents(rig, store, ppn);
            store.program(ppn, 1, &data, &Oob { tag, pseq, epoch }.encode())
        }
        3 => {
            let (from, to) = (page(input), page(input));
            let (data, oob) = contents(rig, store, from);
            store.program(to, 1, &data, &oob)
        }
        4 => {
            let health = [
                Health::Good,
                Health::DataLost,
                Health::OobLost,
                Health::Lost,
                Health::Unstable(input.u8() % 4),
            ];
            let ppn = page(input);
            store.set_health(ppn, health[usize::from(input.u8()) % health.len()])
        }
        5 => {
            let block = block(input);
            let reasons = [Bad::Factory, Bad::FailedProgram, Bad::FailedErase];
            let bad = reasons.get(usize::from(input.u8()) % 4).copied();
            // The image rejects larger erase counts.
            let (erase_count, erase_interrupted) = (input.u32() % (1 << 31), input.u8() & 1 == 1);
            let facts = BlockFacts {
                erase_count,
                bad,
                erase_interrupted,
                since: input.u32(),
                reads: input.u32(),
            };
            store.set_facts(block, facts)
        }
        6 => {
            let block = block(input);
            store.erase(block, BlockFacts::default())
        }
        _ => {
            // Copy of a whole block to another one.
            let (from, to) = (block(input), block(input));
            (0..geometry.pages_per_block).try_for_each(|page| {
                let (data, oob) = contents(rig, store, geometry.page(from, page));
                store.program(geometry.page(to, page), 1, &data, &oob)
            })
        }
    };
    done.expect("memory does not fail");
}

fn contents(rig: &Rig, store: &mut MemStore, ppn: Ppn) -> (Vec<u8>, Vec<u8>) {
    let geometry = rig.profile.geometry;
    let (mut data, mut oob) = (
        vec![0; geometry.page_bytes as usize],
        vec![0; geometry.oob_bytes as usize],
    );
    store
        .read(ppn, &mut data, &mut oob, &mut [Health::Good])
        .expect("memory does not fail");
    (data, oob)
}

/// Overwrites part of a page's data or OOB area.
fn patch(
    rig: &Rig,
    store: &mut MemStore,
    ppn: Ppn,
    input: &mut Input,
    in_data: bool,
) -> std::io::Result<()> {
    let (mut data, mut oob) = contents(rig, store, ppn);
    let part = if in_data { &mut data } else { &mut oob };
    let at = usize::from(input.u16()) % part.len();
    let count = usize::from(input.u8() % 32);
    let bytes = input.bytes(count);
    let room = bytes.len().min(part.len() - at);
    part[at..at + room].copy_from_slice(&bytes[..room]);
    store.program(ppn, 1, &data, &oob)
}
