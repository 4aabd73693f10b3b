//! Files are read as they were written, and others refused; a restart is a gap.

use super::*;
use crate::live_page::history::tests::{after, read};
use serde_json::json;
use std::time::Instant;

/// Returns what a daemon leaves that began at this second, and was served for four.
fn left(began: u64) -> Kept {
    let mut history = History::new(UNIX_EPOCH + Duration::from_secs(began));
    let start = Instant::now();
    for n in 0..=4u32 {
        history.add(
            after(n.into(), start),
            start + Duration::from_secs(n.into()),
        );
    }
    history.kept()
}

#[test]
fn a_history_is_read_as_it_was_written() {
    let mut kept = left(1_000_000);
    kept.restarts = vec![Restart { at_ms: 7, cause: 2 }];
    let file = kept.encode([7; 16]);
    assert!(file.len() < 600, "{} bytes", file.len());
    assert_eq!(Kept::decode(&file, [7; 16]), Ok(kept.clone()));
    // With the largest numbers.
    let sample = sample_of(&[u64::from(u32::MAX); WORDS]).unwrap();
    kept.samples = vec![sample; KEPT];
    kept.next = COUNT_MAX;
    let file = kept.encode([7; 16]);
    assert!(to_u64(file.len()) < BYTES_MAX, "{} bytes", file.len());
    assert_eq!(Kept::decode(&file, [7; 16]), Ok(kept));
}

#[test]
fn a_file_that_is_not_this_images_or_not_whole_is_refused_with_the_reason() {
    let file = left(1_000_000).encode([7; 16]);
    for length in 0..file.len() {
        let why = Kept::decode(&file[..length], [7; 16]).unwrap_err();
        assert_eq!(why, "cut off or damaged history", "{length}");
    }
    for bit in 0..8 * file.len() {
        let mut broken = file.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert!(Kept::decode(&broken, [7; 16]).is_err(), "bit {bit}");
    }
    let why = Kept::decode(&file, [8; 16]).unwrap_err();
    assert_eq!(why, "history of another image");
    // Whole files: the reason is the version, or the length of a sample.
    let mut newer = file.clone();
    newer[8] += 1;
    let mut other = file;
    other[CHECKED_AT + 16] += 1;
    let check = crc32c_append(0, &other[CHECKED_AT..]);
    other[12..16].copy_from_slice(&check.to_le_bytes());
    for file in [newer, other] {
        let why = Kept::decode(&file, [7; 16]).unwrap_err();
        assert_eq!(why, "history of another version of ftld");
    }
}

/// Whatever a whole file says, it is refused or a history.
#[test]
fn numbers_that_nobody_wrote_do_no_harm() {
    let whole = left(1_000_000).encode([7; 16]);
    let mut rng = nand_model::SplitMix::new(5);
    for _ in 0..2_000 {
        let mut file = whole.clone();
        let at = CHECKED_AT + 16 + rng.below(to_u64(file.len() - CHECKED_AT - 16)) as usize;
        file[at] = rng.below(256) as u8;
        let check = crc32c_append(0, &file[CHECKED_AT..]);
        file[12..16].copy_from_slice(&check.to_le_bytes());
        if let Ok(kept) = Kept::decode(&file, [7; 16]) {
            let mut history = History::new(UNIX_EPOCH + Duration::from_secs(1_000_100));
            history.resume(kept, "unclean");
            let start = Instant::now();
            history.add(after(0, start), start);
            history.add(after(1, start), start + Duration::from_secs(1));
            read(&mut history, 0);
        }
    }
}

#[test]
fn a_restart_is_a_gap_as_long_as_the_wall_clock_says() {
    let resumed = |seconds: u64, ended: &str| {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds);
        let mut history = History::new(now);
        history.resume(left(1_000_000), ended);
        let start = Instant::now();
        history.add(after(0, start), start);
        history.add(after(1, start), start + Duration::from_secs(1));
        let kept = history.kept();
        (read(&mut history, 0), read(&mut history, 4), kept.origin_ms)
    };
    let (all, news, origin) = resumed(30, "power cut");
    assert_eq!(all["at_ms"], json!([1000, 2000, 3000, 4000, 31_000]));
    assert_eq!(all["restarts"], json!([[30_000, "power cut"]]));
    assert_eq!((&all["next"], &all["samples"]), (&json!(5), &json!(5)));
    assert_eq!(news["at_ms"], json!([31_000]), "numbers continue");
    assert_eq!(origin, 1_000_000_000);
    // After ten minutes nothing is left but the numbers.
    let (all, _, _) = resumed(602, "clean");
    assert_eq!(all["at_ms"], json!([4000, 603_000]));
    let (all, _, _) = resumed(100_000, "unclean");
    assert_eq!((&all["next"], &all["samples"]), (&json!(5), &json!(1)));
    // A clock that was set back: the time goes on from there.
    let mut history = History::new(UNIX_EPOCH + Duration::from_secs(7));
    history.resume(left(1_000_000), "unclean");
    assert_eq!(
        read(&mut history, 0)["restarts"],
        json!([[4000, "unclean"]])
    );
}

#[test]
fn the_file_is_replaced_and_has_the_permissions_of_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.ftld");
    std::fs::write(&image, "image").unwrap();
    std::fs::set_permissions(&image, Permissions::from_mode(0o640)).unwrap();
    let [file, new] = files_of(&image);
    assert_eq!(file, folder.path().join("x.ftld.history"));
    assert_eq!(load(&file, [7; 16]), Ok(None));
    // A killed daemon leaves the one; the other is nobody's history.
    std::fs::write(&new, "unfinished").unwrap();
    std::os::unix::fs::symlink(&image, &file).unwrap();
    assert!(
        load(&file, [7; 16])
            .unwrap_err()
            .contains("no history of ftld")
    );
    let kept = left(1_000_000);
    store(&image, &kept.encode([7; 16])).unwrap();
    assert_eq!(load(&file, [7; 16]), Ok(Some(kept.clone())));
    let mode = file.symlink_metadata().unwrap().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert_eq!(std::fs::read(&image).unwrap(), b"image");
    assert!(!new.exists());
    // A folder that does not take it.
    std::fs::create_dir(&new).unwrap();
    let keeper = Keeper {
        image: image.clone(),
        uuid: [7; 16],
        state: Arc::default(),
    };
    std::fs::remove_file(&file).unwrap();
    keeper.keep_last(&kept);
    assert!(keeper.state.has_warned.load(Relaxed) && !file.exists());
    std::fs::remove_dir(&new).unwrap();
    keeper.keep_last(&kept);
    assert!(file.exists());
}

/// A disk that hangs: the thread before is still writing.
#[test]
fn a_stop_waits_a_second_at_most() {
    let keeper = Keeper {
        image: "/nowhere/x.ftld".into(),
        uuid: [7; 16],
        state: Arc::default(),
    };
    keeper.state.is_busy.store(true, Relaxed);
    let begun = Instant::now();
    keeper.keep_last(&left(1));
    let took = begun.elapsed();
    assert!(
        took >= LAST_PATIENCE && took < 5 * LAST_PATIENCE,
        "{took:?}"
    );
}
