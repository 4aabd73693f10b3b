//! Damaged, cut off and forged files: an error or a chip, never a panic.

use super::twins::Verbs;
use super::*;

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
        // A flip in the version itself is indistinguishable from another version.
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
        text.contains(&format!(
            "image format version 1, this build knows {}",
            nand_model::FORMAT_VERSION
        )),
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
                // The last byte of a header copy belongs to its check. It may be 0, which is also
                // read beyond the end.
                let fits = matches!(error, ImageError::TooShort { .. } if length >= 4095)
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
