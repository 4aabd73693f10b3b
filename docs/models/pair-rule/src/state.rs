//! The state, the oracle, and the normal form.

use crate::flash::{Block, Content, Data, Label, Page, Stream, Use};
use nand_model::{PairTable, Pairing};
use std::fmt;

/// Logical pages.
pub const LPNS: usize = 2;

/// A rule that is left out, to show that the model finds the error that it prevents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeededError {
    /// A released block is erased without waiting until all pages are safe.
    EraseBeforeSafe,
    /// FLUSH acknowledges without padding.
    FlushWithoutPads,
    /// A mount releases every block without valid pages at once, also those that a rewrite needs.
    MountReleasesEarly,
    /// Pages that a mount programmed are committed without padding.
    ProvisionalCounts,
    /// A mount keeps a page that a cut may have hit where it is.
    SuspectsNotRewritten,
    /// A block that looks blank is used without another erase.
    BlankLookTrusted,
    /// A checkpoint is programmed while pages that it names can still be lost.
    CheckpointNamesUnsafe,
}

impl SeededError {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, SeededError); 7] = [
        ("erase-before-safe", SeededError::EraseBeforeSafe),
        ("flush-without-pads", SeededError::FlushWithoutPads),
        ("mount-releases-early", SeededError::MountReleasesEarly),
        ("provisional-counts", SeededError::ProvisionalCounts),
        ("suspects-not-rewritten", SeededError::SuspectsNotRewritten),
        ("blank-look-trusted", SeededError::BlankLookTrusted),
        (
            "checkpoint-names-unsafe",
            SeededError::CheckpointNamesUnsafe,
        ),
    ];
}

/// Shape of the device, and how much of everything may happen.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name on the command line.
    pub name: &'static str,
    /// The pairing table.
    pub pairs: PairTable,
    /// Pages of a block.
    pub pages: u8,
    /// Blocks.
    pub blocks: u8,
    /// Free blocks that garbage collection keeps.
    pub threshold: u8,
    /// Free blocks below which released blocks are padded.
    pub reserve: u8,
    /// Host writes.
    pub writes: u8,
    /// Power cuts.
    pub cuts: u8,
    /// Checkpoints.
    pub sets: u8,
    /// The rule that is left out.
    pub seeded: Option<SeededError>,
    /// Pages at the end of a block that a mount keeps for padding; 0 where blocks are too small.
    pub kept_back: u8,
}

impl Config {
    /// Creates a configuration of `blocks` blocks with `pages` pages each.
    pub fn new(name: &'static str, rule: Pairing, pages: u8, blocks: u8) -> Config {
        let pairs = PairTable::new(rule, pages as u32);
        let kept_back = crate::provisional::padding_of_full_block(&pairs, pages);
        let kept_back = if pages > 2 * kept_back { kept_back } else { 0 };
        Config {
            name,
            pairs,
            pages,
            blocks,
            threshold: 2,
            reserve: 2,
            writes: 3,
            cuts: 2,
            sets: 0,
            seeded: None,
            kept_back,
        }
    }

    /// Whether this rule is left out.
    pub fn lacks(&self, error: SeededError) -> bool {
        self.seeded == Some(error)
    }
}

/// Step of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Programs again the chosen pages that the cut may have hit.
    Rewrite,
    /// Makes these copies safe, then releases the blocks that were withheld.
    Commit,
    /// Collects until the pool is full.
    Refill,
    /// Makes everything safe.
    Finish,
}

/// What the device is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// It waits for a request.
    Serving,
    /// A FLUSH is in progress.
    Flushing,
    /// A checkpoint is in progress.
    Checkpointing,
    /// A victim's valid pages are being moved.
    Collecting,
    /// Power is off.
    Off,
    /// A mount is in progress.
    Mounting(Stage),
    /// A property is violated.
    Broken(Breach),
}

/// The property that is violated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Breach {
    /// A mount returned a version that it may not return for this logical page.
    Returned(u8),
    /// A mount has no free block left, or does not end.
    Stuck,
    /// A page was programmed into a block whose erase was interrupted.
    Weak,
}

/// Versions that a read of a logical page may return: `floor`, or one above `ceiling`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Allowed {
    /// The version that was flushed or returned by a mount; 0: never written.
    pub floor: u8,
    /// Versions above the floor and up to here were discarded by a mount: they must not come back.
    pub ceiling: u8,
}

impl Allowed {
    /// Whether the page may read as this version.
    pub fn admits(&self, ver: u8) -> bool {
        ver == self.floor || ver > self.ceiling
    }
}

