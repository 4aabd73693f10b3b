//! The image file from outside: the same chip as in memory, after any way of stopping; clear errors
//! for everything that is not an image in order; no change by readers.

use nand_model::store::MemStore;
use nand_model::{
    Access, Cause, Chip, Cut, Fault, FaultPlan, FileStore, Health, ImageError, ImageSpec,
    NandError, Pbn, Ppn, Profile, SplitMix, Store, peek,
};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn spec(name: &str, blocks: u32) -> ImageSpec {
    let profile = Profile::find(name).unwrap().with_blocks(blocks);
    ImageSpec {
        profile,
        size: 1 << 20,
        scheme: "pagemap".into(),
        params: "gc = \"greedy\"\n".into(),
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("t.ftld")
    }
}

fn open(path: &Path) -> Result<FileStore, ImageError> {
    FileStore::open(path, Access::ReadWrite).map(|(store, _)| store)
}

/// A chip in memory and one in a file that are asked the same.
struct Twins {
    mem: Chip<MemStore>,
    file: Chip<FileStore>,
    rng: SplitMix,
    /// Whether faults happen that the part keeps to itself.
    silent: bool,
    hints: std::collections::HashMap<(Ppn, u32), u8>,
}

impl Twins {
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, verb: impl Fn(&mut dyn Verbs) -> T) -> T {
        let (a, b) = (verb(&mut self.mem), verb(&mut self.file));
        // Whole pages are too long to print; the ends tell the results apart.
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
                let chances = silent
                    .map(|fault| (fault, if self.silent { 100_000_000 } else { 0 }))
                    .into();
                let plan = FaultPlan {
                    cut,
                    chances,
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
type Run = (Vec<u8>, Vec<u8>, Vec<Health>);

/// The verbs with everything they give back.
trait Verbs {
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

/// What the cells of a lost page say is nobody's business.
fn blot_out_lost(page: usize, data: &mut [u8], oobs: &mut [u8], health: &[Health]) {
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
        blot_out_lost(
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
        blot_out_lost(page, &mut data, &mut oobs, &health);
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

/// An image with something in it, stopped in the middle.
fn used_image(folder: &Folder, clean: bool) -> PathBuf {
    let spec = spec("torture", 8);
    let store = FileStore::create(folder.path(), &spec).unwrap();
    let mut chip = Chip::open(spec.profile, store).unwrap();
    for block in 0..6 {
        for page in 0..5 {
            let ppn = chip.geometry().page(Pbn::new(block), page);
            chip.program(0, ppn, &[block as u8; 1024], &[page as u8; 64], Cause::Host)
                .unwrap();
        }
    }
    chip.erase(0, Pbn::new(3), Cause::Gc).unwrap();
    if clean {
        chip.into_store().close().unwrap()
    } else {
        drop(chip)
    }
    folder.path()
}

#[test]
fn an_image_says_what_it_is() {
    let folder = Folder::new();
    let path = used_image(&folder, true);
    let info = peek(&path).unwrap();
    let wanted = spec("torture", 8);
    assert_eq!(
        (info.profile, info.size, info.scheme, info.params),
        (wanted.profile, wanted.size, wanted.scheme, wanted.params)
    );
    assert!(info.clean && info.uuid != [0; 16] && info.version == nand_model::FORMAT_VERSION);
    let store = open(&path).unwrap();
    assert!(!peek(&path).unwrap().clean, "an image in use is not clean");
    assert_eq!(store.info().uuid, info.uuid);
}

#[test]
fn one_writer_or_many_readers() {
    let folder = Folder::new();
    let path = used_image(&folder, true);
    let writer = open(&path).unwrap();
    assert!(matches!(open(&path), Err(ImageError::InUse(_))));
    assert!(matches!(
        FileStore::open(&path, Access::ReadOnly),
        Err(ImageError::InUse(_))
    ));
    let handle = writer.sync_handle();
    drop(writer);
    let readers = [0, 1].map(|_| FileStore::open(&path, Access::ReadOnly).unwrap());
    assert!(matches!(open(&path), Err(ImageError::InUse(_))));
    drop(readers);
    open(&path).unwrap().close().unwrap();
    assert!(handle.sync_through(handle.last_seq()).is_ok());
}

#[test]
fn readers_change_nothing_also_after_a_crash() {
    for clean in [true, false] {
        let folder = Folder::new();
        let path = used_image(&folder, clean);
        let before = std::fs::read(&path).unwrap();
        let (store, report) = FileStore::open(&path, Access::ReadOnly).unwrap();
        assert_eq!(report.was_clean, clean);
        let mut chip = Chip::open(store.info().profile, store).unwrap();
        for block in 0..8 {
            chip.erase(0, Pbn::new(block), Cause::Recovery).unwrap();
            let ppn = chip.geometry().page(Pbn::new(block), 0);
            chip.program(0, ppn, &[1; 1024], &[2; 64], Cause::Recovery)
                .unwrap();
        }
        let handle = chip.store().sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        chip.into_store().close().unwrap();
        assert!(std::fs::read(&path).unwrap() == before);
    }
}

#[test]
fn what_is_no_image_is_refused_with_its_name_and_a_way_out() {
    let folder = Folder::new();
    let path = folder.path();
    let told = |error: ImageError, part: &str| {
        let text = error.to_string();
        assert!(
            text.contains("t.ftld") && text.contains(part) && !text.contains('\n'),
            "{text}"
        );
    };
    told(open(&path).unwrap_err(), "no such image");
    std::fs::write(&path, "hello").unwrap();
    told(open(&path).unwrap_err(), "not an ftld image");
    told(
        FileStore::create(&path, &spec("torture", 8)).unwrap_err(),
        "not overwritten",
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    told(open(&path).unwrap_err(), "not a regular file");
    told(
        FileStore::open(&path, Access::ReadOnly).unwrap_err(),
        "not a regular file",
    );
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    told(open(&path).unwrap_err(), "not a regular file");
    std::fs::remove_file(&path).unwrap();
    std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .unwrap();
    told(open(&path).unwrap_err(), "not a regular file");
    std::fs::remove_file(&path).unwrap();
    let mut wrong = spec("torture", 8);
    wrong.profile.nop = 3;
    told(
        FileStore::create(&path, &wrong).unwrap_err(),
        "no such image can be made",
    );
    wrong = spec("torture", 8);
    wrong.params = "x".repeat(3000);
    told(FileStore::create(&path, &wrong).unwrap_err(), "3000 bytes");
    wrong = spec("torture", 8);
    wrong.scheme = "x".repeat(64);
    told(
        FileStore::create(&path, &wrong).unwrap_err(),
        "a name of more than",
    );
    wrong = spec("torture", 8);
    wrong.profile.geometry.pages_per_block = 0;
    told(
        FileStore::create(&path, &wrong).unwrap_err(),
        "no such image can be made",
    );
    assert!(!path.exists());
}

#[test]
fn headers_heal_from_the_other_copy_and_both_damaged_is_said() {
    let folder = Folder::new();
    let path = used_image(&folder, false);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut copies = vec![0; 8192];
    file.read_exact_at(&mut copies, 0).unwrap();
    let put = |bytes: &[u8]| file.write_all_at(bytes, 0).unwrap();
    for i in (0..8192).filter(|i| i % 13 == 0 || i % 4096 < 300) {
        let mut damaged = copies.clone();
        damaged[i] ^= 0x11;
        put(&damaged);
        let (store, report) = FileStore::open(&path, Access::ReadOnly).unwrap();
        assert_eq!(
            (report.ops_dropped, store.info().scheme.as_str()),
            (0, "pagemap"),
            "byte {i}"
        );
        damaged[4096 * (1 - i / 4096) + 200] ^= 1;
        put(&damaged);
        let error = FileStore::open(&path, Access::ReadOnly).unwrap_err();
        // A flip in the version itself cannot be told from another version.
        assert!(
            matches!(
                error,
                ImageError::HeaderDamaged(_) | ImageError::UnknownVersion { .. }
            ),
            "byte {i}: {error}"
        );
    }
    for copy in [0, 4096] {
        copies[copy + 8] = 1;
    }
    put(&copies);
    let text = open(&path).unwrap_err().to_string();
    assert!(
        text.contains("image format version 1, this build knows 2"),
        "{text}"
    );
    copies.fill(0);
    put(&copies);
    assert!(matches!(open(&path), Err(ImageError::NotAnImage(_))));
}

#[test]
fn cut_off_files_are_refused() {
    for clean in [true, false] {
        let folder = Folder::new();
        let path = used_image(&folder, clean);
        let whole = std::fs::metadata(&path).unwrap().len();
        let copy = folder.0.path().join("cut.ftld");
        let mut rng = SplitMix::new(3);
        let lengths = (0..60).map(|_| rng.below(whole)).chain([
            0,
            1,
            4095,
            4096,
            8191,
            8192,
            whole - 4096,
            whole - 1,
        ]);
        for length in lengths {
            std::fs::copy(&path, &copy).unwrap();
            std::fs::OpenOptions::new()
                .write(true)
                .open(&copy)
                .unwrap()
                .set_len(length)
                .unwrap();
            for access in [Access::ReadOnly, Access::ReadWrite] {
                let error = FileStore::open(&copy, access).unwrap_err();
                let fits = matches!(error, ImageError::TooShort { .. } if length >= 4096)
                    || matches!(error, ImageError::NotAnImage(_) | ImageError::HeaderDamaged(_) if length < 4096);
                assert!(fits, "{length}: {error}");
            }
        }
    }
}

#[test]
fn a_forgery_without_a_table_is_refused_before_the_table_is_read() {
    let folder = Folder::new();
    let mut spec = spec("torture", 20_000);
    (
        spec.profile.geometry.pages_per_block,
        spec.profile.geometry.page_bytes,
    ) = (8, 512);
    drop(FileStore::create(folder.path(), &spec).unwrap());
    open(&folder.path()).unwrap();
    let forged = folder.0.path().join("t.ftld.forged");
    let image = std::fs::File::open(folder.path()).unwrap();
    let mut header = [0; 8192];
    image.read_exact_at(&mut header, 0).unwrap();
    std::fs::write(&forged, header).unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&forged)
        .unwrap();
    file.set_len(image.metadata().unwrap().len()).unwrap();
    let error = open(&forged).unwrap_err();
    assert!(
        matches!(&error, ImageError::Damaged { reason, .. } if reason.contains("block table")),
        "{error}"
    );
}

#[test]
fn random_damage_gives_an_error_or_a_chip_never_a_panic() {
    let (mut opened, mut refused) = (0, 0);
    for clean in [true, false] {
        let folder = Folder::new();
        let path = used_image(&folder, clean);
        let good = std::fs::read(&path).unwrap();
        let used = good
            .chunks(4096)
            .enumerate()
            .filter(|(_, page)| page.iter().any(|&b| b != 0))
            .map(|(i, _)| i);
        let used: Vec<usize> = used.collect();
        let mut rng = SplitMix::new(8);
        for _ in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..1 + rng.below(8) {
                let at =
                    used[rng.below(used.len() as u64) as usize] * 4096 + rng.below(4096) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            std::fs::write(&path, &bytes).unwrap();
            let Ok((store, _)) = FileStore::open(&path, Access::ReadOnly) else {
                refused += 1;
                continue;
            };
            opened += 1;
            let mut chip = Chip::open(store.info().profile, store).unwrap();
            for block in 0..8 {
                for page in 0..16 {
                    let ppn = chip.geometry().page(Pbn::new(block), page);
                    let _ = Verbs::read(&mut chip, ppn);
                }
            }
        }
    }
    assert!(opened > 100 && refused > 50, "{opened} {refused}");
}
