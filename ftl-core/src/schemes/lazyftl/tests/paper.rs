//! The paper's example, charges and table sizes.

use super::*;

/// Returns the state of a logical page in the paper's Figure 3, from UMT, GMT, and the page that
/// the GMT references.
fn state_of(ftl: &mut Lazy, lpn: u32) -> (char, u8) {
    ftl.map
        .load_map_page(
            &mut ftl.space,
            lpn / ftl.map.per_page(),
            false,
            Cause::Translation,
        )
        .unwrap();
    let named = ftl.map.loaded_entry(&ftl.space, lpn % ftl.map.per_page());
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
    let convert = |ftl: &mut Lazy, block| {
        ftl.space.seal(HOST).unwrap();
        ftl.convert(block).unwrap();
    };
    let collect = |ftl: &mut Lazy, block| {
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
    let chip = Chip::over(*device, OobOnlyStore::new(device.geometry)).unwrap();
    let ftl = new(chip, &config(524_000, &[]), Start::Format).unwrap();
    let report = ftl.ram_report();
    let paper = |part| {
        report
            .iter()
            .find(|entry| entry.part.name() == part)
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
    ftl: Box<dyn Ftl>,
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
        let chip = Chip::over(layout.profile, OobOnlyStore::new(layout.profile.geometry)).unwrap();
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
fn a_lookup_examines_the_pending_entry_and_then_the_cache() {
    use crate::families::paged::Policy;
    let geometry = profile("lazyftl", 200).geometry;
    let pending = crate::families::paged::pending::Pending::new(geometry, 16, true);
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
