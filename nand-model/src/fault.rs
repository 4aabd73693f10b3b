//! Seeded faults and power cuts, asked once per verb.
//!
//! A plan decides what silicon does to a verb that was *legal*; the law is judged before, on what was asked. The menu is that of
//! Tseng, Grupp, Swanson (DAC'11), Djelic's unstable bits and the paired-page effect; docs/NAND.md lists sources.

use crate::addr::Pbn;

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
    /// Every page reads blank, but what is programmed next without another erase will not hold.
    LooksBlank,
    /// The erase completed; only its acknowledgement was lost.
    Complete,
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
    /// Every distinct outcome for a cut at operation `at_op`; each program outcome comes with each of the partner's.
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
        let erases = [EraseCut::NotStarted, EraseCut::Mixed, EraseCut::LooksBlank, EraseCut::Complete];
        let mut menu = Vec::new();
        for partner in [PartnerCut::Intact, PartnerCut::Destroyed, PartnerCut::Unstable(2)] {
            for (i, program) in programs.into_iter().enumerate() {
                menu.push(Cut { at_op, program, partner, erase: erases[i % erases.len()], seed: seed ^ i as u64 });
            }
        }
        menu
    }
}

/// Everything that may go wrong on a chip. The default plan is a perfect chip.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Cut power at this operation.
    pub cut: Option<Cut>,
    /// Probability that a program ends in a status failure, in parts per billion.
    pub program_fail_ppb: u32,
    /// Probability that an erase ends in a status failure, in parts per billion.
    pub erase_fail_ppb: u32,
    /// Blocks whose next program fails.
    pub fail_program_in: Vec<Pbn>,
    /// Blocks whose next erase fails.
    pub fail_erase_of: Vec<Pbn>,
    /// Seed of all chances above.
    pub seed: u64,
}

/// The verdict on one verb.
pub(crate) enum Verdict {
    Succeed,
    Fail,
    Cut(Cut),
}

/// A plan in use: counts operations and draws chances.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    plan: FaultPlan,
    ops: u64,
    rng: SplitMix,
}

impl FaultState {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let rng = SplitMix::new(plan.seed);
        FaultState { plan, ops: 0, rng }
    }

    pub(crate) fn program(&mut self, block: Pbn) -> Verdict {
        self.verdict(block, self.plan.program_fail_ppb, |plan| &mut plan.fail_program_in)
    }

    pub(crate) fn erase(&mut self, block: Pbn) -> Verdict {
        self.verdict(block, self.plan.erase_fail_ppb, |plan| &mut plan.fail_erase_of)
    }

    fn verdict(&mut self, block: Pbn, ppb: u32, list: fn(&mut FaultPlan) -> &mut Vec<Pbn>) -> Verdict {
        let op = self.ops;
        self.ops += 1;
        if let Some(cut) = self.plan.cut.filter(|cut| cut.at_op == op) {
            return Verdict::Cut(cut);
        }
        let listed = list(&mut self.plan);
        if let Some(i) = listed.iter().position(|b| *b == block) {
            listed.swap_remove(i);
            return Verdict::Fail;
        }
        if ppb > 0 && self.rng.below(1_000_000_000) < ppb as u64 { Verdict::Fail } else { Verdict::Succeed }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough to choose faults and workloads.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator whose whole future follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (> 0), by multiply-shift; the bias is below 2⁻³² for the bounds used here.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// True once in `n` on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
