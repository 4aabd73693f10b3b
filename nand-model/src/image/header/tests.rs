//! Headers that are written are read; others are refused with the reason.

use super::super::fields::pairing_of;
use super::*;
use crate::decay::{ErrorLaw, ErrorModel};
use crate::energy::Energy;
use crate::geometry::MultiPlane;
use crate::pairing::Pairing;
use crate::profile::{PROFILES, Profile, SlcRegion, Suspend};

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
        power_cut: true,
        cache_area: None,
        shard: None,
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
fn multi_plane_commands_round_trip_and_need_whole_planes() {
    for kind in [MultiPlane::SamePage, MultiPlane::AnyPage] {
        let mut header = header(&PROFILES[0].named("planes", ""));
        let timing = &mut header.info.profile.timing;
        timing.bus_ns = 5;
        (timing.cache.program, timing.cache.read) = (true, kind == MultiPlane::AnyPage);
        let geometry = &mut header.info.profile.geometry;
        (geometry.planes, geometry.multi_plane) = (4, kind);
        assert_eq!(Header::decode(&header.encode()), Ok(header.clone()));
        header.info.profile.geometry.planes = 3;
        let read = Header::decode(&header.encode());
        let refused = matches!(read, Err(HeaderFault::Contradiction(_)));
        assert!(refused, "200 blocks on 3 planes: {read:?}");
    }
}

#[test]
fn an_slc_region_is_a_section_that_other_images_do_not_have() {
    for name in ["mlc-4k", "tlc-16k", "qlc-16k"] {
        let mut header = header(Profile::find(name).unwrap());
        let without = header.encode();
        let region = SlcRegion::typical(&header.info.profile, 500);
        header.info.profile.slc = Some(region);
        let with = header.encode();
        assert_ne!(with, without);
        assert_eq!(Header::decode(&with), Ok(header.clone()));
        header.info.profile.slc = Some(SlcRegion {
            share: 9_999,
            ..region
        });
        let read = Header::decode(&header.encode());
        let HeaderFault::Contradiction(why) = read.unwrap_err() else {
            panic!("a region of all blocks");
        };
        assert!(why.to_string().contains("99.99 %"), "{why}");
    }
}

#[test]
fn the_energy_of_operations_round_trips_and_is_not_needed() {
    let mut header = header(&PROFILES[0].named("metered", ""));
    let energy = Energy {
        read_pj: 825_000,
        program_pj: 9_900_000,
        erase_pj: 66_000_000,
        byte_pj: 990,
    };
    header.info.profile.energy = Some(energy);
    assert_eq!(Header::decode(&header.encode()), Ok(header.clone()));
    let section = part::energy(&header.info.profile).unwrap();
    assert!(!section.is_needed);
    header.info.profile.energy = Some(Energy {
        erase_pj: Energy::MAX_PJ + 1,
        ..energy
    });
    let read = Header::decode(&header.encode());
    assert!(
        matches!(read, Err(HeaderFault::Contradiction(_))),
        "{read:?}"
    );
}

#[test]
fn the_area_of_a_write_cache_begins_where_the_slots_end() {
    let mut header = header(&PROFILES[0]);
    let geometry = header.info.profile.geometry;
    let layout = Layout::new(geometry, header.info.profile.nop, header.spare_slots).unwrap();
    let at = layout.file_bytes;
    let area = |at, bytes| Some(CacheSection { at, bytes });
    header.info.cache_area = area(at, 1 << 20);
    assert_eq!(Header::decode(&header.encode()), Ok(header.clone()));
    for wrong in [area(at - 4096, 4096), area(at, 0), area(at, u64::MAX)] {
        header.info.cache_area = wrong;
        let read = Header::decode(&header.encode());
        assert!(
            matches!(read, Err(HeaderFault::Contradiction(_))),
            "{read:?}"
        );
    }
}

