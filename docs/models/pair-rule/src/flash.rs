//! Pages, blocks and what a power cut leaves of them.
//!
//! RAM state is stored in the block and page that it describes. So a block is a value without
//! references, and sorting the blocks gives states that differ only in block numbers one normal
//! form.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Maximum pages of a block in any configuration.
pub const MAX_PAGES: usize = 12;

/// A number for traces alone: all labels are equal, so they add no states.
#[derive(Clone, Copy, Default, Debug)]
pub struct Label(pub u8);

impl PartialEq for Label {
    fn eq(&self, _: &Label) -> bool {
        true
    }
}

impl Eq for Label {}

impl Hash for Label {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for Label {
    fn partial_cmp(&self, other: &Label) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Label {
    fn cmp(&self, _: &Label) -> Ordering {
        Ordering::Equal
    }
}

/// A write frontier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Stream {
    /// Host writes, and what a mount rewrites.
    Host,
    /// Pages that garbage collection relocates.
    Gc,
    /// Checkpoints.
    Checkpoint,
}

impl Stream {
    /// Every stream.
    pub const ALL: [Stream; 3] = [Stream::Host, Stream::Gc, Stream::Checkpoint];
}

/// The record and the data of one page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Content {
    /// Erased.
    Blank,
    /// Programmed; neither record nor data can be read.
    Lost,
    /// Padding.
    Pad,
    /// One version of a logical page.
    Data(Data),
    /// A checkpoint of one page. The pages carry what it contains: [`Page::named`],
    /// [`Page::known`].
    Set {
        /// Number of the set; it selects the bit in the masks.
        slot: u8,
        /// Program sequence number.
        seq: u8,
    },
}

/// A version of a logical page on flash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Data {
    /// Logical page.
    pub lpn: u8,
    /// Data version.
    pub ver: u8,
    /// Program sequence number.
    pub seq: u8,
    /// Programmed by a mount.
    pub provisional: bool,
    /// The data is torn behind a record that can be read.
    pub torn: bool,
    /// Number of the host write, for traces.
    pub label: Label,
}

/// A physical page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Programmed content, as far as it is readable.
    pub content: Content,
    /// It reads well now and may be lost at any later power-on.
    pub unstable: bool,
    /// RAM: the mapping table points here.
    pub valid: bool,
    /// RAM of a mount: this page is to be programmed again.
    pub rewrite: bool,
    /// Sets whose map names this page.
    pub named: u8,
    /// Sets whose map contains this program (`pseq <= upto`).
    pub known: u8,
}

impl Page {
    /// An erased page.
    pub const BLANK: Page = Page {
        content: Content::Blank,
        unstable: false,
        valid: false,
        rewrite: false,
        named: 0,
        known: 0,
    };

    /// All of it but the label as a number: comparing and hashing that is fast.
    fn code(&self) -> u64 {
        let flag = |on: bool, at: u32| (on as u64) << at;
        let content = match self.content {
            Content::Blank => 0,
            Content::Lost => 1,
            Content::Pad => 2,
            Content::Data(Data {
                lpn,
                ver,
                seq,
                provisional,
                torn,
                ..
            }) => {
                let flags = flag(provisional, 24) | flag(torn, 25);
                3 | (lpn as u64) << 3 | (ver as u64) << 8 | (seq as u64) << 16 | flags
            }
            Content::Set { slot, seq } => 4 | (slot as u64) << 8 | (seq as u64) << 16,
        };
        let flags = flag(self.unstable, 32) | flag(self.valid, 33) | flag(self.rewrite, 34);
        content | flags | (self.named as u64) << 40 | (self.known as u64) << 48
    }

    /// The version that it holds, if its record can be read.
    pub fn data(&self) -> Option<Data> {
        match self.content {
            Content::Data(data) => Some(data),
            _ => None,
        }
    }

    /// Sequence number, if the page can be missed: padding and lost pages cannot.
    pub fn seq(&self) -> Option<u8> {
        match self.content {
            Content::Data(data) => Some(data.seq),
            Content::Set { seq, .. } => Some(seq),
            _ => None,
        }
    }

    /// Whether its record can be read.
    pub fn has_record(&self) -> bool {
        !matches!(self.content, Content::Blank | Content::Lost)
    }
}

impl PartialEq for Page {
    fn eq(&self, other: &Page) -> bool {
        self.code() == other.code()
    }
}

impl Eq for Page {}

impl Hash for Page {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.code());
    }
}

