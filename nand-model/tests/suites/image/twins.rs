//! A chip in memory and one in a file give the same results after every kind of stop.

use super::*;

/// A chip in memory and one in a file that get the same operations.
struct Twins {
    mem: Chip<MemStore>,
    file: Chip<FileStore>,
    rng: SplitMix,
    /// Whether the fault plan has silent faults.
    silent: bool,
    hints: std::collections::HashMap<(Ppn, u32), u8>,
}

impl Twins {
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, verb: impl Fn(&mut dyn Verbs) -> T) -> T {
        let (a, b) = (verb(&mut self.mem), verb(&mut self.file));
        // Whole pages are too long to print; their ends distinguish the results.
        let ends = |t: &T| {
            format!("{t:?}")
                .chars()
                .rev()
                .take(200)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<String>()
        };
        assert!(a == b, "{} in memory, {} in the file", ends(&a), ends(&b));
        a
    }

    fn step(&mut self) {
        let geometry = *self.mem.geometry();
        let block = Pbn::new(self.rng.below(geometry.blocks as u64) as u32);
        let offset = self.rng.below(geometry.pages_per_block as u64) as u32;
        let (ppn, seed) = (geometry.page(block, offset), self.rng.next_u64());
        let outcome = match self.rng.below(22) {
            0..10 => self.program(block, seed),
            10..14 => self.both(|chip| chip.read(ppn)).err(),
            14 => {
                let count = 1 + seed as u32 % (geometry.pages_per_block - offset);
                self.both(|chip| chip.read_run(ppn, count as usize)).err()
            }
            15 | 16 => {
                let pages: Vec<Ppn> = (offset..geometry.pages_per_block)
                    .filter(|_| self.rng.one_in(1 + seed % 8))
                    .map(|offset| geometry.page(block, offset))
                    .collect();
                self.both(|chip| chip.read_pages(&pages)).err()
            }
            17 if self.mem.profile().nop > 1 && self.mem.is_programmed(ppn) => {
                self.hint(ppn, seed as u8)
            }
            18..21 => self.both(|chip| chip.erase(block)).err(),
            _ => {
                let menu = Cut::menu(1 + seed % 7, seed);
                let cut = Some(menu[seed as usize % menu.len()]);
                let silent = [
                    Fault::LostProgram,
                    Fault::MisdirectedProgram,
                    Fault::LostErase,
                    Fault::StaleRead,
                ];
                let rates = silent
                    .map(|fault| (fault, if self.silent { 100_000_000 } else { 0 }))
                    .into();
                let plan = FaultPlan {
                    cut,
                    rates,
                    bit_errors: 20.0,
                    seed,
                    ..FaultPlan::default()
                };
                self.both(|chip| chip.set_faults(plan.clone()));
                None
            }
        };
        if outcome == Some(NandError::PowerLost) {
            self.both(|chip| chip.power_on());
        }
    }

    fn hint(&mut self, ppn: Ppn, bits: u8) -> Option<NandError> {
        let block = self.mem.geometry().block_of(ppn);
        let given = self
            .hints
            .entry((ppn, self.mem.erase_count(block)))
            .or_default();
        *given += 1;
        // An interrupted erase may count without clearing anything, so pages get only one hint per
        // count.
        if *given > 1 {
            None
        } else {
            self.both(|chip| chip.hint(ppn, bits)).err()
        }
    }

    fn program(&mut self, block: Pbn, seed: u64) -> Option<NandError> {
        let geometry = *self.mem.geometry();
        let blank: Vec<u32> = (0..geometry.pages_per_block)
            .filter(|&offset| !self.mem.is_programmed(geometry.page(block, offset)))
            .collect();
        let in_order = self.mem.profile().is_mlc();
        let from = if in_order {
            0
        } else {
            seed as usize % blank.len().max(1)
        };
        let &first = blank.get(from)?;
        let run = (0..)
            .zip(&blank[from..])
            .take_while(|&(i, &offset)| offset == first + i)
            .count();
        let count = 1 + seed as usize % run.min(4);
        self.both(|chip| chip.program(geometry.page(block, first), count as u32, seed))
            .err()
    }

    fn compare(&mut self) {
        let geometry = *self.mem.geometry();
        for block in geometry.all_blocks() {
            assert_eq!(self.mem.erase_count(block), self.file.erase_count(block));
            assert_eq!(self.mem.bad(block), self.file.bad(block));
            for offset in 0..geometry.pages_per_block {
                let ppn = geometry.page(block, offset);
                assert_eq!(
                    self.mem.is_programmed(ppn),
                    self.file.is_programmed(ppn),
                    "page {offset} of {block}"
                );
                let _ = self.both(|chip| chip.read(ppn));
                let _ = self.both(|chip| chip.read_short(ppn));
            }
        }
    }
}

/// Data, OOBs and health of a run.
pub(crate) type Run = (Vec<u8>, Vec<u8>, Vec<Health>);

/// The chip's operations with all their results.
pub(crate) trait Verbs {
    fn read(&mut self, ppn: Ppn) -> Result<(Vec<u8>, Vec<u8>), NandError>;
    fn read_short(&mut self, ppn: Ppn) -> Result<Vec<u8>, NandError>;
    fn read_run(&mut self, ppn: Ppn, count: usize) -> Result<Run, NandError>;
    fn read_pages(&mut self, pages: &[Ppn]) -> Result<Run, NandError>;
    fn program(&mut self, ppn: Ppn, count: u32, seed: u64) -> Result<(), NandError>;
    fn hint(&mut self, ppn: Ppn, bits: u8) -> Result<(), NandError>;
    fn erase(&mut self, block: Pbn) -> Result<(), NandError>;
    fn set_faults(&mut self, plan: FaultPlan);
    fn power_on(&mut self);
}

