//! The battery of power cuts: at every program and erase of every workload, inside mounts, many in
//! sequence, and with destroyed checkpoints. The oracle ([`crate::model`]) has the allowed losses;
//! docs/DURABILITY.md describes them.

use crate::cuts::{self, Recording};
use crate::host::Host;
use crate::rig::{Cells, Rig, has_param};
use crate::sweep::{self, FewestFree, Outcomes, PAGES, RandomCuts, rig_of};
use crate::verdicts::{Budget, Verdicts};
use crate::workload::{Kind, Workload};
use ftl_core::schemes::Scheme;
use nand_model::{Geometry, MultiPlane, Pairing, Profile, SlcRegion};

/// A part of this battery: the cases of one question on one kind of cells.
pub type Part = fn(&'static Scheme, Cells, &mut Verdicts);

/// All parts but the random cuts, by name.
pub const PARTS: [(&str, Part); 8] = [
    ("every operation", |scheme, cells, verdicts| {
        every_operation(scheme, cells, verdicts);
    }),
    ("variants", variants),
    ("inside mounts", inside_mounts),
    ("inside second mounts", inside_second_mounts),
    ("short rows", short_rows),
    ("in a row", |scheme, cells, verdicts| {
        in_a_row(&rig_of(scheme, cells, verdicts.budget()), verdicts);
    }),
    (
        "in a row on a chip of real size",
        |scheme, cells, verdicts| {
            in_a_row(&real_size_rig(scheme, cells, verdicts.budget()), verdicts);
        },
    ),
    ("lost checkpoints", lost_checkpoints),
];

/// Programs and erases of each workload: in the long form enough for a million cuts of all schemes
/// together, in the short form the minimum for evidence, and every second of those.
const LONG_OPERATIONS: u64 = 2_400;

/// Extent of a sweep over workloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    /// Programs and erases of the runs.
    pub operations: usize,
    /// Workloads.
    pub workloads: usize,
}

/// Cuts at every operation of every workload.
///
/// # Panics
/// A workload lacks situations that it must contain ([`cuts::missing`]), or a run without cuts
/// fails.
pub fn every_operation(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) -> Swept {
    let rig = rig_of(scheme, cells, verdicts.budget());
    let least = verdicts.budget().pick(0, 0, LONG_OPERATIONS);
    let every = verdicts.budget().pick(2, 2, 1);
    let mut swept = Swept::default();
    for kind in Kind::ALL {
        if !verdicts.want(&format!("{}/{}", rig.path(), kind.name())) {
            continue;
        }
        let recording = cuts::record_operations(&rig, kind, least);
        let missing = cuts::missing(&rig, &recording.coverage);
        assert_eq!(
            missing,
            None,
            "{}/{}: the workload proves too little",
            rig.path(),
            kind.name()
        );
        sweep::cut_run(
            &rig,
            kind.name(),
            &recording,
            every,
            Outcomes::by_form(verdicts.budget()),
            verdicts,
        );
        swept.operations += recording.operations();
        swept.workloads += 1;
    }
    swept
}

/// Cuts at every operation of one workload without protection of paired pages: some must lose
/// flushed data, or the battery would not find losses. Only for schemes with `nand.pair_policy`.
pub fn without_pair_protection(scheme: &'static Scheme, verdicts: &mut Verdicts) {
    let rig = rig_of(scheme, Cells::Mlc, verdicts.budget()).set("nand.pair_policy", "none");
    if !verdicts.want(&rig.path()) {
        return;
    }
    let recording = cuts::record(&rig, Kind::Uniform);
    sweep::cut_run(
        &rig,
        Kind::Uniform.name(),
        &recording,
        1,
        Outcomes::by_form(verdicts.budget()),
        verdicts,
    );
}

