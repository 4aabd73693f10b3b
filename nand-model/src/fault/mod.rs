//! Everything that can go wrong, asked once per verb.
//!
//! A plan decides what silicon does to a verb that was *legal*; the law is judged before, on what
//! was asked. All chances come from the plan's seed, so a run repeats. Faults that the part reports
//! (a failed program) and those it keeps to itself (a program that did nothing) stand in one list,
//! [`Fault`].

mod cut;

pub use cut::{Cut, EraseCut, PartnerCut, ProgramCut};

use crate::addr::{Pbn, Ppn};
use crate::rng::SplitMix;
use crate::store::{BlockFacts, Cells, Health};
use crate::timing::Nanos;
use std::collections::{BTreeMap, HashMap};

/// What can go wrong with one verb, other than a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fault {
    /// The program ends in a status failure; its block is bad.
    ProgramFail,
    /// The erase ends in a status failure; its block is bad.
    EraseFail,
    /// The program reports success and did nothing.
    LostProgram,
    /// The program reports success and changed another page.
    MisdirectedProgram,
    /// The erase reports success and did nothing.
    LostErase,
    /// The read reports success and returns what the page held before its block was last erased.
    StaleRead,
}

impl Fault {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All of them, in the order of their numbers.
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
    pub const fn index(self) -> usize {
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

    /// Whether the part says nothing, so that only a page's checks can tell.
    pub const fn is_silent(self) -> bool {
        !matches!(self, Fault::ProgramFail | Fault::EraseFail)
    }
}

/// How often each fault strikes, in parts per billion of the verbs it can befall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chances([u32; Fault::COUNT]);

impl Chances {
    /// Parts per billion of this fault.
    pub const fn of(&self, fault: Fault) -> u32 {
        self.0[fault.index()]
    }
}

impl<const N: usize> From<[(Fault, u32); N]> for Chances {
    fn from(listed: [(Fault, u32); N]) -> Self {
        listed.into_iter().collect()
    }
}

impl FromIterator<(Fault, u32)> for Chances {
    fn from_iter<I: IntoIterator<Item = (Fault, u32)>>(listed: I) -> Self {
        let mut chances = Chances::default();
        listed
            .into_iter()
            .for_each(|(fault, ppb)| chances.0[fault.index()] = ppb);
        chances
    }
}

/// A fault that waits in a block: the manufacturer's test did not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bomb {
    /// Where.
    pub block: Pbn,
    /// What it does; a program's fault strikes at a page program, an erase's at an erase, a read's
    /// at a page read.
    pub fault: Fault,
    /// How many verbs of that kind on the block still go well.
    pub after: u32,
}

impl Bomb {
    /// Strikes at the next verb of its kind on the block.
    pub const fn next(block: Pbn, fault: Fault) -> Self {
        Bomb {
            block,
            fault,
            after: 0,
        }
    }
}

/// A die that stops working: it programs and erases nothing any more, and nothing can be read from
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieFailure {
    /// Which.
    pub die: u32,
    /// From which program or erase of the whole chip on, counted from 0 since the plan was
    /// installed.
    pub at_op: u64,
}

/// Bits of one data codeword of a page that are wrong until its block is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongBits {
    /// Which page.
    pub page: Ppn,
    /// How many.
    pub bits: u32,
}

/// Everything that may go wrong on a chip. The default plan is a perfect chip.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Cut power at this operation.
    pub cut: Option<Cut>,
    /// The cut also hits operations in flight on other dies, each with an outcome that follows from
    /// the cut's seed. Of each die the last operation since the plan was installed counts. Power
    /// fails at the latest instant at which one of them begins, the one that was cut included;
    /// those that end later are in flight. They leave flickering pages only if the cut names such
    /// an outcome itself.
    ///
    /// What a FLUSH covers is never hit if the caller keeps to the emulated instants of a host that
    /// waits: it issues the FLUSH when what it is to cover is done, and the next request when the
    /// FLUSH is. Then all of that ends before the last operation begins. Requests issued at the
    /// same instant overlap; one after the other they never do.
    pub in_flight: bool,
    /// Faults by chance.
    pub chances: Chances,
    /// Faults of named blocks.
    pub bombs: Vec<Bomb>,
    /// A die that stops working.
    pub die: Option<DieFailure>,
    /// Programs and erases fail more often as blocks wear, this many times as often as the
    /// profile's part does. 0: never.
    pub wear_out: f64,
    /// Bits go wrong with wear, age and reads, this many times as often as in the profile's part.
    /// 0: never. Which pages are weak follows from the seed alone: under the next plan with the
    /// same one they still are.
    pub bit_errors: f64,
    /// Wrong bits of named pages.
    pub wrong_bits: Vec<WrongBits>,
    /// Seed of all chances above.
    pub seed: u64,
}

