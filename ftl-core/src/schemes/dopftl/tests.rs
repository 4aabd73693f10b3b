use super::*;
use crate::families::paged::tests::{self as common, profile};
use nand_model::Geometry;

const SMALL: (&str, &str) = ("dop.cache", "2048");

#[test]
fn what_was_written_is_read_back() {
    common::cached_map_agrees_with_a_model(new, SMALL);
}

#[test]
fn every_placement_keeps_what_it_must() {
    common::every_placement_keeps_what_it_must(new);
}

#[test]
fn it_survives_cuts_anywhere() {
    common::cached_map_survives_cuts(new, SMALL);
}

#[test]
fn the_papers_example_is_looked_up_from_the_last_extent_to_the_first() {
    use node::{Extent, Form};
    let base = Extent {
        offset: 20,
        len: 7,
        ppn: 215,
    };
    let mut page = Form::Compressed(vec![
        Extent {
            offset: 0,
            len: 1024,
            ppn: crate::format::UNMAPPED,
        },
        base,
    ]);
    assert_eq!(page.get(26), 215 + (26 - 20));
    page.set(26, 400, 1024, 125);
    assert_eq!((page.get(26), page.get(25)), (400, 220));
    assert!(
        matches!(&page, Form::Compressed(extents) if extents.len() == 3),
        "nothing is split"
    );
    // An update that continues the last extent makes it longer.
    page.set(27, 401, 1024, 125);
    assert!(
        matches!(&page, Form::Compressed(extents) if extents.len() == 3 && extents[2].len == 2)
    );
    assert_eq!(page.get(27), 401);
}

#[test]
fn forms_agree_with_a_plain_array_under_random_changes() {
    use crate::format::UNMAPPED;
    let (per_page, max) = (256, 13);
    let mut rng = nand_model::SplitMix::new(6);
    let mut model = vec![UNMAPPED; per_page as usize];
    let mut form = node::Form::new(&model, max);
    let mut forms = [0, 0];
    for step in 0..20_000 {
        // Long runs alternate with single entries, so that both forms occur.
        let first = rng.below(per_page as u64) as u32;
        let run = if step % 400 < 200 {
            1
        } else {
            1 + rng.below(100) as u32
        };
        for offset in first..(first + run).min(per_page) {
            let ppn = if rng.one_in(200) {
                UNMAPPED
            } else {
                1000 * (step % 50) + offset
            };
            form.set(offset, ppn, per_page, max);
            model[offset as usize] = ppn;
        }
        let original = matches!(form, node::Form::Original(_));
        forms[original as usize] += 1;
        assert_eq!(form.entries(per_page), model);
        let mut page = vec![0; 4 * model.len()];
        form.encode(&mut page);
        let words = model.iter().flat_map(|ppn| ppn.to_le_bytes());
        assert!(page.into_iter().eq(words));
        assert!((0..per_page).all(|offset| form.get(offset) == model[offset as usize]));
        if original {
            form = node::Form::new(&model, max);
        }
    }
    assert!(forms.iter().all(|steps| *steps > 1000), "{forms:?}");
}

#[test]
fn the_directory_of_two_terabytes_has_a_megabyte_of_places() {
    // 4 KiB pages: 2^29 pages, 1024 to a mapping page, 2 bytes each.
    let vtpns = (2u64 << 40) / 4096 / 1024;
    assert_eq!(2 * vtpns, 1 << 20);
    let geometry = Profile::find("mlam").unwrap().geometry;
    let (shape, _) = own_params(&Params::default(), &geometry, 1 << 22).unwrap();
    assert_eq!(
        (
            shape.per_page,
            shape.extents,
            shape.block_bytes,
            shape.ratio
        ),
        (1024, 125, 1024, 4)
    );
    let bytes = Cache::new(shape).ram_of("ctpa");
    assert_eq!(bytes, 2 * (1 << 22) / 1024);
}

impl Cache {
    fn ram_of(&self, part: &str) -> u64 {
        use crate::families::paged::Policy;
        self.ram()
            .iter()
            .find(|entry| entry.part.name() == part)
            .expect("a part of the report")
            .paper_bytes
    }
}

const SHAPE: Shape = Shape {
    blocks: 8,
    original: None,
    ctpa: true,
    block_bytes: 128,
    ratio: 4,
    extents: 13,
    per_page: 128,
    logical_pages: 1280,
};

