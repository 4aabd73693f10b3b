//! Power cuts: their position and their outcomes. The menu is that of Tseng, Grupp, Swanson
//! (DAC'11), Djelic's unstable bits and the paired-page effect; docs/NAND.md lists the sources.

use crate::pairing::{PairTable, Pairing};
use crate::profile::Profile;
use crate::store::Change;

/// Outcome of an interrupted program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum ProgramCut {
    /// Power failed before the first pulse: the page is still erased.
    NotStarted,
    /// The first bytes of the data arrived, the rest reads as erased; both checks fail.
    Prefix,
    /// Each 0 bit arrived or not, at random; both checks fail.
    RandomBits,
    /// The page is readable this many more times, then never again.
    Unstable(u8),
    /// The page is readable or not, at random at every read; the number chooses the sequence of
    /// reads.
    Flickering(u8),
    /// The OOB is good, the data is torn.
    DataTorn,
    /// The data is good, the OOB is torn.
    OobTorn,
    /// The program completed; only its acknowledgement was lost.
    Complete,
}

/// Outcome of an interrupted program for the earlier pages of its word line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum PartnerCut {
    /// No change.
    Intact,
    /// They are readable this many more times, then never again.
    Unstable(u8),
    /// They are readable or not, at random at every read; the number chooses the sequence of reads.
    Flickering(u8),
    /// They are unreadable.
    Destroyed,
    /// One of them is unreadable, counted from the first and around; the others do not change.
    DestroyedOne(u8),
}

/// Outcome of an interrupted erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum EraseCut {
    /// Power failed before the first pulse: all old pages survive.
    NotStarted,
    /// Some pages survive, some are unreadable, some look blank, at random.
    Mixed,
    /// One page is unreadable, all others survive; the block needs another erase.
    AllButOne,
    /// One page survives, all others are unreadable; the block needs another erase.
    OnlyOne,
    /// Every page reads blank, but pages programmed without another erase will not hold their data.
    LooksBlank,
    /// The erase completed; only its acknowledgement was lost.
    Complete,
}

impl EraseCut {
    /// All outcomes.
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
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(deny_unknown_fields)
)]
pub struct Cut {
    /// The program or erase, counted from 0 since the plan was installed.
    pub at_op: u64,
    /// Outcome if that operation is a program.
    pub program: ProgramCut,
    /// Outcome for the word line's earlier pages if that operation programs a later one.
    pub partner: PartnerCut,
    /// Outcome if that operation is an erase.
    pub erase: EraseCut,
    /// Seed of random outcomes.
    pub seed: u64,
}

impl Cut {
    /// Every distinct outcome for a cut at operation `at_op`, except flickering; each program
    /// outcome is combined with each outcome of its partner. A mount takes the older version of an
    /// unreadable page. If that page flickers, a later mount may read it: no scheme here guarantees
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

    /// Returns [`Cut::menu`] and, if the program may destroy several earlier pages of its word
    /// line, cuts that destroy one of them each.
    pub fn menu_of_word_line(at_op: u64, seed: u64, earlier: u8) -> Vec<Cut> {
        let mut menu = Cut::menu(at_op, seed);
        let whole = menu.clone();
        let each = (0..earlier).filter(|_| earlier > 1);
        for partner in each.map(PartnerCut::DestroyedOne) {
            let destroyed = whole
                .iter()
                .filter(|cut| cut.partner == PartnerCut::Destroyed);
            menu.extend(destroyed.map(|cut| Cut { partner, ..*cut }));
        }
        menu
    }

    /// Every distinct outcome for a cut in this program or erase of a part: those of
    /// [`Cut::menu_of_word_line`] that differ here. Other changes are not operations: power cannot
    /// fail in them.
    pub fn menu_of_operation(profile: &Profile, next: &Change, seed: u64) -> Vec<Cut> {
        let earlier = match next {
            Change::Program { ppn, .. } => {
                let geometry = &profile.geometry;
                let pairing = if profile.is_slc(geometry.block_of(*ppn)) {
                    Pairing::None
                } else {
                    profile.pairing
                };
                let pairs = PairTable::new(pairing, geometry.pages_per_block);
                pairs.victims(geometry.offset_of(*ppn)).count()
            }
            Change::Erase { .. } => 0,
            _ => return Vec::new(),
        };
        let is_erase = matches!(next, Change::Erase { .. });
        let earlier = u8::try_from(earlier).expect("a word line has few pages");
        let mut kept: Vec<Cut> = Vec::new();
        for cut in Cut::menu_of_word_line(0, seed, earlier) {
            let has_effect = is_erase || earlier > 0 || cut.partner == PartnerCut::Intact;
            let is_known = kept.iter().any(|other| match is_erase {
                true => other.erase == cut.erase,
                false => (other.program, other.partner) == (cut.program, cut.partner),
            });
            if has_effect && !is_known {
                kept.push(cut);
            }
        }
        kept
    }

    /// Whether the cut leaves pages that flicker.
    pub(crate) fn flickers(&self) -> bool {
        matches!(self.program, ProgramCut::Flickering(_))
            || matches!(self.partner, PartnerCut::Flickering(_))
    }
}