/// Some of the outcomes at every operation of variants of the default rig: failing programs and
/// erases, other word-line pairings, lost marks in the OOB.
///
/// # Panics
/// No blocks went bad although some should fail, or a run without cuts fails.
pub fn variants(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let budget = verdicts.budget().clone();
    let usual = || rig_of(scheme, cells, &budget);
    for salt in 0..verdicts.budget().pick(1, 2, 8) {
        // Long enough to program and erase the blocks.
        let failing = sweep::with_failing_blocks(usual(), salt);
        if !verdicts.want(&failing.path()) {
            continue;
        }
        let recording = cuts::record_operations(&failing, Kind::HotCold, 2_000);
        let bad = recording.coverage.bad_blocks;
        assert!(bad >= 2, "{}: only {bad} blocks went bad", failing.path());
        cut_variant(&failing, &recording, 2, verdicts);
    }
    if cells == Cells::Mlc {
        for pairing in [
            Pairing::Adjacent,
            Pairing::Dist6,
            Pairing::Shared4,
            Pairing::Group4,
        ] {
            let paired = usual().variant(pairing.name(), |rig| rig.profile.pairing = pairing);
            if verdicts.want(&paired.path()) {
                let recording = cuts::record(&paired, Kind::HotCold);
                cut_variant(&paired, &recording, 1, verdicts);
            }
        }
    }
    for (key, value) in [
        ("gc.placement", "single"),
        ("gc.pace", "even"),
        ("ckpt.interval", "0"),
        ("lazy.valid_tracking", "ram_bitmap"),
        ("mlam.ack", "buffer"),
        ("leaftl.ack", "buffer"),
        ("leaftl.gamma", "4"),
        ("learned.groups", "3"),
    ] {
        let other = usual().variant(&format!("{key}={value}"), |_| {});
        if has_param(scheme, key) && verdicts.want(&other.path()) {
            let other = other.set(key, value);
            cut_variant(&other, &after_filling(&other), 1, verdicts);
        }
    }
    let unmarked = usual().variant("unmarked", |_| {});
    if verdicts.want(&unmarked.path())
        && let Some(recording) = cuts::record(&unmarked, Kind::HotCold).without_marks()
    {
        cut_variant(&unmarked, &recording, 1, verdicts);
    }
}

/// A run on a device that is already full.
fn after_filling(rig: &Rig) -> Recording {
    let mut host = Host::format(rig);
    for op in Workload::new(Kind::HotCold, PAGES, rig.seed).take(400) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{}: {op:?}: {}", rig.path(), String::from(trouble)));
    }
    let workload = Workload::new(Kind::HotCold, PAGES, rig.seed + 1)
        .skip(60)
        .take(400);
    Recording::of(host, workload, |_| false)
}

/// Every operation in the long form, else every fifth of every `share`-th part.
fn cut_variant(rig: &Rig, recording: &Recording, share: usize, verdicts: &mut Verdicts) {
    let every = verdicts.budget().pick(5 * share, 5 * share, 1);
    sweep::cut_run(
        rig,
        Kind::HotCold.name(),
        recording,
        every,
        Outcomes::by_form(verdicts.budget()),
        verdicts,
    );
}

/// A second cut inside the mount that follows the first one, after the mount has programmed or
/// erased something: samples in the short form; in the long form every pair of operations and
/// outcomes on a tiny device, and samples of all workloads on the usual one.
pub fn inside_mounts(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let rig = rig_of(scheme, cells, verdicts.budget());
    let two = &[Kind::FullDisk, Kind::Mixed][..];
    for kind in verdicts.budget().pick(two, two, &Kind::ALL[..]) {
        cut_mounts(&rig, *kind, 29, Outcomes::Three, verdicts);
    }
    if verdicts.budget().is_long() {
        let tiny = Rig::with_params(scheme, cells, 64, rig.config.params.clone(), rig.seed)
            .variant("tiny", |_| {});
        cut_mounts(&tiny, Kind::Mixed, 1, Outcomes::All, verdicts);
    }
}

fn cut_mounts(rig: &Rig, kind: Kind, every: usize, outcomes: Outcomes, verdicts: &mut Verdicts) {
    if verdicts.want(&format!("{}/{}", rig.path(), kind.name())) {
        sweep::cut_mounts(
            rig,
            kind.name(),
            &cuts::record(rig, kind),
            every,
            outcomes,
            verdicts,
        );
    }
}

