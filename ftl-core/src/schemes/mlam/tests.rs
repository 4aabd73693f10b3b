//! The paper's numbers and its worked examples, and this implementation's additions.

use super::policy::{Candidate, Piece, compose, joined, pieces};
use super::*;
use crate::ftl::Ftl;
use buffer::Unit;
use nand_model::SplitMix;
use nand_model::store::MemStore;
use policy::Virtual;

const US: u64 = 1_000;
const PAGE: usize = 512;

/// Returns the paper's device: its times, its four channels, and some of its chips. Few bytes per
/// page, because only time matters here.
fn paper(ways: u32, blocks: u32) -> Profile {
    let profile = *Profile::find("mlam").unwrap();
    let geometry = Geometry {
        channels: 4,
        ways,
        blocks,
        page_bytes: PAGE as u32,
        ..profile.geometry
    };
    Profile {
        geometry,
        ..profile
    }
}

/// Starts the paper's mode: writes are acknowledged in RAM.
fn made(profile: Profile, logical_pages: u32, more: &[(&str, &str)]) -> MlamFtl {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    let mode = [("mlam.ack", "buffer"), ("wear.policy", "none")];
    mode.iter()
        .chain(more)
        .for_each(|(key, value)| config.params.set(key, value));
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    create(chip, &config, Start::Format).unwrap()
}

fn write(ftl: &mut MlamFtl, lpn: u32, n: u64) -> u64 {
    let at = ftl.space.flash.chip().busy_until();
    ftl.write(at, Lpn::new(lpn), &n.to_le_bytes().repeat(PAGE / 8))
        .unwrap()
        - at
}

fn read(ftl: &mut MlamFtl, lpn: u32) -> u64 {
    let mut out = vec![1; PAGE];
    ftl.read(0, Lpn::new(lpn), &mut out).unwrap();
    assert!(out.chunks_exact(8).all(|word| word == &out[..8]));
    u64::from_le_bytes(out[..8].try_into().unwrap())
}

/// Returns the emulated time of writing a superblock.
fn timed(ftl: &mut MlamFtl, slots: &[u32], superchip: u32) -> u64 {
    let at = ftl.space.flash.chip().busy_until();
    ftl.space.flash.begin(at);
    ftl.write_superblock(&Virtual::new(slots.to_vec(), Some(superchip)), Cause::Merge)
        .unwrap();
    ftl.space.flash.now() - at
}

/// Section 3.2: superpages of eight pages, two per channel.
#[test]
fn the_papers_costs_of_a_superpage() {
    let mut ftl = made(paper(4, 400), 4096, &[]);
    assert_eq!(
        (
            ftl.map.shape.chips,
            ftl.map.shape.superchips(),
            ftl.map.shape.superblock_pages()
        ),
        (8, 2, 1024)
    );
    (0..8).for_each(|lpn| {
        assert_eq!(
            write(&mut ftl, lpn, 7 + lpn as u64),
            0,
            "a write is one to RAM"
        )
    });
    assert_eq!(timed(&mut ftl, &[0, 1, 2, 3], 0), 1000 * US, "C_w");
    assert_eq!(timed(&mut ftl, &[0, 1, 2, 3], 0), 860 * US, "C_copyback");
    assert_eq!(
        timed(&mut ftl, &[0, 1, 2, 3], 1),
        1260 * US,
        "C_rw, to another superchip"
    );
    assert_eq!(ftl.stats().mapped_pages, 8);
    assert_eq!((read(&mut ftl, 3), ftl.check().unwrap()), (10, vec![]));
}

