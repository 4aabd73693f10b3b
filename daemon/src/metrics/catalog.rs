//! Every metric of a device: name, kind, labels, help, and where its values come from. The one
//! place that names a metric in code; docs/METRICS.md repeats it for readers, and a test compares
//! the two.
//!
//! What always holds: prefix `ftld_`, base units (seconds, bytes, ratios from 0 to 1), `_total` on
//! counters; a counter never goes back while the daemon lives; a label with a closed list of values
//! has all of them from the first scrape on, at 0, so that the first event is seen as an increase.
//! The label `device`, the instance's name, is on every family and not repeated here.

use crate::inject::Kind as Injection;
use crate::status::View;
use crate::transport::nbd::COMMANDS;
use crate::volume::{ErrorClass, HistogramView, Op, WEAR_BOUNDS};
use ftl_core::{EventKind, EventTotals};
use nand_model::{Cause, Fault, OpCounts};

/// What kind of thing a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at the daemon's start.
    Counter,
    /// A state.
    Gauge,
    /// Durations by fixed buckets.
    Histogram,
}

impl Kind {
    /// Lower-case name, as in the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One label.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All its values; empty where they are facts of the instance.
    pub values: &'static [&'static str],
}

/// One metric family.
#[derive(Clone, Copy)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What kind.
    pub kind: Kind,
    /// Labels beside `device`.
    pub labels: &'static [Label],
    /// One sentence.
    pub help: &'static str,
    /// Fills in the values.
    pub(super) fill: fn(&View, &mut dyn Sink),
}

/// Takes the values of a family; label values come in the order of its labels.
pub(super) trait Sink {
    /// A counter's or a gauge's value.
    fn value(&mut self, labels: &[&str], value: f64);
    /// A histogram.
    fn histogram(&mut self, labels: &[&str], view: &HistogramView);
}

const fn label(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values }
}

const CAUSES: [&str; Cause::COUNT] = {
    let mut names = [""; Cause::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = Cause::ALL[i].name();
        i += 1;
    }
    names
};
const OPS: [&str; Op::COUNT] = {
    let mut names = [""; Op::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = Op::ALL[i].name();
        i += 1;
    }
    names
};
const ERRNOS: [&str; ErrorClass::COUNT] = {
    let mut names = [""; ErrorClass::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = ErrorClass::ALL[i].name();
        i += 1;
    }
    names
};
const FAULTS: [&str; Fault::COUNT] = {
    let mut names = [""; Fault::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = Fault::ALL[i].name();
        i += 1;
    }
    names
};
const INJECTIONS: [&str; Injection::COUNT] = {
    let mut names = [""; Injection::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = Injection::ALL[i].name();
        i += 1;
    }
    names
};
const EVENTS: [&str; EventKind::COUNT] = {
    let mut names = [""; EventKind::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = EventKind::ALL[i].name();
        i += 1;
    }
    names
};
/// Verbs that have an address, and so may touch a part of a page.
const ADDRESSED: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes];

const BY_CAUSE: &[Label] = &[label("cause", &CAUSES)];
const BY_OP: &[Label] = &[label("op", &OPS)];
const BY_EVENT: &[Label] = &[label("event", &EVENTS)];
const BY_STATE: &[Label] = &[label(
    "state",
    &[
        "free",
        "open",
        "data",
        "log",
        "map",
        "checkpoint",
        "released",
        "bad",
    ],
)];