impl FaultPlan {
    /// Whether a fault may strike that the part keeps to itself.
    pub fn is_silent(&self) -> bool {
        Fault::ALL
            .into_iter()
            .any(|fault| fault.is_silent() && self.may_strike(fault))
    }

    fn may_strike(&self, fault: Fault) -> bool {
        self.chances.of(fault) > 0 || self.bombs.iter().any(|bomb| bomb.fault == fault)
    }
}

/// The verdict on one program or erase.
pub(crate) enum Verdict {
    Succeed,
    Cut(Cut),
    Suffer(Fault),
}

const PROGRAM_MENU: &[Fault] = &[
    Fault::ProgramFail,
    Fault::LostProgram,
    Fault::MisdirectedProgram,
];
const ERASE_MENU: &[Fault] = &[Fault::EraseFail, Fault::LostErase];
const READ_MENU: &[Fault] = &[Fault::StaleRead];

/// A plan in use: counts operations and draws chances.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    plan: FaultPlan,
    ops: u64,
    rng: SplitMix,
    /// What pages held before their block was last erased; kept only if a read may return it.
    pub(crate) ghosts: HashMap<Ppn, Cells>,
    /// Per die its last program or erase that went well; kept only if a cut may hit it.
    pub(crate) last_ops: BTreeMap<u32, LastOp>,
}

/// The last program or erase of a die.
#[derive(Clone, Debug)]
pub(crate) struct LastOp {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) what: LastVerb,
}