/// Figure 5: 20 pages of a superblock on flash: two full superpages, two partial ones.
#[test]
fn the_papers_merge_of_twenty_pages() {
    let mut ftl = made(
        paper(4, 400),
        4096,
        &[("mlam.policy", "lru"), ("mlam.buffer", "1048576")],
    );
    for lpn in 0..1024 {
        write(&mut ftl, lpn, lpn as u64);
    }
    timed(&mut ftl, &[0, 1, 2, 3], 0);
    // Pages 0 and 4 of a superpage share a channel.
    let partly = [80, 84, 800, 804];
    for lpn in (16..32).chain(partly) {
        write(&mut ftl, lpn, 5);
    }
    let whole = ftl.map.choose().unwrap();
    assert_eq!(
        (&whole.slots[..], whole.superchip, ftl.map.buffer.len()),
        (&[0, 1, 2, 3][..], Some(0), 20)
    );
    let cost = timed(&mut ftl, &whole.slots, 0);
    assert_eq!(cost, 110_640 * US);
    assert_eq!(cost / 20, 5_532 * US, "C_sb");
    assert_eq!(ftl.map.buffer.len(), 0);
    assert_eq!(
        [16, 31, 80, 81, 804, 1023].map(|lpn| read(&mut ftl, lpn)),
        [5, 5, 5, 81, 5, 1023]
    );
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

fn shape() -> Shape {
    Shape::new(&paper(8, 64).geometry, 8).unwrap()
}

fn candidate(logical: u32, age: f64, eighths: [u32; 8]) -> Candidate {
    Candidate {
        logical,
        age,
        unit: Unit::holding(eighths),
    }
}

/// Figure 6: with one empty logical block allowed, a superblock is cut into the quarters that hold
/// data. Neighbours on one superchip are joined.
#[test]
fn candidates_are_cut_as_in_the_papers_figure() {
    let here = |_| Some(0);
    let cut = |eighths, k_empty| {
        let pieces = pieces(&candidate(2, 1.0, eighths), &shape(), k_empty, here);
        pieces
            .iter()
            .map(|piece| (piece.first, piece.quarters, piece.pages))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        cut([9, 9, 9, 0, 9, 9, 9, 9], 1),
        [(8, 4, 63)],
        "one empty block: as a whole"
    );
    assert_eq!(cut([9, 9, 9, 0, 9, 9, 0, 9], 1), [(8, 2, 27), (10, 2, 27)]);
    assert_eq!(
        cut([0, 0, 9, 9, 9, 9, 0, 0], 1),
        [(9, 1, 18), (10, 1, 18)],
        "the middle is no half"
    );
    assert_eq!(
        cut([0, 0, 9, 9, 9, 9, 0, 0], 7),
        [(8, 4, 36)],
        "superblock mapping always"
    );
    assert_eq!(cut([0, 0, 0, 0, 0, 0, 0, 1], 0), [(11, 1, 1)]);
    let apart = |quarter| Some(quarter % 2);
    let pieces = pieces(&candidate(0, 1.0, [9; 8]), &shape(), 0, apart);
    assert_eq!(pieces.len(), 1, "no empty block at all");
}

#[test]
fn a_virtual_superblock_is_of_one_superchip_and_takes_the_heaviest() {
    let cut = |logical: u32, age, eighths, superchip: Option<u32>| {
        pieces(&candidate(logical, age, eighths), &shape(), 0, move |_| {
            superchip
        })
    };
    let mut all: Vec<Piece> = Vec::new();
    all.extend(cut(0, 1.0, [0, 0, 90, 90, 0, 0, 0, 0], Some(0)));
    all.extend(cut(1, 0.5, [0, 0, 0, 0, 80, 0, 80, 80], Some(0)));
    all.extend(cut(2, 0.2, [99, 99, 99, 99, 99, 99, 0, 99], Some(1)));
    all.extend(cut(3, 0.1, [0, 0, 0, 0, 0, 0, 0, 50], None));
    let chosen = compose(&all).unwrap();
    assert_eq!(
        (chosen.superchip, &chosen.slots[..]),
        (Some(1), &[8, 9, 10, 11][..]),
        "297 + 297 pages on superchip 1"
    );
    all.retain(|piece| piece.superchip != Some(1));
    let chosen = compose(&all).unwrap();
    assert_eq!(
        chosen.slots,
        [6, 7, 1, 15],
        "the half is aligned; a quarter that is mapped nowhere fills the hole"
    );
    assert_eq!(chosen.superchip, Some(0));
    assert_eq!(compose(&[]), None);
}

#[test]
fn quarters_are_joined_to_halves_and_wholes_and_to_nothing_else() {
    assert_eq!(joined(&mut [3, 1, 0, 2]), [(0, 4)]);
    assert_eq!(joined(&mut [5, 6, 4, 11]), [(4, 2), (6, 1), (11, 1)]);
    assert_eq!(joined(&mut [1, 2, 6, 7]), [(1, 1), (2, 1), (6, 2)]);
    assert_eq!(joined(&mut [2, 3, 4, 5]), [(2, 2), (4, 2)]);
}

/// A load of single pages, every policy and every `k_empty`: reads return the written data, and
/// tables stay close to their bound.
#[test]
fn every_policy_and_granularity_holds_what_was_written() {
    let profile = Profile {
        geometry: Geometry {
            pages_per_block: 16,
            ..paper(2, 400).geometry
        },
        ..paper(2, 400)
    };
    let logical_pages = 2048;
    let policies =
        ["mlam", "flush_all", "lru", "size", "lru_size"].map(|policy| ("mlam.policy", policy));
    let granularities = ["0", "3", "7"].map(|k| ("mlam.k_empty", k));
    for setting in policies
        .into_iter()
        .chain(granularities)
        .chain([("mlam.flush", "vsb"), ("mlam.chips", "3")])
    {
        let mut ftl = made(profile, logical_pages, &[setting, ("mlam.buffer", "65536")]);
        let (mut rng, mut model) = (SplitMix::new(1), vec![0; logical_pages as usize]);
        for n in 1..6_000 {
            // Recently written pages are written again for a while.
            let moving = n as u32 / 500 * 311 + rng.below(400) as u32;
            let lpn = if n <= logical_pages as u64 {
                n as u32 - 1
            } else {
                moving % logical_pages
            };
            write(&mut ftl, lpn, n);
            model[lpn as usize] = n;
            if rng.one_in(200) {
                ftl.flush(0).unwrap();
            }
        }
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new(), "{setting:?}");
        for (lpn, n) in (0..).zip(&model) {
            assert_eq!(read(&mut ftl, lpn), *n, "{setting:?}: page {lpn}");
        }
        let (merged, reorganised) = ftl.map.cost.copies();
        assert!(merged > 0, "{setting:?}: nothing was copied along");
        if setting == ("mlam.k_empty", "0") {
            assert!(
                reorganised > 0,
                "{setting:?}: the tables were never too large"
            );
        }
        if setting.0 == "mlam.k_empty" {
            assert_eq!(ftl.map.cost.k_empty.to_string(), setting.1, "it is fixed");
        }
    }
}

