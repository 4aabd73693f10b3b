//! Provisional pages: a mount's page is committed only by padding after it in its block, or by a
//! program that fails there. This module determines the padding that a mount must program, and the
//! uncommitted pages that the next mount must drop.
//!
//! Invariants: wherever power fails, the pages between two runs of padding are all committed or all
//! not. Once [`commits`] has returned true they stay committed, even if a later cut
//! hits the block or any one padding page decays. The loss of pages never commits other pages, so a
//! block with an interrupted erase does not become valid again.

use crate::format::{Flags, Oob};
use nand_model::{PairTable, Ppn};
use std::ops::Range;

/// Returns whether `padding`, the padding at the end of a block, commits the pages before it:
///
/// - a cut in its last program cannot damage its first two pages, nor can a later program;
/// - at least two of its pages survive that cut, so that one of them may decay;
/// - no later program can damage a page before it. Padding of an earlier mount counts as a page
///   before it. If it were damaged, the next mount could not distinguish it from the run that
///   follows.
pub(crate) fn commits(pairs: &PairTable, padding: Range<u32>) -> bool {
    assert!(!padding.is_empty(), "the range of padding is empty");
    let hit = || pairs.victims(padding.end - 1);
    let seam = padding.start..padding.start + 2;
    let before = padding.start.saturating_sub(pairs.span())..padding.start;
    padding.len() > 2 + hit().count()
        && hit().all(|victim| victim >= seam.end)
        && before.chain(seam.clone()).all(|page| {
            pairs
                .last_threat(page)
                .is_none_or(|threat| threat < padding.end)
        })
}

/// Returns the number of padding pages that always commit the rest of a full block.
pub(crate) fn padding_per_block(pairs: &PairTable, pages: u32) -> u32 {
    (1..pages)
        .find(|padding| commits(pairs, pages - padding..pages))
        .unwrap_or(pages)
}

