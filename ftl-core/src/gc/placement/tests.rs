//! Every placement on one worked example.

use super::*;
use crate::addr::Lpn;
use crate::config::FtlConfig;
use crate::format::{Flags, PageTag, Role};
use crate::ftl::Start;
use crate::gc::policy::{HostWrite, PageCopy};
use crate::schemes::{SCHEMES, Scheme};
use crate::space::{Space, StreamSpec};
use nand_model::store::MemStore;
use nand_model::{Cause, Chip, Geometry, MultiPlane, Nanos, Pbn, Profile};

fn named(name: &str) -> Box<dyn Policy> {
    of_ftld(name, &Own::none(&on_four_dies(40).geometry)).unwrap()
}

/// A copy of a page of this age, out of a block that this stream filled.
fn copy(age: u64, stream: u32) -> PageCopy {
    PageCopy {
        lpn: Some(Lpn::new(0)),
        block: Pbn::new(0),
        stream,
        age,
        now: 0,
    }
}

#[test]
fn copies_go_where_each_source_says() {
    assert_eq!(named("single").stream_of_copy(&copy(9_000, 0)), 0);
    assert_eq!(named("copies_apart").stream_of_copy(&copy(9_000, 0)), 1);
    // Powers of four of 4,096 pages: below 4,096, 16,384, 65,536, 262,144, 1,048,576, and above.
    let ages = [0, 4_095, 4_096, 16_384, 65_536, 262_144, 1 << 20, 1 << 40];
    let streams = ages.map(|age| named("age").stream_of_copy(&copy(age, 0)));
    assert_eq!(streams, [1, 1, 2, 3, 4, 5, 6, 6]);
    let moves = [0, 1, 2, 3, 4].map(|from| named("mida").stream_of_copy(&copy(0, from)));
    assert_eq!(moves, [1, 2, 3, 4, 4]);
}

#[test]
fn policies_that_contradict_each_other_are_named() {
    let with = |placement: Option<&str>, policy: Option<&str>| {
        let mut params = Params::default();
        for (key, name) in [("gc.placement", placement), ("gc.policy", policy)] {
            if let Some(name) = name {
                params.set(key, name);
            }
        }
        let made = from_params(&params, &Own::none(&on_four_dies(40).geometry));
        made.map(|striped| striped.lanes())
            .map_err(|error| error.to_string())
    };
    for (name, lanes) in [("midas", (2, 5)), ("mdc", (8, 4))] {
        assert_eq!(with(Some(name), None), Ok(lanes));
        assert_eq!(with(Some(name), Some(name)), Ok(lanes));
        let error = with(Some(name), Some("greedy")).unwrap_err();
        let expected = format!("greedy contradicts gc.placement={name}");
        assert!(error.contains(&expected), "{error}");
        let error = with(None, Some(name)).unwrap_err();
        let expected = format!("{name} chooses the streams too; set gc.placement={name}");
        assert!(error.contains(&expected), "{error}");
    }
    let error = with(Some("midas"), Some("mdc")).unwrap_err();
    assert!(error.contains("mdc contradicts"), "{error}");
    let error = with(None, Some("mda")).unwrap_err();
    assert!(error.contains("none of greedy"), "{error}");
}

#[test]
fn a_placement_that_there_is_not_is_named() {
    let own = Own::none(&on_four_dies(40).geometry);
    let error = of_ftld("sepbits", &own).err().unwrap().to_string();
    assert!(
        error.contains("sepbits") && error.contains("mida"),
        "{error}"
    );
}

const PAGES: u32 = 2_000;

/// Four dies on two channels, with `blocks` blocks.
fn on_four_dies(blocks: u32) -> Profile {
    let torture = Profile::find("torture").unwrap().with_blocks(blocks);
    Profile {
        geometry: Geometry {
            channels: 2,
            ways: 2,
            ..torture.geometry
        },
        ..torture
    }
}

fn params(stripe: &str, placement: &str) -> Params {
    let mut params = Params::default();
    params.set("alloc.stripe", stripe);
    params.set("gc.placement", placement);
    params
}

/// Streams of data that are striped over four dies.
fn data_streams(profile: Profile, placement: &str) -> (Space, DataStreams) {
    let striped = from_params(&params("4", placement), &Own::none(&profile.geometry)).unwrap();
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let spec = StreamSpec::new(
        crate::stats::StreamKind::Host,
        crate::format::Role::Data,
        true,
    );
    let mut space = Space::new(crate::flash::Flash::new(chip), &[spec, spec]);
    let streams = DataStreams::new(striped, &mut space, (0, spec), (1, spec));
    (space, streams)
}

