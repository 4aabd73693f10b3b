//! Workloads: endless seeded sequences of requests. Kind, seed and device size determine a
//! workload.

use crate::plan_text::is_default;
use nand_model::SplitMix;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HostOp {
    /// Write `count` pages; with `fua`, they are durable when it returns (a write and a FLUSH).
    Write {
        /// First page.
        lpn: u32,
        /// Pages.
        count: u32,
        /// Durable at once.
        #[serde(default, skip_serializing_if = "is_default")]
        fua: bool,
    },
    /// Write pages that hold zeros.
    WriteZeroData {
        /// First page.
        lpn: u32,
        /// Pages.
        count: u32,
    },
    /// Make pages read as zeros; served like a trim.
    WriteZeroes {
        /// First page.
        lpn: u32,
        /// Pages.
        count: u32,
        /// Durable at once.
        #[serde(default, skip_serializing_if = "is_default")]
        fua: bool,
    },
    /// Discard pages; they read as zeros.
    Trim {
        /// First page.
        lpn: u32,
        /// Pages.
        count: u32,
    },
    /// Make everything acknowledged durable.
    Flush,
    /// Read and compare.
    Read {
        /// First page.
        lpn: u32,
        /// Pages.
        count: u32,
    },
    /// Idle for about this many flash operations.
    Idle(u32),
}

impl HostOp {
    /// The pages whose content it replaces: first and count.
    pub fn replaces(&self) -> Option<(u32, u32)> {
        match *self {
            HostOp::Write { lpn, count, .. }
            | HostOp::WriteZeroData { lpn, count }
            | HostOp::WriteZeroes { lpn, count, .. }
            | HostOp::Trim { lpn, count } => Some((lpn, count)),
            HostOp::Flush | HostOp::Read { .. } | HostOp::Idle(_) => None,
        }
    }
}

/// Shape of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ascending extents, repeatedly.
    Sequential,
    /// Descending extents, repeatedly.
    Backwards,
    /// Single pages at a fixed distance from each other.
    Strided,
    /// Single random pages.
    Uniform,
    /// Nine writes of ten go to a tenth of the pages.
    HotCold,
    /// As [`Self::HotCold`], with a moving hot area.
    MovingHot,
    /// Appends to a small ring, each durable at once, and sometimes a page elsewhere: a database
    /// and its log.
    Log,
    /// A FLUSH after every other request.
    FlushHeavy,
    /// A third of the requests are trims, up to half a device long.
    TrimHeavy,
    /// Extents written page by page and later trimmed as a whole: files that are created and
    /// deleted.
    Files,
    /// Every page is mapped; trimmed pages are written again at once.
    FullDisk,
    /// Extents of 1 to 24 pages anywhere.
    Mixed,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 12] = [
        Kind::Sequential,
        Kind::Backwards,
        Kind::Strided,
        Kind::Uniform,
        Kind::HotCold,
        Kind::MovingHot,
        Kind::Log,
        Kind::FlushHeavy,
        Kind::TrimHeavy,
        Kind::Files,
        Kind::FullDisk,
        Kind::Mixed,
    ];

    /// Name in the path of a case.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Sequential => "sequential",
            Kind::Backwards => "backwards",
            Kind::Strided => "strided",
            Kind::Uniform => "uniform",
            Kind::HotCold => "hot_cold",
            Kind::MovingHot => "moving_hot",
            Kind::Log => "log",
            Kind::FlushHeavy => "flush_heavy",
            Kind::TrimHeavy => "trim_heavy",
            Kind::Files => "files",
            Kind::FullDisk => "full_disk",
            Kind::Mixed => "mixed",
        }
    }
}

/// An endless sequence of requests.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: Kind,
    pages: u32,
    rng: SplitMix,
    cursor: u32,
    /// Requests that must come next.
    queued: VecDeque<HostOp>,
}

/// Pages from one write of [`Kind::Strided`] to the next; coprime to the device sizes in use.
const STRIDE: u32 = 37;

/// Longest extent written at once, in pages.
pub const MAX_EXTENT: u32 = 24;

impl Workload {
    /// Creates a workload over a device of `pages` pages. It first fills the device, or four fifths
    /// of it if the kind has unmapped pages.
    pub fn new(kind: Kind, pages: u32, seed: u64) -> Self {
        let filled = if kind == Kind::FullDisk {
            pages
        } else {
            pages / 5 * 4
        };
        let mut workload = Workload {
            kind,
            pages,
            rng: SplitMix::new(seed),
            cursor: 0,
            queued: VecDeque::new(),
        };
        let mut lpn = 0;
        while lpn < filled {
            let count = workload.length(8).min(filled - lpn);
            workload.queued.push_back(HostOp::Write {
                lpn,
                count,
                fua: false,
            });
            lpn += count;
            if workload.rng.one_in(10) {
                workload.queued.push_back(HostOp::Flush);
            }
        }
        workload
    }

    /// A workload on a device that is already filled.
    pub fn continued(kind: Kind, pages: u32, seed: u64) -> Self {
        Workload {
            kind,
            pages,
            rng: SplitMix::new(seed),
            cursor: 0,
            queued: VecDeque::new(),
        }
    }

    fn length(&mut self, longest: u64) -> u32 {
        1 + self.rng.below(longest) as u32
    }

    fn any_page(&mut self) -> u32 {
        self.rng.below(self.pages as u64) as u32
    }

