//! Headers that are written are read; others are refused with the reason.

use super::*;
use crate::profile::PROFILES;

fn header(profile: &Profile) -> Header {
    let info = ImageInfo {
        uuid: [7; 16],
        profile: profile.with_blocks(200),
        size: 1 << 20,
        scheme: "lazyftl".into(),
        params: "a = 1\n".into(),
        version: FORMAT_VERSION,
        clean: true,
        sync_failed: false,
    };
    Header {
        info,
        generation: 4,
        synced_seq: 99,
        spare_slots: 16,
        hour: 5_000,
        undoing: true,
        unknown: Vec::new(),
    }
}

#[test]
fn headers_of_all_profiles_round_trip() {
    for profile in PROFILES {
        let header = header(profile);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

#[test]
fn a_random_pairing_is_kept_with_its_seed_where_pages_are_paired() {
    for profile in PROFILES {
        for (seed, span) in [(0, 1), (999, 7), (u16::MAX, 3)] {
            let header = header(&Profile {
                pairing: Pairing::Random { seed, span },
                ..*profile
            });
            let read = Header::decode(&header.encode());
            if profile.pairing == Pairing::None {
                assert!(
                    matches!(read, Err(HeaderFault::Contradiction(_))),
                    "{}",
                    profile.name
                );
            } else {
                assert_eq!(read, Ok(header));
            }
        }
    }
    for code in [6, 6 | 8 << 8, 7, 1 << 8, u32::MAX] {
        assert!(pairing_of(code).is_err(), "{code:#x}");
    }
}

#[test]
fn a_section_that_is_unknown_is_kept_or_refuses_the_image() {
    let section = |id, is_needed| Section {
        id,
        version: 1,
        is_needed,
        bytes: vec![1, 2, 3],
    };
    let mut newer = header(&PROFILES[0]);
    newer.unknown = vec![section(7, false), section(900, false)];
    assert_eq!(Header::decode(&newer.encode()), Ok(newer.clone()));

    let refused = |header: &Header, part: &str| match Header::decode(&header.encode()) {
        Err(HeaderFault::Contradiction(reason) | HeaderFault::Unknown(reason)) => {
            assert!(reason.contains(part), "{reason}")
        }
        other => panic!("{part}: {other:?}"),
    };
    newer.unknown[1].is_needed = true;
    refused(&newer, "section 900, version 1, is unknown here");
    // An older copy without the section does not take its place.
    let older = header(&PROFILES[0]).encode();
    let fault = choose_header([&newer.encode(), &older]).unwrap_err();
    assert!(matches!(fault, HeaderFault::Unknown(_)), "{fault:?}");
    newer.unknown = vec![section(7, false), section(7, false)];
    refused(&newer, "section 7 stands twice");
    newer.unknown = vec![section(PART, false)];
    refused(&newer, "section 2 stands twice");
}

#[test]
fn a_section_of_another_version_or_length_refuses_the_image() {
    let good = header(&PROFILES[0]).encode();
    let refused = |at: usize, byte: u8, part: &str| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        match Header::decode(&bytes) {
            Err(HeaderFault::Contradiction(reason) | HeaderFault::Unknown(reason)) => {
                assert!(reason.contains(part), "{reason}, not {part}");
            }
            other => panic!("{part}: {other:?}"),
        }
    };
    refused(SECTIONS_AT + 2, 2, "section 1, version 2, is unknown here");
    refused(SECTIONS_AT, 4, "there is no section 1");
    refused(SECTIONS_AT + 4, 16, "4 bytes behind its last field");
    refused(SECTIONS_AT + 4, 8, "4 bytes where 0 are left");
    refused(SECTIONS_AT + 6, 1, "are left");
    refused(52, 0xFF, "");
    refused(54, 1, "are left");
}

#[test]
fn every_flipped_byte_leaves_the_other_copy() {
    let (old, new) = (
        header(&PROFILES[0]),
        Header {
            generation: 5,
            ..header(&PROFILES[0])
        },
    );
    let copies = [old.encode(), new.encode()];
    for (copy, other) in [(0, &new), (1, &old)] {
        for i in 0..COPY_BYTES {
            let mut copies = copies.clone();
            copies[copy][i] ^= 0x40;
            let (found, _) = choose_header([&copies[0], &copies[1]]).unwrap();
            assert_eq!(&found, other, "copy {copy} byte {i}");
        }
    }
}

#[test]
fn faults_are_told_apart() {
    let good = header(&PROFILES[0]);
    let fault = |a: &[u8], b: &[u8]| choose_header([a, b]).unwrap_err();
    let zero = vec![0; COPY_BYTES];
    assert_eq!(fault(&zero, &zero), HeaderFault::NotAnImage);
    let mut torn = good.encode();
    torn[600] ^= 1;
    assert_eq!(fault(&torn, &zero), HeaderFault::Damaged);
    let mut newer = good.clone();
    newer.info.version = 9;
    assert_eq!(
        fault(&newer.encode(), &good.encode()),
        HeaderFault::Version(9)
    );
    let mut odd = good.clone();
    odd.info.profile.geometry.page_bytes = 1000;
    assert!(matches!(
        fault(&odd.encode(), &zero),
        HeaderFault::Contradiction(_)
    ));
    let mut lawless = good;
    lawless.info.profile.nop = 9;
    assert!(matches!(
        fault(&lawless.encode(), &zero),
        HeaderFault::Contradiction(_)
    ));
}

#[test]
fn a_header_whose_check_holds_and_that_cannot_be_is_refused_with_the_reason() {
    let refused = |change: fn(&mut Header), part: &str| {
        let mut odd = header(&PROFILES[0]);
        change(&mut odd);
        match Header::decode(&odd.encode()) {
            Err(HeaderFault::Contradiction(reason)) => {
                assert!(reason.contains(part), "{reason}, not {part}")
            }
            other => panic!("{part}: {other:?}"),
        }
    };
    refused(|h| h.info.profile.name = "nothing", "no profile");
    refused(|h| h.spare_slots = 1 << 20, "spare slots");
    refused(|h| h.spare_slots = 0, "spare slots");
    refused(|h| h.synced_seq = SEQ_MAX + 1, "cannot have been reached");
    refused(|h| h.generation = u64::MAX, "cannot have been reached");
    refused(
        |h| h.info.profile.timing.erase_ns = u64::MAX,
        "more than an hour",
    );
    refused(
        |h| h.info.profile.factory_bad_permille = 501,
        "more bad blocks",
    );
    refused(
        |h| h.info.profile.max_bad_permille = 1001,
        "more bad blocks",
    );
    // Texts: one that exceeds its room, and one that is not UTF-8.
    let checked = |mut bytes: Vec<u8>| {
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        Header::decode(&bytes)
    };
    let good = header(&PROFILES[0]).encode();
    for text in [PROFILES[0].name, "lazyftl", "a = 1"] {
        let at = good
            .windows(text.len())
            .position(|window| window == text.as_bytes())
            .unwrap();
        for (change, part) in [(at - 2, "a text of"), (at, "not UTF-8")] {
            let mut bytes = good.clone();
            bytes[change] = 0xFF;
            assert!(
                matches!(checked(bytes), Err(HeaderFault::Contradiction(reason)) if reason.contains(part)),
                "{text}"
            );
        }
    }
}
