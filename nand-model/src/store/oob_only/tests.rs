//! Compares the OOB-only store with a store that keeps whole OOBs.

use super::*;
use crate::rng::SplitMix;
use crate::store::MemStore;

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    ways: 1,
    planes: 1,
    multi_plane: crate::MultiPlane::Off,
    blocks: 16,
    pages_per_block: 16,
    page_bytes: 512,
    oob_bytes: 64,
};

/// Programs, marks, reads and erases OOBs of several lengths, and compares every read with a store
/// of whole OOBs. The second halves of a block's OOBs are equal, except `odd` % of them.
fn reads_as_if_kept_whole(odd: u64, lengths: &[usize]) -> OobOnlyStore {
    let (mut small, mut whole) = (OobOnlyStore::new(GEOMETRY), MemStore::new(GEOMETRY));
    let mut rng = SplitMix::new(odd + lengths.len() as u64);
    let mut next = [0; 16];
    for _ in 0..3_000 {
        let block = rng.below(16) as u32;
        let at = next[block as usize];
        if at == 16 {
            next[block as usize] = 0;
            for store in [&mut small as &mut dyn Keeps, &mut whole] {
                store.erase(block);
            }
            continue;
        }
        let first = GEOMETRY.page(Pbn::new(block), at);
        let count = 1 + rng.below((16 - at) as u64) as u32;
        let length = lengths[rng.below(lengths.len() as u64) as usize];
        let mut oobs = Vec::new();
        for _ in 0..count {
            let mut oob = vec![block as u8; length];
            oob.iter_mut()
                .take(16)
                .for_each(|byte| *byte = rng.next_u64() as u8);
            if rng.below(100) < odd {
                oob.iter_mut()
                    .skip(16)
                    .for_each(|byte| *byte = rng.next_u64() as u8);
            }
            oobs.extend(oob);
        }
        next[block as usize] += count;
        let marked = rng.one_in(3).then(|| {
            (
                Ppn::new(first.raw() + rng.below(count as u64) as u32),
                rng.next_u64().to_le_bytes(),
            )
        });
        let mut read = Vec::new();
        for store in [&mut small as &mut dyn Keeps, &mut whole] {
            store.program(first, count, &oobs);
            if let Some((ppn, mark)) = &marked {
                store.mark(*ppn, mark);
            }
            let pages: Vec<_> = (0..next[block as usize])
                .map(|offset| GEOMETRY.page(Pbn::new(block), offset))
                .collect();
            read.push([10, 32, 64].map(|part| {
                (
                    store.run(pages[0], pages.len(), part),
                    store.pages(&pages, part),
                )
            }));
        }
        assert_eq!(read[0], read[1]);
    }
    small
}

/// The operations under test, of both stores.
trait Keeps {
    fn program(&mut self, first: Ppn, count: u32, oobs: &[u8]);
    fn mark(&mut self, ppn: Ppn, oob: &[u8]);
    fn erase(&mut self, block: u32);
    fn run(&mut self, first: Ppn, count: usize, part: usize) -> Vec<u8>;
    fn pages(&mut self, pages: &[Ppn], part: usize) -> Vec<u8>;
}

impl<S: Store> Keeps for S {
    fn program(&mut self, first: Ppn, count: u32, oobs: &[u8]) {
        Store::program(self, first, count, &vec![0; count as usize * 512], oobs).unwrap();
    }
    fn mark(&mut self, ppn: Ppn, oob: &[u8]) {
        self.and_oob(ppn, oob).unwrap();
    }
    fn erase(&mut self, block: u32) {
        Store::erase(self, Pbn::new(block), BlockFacts::default()).unwrap();
    }
    fn run(&mut self, first: Ppn, count: usize, part: usize) -> Vec<u8> {
        let mut oobs = vec![0; count * part];
        self.read(first, &mut [], &mut oobs, &mut vec![Health::Good; count])
            .unwrap();
        oobs
    }
    fn pages(&mut self, pages: &[Ppn], part: usize) -> Vec<u8> {
        let mut oobs = vec![0; pages.len() * part];
        self.read_pages(
            pages,
            &mut [],
            &mut oobs,
            &mut vec![Health::Good; pages.len()],
        )
        .unwrap();
        oobs
    }
}

#[test]
fn oobs_read_as_in_a_store_that_keeps_them_whole() {
    for odd in [0, 1, 100] {
        for lengths in [&[32][..], &[26, 4, 32], &[32, 40, 64, 0]] {
            let store = reads_as_if_kept_whole(odd, lengths);
            let shares = matches!(store.second_halves, SecondHalves::Shared(..));
            assert_eq!(
                shares,
                odd == 0 && lengths == [32],
                "{odd} % odd, {lengths:?} bytes"
            );
        }
    }
}

#[test]
fn what_it_does_not_keep_is_good_and_cannot_go_astray() {
    let mut store = OobOnlyStore::new(GEOMETRY);
    let page = |offset| GEOMETRY.page(Pbn::new(2), offset);
    store
        .program_as(page(0), &[1; 512], &[5; SLOT], Health::Lost)
        .unwrap();
    store.set_health(page(0), Health::Lost).unwrap();
    store
        .set_facts(
            Pbn::new(2),
            BlockFacts {
                erase_interrupted: true,
                ..BlockFacts::default()
            },
        )
        .unwrap();
    let (mut oob, mut health) = ([0; SLOT], [Health::Lost]);
    store
        .read_pages(&[page(0)], &mut [], &mut oob, &mut health)
        .unwrap();
    assert_eq!((oob, health), ([5; SLOT], [Health::Good]));
    store
        .read_pages(&[page(0)], &mut [9; 512], &mut [], &mut health)
        .unwrap();
    let cells = crate::store::Cells {
        data: vec![0; 512],
        oob: vec![0; 64],
        tag: 1,
    };
    assert!(store.cells(page(0)).is_err() && store.put_cells(page(1), &cells).is_err());
    let mut blocks = 0;
    store
        .load(&mut |_, facts, counts| {
            assert_eq!((facts, counts), (BlockFacts::default(), &[0; 16][..]));
            blocks += 1;
        })
        .unwrap();
    assert_eq!(
        (blocks, store.keeps_data(), store.hour(), store.tag(page(0))),
        (16, false, 0, None)
    );
}
