//! Power cuts: where they strike and what they leave. The menu is that of Tseng, Grupp, Swanson
//! (DAC'11), Djelic's unstable bits and the paired-page effect; docs/NAND.md lists sources.

/// What an interrupted program leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramCut {
    /// Power failed before the first pulse: the page is still erased.
    NotStarted,
    /// The first bytes of the data arrived, the rest reads as erased; neither check holds.
    Prefix,
    /// Every 0 bit arrived or not by chance; neither check holds.
    RandomBits,
    /// The page reads well this many more times, then never again.
    Unstable(u8),
    /// The page reads well or not at random at every read; the number chooses the row of reads.
    Flickering(u8),
    /// The OOB is good, the data is torn.
    DataTorn,
    /// The data is good, the OOB is torn.
    OobTorn,
    /// The program completed; only its acknowledgement was lost.
    Complete,
}

/// What an interrupted MSB program does to the pages that its word line held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartnerCut {
    /// Nothing.
    Intact,
    /// They read well this many more times, then never again.
    Unstable(u8),
    /// They read well or not at random at every read; the number chooses the row of reads.
    Flickering(u8),
    /// They can no longer be read.
    Destroyed,
}

/// What an interrupted erase leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseCut {
    /// Power failed before the first pulse: the old pages are all there.
    NotStarted,
    /// Some pages survive, some are unreadable, some look blank, by chance.
    Mixed,
    /// One page is unreadable, all others survive; the block is weak.
    AllButOne,
    /// One page survives, all others are unreadable; the block is weak.
    OnlyOne,
    /// Every page reads blank, but what is programmed next without another erase will not hold.
    LooksBlank,
    /// The erase completed; only its acknowledgement was lost.
    Complete,
}

impl EraseCut {
    /// All of them.
    pub const ALL: [EraseCut; 6] = [
        EraseCut::NotStarted,
        EraseCut::Mixed,
        EraseCut::LooksBlank,
        EraseCut::Complete,
        EraseCut::AllButOne,
        EraseCut::OnlyOne,
    ];
}

/// A power cut at one program or erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Which program or erase, counted from 0 since the plan was installed.
    pub at_op: u64,
    /// Outcome if that operation is a program.
    pub program: ProgramCut,
    /// What happens to the word line's earlier pages if that operation programs an MSB page.
    pub partner: PartnerCut,
    /// Outcome if that operation is an erase.
    pub erase: EraseCut,
    /// Chooses the bits of random outcomes.
    pub seed: u64,
}

impl Cut {
    /// Every distinct outcome for a cut at operation `at_op` but flickering; each program outcome
    /// comes with each of the partner's. A mount takes the older version of a page that it cannot
    /// read. If that page flickers, a later mount may read it: no translation layer here promises
    /// one content then.
    pub fn menu(at_op: u64, seed: u64) -> Vec<Cut> {
        let programs = [
            ProgramCut::NotStarted,
            ProgramCut::Prefix,
            ProgramCut::RandomBits,
            ProgramCut::Unstable(2),
            ProgramCut::DataTorn,
            ProgramCut::OobTorn,
            ProgramCut::Complete,
        ];
        let mut menu = Vec::new();
        for partner in [
            PartnerCut::Intact,
            PartnerCut::Destroyed,
            PartnerCut::Unstable(2),
        ] {
            let erases = EraseCut::ALL.into_iter().cycle();
            for (i, (program, erase)) in (0..).zip(programs.into_iter().zip(erases)) {
                menu.push(Cut {
                    at_op,
                    program,
                    partner,
                    erase,
                    seed: seed ^ i,
                });
            }
        }
        menu
    }

    /// Whether the cut leaves pages that flicker.
    pub(crate) fn flickers(&self) -> bool {
        matches!(self.program, ProgramCut::Flickering(_))
            || matches!(self.partner, PartnerCut::Flickering(_))
    }
}
