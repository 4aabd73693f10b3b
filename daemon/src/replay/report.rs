//! A row as human-readable text.

use super::job::Arrival;
use super::measure::Response;
use super::row::{Operations, Row, TAXES};
use crate::convert::to_f64;
use crate::method::ResponseUnit;
use crate::size::show_size;
use nand_model::Cause;

/// Adds a line: name, the scheme's value, the bound's value.
fn line(text: &mut String, what: &str, scheme: &str, optimum: &str) {
    let line = format!("{what:<30} {scheme:>16} {optimum:>16}");
    *text += line.trim_end();
    text.push('\n');
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.3}"))
}

fn us(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

/// Returns the table of one run, with the bound alongside.
pub(super) fn table(row: &Row) -> String {
    let mut text = head(row);
    line(&mut text, "", &row.scheme, "optimum");
    let bound = |value: f64| {
        row.write_amplification
            .total
            .map_or(String::new(), |_| format!("{value:.3}"))
    };
    line(
        &mut text,
        "write amplification",
        &ratio(row.write_amplification.total),
        &bound(1.0),
    );
    for (cause, value) in &row.write_amplification.by_cause {
        line(&mut text, &format!("  {cause}"), &ratio(Some(*value)), "");
    }
    if let Some(taxes) = row.write_amplification.taxes.filter(|taxes| *taxes > 0.0) {
        let causes = TAXES.map(Cause::name).join(", ");
        line(
            &mut text,
            "  taxes",
            &ratio(Some(taxes)),
            &format!("({causes})"),
        );
    }
    flash(&mut text, row);
    for (name, response) in [
        ("read", &row.response_ns.read),
        ("write", &row.response_ns.write),
        ("trim", &row.response_ns.trim),
    ] {
        if let Some(response) = response {
            responses(&mut text, row, name, response);
        }
    }
    let erases = &row.erases;
    let per_block = row.optimum.erases / f64::from(row.device.blocks);
    line(
        &mut text,
        "erases per block, mean",
        &format!("{:.2}", erases.mean),
        &format!("{per_block:.2}"),
    );
    line(
        &mut text,
        "  min to max",
        &format!("{} to {}", erases.min, erases.max),
        "",
    );
    line(
        &mut text,
        "  standard deviation",
        &format!("{:.2}", erases.stddev),
        "",
    );
    if row.map_cache.misses > 0 {
        line(
            &mut text,
            "map cache hit ratio",
            &ratio(row.map_cache.hit_ratio),
            "",
        );
    }
    line(
        &mut text,
        "RAM (paper)",
        &show_size(row.ram.paper_bytes),
        "",
    );
    line(
        &mut text,
        "RAM (allocated)",
        &show_size(row.ram.allocated_bytes),
        "",
    );
    for pair in &row.ram.fitted {
        line(&mut text, &format!("  fitted {pair}"), "", "");
    }
    for part in &row.ram.parts {
        line(
            &mut text,
            &format!("  {}", part.part),
            &show_size(part.allocated_bytes),
            "",
        );
    }
    text + &foot(row)
}

fn head(row: &Row) -> String {
    let (device, requests) = (&row.device, &row.requests);
    let mut text = format!(
        "{}: scheme {} on {}, {} for the host on {} of raw flash, effective over-provisioning {:.1} %\n",
        row.job.workload,
        row.scheme,
        device.profile,
        show_size(device.size_bytes),
        show_size(device.raw_bytes),
        device.effective_op_percent
    );
    let before = &row.precondition;
    text += &match (before.write_amplification, before.steady) {
        (None, _) if before.drive_writes == 0.0 => "before: no writes\n".into(),
        (None, _) => format!(
            "before: {:.2} % of the pages written once, sequentially\n",
            before.drive_writes * 100.0
        ),
        (Some(waf), steady) => {
            let steady = match steady {
                Some(true) => ", steady state",
                Some(false) => ", NOT in steady state",
                None => "",
            };
            format!(
                "before: {:.2} drive writes, at the end write amplification {waf:.3}{steady}\n",
                before.drive_writes
            )
        }
    };
    let how = match row.job.method.arrival {
        Arrival::Closed if row.job.method.depth == 1 => "queue depth 1".into(),
        Arrival::Closed => format!("queue depth {}", row.job.method.depth),
        Arrival::Trace if row.job.method.idle => "by timestamps, background GC when idle".into(),
        Arrival::Trace => "by timestamps".to_owned(),
    };
    text += &format!(
        "requests: {} {how}; read {}, written {}, trimmed {}; format {}\n\n",
        requests.completed,
        show_size(requests.read_bytes),
        show_size(requests.written_bytes),
        show_size(requests.trimmed_bytes),
        requests.format.as_deref().unwrap_or("synthetic")
    );
    text
}

fn flash(text: &mut String, row: &Row) {
    let Operations {
        reads,
        partial_reads,
        programs,
        oob_programs,
        erases,
    } = row.flash_total;
    let requests = &row.requests;
    line(
        text,
        "flash reads",
        &reads.to_string(),
        &requests.pages_read.to_string(),
    );
    for (name, count) in [
        ("  partial", partial_reads),
        ("  OOB programs", oob_programs),
    ] {
        if count > 0 {
            line(text, name, &count.to_string(), "");
        }
    }
    line(
        text,
        "flash programs",
        &programs.to_string(),
        &requests.pages_written.to_string(),
    );
    line(
        text,
        "flash erases",
        &erases.to_string(),
        &format!("{:.0}", row.optimum.erases),
    );
    let busy = row.flash_busy_ns;
    let seconds = |ns: f64| format!("{:.3}", ns / 1e9);
    line(
        text,
        "die busy time, s",
        &seconds(to_f64(busy.read + busy.program + busy.erase)),
        &seconds(row.optimum.work_ns),
    );
}

fn responses(text: &mut String, row: &Row, name: &str, response: &Response) {
    let of = match row.job.method.response_unit() {
        ResponseUnit::PerRequest => "",
        ResponseUnit::PerPage => " page",
        ResponseUnit::PerRecord => " record",
    };
    let bound = match name {
        "read" => row.optimum.mean_read_ns,
        "write" => row.optimum.mean_write_ns,
        _ => None,
    };
    line(
        text,
        &format!("{name}{of}, mean us"),
        &us(response.mean),
        &bound.map_or(String::new(), us),
    );
    for (label, ns) in [
        ("p50", response.p50),
        ("p99", response.p99),
        ("p99.9", response.p999),
        ("max", response.max),
    ] {
        line(text, &format!("  {label}"), &us(to_f64(ns)), "");
    }
}

fn foot(row: &Row) -> String {
    let Operations {
        reads,
        partial_reads,
        programs,
        oob_programs,
        erases,
    } = row.flash_total;
    let operations = to_f64(reads + partial_reads + programs + oob_programs + erases);
    format!(
        "\n{:.2} s of CPU, {:.2} s in all; {:.2} M flash operations per CPU-second\n",
        row.run.cpu_seconds,
        row.run.wall_seconds,
        operations / row.run.cpu_seconds.max(1e-9) / 1e6
    )
}
