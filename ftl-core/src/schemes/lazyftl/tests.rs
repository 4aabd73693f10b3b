use super::*;
use crate::block_table::State;
use nand_model::store::{MemStore, OobOnlyStore};
use nand_model::{BlockFacts, Bomb, Cut, Fault, FaultPlan, Health, SplitMix};
use std::io;
use std::sync::{Arc, Mutex};

fn profile(name: &str, blocks: u32) -> Profile {
    Profile::find(name).unwrap().with_blocks(blocks)
}

fn config(logical_pages: u32, params: &[(&str, &str)]) -> FtlConfig {
    let mut config = FtlConfig { logical_pages, params: Params::default() };
    params.iter().for_each(|(key, value)| config.params.set(key, value));
    config
}

fn format(profile: Profile, config: &FtlConfig) -> Lazy<MemStore> {
    let chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
    Lazy::start(chip, config, Start::Format).unwrap()
}

fn remount(ftl: Lazy<MemStore>, config: &FtlConfig) -> Lazy<MemStore> {
    let mut chip = Box::new(ftl).into_chip();
    chip.power_on();
    Lazy::start(chip, config, Start::Mount).unwrap()
}

fn content(page_bytes: u32, n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(page_bytes as usize / 8)
}

fn write<S: Store>(ftl: &mut Lazy<S>, lpn: u32, n: u64) {
    let page = content(ftl.space.geometry().page_bytes, n);
    ftl.write(0, Lpn::new(lpn), &page).unwrap();
}

fn read<S: Store>(ftl: &mut Lazy<S>, lpn: u32) -> u64 {
    let mut page = vec![1; ftl.space.geometry().page_bytes as usize];
    ftl.read(0, Lpn::new(lpn), &mut page).unwrap();
    let n = u64::from_le_bytes(page[..8].try_into().unwrap());
    assert!(page.chunks_exact(8).all(|word| word == n.to_le_bytes()), "page {lpn} is mixed");
    n
}

fn assert_sound<S: Store>(ftl: &mut Lazy<S>) {
    assert_eq!(ftl.audit().unwrap(), Vec::<String>::new());
}

/// Random writes, trims, flushes, checks and mounts against a plain table.
fn agrees_with_a_model(profile: Profile, logical_pages: u32, steps: u64, seed: u64, params: &[(&str, &str)]) {
    let config = config(logical_pages, params);
    let mut ftl = format(profile, &config);
    let mut rng = SplitMix::new(seed);
    let mut model = vec![0; logical_pages as usize];
    let (mut converts, mut collections) = (0, 0);
    for step in 1..=steps {
        let lpn = rng.below(logical_pages as u64) as u32;
        let extent = |rng: &mut SplitMix, max: u64| (1 + rng.below(max) as u32).min(logical_pages - lpn);
        match rng.below(40) {
            0 => {
                let count = extent(&mut rng, if step % 7 == 0 { logical_pages as u64 } else { 20 });
                ftl.trim(0, Lpn::new(lpn), count).unwrap();
                model[lpn as usize..][..count as usize].fill(0);
            }
            1 => drop(ftl.flush(0).unwrap()),
            2 => {
                let count = extent(&mut rng, 40);
                let page_bytes = profile.geometry.page_bytes;
                let pages: Vec<u8> = (0..count).flat_map(|_| content(page_bytes, step)).collect();
                ftl.write(0, Lpn::new(lpn), &pages).unwrap();
                model[lpn as usize..][..count as usize].fill(step);
            }
            3 => drop(ftl.idle(0, 50).unwrap()),
            4..25 => {
                write(&mut ftl, lpn, step);
                model[lpn as usize] = step;
            }
            _ => assert_eq!(read(&mut ftl, lpn), model[lpn as usize], "page {lpn} at step {step}"),
        }
        if step % 997 == 0 {
            assert_sound(&mut ftl);
            let clean = step % 1994 == 0;
            if clean {
                ftl.shutdown(0).unwrap();
            }
            converts += ftl.stats().converts;
            collections += ftl.stats().gc_runs;
            ftl = remount(ftl, &config);
            assert_eq!(ftl.stats().mount.clean, clean, "at step {step}");
            assert_sound(&mut ftl);
        }
    }
    for lpn in 0..logical_pages {
        assert_eq!(read(&mut ftl, lpn), model[lpn as usize], "page {lpn} at the end");
    }
    assert!(converts > 100 && collections > 100, "{converts} converts, {collections} collections");
}

#[test]
fn what_was_written_is_read_back_on_mlc() {
    agrees_with_a_model(profile("torture", 56), 560, 40_000, 1, &[("ckpt.interval", "500")]);
}