/// A state: flash, RAM (inside the blocks) and oracle.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Flash and RAM.
    pub blocks: Vec<Block>,
    /// What the device is doing.
    pub phase: Phase,
    /// The oracle, by logical page.
    pub allowed: [Allowed; LPNS],
    /// Host writes left.
    pub writes: u8,
    /// Power cuts left.
    pub cuts: u8,
    /// Checkpoints left.
    pub sets: u8,
    /// Flash operations of the mount in progress.
    pub mount_ops: u8,
}

impl State {
    /// A new device.
    pub fn empty(config: &Config) -> State {
        State {
            blocks: (0..config.blocks).map(Block::blank).collect(),
            phase: Phase::Serving,
            allowed: [Allowed::default(); LPNS],
            writes: config.writes,
            cuts: config.cuts,
            sets: config.sets,
            mount_ops: 0,
        }
    }

    /// A device in use: its logical pages were written and flushed long ago and share a full block.
    pub fn shared(config: &Config) -> State {
        let mut state = State::empty(config);
        state.put_old(config, 0, &[0, 1]);
        state.normalise(config);
        state
    }

    /// A device in use with a full block for each logical page, and a block that a clean stop left
    /// half full of padding.
    pub fn spread(config: &Config) -> State {
        let mut state = State::empty(config);
        state.put_old(config, 0, &[0]);
        state.put_old(config, 1, &[1]);
        let half = &mut state.blocks[2];
        half.used = Use::Open {
            stream: Stream::Host,
            provisional: None,
        };
        half.frontier = config.pages / 2;
        half.pages[..half.frontier as usize].fill(Page {
            content: Content::Pad,
            ..Page::BLANK
        });
        state.normalise(config);
        state
    }

    /// Fills a block with these logical pages and padding.
    fn put_old(&mut self, config: &Config, at: usize, lpns: &[u8]) {
        let block = &mut self.blocks[at];
        block.used = Use::Full;
        block.frontier = config.pages;
        block.pages[..config.pages as usize].fill(Page {
            content: Content::Pad,
            ..Page::BLANK
        });
        for (page, lpn) in block.pages.iter_mut().zip(lpns) {
            let data = Data {
                lpn: *lpn,
                ver: 1,
                seq: 0,
                provisional: false,
                torn: false,
                label: Label(0),
            };
            *page = Page {
                content: Content::Data(data),
                valid: true,
                ..Page::BLANK
            };
            self.allowed[*lpn as usize] = Allowed {
                floor: 1,
                ceiling: 1,
            };
        }
    }