#[test]
fn a_part_of_several_tells_its_place_and_the_stripes() {
    let mut header = header(&PROFILES[0]);
    let geometry = header.info.profile.geometry;
    let layout = Layout::new(geometry, header.info.profile.nop, header.spare_slots).unwrap();
    let page = u64::from(geometry.page_bytes);
    let shard = |index, count, stripe_bytes| {
        let striping = Striping {
            count,
            stripe_bytes,
        };
        Some(ShardSection { index, striping })
    };
    for index in 0..4 {
        header.info.shard = shard(index, 4, 8 * page);
        assert_eq!(Header::decode(&header.encode()), Ok(header.clone()));
    }
    let wrong = [
        shard(0, 1, page),
        shard(0, 0, page),
        shard(0, SHARDS_MAX + 1, page),
        shard(4, 4, page),
        shard(0, 4, 0),
        shard(0, 4, page + 1),
        shard(0, 4, 1 << 48),
    ];
    for wrong in wrong {
        header.info.shard = wrong;
        let read = Header::decode(&header.encode());
        assert!(
            matches!(read, Err(HeaderFault::Contradiction(_))),
            "{wrong:?}: {read:?}"
        );
    }
    // The area of a write cache is behind the last part; only the first part's header names it.
    let area = |at| Some(CacheSection { at, bytes: 4096 });
    for (index, at, is_right) in [
        (0, 4 * layout.file_bytes, true),
        (0, layout.file_bytes, false),
        (1, 4 * layout.file_bytes, false),
    ] {
        (header.info.shard, header.info.cache_area) = (shard(index, 4, page), area(at));
        let read = Header::decode(&header.encode());
        assert_eq!(read.is_ok(), is_right, "part {index}, byte {at}: {read:?}");
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
    for code in [6, 6 | 16 << 8, 9, 10, 1 << 8, u32::MAX] {
        assert!(pairing_of(code, 2, &[]).is_err(), "{code:#x}");
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
            assert!(reason.to_string().contains(part), "{reason}")
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
    newer.unknown = vec![section(part::NAMED, false)];
    refused(&newer, "section 2 stands twice");
    newer.unknown = vec![section(part::OWN, true)];
    refused(&newer, "there is both");
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
                assert!(reason.to_string().contains(part), "{reason}, not {part}");
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
                assert!(reason.to_string().contains(part), "{reason}, not {part}")
            }
            other => panic!("{part}: {other:?}"),
        }
    };
    refused(|h| h.info.profile.name = "no name", "name \"no name\"");
    refused(
        |h| h.info.profile.timing.controller_ns = u64::MAX,
        "more than an hour",
    );
    refused(
        |h| h.info.profile.timing.suspend.erase_ns = Some(3_500_000),
        "suspend_erase of 3.5ms",
    );
    refused(|h| h.info.profile.ecc.codeword_bytes = 0, "codeword");
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
                matches!(checked(bytes), Err(HeaderFault::Contradiction(reason)) if reason.to_string().contains(part)),
                "{text}"
            );
        }
    }
}

/// A device with every kind of figure that no built-in profile has.
fn own_device(pairing: Pairing) -> Profile {
    let mut own = PROFILES[0].named("my-device", "a sheet; \u{b5}s");
    own.geometry.ways = 4;
    own.dies_per_chip = 2;
    own.geometry.pages_per_block = 96;
    own.pairing = pairing;
    own.timing.read_ns = [1, 2, 3, 4];
    own.timing.program_ns = [5, 6, 7, 8];
    own.timing.controller_ns = 9;
    own.timing.program_ns[3] = 1_000;
    own.timing.suspend = Suspend {
        erase_ns: None,
        program_ns: Some(10),
        resume_ns: 11,
    };
    own.ecc.bits = 72;
    own.error_model = ErrorModel::Own(ErrorLaw {
        e: 1e-7,
        reads_max: 12.0,
        ..ErrorModel::Tlc72l.law()
    });
    own
}