impl PartialOrd for Page {
    fn partial_cmp(&self, other: &Page) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Page {
    fn cmp(&self, other: &Page) -> Ordering {
        self.code().cmp(&other.code())
    }
}

/// RAM: what a block is used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Use {
    /// Power is off.
    Unknown,
    /// In the pool. `confirmed`: its last erase is known to have ended.
    Free {
        /// See above.
        confirmed: bool,
    },
    /// A stream fills it.
    Open {
        /// The stream.
        stream: Stream,
        /// The first provisional page that no padding commits yet.
        provisional: Option<u8>,
    },
    /// It takes no more programs.
    Full,
    /// Garbage collection is moving its valid pages.
    Victim,
    /// A mount does not erase it yet, because it holds the newer version of a page to be rewritten.
    Withheld,
    /// Without valid pages; it waits for its erase.
    Released {
        /// The last program before the release.
        seq: u8,
    },
    /// It holds a complete checkpoint that is kept.
    Set,
}

/// An erase block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Block {
    /// RAM: its use.
    pub used: Use,
    /// Pages begun since the erase.
    pub frontier: u8,
    /// Its last erase was interrupted: what is programmed now does not hold.
    pub weak: bool,
    /// Sets that were begun after this block was closed: their mount does not scan it.
    pub before: u8,
    /// Its pages.
    pub pages: [Page; MAX_PAGES],
    /// Its number, for traces.
    pub name: Label,
}

impl Hash for Block {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.used, self.frontier, self.weak, self.before).hash(hasher);
        self.pages[..self.frontier as usize]
            .iter()
            .for_each(|page| page.hash(hasher));
    }
}

impl Block {
    /// An erased block.
    pub fn blank(name: u8) -> Block {
        Block {
            used: Use::Free { confirmed: true },
            frontier: 0,
            weak: false,
            before: 0,
            pages: [Page::BLANK; MAX_PAGES],
            name: Label(name),
        }
    }

    /// Number of valid pages.
    pub fn valid(&self) -> u8 {
        self.pages.iter().filter(|page| page.valid).count() as u8
    }

    /// Clears the state in RAM: power is off.
    pub fn forget(&mut self) {
        self.used = Use::Unknown;
        for page in &mut self.pages {
            page.valid = false;
            page.rewrite = false;
        }
    }

    /// Erases it.
    pub fn erase(&mut self) {
        *self = Block {
            used: self.used,
            ..Block::blank(self.name.0)
        };
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = match self.used {
            Use::Unknown => "off".to_string(),
            Use::Free { confirmed: true } => "free".to_string(),
            Use::Free { confirmed: false } => "free?".to_string(),
            Use::Open {
                stream,
                provisional,
            } => {
                format!(
                    "{}{}",
                    format!("{stream:?}").to_lowercase(),
                    if provisional.is_some() { "*" } else { "" }
                )
            }
            Use::Full => "full".to_string(),
            Use::Victim => "victim".to_string(),
            Use::Withheld => "withheld".to_string(),
            Use::Released { .. } => "released".to_string(),
            Use::Set => "set".to_string(),
        };
        write!(
            f,
            "B{}({used}{})",
            self.name.0,
            if self.weak { ", weak" } else { "" }
        )?;
        for page in &self.pages[..self.frontier as usize] {
            write!(f, " {page}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            Content::Blank => write!(f, "_")?,
            Content::Lost => write!(f, "X")?,
            Content::Pad => write!(f, "-")?,
            Content::Data(data) => {
                write!(f, "{}{}", (b'a' + data.lpn) as char, data.label.0)?;
                write!(
                    f,
                    "{}{}",
                    if data.torn { "~" } else { "" },
                    if data.provisional { "p" } else { "" }
                )?;
            }
            Content::Set { slot, .. } => write!(f, "set{slot}")?,
        }
        let mark = |on: bool, mark: &'static str| if on { mark } else { "" };
        write!(f, "{}{}", mark(self.unstable, "?"), mark(self.valid, "!"))
    }
}

/// Outcome of a flash operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// It completes.
    Done,
    /// Power fails during a program.
    ProgramCut(ProgramCut, PartnerCut),
    /// Power fails during an erase.
    EraseCut(EraseCut),
}

/// What is left of an interrupted program. Code: `nand-model/src/chip/program.rs`: `cut_program`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProgramCut {
    /// The page is still erased.
    NotStarted,
    /// Neither record nor data can be read.
    Lost,
    /// The record can be read, the data is torn.
    DataTorn,
    /// It reads well, and may be lost at any later power-on.
    Unstable,
    /// The program completed.
    Complete,
}

/// What an interrupted MSB program does to the pages that its word line held before. Code:
/// `nand-model/src/chip/program.rs`: `cut_program`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PartnerCut {
    /// Nothing.
    Intact,
    /// They read well, and may be lost at any later power-on.
    Unstable,
    /// They can no longer be read.
    Lost,
}

/// What an interrupted erase leaves. Code: `nand-model/src/chip/erase.rs`: `cut_erase`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EraseCut {
    /// The old pages are all there.
    NotStarted,
    /// These pages can be read as before, the others no longer.
    Mixed(u16),
    /// Every page reads blank, but pages that are programmed next may be lost.
    LooksBlank,
    /// The erase completed.
    Complete,
}
