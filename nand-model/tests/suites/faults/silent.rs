//! Silent faults: each ends in an error, never in wrong bytes.

use super::*;

fn a_lost_program<S: Store>(mut chip: Chip<S>) -> Chip<S> {
    chip.set_faults(plan(vec![block_fault(1, Fault::LostProgram, 1)]));
    for page in 0..3 {
        program(&mut chip, 1, page, 100 + page as u64).unwrap();
    }
    assert_eq!(chip.counters().injected(Fault::LostProgram), 1);
    assert!(
        lost_every_way(&mut chip, 1, 1),
        "the cells are blank, a page was asked for"
    );
    assert_eq!(read(&mut chip, 1, 0), Ok(Seen::Value(100)));
    assert_eq!(read(&mut chip, 1, 2), Ok(Seen::Value(102)));
    chip.power_on();
    assert!(
        lost_every_way(&mut chip, 1, 1),
        "blank between programmed pages"
    );
    chip
}

fn a_misdirected_program<S: Store>(mut chip: Chip<S>) -> Chip<S> {
    for block in 0..8 {
        for page in 0..10 {
            program(&mut chip, block, page, block as u64 * 100 + page as u64).unwrap();
        }
    }
    chip.set_faults(plan(vec![block_fault(3, Fault::MisdirectedProgram, 0)]));
    program(&mut chip, 3, 10, 77).unwrap();
    assert_eq!(chip.counters().injected(Fault::MisdirectedProgram), 1);
    assert!(
        lost_every_way(&mut chip, 3, 10),
        "the cells are blank, a page was asked for"
    );
    let (mut good, mut hit) = (0, 0);
    for (block, page) in (0..8).flat_map(|block| (0..16).map(move |page| (block, page))) {
        match read(&mut chip, block, page) {
            Ok(Seen::Value(value)) if value == block as u64 * 100 + page as u64 && page < 10 => {
                good += 1
            }
            Ok(Seen::Blank) if page >= 10 => {}
            wrong if lost(wrong) => hit += 1,
            wrong => panic!("{block}/{page}: {wrong:?}"),
        }
    }
    assert!(
        (good, hit) == (79, 2) || (good, hit) == (80, 2),
        "{good} {hit}: the page and the one that took it"
    );
    chip
}

fn a_lost_erase<S: Store>(mut chip: Chip<S>) -> Chip<S> {
    for page in 0..10 {
        program(&mut chip, 2, page, page as u64).unwrap();
    }
    let before = chip
        .store_mut()
        .cells(Ppn::new(2 << 4 | 5))
        .unwrap()
        .unwrap();
    chip.set_faults(plan(vec![block_fault(2, Fault::LostErase, 0)]));
    erase(&mut chip, 2).unwrap();
    assert_eq!(
        (chip.erase_count(Pbn::new(2)), chip.frontier(Pbn::new(2))),
        (1, 0),
        "the part says that all is well"
    );
    // All bytes are there; only the life in the tag shows that they are old.
    let after = chip
        .store_mut()
        .cells(Ppn::new(2 << 4 | 5))
        .unwrap()
        .unwrap();
    assert_eq!(
        (before, what(&after.data, &after.oob)),
        (after, Seen::Value(5))
    );
    assert!((0..10).all(|page| lost_every_way(&mut chip, 2, page)));
    assert_eq!(read(&mut chip, 2, 10), Ok(Seen::Blank));
    for page in 0..12 {
        program(&mut chip, 2, page, 50 + page as u64).unwrap();
    }
    assert!(
        (0..10).all(|page| lost_every_way(&mut chip, 2, page)),
        "programmed over what was there"
    );
    assert_eq!(read(&mut chip, 2, 11), Ok(Seen::Value(61)));
    chip.power_on();
    assert!((0..10).all(|page| lost_every_way(&mut chip, 2, page)));
    assert_eq!(read(&mut chip, 2, 11), Ok(Seen::Value(61)));
    chip
}