#[test]
fn what_was_written_is_read_back_on_slc() {
    let small = Geometry { pages_per_block: 16, page_bytes: 512, ..profile("slc-2k", 60).geometry };
    let slc = Profile { geometry: small, ..profile("slc-2k", 60) };
    agrees_with_a_model(slc, 600, 40_000, 2, &[("lazy.cache_pages", "1"), ("ckpt.interval", "800")]);
}

/// Flash that outlives the scheme on it, also when a mount fails.
#[derive(Clone)]
struct Shared(Arc<Mutex<MemStore>>);

impl Shared {
    fn new(profile: &Profile) -> Self {
        Shared(Arc::new(Mutex::new(MemStore::new(profile.geometry))))
    }
    /// A copy with a fate of its own.
    fn branch(&self) -> Self {
        Shared(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }
    fn start(
        &self,
        profile: Profile,
        config: &FtlConfig,
        how: Start,
        cut: Option<Cut>,
    ) -> Result<Lazy<Shared>, FtlError> {
        let mut chip = Chip::open(profile, self.clone()).unwrap();
        chip.set_faults(FaultPlan { cut, ..FaultPlan::default() });
        Lazy::start(chip, config, how)
    }
}

impl Store for Shared {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        self.0.lock().unwrap().load(each)
    }
    fn read(&mut self, first: Ppn, data: &mut [u8], oobs: &mut [u8], health: &mut [Health]) -> io::Result<()> {
        self.0.lock().unwrap().read(first, data, oobs, health)
    }
    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().program(first, count, data, oobs)
    }
    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().and_oob(ppn, oob)
    }
    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        self.0.lock().unwrap().set_health(ppn, health)
    }
    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.0.lock().unwrap().erase(block, facts)
    }
    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.0.lock().unwrap().set_facts(block, facts)
    }
}

/// Contents a logical page may have after a cut: the durable one first, then whatever was asked for since.
struct Oracle(Vec<Vec<u64>>);

impl Oracle {
    fn new(pages: u32) -> Self {
        Oracle(vec![vec![0]; pages as usize])
    }
    fn ask(&mut self, lpns: std::ops::Range<u32>, n: u64) {
        lpns.for_each(|lpn| self.0[lpn as usize].push(n));
    }
    fn flushed(&mut self) {
        self.0.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
    }
    /// What is read now stays.
    fn compare<S: Store>(&mut self, ftl: &mut Lazy<S>, story: &str) {
        for (lpn, values) in (0..).zip(&mut self.0) {
            let got = read(ftl, lpn);
            assert!(values.contains(&got), "{story}: page {lpn} reads {got}, allowed {values:?}");
            *values = vec![got];
        }
    }
}

/// Random work until power fails or `steps` are done.
fn work(ftl: &mut Lazy<Shared>, oracle: &mut Oracle, rng: &mut SplitMix, steps: u64, stamp: u64) -> bool {
    let logical_pages = ftl.logical_pages;
    let page_bytes = ftl.space.geometry().page_bytes;
    for step in stamp..stamp + steps {
        let lpn = rng.below(logical_pages as u64) as u32;
        let max = if rng.one_in(4) { logical_pages } else { 6 };
        let count = (1 + rng.below(max as u64) as u32).min(logical_pages - lpn);
        let outcome = match rng.below(24) {
            0 => {
                oracle.ask(lpn..lpn + count, 0);
                ftl.trim(0, Lpn::new(lpn), count)
            }
            1 | 2 => ftl.flush(0).inspect(|_| oracle.flushed()),
            _ => {
                let count = count.min(24);
                oracle.ask(lpn..lpn + count, step);
                let pages: Vec<u8> = (0..count).flat_map(|_| content(page_bytes, step)).collect();
                ftl.write(0, Lpn::new(lpn), &pages)
            }
        };
        match outcome {
            Ok(_) => {}
            Err(FtlError::PowerLost) => return false,
            Err(other) => panic!("step {step}: {other}, {:?}", ftl.stats()),
        }
    }
    true
}

