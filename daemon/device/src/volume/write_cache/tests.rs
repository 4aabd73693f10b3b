//! Tests of the parts: bytes of the area, ring, index. The suite `write_cache` tests the whole.

use super::format::{Bitmap, EntryHead, Head, Kind, RING_BLOCK, State, bitmap_bytes};
use super::index::{Index, Version};
use super::ring::Ring;
use super::{CacheOptions, CutCounts, Model};

fn head() -> Head {
    Head {
        state: State::Live,
        generation: 6,
        uuid: [7; 16],
        ring_bytes: 1 << 20,
        unit: 4096,
        salt: 11,
        tail: 512,
        tail_seq: 4,
        boot_id: "a boot".into(),
        cut: CutCounts {
            new: 1,
            torn: 2,
            old: 3,
            lost: 4,
        },
    }
}

#[test]
fn the_newest_whole_header_copy_counts() {
    let mut bytes = vec![0; 4096];
    assert_eq!(Head::newest(&bytes), None);
    let older = Head {
        generation: 5,
        state: State::Cut,
        ..head()
    };
    for head in [&older, &head()] {
        let at = head.copy_at() as usize;
        bytes[at..at + 512].copy_from_slice(&head.encode());
    }
    assert_eq!(Head::newest(&bytes), Some(head()));
    bytes[head().copy_at() as usize + 40] ^= 1;
    assert_eq!(Head::newest(&bytes), Some(older));
}

#[test]
fn an_entry_counts_with_its_salt_and_all_its_bytes() {
    let mut ring = Ring::new(64 << 10, 4096, 99, 0, 1);
    let at = ring.place(RING_BLOCK + 8192).unwrap();
    ring.slice_mut(at + RING_BLOCK, 8192).fill(3);
    let entry = ring.seal(at, Kind::Write, 5, 2);
    let mut bytes = ring.slice(at, entry.bytes(4096)).to_vec();
    assert_eq!(EntryHead::decode(&bytes[..512]), Some(entry));
    assert!(EntryHead::checks(99, &bytes) && !EntryHead::checks(98, &bytes));
    bytes[9000 - 512] ^= 1;
    assert!(!EntryHead::checks(99, &bytes));
    bytes[0] = 0;
    assert_eq!(EntryHead::decode(&bytes[..512]), None);
}

#[test]
fn entries_never_cross_the_end_and_space_is_free_only_before_the_saved_tail() {
    let mut ring = Ring::new(16 << 10, 512, 1, 0, 1);
    let bytes = RING_BLOCK + 8 * 512;
    for at in [0, 4608, 9216] {
        assert_eq!(ring.place(bytes), Some(at));
        let entry = ring.seal(at, Kind::Write, 0, 8);
        ring.push(entry);
    }
    assert_eq!(ring.place(bytes), None, "the rest of the ring is too short");
    assert_eq!(ring.place(2 * 512), Some(13824), "a short entry still fits");
    (ring.done, ring.freed) = (1, 4608);
    ring.release();
    assert_eq!(ring.tail(), (4608, 2));
    assert_eq!(
        ring.place(bytes),
        Some(16 << 10),
        "at the begin of the ring"
    );
    assert_eq!(ring.place(bytes + 512), None, "up to the tail");
}

#[test]
fn dirty_units_of_a_range_are_removed_together() {
    let mut index = Index::default();
    for unit in [1, 5, 6, 9] {
        index.put(unit, Version { at: unit, seq: 1 });
    }
    index.remove_all(5..9);
    assert_eq!(
        (index.len(), index.next(2), index.next(10)),
        (2, Some(9), None)
    );
    assert_eq!(index.range(0..9).count(), 1);
}

#[test]
fn a_bit_stands_for_a_block_of_the_ring() {
    let mut bitmap = Bitmap::new(1 << 20);
    bitmap.set(2047);
    assert!(bitmap.has(2047) && !bitmap.has(2046) && !bitmap.has(1 << 40));
    assert_eq!(
        (bitmap_bytes(1 << 20), bitmap_bytes(1 << 30)),
        (4096, 256 << 10)
    );
}

#[test]
fn the_unit_divides_the_page() {
    let options = |tear| CacheOptions {
        bytes: 1 << 20,
        model: Model::Any,
        tear,
        protected: false,
    };
    let unit = |tear, page| options(tear).unit(page);
    assert_eq!(
        [unit(None, 1024), unit(None, 16384), unit(None, 4608)],
        [1024, 4096, 512]
    );
    assert_eq!([unit(None, 1536), unit(None, 6144)], [512, 2048]);
    assert_eq!([unit(Some(512), 4096), unit(Some(4096), 2048)], [512, 2048]);
    assert_eq!(
        [unit(Some(1024), 6144), unit(Some(4096), 6144)],
        [1024, 2048]
    );
}
