//! What a chip counts: operations by cause, busy time, errors and injected faults.

use crate::cause::Cause;
use crate::fault::Fault;

/// Plain operation counts of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Full page reads.
    pub reads: u64,
    /// OOB-only or other short reads.
    pub partial_reads: u64,
    /// Page programs.
    pub programs: u64,
    /// OOB-only partial programs (NOP > 1).
    pub oob_programs: u64,
    /// Block erases.
    pub erases: u64,
    /// Copybacks that programmed their target: of these reads and programs, one each.
    pub copybacks: u64,
}

/// What a chip did since it was opened, split by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    by_cause: [OpCounts; Cause::COUNT],
    /// Emulated time during which a die was reading, ns.
    pub read_busy_ns: u64,
    /// Emulated time during which a die was programming, ns.
    pub program_busy_ns: u64,
    /// Emulated time during which a die was erasing, ns.
    pub erase_busy_ns: u64,
    /// Programs that ended in a status failure.
    pub program_fails: u64,
    /// Erases that ended in a status failure.
    pub erase_fails: u64,
    /// Page reads with an uncorrectable ECC error in a requested part.
    pub uncorrectable_reads: u64,
    /// Wrong bits that were corrected.
    pub corrected_bits: u64,
    /// Read retries: times a page was sensed again because its bits could not be corrected.
    pub read_retries: u64,
    /// Copybacks that programmed their target.
    pub copybacks: u64,
    faults: [u64; Fault::COUNT],
}

impl OpCounts {
    fn plus(&self, other: &OpCounts) -> OpCounts {
        OpCounts {
            reads: self.reads + other.reads,
            partial_reads: self.partial_reads + other.partial_reads,
            programs: self.programs + other.programs,
            oob_programs: self.oob_programs + other.oob_programs,
            erases: self.erases + other.erases,
            copybacks: self.copybacks + other.copybacks,
        }
    }

    /// The operations since an earlier state of the same counts.
    pub fn since(&self, before: &OpCounts) -> OpCounts {
        OpCounts {
            reads: self.reads - before.reads,
            partial_reads: self.partial_reads - before.partial_reads,
            programs: self.programs - before.programs,
            oob_programs: self.oob_programs - before.oob_programs,
            erases: self.erases - before.erases,
            copybacks: self.copybacks - before.copybacks,
        }
    }
}

impl Counters {
    /// Adds the counts of another chip.
    pub fn add(&mut self, other: &Counters) {
        let Counters {
            by_cause,
            read_busy_ns,
            program_busy_ns,
            erase_busy_ns,
            program_fails,
            erase_fails,
            uncorrectable_reads,
            corrected_bits,
            read_retries,
            copybacks,
            faults,
        } = other;
        let causes = self.by_cause.iter_mut().zip(by_cause);
        causes.for_each(|(sum, counts)| *sum = sum.plus(counts));
        self.read_busy_ns += read_busy_ns;
        self.program_busy_ns += program_busy_ns;
        self.erase_busy_ns += erase_busy_ns;
        self.program_fails += program_fails;
        self.erase_fails += erase_fails;
        self.uncorrectable_reads += uncorrectable_reads;
        self.corrected_bits += corrected_bits;
        self.read_retries += read_retries;
        self.copybacks += copybacks;
        let kinds = self.faults.iter_mut().zip(faults);
        kinds.for_each(|(sum, count)| *sum += count);
    }

    /// Counts of one cause.
    #[inline]
    pub fn of(&self, cause: Cause) -> &OpCounts {
        &self.by_cause[cause.index()]
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, cause: Cause) -> &mut OpCounts {
        &mut self.by_cause[cause.index()]
    }

    /// How often this fault struck.
    pub fn injected(&self, fault: Fault) -> u64 {
        self.faults[fault.index()]
    }

    pub(crate) fn note_fault(&mut self, fault: Fault) {
        self.faults[fault.index()] += 1;
    }

    /// Erases of all causes.
    #[inline]
    pub fn erases(&self) -> u64 {
        self.by_cause.iter().map(|counts| counts.erases).sum()
    }

    /// Sum over all causes.
    pub fn total(&self) -> OpCounts {
        self.by_cause
            .iter()
            .fold(OpCounts::default(), |sum, c| sum.plus(c))
    }
}
