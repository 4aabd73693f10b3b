use super::*;
use crate::block_table::State;
use crate::families::paged::tests::{
    self as common, Subject, assert_sound, config, content, profile, read, write,
};
use crate::families::paged::{HOST, MAP, Trims, map_pages};
use crate::ftl::Ftl;
use crate::gc::GarbageCollect;
use crate::{Lpn, Start};
use nand_model::store::{MemStore, OobOnlyStore};
use nand_model::{BlockFault, Cause, Fault, FaultPlan, Nanos, Pbn, SplitMix};

struct LazyFtl;

impl Subject for LazyFtl {
    type Policy = WholePages;
    fn start<S: Store>(chip: Chip<S>, config: &FtlConfig, how: Start) -> Result<Lazy<S>, FtlError> {
        new(chip, config, how)
    }
}

type Lazy<S> = DemandFtl<S, WholePages>;

fn format(profile: Profile, config: &FtlConfig) -> Lazy<MemStore> {
    common::format::<LazyFtl>(profile, config)
}

fn remount(ftl: Lazy<MemStore>, config: &FtlConfig) -> Lazy<MemStore> {
    common::remount::<LazyFtl>(ftl, config)
}

fn agrees_with_a_model(
    profile: Profile,
    logical_pages: u32,
    steps: u64,
    seed: u64,
    params: &[(&str, &str)],
) {
    let converts =
        common::agrees_with_a_model::<LazyFtl>(profile, logical_pages, steps, seed, params);
    assert!(converts > 100, "{converts} converts");
}

fn survives_cuts(
    profile: Profile,
    logical_pages: u32,
    seed: u64,
    cuts: u64,
    params: &[(&str, &str)],
) -> u64 {
    common::survives_cuts::<LazyFtl>(profile, logical_pages, seed, cuts, params)
}

#[test]
fn what_was_written_is_read_back_on_mlc() {
    agrees_with_a_model(
        profile("torture", 56),
        560,
        40_000,
        1,
        &[("ckpt.interval", "500")],
    );
}

#[test]
fn what_was_written_is_read_back_on_slc() {
    let small = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 60).geometry
    };
    let slc = Profile {
        geometry: small,
        ..profile("slc-2k", 60)
    };
    agrees_with_a_model(
        slc,
        600,
        40_000,
        2,
        &[("lazy.cache_pages", "1"), ("ckpt.interval", "800")],
    );
}

#[test]
fn mlc_survives_cuts_anywhere() {
    let checkpoints = survives_cuts(
        profile("torture", 56),
        400,
        3,
        40,
        &[("ckpt.interval", "120")],
    );
    assert!(checkpoints > 80, "{checkpoints}");
}

#[test]
fn mlc_survives_cuts_by_its_age_window_alone() {
    let params = [
        ("ckpt.interval", "0"),
        ("lazy.age_window", "12"),
        ("lazy.cache_pages", "1"),
    ];
    survives_cuts(profile("torture", 56), 400, 4, 40, &params);
}

#[test]
fn slc_survives_cuts_anywhere() {
    let small = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 60).geometry
    };
    survives_cuts(
        Profile {
            geometry: small,
            ..profile("slc-2k", 60)
        },
        400,
        5,
        40,
        &[("ckpt.interval", "120")],
    );
}

#[test]
fn every_placement_keeps_what_it_must() {
    common::every_placement_keeps_what_it_must::<LazyFtl>();
}

/// Returns the paper's device with few blocks.
fn small_paper_device() -> (Lazy<MemStore>, FtlConfig) {
    let config = config(3000, &[("ckpt.interval", "0"), ("wear.policy", "none")]);
    (format(profile("lazyftl", 80), &config), config)
}

fn block_of(ftl: &Lazy<MemStore>, lpn: u32) -> Pbn {
    let entry = ftl.map.pending.get(lpn).expect("in the UMT");
    ftl.space
        .geometry()
        .block_of(entry.ppn().expect("not trimmed"))
}