/// What a die did last.
#[derive(Clone, Debug)]
pub(crate) enum LastVerb {
    Program(Ppn),
    /// An erase, the block's facts before it and what it held.
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
            ghosts: HashMap::new(),
            last_ops: BTreeMap::new(),
        }
    }

    pub(crate) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// What is still to come of the plan, counted from now.
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

    /// Wrong bits of a page, beside those of the rate.
    pub(crate) fn wrong_bits(&self, page: Ppn) -> u32 {
        self.plan
            .wrong_bits
            .iter()
            .filter(|wrong| wrong.page == page)
            .map(|wrong| wrong.bits)
            .sum()
    }

    /// A block was erased: its pages are as good as new.
    pub(crate) fn renew(&mut self, is_renewed: impl Fn(Ppn) -> bool) {
        self.plan.wrong_bits.retain(|wrong| !is_renewed(wrong.page));
    }

    /// Whether programs have to ask.
    pub(crate) fn touches_programs(&self) -> bool {
        let FaultPlan {
            cut, die, wear_out, ..
        } = &self.plan;
        let listed = PROGRAM_MENU
            .iter()
            .any(|fault| self.plan.may_strike(*fault));
        listed || cut.is_some() || die.is_some() || *wear_out > 0.0
    }

    /// Whether reads have to ask.
    pub(crate) fn touches_reads(&self) -> bool {
        let FaultPlan {
            die,
            bit_errors,
            wrong_bits,
            ..
        } = &self.plan;
        die.is_some() || *bit_errors > 0.0 || !wrong_bits.is_empty() || self.keeps_ghosts()
    }

    /// Whether a cut may hit operations that were issued before.
    pub(crate) fn tracks_ops(&self) -> bool {
        self.plan.in_flight && self.plan.cut.is_some()
    }

    pub(crate) fn keeps_ghosts(&self) -> bool {
        self.plan.may_strike(Fault::StaleRead)
    }

    /// `worn` is the chance that wear alone makes this program fail.
    pub(crate) fn program(&mut self, die: u32, block: Pbn, worn: f64) -> Verdict {
        self.operation(die, block, PROGRAM_MENU, worn)
    }

    /// `worn` is the chance that wear alone makes this erase fail.
    pub(crate) fn erase(&mut self, die: u32, block: Pbn, worn: f64) -> Verdict {
        self.operation(die, block, ERASE_MENU, worn)
    }

    /// Whether this read of a page returns what the page held before.
    pub(crate) fn read_is_stale(&mut self, block: Pbn) -> bool {
        self.strike(block, READ_MENU, 0.0).is_some()
    }

    pub(crate) fn die_is_dead(&self, die: u32) -> bool {
        self.plan
            .die
            .is_some_and(|failure| failure.die == die && self.ops >= failure.at_op)
    }

    /// A number below `bound` for what a fault leaves open.
    pub(crate) fn choose(&mut self, bound: u32) -> u32 {
        self.rng.number(bound)
    }

    /// The first of `menu` is the status failure.
    fn operation(&mut self, die: u32, block: Pbn, menu: &[Fault], worn: f64) -> Verdict {
        debug_assert!(worn >= 0.0, "a chance of {worn}");
        let (op, dead) = (self.ops, self.die_is_dead(die));
        self.ops += 1;
        if let Some(cut) = self.plan.cut.filter(|cut| cut.at_op == op) {
            return Verdict::Cut(cut);
        }
        let struck = self.strike(block, menu, worn);
        let fault = if dead { Some(menu[0]) } else { struck };
        fault.map_or(Verdict::Succeed, Verdict::Suffer)
    }

    fn strike(&mut self, block: Pbn, menu: &[Fault], worn: f64) -> Option<Fault> {
        self.explode(block, menu).or_else(|| self.draw(menu, worn))
    }

    fn explode(&mut self, block: Pbn, menu: &[Fault]) -> Option<Fault> {
        let armed = |bomb: &Bomb| bomb.block == block && menu.contains(&bomb.fault);
        let ripe = self
            .plan
            .bombs
            .iter()
            .position(|bomb| armed(bomb) && bomb.after == 0);
        if let Some(ripe) = ripe {
            return Some(self.plan.bombs.swap_remove(ripe).fault);
        }
        self.plan
            .bombs
            .iter_mut()
            .filter(|bomb| armed(bomb))
            .for_each(|bomb| bomb.after -= 1);
        None
    }

    fn draw(&mut self, menu: &[Fault], worn: f64) -> Option<Fault> {
        const BILLION: f64 = 1e9;
        if worn <= 0.0 && menu.iter().all(|fault| self.plan.chances.of(*fault) == 0) {
            return None;
        }
        let mut at = self.rng.unit() - worn;
        if at < 0.0 {
            return Some(menu[0]);
        }
        menu.iter().copied().find(|fault| {
            at -= f64::from(self.plan.chances.of(*fault)) / BILLION;
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
    fn chances_are_what_was_asked_for_and_repeat_from_the_seed() {
        let chances = [
            (Fault::ProgramFail, 100_000_000),
            (Fault::LostProgram, 30_000_000),
        ]
        .into();
        let run = |seed| {
            let mut state = FaultState::new(FaultPlan {
                chances,
                seed,
                ..FaultPlan::default()
            });
            let verdicts = (0..100_000).map(|_| match state.program(0, Pbn::new(0), 0.05) {
                Verdict::Suffer(fault) => Some(fault),
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
    fn bombs_count_the_verbs_of_their_kind_on_their_block() {
        let bombs = vec![
            Bomb {
                block: Pbn::new(3),
                fault: Fault::ProgramFail,
                after: 2,
            },
            Bomb {
                block: Pbn::new(3),
                fault: Fault::LostErase,
                after: 1,
            },
        ];
        let mut state = FaultState::new(FaultPlan {
            bombs,
            ..FaultPlan::default()
        });
        let mut struck = Vec::new();
        for step in 0..6 {
            for block in [Pbn::new(2), Pbn::new(3)] {
                for (verb, verdict) in [
                    ("p", state.program(0, block, 0.0)),
                    ("e", state.erase(0, block, 0.0)),
                ] {
                    if let Verdict::Suffer(fault) = verdict {
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
