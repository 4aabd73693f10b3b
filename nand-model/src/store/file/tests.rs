//! Parts of an image that no crash can leave.

use super::*;
use crate::image::SlotHeader;
use crate::image::{ImageError, ImageSpec, TABLE_ENTRY_BYTES, TableEntry};
use crate::profile::Profile;
use crc32c::crc32c;

#[test]
fn parts_whose_check_holds_but_that_cannot_be_are_refused() {
    let mut profile = Profile::find("slc-2k").unwrap().with_blocks(6);
    let geometry = &mut profile.geometry;
    (
        geometry.pages_per_block,
        geometry.page_bytes,
        geometry.oob_bytes,
    ) = (6, 512, 16);
    let spec = ImageSpec {
        profile,
        size: 4096,
        scheme: "none".into(),
        params: String::new(),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let mut store = FileStore::create(&path, &spec).unwrap();
    let (layout, page) = (store.layout, store.layout.geometry.page_bytes as usize);
    store
        .program(layout.geometry.page(Pbn::new(0), 0), 1, &vec![1; page], &[])
        .unwrap();
    let slot = store.blocks[0].slot.unwrap();
    let unclean = std::fs::read(&path).unwrap();
    store.close().unwrap();
    let clean = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], at: u64, part: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at as usize..][..part.len()].copy_from_slice(part);
        std::fs::write(&path, bytes).unwrap();
        let error = FileStore::open(&path, Access::ReadOnly).unwrap_err();
        assert!(matches!(error, ImageError::Damaged { .. }), "{error}");
    };
    let entry = TableEntry::decode(
        0,
        &clean[layout.entry_at(0) as usize..][..TABLE_ENTRY_BYTES],
    )
    .unwrap();
    let facts = BlockFacts {
        erase_count: u32::MAX,
        ..entry.facts
    };
    for wrong in [
        TableEntry {
            slot: Some(layout.slots),
            ..entry
        },
        TableEntry {
            slot: Some(u32::MAX - 1),
            marked: true,
            ..entry
        },
        TableEntry {
            slot: None,
            ..entry
        },
        TableEntry {
            erase_seq: 1 << 50,
            ..entry
        },
        TableEntry {
            counts_check: 0,
            ..entry
        },
        TableEntry { facts, ..entry },
    ] {
        refused(&clean, layout.entry_at(0), &wrong.encode(0));
    }
    let other = TableEntry {
        counts_check: crc32c(&[0; 6]),
        ..entry
    };
    refused(&clean, layout.entry_at(1), &other.encode(1));
    let head = SlotHeader::new(0, 1, BlockFacts::default());
    for wrong in [
        SlotHeader { block: 6, ..head },
        SlotHeader {
            erase_seq: 0,
            ..head
        },
        SlotHeader {
            erase_seq: u64::MAX,
            ..head
        },
        SlotHeader {
            erase_count: u32::MAX,
            ..head
        },
    ] {
        refused(&unclean, layout.slot_header_at(slot), &wrong.encode(slot));
    }
    refused(&unclean, layout.slot_header_at(slot), &[1]);
}