#[test]
fn a_device_of_the_users_own_is_in_the_image_as_a_whole() {
    let lines: Vec<Vec<u32>> = (0..32)
        .map(|line| (3 * line..3 * line + 3).collect())
        .collect();
    for pairing in [
        Pairing::Dist3,
        Pairing::AdjacentOf { bits: 3 },
        Pairing::Staggered { bits: 4 },
        Pairing::Random { seed: 9, span: 15 },
        Pairing::from_word_lines(3, &lines).unwrap(),
    ] {
        let header = header(&own_device(pairing));
        assert_eq!(Header::decode(&header.encode()), Ok(header), "{pairing:?}");
    }
    // A built-in profile with a suspension is a device of one's own.
    for erase_ns in [Some(0), Some(20_000)] {
        let mut part = PROFILES[0];
        part.timing.suspend = Suspend {
            erase_ns,
            ..Suspend::NONE
        };
        let header = header(&part);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
    // The longest table, texts and parameters fit together.
    let mut longest = own_device(Pairing::Dist3);
    let (name, source) = ("n".repeat(NAME_BYTES_MAX), "s".repeat(160));
    longest = longest.named(&name, &source);
    longest.geometry.pages_per_block = crate::pairing::TABLE_PAGES_MAX;
    let lines: Vec<Vec<u32>> = (0..1024).map(|line| vec![2 * line, 2 * line + 1]).collect();
    longest.pairing = Pairing::from_word_lines(2, &lines).unwrap();
    let mut header = header(&longest);
    header.info.params = "p".repeat(PARAMS_BYTES_MAX);
    header.info.scheme = "s".repeat(NAME_BYTES_MAX);
    assert_eq!(Header::decode(&header.encode()), Ok(header));
}

#[test]
fn a_profile_unknown_to_this_build_is_refused_by_its_name() {
    let good = header(&PROFILES[0]).encode();
    let at = good.windows(6).position(|name| name == b"mlc-4k").unwrap();
    let mut bytes = good;
    bytes[at..at + 6].copy_from_slice(b"mlc-9k");
    let check = crc32c(&bytes[..CHECK_AT]);
    bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    let read = Header::decode(&bytes);
    let expected = "no profile \"mlc-9k\" in this build";
    assert_eq!(
        read,
        Err(HeaderFault::Contradiction(Invalid::Image(expected.into())))
    );
}

/// Every byte of the section, changed in every bit and to extremes, with the check made good: an
/// error, or another device that is possible.
#[test]
fn a_hostile_device_is_an_error_or_a_possible_device() {
    let lines: Vec<Vec<u32>> = (0..24)
        .map(|line| (4 * line..4 * line + 4).collect())
        .collect();
    let mut accepted = 0;
    for pairing in [
        Pairing::Staggered { bits: 3 },
        Pairing::from_word_lines(4, &lines).unwrap(),
    ] {
        let good = header(&own_device(pairing)).encode();
        for at in SECTIONS_AT..SECTIONS_AT + 700 {
            for change in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bytes = good.clone();
                bytes[at] ^= change;
                let check = crc32c(&bytes[..CHECK_AT]);
                bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
                match Header::decode(&bytes) {
                    Ok(header) => {
                        assert_eq!(header.info.profile.validate(), Ok(()));
                        accepted += 1;
                    }
                    Err(HeaderFault::Contradiction(reason) | HeaderFault::Unknown(reason)) => {
                        assert!(!reason.to_string().is_empty(), "byte {at}");
                    }
                    other => panic!("byte {at}: {other:?}"),
                }
            }
        }
    }
    assert!(accepted > 100, "{accepted} changes left a device");
}

/// A host has blocks of 512 bytes at least.
#[test]
fn a_device_has_whole_sectors() {
    for (size, is_right) in [
        (0, false),
        (1, false),
        (511, false),
        (512, true),
        (513, false),
        (4096 + 512, true),
    ] {
        let mut header = header(&PROFILES[0]);
        header.info.size = size;
        match Header::decode(&header.encode()) {
            Ok(_) => assert!(is_right, "{size} bytes"),
            Err(HeaderFault::Contradiction(why)) => {
                assert!(
                    !is_right && why.to_string().contains("multiples of 512"),
                    "{why}"
                );
            }
            Err(fault) => panic!("{size} bytes: {fault:?}"),
        }
    }
}
