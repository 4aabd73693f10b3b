//! Flash: operations, errors and injected faults.

use super::{BY_CAUSE, FAULTS, Family, INJECTIONS, Kind, by_cause, label, page_bytes, seconds};
use crate::convert::to_f64;
use nand_model::Fault;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_nand_pages_read_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Flash pages read in full.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.reads)),
    },
    Family {
        name: "ftld_nand_partial_reads_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Short flash reads, such as of an OOB.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.partial_reads)),
    },
    Family {
        name: "ftld_nand_pages_programmed_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Flash pages programmed.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.programs)),
    },
    Family {
        name: "ftld_nand_partial_programs_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Later programs of an OOB alone, where the flash allows them.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.oob_programs)),
    },
    Family {
        name: "ftld_nand_read_bytes_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Data bytes read from flash, by full page reads.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.reads) * page_bytes(view)),
    },
    Family {
        name: "ftld_nand_programmed_bytes_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Data bytes programmed into flash.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.programs) * page_bytes(view)),
    },
    Family {
        name: "ftld_nand_erases_total",
        kind: Kind::Counter,
        labels: BY_CAUSE,
        help: "Flash blocks erased.",
        fill: |view, to| by_cause(view, to, |ops| to_f64(ops.erases)),
    },
    Family {
        name: "ftld_nand_copybacks_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Flash pages copied inside a plane; each also counts as read and program.",
        fill: |view, to| to.value(&[], to_f64(view.flash.counters.copybacks)),
    },
    Family {
        name: "ftld_nand_busy_seconds_total",
        kind: Kind::Counter,
        labels: &[label("kind", &["read", "program", "erase"])],
        help: "Emulated time that dies were busy, summed over the dies.",
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
        fill: |view, to| to.value(&[], to_f64(view.flash.counters.program_fails)),
    },
    Family {
        name: "ftld_nand_erase_fails_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Erases that ended in a status failure; each costs a block.",
        fill: |view, to| to.value(&[], to_f64(view.flash.counters.erase_fails)),
    },
    Family {
        name: "ftld_ecc_uncorrectable_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Flash page reads with an uncorrectable ECC error.",
        fill: |view, to| to.value(&[], to_f64(view.flash.counters.uncorrectable_reads)),
    },
    Family {
        name: "ftld_ecc_corrected_bit_errors_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Wrong bits that were corrected in flash reads.",
        fill: |view, to| to.value(&[], to_f64(view.flash.counters.corrected_bits)),
    },
    Family {
        name: "ftld_ecc_read_retries_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Read retries of flash pages whose bits could not be corrected.",
        fill: |view, to| to.value(&[], to_f64(view.flash.counters.read_retries)),
    },
    Family {
        name: "ftld_ecc_refresh_blocks",
        kind: Kind::Gauge,
        labels: &[],
        help: "Flash blocks near their ECC limit; their data should be rewritten.",
        fill: |view, to| to.value(&[], f64::from(view.flash.blocks_to_refresh)),
    },
    Family {
        name: "ftld_nand_faults_injected_total",
        kind: Kind::Counter,
        labels: &[label("fault", &FAULTS)],
        help: "Faults injected by the fault plan, power cuts excluded.",
        fill: |view, to| {
            let injected = |fault| to_f64(view.flash.counters.injected(fault));
            Fault::ALL
                .iter()
                .for_each(|&fault| to.value(&[fault.name()], injected(fault)));
        },
    },
    Family {
        name: "ftld_faults_injected_total",
        kind: Kind::Counter,
        labels: &[label("kind", INJECTIONS)],
        help: "Faults injected by `ftld inject`: cuts, blocks, pages, requests.",
        fill: |view, to| {
            INJECTIONS
                .iter()
                .zip(view.injected)
                .for_each(|(kind, count)| to.value(&[kind], to_f64(count)))
        },
    },
    Family {
        name: "ftld_write_amplification_ratio",
        kind: Kind::Gauge,
        labels: &[],
        help: "Data bytes programmed per byte the host wrote since the start; 0 before the first write.",
        fill: |view, to| to.value(&[], view.write_amplification().unwrap_or(0.0)),
    },
];
