//! Programming again what the cut may have left unstable, so that it stays what this mount has
//! seen.
//!
//! What always holds: a block that holds what would rule in the place of such a page is released
//! only when the page's copy is safe. If power fails before, the copies do not count
//! ([`crate::space`]), and the next mount finds what this one found.

use super::evidence::Version;
use crate::block_table::State;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Geometry, Pbn, Ppn, Store};
use std::collections::HashSet;

/// A page to program again.
pub(crate) struct Rescue {
    pub(crate) tag: PageTag,
    pub(crate) from: Ppn,
    data: Vec<u8>,
}

/// The pages to program again, and the blocks that wait for it.
#[derive(Default)]
pub(crate) struct Rescues {
    pages: Vec<Rescue>,
    pinned: HashSet<Pbn>,
}

/// A scheme, or its tables, during a mount.
pub(crate) trait Rescuer<S: Store> {
    fn space(&mut self) -> &mut Space<S>;

    /// Where copies of pages with this role go, and which role they have.
    fn copies_of(&self, role: Role) -> (StreamId, Role);

    /// A page was copied by program `seq`: its owner names the copy from now on, and the page
    /// itself is dead.
    fn copied(&mut self, rescue: &Rescue, to: Ppn, seq: u64);
}

impl Rescues {
    pub(crate) fn add(&mut self, version: &Version, data: Vec<u8>) {
        self.pages.push(Rescue {
            tag: version.oob.tag,
            from: version.ppn,
            data,
        });
    }

    /// The blocks of these pages stay until everything is programmed again.
    pub(crate) fn pin(&mut self, geometry: &Geometry, pages: impl IntoIterator<Item = Ppn>) {
        let pages = pages.into_iter().filter(|ppn| geometry.contains(*ppn));
        self.pinned.extend(pages.map(|ppn| geometry.block_of(ppn)));
    }

    /// Programs the pages again that are still live. Returns how many.
    ///
    /// # Errors
    /// There is no block left, power is lost, or the host cannot write the image.
    pub(crate) fn program<S: Store>(
        &mut self,
        rescuer: &mut impl Rescuer<S>,
    ) -> Result<u64, FtlError> {
        let mut programmed = 0;
        for rescue in std::mem::take(&mut self.pages) {
            if !rescuer.space().table.is_live(rescue.from) {
                continue;
            }
            programmed += 1;
            let (stream, role) = rescuer.copies_of(rescue.tag.role);
            let space = rescuer.space();
            if space.room(stream) == 0 {
                space.reclaim(Cause::Recovery)?;
            }
            let tag = PageTag {
                role,
                flags: rescue.tag.flags.with(Flags::COPY),
                ..rescue.tag
            };
            let seq = space.flash.pseq() + 1;
            let (to, _) = space.append(stream, &[tag], &rescue.data, Cause::Recovery)?;
            assert!(
                rescuer.space().flash.pseq() >= seq,
                "the rescue of {} has no number",
                rescue.from
            );
            rescuer.copied(&rescue, to, seq);
            debug_assert!(
                !rescuer.space().table.is_live(rescue.from),
                "page {} is live after its rescue",
                rescue.from
            );
        }
        rescuer.space().make_safe()?;
        Ok(programmed)
    }

    /// Full blocks become collectable. Returns those without live pages, which may be released:
    /// `pinned` ones only if they need not wait any more. Blocks that the scheme deals with itself
    /// (`of_scheme`) stay as they are.
    pub(crate) fn settle_blocks<S: Store>(
        &self,
        space: &mut Space<S>,
        checkpoints: &Checkpoints,
        pinned_wait: bool,
        of_scheme: impl Fn(Pbn) -> bool,
    ) -> Vec<Pbn> {
        let mut dead = Vec::new();
        for block in space.geometry().all_blocks() {
            let is_full = space.table.state(block) == State::Full;
            if !is_full || of_scheme(block) || checkpoints.owns(block) {
                continue;
            }
            if space.table.valid(block) > 0 {
                space.table.set_collectable(block);
            } else if !(pinned_wait && self.pinned.contains(&block)) {
                dead.push(block);
            }
        }
        dead
    }
}