#[test]
fn cold_pages_of_wear_levelling_stay_on_one_lane() {
    let profile = on_four_dies(400);
    let (space, mut streams) = data_streams(profile, "copies_apart");
    let block = Pbn::new(9);
    streams.keep_lane(true);
    assert_eq!(streams.pages_in_turn(), usize::MAX);
    let lane = streams.of_copy(&space, (None, block), 0, 0, false);
    streams.note(&space, block, lane);
    assert_eq!(streams.of_copy(&space, (None, block), 0, 0, false), lane);
    streams.keep_lane(false);
    assert_eq!(streams.pages_in_turn(), 1);
}

/// Where one stream takes host writes and copies, its room must not count for both.
#[test]
fn copies_join_the_host_only_without_a_free_block_and_its_room_counts_once() {
    let profile = on_four_dies(400);
    for (placement, is_apart) in [("copies_apart", true), ("single", false)] {
        let (mut space, streams) = data_streams(profile, placement);
        let (host, other) = (streams.host()[0], streams.host()[1]);
        let tag = PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn: 0,
            ver: 1,
        };
        let page = vec![0; profile.geometry.page_len()];
        (8..10).for_each(|block| space.add_free(Pbn::new(block), true));
        space.append(host, &[tag], &page, Cause::Host).unwrap();
        assert_eq!(space.free_blocks(), 1);
        assert_eq!(streams.host_in_need(&space), None, "{placement}");
        space.append(other, &[tag], &page, Cause::Host).unwrap();
        assert_eq!(space.free_blocks(), 0);
        let room = 2 * (space.pages_per_block() - 1);
        let expected = if is_apart {
            (Some(host), room)
        } else {
            (None, 0)
        };
        let found = (streams.host_in_need(&space), streams.room_of_host(&space));
        assert_eq!(found, expected, "{placement}");
    }
}

/// Writes all pages twice in order and rereads them, 16 at a time. Returns the time of the second
/// round of writes, and of the reads.
fn times(scheme: &Scheme, params: Params) -> (Nanos, Nanos) {
    times_on(on_four_dies(400), scheme, params)
}

fn times_on(profile: Profile, scheme: &Scheme, params: Params) -> (Nanos, Nanos) {
    let config = FtlConfig {
        logical_pages: PAGES,
        params,
    };
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let mut ftl = scheme.start(chip, &config, Start::Format).unwrap();
    let (mut now, mut begun) = (0, 0);
    let mut data = vec![7; 16 * profile.geometry.page_len()];
    for _ in 0..2 {
        begun = now;
        for first in (0..PAGES).step_by(16) {
            now = ftl.write(now, Lpn::new(first), &data).unwrap();
        }
    }
    let written = now - begun;
    begun = now;
    for first in (0..PAGES).step_by(16) {
        now = ftl.read(now, Lpn::new(first), &mut data).unwrap();
    }
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    (written, now - begun)
}

fn striping() -> impl Iterator<Item = &'static Scheme> {
    let has = |scheme: &&Scheme| scheme.all_params().any(|param| param.key == "alloc.stripe");
    SCHEMES.iter().filter(has)
}

#[test]
fn striped_streams_use_all_dies_at_once() {
    let names: Vec<_> = striping().map(|scheme| scheme.name).collect();
    assert_eq!(
        names,
        [
            "lazyftl",
            "pagemap",
            "dopftl",
            "dftl",
            "tpftl",
            "leaftl",
            "learnedftl"
        ]
    );
    for scheme in striping() {
        for placement in ["copies_apart", "single", "sepbit"] {
            let [(one, read_one), (two, _), (four, read_four)] =
                ["1", "2", "4"].map(|stripe| times(scheme, params(stripe, placement)));
            let name = scheme.name;
            assert!(10 * two < 6 * one, "{name} {placement}: {one}, {two} ns");
            // Stripes leave no lines to predict by.
            let share = if name == "learnedftl" { 5 } else { 4 };
            assert!(
                10 * four < share * one,
                "{name} {placement}: {one}, {four} ns"
            );
            assert!(
                10 * read_four < 7 * read_one,
                "{name} {placement}: {read_one}, {read_four} ns of reads"
            );
        }
    }
}

/// One die with this many planes, and commands for all of them.
fn on_planes(planes: u32) -> Profile {
    let torture = Profile::find("torture").unwrap().with_blocks(400);
    let multi_plane = match planes {
        1 => MultiPlane::Off,
        _ => MultiPlane::SamePage,
    };
    Profile {
        geometry: Geometry {
            planes,
            multi_plane,
            ..torture.geometry
        },
        ..torture
    }
}