fn survives_cuts(profile: Profile, logical_pages: u32, seed: u64, cuts: u64, params: &[(&str, &str)]) -> u64 {
    let config = config(logical_pages, params);
    let mut rng = SplitMix::new(seed);
    let flash = Shared::new(&profile);
    let mut oracle = Oracle::new(logical_pages);
    let mut ftl = flash.start(profile, &config, Start::Format, None).unwrap();
    assert!(work(&mut ftl, &mut oracle, &mut rng, 500, 1));
    drop(ftl);
    let mut checkpoints = 0;
    for round in 0..cuts {
        let at_op = rng.below(if round % 3 == 0 { 40 } else { 500 });
        let workload = rng.next_u64();
        for (number, cut) in Cut::menu(at_op, rng.next_u64()).into_iter().enumerate() {
            let story = format!("seed {seed}, round {round}, outcome {number}, {cut:?}");
            let flash = flash.branch();
            let mut oracle = Oracle(oracle.0.clone());
            let mut rng = SplitMix::new(workload);
            // Cuts: in the work, or in the mount before it; then twice in the mount after, or soon after that.
            let second = Cut { at_op: rng.below(6), ..cut };
            let third = Cut { at_op: rng.below(12), ..cut };
            for (steps, cut) in [(150, cut), (5, second), (5, third)] {
                match flash.start(profile, &config, Start::Mount, Some(cut)) {
                    Ok(mut ftl) => {
                        oracle.compare(&mut ftl, &story);
                        let stamp = 1_000_000 + rng.below(1_000_000);
                        work(&mut ftl, &mut oracle, &mut rng, steps, stamp);
                        checkpoints += ftl.stats().checkpoints;
                    }
                    Err(FtlError::PowerLost) => {}
                    Err(other) => panic!("{story}: {other}"),
                }
            }
            let ftl = flash.start(profile, &config, Start::Mount, None);
            let mut ftl = ftl.unwrap_or_else(|e| panic!("{story}: {e}"));
            assert_eq!(ftl.audit().unwrap(), Vec::<String>::new(), "{story}");
            oracle.compare(&mut ftl, &story);
            assert!(work(&mut ftl, &mut oracle, &mut rng, 60, 3_000_000));
            assert_eq!(ftl.audit().unwrap(), Vec::<String>::new(), "{story}, later");
            drop(ftl);
            // The end of a process is no cut: nothing acknowledged is lost.
            oracle.flushed();
            let mut ftl = flash
                .start(profile, &config, Start::Mount, None)
                .unwrap_or_else(|e| panic!("{story}, after the end of a process: {e}"));
            oracle.compare(&mut ftl, &story);
        }
    }
    checkpoints
}

#[test]
fn mlc_survives_cuts_anywhere() {
    let checkpoints = survives_cuts(profile("torture", 56), 400, 3, 40, &[("ckpt.interval", "120")]);
    assert!(checkpoints > 80, "{checkpoints}");
}

#[test]
fn mlc_survives_cuts_by_its_age_window_alone() {
    let params = [("ckpt.interval", "0"), ("lazy.age_window", "12"), ("lazy.cache_pages", "1")];
    survives_cuts(profile("torture", 56), 400, 4, 40, &params);
}

#[test]
fn slc_survives_cuts_anywhere() {
    let small = Geometry { pages_per_block: 16, page_bytes: 512, ..profile("slc-2k", 60).geometry };
    survives_cuts(Profile { geometry: small, ..profile("slc-2k", 60) }, 400, 5, 40, &[("ckpt.interval", "120")]);
}

/// The paper's device with few blocks.
fn small_paper_device() -> (Lazy<MemStore>, FtlConfig) {
    let config = config(3000, &[("ckpt.interval", "0"), ("wear.policy", "none")]);
    (format(profile("lazyftl", 80), &config), config)
}

fn block_of(ftl: &Lazy<MemStore>, lpn: u32) -> Pbn {
    let entry = ftl.umt.get(lpn).expect("in the UMT");
    ftl.space.geometry().block_of(entry.ppn().expect("not trimmed"))
}