    /// Every page of the flash.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.blocks
            .iter()
            .flat_map(|block| block.pages[..block.frontier as usize].iter())
    }

    /// Every page of the flash.
    pub fn pages_mut(&mut self) -> impl Iterator<Item = &mut Page> {
        self.blocks
            .iter_mut()
            .flat_map(|block| block.pages[..block.frontier as usize].iter_mut())
    }

    /// The version that the mapping table names, 0 if none, and whether it can be read.
    pub fn current(&self, lpn: u8) -> (u8, bool) {
        let valid = self
            .pages()
            .filter(|page| page.valid)
            .filter_map(Page::data)
            .find(|data| data.lpn == lpn);
        valid.map_or((0, true), |data| (data.ver, !data.torn))
    }

    /// The highest version of a logical page that anything still refers to.
    pub fn highest(&self, lpn: u8) -> u8 {
        let allowed = self.allowed[lpn as usize];
        let on_flash = self
            .pages()
            .filter_map(Page::data)
            .filter(|data| data.lpn == lpn)
            .map(|data| data.ver);
        on_flash
            .max()
            .unwrap_or(0)
            .max(allowed.floor)
            .max(allowed.ceiling)
    }

    /// The sequence number of the last program.
    pub fn last_seq(&self) -> u8 {
        let released = self.blocks.iter().filter_map(|block| match block.used {
            Use::Released { seq } => Some(seq),
            _ => None,
        });
        self.pages()
            .filter_map(Page::seq)
            .chain(released)
            .max()
            .unwrap_or(0)
    }

    /// Logical pages of which no readable version is left that they may read as.
    pub fn bereft(&self) -> Option<u8> {
        (0..LPNS as u8).find(|lpn| {
            let allowed = self.allowed[*lpn as usize];
            let mut data = self
                .pages()
                .filter_map(Page::data)
                .filter(|data| data.lpn == *lpn && !data.torn);
            allowed.floor > 0 && !data.any(|data| allowed.admits(data.ver))
        })
    }

    /// Gives states that differ only in names the same form: numbers that are compared become
    /// ranks, numbers that nothing compares any more become 0, and blocks are sorted.
    pub fn normalise(&mut self, config: &Config) {
        self.normalise_versions();
        self.normalise_seqs(config);
        self.normalise_sets();
        self.blocks.sort_unstable();
    }

    fn normalise_versions(&mut self) {
        for lpn in 0..LPNS as u8 {
            let Allowed { floor, ceiling } = self.allowed[lpn as usize];
            let of_lpn = |data: &Data| data.lpn == lpn;
            let mut known: Vec<u8> = self
                .pages()
                .filter_map(Page::data)
                .filter(of_lpn)
                .map(|data| data.ver)
                .collect();
            // The ceiling matters while a version between floor and ceiling is left.
            let ceiling = if known.iter().any(|ver| *ver > floor && *ver <= ceiling) {
                ceiling
            } else {
                floor
            };
            known.extend([floor, ceiling]);
            known.sort_unstable();
            known.dedup();
            // Version 0 means "never written" and keeps its number.
            let first = if known[0] == 0 { 0 } else { 1 };
            let rank = |ver: u8| first + known.binary_search(&ver).expect("collected above") as u8;
            self.allowed[lpn as usize] = Allowed {
                floor: rank(floor),
                ceiling: rank(ceiling),
            };
            for page in self.pages_mut() {
                if let Content::Data(data) = &mut page.content
                    && data.lpn == lpn
                {
                    data.ver = rank(data.ver);
                }
            }
        }
    }

    /// Sequence numbers are compared between copies of one version, and between released blocks and
    /// unsafe pages.
    fn normalise_seqs(&mut self, config: &Config) {
        let mut copies = [[0u8; 64]; LPNS];
        for data in self.pages().filter_map(Page::data) {
            copies[data.lpn as usize][data.ver as usize] += 1;
        }
        let mut compared = Vec::new();
        for block in &mut self.blocks {
            let before = *block;
            for (offset, page) in block.pages[..block.frontier as usize]
                .iter_mut()
                .enumerate()
            {
                let copied = page
                    .data()
                    .is_some_and(|data| copies[data.lpn as usize][data.ver as usize] > 1);
                let is_compared = copied || config.is_unsafe(&before, offset as u8);
                match &mut page.content {
                    Content::Data(Data { seq, .. }) | Content::Set { seq, .. } if is_compared => {
                        compared.push(*seq)
                    }
                    Content::Data(Data { seq, .. }) | Content::Set { seq, .. } => *seq = 0,
                    _ => {}
                }
            }
        }
        compared.sort_unstable();
        compared.dedup();
        let rank = |seq: u8| compared.partition_point(|other| *other <= seq) as u8;
        for block in &mut self.blocks {
            if let Use::Released { seq } = &mut block.used {
                *seq = rank(*seq);
            }
            for page in &mut block.pages {
                if let Content::Data(Data { seq, .. }) | Content::Set { seq, .. } =
                    &mut page.content
                    && *seq > 0
                {
                    *seq = rank(*seq);
                }
            }
        }
        let oldest = self.oldest_unsafe(config).unwrap_or(u8::MAX);
        for block in &mut self.blocks {
            if let Use::Released { seq } = &mut block.used
                && *seq < oldest
            {
                *seq = 0;
            }
        }
    }

    fn normalise_sets(&mut self) {
        let mut slots: Vec<u8> = self.pages().filter_map(slot_of).collect();
        slots.sort_unstable();
        let moved = |mask: u8| {
            (0..)
                .zip(&slots)
                .map(|(to, from)| (mask >> from & 1) << to)
                .sum::<u8>()
        };
        for block in &mut self.blocks {
            block.before = moved(block.before);
            for page in &mut block.pages {
                page.named = moved(page.named);
                page.known = moved(page.known);
                if let Content::Set { slot, .. } = &mut page.content {
                    *slot = slots.partition_point(|other| *other < *slot) as u8;
                }
            }
        }
    }

    /// The block that a stream is filling.
    pub fn open_block(&self, stream: Stream) -> Option<usize> {
        self.blocks
            .iter()
            .position(|block| matches!(block.used, Use::Open { stream: of, .. } if of == stream))
    }
}

/// The number of the set that a page holds.
pub fn slot_of(page: &Page) -> Option<u8> {
    match page.content {
        Content::Set { slot, .. } => Some(slot),
        _ => None,
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut blocks: Vec<&Block> = self.blocks.iter().collect();
        blocks.sort_by_key(|block| block.name.0);
        for block in blocks {
            write!(f, "{block}  ")?;
        }
        write!(f, "[{:?}]", self.phase)
    }
}
