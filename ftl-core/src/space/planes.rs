//! Superblocks, on chips with multi-plane commands: a stream has an open block on each plane of a
//! die, so that consecutive pages of a request go to one page number of all planes.
//!
//! Definitions. A *lane* is a stream with one open block. The lanes of a *superblock* are on one
//! die, one per plane. They are in step if their blocks have equally many programmed pages.
//!
//! Invariants: pages go to the lane with the fewest programmed pages. Padding and failed programs
//! bring lanes out of step, and later pages bring them in step again. A lane without a free block
//! of its plane takes any other; then its pages share no array time.
//!
//! If power fails, each plane's page may be torn. Each lane is a stream of its own, so the rules
//! for unsafe pages hold for each block.

use super::state::Space;
use super::streams::StreamId;
use crate::int::{index, low_u8};

/// Place of a stream in a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    stream: StreamId,
    /// First stream of the superblock.
    first: StreamId,
    plane: u8,
}

impl Space {
    /// Makes these streams the lanes of superblocks, one per plane.
    pub(crate) fn join_planes(&mut self, lanes: &[StreamId]) {
        let planes = index(self.geometry().joint_planes());
        assert!(
            planes > 1 && lanes.len().is_multiple_of(planes),
            "{} lanes on {planes} planes",
            lanes.len()
        );
        for superblock in lanes.chunks_exact(planes) {
            for (plane, stream) in (0..).zip(superblock) {
                self.lanes.push(Lane {
                    stream: *stream,
                    first: superblock[0],
                    plane: low_u8(plane),
                });
            }
        }
    }

    /// Returns the position of the lane that takes the page after one of the lane at `turn`.
    pub(crate) fn lane_after(&self, lanes: &[StreamId], turn: usize) -> usize {
        let planes = index(self.geometry().joint_planes());
        if planes == 1 {
            return (turn + 1) % lanes.len();
        }
        let superblock = turn / planes;
        if let Some(lane) = self.lane_behind(&lanes[superblock * planes..][..planes]) {
            return superblock * planes + lane;
        }
        let next = (superblock + 1) * planes % lanes.len();
        next + self.lane_behind(&lanes[next..][..planes]).unwrap_or(0)
    }

    /// Returns the first lane of a superblock with the fewest pages; `None` if all are in step.
    fn lane_behind(&self, lanes: &[StreamId]) -> Option<usize> {
        let open = lanes
            .iter()
            .filter_map(|lane| self.streams[*lane].open.as_ref());
        // Pages of a block; fewer in SLC mode.
        let (least, pages) = open.map(|open| (open.next, open.end())).min()?;
        // Lanes open and close blocks together: a lane without a block counts as empty in the first
        // half of the others' blocks, as full in the second.
        let closed = if least > pages / 2 { pages } else { 0 };
        let filled = |lane: &StreamId| self.open_block(*lane).map_or(closed, |(_, next)| next);
        let (least, most) = (
            lanes.iter().map(filled).min()?,
            lanes.iter().map(filled).max()?,
        );
        if least == most {
            return None;
        }
        lanes.iter().position(|lane| filled(lane) == least)
    }

    /// Returns the die and the plane on which a stream opens its next block, if it prefers any. The
    /// lanes of a superblock follow the one that opened a block first.
    pub(super) fn place_of_next(&self, stream: StreamId) -> (Option<u32>, Option<u32>) {
        let of = &self.streams[stream];
        let Some(lane) = self.lanes.iter().find(|lane| lane.stream == stream) else {
            return (of.die, None);
        };
        let is_other = |other: &&Lane| other.first == lane.first && other.stream != stream;
        let others = self.lanes.iter().filter(is_other);
        let opened = others
            .filter_map(|other| self.open_block(other.stream))
            .next();
        let die = opened.map(|(block, _)| self.geometry().die_of(block));
        (die.or(of.die), Some(u32::from(lane.plane)))
    }
}