/// A third cut, inside the mount after the second one, at random; both mounts had programmed or
/// erased something.
pub fn inside_second_mounts(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let two = (&[Kind::HotCold, Kind::Files][..], 20, 2);
    let (kinds, every, per_mount) = verdicts.budget().pick(two, two, (&Kind::ALL[..], 3, 16));
    let rig = rig_of(scheme, cells, verdicts.budget());
    for kind in kinds {
        if verdicts.want(&format!("{}/{}", rig.path(), kind.name())) {
            let recording = cuts::record(&rig, *kind);
            sweep::cut_mounts_of_mounts(&rig, kind.name(), &recording, every, per_mount, verdicts);
        }
    }
}

/// Every sequence of four requests on two pages of a full device, cut everywhere. The short form
/// takes every second sequence of three.
pub fn short_rows(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let (length, every) = verdicts.budget().pick((3, 5), (3, 2), (4, 1));
    let rig = rig_of(scheme, cells, verdicts.budget());
    if verdicts.want(&format!("{}/row", rig.path())) {
        sweep::cut_short_rows(&rig, length, every, verdicts);
    }
}

/// A chip of real size: large blocks, of which a cut leaves many pages unused.
pub fn real_size_rig(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let name = cells.part();
    let profile = *Profile::find(name).expect("a built-in profile");
    let params = budget.params(&[("ckpt.interval", "700")]);
    Rig::on_profile(scheme, cells, profile, 1024, params, budget.seed).variant(name, |_| {})
}

/// A device of four channels with two chips of two dies each, and two planes per die.
pub fn sixteen_dies_rig(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let one = cells.profile();
    let geometry = Geometry {
        channels: 4,
        ways: 4,
        planes: 2,
        ..one.geometry
    };
    let profile = Profile { geometry, ..one };
    let params = budget.params(&[("ckpt.interval", "700"), ("alloc.stripe", "16")]);
    Rig::on_profile(scheme, cells, profile, PAGES, params, budget.seed)
        .variant("sixteen_dies", |_| {})
}

