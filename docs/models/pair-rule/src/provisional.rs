//! Padding commits the pages that a mount programs. The rule is that of
//! `ftl-core/src/scan/provisional.rs`, written down a second time.

use crate::flash::{Block, Content, Page};
use crate::state::Config;
use nand_model::PairTable;
use std::ops::Range;

/// Whether the padding at the end of a block, these pages, commits what is before it. Code:
/// `ftl-core/src/scan/provisional.rs`: `commits`.
pub fn commits(pairs: &PairTable, padding: Range<u8>) -> bool {
    let hit = || pairs.victims(padding.end as u32 - 1);
    let seam_end = padding.start as u32 + 2;
    padding.len() > 2 + hit().count()
        && hit().all(|page| page >= seam_end)
        && (padding.start as u32..seam_end).all(|page| {
            pairs
                .last_threat(page)
                .is_none_or(|threat| threat < padding.end as u32)
        })
}

/// Pages of padding with which a full block always commits the rest. Code:
/// `ftl-core/src/scan/provisional.rs`: `padding_per_block`.
pub fn padding_of_full_block(pairs: &PairTable, pages: u8) -> u8 {
    (1..pages)
        .find(|padding| commits(pairs, pages - padding..pages))
        .unwrap_or(pages)
}

/// The last page of a block and the pages that its program may have destroyed, as a mask. Code:
/// `ftl-core/src/scan/mod.rs`: `suspects`.
pub fn suspects(config: &Config, block: &Block) -> u16 {
    let Some(last) = block.frontier.checked_sub(1) else {
        return 0;
    };
    config
        .pairs
        .victims(last as u32)
        .fold(1 << last, |mask, victim| mask | 1 << victim)
}

/// The pages of a block whose record can be read and is committed, as a mask. Code:
/// `ftl-core/src/scan/mod.rs`: `committed_pages`; `ftl-core/src/scan/provisional.rs`:
/// `drop_uncommitted`.
pub fn committed_pages(config: &Config, block: &Block) -> u16 {
    let suspects = suspects(config, block);
    let is_suspect = |offset: usize| suspects >> offset & 1 == 1;
    let pages = &block.pages[..block.frontier as usize];
    let is_provisional = |page: &Page| page.data().is_some_and(|data| data.provisional);
    let is_final = |offset: usize| {
        pages[offset].has_record() && !is_provisional(&pages[offset]) && !is_suspect(offset)
    };
    let mut standing = (0..pages.len())
        .filter(|at| pages[*at].has_record())
        .fold(0, |mask, at| mask | 1u16 << at);
    let (mut committed, mut end) = (false, pages.len());
    while end > 0 {
        let kind = is_final(end - 1);
        let start = (0..end)
            .rev()
            .take_while(|at| is_final(*at) == kind)
            .last()
            .expect("the last one is");
        if kind {
            committed = true;
        } else if !committed || (start..end).any(is_suspect) {
            let dropped = (start..end).filter(|at| is_provisional(&pages[*at]));
            standing = dropped.fold(standing, |mask, at| mask & !(1 << at));
        }
        end = start;
    }
    standing
}

/// Whether a block holds anything that is committed. Code: `ftl-core/src/scan/mod.rs`:
/// `scan_head`, `is_committed_by_last_page`.
pub fn has_head(config: &Config, block: &Block) -> bool {
    let pages = &block.pages[..block.frontier as usize];
    let Some(first) = pages.iter().find(|page| page.has_record()) else {
        return false;
    };
    let is_provisional = |page: &Page| page.data().is_some_and(|data| data.provisional);
    let before_suspects = (suspects(config, block).trailing_zeros() as usize).checked_sub(1);
    let early =
        before_suspects.is_some_and(|at| pages[at].has_record() && !is_provisional(&pages[at]));
    let standing = committed_pages(config, block);
    let holds = |at: usize| standing >> at & 1 == 1 && pages[at].content != Content::Pad;
    !is_provisional(first) || early || (0..pages.len()).any(holds)
}