/// Every family, in the order of the page.
pub const CATALOG: &[Family] = &[
    // Identity
    Family {
        name: "ftld_build_info",
        kind: Kind::Gauge,
        labels: &[label("version", &[]), label("arch", &[])],
        help: "The program that serves the device; always 1.",
        fill: |_, to| to.value(&[env!("CARGO_PKG_VERSION"), std::env::consts::ARCH], 1.0),
    },
    Family {
        name: "ftld_device_info",
        kind: Kind::Gauge,
        labels: &[
            label("scheme", &[]),
            label("transport", &[]),
            label("cell", &[]),
            label("profile", &[]),
        ],
        help: "What the device is; always 1.",
        fill: |view, to| {
            let facts = &view.facts;
            to.value(
                &[
                    facts.scheme,
                    facts.transport,
                    facts.cell(),
                    facts.profile.name,
                ],
                1.0,
            );
        },
    },
    Family {
        name: "ftld_device_capacity_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes the host sees.",
        fill: |view, to| to.value(&[], view.facts.size as f64),
    },
    Family {
        name: "ftld_overprovisioning_ratio",
        kind: Kind::Gauge,
        labels: &[],
        help: "Raw flash beyond what the host sees, by what it sees; mapping, reserve and bad blocks included.",
        fill: |view, to| {
            to.value(
                &[],
                view.facts.geometry().data_bytes() as f64 / view.facts.size.max(1) as f64 - 1.0,
            );
        },
    },
    Family {
        name: "ftld_nand_capacity_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Data bytes of the raw flash, bad blocks included.",
        fill: |view, to| to.value(&[], view.facts.geometry().data_bytes() as f64),
    },
    Family {
        name: "ftld_nand_page_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Data bytes of a flash page.",
        fill: |view, to| to.value(&[], page_bytes(view)),
    },
    Family {
        name: "ftld_nand_block_pages",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pages of a flash block.",
        fill: |view, to| to.value(&[], f64::from(view.facts.geometry().pages_per_block)),
    },
    Family {
        name: "ftld_device_start_time_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "When the instance started, in Unix time.",
        fill: |view, to| {
            let since = view.facts.started.duration_since(std::time::UNIX_EPOCH);
            to.value(&[], since.unwrap_or_default().as_secs_f64());
        },
    },
    Family {
        name: "ftld_device_read_only",
        kind: Kind::Gauge,
        labels: &[label("reason", &["asked", "worn_out", "failed"])],
        help: "Whether writes are refused, 0 or 1 for each reason there can be.",
        fill: |view, to| {
            let one_if = |yes: bool| f64::from(u8::from(yes));
            to.value(&["asked"], one_if(view.facts.read_only));
            to.value(&["worn_out"], one_if(view.flash.scheme.read_only.is_some()));
            to.value(&["failed"], one_if(view.trouble.is_some()));
        },
    },
    Family {
        name: "ftld_device_writes_failing",
        kind: Kind::Gauge,
        labels: &[label("reason", &["disk_full", "host_error"])],
        help: "Whether the host's storage refuses writes of the image, 0 or 1 for each reason there can be.",
        fill: |view, to| {
            let one_if = |full: bool| {
                view.writes_failing
                    .is_some_and(|failing| failing.is_disk_full() == full)
            };
            to.value(&["disk_full"], f64::from(u8::from(one_if(true))));
            to.value(&["host_error"], f64::from(u8::from(one_if(false))));
        },
    },
    Family {
        name: "ftld_device_paused",
        kind: Kind::Gauge,
        labels: &[],
        help: "Whether somebody paused the device for a while, 0 or 1.",
        fill: |view, to| to.value(&[], f64::from(u8::from(view.paused.is_some()))),
    },
    Family {
        name: "ftld_snapshot_age_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Age of the flash side's figures; they are published ten times a second, so that a scrape takes no lock.",
        fill: |view, to| to.value(&[], view.flash.taken.elapsed().as_secs_f64()),
    },
    // Host
    Family {
        name: "ftld_host_ios_total",
        kind: Kind::Counter,
        labels: BY_OP,
        help: "Host requests that ended well.",
        fill: |view, to| {
            Op::ALL
                .iter()
                .for_each(|&op| to.value(&[op.name()], view.host.of(op).completed as f64))
        },
    },
    Family {
        name: "ftld_host_held_ios_total",
        kind: Kind::Counter,
        labels: BY_OP,
        help: "Host requests that ended well and were held until the emulated flash was done.",
        fill: |view, to| {
            Op::ALL
                .iter()
                .for_each(|&op| to.value(&[op.name()], view.host.of(op).held as f64))
        },
    },
    Family {
        name: "ftld_host_read_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host read.",
        fill: |view, to| to.value(&[], view.host.of(Op::Read).bytes as f64),
    },
    Family {
        name: "ftld_host_written_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host wrote.",
        fill: |view, to| to.value(&[], view.host.of(Op::Write).bytes as f64),
    },
    Family {
        name: "ftld_host_discarded_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host trimmed.",
        fill: |view, to| to.value(&[], view.host.of(Op::Trim).bytes as f64),
    },
    Family {
        name: "ftld_host_zeroed_bytes_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes the host set to zero by WRITE ZEROES.",
        fill: |view, to| to.value(&[], view.host.of(Op::WriteZeroes).bytes as f64),
    },
    Family {
        name: "ftld_host_unaligned_ios_total",
        kind: Kind::Counter,
        labels: &[label("op", &["read", "write", "discard", "write_zeroes"])],
        help: "Host requests that touched a part of a flash page.",
        fill: |view, to| {
            ADDRESSED
                .iter()
                .for_each(|&op| to.value(&[op.name()], view.host.of(op).unaligned as f64))
        },
    },
    Family {
        name: "ftld_host_io_errors_total",
        kind: Kind::Counter,
        labels: &[label("op", &OPS), label("errno", &ERRNOS)],
        help: "Host requests that failed.",
        fill: |view, to| {
            for (op, class) in Op::ALL
                .iter()
                .flat_map(|op| ErrorClass::ALL.iter().map(move |class| (op, class)))
            {
                to.value(
                    &[op.name(), class.name()],
                    view.host.of(*op).errors[*class as usize] as f64,
                );
            }
        },
    },
    Family {
        name: "ftld_host_ios_in_flight",
        kind: Kind::Gauge,
        labels: BY_OP,
        help: "Host requests under way: their sum is the queue depth as the volume sees it.",
        fill: |view, to| {
            Op::ALL
                .iter()
                .for_each(|&op| to.value(&[op.name()], view.host.of(op).in_flight as f64))
        },
    },
    Family {
        name: "ftld_host_io_duration_seconds",
        kind: Kind::Histogram,
        labels: BY_OP,
        help: "Time a host request took by the wall clock, waits for the lock, for syncs and for the emulated flash included.",
        fill: |view, to| {
            Op::ALL
                .iter()
                .for_each(|&op| to.histogram(&[op.name()], &view.host.of(op).wall))
        },
    },
    Family {
        name: "ftld_device_io_duration_seconds",
        kind: Kind::Histogram,
        labels: BY_OP,
        help: "Time a host request took on the emulated flash.",
        fill: |view, to| {
            Op::ALL
                .iter()
                .for_each(|&op| to.histogram(&[op.name()], &view.host.of(op).emulated))
        },
    },
    Family {
        name: "ftld_media_sync_duration_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Time that a FLUSH or FUA write waited for the image to reach the host's storage.",
        fill: |view, to| to.histogram(&[], &view.host.sync),
    },
    // Flash
    Family {
        name: "ftld_nand_pages_read_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Flash pages read in full.",
        fill: |view, to| by_cause(view, to, |ops| ops.reads as f64),
    },
    Family {
        name: "ftld_nand_partial_reads_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Short flash reads, such as of an OOB.",
        fill: |view, to| by_cause(view, to, |ops| ops.partial_reads as f64),
    },
    Family {
        name: "ftld_nand_pages_programmed_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Flash pages programmed.",
        fill: |view, to| by_cause(view, to, |ops| ops.programs as f64),
    },
    Family {
        name: "ftld_nand_partial_programs_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Later programs of an OOB alone, where the flash allows them.",
        fill: |view, to| by_cause(view, to, |ops| ops.oob_programs as f64),
    },
    Family {
        name: "ftld_nand_read_bytes_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Data bytes read from flash, by full page reads.",
        fill: |view, to| by_cause(view, to, |ops| ops.reads as f64 * page_bytes(view)),
    },
    Family {
        name: "ftld_nand_programmed_bytes_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Data bytes programmed into flash.",
        fill: |view, to| by_cause(view, to, |ops| ops.programs as f64 * page_bytes(view)),
    },
    Family {
        name: "ftld_nand_erases_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Flash blocks erased.",
        fill: |view, to| by_cause(view, to, |ops| ops.erases as f64),
    },
    Family {
        name: "ftld_nand_busy_seconds_total",
        kind: Kind::Counter,
        labels: &[label("kind", &["read", "program", "erase"])],
        help: "Emulated time during which a die worked, summed over the dies.",
        fill: |view, to| {
            let counters = &view.flash.counters;
            to.value(&["read"], seconds(counters.read_busy_ns));
            to.value(&["program"], seconds(counters.program_busy_ns));
            to.value(&["erase"], seconds(counters.erase_busy_ns));
        },
    },
    Family {
        name: "ftld_nand_program_fails_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Programs that ended in a status failure; each costs a block.",
        fill: |view, to| to.value(&[], view.flash.counters.program_fails as f64),
    },
    Family {
        name: "ftld_nand_erase_fails_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Erases that ended in a status failure; each costs a block.",
        fill: |view, to| to.value(&[], view.flash.counters.erase_fails as f64),
    },
    Family {
        name: "ftld_ecc_uncorrectable_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Flash page reads of which a part that was asked for could not be had.",
        fill: |view, to| to.value(&[], view.flash.counters.uncorrectable_reads as f64),
    },
    Family {
        name: "ftld_ecc_corrected_bit_errors_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Wrong bits that were corrected in flash reads.",
        fill: |view, to| to.value(&[], view.flash.counters.corrected_bits as f64),
    },
    Family {
        name: "ftld_ecc_read_retries_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Times that a flash page was sensed again because its bits could not be corrected.",
        fill: |view, to| to.value(&[], view.flash.counters.read_retries as f64),
    },
    Family {
        name: "ftld_ecc_refresh_blocks",
        kind: Kind::Gauge,
        labels: &[],
        help: "Flash blocks whose bits come near to what can be corrected; their data should be written anew.",
        fill: |view, to| to.value(&[], f64::from(view.flash.blocks_to_refresh)),
    },
    Family {
        name: "ftld_nand_faults_injected_total",
        kind: Kind::Counter,
        labels: &[label("fault", &FAULTS)],
        help: "Faults that the fault plan let happen, power cuts aside.",
        fill: |view, to| {
            let injected = |fault| view.flash.counters.injected(fault) as f64;
            Fault::ALL
                .iter()
                .for_each(|&fault| to.value(&[fault.name()], injected(fault)));
        },
    },
    Family {
        name: "ftld_faults_injected_total",
        kind: Kind::Counter,
        labels: &[label("kind", &INJECTIONS)],
        help: "Faults asked for by `ftld inject`: cuts, blocks, pages.",
        fill: |view, to| {
            INJECTIONS
                .iter()
                .zip(view.injected)
                .for_each(|(kind, count)| to.value(&[kind], count as f64))
        },
    },
    Family {
        name: "ftld_write_amplification_ratio",
        kind: Kind::Gauge,
        labels: &[],
        help: "Data bytes programmed per byte the host wrote, since the daemon started; 0 before the first write.",
        fill: |view, to| to.value(&[], view.write_amplification().unwrap_or(0.0)),
    },
    // Space
    Family {
        name: "ftld_blocks",
        kind: Kind::Gauge,
        labels: BY_STATE,
        help: "Flash blocks by state; the states add up to all blocks.",
        fill: |view, to| {
            view.blocks()
                .iter()
                .for_each(|(state, count)| to.value(&[state], f64::from(*count)))
        },
    },
    Family {
        name: "ftld_pages",
        kind: Kind::Gauge,
        labels: &[label("state", &["valid", "free", "other"])],
        help: "Flash pages: with live content, in free blocks, and all others; the states add up to all pages.",
        fill: |view, to| {
            let (geometry, scheme) = (view.facts.geometry(), &view.flash.scheme);
            let free = scheme.blocks.free as u64 * geometry.pages_per_block as u64;
            to.value(&["valid"], scheme.valid_pages as f64);
            to.value(&["free"], free as f64);
            to.value(
                &["other"],
                geometry.pages().saturating_sub(free + scheme.valid_pages) as f64,
            );
        },
    },
    Family {
        name: "ftld_logical_mapped_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of logical pages that hold data.",
        fill: |view, to| {
            to.value(
                &[],
                view.flash.scheme.mapped_pages as f64 * page_bytes(view),
            )
        },
    },
    Family {
        name: "ftld_gc_reserve_blocks",
        kind: Kind::Gauge,
        labels: &[],
        help: "Erased blocks that collection never goes below.",
        fill: |view, to| to.value(&[], f64::from(view.flash.scheme.reserve_blocks)),
    },
    Family {
        name: "ftld_gc_runs_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Blocks collected.",
        fill: |view, to| to.value(&[], view.flash.scheme.gc_runs as f64),
    },
    Family {
        name: "ftld_gc_pages_moved_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Live pages that collection moved.",
        fill: |view, to| to.value(&[], view.flash.scheme.gc_pages_moved as f64),
    },
    // Wear
    Family {
        name: "ftld_wear_level_moves_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Blocks relocated to even out wear.",
        fill: |view, to| to.value(&[], view.flash.scheme.wear_moves as f64),
    },
    Family {
        name: "ftld_refresh_moves_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Blocks whose data was written anew because their bits came near to what can be corrected.",
        fill: |view, to| to.value(&[], view.flash.scheme.refreshes as f64),
    },
    Family {
        name: "ftld_block_erases_min",
        kind: Kind::Gauge,
        labels: &[],
        help: "Fewest erases of a good block.",
        fill: |view, to| to.value(&[], f64::from(view.flash.wear.min)),
    },
    Family {
        name: "ftld_block_erases_avg",
        kind: Kind::Gauge,
        labels: &[],
        help: "Mean erases of the good blocks.",
        fill: |view, to| to.value(&[], view.flash.wear.mean),
    },
    Family {
        name: "ftld_block_erases_max",
        kind: Kind::Gauge,
        labels: &[],
        help: "Most erases of a good block.",
        fill: |view, to| to.value(&[], f64::from(view.flash.wear.max)),
    },
    Family {
        name: "ftld_block_erases_stddev",
        kind: Kind::Gauge,
        labels: &[],
        help: "Standard deviation of the erases of good blocks.",
        fill: |view, to| to.value(&[], view.flash.wear.stddev),
    },
    Family {
        name: "ftld_block_erase_limit",
        kind: Kind::Gauge,
        labels: &[],
        help: "Rated erases of a block.",
        fill: |view, to| to.value(&[], f64::from(view.facts.profile.endurance)),
    },
    Family {
        name: "ftld_endurance_used_ratio",
        kind: Kind::Gauge,
        labels: &[],
        help: "Mean erases of the good blocks as a share of the rated ones; above 1 the flash lives on borrowed time.",
        fill: |view, to| {
            to.value(
                &[],
                view.flash.wear.mean / f64::from(view.facts.profile.endurance.max(1)),
            )
        },
    },
    Family {
        name: "ftld_block_erase_distribution_blocks",
        kind: Kind::Gauge,
        labels: &[label("at_most", &BOUND_NAMES)],
        help: "Good blocks with at most this many erases; a state that can fall, not a histogram of events.",
        fill: |view, to| {
            let mut below = 0;
            for (bound, count) in BOUND_NAMES.iter().zip(view.flash.wear.distribution) {
                below += count;
                to.value(&[bound], below as f64);
            }
        },
    },
    Family {
        name: "ftld_bad_blocks",
        kind: Kind::Gauge,
        labels: &[label("origin", &["factory", "grown"])],
        help: "Blocks that must not be used.",
        fill: |view, to| {
            to.value(&["factory"], f64::from(view.flash.wear.bad_factory));
            to.value(&["grown"], f64::from(view.flash.wear.bad_grown));
        },
    },
    // Scheme
    Family {
        name: "ftld_scheme_events_total",
        kind: Kind::Counter,
        labels: BY_EVENT,
        help: "What the scheme does beside the host's requests.",
        fill: |view, to| events(view, to, |totals| totals.count as f64),
    },
    Family {
        name: "ftld_scheme_event_pages_total",
        kind: Kind::Counter,
        labels: BY_EVENT,
        help: "Pages that these events copied; of conversions and checkpoints, pages written.",
        fill: |view, to| events(view, to, |totals| totals.pages as f64),
    },
    Family {
        name: "ftld_scheme_event_device_seconds_total",
        kind: Kind::Counter,
        labels: BY_EVENT,
        help: "Emulated time that these events took.",
        fill: |view, to| events(view, to, |totals| totals.took as f64 / 1e9),
    },
    Family {
        name: "ftld_map_cache_lookups_total",
        kind: Kind::Counter,
        labels: &[label("result", &["hit", "miss"])],
        help: "Mapping lookups answered from RAM, and those that read flash.",
        fill: |view, to| {
            to.value(&["hit"], view.flash.scheme.map_cache_hits as f64);
            to.value(&["miss"], view.flash.scheme.map_cache_misses as f64);
        },
    },
    Family {
        name: "ftld_ram_bytes",
        kind: Kind::Gauge,
        labels: &[label("part", &[])],
        help: "RAM of the scheme's tables as really allocated, by the scheme's own parts.",
        fill: |view, to| {
            view.flash
                .ram
                .iter()
                .for_each(|entry| to.value(&[entry.part], entry.real_bytes as f64))
        },
    },
    Family {
        name: "ftld_ram_paper_bytes",
        kind: Kind::Gauge,
        labels: &[label("part", &[])],
        help: "RAM of the scheme's tables as its paper counts it.",
        fill: |view, to| {
            view.flash
                .ram
                .iter()
                .for_each(|entry| to.value(&[entry.part], entry.paper_bytes as f64))
        },
    },
    // Durability
    Family {
        name: "ftld_checkpoints_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Completed checkpoints.",
        fill: |view, to| to.value(&[], view.flash.scheme.checkpoints as f64),
    },
    Family {
        name: "ftld_recovery_clean",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 if the last shutdown of the image was clean, as `ftld inspect` shows it too; 0 after a crash or a power cut.",
        fill: |view, to| to.value(&[], f64::from(u8::from(view.facts.was_clean))),
    },
    Family {
        name: "ftld_recovery_duration_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Time from opening the image to being ready to serve, by the wall clock.",
        fill: |view, to| to.value(&[], view.facts.opened_in.as_secs_f64()),
    },
    Family {
        name: "ftld_recovery_device_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Emulated time of the last mount.",
        fill: |view, to| to.value(&[], seconds(view.flash.scheme.mount.total_ns())),
    },
    Family {
        name: "ftld_recovery_pages_scanned",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pages the last mount looked at.",
        fill: |view, to| to.value(&[], view.flash.scheme.mount.pages_scanned as f64),
    },
    Family {
        name: "ftld_recovery_discarded_pages",
        kind: Kind::Gauge,
        labels: &[],
        help: "Pages the last mount could not read, or dropped as suspect.",
        fill: |view, to| to.value(&[], view.flash.scheme.mount.pages_discarded as f64),
    },
    // NBD
    Family {
        name: "ftld_nbd_connections",
        kind: Kind::Gauge,
        labels: &[label("state", &["negotiating", "connected"])],
        help: "NBD connections now; 0 where NBD is not served.",
        fill: |view, to| {
            to.value(&["negotiating"], view.nbd.negotiating as f64);
            to.value(&["connected"], view.nbd.connected as f64);
        },
    },
    Family {
        name: "ftld_nbd_connections_total",
        kind: Kind::Counter,
        labels: &[label(
            "result",
            &["accepted", "evicted", "refused", "dropped"],
        )],
        help: "NBD connections accepted, and of those: pushed out for a newer one, turned away, cut off for misbehaviour.",
        fill: |view, to| {
            to.value(&["accepted"], view.nbd.accepted as f64);
            to.value(&["evicted"], view.nbd.evicted as f64);
            to.value(&["refused"], view.nbd.refused as f64);
            to.value(&["dropped"], view.nbd.dropped as f64);
        },
    },
    Family {
        name: "ftld_nbd_requests_total",
        kind: Kind::Counter,
        labels: &[label("command", &COMMANDS)],
        help: "NBD requests by command.",
        fill: |view, to| {
            COMMANDS
                .iter()
                .zip(view.nbd.requests)
                .for_each(|(name, n)| to.value(&[name], n as f64))
        },
    },
    Family {
        name: "ftld_nbd_request_errors_total",
        kind: Kind::Counter,
        labels: &[],
        help: "NBD requests answered with an error.",
        fill: |view, to| to.value(&[], view.nbd.errors as f64),
    },
    Family {
        name: "ftld_nbd_requests_in_flight",
        kind: Kind::Gauge,
        labels: &[],
        help: "NBD requests whose reply is not on its way yet.",
        fill: |view, to| to.value(&[], view.nbd.in_flight as f64),
    },
];

/// Names of [`WEAR_BOUNDS`], and of the class above them.
const BOUND_NAMES: [&str; WEAR_BOUNDS.len() + 1] = [
    "0", "1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "3000", "10000", "100000",
    "+Inf",
];

fn events(view: &View, to: &mut dyn Sink, value: impl Fn(&EventTotals) -> f64) {
    EVENTS
        .iter()
        .zip(&view.flash.events)
        .for_each(|(event, totals)| to.value(&[event], value(totals)));
}

fn by_cause(view: &View, to: &mut dyn Sink, value: impl Fn(&OpCounts) -> f64) {
    Cause::ALL
        .iter()
        .for_each(|&cause| to.value(&[cause.name()], value(view.flash.counters.of(cause))));
}

fn page_bytes(view: &View) -> f64 {
    f64::from(view.facts.geometry().page_bytes)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