/// A device of one die with four planes that program, read and erase together.
pub fn four_planes_rig(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Rig {
    let one = cells.profile();
    let geometry = Geometry {
        planes: 4,
        multi_plane: MultiPlane::SamePage,
        ..one.geometry
    };
    let profile = Profile { geometry, ..one };
    let params = budget.params(&[("ckpt.interval", "700")]);
    Rig::on_profile(scheme, cells, profile, PAGES, params, budget.seed)
        .variant("four_planes", |_| {})
}

/// Cuts at operations of a run on sixteen dies, over which a page map stripes its streams of data,
/// of one on four planes, with its superblocks, and cuts in a row there.
///
/// # Panics
/// A run without cuts fails.
pub fn sixteen_dies(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    for rig in [sixteen_dies_rig, four_planes_rig] {
        let rig = rig(scheme, cells, verdicts.budget());
        if verdicts.want(&rig.path()) {
            striped(&rig, verdicts);
        }
    }
}

fn striped(rig: &Rig, verdicts: &mut Verdicts) {
    let recording = cuts::record(rig, Kind::Mixed);
    let places = verdicts.budget().pick(40, 400, 2_000);
    let every = recording.operations().div_ceil(places);
    sweep::cut_run(
        rig,
        Kind::Mixed.name(),
        &recording,
        every,
        Outcomes::by_form(verdicts.budget()),
        verdicts,
    );
    in_a_row(rig, verdicts);
}

/// A device with a quarter of its blocks in SLC mode, over two dies or over four planes that
/// operate together. The size is such that every page of the host passes through the region, and is
/// folded.
pub(crate) fn slc_rig(
    scheme: &'static Scheme,
    cells: Cells,
    on_planes: bool,
    budget: &Budget,
) -> Rig {
    let one = cells.profile();
    let geometry = match on_planes {
        true => Geometry {
            planes: 4,
            multi_plane: MultiPlane::SamePage,
            ..one.geometry
        },
        false => Geometry {
            ways: 2,
            ..one.geometry
        },
    };
    let slc = Some(SlcRegion::typical(&one, 2_500));
    let profile = Profile {
        geometry,
        slc,
        ..one
    };
    let params = budget.params(&[("ckpt.interval", "250"), ("wear.gap", "2")]);
    Rig::on_profile(scheme, cells, profile, PAGES, params, budget.seed).variant("slc", |_| {})
}

/// Cuts at operations of a run that folds blocks in SLC mode, inside the mounts after them, and in
/// a row: with folding of the oldest block, of the emptiest one on four planes, and with writes
/// past a full region. Only for schemes that fold.
///
/// # Panics
/// A run without cuts fails, or folds nothing.
pub fn slc_region(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    if !has_param(scheme, "slc.victim") {
        return;
    }
    for (key, value) in [
        ("slc.victim", "fifo"),
        ("slc.victim", "greedy"),
        ("slc.full", "direct"),
    ] {
        let on_planes = value == "greedy";
        let rig = slc_rig(scheme, cells, on_planes, verdicts.budget()).set(key, value);
        let rig = rig.variant(&format!("slc_{value}"), |_| {});
        if !verdicts.want(&rig.path()) {
            continue;
        }
        for kind in [Kind::Mixed, Kind::FullDisk] {
            let recording = cuts::record_operations(&rig, kind, 1_200);
            let folds = recording.folds(&rig.profile);
            let is_direct = value == "direct";
            assert!(folds > 5 || is_direct, "{}: {folds} folds", rig.path());
            let places = verdicts.budget().pick(60, 250, usize::MAX);
            let every = recording.operations().div_ceil(places);
            let outcomes = Outcomes::by_form(verdicts.budget());
            sweep::cut_run(&rig, kind.name(), &recording, every, outcomes, verdicts);
            if kind == Kind::Mixed && value == "fifo" {
                let every = verdicts.budget().pick(97, 61, 7);
                let three = Outcomes::Three;
                sweep::cut_mounts(&rig, kind.name(), &recording, every, three, verdicts);
            }
        }
        in_a_row(&rig, verdicts);
    }
}

/// Cuts in sequence on a full device: it stays writable. Returns the fewest free blocks.
pub fn in_a_row(rig: &Rig, verdicts: &mut Verdicts) -> FewestFree {
    sweep::cut_in_a_row(rig, cuts_in_a_row(rig, verdicts), verdicts)
}

/// Cuts that [`in_a_row`] makes; fewer of a large chip.
pub fn cuts_in_a_row(rig: &Rig, verdicts: &Verdicts) -> u32 {
    let short = if rig.config.logical_pages > PAGES {
        40
    } else {
        100
    };
    verdicts.budget().pick(40, short, 1_000)
}

/// Sequences of random cuts per scheme, each with its own seed and workload.
pub const RANDOM_ROWS: u64 = 4;
const RANDOM_KINDS: [Kind; 4] = [Kind::HotCold, Kind::Mixed, Kind::Files, Kind::Uniform];

/// A chip of real size with some hundred blocks, for random cuts.
pub fn random_rig(scheme: &'static Scheme, row: u64, budget: &Budget) -> Rig {
    let profile = *Profile::find("mlc-4k").expect("a built-in profile");
    let params = budget.params(&[("ckpt.interval", "2000")]);
    let rig = Rig::on_profile(scheme, Cells::Mlc, profile, 10_240, params, budget.seed);
    rig.variant(&format!("random{row}"), |rig| {
        rig.seed += row;
    })
}

/// The workload of a rig for random cuts.
pub fn random_kind(rig: &Rig) -> Kind {
    RANDOM_KINDS[(rig.seed % RANDOM_KINDS.len() as u64) as usize]
}

/// Random cuts of any outcome, one after another. Returns their counts.
pub fn at_random(rig: &Rig, cuts: u64, verdicts: &mut Verdicts) -> RandomCuts {
    let mut seen = RandomCuts::default();
    verdicts.case(&rig.path(), || {
        seen = sweep::cut_at_random(rig, random_kind(rig), cuts)?;
        Ok(())
    });
    seen
}

/// Each checkpoint block in turn becomes unreadable: no data may be lost.
pub fn lost_checkpoints(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let rig = rig_of(scheme, cells, verdicts.budget());
    for kind in Kind::ALL {
        for clean in [true, false] {
            sweep::lose_checkpoints(&rig, kind, clean, verdicts);
        }
    }
}