/// The superblock with the highest space gain (Table 1) times age is reassembled. 50 physical
/// superblocks have numbers of w = 6 bits: two halves save 2 w + 2 = 14 bits, four quarters 4 w + 8
/// = 32. At the tenth flush a superblock not written since has age 11: 14 x 11 = 154. Four quarters
/// written at the fifth are worth 32 x 6 = 192, at the seventh 32 x 4 = 128.
#[test]
fn space_gain_and_age_decide_what_is_reassembled() {
    let mut ftl = made(paper(4, 400), 4096, &[]);
    let at = |psb, loc| Some(Location { psb, loc });
    let halves = [at(1, 2), at(1, 3), at(2, 0), at(2, 1)];
    let quarters = [at(3, 1), at(4, 0), at(5, 3), at(6, 2)];
    assert_eq!(ftl.map.to_reorganise(), None, "nothing is apart");
    ftl.map.mapping.set(0, halves);
    ftl.map.mapping.set(1, quarters);
    ftl.map.cost.flushed = 10;
    assert_eq!(
        [0, 1, 2].map(|logical| ftl.map.mapping.gain(logical)),
        [14, 32, 0]
    );
    for (written, chosen) in [(5, 1), (7, 0)] {
        ftl.map.cost.written[1] = written;
        assert_eq!(
            ftl.map.to_reorganise(),
            Some(chosen),
            "written at flush {written}"
        );
    }
    ftl.map.buffer.write(Lpn::new(0), &[0; PAGE]);
    assert_eq!(
        ftl.map.to_reorganise(),
        Some(1),
        "the other has a buffered page"
    );
}

/// All kinds of mount find the same pages in the same superblocks; whole ones stay whole.
#[test]
fn a_mount_finds_the_superblocks_again() {
    let profile = Profile {
        geometry: Geometry {
            pages_per_block: 32,
            ..paper(2, 300).geometry
        },
        ..paper(2, 300)
    };
    for clean in [true, false] {
        let mut ftl = made(profile, 2048, &[("mlam.buffer", "131072")]);
        for lpn in 0..2048 {
            write(&mut ftl, lpn, lpn as u64);
        }
        for n in 0..300 {
            write(&mut ftl, n * 53 % 2048, 5_000 + n as u64);
        }
        ftl.flush(0).unwrap();
        if clean {
            ftl.shutdown(0).unwrap();
        }
        let (before, counts) = (
            (0..2048).map(|lpn| read(&mut ftl, lpn)).collect::<Vec<_>>(),
            ftl.map.mapping.counts(),
        );
        let buffered = ftl.map.buffer.len();
        let mut config = FtlConfig {
            logical_pages: 2048,
            params: Params::default(),
        };
        config.params.set("mlam.buffer", "131072");
        let mut chip = Box::new(ftl).into_chip();
        chip.power_on();
        let mut ftl = create(chip, &config, Start::Mount).unwrap();
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
        assert_eq!(
            (0..2048).map(|lpn| read(&mut ftl, lpn)).collect::<Vec<_>>(),
            before
        );
        assert_eq!(ftl.stats().mount.clean, clean);
        assert_eq!(ftl.map.mapping.counts(), counts);
        // The mount rewrites the last page of each die into the common blocks.
        let rewritten = ftl.space.geometry().dies();
        assert!(
            ftl.map.buffer.len() <= buffered + rewritten,
            "{} pages in the buffer's table, {buffered} before",
            ftl.map.buffer.len()
        );
    }
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_reason() {
    let wrong = [
        ("mlam.chips", "0"),
        ("mlam.buffer", "512"),
        ("mlam.low", "0.6"),
        ("mlam.high", "2"),
        ("mlam.policy", "best"),
        ("mlam.candidates", "17"),
        ("mlam.alpha", "-1"),
        ("mlam.k_empty", "8"),
        ("mlam.smax", "0.5"),
        ("mlam.flush", "never"),
        ("mlam.ack", "later"),
        ("gc.free_threshold", "2"),
    ];
    for (key, value) in wrong {
        let mut params = Params::default();
        params.set(key, value);
        let error = Settings::new(&params, &paper(4, 400), 400, 4096)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(key.rsplit('.').next().unwrap()) || error.contains("high"),
            "{key}: {error}"
        );
    }
}