/// The state of a logical page in the paper's Figure 3, from UMT, GMT, and what is at the page that the GMT names.
fn state_of(ftl: &mut Lazy<MemStore>, lpn: u32) -> (char, u8) {
    ftl.load_map_page(lpn / ftl.per_page(), Cause::Translation).unwrap();
    let named = mapping::entry_at(&ftl.map_page, lpn % ftl.per_page());
    let Some(entry) = ftl.umt.get(lpn) else { return (if named.is_some() { 'D' } else { 'A' }, 0) };
    let flags = 2 * entry.update as u8 + entry.invalidate as u8;
    let Some(named) = named else { return ('B', flags) };
    if entry.ppn() == Some(named) {
        return ('C', flags);
    }
    let oob = ftl.space.flash.read_oob(named, Cause::Translation).unwrap();
    let block = ftl.space.geometry().block_of(named);
    let state = match oob {
        Some(oob) if oob.tag.lpn == lpn && ftl.umt.holds(block) => 'H',
        Some(oob) if oob.tag.lpn == lpn && ftl.space.table.is_live(named) => 'E',
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
        ftl.space.seal(UPDATE).unwrap();
        ftl.convert(block).unwrap();
    };
    let collect = |ftl: &mut Lazy<MemStore>, block| {
        ftl.evacuate(block, Cause::Gc).unwrap();
        assert_eq!(ftl.space.reclaim(Cause::Gc).unwrap(), 1);
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
    ftl.space.seal(UPDATE).unwrap();
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
    // 64 pages of 4 mapping pages fill a block. The first time there is nothing to read.
    for (uncached, expected) in [(false, 4 * 200 * US), (false, 4 * 200 * US), (true, 4 * 280 * US)] {
        (0..64).for_each(|i| write(&mut ftl, i % 4 * 512 + i, 1));
        let block = block_of(&ftl, 0);
        if uncached {
            (0..4).for_each(|vtpn| ftl.cache.remove(vtpn));
        }
        let begun = ftl.space.flash.now();
        ftl.convert(block).unwrap();
        assert_eq!(ftl.space.flash.now() - begun, expected, "uncached: {uncached}");
        assert_sound(&mut ftl);
    }
}

#[test]
fn the_papers_tables_have_the_papers_size() {
    let device = Profile::find("lazyftl").unwrap();
    assert_eq!(map_pages(&device.geometry, 524_288), 1024);
    let chip = Chip::open(*device, OobOnlyStore::new(device.geometry)).unwrap();
    let ftl = Lazy::start(chip, &config(524_000, &[]), Start::Format).unwrap();
    let report = ftl.ram_report();
    let paper = |part| report.iter().find(|entry| entry.part == part).unwrap().paper_bytes;
    assert_eq!((paper("gmd"), paper("umt"), paper("map cache")), (4096, 32_768, 14 * 2048));
}

/// Runs on the paper's device, counting what writes cost by the clock and by their operations.
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
        let layout = scheme.layout(device, 0, 0.07, &config(0, &params).params).unwrap();
        let chip = Chip::open(layout.profile, OobOnlyStore::new(layout.profile.geometry)).unwrap();
        let ftl = scheme.start(chip, &config(layout.logical_pages, &params), Start::Format).unwrap();
        Meter { ftl, at: 0, page: vec![0; 2048], writes: 0, clock_ns: 0, charged_ns: 0 }
    }

    fn charges(&self) -> u64 {
        let ops = self.ftl.chip().counters().total();
        assert_eq!(ops.partial_reads, 0, "the paper's charges know no partial read");
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
        let done = self.ftl.read(self.at, Lpn::new(lpn), &mut self.page).unwrap();
        assert_eq!(done - self.at, self.charges() - before);
        self.at = done;
    }

    /// Mean time per write since the last call, by the clock; it must be what the operations cost.
    fn mean_us(&mut self) -> f64 {
        assert_eq!(self.clock_ns, self.charged_ns, "emulated time is not counted operations times their charges");
        let mean = self.clock_ns as f64 / self.writes as f64 / 1000.0;
        (self.writes, self.clock_ns, self.charged_ns) = (0, 0, 0);
        mean
    }
}

/// Mean write times of a sequential overwrite, a random and a mixed workload, in microseconds.
fn paper_mode(cache_pages: &str, buffer_blocks: &str) -> [f64; 3] {
    let mut meter = Meter::new(cache_pages, buffer_blocks);
    let logical_pages = meter.ftl.logical_pages();
    let mut rng = SplitMix::new(11);
    // Erased blocks left from the beginning would make the first overwrite too cheap.
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
        // Most requests go to a tenth of the addresses; some are short runs.
        let lpn = if rng.one_in(5) { lpn } else { lpn / 10 };
        let count = if rng.one_in(4) { 8 } else { 1 };
        (lpn..lpn + count).for_each(|lpn| if rng.one_in(3) { meter.read(lpn) } else { meter.write(lpn) });
    }
    let mixed = meter.mean_us();
    assert!(meter.ftl.chip().counters().total().oob_programs > 100_000, "superseded pages are marked");
    println!("({cache_pages}, {buffer_blocks}): sequential {sequential:.3}, random {random:.3}, mixed {mixed:.3} us");
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
        ("valid_tracking", "oob_mark", "use ram_bitmap"),
        ("valid_tracking", "lookup", "neither"),
        ("gc.free_threshold", "4", "reserve of 5"),
        ("nand.pair_policy", "hope", "neither"),
    ];
    let device = profile("torture", 56);
    for (key, value, reason) in refusals {
        let chip = Chip::open(device, MemStore::new(device.geometry)).unwrap();
        match Lazy::start(chip, &config(300, &[(key, value)]), Start::Format) {
            Err(FtlError::Config(text)) => assert!(text.contains(reason) && text.contains(key), "{text}"),
            _ => panic!("{key}={value} was taken"),
        }
    }
}

