//! Counters of schemes and flash: field, key, metric and help of each are one entry here.
//!
//! The status and the rows of `ftld replay` contain the structures; the metrics' catalogue has a
//! family for each metric. Counters are plain counts, without a unit.
//!
//! A new counter of a scheme is a field of [`SchemeStats`], its sum in `ftl-core/src/sum.rs`, and
//! an entry here, in the order of the catalogue; one of all schemes counts in
//! `ftl-core/src/controller.rs`. `FTLD_STATUS=write` (tests `status::`) and `FTLD_CATALOGUE=write`
//! (tests `metrics::`) renew the documents of their tests. The text of `ftld status` selects its
//! figures in `daemon/src/commands/status.rs`. A figure that neither status nor rows need is a
//! family of the catalogue alone.

use ftl_core::SchemeStats;
use nand_model::{Cause, OpCounts, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Energy of the flash, in joules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyUsed {
    /// By cause; causes without operations are left out.
    pub by_cause: BTreeMap<String, f64>,
    /// Sum over all causes.
    pub total: f64,
}

impl EnergyUsed {
    /// Returns the energy of the operations of every cause; `None` if the device has no figures.
    pub fn of(profile: &Profile, counts: impl Fn(Cause) -> OpCounts) -> Option<EnergyUsed> {
        let energy = profile.energy?;
        let joules = |cause: Cause| {
            let joules = energy.joules(&counts(cause), &profile.geometry);
            (cause.name().to_owned(), joules)
        };
        let all = Cause::ALL.into_iter().map(joules);
        let by_cause: BTreeMap<_, _> = all.filter(|(_, joules)| *joules > 0.0).collect();
        let total = by_cause.values().sum();
        Some(EnergyUsed { by_cause, total })
    }
}

/// A counter that is a metric of its own.
#[derive(Clone, Copy, Debug)]
pub struct Counter<S> {
    /// Name of the metric.
    pub metric: &'static str,
    /// Help of the metric.
    pub help: &'static str,
    /// Reads the counter.
    pub of: fn(&S) -> u64,
}

macro_rules! counters {
    (
        $(#[$about:meta])*
        $name:ident of $source:ty {
            $($(#[$doc:meta])* $key:ident $(: $metric:literal, $help:literal)?;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$doc])* pub $key: u64,)*
        }

        impl $name {
            /// The counters that are metrics of their own.
            pub const METRICS: &[Counter<$source>] = &[
                $($(Counter { metric: $metric, help: $help, of: |source| source.$key },)?)*
            ];

            /// Returns the counters now.
            pub(crate) fn of(source: &$source) -> $name {
                $name { $($key: source.$key,)* }
            }

            /// Returns what was counted between two moments.
            ///
            /// # Panics
            /// A counter fell.
            pub fn between(begun: &$source, done: &$source) -> $name {
                $(assert!(
                    done.$key >= begun.$key,
                    "{} fell from {} to {}", stringify!($key), begun.$key, done.$key
                );)*
                $name { $($key: done.$key - begun.$key,)* }
            }
        }
    };
}

counters! {
    /// Counters of a scheme. Merges and conversions are also events, which have metrics by kind.
    SchemeCounters of SchemeStats {
        /// GC runs.
        gc_runs: "ftld_gc_runs_total", "GC runs, one victim each.";
        /// Pages relocated by GC.
        gc_pages_moved: "ftld_gc_pages_moved_total", "Valid pages that GC relocated.";
        /// Blocks moved to level wear.
        wear_moves: "ftld_wear_level_moves_total", "Blocks relocated to even out wear.";
        /// Blocks refreshed.
        refreshes: "ftld_refresh_moves_total",
            "Blocks whose data was rewritten because they were near their ECC limit.";
        /// Log blocks that became data blocks without copies.
        switch_merges;
        /// Log blocks that became data blocks after their missing pages were copied into them.
        partial_merges;
        /// Logical blocks whose newest pages were copied into another block.
        full_merges;
        /// Conversions.
        converts;
        /// Mapping pages written by conversions.
        convert_map_pages;
        /// Steps of mapping lookups in RAM, in schemes that count them; each takes `timing.ram`.
        map_lookup_steps;
        /// Checkpoints.
        checkpoints: "ftld_checkpoints_total", "Completed checkpoints.";
    }
}

counters! {
    /// Flash operations of one cause, or of all.
    Operations of OpCounts {
        /// Page reads.
        reads: "ftld_nand_pages_read_total", "Flash pages read in full.";
        /// Partial reads: the OOB area or another part of a page.
        partial_reads: "ftld_nand_partial_reads_total", "Short flash reads, such as of an OOB.";
        /// Page programs.
        programs: "ftld_nand_pages_programmed_total", "Flash pages programmed.";
        /// Programs of the OOB area alone.
        oob_programs: "ftld_nand_partial_programs_total",
            "Later programs of an OOB alone, where the flash allows them.";
        /// Block erases.
        erases: "ftld_nand_erases_total", "Flash blocks erased.";
    }
}