/// Returns the state of a logical page in the paper's Figure 3, from UMT, GMT, and the page that
/// the GMT references.
fn state_of(ftl: &mut Lazy<MemStore>, lpn: u32) -> (char, u8) {
    ftl.load_map_page(lpn / ftl.per_page(), false, Cause::Translation)
        .unwrap();
    let named = entry_at(&ftl.map.map_page, lpn % ftl.per_page());
    let Some(entry) = ftl.map.pending.get(lpn) else {
        return (if named.is_some() { 'D' } else { 'A' }, 0);
    };
    let flags = 2 * entry.update as u8 + entry.invalidate as u8;
    let Some(named) = named else {
        return ('B', flags);
    };
    if entry.ppn() == Some(named) {
        return ('C', flags);
    }
    let oob = ftl.space.flash.read_oob(named, Cause::Translation).unwrap();
    let block = ftl.space.geometry().block_of(named);
    let state = match oob {
        Some(oob) if oob.tag.lpn == lpn && ftl.map.pending.holds(block) => 'H',
        Some(oob) if oob.tag.lpn == lpn && ftl.space.table.is_valid(named) => 'E',
        Some(oob) if oob.tag.lpn == lpn => 'G',
        _ => 'F',
    };
    (state, flags)
}

#[test]
fn pages_go_through_the_states_of_the_papers_example() {
    let (mut ftl, _) = small_paper_device();
    let page = 5;
    let convert = |ftl: &mut Lazy<MemStore>, block| {
        ftl.space.seal(HOST).unwrap();
        ftl.convert(block).unwrap();
    };
    let collect = |ftl: &mut Lazy<MemStore>, block| {
        ftl.evacuate(block, Cause::Gc).unwrap();
        assert_eq!(ftl.space.erase_released(Cause::Gc).unwrap(), 1);
    };
    assert_eq!(state_of(&mut ftl, page), ('A', 0b00));
    write(&mut ftl, page, 1);
    assert_eq!(state_of(&mut ftl, page), ('B', 0b11));
    let first = block_of(&ftl, page);
    convert(&mut ftl, first);
    assert_eq!(state_of(&mut ftl, page), ('D', 0b00));
    write(&mut ftl, page, 2);
    assert_eq!(state_of(&mut ftl, page), ('E', 0b11));
    collect(&mut ftl, first);
    assert_eq!(state_of(&mut ftl, page), ('F', 0b10));
    ftl.space.seal(HOST).unwrap();
    write(&mut ftl, page + 1, 3);
    let other = block_of(&ftl, page + 1);
    convert(&mut ftl, other);
    assert_eq!(state_of(&mut ftl, page), ('C', 0b00));
    let second = block_of(&ftl, page);
    write(&mut ftl, page, 4);
    assert_eq!(state_of(&mut ftl, page), ('H', 0b10));
    convert(&mut ftl, second);
    assert_eq!(state_of(&mut ftl, page), ('G', 0b10));
    collect(&mut ftl, second);
    assert_eq!(state_of(&mut ftl, page), ('F', 0b10));
    let third = block_of(&ftl, page);
    convert(&mut ftl, third);
    assert_eq!(state_of(&mut ftl, page), ('D', 0b00));
    assert_eq!((read(&mut ftl, page), read(&mut ftl, page + 1)), (4, 3));
    assert_sound(&mut ftl);
}

#[test]
fn a_conversion_costs_a_program_per_mapping_page_and_a_read_per_miss() {
    const US: u64 = 1000;
    let (mut ftl, _) = small_paper_device();
    // 64 pages of 4 mapping pages fill a block. The first conversion has nothing to read.
    for (uncached, expected) in [
        (false, 4 * 200 * US),
        (false, 4 * 200 * US),
        (true, 4 * 280 * US),
    ] {
        (0..64).for_each(|i| write(&mut ftl, i % 4 * 512 + i, 1));
        let block = block_of(&ftl, 0);
        if uncached {
            (0..4).for_each(|vtpn| ftl.map.policy.dropped(vtpn));
        }
        let begun = ftl.space.flash.now();
        ftl.convert(block).unwrap();
        assert_eq!(
            ftl.space.flash.now() - begun,
            expected,
            "uncached: {uncached}"
        );
        assert_sound(&mut ftl);
    }
}