/// A device laid out for this size, with the bad blocks that its data sheet allows from the factory.
fn laid_out(name: &str, bytes: u64, op: f64, params: &[(&str, &str)]) -> (Lazy<MemStore>, FtlConfig) {
    let params = config(0, params).params;
    let scheme = Scheme::find("lazyftl").unwrap();
    let layout = scheme.layout(Profile::find(name).unwrap(), bytes, op, &params).unwrap();
    let config = FtlConfig { logical_pages: layout.logical_pages, params };
    let mut chip = Chip::open(layout.profile, MemStore::new(layout.profile.geometry)).unwrap();
    chip.mark_factory_bad(9).unwrap();
    (Lazy::start(chip, &config, Start::Format).unwrap(), config)
}

#[test]
fn a_full_device_takes_random_overwrites_and_cuts() {
    for (name, bytes) in [("torture", 1 << 20), ("torture", 4 << 20), ("mlc-4k", 32 << 20), ("slc-2k", 16 << 20)] {
        for (op, params) in [(0.07, &[][..]), (0.02, &[("lazy.cache_pages", "1"), ("lazy.buffer_blocks", "4")][..])] {
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
        assert!(ftl.trims.len() as u32 <= Trims::limit(&ftl.space.geometry()));
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
    let bombs = vec![Bomb::next(block, Fault::ProgramFail)];
    ftl.chip_mut().set_faults(FaultPlan { bombs, ..FaultPlan::default() });
    write(&mut ftl, page, 2);
    assert!(ftl.umt.holds(block) && ftl.space.table.valid(block) == 0 && ftl.space.failing_block() == Some(block));
    write(&mut ftl, page, 3);
    assert!(!ftl.umt.holds(block) && ftl.space.table.state(block) == State::Bad);
    assert_eq!(ftl.audit().unwrap(), Vec::<String>::new());
}

#[test]
fn failing_programs_and_erases_cost_blocks_but_no_data() {
    let (mut ftl, config) = laid_out("torture", 2 << 20, 0.3, &[]);
    let chances = [(Fault::ProgramFail, 400_000), (Fault::EraseFail, 2_000_000)].into();
    let plan = FaultPlan { chances, seed: 4, ..FaultPlan::default() };
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
            ftl.chip_mut().set_faults(FaultPlan { seed: step, ..plan.clone() });
        }
    }
    ftl.flush(0).unwrap();
    assert_sound(&mut ftl);
    assert!(ftl.space.table.counts().bad > 8, "{:?}", ftl.stats());
    let mut ftl = remount(ftl, &config);
    for (lpn, expected) in (0..).zip(model) {
        let got = read(&mut ftl, lpn);
        assert!(got == expected || last == Some((lpn, got)), "page {lpn} reads {got}, not {expected}");
    }
}

#[test]
fn a_block_leaves_the_window_only_when_what_superseded_it_is_safe() {
    let params = [("ckpt.interval", "0"), ("lazy.buffer_blocks", "4"), ("lazy.age_window", "8")];
    let mut ftl = format(profile("torture", 56), &config(300, &params));
    let age = |ftl: &mut Lazy<MemStore>, blocks: u64| {
        let until = ftl.space.next_epoch() + blocks;
        while ftl.space.next_epoch() < until {
            ftl.make_room(MAP).unwrap();
            ftl.load_map_page(1, Cause::Translation).unwrap();
            ftl.program_map_page(1, 0, Cause::Translation).unwrap();
        }
    };
    (0..16).for_each(|lpn| write(&mut ftl, lpn, 1));
    ftl.flush(0).unwrap();
    let old = block_of(&ftl, 0);
    age(&mut ftl, 6);
    write(&mut ftl, 0, 2);
    let new = ftl.umt.get(0).unwrap().ppn().unwrap();
    assert!(ftl.umt.holds(old) && !ftl.space.is_safe(new));
    age(&mut ftl, 4);
    assert!(!ftl.umt.holds(old), "the old block is out of the window");
    assert!(ftl.umt.holds(ftl.space.geometry().block_of(new)), "the new one is not");
    assert!(ftl.space.is_safe(new), "a cut now would lose the old version's block and the new version");
}