/// Returns a mapping page that has as many runs as entries, or one.
fn mapping_page(scattered: bool) -> Vec<u8> {
    (0..128u32)
        .flat_map(|i| (if scattered { 3 * i } else { i }).to_le_bytes())
        .collect()
}

#[test]
fn with_ctpa_finding_a_page_takes_a_step_and_without_it_the_list_is_walked() {
    use crate::families::paged::Policy;
    use crate::families::paged::pending::Pending;
    let geometry = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 64).geometry
    };
    let pending = Pending::new(geometry, 16, false);
    let steps = |ctpa: bool| {
        let mut cache = Cache::new(Shape { ctpa, ..SHAPE });
        (0..3).for_each(|vtpn| cache.load(vtpn, &mapping_page(false), 0, 0, &pending));
        let mut looked_at = Vec::new();
        // The oldest, which is then the newest; the same again; one that is not cached.
        for lpn in [0, 1, 128 * 5] {
            let before = cache.lookup_steps();
            assert_eq!(cache.get(lpn, false).is_some(), lpn < 128);
            looked_at.push(cache.lookup_steps() - before);
        }
        looked_at
    };
    // Each page found examines one extent.
    assert_eq!((steps(true), steps(false)), (vec![2, 2, 1], vec![4, 2, 3]));
}

#[test]
fn a_fixed_share_keeps_the_forms_apart() {
    use crate::families::paged::Policy;
    use crate::families::paged::pending::Pending;
    let geometry = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 64).geometry
    };
    let pending = Pending::new(geometry, 16, false);
    // Room for one original page and four compressed ones.
    let mut cache = Cache::new(Shape {
        original: Some(4),
        ..SHAPE
    });
    let cached = |cache: &Cache| {
        (0..10)
            .filter(|vtpn| cache.peek(vtpn * 128).is_some())
            .collect::<Vec<u32>>()
    };
    for vtpn in 0..6 {
        cache.load(vtpn, &mapping_page(false), vtpn * 128, 0, &pending);
        assert_eq!(cache.evict(&pending), None);
    }
    assert_eq!(cached(&cache), [2, 3, 4, 5]);
    for vtpn in 6..8 {
        cache.load(vtpn, &mapping_page(true), vtpn * 128, 0, &pending);
        assert_eq!(cache.evict(&pending), None);
    }
    assert_eq!(cached(&cache), [2, 3, 4, 5, 7]);
    // After a rewrite in order it shrinks to a compressed page, for which another one is evicted.
    (0..128)
        .for_each(|i| assert!(cache.on_relocate(7 * 128 + i, Some(nand_model::Ppn::new(500 + i)))));
    cache.load(8, &mapping_page(true), 8 * 128, 0, &pending);
    assert_eq!(cache.evict(&pending), None);
    assert_eq!(cached(&cache), [3, 4, 5, 7, 8]);
}

#[test]
fn what_is_compressed_on_its_way_out_stays_once() {
    use crate::families::paged::Policy;
    use crate::families::paged::pending::Pending;
    let geometry = Geometry {
        pages_per_block: 16,
        page_bytes: 512,
        ..profile("slc-2k", 64).geometry
    };
    let shape = SHAPE;
    let mut cache = Cache::new(shape);
    let pending = Pending::new(geometry, 16, false);
    let page = mapping_page;
    for (vtpn, scattered) in [(0, true), (1, true), (2, false)] {
        cache.load(vtpn, &page(scattered), vtpn * 128, 0, &pending);
    }
    // Nine blocks: an original page does not compress and is evicted.
    assert_eq!(
        (cache.evict(&pending), cache.peek(5), cache.peek(133)),
        (None, None, Some(Some(nand_model::Ppn::new(15))))
    );
    // After a rewrite in order the other one fits into a block, so the cache keeps it on its turn.
    (0..128).for_each(|i| assert!(cache.on_relocate(128 + i, Some(nand_model::Ppn::new(500 + i)))));
    cache.load(3, &page(true), 3 * 128, 0, &pending);
    assert_eq!(
        (cache.evict(&pending), cache.peek(133)),
        (None, Some(Some(nand_model::Ppn::new(505))))
    );
}
