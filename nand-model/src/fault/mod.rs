//! Fault injection: the plan of all faults, consulted once per operation.
//!
//! A plan decides the outcome of a *legal* operation; the chip checks the NAND rules before. All
//! random faults come from the plan's seed, so a run repeats. [`Fault`] lists the faults that the
//! part reports (a failed program) and the silent ones (a program without effect).

mod cut;

pub use cut::{Cut, EraseCut, PartnerCut, ProgramCut};

use crate::addr::{Pbn, Ppn};
use crate::rng::SplitMix;
use crate::store::{BlockFacts, Cells, Health};
use crate::timing::Nanos;
use std::collections::{BTreeMap, HashMap};

/// A fault of one operation, other than a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[repr(u8)]
pub enum Fault {
    /// The program ends in a status failure; its block is bad.
    ProgramFail,
    /// The erase ends in a status failure; its block is bad.
    EraseFail,
    /// The program reports success but has no effect.
    LostProgram,
    /// The program reports success but changes another page.
    MisdirectedProgram,
    /// The erase reports success but has no effect.
    LostErase,
    /// The read reports success but returns the page's content from before its block's last erase.
    StaleRead,
}

impl Fault {
    /// The number of faults.
    pub const COUNT: usize = 6;
    /// All faults, in the order of their numbers.
    pub const ALL: [Fault; Fault::COUNT] = [
        Fault::ProgramFail,
        Fault::EraseFail,
        Fault::LostProgram,
        Fault::MisdirectedProgram,
        Fault::LostErase,
        Fault::StaleRead,
    ];

    /// The fault's number, as an index into a table with one entry per fault.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Lower-case name, as in metrics labels and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::ProgramFail => "program_fail",
            Fault::EraseFail => "erase_fail",
            Fault::LostProgram => "lost_program",
            Fault::MisdirectedProgram => "misdirected_program",
            Fault::LostErase => "lost_erase",
            Fault::StaleRead => "stale_read",
        }
    }

    /// Whether the part does not report the fault, so that only a page's checks detect it.
    pub const fn is_silent(self) -> bool {
        !matches!(self, Fault::ProgramFail | Fault::EraseFail)
    }
}

/// Rate of each fault, in parts per billion of the operations that it applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates([u32; Fault::COUNT]);

impl FaultRates {
    /// Parts per billion of this fault.
    pub const fn of(&self, fault: Fault) -> u32 {
        self.0[fault.index()]
    }
}

impl<const N: usize> From<[(Fault, u32); N]> for FaultRates {
    fn from(listed: [(Fault, u32); N]) -> Self {
        listed.into_iter().collect()
    }
}

impl FromIterator<(Fault, u32)> for FaultRates {
    fn from_iter<I: IntoIterator<Item = (Fault, u32)>>(listed: I) -> Self {
        let mut rates = FaultRates::default();
        listed
            .into_iter()
            .for_each(|(fault, ppb)| rates.0[fault.index()] = ppb);
        rates
    }
}

/// A fault armed in a block for the n-th operation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFault {
    /// The block.
    pub block: Pbn,
    /// The fault: it applies to page programs, erases or page reads of the block.
    pub fault: Fault,
    /// Operations of that kind on the block that still succeed.
    pub after: u32,
}

impl BlockFault {
    /// A fault at the next operation of its kind on the block.
    pub const fn next(block: Pbn, fault: Fault) -> Self {
        BlockFault {
            block,
            fault,
            after: 0,
        }
    }
}

/// A failed die: its programs, erases and reads all fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieFailure {
    /// The die.
    pub die: u32,
    /// The chip's first program or erase that fails, counted from 0 since the plan was installed.
    pub at_op: u64,
}

/// Bits of one data codeword of a page that are wrong until its block is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongBits {
    /// The page.
    pub page: Ppn,
    /// The number of wrong bits.
    pub bits: u32,
}

