//! Rewrite of pages that the cut may have left unstable, so that they keep the content that this
//! mount has read.
//!
//! Invariants: a block with an older version of such a page is released only after the page's copy
//! is safe. If power fails before, the copies are not committed ([`crate::space`]), and the next
//! mount finds the same versions as this one.

use super::evidence::Version;
use crate::block_table::State;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Geometry, Pbn, Ppn};
use std::collections::HashSet;

/// Page to rewrite.
pub(crate) struct Rewrite {
    pub(crate) tag: PageTag,
    pub(crate) from: Ppn,
    data: Vec<u8>,
}

/// Pages to rewrite, and the blocks that stay until then.
#[derive(Default)]
pub(crate) struct Rewrites {
    pages: Vec<Rewrite>,
    pinned: HashSet<Pbn>,
}

/// A scheme, or its tables, during a mount.
pub(crate) trait Rewriter {
    fn space(&mut self) -> &mut Space;

    /// Returns the stream and the role for copies of pages with this role.
    fn copies_of(&self, role: Role) -> (StreamId, Role);

    /// Records that program `seq` copied a page: its owner now names the copy, and the page itself
    /// is invalid.
    fn copied(&mut self, rewrite: &Rewrite, to: Ppn, seq: u64);
}

impl Rewrites {
    pub(crate) fn add(&mut self, version: &Version, data: Vec<u8>) {
        debug_assert!(
            self.pages.iter().all(|page| page.from != version.ppn),
            "page {} is to be rewritten twice",
            version.ppn
        );
        self.pages.push(Rewrite {
            tag: version.oob.tag,
            from: version.ppn,
            data,
        });
    }

    /// Keeps the blocks of these pages until all pages are rewritten.
    pub(crate) fn pin(&mut self, geometry: &Geometry, pages: impl IntoIterator<Item = Ppn>) {
        let pages = pages.into_iter().filter(|ppn| geometry.contains(*ppn));
        self.pinned.extend(pages.map(|ppn| geometry.block_of(ppn)));
    }

    /// Rewrites the pages that are still valid. Returns their number.
    ///
    /// # Errors
    /// No block is left, power is lost, or the host cannot write the image.
    pub(crate) fn program(&mut self, rewriter: &mut impl Rewriter) -> Result<u64, FtlError> {
        rewriter.space().set_rewriting(true);
        let programmed = self.program_all(rewriter);
        rewriter.space().set_rewriting(false);
        programmed
    }

    fn program_all(&mut self, rewriter: &mut impl Rewriter) -> Result<u64, FtlError> {
        let mut programmed = 0;
        for rewrite in std::mem::take(&mut self.pages) {
            if !rewriter.space().table.is_valid(rewrite.from) {
                continue;
            }
            programmed += 1;
            let (stream, role) = rewriter.copies_of(rewrite.tag.role);
            let space = rewriter.space();
            if space.room(stream) == 0 {
                space.erase_released(Cause::Recovery)?;
            }
            let tag = PageTag {
                role,
                flags: rewrite.tag.flags.with(Flags::COPY),
                ..rewrite.tag
            };
            let seq = space.flash.pseq() + 1;
            let (to, _) = space.append(stream, &[tag], &rewrite.data, Cause::Recovery)?;
            let block = space.geometry().block_of(rewrite.from);
            space.flash.findings.rewrote(block);
            assert!(
                rewriter.space().flash.pseq() >= seq,
                "rewrite of page {} did not get sequence number {seq} or a later one",
                rewrite.from
            );
            rewriter.copied(&rewrite, to, seq);
            debug_assert!(
                !rewriter.space().table.is_valid(rewrite.from),
                "page {} is still valid after its rewrite",
                rewrite.from
            );
        }
        rewriter.space().make_safe()?;
        Ok(programmed)
    }

    /// Makes full blocks with valid pages collectable, in the order in which they were opened: of
    /// equal blocks GC takes the oldest first, before the mount and after it. Returns the blocks
    /// without valid pages, which may be released: pinned blocks only if `pinned_wait` is false.
    /// Blocks that the scheme handles itself (`of_scheme`) stay as they are.
    pub(crate) fn classify_blocks(
        &self,
        space: &mut Space,
        checkpoints: &Checkpoints,
        pinned_wait: bool,
        of_scheme: impl Fn(Pbn) -> bool,
    ) -> Vec<Pbn> {
        let (mut valid, mut empty) = (Vec::new(), Vec::new());
        for block in space.geometry().all_blocks() {
            let is_full = space.table.state(block) == State::Full;
            if !is_full || of_scheme(block) || checkpoints.owns(block) {
                continue;
            }
            if space.table.valid_count(block) > 0 {
                valid.push((space.table.epoch(block), block));
            } else if !(pinned_wait && self.pinned.contains(&block)) {
                empty.push(block);
            }
        }
        valid.sort_unstable();
        for (_, block) in valid {
            space.table.set_collectable(block);
        }
        empty
    }
}