#[test]
fn the_papers_tables_have_the_papers_size() {
    let device = Profile::find("lazyftl").unwrap();
    assert_eq!(map_pages(&device.geometry, 524_288), 1024);
    let chip = Chip::open(*device, OobOnlyStore::new(device.geometry)).unwrap();
    let ftl = new(chip, &config(524_000, &[]), Start::Format).unwrap();
    let report = ftl.ram_report();
    let paper = |part| {
        report
            .iter()
            .find(|entry| entry.part == part)
            .unwrap()
            .paper_bytes
    };
    assert_eq!(
        (paper("directory"), paper("pending"), paper("map cache")),
        (4096, 32_768, 14 * 2048)
    );
}

/// Runs on the paper's device; sums the cost of writes by elapsed time and by operations.
struct Meter {
    ftl: Box<dyn Ftl<OobOnlyStore>>,
    at: Nanos,
    page: Vec<u8>,
    writes: u64,
    clock_ns: u64,
    charged_ns: u64,
}

impl Meter {
    fn new(cache_pages: &str, buffer_blocks: &str) -> Self {
        let device = Profile::find("lazyftl").unwrap();
        let params = [
            ("lazy.cache_pages", cache_pages),
            ("lazy.buffer_blocks", buffer_blocks),
            ("ckpt.interval", "0"),
            ("wear.policy", "none"),
        ];
        let scheme = Scheme::find("lazyftl").unwrap();
        let layout = scheme
            .layout(device, 0, 0.07, &config(0, &params).params)
            .unwrap();
        let chip = Chip::open(layout.profile, OobOnlyStore::new(layout.profile.geometry)).unwrap();
        let ftl = scheme
            .start(chip, &config(layout.logical_pages, &params), Start::Format)
            .unwrap();
        Meter {
            ftl,
            at: 0,
            page: vec![0; 2048],
            writes: 0,
            clock_ns: 0,
            charged_ns: 0,
        }
    }

    fn charges(&self) -> u64 {
        let ops = self.ftl.chip().counters().total();
        assert_eq!(
            ops.partial_reads, 0,
            "the paper's charges know no partial read"
        );
        1000 * (80 * ops.reads + 200 * ops.programs + 1500 * ops.erases)
    }

    fn write(&mut self, lpn: u32) {
        let before = self.charges();
        let done = self.ftl.write(self.at, Lpn::new(lpn), &self.page).unwrap();
        self.clock_ns += done - self.at;
        self.at = done;
        self.charged_ns += self.charges() - before;
        self.writes += 1;
    }

    fn read(&mut self, lpn: u32) {
        let before = self.charges();
        let done = self
            .ftl
            .read(self.at, Lpn::new(lpn), &mut self.page)
            .unwrap();
        assert_eq!(done - self.at, self.charges() - before);
        self.at = done;
    }

    /// Returns the mean time per write since the last call; it must equal the cost of the
    /// operations.
    fn mean_us(&mut self) -> f64 {
        assert_eq!(
            self.clock_ns, self.charged_ns,
            "emulated time is not counted operations times their charges"
        );
        let mean = self.clock_ns as f64 / self.writes as f64 / 1000.0;
        (self.writes, self.clock_ns, self.charged_ns) = (0, 0, 0);
        mean
    }
}

