//! The area of a write cache: a host crash or a kill amid its attachment and its detachment.

use super::*;

const BYTES: usize = 8192;

/// Checks an image after an end amid a change: it opens, and the area that its header names can be
/// read.
fn check(disk: &SimDisk, at: Freeze, end: End) {
    let disk = disk.ended(end);
    let (store, _) = open(&disk, Access::ReadWrite).unwrap();
    let area = store.cache_area();
    if let Some(section) = area.section() {
        assert!(
            section.at + section.bytes <= disk.length(),
            "{at:?}, {end:?}"
        );
        let mut seen = [0; BYTES];
        area.read_at(0, &mut seen).unwrap();
        let first = seen.iter().position(|byte| *byte != 7);
        assert_eq!(first, None, "first wrong byte at {at:?}, {end:?}");
    }
}

#[test]
fn an_end_amid_attachment_or_detachment_leaves_an_area_as_it_was_filled_or_none() {
    let fill = |area: &CacheArea| area.write_at(0, &[7; BYTES]);
    let ends = |seed| {
        Crash::kinds(seed)
            .into_iter()
            .map(End::Crash)
            .chain([End::Kill])
    };
    let mut seen = [[0; 2]; 2];
    for (detaches, number, syncs) in [false, true]
        .into_iter()
        .flat_map(|what| (0..12).flat_map(move |n| [(what, n, false), (what, n, true)]))
    {
        let (disk, mut store) = fresh(shapes()[0], 3);
        store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
        let area = store.cache_area();
        let at = if syncs {
            Freeze::Sync(number)
        } else {
            Freeze::Write(number)
        };
        if detaches {
            area.attach(BYTES as u64, fill).unwrap();
            disk.freeze_at(at);
            area.detach().unwrap();
        } else {
            disk.freeze_at(at);
            area.attach(BYTES as u64, fill).unwrap();
        }
        let Some(frozen) = disk.take_frozen() else {
            continue;
        };
        seen[usize::from(detaches)][usize::from(syncs)] += 1;
        for end in ends(number) {
            check(&frozen, at, end);
        }
    }
    assert!(
        seen.as_flattened().iter().all(|count| *count > 0),
        "{seen:?}"
    );
}