    fn extent(&mut self, longest: u64) -> (u32, u32) {
        let lpn = self.any_page();
        (lpn, self.length(longest).min(self.pages - lpn))
    }

    /// The next target of a write.
    fn target(&mut self) -> (u32, u32) {
        match self.kind {
            Kind::Sequential => {
                let lpn = if self.cursor >= self.pages {
                    0
                } else {
                    self.cursor
                };
                let count = self.length(8).min(self.pages - lpn);
                self.cursor = lpn + count;
                (lpn, count)
            }
            Kind::Backwards => {
                let end = if self.cursor == 0 {
                    self.pages
                } else {
                    self.cursor
                };
                let count = self.length(8).min(end);
                self.cursor = end - count;
                (self.cursor, count)
            }
            Kind::Strided => {
                self.cursor = (self.cursor + STRIDE) % self.pages;
                (self.cursor, 1)
            }
            Kind::Uniform | Kind::FullDisk | Kind::TrimHeavy | Kind::FlushHeavy => {
                (self.any_page(), 1)
            }
            Kind::HotCold | Kind::MovingHot | Kind::Log if self.rng.one_in(10) => {
                (self.any_page(), 1)
            }
            Kind::HotCold => (self.rng.below((self.pages / 10) as u64) as u32, 1),
            Kind::MovingHot => {
                self.cursor += 1;
                let hot = self.pages / 10;
                (
                    (self.cursor / 8 + self.rng.below(hot as u64) as u32) % self.pages,
                    1,
                )
            }
            Kind::Log => {
                self.cursor = (self.cursor + 1) % (self.pages / 8);
                (self.cursor, 1)
            }
            Kind::Files => self.extent(16),
            Kind::Mixed => self.extent(MAX_EXTENT as u64),
        }
    }

    /// Writes a file page by page, and trims another one if it exists.
    fn rewrite_file(&mut self) -> HostOp {
        let (lpn, count) = self.target();
        self.queued
            .extend((lpn..lpn + count).map(|lpn| HostOp::Write {
                lpn,
                count: 1,
                fua: false,
            }));
        if self.rng.one_in(2) {
            self.queued.push_back(HostOp::Flush);
        }
        let (lpn, count) = self.target();
        HostOp::Trim { lpn, count }
    }

    /// Trims pages; `FullDisk` writes them again.
    fn give_up(&mut self) -> HostOp {
        let longest = match self.kind {
            Kind::TrimHeavy if self.rng.one_in(8) => self.pages as u64 / 2,
            Kind::FullDisk => 4,
            _ => 12,
        };
        let (lpn, count) = self.extent(longest);
        if self.kind == Kind::FullDisk {
            if self.rng.one_in(2) {
                self.queued.push_back(HostOp::Flush);
            }
            self.queued.push_back(HostOp::Write {
                lpn,
                count,
                fua: false,
            });
        }
        match self.rng.below(4) {
            0 => HostOp::WriteZeroes {
                lpn,
                count,
                fua: true,
            },
            1 => HostOp::WriteZeroes {
                lpn,
                count,
                fua: false,
            },
            _ => HostOp::Trim { lpn, count },
        }
    }
}

impl Iterator for Workload {
    type Item = HostOp;

    fn next(&mut self) -> Option<HostOp> {
        if let Some(op) = self.queued.pop_front() {
            return Some(op);
        }
        if self.kind == Kind::TrimHeavy && self.rng.one_in(3) {
            return Some(self.give_up());
        }
        if self.kind == Kind::Files && self.rng.one_in(3) {
            return Some(self.rewrite_file());
        }
        if self.kind == Kind::FlushHeavy {
            self.queued.push_back(HostOp::Flush);
        }
        Some(match self.rng.below(60) {
            0..5 => HostOp::Flush,
            5..8 => {
                let (lpn, count) = self.target();
                HostOp::Write {
                    lpn,
                    count,
                    fua: true,
                }
            }
            8..11 => self.give_up(),
            11 => {
                let (lpn, count) = self.extent(4);
                HostOp::WriteZeroData { lpn, count }
            }
            12..15 => {
                let (lpn, count) = self.extent(MAX_EXTENT as u64);
                HostOp::Read { lpn, count }
            }
            15 => HostOp::Idle(8),
            _ => {
                let (lpn, count) = self.target();
                HostOp::Write {
                    lpn,
                    count,
                    fua: self.kind == Kind::Log && lpn == self.cursor,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_stays_inside_the_device_and_repeats_from_its_seed() {
        for kind in Kind::ALL {
            let ops: Vec<_> = Workload::new(kind, 250, 3).take(5_000).collect();
            assert_eq!(
                ops,
                Workload::new(kind, 250, 3).take(5_000).collect::<Vec<_>>()
            );
            assert_ne!(
                ops,
                Workload::new(kind, 250, 4).take(5_000).collect::<Vec<_>>()
            );
            for op in ops {
                if let HostOp::Write { lpn, count, .. }
                | HostOp::WriteZeroData { lpn, count }
                | HostOp::WriteZeroes { lpn, count, .. }
                | HostOp::Trim { lpn, count }
                | HostOp::Read { lpn, count } = op
                {
                    assert!(count > 0 && lpn + count <= 250, "{}: {op:?}", kind.name());
                }
            }
        }
    }
}