#[test]
fn superblocks_use_all_planes_of_a_die_at_once() {
    for scheme in striping() {
        for placement in ["copies_apart", "single"] {
            let [(one, read_one), (two, _), (four, read_four)] =
                [1, 2, 4].map(|planes| times_on(on_planes(planes), scheme, params("1", placement)));
            let name = scheme.name;
            if ["dftl", "tpftl", "learnedftl"].contains(&name) {
                // Every page waits for the read of a mapping page on the same die, which ends the
                // joint program; only the content is checked.
                continue;
            }
            assert!(10 * two < 6 * one, "{name} {placement}: {one}, {two} ns");
            assert!(10 * four < 4 * one, "{name} {placement}: {one}, {four} ns");
            assert!(
                10 * read_four < 4 * read_one,
                "{name} {placement}: {read_one}, {read_four} ns of reads"
            );
        }
    }
}

/// A write of a page that has no version.
fn first_write() -> HostWrite {
    HostWrite {
        lpn: Lpn::new(0),
        hint: 0,
        replaces: None,
        lifespan: None,
        now: 0,
    }
}

/// Padding brings a lane out of step; the pages after it go to the lanes behind.
#[test]
fn pages_go_to_the_lanes_of_a_superblock_that_are_behind() {
    let profile = on_planes(4);
    let striped = from_params(&params("1", "copies_apart"), &Own::none(&profile.geometry)).unwrap();
    assert_eq!(striped.lanes(), (4, 4));
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let kind = crate::stats::StreamKind::Host;
    let spec = StreamSpec::new(kind, Role::Data, true);
    let mut space = Space::new(crate::flash::Flash::new(chip), &[spec, spec]);
    let mut streams = DataStreams::new(striped, &mut space, (0, spec), (1, spec));
    (0..40).for_each(|block| space.add_free(Pbn::new(block), true));
    let lanes = streams.host().to_vec();
    let page = vec![0; profile.geometry.page_len()];
    let mut append = |space: &mut Space, only: Option<usize>| {
        let lane = only.map_or_else(|| streams.of_write(&first_write()), |at| lanes[at]);
        let tag = PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn: 0,
            ver: 1,
        };
        let (ppn, _) = space.append(lane, &[tag], &page, Cause::Host).unwrap();
        let block = profile.geometry.block_of(ppn);
        streams.note(space, block, lane);
        let place = (
            profile.geometry.plane_of(block),
            profile.geometry.offset_of(ppn),
        );
        (
            lanes.iter().position(|known| *known == lane).unwrap(),
            place,
        )
    };
    // In turn, each on its plane, at the same page number.
    for number in 0..6 {
        let (lane, place) = append(&mut space, None);
        assert_eq!((lane as u32, place), (number % 4, (number % 4, number / 4)));
    }
    // Lane 3 gets two more pages than its turn.
    append(&mut space, Some(3));
    append(&mut space, Some(3));
    let turns: Vec<_> = (0..6).map(|_| append(&mut space, None).0).collect();
    assert_eq!(turns, [2, 0, 1, 2, 0, 1]);
    // At the end of their blocks all of them begin new ones.
    let pages = 4 * profile.geometry.pages_per_block - 14;
    for _ in 0..pages {
        append(&mut space, None);
    }
    let (lane, (plane, offset)) = append(&mut space, None);
    assert_eq!((lane, plane, offset), (0, 0, 0));
}

#[test]
fn copies_are_striped_like_writes() {
    let profile = on_four_dies(400);
    let (space, mut streams) = data_streams(profile, "sepbit");
    assert_eq!((streams.host().len(), streams.copies().len()), (8, 16));
    // A page goes to the same stream until one is programmed, then to the next of four.
    let block = Pbn::new(9);
    let of_copy = |streams: &mut DataStreams, age| {
        let first = streams.of_copy(&space, (None, block), age, 0, false);
        assert_eq!(streams.of_copy(&space, (None, block), age, 0, false), first);
        streams.note(&space, block, first);
        streams.copies().iter().position(|stream| *stream == first)
    };
    let turns: Vec<_> = (0..5).map(|_| of_copy(&mut streams, 0)).collect();
    // Copies of one age, out of no block of class 1: the second stream of copies.
    assert_eq!(turns, [4, 5, 6, 7, 4].map(Some));
}

#[test]
fn a_stripe_over_more_dies_than_there_are_is_refused() {
    let geometry = on_four_dies(40).geometry;
    for wrong in ["0", "5", "all"] {
        let error = from_params(&params(wrong, "single"), &Own::none(&geometry));
        let error = error.err().unwrap().to_string();
        assert!(error.contains("alloc.stripe"), "{error}");
    }
    let one_die = Geometry {
        channels: 1,
        ways: 1,
        ..geometry
    };
    let error = from_params(&params("2", "single"), &Own::none(&one_die)).err();
    assert!(error.unwrap().to_string().contains("1 to 1"));
}
