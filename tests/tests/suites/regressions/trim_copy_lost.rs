//! GC relocated a trim record, and power failed while the copy was programmed: it was readable once
//! more. The mount took it, and erased the block of the original record before it had rewritten the
//! copy. A second cut there lost both, and trimmed and flushed pages reappeared.

use ftl_core::format::{Flags, Oob, Role};
use ftld_battery::cuts::{self, Moment, Recording};
use ftld_battery::host::Host;
use ftld_battery::rig::Rig;
use ftld_battery::verdicts::Verdicts;
use ftld_battery::workload::HostOp;
use ftld_tests::suite;
use nand_model::store::Change;
use nand_model::{Cut, EraseCut, PartnerCut, ProgramCut, SplitMix};

const PAGES: u32 = 1024;
/// Number of cuts per scheme and kind of cells.
const ENOUGH: u64 = 500;
const FIRST: Cut = Cut {
    at_op: 0,
    program: ProgramCut::Unstable(2),
    partner: PartnerCut::Intact,
    erase: EraseCut::Complete,
    seed: 1,
};
const SECOND: Cut = Cut {
    program: ProgramCut::Prefix,
    ..FIRST
};

#[test]
fn trim_record_is_kept_until_its_copy_is_stable() {
    let mut copied = Vec::new();
    for (scheme, cells) in suite::matrix() {
        let rig = Rig::new(scheme, cells, PAGES, suite::seed()).set("ckpt.interval", "0");
        let mut verdicts = suite::verdicts("regressions", scheme);
        Recording::of(full_device(&rig), trims_and_overwrites(rig.seed), |_| false).visit(
            |moment| {
                let here = format!("{}/trim_copy_lost/{}", rig.path(), moment.index);
                if copies_a_trim(moment.next) && verdicts.cases < ENOUGH && verdicts.draws(&here) {
                    cut_twice(&rig, moment, &here, &mut verdicts);
                }
            },
        );
        println!(
            "{}: {} cuts after a copy of a trim record; {}",
            rig.path(),
            verdicts.cases,
            verdicts.sample()
        );
        copied.extend((verdicts.places > 0).then(|| rig.path()));
        verdicts.assert_none_failed();
    }
    // GC does not relocate them in every scheme: some keep them separate from data.
    assert!(
        copied.len() >= 4 || std::env::var_os("FTLD_CASE").is_some(),
        "trim records were copied by {copied:?} only"
    );
}

fn full_device(rig: &Rig) -> Host<'_> {
    let mut host = Host::format(rig);
    let fill = (0..PAGES).map(|lpn| HostOp::Write {
        lpn,
        count: 1,
        fua: false,
    });
    fill.chain([HostOp::Flush]).for_each(|op| {
        host.run(&op)
            .map_err(String::from)
            .expect("a new device takes writes")
    });
    host
}

/// Overwrites pages of one half until GC relocates the trim records of the other.
fn trims_and_overwrites(seed: u64) -> impl Iterator<Item = HostOp> {
    let mut rng = SplitMix::new(seed);
    (0..3000u32).flat_map(move |i| {
        let trim = HostOp::Trim {
            lpn: PAGES / 2 + 37 * i % (PAGES / 2),
            count: 1,
        };
        let write = HostOp::Write {
            lpn: rng.below(PAGES as u64 / 2) as u32,
            count: 1,
            fua: false,
        };
        let trims = if i % 200 == 0 {
            &[trim, HostOp::Flush][..]
        } else {
            &[]
        };
        [&[write], trims].concat()
    })
}

fn copies_a_trim(change: &Change) -> bool {
    let Change::Program { oob, .. } = change else {
        return false;
    };
    Oob::decode(oob).is_some_and(|oob| oob.tag.role == Role::Trim && oob.tag.flags.has(Flags::COPY))
}

/// Makes the copy unstable, then cuts power at every operation of the mount.
fn cut_twice(rig: &Rig, moment: &Moment, here: &str, verdicts: &mut Verdicts) {
    let store = cuts::cut_during(rig, moment.store, moment.next, FIRST);
    let changes = match cuts::record_mount(rig, &store) {
        Ok(changes) => changes,
        Err(why) => return verdicts.case(here, || Err(why)),
    };
    cuts::visit_mount(&store, &changes, |index, store, next| {
        verdicts.case(&format!("{here}/{index}"), || {
            let store = cuts::cut_during(rig, store, next, SECOND);
            cuts::survive(rig, store, moment.model.clone(), 1).map(drop)
        });
    });
}