fn a_stale_read<S: Store>(mut chip: Chip<S>) -> Chip<S> {
    chip.set_faults(plan(vec![block_fault(4, Fault::StaleRead, 1)]));
    program(&mut chip, 4, 0, 1).unwrap();
    assert_eq!(
        [read(&mut chip, 4, 0), read(&mut chip, 4, 0)],
        [Ok(Seen::Value(1)); 2],
        "there is nothing older yet"
    );
    erase(&mut chip, 4).unwrap();
    program(&mut chip, 4, 0, 2).unwrap();
    assert_eq!(read(&mut chip, 4, 0), Ok(Seen::Value(2)));
    assert!(
        lost(read(&mut chip, 4, 0)),
        "the old bytes have the old life's tag"
    );
    assert_eq!(
        (
            read(&mut chip, 4, 0),
            chip.counters().injected(Fault::StaleRead)
        ),
        (Ok(Seen::Value(2)), 1)
    );
    chip
}

#[test]
fn silent_faults_end_in_errors() {
    for name in ["torture", "slc-2k"] {
        a_misdirected_program(in_memory(small(name)));
        a_lost_erase(in_memory(small(name)));
        a_stale_read(in_memory(small(name)));
    }
    a_lost_program(in_memory(small("torture")));
}

#[test]
fn silent_faults_end_in_errors_in_an_image_too() {
    for (name, clean) in ["torture", "slc-2k"]
        .into_iter()
        .flat_map(|name| [(name, false), (name, true)])
    {
        let folder = tempfile::tempdir().unwrap();
        let chip = a_misdirected_program(in_file(small(name), folder.path()));
        let mut chip = reopened(chip, folder.path(), clean);
        for (block, page) in (0..8).flat_map(|block| (0..16).map(move |page| (block, page))) {
            let seen = read(&mut chip, block, page);
            let right = seen == Ok(Seen::Value(block as u64 * 100 + page as u64)) && page < 10;
            assert!(
                right || seen == Ok(Seen::Blank) && page >= 10 || lost(seen),
                "{block}/{page}: {seen:?}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let mut chip = reopened(
            a_lost_erase(in_file(small(name), folder.path())),
            folder.path(),
            clean,
        );
        assert!((0..10).all(|page| lost_every_way(&mut chip, 2, page)));
        erase(&mut chip, 2).unwrap();
        program(&mut chip, 2, 0, 9).unwrap();
        assert_eq!(
            (read(&mut chip, 2, 0), read(&mut chip, 2, 1)),
            (Ok(Seen::Value(9)), Ok(Seen::Blank)),
            "healed"
        );
        let folder = tempfile::tempdir().unwrap();
        a_stale_read(in_file(small(name), folder.path()));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut chip = reopened(
        a_lost_program(in_file(small("torture"), folder.path())),
        folder.path(),
        false,
    );
    assert!(lost_every_way(&mut chip, 1, 1));
}

/// Issues programs, erases and reads among many silent faults, with the expected content of each
/// page.
struct Asker<S> {
    chip: Chip<S>,
    rng: SplitMix,
    /// By page: the value requested since the block's erase.
    asked: Vec<Option<u64>>,
    /// Faulty pages that were not read since.
    unread: std::collections::HashSet<Ppn>,
    faults_read: u64,
    good: u64,
    refused: u64,
    value: u64,
}

const CHANCES: [(Fault, u32); 4] = [
    (Fault::LostProgram, 50_000_000),
    (Fault::MisdirectedProgram, 50_000_000),
    (Fault::LostErase, 100_000_000),
    (Fault::StaleRead, 50_000_000),
];

impl<S: Store> Asker<S> {
    fn new(chip: Chip<S>, seed: u64) -> Self {
        let asked = vec![None; chip.geometry().page_slots()];
        let rng = SplitMix::new(seed);
        Asker {
            chip,
            rng,
            asked,
            unread: Default::default(),
            faults_read: 0,
            good: 0,
            refused: 0,
            value: 0,
        }
    }

    fn arm(&mut self) {
        let seed = self.rng.next_u64();
        self.chip.set_faults(FaultPlan {
            rates: CHANCES.into(),
            seed,
            ..FaultPlan::default()
        });
    }

    fn silent_faults(&self) -> u64 {
        Fault::ALL
            .into_iter()
            .map(|fault| self.chip.counters().injected(fault))
            .sum()
    }

    /// Fills a block, reads it, erases it; reads others in between.
    fn round(&mut self) {
        let geometry = *self.chip.geometry();
        let block = Pbn::new(self.rng.below(geometry.blocks as u64) as u32);
        for offset in self.chip.frontier(block)..geometry.pages_per_block {
            self.program(geometry.page(block, offset));
            if self.rng.one_in(4) {
                let any = Pbn::new(self.rng.below(geometry.blocks as u64) as u32);
                let offset = self.rng.below(geometry.pages_per_block as u64) as u32;
                self.read(geometry.page(any, offset));
            }
        }
        (0..geometry.pages_per_block).for_each(|offset| self.read(geometry.page(block, offset)));
        let before = self.silent_faults();
        self.chip.erase(0, block, Cause::Gc).unwrap();
        let lost = self.silent_faults() > before;
        for offset in 0..geometry.pages_per_block {
            self.asked[geometry.page(block, offset).index()] = None;
        }
        if lost {
            self.unread.insert(geometry.page(block, 0));
        }
    }

    fn program(&mut self, ppn: Ppn) {
        self.value += 1;
        let ((data, oob), before) = (content(self.value), self.silent_faults());
        self.chip.program(0, ppn, &data, &oob, Cause::Host).unwrap();
        self.asked[ppn.index()] = Some(self.value);
        if self.silent_faults() > before {
            self.unread.insert(ppn);
        }
    }

    fn read(&mut self, ppn: Ppn) {
        let (before, blank) = (self.silent_faults(), !self.chip.is_programmed(ppn));
        let seen = read_at(&mut self.chip, ppn);
        self.faults_read += self.silent_faults() - before + self.unread.remove(&ppn) as u64;
        match (seen, self.asked[ppn.index()]) {
            (Ok(Seen::Value(value)), Some(asked)) if value == asked => self.good += 1,
            (Ok(Seen::Blank), _) if blank => {}
            (wrong, _) if lost(wrong) => self.refused += 1,
            (wrong, asked) => panic!("page {ppn}: {wrong:?} where {asked:?} was asked for"),
        }
    }
}

/// A million faults in memory, almost all on pages that are read later: none gives wrong data.
#[test]
fn a_million_silent_faults_never_give_wrong_data() {
    const FAULTS: u64 = 1_000_000;
    let (mut faults, mut read, mut good, mut refused, mut seed) = (0, 0, 0, 0, 0);
    while faults < FAULTS {
        let name = ["torture", "slc-2k"][seed as usize % 2];
        let mut asker = Asker::new(in_memory(small(name)), seed);
        asker.arm();
        while asker.silent_faults() < FAULTS / 4 + 1 {
            asker.round();
            if asker.rng.one_in(1_000) {
                asker.chip.power_on();
                asker.arm();
            }
        }
        seed += 1;
        (faults, read) = (faults + asker.silent_faults(), read + asker.faults_read);
        (good, refused) = (good + asker.good, refused + asker.refused);
    }
    println!("{faults} silent faults, {read} read later; {good} good reads, {refused} refused");
    assert!(read * 100 >= faults * 99, "{read} of {faults} were read");
    assert!(good > FAULTS && refused > FAULTS, "{good} {refused}");
}

#[test]
fn silent_faults_in_an_image_never_give_wrong_data_through_every_way_of_stopping() {
    let (mut faults, mut good) = (0, 0);
    for name in ["torture", "slc-2k"] {
        let folder = tempfile::tempdir().unwrap();
        let mut asker = Asker::new(in_file(small(name), folder.path()), 3);
        for stop in 0..40 {
            asker.arm();
            (0..15).for_each(|_| asker.round());
            faults += asker.silent_faults();
            let Asker {
                chip,
                rng,
                asked,
                good,
                refused,
                value,
                ..
            } = asker;
            let chip = reopened(chip, folder.path(), stop % 2 == 0);
            let unread = Default::default();
            asker = Asker {
                chip,
                rng,
                asked,
                unread,
                faults_read: 0,
                good,
                refused,
                value,
            };
            for block in 0..8 {
                (0..16)
                    .for_each(|page| asker.read(asker.chip.geometry().page(Pbn::new(block), page)));
            }
        }
        good += asker.good;
    }
    println!("{faults} silent faults in an image, {good} good reads");
    assert!(faults > 2_000 && good > 10_000, "{faults} {good}");
}

#[test]
#[should_panic(expected = "silent faults need a store that checks what it reads")]
fn a_store_without_checks_takes_no_silent_faults() {
    let profile = small("torture");
    let mut chip = Chip::open(
        profile,
        nand_model::store::OobOnlyStore::new(profile.geometry),
    )
    .unwrap();
    chip.set_faults(FaultPlan {
        rates: [(Fault::LostErase, 1)].into(),
        ..FaultPlan::default()
    });
}