/// Returns the mean write times of a sequential overwrite, a random and a mixed workload, in
/// microseconds.
fn paper_mode(cache_pages: &str, buffer_blocks: &str) -> [f64; 3] {
    let mut meter = Meter::new(cache_pages, buffer_blocks);
    let logical_pages = meter.ftl.logical_pages();
    let mut rng = SplitMix::new(11);
    // Initially erased blocks would make the first overwrite too cheap.
    (0..2 * logical_pages).for_each(|i| meter.write(i % logical_pages));
    meter.mean_us();
    (0..logical_pages).for_each(|lpn| meter.write(lpn));
    let sequential = meter.mean_us();
    for _ in 0..60_000 {
        meter.write(rng.below(logical_pages as u64) as u32);
    }
    let random = meter.mean_us();
    for _ in 0..30_000 {
        let lpn = rng.below(logical_pages as u64 - 8) as u32;
        // Most requests access a tenth of the addresses; some are short runs.
        let lpn = if rng.one_in(5) { lpn } else { lpn / 10 };
        let count = if rng.one_in(4) { 8 } else { 1 };
        (lpn..lpn + count).for_each(|lpn| {
            if rng.one_in(3) {
                meter.read(lpn)
            } else {
                meter.write(lpn)
            }
        });
    }
    let mixed = meter.mean_us();
    assert!(
        meter.ftl.chip().counters().total().oob_programs > 100_000,
        "superseded pages are marked"
    );
    println!(
        "({cache_pages}, {buffer_blocks}): sequential {sequential:.3}, random {random:.3}, mixed {mixed:.3} us"
    );
    [sequential, random, mixed]
}

#[test]
fn emulated_time_is_the_papers_charges_with_its_usual_ram() {
    let [sequential, ..] = paper_mode("14", "128");
    assert!(
        (223.4..=226.0).contains(&sequential),
        "a sequential overwrite takes {sequential} us, the optimum is 223.4375"
    );
}

#[test]
fn emulated_time_is_the_papers_charges_with_its_smallest_ram() {
    paper_mode("1", "4");
}

#[test]
fn impossible_parameters_are_refused_with_a_reason() {
    let refusals = [
        ("lazy.buffer_blocks", "3", "at least 4"),
        ("lazy.cache_pages", "0", "at least 1"),
        ("lazy.age_window", "7", "twice"),
        ("lazy.valid_tracking", "oob_mark", "use ram_bitmap"),
        ("lazy.valid_tracking", "lookup", "neither"),
        ("gc.free_threshold", "7", "need 8"),
        ("nand.pair_policy", "hope", "neither"),
    ];
    let device = profile("torture", 56);
    for (key, value, reason) in refusals {
        let chip = Chip::open(device, MemStore::new(device.geometry)).unwrap();
        match new(chip, &config(300, &[(key, value)]), Start::Format) {
            Err(FtlError::Config(text)) => {
                assert!(text.contains(reason) && text.contains(key), "{text}")
            }
            _ => panic!("{key}={value} was taken"),
        }
    }
}

#[test]
fn the_areas_have_room_for_an_open_block_of_every_stream() {
    let device = profile("torture", 80);
    let start = |params: &[(&str, &str)]| {
        let chip = Chip::open(device, MemStore::new(device.geometry)).unwrap();
        new(chip, &config(300, params), Start::Format)
    };
    // `age` has seven streams of data.
    let raised = start(&[("gc.placement", "age")]).unwrap();
    assert_eq!(raised.map.settings.buffer_blocks, Some(9));
    match start(&[("gc.placement", "age"), ("lazy.buffer_blocks", "8")]) {
        Err(FtlError::Config(text)) => assert!(text.contains("at least 9"), "{text}"),
        _ => panic!("eight blocks for seven streams were taken"),
    }
}

/// Lays out a device of this size, with as many factory bad blocks as its data sheet allows.
fn laid_out(
    name: &str,
    bytes: u64,
    op: f64,
    params: &[(&str, &str)],
) -> (Lazy<MemStore>, FtlConfig) {
    let params = config(0, params).params;
    let scheme = Scheme::find("lazyftl").unwrap();
    let layout = scheme
        .layout(Profile::find(name).unwrap(), bytes, op, &params)
        .unwrap();
    let config = FtlConfig {
        logical_pages: layout.logical_pages,
        params,
    };
    let mut chip = Chip::open(layout.profile, MemStore::new(layout.profile.geometry)).unwrap();
    chip.mark_factory_bad(9).unwrap();
    (new(chip, &config, Start::Format).unwrap(), config)
}

