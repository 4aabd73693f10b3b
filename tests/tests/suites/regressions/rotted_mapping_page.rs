//! A mapping page had more bit errors than the ECC corrects. The mount took an older version of it,
//! with addresses of pages in erased blocks. It rejected the device, or served the previous content
//! of the pages. It now rebuilds the page from the records of all blocks.

use ftl_core::format::{Oob, Role};
use ftld_battery::cuts;
use ftld_battery::host::Host;
use ftld_battery::rig::{Rig, into_memory};
use ftld_battery::workload::HostOp;
use ftld_tests::suite;
use nand_model::{Cause, Chip, Health, Ppn, SplitMix, Store};
use std::collections::BTreeMap;

const PAGES: u32 = 4096;
/// Number of later pages in its block after which a cut cannot have torn a page.
const SETTLED: u32 = 7;

#[test]
fn uncorrectable_mapping_page_is_rebuilt_from_the_records() {
    let mut rebuilt = BTreeMap::new();
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, PAGES, suite::seed());
        let mut verdicts = suite::verdicts("regressions", scheme).of_everything();
        let mut host = Host::format(&rig);
        let fill = (0..PAGES).map(|lpn| HostOp::Write {
            lpn,
            count: 1,
            fua: false,
        });
        let mut rng = SplitMix::new(rig.seed);
        let overwrites = (0..4 * PAGES).map(|_| HostOp::Write {
            lpn: rng.below(PAGES as u64) as u32,
            count: 1,
            fua: false,
        });
        fill.chain(overwrites)
            .chain([HostOp::Flush])
            .for_each(|op| {
                host.run(&op)
                    .map_err(String::from)
                    .expect("a new device takes writes");
            });
        let (mut chip, model) = host.cut_power();
        let newest = newest_mapping_pages(&mut chip);
        let store = into_memory(chip);
        for (vtpn, ppn) in newest {
            verdicts.case(
                &format!("{}/rotted_mapping_page/{vtpn}", rig.path()),
                || {
                    let mut store = store.clone();
                    store
                        .set_health(ppn, Health::DataLost)
                        .map_err(|error| error.to_string())?;
                    cuts::survive(&rig, store, model.clone(), 1).map(drop)
                },
            );
        }
        println!("{}: {} mapping pages", rig.path(), verdicts.cases);
        *rebuilt.entry(scheme.name).or_insert(0) += verdicts.cases;
        verdicts.assert_none_failed();
    }
    let schemes = rebuilt.values().filter(|cases| **cases > 0).count();
    assert!(
        schemes >= 4 || std::env::var_os("FTLD_CASE").is_some(),
        "mapping pages rotted of {rebuilt:?} only"
    );
}

/// Returns the newest version of each mapping page, except possibly torn ones.
fn newest_mapping_pages(chip: &mut Chip) -> BTreeMap<u32, Ppn> {
    let geometry = *chip.geometry();
    let mut oob = vec![0; geometry.oob_bytes as usize];
    let mut newest: BTreeMap<u32, (u64, Ppn)> = BTreeMap::new();
    for block in geometry.all_blocks() {
        for offset in 0..chip.frontier(block) {
            let ppn = geometry.page(block, offset);
            if chip.read_oob(0, ppn, &mut oob, Cause::Host).is_err() {
                continue;
            }
            let Some(record) = Oob::decode(&oob).filter(|record| record.tag.role == Role::Map)
            else {
                continue;
            };
            let known = newest.entry(record.tag.lpn).or_insert((record.pseq, ppn));
            *known = (*known).max((record.pseq, ppn));
        }
    }
    let settled =
        |ppn: &Ppn| geometry.offset_of(*ppn) + SETTLED < chip.frontier(geometry.block_of(*ppn));
    newest
        .into_iter()
        .map(|(vtpn, (_, ppn))| (vtpn, ppn))
        .filter(|(_, ppn)| settled(ppn))
        .collect()
}
