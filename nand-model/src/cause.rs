//! Why a flash operation happens. Every operation carries its cause, which splits write
//! amplification.

/// The reason of a flash operation; the spelling of [`Cause::name`] is the only one used anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The page the host asked to read or write.
    Host,
    /// Data pages that garbage collection relocates: their reads and programs. Also the erases of
    /// the blocks collected.
    Gc,
    /// Mapping pages that garbage collection relocates, or reads and writes because it relocated
    /// data pages.
    GcTranslation,
    /// Copies and erases of a log-block merge.
    Merge,
    /// LazyFTL's conversion of update blocks into data blocks.
    Convert,
    /// Mapping pages read or written for the host, outside a conversion.
    Translation,
    /// Trim and write-zeroes records.
    Trim,
    /// Static wear levelling.
    Wear,
    /// Data rewritten before it decays.
    Refresh,
    /// Checkpoints of controller state.
    Checkpoint,
    /// Padding programmed so that a word line is complete.
    Pad,
    /// Journal pages of a buffered scheme.
    Journal,
    /// Work of a mount.
    Recovery,
    /// Data pages that folding moves out of blocks in SLC mode. Also the erases of these blocks.
    Fold,
}

impl Cause {
    /// How many causes there are.
    pub const COUNT: usize = 14;
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; Cause::COUNT] = [
        Cause::Host,
        Cause::Gc,
        Cause::GcTranslation,
        Cause::Merge,
        Cause::Convert,
        Cause::Translation,
        Cause::Trim,
        Cause::Wear,
        Cause::Refresh,
        Cause::Checkpoint,
        Cause::Pad,
        Cause::Journal,
        Cause::Recovery,
        Cause::Fold,
    ];

    /// The cause's number, as an index into a table with one entry per cause.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the cause of the operations on the map that work of this cause needs.
    #[inline]
    pub const fn of_map(self) -> Cause {
        match self {
            Cause::Gc | Cause::Fold => Cause::GcTranslation,
            other => other,
        }
    }

    /// Lower-case name, as in metrics labels and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Host => "host",
            Cause::Gc => "gc",
            Cause::GcTranslation => "gc_translation",
            Cause::Merge => "merge",
            Cause::Convert => "convert",
            Cause::Translation => "translation",
            Cause::Trim => "trim",
            Cause::Wear => "wear",
            Cause::Refresh => "refresh",
            Cause::Checkpoint => "checkpoint",
            Cause::Pad => "pad",
            Cause::Journal => "journal",
            Cause::Recovery => "recovery",
            Cause::Fold => "fold",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_causes_is_in_numeric_order_and_names_are_distinct() {
        for (i, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, i);
        }
        let names: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Cause::COUNT);
    }
}
