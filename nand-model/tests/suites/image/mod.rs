//! The image file from outside: the same chip as in memory after any kind of stop; clear errors for
//! every other file; no change by readers.

mod damage;
mod twins;

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

/// An image with content, stopped during use.
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