/// All faults of a chip. The default plan has none.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Cut power at this operation.
    pub cut: Option<Cut>,
    /// The cut also hits operations in flight on other dies, each with an outcome drawn from the
    /// cut's seed. Only the last operation of each die since the plan was installed can be in
    /// flight. Power fails at the latest start of these operations and the cut one; those that end
    /// later are in flight. They leave flickering pages only if the cut names such an outcome
    /// itself.
    ///
    /// A caller that keeps to the emulated instants of a waiting host never loses flushed data.
    /// Such a host issues the FLUSH when the operations that it covers are done, and the next
    /// request when the FLUSH is done. All of them then end before the last operation starts.
    /// Requests issued at the same instant overlap; requests issued one after the other do not.
    pub in_flight: bool,
    /// Rates of random faults.
    pub rates: FaultRates,
    /// Faults armed in single blocks.
    pub block_faults: Vec<BlockFault>,
    /// A die that stops working.
    pub die: Option<DieFailure>,
    /// Factor on the part's failure rate of programs and erases, which grows with wear. 0: no such
    /// failures.
    pub wear_out: f64,
    /// Factor on the part's bit error rate, which grows with wear, age and reads. 0: no bit errors.
    /// The seed alone determines the weak pages: a later plan with the same seed has the same ones.
    pub bit_errors: f64,
    /// Wrong bits of single pages.
    pub wrong_bits: Vec<WrongBits>,
    /// Seed of all random faults above.
    pub seed: u64,
}

impl FaultPlan {
    /// Whether the plan has silent faults.
    pub fn is_silent(&self) -> bool {
        Fault::ALL
            .into_iter()
            .any(|fault| fault.is_silent() && self.may_strike(fault))
    }

    fn may_strike(&self, fault: Fault) -> bool {
        self.rates.of(fault) > 0 || self.block_faults.iter().any(|armed| armed.fault == fault)
    }
}

/// The outcome of one program or erase.
pub(crate) enum Verdict {
    Succeed,
    Cut(Cut),
    Inject(Fault),
}

const PROGRAM_MENU: &[Fault] = &[
    Fault::ProgramFail,
    Fault::LostProgram,
    Fault::MisdirectedProgram,
];
const ERASE_MENU: &[Fault] = &[Fault::EraseFail, Fault::LostErase];
const READ_MENU: &[Fault] = &[Fault::StaleRead];

/// A plan in use, with its operation count and random generator.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    plan: FaultPlan,
    ops: u64,
    rng: SplitMix,
    /// Page contents from before their block's last erase; kept only if a stale read may return
    /// them.
    pub(crate) erased_contents: HashMap<Ppn, Cells>,
    /// The last successful program or erase of each die, or of each of its planes if they work on
    /// their own; kept only if a cut may hit it.
    pub(crate) last_ops: BTreeMap<(u32, u32), LastOp>,
}

/// The last program or erase of a die.
#[derive(Clone, Debug)]
pub(crate) struct LastOp {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) what: LastVerb,
}

/// The last operation of a die.
#[derive(Clone, Debug)]
pub(crate) enum LastVerb {
    Program(Ppn),
    /// An erase, with the block's facts and pages before it.
    Erase(Pbn, BlockFacts, Vec<LeftPage>),
}

/// A programmed page of a block that is being erased.
#[derive(Clone, Debug)]
pub(crate) struct LeftPage {
    pub(crate) offset: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) oob: Vec<u8>,
    pub(crate) health: Health,
}

