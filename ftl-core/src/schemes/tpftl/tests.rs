use super::*;
use crate::paged::tests::{Subject, agrees_with_a_model, profile, survives_cuts};
use nand_model::Geometry;

struct Tpftl;

impl Subject for Tpftl {
    type Policy = Nodes;
    fn start<S: Store>(chip: Chip<S>, config: &FtlConfig, how: Start) -> Result<Paged<S, Nodes>, FtlError> {
        new(chip, config, how)
    }
}

fn small_slc() -> Profile {
    let slc = profile("slc-2k", 72);
    Profile { geometry: Geometry { pages_per_block: 16, page_bytes: 512, ..slc.geometry }, ..slc }
}

#[test]
fn what_was_written_is_read_back() {
    let small = [("ckpt.interval", "500"), ("tpftl.cache", "256"), ("map.age_window", "24")];
    agrees_with_a_model::<Tpftl>(profile("torture", 64), 560, 40_000, 1, &small);
    agrees_with_a_model::<Tpftl>(small_slc(), 600, 40_000, 2, &small[..2]);
    agrees_with_a_model::<Tpftl>(small_slc(), 600, 20_000, 3, &[]);
}

#[test]
fn it_survives_cuts_anywhere() {
    let small = ("tpftl.cache", "256");
    let checkpoints = survives_cuts::<Tpftl>(profile("torture", 64), 400, 3, 20, &[("ckpt.interval", "120"), small]);
    assert!(checkpoints > 40, "{checkpoints}");
    let window = [("ckpt.interval", "0"), ("map.age_window", "12"), small];
    survives_cuts::<Tpftl>(profile("torture", 64), 400, 4, 20, &window);
    survives_cuts::<Tpftl>(small_slc(), 400, 5, 20, &[("ckpt.interval", "120"), small]);
}

mod cache {
    use super::*;
    use crate::paged::Policy;
    use crate::paged::pending::Pending;
    use nand_model::{Pbn, Ppn};

    const PER_PAGE: u32 = 512;

    /// A mapping page whose entries name 1000 + index.
    fn page() -> Vec<u8> {
        (0..PER_PAGE).flat_map(|index| (1000 + index).to_le_bytes()).collect()
    }

    fn pending() -> Pending {
        let mut pending = Pending::new(profile("lazyftl", 200).geometry, false);
        pending.enlist(Pbn::new(0), 1);
        pending
    }

    fn cached(nodes: &Nodes, lpns: std::ops::Range<u32>) -> Vec<u32> {
        lpns.filter(|lpn| nodes.peek(*lpn).is_some()).collect()
    }

    #[test]
    fn a_miss_loads_what_the_request_needs_of_the_mapping_page() {
        let mut nodes = Nodes::new(4096, 3, PER_PAGE, 4096);
        nodes.load(0, &page(), 508, 10, &pending());
        assert_eq!(cached(&nodes, 0..1024), [508, 509, 510, 511], "not beyond its end");
        assert_eq!(nodes.peek(510), Some(Some(Ppn::new(1510))));
    }

    #[test]
    fn when_nodes_vanish_as_many_entries_as_precede_the_missed_one_are_prefetched() {
        let mut nodes = Nodes::new(6 * 20 + 8 * 5, 3, PER_PAGE, 8192);
        let pending = pending();
        (0..5).for_each(|vtpn| nodes.load(vtpn, &page(), vtpn * PER_PAGE, 0, &pending));
        nodes.load(6, &page(), 6 * PER_PAGE + 3, 0, &pending);
        assert_eq!(cached(&nodes, 6 * PER_PAGE..7 * PER_PAGE).len(), 1, "no phase yet");
        // A long run in one mapping page drives the nodes of the others out.
        let mut misses = 0;
        for lpn in 7 * PER_PAGE..7 * PER_PAGE + 24 {
            if nodes.get(lpn, false).is_none() {
                nodes.load(7, &page(), lpn, 0, &pending);
                misses += 1;
            }
            assert_eq!(nodes.evict(&pending), None);
        }
        assert!((10..24).contains(&misses), "{misses} misses: first each page, then fewer");
    }

    #[test]
    fn of_the_coldest_node_clean_entries_leave_first_and_dirty_ones_with_a_write_of_all() {
        let mut nodes = Nodes::new(6 * 6 + 8 * 2, 0, PER_PAGE, 4096);
        let mut pending = pending();
        nodes.load(0, &page(), 0, 2, &pending);
        nodes.load(1, &page(), PER_PAGE, 2, &pending);
        // Of the colder node the last one was used longest ago, but it is changed.
        pending.point(2, Some(Ppn::new(5)), false, 1);
        nodes.moved(2, Some(Ppn::new(5)));
        nodes.load(1, &page(), PER_PAGE + 10, 0, &pending);
        assert_eq!((nodes.evict(&pending), cached(&nodes, 0..3)), (None, vec![0, 2]));
        nodes.load(1, &page(), PER_PAGE + 11, 0, &pending);
        assert_eq!((nodes.evict(&pending), cached(&nodes, 0..3)), (None, vec![2]));
        nodes.load(1, &page(), PER_PAGE + 12, 0, &pending);
        assert_eq!((nodes.evict(&pending), cached(&nodes, 0..3)), (Some(0), vec![]));
    }
}