#[test]
fn a_full_device_takes_random_overwrites_and_cuts() {
    for (name, bytes) in [
        ("torture", 1 << 20),
        ("torture", 4 << 20),
        ("mlc-4k", 32 << 20),
        ("slc-2k", 16 << 20),
    ] {
        for (op, params) in [
            (0.07, &[][..]),
            (
                0.02,
                &[("lazy.cache_pages", "1"), ("lazy.buffer_blocks", "4")][..],
            ),
        ] {
            let (mut ftl, config) = laid_out(name, bytes, op, params);
            let pages = config.logical_pages;
            let mut rng = SplitMix::new(8);
            let mut model: Vec<u64> = (1..=pages as u64).collect();
            (0..pages).for_each(|lpn| write(&mut ftl, lpn, model[lpn as usize]));
            for step in 0..3 * pages as u64 {
                let lpn = rng.below(pages as u64) as u32;
                model[lpn as usize] = 1_000_000 + step;
                write(&mut ftl, lpn, model[lpn as usize]);
                if step % (pages as u64 / 4) == 0 {
                    ftl = remount(ftl, &config);
                }
            }
            assert_sound(&mut ftl);
            (0..pages).for_each(|lpn| assert_eq!(read(&mut ftl, lpn), model[lpn as usize]));
            assert_eq!(ftl.stats().mapped_pages, pages as u64, "{name} {bytes}");
        }
    }
}

#[test]
fn trims_alone_do_not_fill_the_device() {
    let (mut ftl, config) = laid_out("torture", 2 << 20, 0.07, &[]);
    let mut rng = SplitMix::new(5);
    let pages = config.logical_pages;
    for step in 0..6 * pages as u64 {
        let lpn = rng.below(pages as u64 - 1) as u32;
        write(&mut ftl, lpn, step);
        ftl.trim(0, Lpn::new(lpn), 1 + rng.below(2) as u32).unwrap();
        if step % 100 == 0 {
            ftl.trim(0, Lpn::new(0), pages).unwrap();
        }
        assert!(ftl.map.trims.len() as u32 <= Trims::limit(&ftl.space.geometry()));
    }
    assert_sound(&mut ftl);
    ftl.trim(0, Lpn::new(0), pages).unwrap();
    let mut ftl = remount(ftl, &config);
    assert_eq!(ftl.stats().mapped_pages, 0);
    assert!((0..pages).all(|lpn| read(&mut ftl, lpn) == 0));
    assert_sound(&mut ftl);
}

