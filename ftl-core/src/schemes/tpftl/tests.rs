use super::*;
use crate::families::paged::tests::{self as common, profile};

const SMALL: (&str, &str) = ("tpftl.cache", "256");

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

mod cache {
    use super::*;
    use crate::families::paged::Policy;
    use crate::families::paged::pending::Pending;
    use nand_model::{Pbn, Ppn};

    const PER_PAGE: u32 = 512;

    /// Returns a mapping page whose entries are 1000 + index.
    fn page() -> Vec<u8> {
        (0..PER_PAGE)
            .flat_map(|index| (1000 + index).to_le_bytes())
            .collect()
    }

    fn pending() -> Pending {
        let mut pending = Pending::new(profile("lazyftl", 200).geometry, 16, false);
        pending.add_block(Pbn::new(0), 1);
        pending
    }

    fn cached(nodes: &Nodes, lpns: std::ops::Range<u32>) -> Vec<u32> {
        lpns.filter(|lpn| nodes.peek(*lpn).is_some()).collect()
    }

    #[test]
    fn a_miss_loads_what_the_request_needs_of_the_mapping_page() {
        let mut nodes = Nodes::new(4096, 3, PER_PAGE, 4096);
        nodes.load(0, &page(), 508, 10, &pending());
        assert_eq!(
            cached(&nodes, 0..1024),
            [508, 509, 510, 511],
            "not beyond its end"
        );
        assert_eq!(nodes.peek(510), Some(Some(Ppn::new(1510))));
    }

    #[test]
    fn when_nodes_vanish_as_many_entries_as_precede_the_missed_one_are_prefetched() {
        let mut nodes = Nodes::new(6 * 20 + 8 * 5, 3, PER_PAGE, 8192);
        let pending = pending();
        (0..5).for_each(|vtpn| nodes.load(vtpn, &page(), vtpn * PER_PAGE, 0, &pending));
        nodes.load(6, &page(), 6 * PER_PAGE + 3, 0, &pending);
        assert_eq!(
            cached(&nodes, 6 * PER_PAGE..7 * PER_PAGE).len(),
            1,
            "no phase yet"
        );
        // A long run in one mapping page evicts the nodes of the others.
        let mut misses = 0;
        for lpn in 7 * PER_PAGE..7 * PER_PAGE + 24 {
            if nodes.get(lpn, false).is_none() {
                nodes.load(7, &page(), lpn, 0, &pending);
                misses += 1;
            }
            assert_eq!(nodes.evict(&pending), None);
        }
        assert!(
            (10..24).contains(&misses),
            "{misses} misses: first each page, then fewer"
        );
    }

    /// Six nodes are loaded, then the run in the sixth evicts the others. A phase begins when
    /// evictions exceed loads by three nodes; loads end it.
    #[test]
    fn a_sequential_phase_begins_with_lost_nodes_and_not_with_new_ones() {
        let mut nodes = Nodes::new(6 * 20 + 8 * 5, 3, PER_PAGE, 8192);
        let pending = pending();
        let first_of = |nodes: &Nodes, vtpn: u32| nodes.peek(vtpn * PER_PAGE).is_some();
        let (mut alone, mut prefetched) = (0, 0);
        (0..5).for_each(|vtpn| nodes.load(vtpn, &page(), vtpn * PER_PAGE, 0, &pending));
        for lpn in 7 * PER_PAGE..7 * PER_PAGE + 40 {
            if nodes.get(lpn, false).is_some() {
                continue;
            }
            let lost = (0..5).filter(|vtpn| !first_of(&nodes, *vtpn)).count();
            nodes.load(7, &page(), lpn, 0, &pending);
            match (lost >= 3, nodes.peek(lpn + 1).is_some()) {
                (false, false) => alone += 1,
                (true, true) => prefetched += 1,
                (_, more) => panic!("page {lpn}, {lost} nodes lost: prefetched: {more}"),
            }
            assert_eq!(nodes.evict(&pending), None);
        }
        assert!(alone > 10 && prefetched > 0, "{alone} and {prefetched}");
    }

    /// Both nodes have the mean 2 of their last uses, 1 and 4, and 2 and 3.
    #[test]
    fn of_equally_cold_nodes_the_one_of_the_lower_mapping_page_shrinks() {
        let mut nodes = Nodes::new(6 * 3 + 8 * 2, 0, PER_PAGE, 4096);
        for (vtpn, lpn) in [(1, PER_PAGE), (0, 0), (0, 1), (1, PER_PAGE + 1)] {
            nodes.load(vtpn, &page(), lpn, 0, &pending());
        }
        assert_eq!(nodes.evict(&pending()), None);
        assert_eq!(cached(&nodes, 0..2), [1]);
        assert_eq!(cached(&nodes, PER_PAGE..PER_PAGE + 2).len(), 2);
    }

    #[test]
    fn a_lookup_examines_the_node_and_then_the_entry() {
        let mut nodes = Nodes::new(6 * 6 + 8 * 2, 0, PER_PAGE, 4096);
        nodes.load(0, &page(), 0, 2, &pending());
        // A cached entry; another one of the same node; an entry without a node.
        let steps = [0, 9, PER_PAGE].map(|lpn| {
            let before = nodes.lookup_steps();
            assert_eq!(nodes.get(lpn, false).is_some(), lpn == 0);
            nodes.lookup_steps() - before
        });
        assert_eq!(steps, [2, 2, 1]);
    }

    #[test]
    fn a_lookup_by_list_examines_hotter_nodes_and_newer_entries_first() {
        let mut nodes = Nodes::new(6 * 9 + 8 * 3, 0, PER_PAGE, 4096).count_by_list(true);
        for vtpn in 0..3 {
            nodes.load(vtpn, &page(), vtpn * PER_PAGE, 2, &pending());
        }
        // The first entry of a node is its newest. One of the coldest node, the next of the
        // hottest, one that the second node does not have, one without a node.
        let lookups = [0, 2 * PER_PAGE + 1, PER_PAGE + 9, 3 * PER_PAGE];
        let steps = lookups.map(|lpn| {
            let before = nodes.lookup_steps();
            nodes.get(lpn, false);
            nodes.lookup_steps() - before
        });
        assert_eq!(steps, [3 + 1, 1 + 2, 2 + 3, 3]);
    }

    #[test]
    fn of_the_coldest_node_clean_entries_leave_first_and_dirty_ones_with_a_write_of_all() {
        let mut nodes = Nodes::new(6 * 6 + 8 * 2, 0, PER_PAGE, 4096);
        let mut pending = pending();
        nodes.load(0, &page(), 0, 2, &pending);
        nodes.load(1, &page(), PER_PAGE, 2, &pending);
        // The last entry of the colder node was used longest ago, but it is dirty.
        pending.update_entry(2, Some(Ppn::new(5)), false, 1);
        nodes.on_relocate(2, Some(Ppn::new(5)));
        nodes.load(1, &page(), PER_PAGE + 10, 0, &pending);
        assert_eq!(
            (nodes.evict(&pending), cached(&nodes, 0..3)),
            (None, vec![0, 2])
        );
        nodes.load(1, &page(), PER_PAGE + 11, 0, &pending);
        assert_eq!(
            (nodes.evict(&pending), cached(&nodes, 0..3)),
            (None, vec![2])
        );
        nodes.load(1, &page(), PER_PAGE + 12, 0, &pending);
        assert_eq!(
            (nodes.evict(&pending), cached(&nodes, 0..3)),
            (Some(0), vec![])
        );
    }
}
