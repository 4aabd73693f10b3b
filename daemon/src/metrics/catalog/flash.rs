//! Flash: operations, errors and injected faults.

use super::{
    BY_CAUSE, FAULTS, Family, INJECTIONS, by_cause, counter, counters, gauge, label, list,
    page_bytes, seconds,
};
use ftld_kit::convert::to_f64;
use nand_model::{Fault, OpCounts};

pub(super) const FAMILIES: &[Family] = &[
    counters(
        "ftld_nand_read_bytes_total",
        BY_CAUSE,
        "Data bytes read from flash, by full page reads.",
        |view| by_cause(view, |ops| to_f64(ops.reads) * page_bytes(view)),
    ),
    counters(
        "ftld_nand_programmed_bytes_total",
        BY_CAUSE,
        "Data bytes programmed into flash.",
        |view| by_cause(view, |ops| to_f64(ops.programs) * page_bytes(view)),
    ),
    counters(
        "ftld_nand_energy_joules_total",
        BY_CAUSE,
        "Energy of flash operations; 0 if the profile has no figures.",
        |view| {
            let profile = &view.facts.profile;
            let joules = |ops: &OpCounts| {
                let of = profile.energy.as_ref();
                of.map_or(0.0, |of| of.joules(ops, &profile.geometry))
            };
            by_cause(view, joules)
        },
    ),
    counter(
        "ftld_nand_copybacks_total",
        "Flash pages copied inside a plane; each also counts as read and program.",
        |view| to_f64(view.flash.counters.copybacks),
    ),
    counters(
        "ftld_nand_busy_seconds_total",
        &[label("kind", &["read", "program", "erase"])],
        "Emulated time that dies were busy, summed over the dies.",
        |view| {
            let of = &view.flash.counters;
            [of.read_busy_ns, of.program_busy_ns, of.erase_busy_ns]
                .map(seconds)
                .to_vec()
        },
    ),
    counter(
        "ftld_nand_program_fails_total",
        "Programs that ended in a status failure; each costs a block.",
        |view| to_f64(view.flash.counters.program_fails),
    ),
    counter(
        "ftld_nand_erase_fails_total",
        "Erases that ended in a status failure; each costs a block.",
        |view| to_f64(view.flash.counters.erase_fails),
    ),
    counter(
        "ftld_ecc_uncorrectable_total",
        "Flash page reads with an uncorrectable ECC error.",
        |view| to_f64(view.flash.counters.uncorrectable_reads),
    ),
    counter(
        "ftld_ecc_corrected_bit_errors_total",
        "Wrong bits that were corrected in flash reads.",
        |view| to_f64(view.flash.counters.corrected_bits),
    ),
    counter(
        "ftld_ecc_read_retries_total",
        "Read retries of flash pages whose bits could not be corrected.",
        |view| to_f64(view.flash.counters.read_retries),
    ),
    gauge(
        "ftld_ecc_refresh_blocks",
        "Flash blocks near their ECC limit; their data should be rewritten.",
        |view| f64::from(view.flash.blocks_to_refresh),
    ),
    counters(
        "ftld_nand_faults_injected_total",
        &[label("fault", &FAULTS)],
        "Faults injected by the fault plan, power cuts excluded.",
        |view| list(Fault::ALL.map(|fault| view.flash.counters.injected(fault))),
    ),
    counters(
        "ftld_faults_injected_total",
        &[label("kind", INJECTIONS)],
        "Faults injected by `ftld inject`: cuts, blocks, pages, requests.",
        |view| list(view.injected),
    ),
    gauge(
        "ftld_write_amplification_ratio",
        "Data bytes programmed per byte the host wrote since the start; 0 before the first write.",
        |view| view.write_amplification().unwrap_or(0.0),
    ),
];