impl FaultState {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        assert!(
            plan.wear_out >= 0.0 && plan.bit_errors >= 0.0,
            "factors below 0: wear {}, bit errors {}",
            plan.wear_out,
            plan.bit_errors
        );
        let rng = SplitMix::new(plan.seed);
        FaultState {
            plan,
            ops: 0,
            rng,
            erased_contents: HashMap::new(),
            last_ops: BTreeMap::new(),
        }
    }

    /// Gives the planes of a joint operation the time of its array: a page that joins later moves
    /// the begin and the end of those before it.
    pub(crate) fn share_span(&mut self, die: u32, joint: Option<(u64, (Nanos, Nanos))>) {
        let Some((planes, (start, end))) = joint else {
            return;
        };
        for ((_, plane), op) in self.last_ops.range_mut((die, 0)..(die + 1, 0)) {
            if planes & 1 << plane != 0 {
                (op.start, op.end) = (start, end);
            }
        }
    }

    pub(crate) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Returns the remaining plan, counted from now.
    pub(crate) fn into_rest(self) -> FaultPlan {
        let FaultState { mut plan, ops, .. } = self;
        plan.cut = plan.cut.map(|cut| Cut {
            at_op: cut.at_op.saturating_sub(ops),
            ..cut
        });
        plan.die = plan.die.map(|die| DieFailure {
            at_op: die.at_op.saturating_sub(ops),
            ..die
        });
        plan
    }

    /// Wrong bits that the plan adds to a page, besides those of the error rate.
    pub(crate) fn wrong_bits(&self, page: Ppn) -> u32 {
        self.plan
            .wrong_bits
            .iter()
            .filter(|wrong| wrong.page == page)
            .map(|wrong| wrong.bits)
            .sum()
    }

    /// Removes the wrong bits of an erased block's pages.
    pub(crate) fn renew(&mut self, is_renewed: impl Fn(Ppn) -> bool) {
        self.plan.wrong_bits.retain(|wrong| !is_renewed(wrong.page));
    }

    /// Whether programs must consult the plan.
    pub(crate) fn touches_programs(&self) -> bool {
        let FaultPlan {
            cut, die, wear_out, ..
        } = &self.plan;
        let listed = PROGRAM_MENU
            .iter()
            .any(|fault| self.plan.may_strike(*fault));
        listed || cut.is_some() || die.is_some() || *wear_out > 0.0
    }

    /// Whether reads must consult the plan.
    pub(crate) fn touches_reads(&self) -> bool {
        let FaultPlan {
            die,
            bit_errors,
            wrong_bits,
            ..
        } = &self.plan;
        die.is_some() || *bit_errors > 0.0 || !wrong_bits.is_empty() || self.keeps_erased_contents()
    }

    /// Whether a cut may hit operations that were issued before.
    pub(crate) fn tracks_ops(&self) -> bool {
        self.plan.in_flight && self.plan.cut.is_some()
    }

    pub(crate) fn keeps_erased_contents(&self) -> bool {
        self.plan.may_strike(Fault::StaleRead)
    }

    /// Decides a program; `worn` is the probability that wear alone makes it fail.
    pub(crate) fn program(&mut self, die: u32, block: Pbn, worn: f64) -> Verdict {
        self.operation(die, block, PROGRAM_MENU, worn)
    }

    /// Decides an erase; `worn` is the probability that wear alone makes it fail.
    pub(crate) fn erase(&mut self, die: u32, block: Pbn, worn: f64) -> Verdict {
        self.operation(die, block, ERASE_MENU, worn)
    }

    /// Whether this read returns the page's content from before the last erase.
    pub(crate) fn read_is_stale(&mut self, block: Pbn) -> bool {
        self.next_fault(block, READ_MENU, 0.0).is_some()
    }

    pub(crate) fn has_die_failed(&self, die: u32) -> bool {
        self.plan
            .die
            .is_some_and(|failure| failure.die == die && self.ops >= failure.at_op)
    }

    /// A random number below `bound`, for the open choices of a fault.
    pub(crate) fn choose(&mut self, bound: u32) -> u32 {
        self.rng.number(bound)
    }

    /// Decides one operation. The first fault of `menu` is the status failure.
    fn operation(&mut self, die: u32, block: Pbn, menu: &[Fault], worn: f64) -> Verdict {
        debug_assert!(worn >= 0.0, "a chance of {worn}");
        let (op, dead) = (self.ops, self.has_die_failed(die));
        self.ops += 1;
        if let Some(cut) = self.plan.cut.filter(|cut| cut.at_op == op) {
            return Verdict::Cut(cut);
        }
        let struck = self.next_fault(block, menu, worn);
        let fault = if dead { Some(menu[0]) } else { struck };
        fault.map_or(Verdict::Succeed, Verdict::Inject)
    }

    fn next_fault(&mut self, block: Pbn, menu: &[Fault], worn: f64) -> Option<Fault> {
        self.take_block_fault(block, menu)
            .or_else(|| self.draw(menu, worn))
    }

    fn take_block_fault(&mut self, block: Pbn, menu: &[Fault]) -> Option<Fault> {
        let concerns = |armed: &BlockFault| armed.block == block && menu.contains(&armed.fault);
        let ripe = self
            .plan
            .block_faults
            .iter()
            .position(|armed| concerns(armed) && armed.after == 0);
        if let Some(ripe) = ripe {
            return Some(self.plan.block_faults.swap_remove(ripe).fault);
        }
        self.plan
            .block_faults
            .iter_mut()
            .filter(|armed| concerns(armed))
            .for_each(|armed| armed.after -= 1);
        None
    }

    fn draw(&mut self, menu: &[Fault], worn: f64) -> Option<Fault> {
        const BILLION: f64 = 1e9;
        if worn <= 0.0 && menu.iter().all(|fault| self.plan.rates.of(*fault) == 0) {
            return None;
        }
        let mut at = self.rng.unit() - worn;
        if at < 0.0 {
            return Some(menu[0]);
        }
        menu.iter().copied().find(|fault| {
            at -= f64::from(self.plan.rates.of(*fault)) / BILLION;
            at < 0.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_faults_is_in_numeric_order_and_names_are_distinct() {
        for (i, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, i);
        }
        let names: std::collections::BTreeSet<_> =
            Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::COUNT);
    }

    #[test]
    fn rates_are_what_was_asked_for_and_repeat_from_the_seed() {
        let rates = [
            (Fault::ProgramFail, 100_000_000),
            (Fault::LostProgram, 30_000_000),
        ]
        .into();
        let run = |seed| {
            let mut state = FaultState::new(FaultPlan {
                rates,
                seed,
                ..FaultPlan::default()
            });
            let verdicts = (0..100_000).map(|_| match state.program(0, Pbn::new(0), 0.05) {
                Verdict::Inject(fault) => Some(fault),
                _ => None,
            });
            verdicts.collect::<Vec<_>>()
        };
        let seen = run(4);
        let count = |fault| seen.iter().filter(|seen| **seen == fault).count();
        assert!(
            (14_500..15_500).contains(&count(Some(Fault::ProgramFail))),
            "a tenth by chance, a twentieth by wear"
        );
        assert!((2_700..3_300).contains(&count(Some(Fault::LostProgram))));
        assert_eq!(count(Some(Fault::MisdirectedProgram)), 0);
        assert!(seen == run(4) && seen != run(5));
    }

    #[test]
    fn block_faults_count_the_verbs_of_their_kind_on_their_block() {
        let block_faults = vec![
            BlockFault {
                block: Pbn::new(3),
                fault: Fault::ProgramFail,
                after: 2,
            },
            BlockFault {
                block: Pbn::new(3),
                fault: Fault::LostErase,
                after: 1,
            },
        ];
        let mut state = FaultState::new(FaultPlan {
            block_faults,
            ..FaultPlan::default()
        });
        let mut struck = Vec::new();
        for step in 0..6 {
            for block in [Pbn::new(2), Pbn::new(3)] {
                for (verb, verdict) in [
                    ("p", state.program(0, block, 0.0)),
                    ("e", state.erase(0, block, 0.0)),
                ] {
                    if let Verdict::Inject(fault) = verdict {
                        struck.push((step, block.raw(), verb, fault));
                    }
                }
            }
        }
        assert_eq!(
            struck,
            [
                (1, 3, "e", Fault::LostErase),
                (2, 3, "p", Fault::ProgramFail)
            ]
        );
    }
}