/// Drops the provisional pages of runs that no padding commits: no readable page without that flag
/// follows, or a cut may have hit a page of the run, so that the padding was incomplete at that
/// cut. Unreadable pages belong to runs. So do suspects: they may become unreadable later, and
/// every mount must reach the same result.
pub(super) fn drop_uncommitted(pages: &mut [(Ppn, Option<Oob>)], suspects: &[Ppn]) {
    debug_assert!(
        pages.is_sorted_by_key(|(ppn, _)| *ppn),
        "pages of a block are not in ascending order"
    );
    let is_provisional =
        |slot: &Option<Oob>| slot.is_some_and(|oob| oob.tag.flags.has(Flags::PROVISIONAL));
    if !pages.iter().any(|(_, slot)| is_provisional(slot)) {
        return;
    }
    let is_final = |(ppn, slot): &(Ppn, Option<Oob>)| {
        slot.is_some() && !is_provisional(slot) && !suspects.contains(ppn)
    };
    let mut committed = false;
    for run in pages.chunk_by_mut(|a, b| is_final(a) == is_final(b)).rev() {
        if is_final(&run[0]) {
            committed = true;
        } else if !committed || run.iter().any(|(ppn, _)| suspects.contains(ppn)) {
            run.iter_mut()
                .map(|(_, slot)| slot)
                .filter(|slot| is_provisional(slot))
                .for_each(|slot| *slot = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{PageTag, Role};
    use nand_model::{Pairing, SplitMix};

    const PAGES: u32 = 32;
    const RULES: [Pairing; 10] = [
        Pairing::None,
        Pairing::Adjacent,
        Pairing::Dist3,
        Pairing::Dist6,
        Pairing::Shared4,
        Pairing::Group4,
        Pairing::Random { seed: 1, span: 7 },
        Pairing::Random { seed: 2, span: 5 },
        Pairing::Random { seed: 3, span: 3 },
        Pairing::Random {
            seed: 2652,
            span: 5,
        },
    ];

    fn page(provisional: bool) -> Oob {
        let (role, flags) = if provisional {
            (Role::Data, Flags::PROVISIONAL)
        } else {
            (Role::Pad, Flags::NONE)
        };
        Oob {
            tag: PageTag {
                role,
                flags,
                lpn: 0,
                ver: 0,
            },
            pseq: 0,
            epoch: 0,
        }
    }

    /// Returns a block as a mount fills it: runs of random length, each followed by padding. The
    /// padding ends when it commits the run and no later program can damage the run. `true` is a
    /// provisional page. The second part contains, for every run, its pages and the page before
    /// which it was committed.
    fn filled(pairs: &PairTable, rng: &mut SplitMix) -> (Vec<bool>, Vec<(Range<u32>, u32)>) {
        let last = PAGES - padding_per_block(pairs, PAGES);
        let (mut block, mut runs) = (Vec::new(), Vec::new());
        while (block.len() as u32) < last {
            let begin = block.len() as u32;
            let end = last.min(begin + 1 + rng.below(9) as u32);
            block.resize(end as usize, true);
            let unsafe_yet = |next: u32| {
                (begin..end)
                    .any(|page| pairs.last_threat(page).is_some_and(|threat| threat >= next))
            };
            while !commits(pairs, end..block.len().max(end as usize + 1) as u32)
                || unsafe_yet(block.len() as u32)
            {
                block.push(false);
            }
            runs.push((begin..end, block.len() as u32));
        }
        (block, runs)
    }

    /// Returns the pages that a cut in the program of page `at` can have damaged.
    fn hit(pairs: &PairTable, at: u32) -> Vec<u32> {
        pairs.victims(at).chain([at]).collect()
    }

    /// Returns the committed pages after a cut at page `at`, if the pages `lost` are unreadable.
    fn standing(pairs: &PairTable, block: &[bool], at: u32, lost: &[u32]) -> Vec<u32> {
        let mut pages: Vec<_> = (0..=at)
            .map(|offset| {
                (
                    Ppn::new(offset),
                    (!lost.contains(&offset)).then(|| page(block[offset as usize])),
                )
            })
            .collect();
        let suspects: Vec<Ppn> = hit(pairs, at).into_iter().map(Ppn::new).collect();
        drop_uncommitted(&mut pages, &suspects);
        pages
            .iter()
            .filter(|(_, slot)| slot.is_some())
            .map(|(ppn, _)| ppn.raw())
            .collect()
    }

    #[test]
    fn of_a_run_all_pages_count_or_none_and_they_count_from_the_moment_padding_commits_it() {
        for rule in RULES {
            let pairs = PairTable::new(rule, PAGES);
            let mut rng = SplitMix::new(1);
            for _ in 0..200 {
                let (block, runs) = filled(&pairs, &mut rng);
                for at in 0..block.len() as u32 {
                    let (hit, whole) = (hit(&pairs, at), standing(&pairs, &block, at, &[]));
                    for some in 0..1u32 << hit.len() {
                        let lost: Vec<u32> = (0..)
                            .zip(&hit)
                            .filter(|(n, _)| some >> n & 1 == 1)
                            .map(|(_, page)| *page)
                            .collect();
                        let standing = standing(&pairs, &block, at, &lost);
                        let mut before = whole.clone();
                        before.retain(|page| !lost.contains(page));
                        assert_eq!(
                            standing, before,
                            "{rule:?} cut at {at}: another verdict without {lost:?}"
                        );
                        for (run, counted) in runs.iter().filter(|(run, _)| run.start <= at) {
                            let readable = || {
                                run.clone()
                                    .filter(|page| *page <= at && !lost.contains(page))
                            };
                            let there = readable().filter(|page| standing.contains(page)).count();
                            assert!(
                                there == 0 || there == readable().count(),
                                "{rule:?} {run:?} cut at {at}: {there}"
                            );
                            assert!(
                                *counted > at || there == run.len(),
                                "{rule:?} {run:?} cut at {at}: {there}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_page_of_padding_may_decay() {
        for rule in RULES {
            let pairs = PairTable::new(rule, PAGES);
            let mut rng = SplitMix::new(2);
            for _ in 0..200 {
                let (block, runs) = filled(&pairs, &mut rng);
                for (run, counted) in runs {
                    for lost in run.end..counted {
                        let standing = standing(&pairs, &block, counted - 1, &[lost]);
                        assert!(
                            run.clone().all(|page| standing.contains(&page)),
                            "{rule:?} {run:?} without {lost}"
                        );
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
                assert!(
                    some.iter().all(|page| all.contains(page)),
                    "{rule:?} cut at {at}: {some:?} of {all:?}"
                );
            }
        }
    }
}
