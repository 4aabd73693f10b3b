//! What a mount programs counts only when filler behind it in its block vouches for it. Both sides of that rule: how much filler a
//! mount has to program, and what the next one makes of what it finds.
//!
//! What always holds, at whatever page power fails: of the pages between two stretches of filler all count or none does; once
//! [`vouches`] said so they count for good, whatever a later cut hits in the block, and though any one page of filler rots; and
//! losing pages never makes others count, so that a block whose erase was cut does not come back to life.

use crate::format::{Flags, Oob};
use nand_model::{PairTable, Ppn};
use std::ops::Range;

/// Whether the filler at the end of a block, these pages, vouches for what is before it. A cut that hits the last page, and its
/// partner with it, must leave two pages of that and not hit the first, where the filler meets what it vouches for; nor may a
/// later cut.
pub(crate) fn vouches(pairs: &PairTable, filler: Range<u32>) -> bool {
    let hit = pairs.lsb_of(filler.end - 1);
    filler.len() > 2 + hit.is_some() as usize
        && hit.is_none_or(|partner| partner > filler.start)
        && pairs.msb_of(filler.start).is_none_or(|msb| msb < filler.end)
}

/// Pages of filler with which a full block always vouches for the rest.
pub(crate) fn filler_of_full_block(pairs: &PairTable, pages: u32) -> u32 {
    (1..pages).find(|filler| vouches(pairs, pages - filler..pages)).unwrap_or(pages)
}

/// Takes out the runs of provisional pages, unreadable ones among them, that nothing vouches for: there is no final page behind the
/// run that no cut can have hit. A run that a cut can have hit was not vouched for when that struck.
pub(super) fn drop_unvouched(pages: &mut [(Ppn, Option<Oob>)], suspects: &[Ppn]) {
    let is_final = |slot: &Option<Oob>| slot.is_some_and(|oob| !oob.tag.flags.has(Flags::PROVISIONAL));
    let mut vouched = false;
    for run in pages.chunk_by_mut(|a, b| is_final(&a.1) == is_final(&b.1)).rev() {
        let mut suspected = run.iter().map(|(ppn, _)| suspects.contains(ppn));
        if is_final(&run[0].1) {
            vouched |= suspected.any(|suspected| !suspected);
        } else if !vouched || suspected.any(|suspected| suspected) {
            run.iter_mut().for_each(|(_, slot)| *slot = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{PageTag, Role};
    use nand_model::{Pairing, SplitMix};

    const PAGES: u32 = 32;
    const RULES: [Pairing; 5] = [Pairing::None, Pairing::Adjacent, Pairing::Dist3, Pairing::Dist6, Pairing::Shared4];

    fn page(provisional: bool) -> Oob {
        let (role, flags) = if provisional { (Role::Data, Flags::PROVISIONAL) } else { (Role::Pad, Flags::NONE) };
        Oob { tag: PageTag { role, flags, lpn: 0, ver: 0 }, pseq: 0, epoch: 0 }
    }

    /// A block as a mount fills it: runs of some length, each followed by filler until that vouches and every page has its
    /// partner. True is a provisional page. The second part tells for every run its pages and when it counted.
    fn filled(pairs: &PairTable, rng: &mut SplitMix) -> (Vec<bool>, Vec<(Range<u32>, u32)>) {
        let last = PAGES - filler_of_full_block(pairs, PAGES);
        let (mut block, mut runs) = (Vec::new(), Vec::new());
        while (block.len() as u32) < last {
            let begin = block.len() as u32;
            let end = last.min(begin + 1 + rng.below(9) as u32);
            block.resize(end as usize, true);
            let unpaired = |next: u32| (begin..end).any(|page| pairs.msb_of(page).is_some_and(|msb| msb >= next));
            while !vouches(pairs, end..block.len().max(end as usize + 1) as u32) || unpaired(block.len() as u32) {
                block.push(false);
            }
            runs.push((begin..end, block.len() as u32));
        }
        (block, runs)
    }

    /// The pages that count when the cut struck at page `at`, given what cannot be read.
    fn standing(pairs: &PairTable, block: &[bool], at: u32, lost: &[u32]) -> Vec<u32> {
        let mut pages: Vec<_> = (0..=at)
            .map(|offset| (Ppn::new(offset), (!lost.contains(&offset)).then(|| page(block[offset as usize]))))
            .collect();
        let suspects: Vec<Ppn> = [Some(at), pairs.lsb_of(at)].into_iter().flatten().map(Ppn::new).collect();
        drop_unvouched(&mut pages, &suspects);
        pages.iter().filter(|(_, slot)| slot.is_some()).map(|(ppn, _)| ppn.raw()).collect()
    }

    #[test]
    fn of_a_run_all_pages_count_or_none_and_they_count_from_the_moment_it_is_vouched_for() {
        for rule in RULES {
            let pairs = PairTable::new(rule, PAGES);
            let mut rng = SplitMix::new(1);
            for _ in 0..200 {
                let (block, runs) = filled(&pairs, &mut rng);
                for at in 0..block.len() as u32 {
                    let partner: Vec<u32> = pairs.lsb_of(at).into_iter().collect();
                    for lost in [vec![], vec![at], partner.clone(), [partner, vec![at]].concat()] {
                        let standing = standing(&pairs, &block, at, &lost);
                        for (run, counted) in runs.iter().filter(|(run, _)| run.start <= at) {
                            let readable = || run.clone().filter(|page| *page <= at && !lost.contains(page));
                            let there = readable().filter(|page| standing.contains(page)).count();
                            assert!(there == 0 || there == readable().count(), "{rule:?} {run:?} cut at {at}: {there}");
                            assert!(*counted > at || there == run.len(), "{rule:?} {run:?} cut at {at}: {there}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_page_of_filler_may_rot() {
        for rule in RULES {
            let pairs = PairTable::new(rule, PAGES);
            let mut rng = SplitMix::new(2);
            for _ in 0..200 {
                let (block, runs) = filled(&pairs, &mut rng);
                for (run, counted) in runs {
                    for rotten in run.end..counted {
                        let standing = standing(&pairs, &block, counted - 1, &[rotten]);
                        assert!(run.clone().all(|page| standing.contains(&page)), "{rule:?} {run:?} without {rotten}");
                    }
                }
            }
        }
    }

    #[test]
    fn losing_pages_makes_no_other_page_count() {
        for rule in RULES {
            let pairs = PairTable::new(rule, PAGES);
            let mut rng = SplitMix::new(3);
            for _ in 0..500 {
                let (block, _) = filled(&pairs, &mut rng);
                let at = rng.below(block.len() as u64) as u32;
                let all = standing(&pairs, &block, at, &[]);
                let lost: Vec<u32> = (0..=at).filter(|_| rng.one_in(3)).collect();
                let some = standing(&pairs, &block, at, &lost);
                assert!(some.iter().all(|page| all.contains(page)), "{rule:?} cut at {at}: {some:?} of {all:?}");
            }
        }
    }
}