#[test]
fn a_block_that_fails_when_nothing_lives_in_it_leaves_the_update_area() {
    let (mut ftl, _) = small_paper_device();
    let page = 5;
    write(&mut ftl, page, 1);
    let block = block_of(&ftl, page);
    let block_faults = vec![BlockFault::next(block, Fault::ProgramFail)];
    ftl.chip_mut().set_faults(FaultPlan {
        block_faults,
        ..FaultPlan::default()
    });
    write(&mut ftl, page, 2);
    assert!(
        ftl.map.pending.holds(block)
            && ftl.space.table.valid_count(block) == 0
            && ftl.space.failing_block() == Some(block)
    );
    write(&mut ftl, page, 3);
    assert!(!ftl.map.pending.holds(block) && ftl.space.table.state(block) == State::Bad);
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_superseded_page_that_turns_out_blank_is_not_marked() {
    let (mut ftl, config) = small_paper_device();
    write(&mut ftl, 4, 1);
    let block_faults = vec![BlockFault::next(
        block_of(&ftl, 4),
        Fault::MisdirectedProgram,
    )];
    ftl.chip_mut().set_faults(FaultPlan {
        block_faults,
        ..FaultPlan::default()
    });
    write(&mut ftl, 5, 2);
    let ppn = ftl
        .map
        .pending
        .get(5)
        .and_then(|entry| entry.ppn())
        .unwrap();
    ftl.shutdown(0).unwrap();
    let mut ftl = remount(ftl, &config);
    assert!(
        !ftl.chip().is_programmed(ppn) && ftl.space.table.is_valid(ppn),
        "the map names {ppn}, which is not programmed"
    );
    write(&mut ftl, 5, 3);
    ftl.shutdown(0).unwrap();
    assert!(
        !ftl.chip().is_programmed(ppn) && !ftl.space.table.is_valid(ppn),
        "{ppn} is superseded, and still not programmed"
    );
    assert_eq!(read(&mut ftl, 5), 3);
}

#[test]
fn failing_programs_and_erases_cost_blocks_but_no_data() {
    let (mut ftl, config) = laid_out("torture", 2 << 20, 0.3, &[]);
    let rates = [(Fault::ProgramFail, 400_000), (Fault::EraseFail, 2_000_000)].into();
    let plan = FaultPlan {
        rates,
        seed: 4,
        ..FaultPlan::default()
    };
    ftl.chip_mut().set_faults(plan.clone());
    let mut rng = SplitMix::new(6);
    let mut model = vec![0; config.logical_pages as usize];
    let mut last = None;
    for step in 1..=40_000 {
        let lpn = rng.below(model.len() as u64) as u32;
        let page = content(1024, step);
        match ftl.write(0, Lpn::new(lpn), &page) {
            Ok(_) => model[lpn as usize] = step,
            Err(FtlError::ReadOnly(_)) => {
                last = Some((lpn, step));
                break;
            }
            Err(other) => panic!("step {step}: {other}"),
        }
        if step % 3000 == 0 {
            assert_sound(&mut ftl);
            ftl = remount(ftl, &config);
            ftl.chip_mut().set_faults(FaultPlan {
                seed: step,
                ..plan.clone()
            });
        }
    }
    ftl.flush(0).unwrap();
    assert_sound(&mut ftl);
    assert!(ftl.space.table.counts().bad > 8, "{:?}", ftl.stats());
    let mut ftl = remount(ftl, &config);
    for (lpn, expected) in (0..).zip(model) {
        let got = read(&mut ftl, lpn);
        assert!(
            got == expected || last == Some((lpn, got)),
            "page {lpn} reads {got}, not {expected}"
        );
    }
}

#[test]
fn a_block_leaves_the_window_only_when_what_superseded_it_is_safe() {
    let params = [
        ("ckpt.interval", "0"),
        ("lazy.buffer_blocks", "4"),
        ("lazy.age_window", "8"),
    ];
    let mut ftl = format(profile("torture", 56), &config(300, &params));
    let age = |ftl: &mut Lazy<MemStore>, blocks: u64| {
        let until = ftl.space.next_epoch() + blocks;
        while ftl.space.next_epoch() < until {
            ftl.ensure_space(MAP).unwrap();
            ftl.load_map_page(1, false, Cause::Translation).unwrap();
            ftl.program_map_page(1, 0, Cause::Translation).unwrap();
        }
    };
    (0..16).for_each(|lpn| write(&mut ftl, lpn, 1));
    ftl.flush(0).unwrap();
    let old = block_of(&ftl, 0);
    age(&mut ftl, 6);
    write(&mut ftl, 0, 2);
    let new = ftl.map.pending.get(0).unwrap().ppn().unwrap();
    assert!(ftl.map.pending.holds(old) && !ftl.space.is_safe(new));
    age(&mut ftl, 4);
    assert!(
        !ftl.map.pending.holds(old),
        "the old block is out of the window"
    );
    assert!(
        ftl.map.pending.holds(ftl.space.geometry().block_of(new)),
        "the new one is not"
    );
    assert!(
        ftl.space.is_safe(new),
        "a cut now would lose the old version's block and the new version"
    );
}

#[test]
fn a_lookup_examines_the_pending_entry_and_then_the_cache() {
    use crate::families::paged::Policy;
    let geometry = profile("lazyftl", 200).geometry;
    let pending = crate::families::paged::pending::Pending::new(geometry, true);
    let mut cache = super::WholePages::new(&geometry, 2);
    cache.load(0, &vec![0; geometry.page_len()], 0, 0, &pending);
    // A pending page; one of a cached mapping page; one of a mapping page that is not cached.
    let steps = [(5, true), (5, false), (geometry.page_bytes / 4, false)].map(|(lpn, pending)| {
        let before = cache.lookup_steps();
        cache.get(lpn, pending);
        cache.lookup_steps() - before
    });
    assert_eq!(steps, [1, 3, 2]);
}