/// Blanks the parts of pages that are lost: their content is undefined.
fn blank_lost_parts(page: usize, data: &mut [u8], oobs: &mut [u8], health: &[Health]) {
    for ((data, oob), health) in data.chunks_mut(page).zip(oobs.chunks_mut(9)).zip(health) {
        if !health.data_ok() {
            data.fill(0);
        }
        if !health.oob_ok() {
            oob.fill(0);
        }
    }
}

impl<S: Store> Verbs for Chip<S> {
    fn read(&mut self, ppn: Ppn) -> Result<(Vec<u8>, Vec<u8>), NandError> {
        let (mut data, mut oob) = (
            vec![0; self.geometry().page_bytes as usize],
            vec![0; self.geometry().oob_bytes as usize],
        );
        Chip::read(self, 0, ppn, &mut data, &mut oob, Cause::Host).map(|_| (data, oob))
    }
    fn read_short(&mut self, ppn: Ppn) -> Result<Vec<u8>, NandError> {
        let mut oob = vec![0; 5];
        self.read_oob(0, ppn, &mut oob, Cause::Recovery)
            .map(|_| oob)
    }
    fn read_run(&mut self, ppn: Ppn, count: usize) -> Result<Run, NandError> {
        let (mut data, mut oobs) = (
            vec![0; count * self.geometry().page_bytes as usize],
            vec![0; count * 9],
        );
        let mut health = vec![Health::Good; count];
        Chip::read_run(self, 0, ppn, &mut data, &mut oobs, &mut health, Cause::Gc)?;
        blank_lost_parts(
            self.geometry().page_bytes as usize,
            &mut data,
            &mut oobs,
            &health,
        );
        Ok((data, oobs, health))
    }
    fn read_pages(&mut self, pages: &[Ppn]) -> Result<Run, NandError> {
        let (page, count) = (self.geometry().page_bytes as usize, pages.len());
        let (mut data, mut oobs) = (vec![0; count * page], vec![0; count * 9]);
        let mut health = vec![Health::Good; count];
        Chip::read_pages(self, 0, pages, &mut data, &mut oobs, &mut health, Cause::Gc)?;
        blank_lost_parts(page, &mut data, &mut oobs, &health);
        Ok((data, oobs, health))
    }
    fn program(&mut self, ppn: Ppn, count: u32, seed: u64) -> Result<(), NandError> {
        let mut rng = SplitMix::new(seed);
        let data: Vec<u8> = (0..count * self.geometry().page_bytes / 8)
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect();
        let oobs = vec![seed as u8; count as usize * 11];
        self.program_run(0, ppn, count, &data, &oobs, Cause::Host)
            .map(|_| ())
            .map_err(|run| run.error)
    }
    fn hint(&mut self, ppn: Ppn, bits: u8) -> Result<(), NandError> {
        self.program_oob(0, ppn, &[bits, 0xFF, !bits], Cause::Merge)
            .map(|_| ())
    }
    fn erase(&mut self, block: Pbn) -> Result<(), NandError> {
        Chip::erase(self, 0, block, Cause::Gc).map(|_| ())
    }
    fn set_faults(&mut self, plan: FaultPlan) {
        Chip::set_faults(self, plan);
    }
    fn power_on(&mut self) {
        Chip::power_on(self);
    }
}

#[test]
fn a_chip_in_a_file_is_the_chip_in_memory_through_every_way_of_stopping() {
    for (name, seeds) in [("torture", 12), ("slc-2k", 4), ("mlc-4k", 2)] {
        for (seed, silent) in (0..seeds).flat_map(|seed| [(seed, false), (seed, true)]) {
            let (folder, spec) = (Folder::new(), spec(name, 9));
            let store = FileStore::create(folder.path(), &spec).unwrap();
            let mut twins = Twins {
                mem: Chip::open(spec.profile, MemStore::new(spec.profile.geometry)).unwrap(),
                file: Chip::open(spec.profile, store).unwrap(),
                rng: SplitMix::new(seed),
                silent,
                hints: Default::default(),
            };
            twins.mem.mark_factory_bad(seed).unwrap();
            twins.file.mark_factory_bad(seed).unwrap();
            for round in 0..6 {
                (0..150).for_each(|_| twins.step());
                twins.both(|chip| chip.power_on());
                let Twins {
                    mem,
                    file,
                    rng,
                    silent,
                    hints,
                } = twins;
                let store = file.into_store();
                if round % 2 == 0 {
                    store.close().unwrap()
                } else {
                    drop(store)
                }
                let (store, report) = FileStore::open(folder.path(), Access::ReadWrite).unwrap();
                assert_eq!((report.was_clean, report.ops_dropped), (round % 2 == 0, 0));
                let mem = Chip::open(spec.profile, mem.into_store()).unwrap();
                twins = Twins {
                    mem,
                    file: Chip::open(spec.profile, store).unwrap(),
                    rng,
                    silent,
                    hints,
                };
                twins.compare();
            }
        }
    }
}
