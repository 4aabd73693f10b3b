//! A row as human-readable text.

use super::job::Arrival;
use super::latency::Response;
use super::row::{Requests, Row, TAXES};
use crate::convert::to_f64;
use crate::counters::Operations;
use crate::method::ResponseUnit;
use crate::size::show_size;
use nand_model::Cause;

/// Adds a line: name, the scheme's value, the bound's value.
fn line(text: &mut String, what: &str, scheme: &str, optimum: &str) {
    let line = format!("{what:<28} {scheme:>15} {optimum:>15}");
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
        ("flush", &row.response_ns.flush),
    ] {
        if let Some(response) = response {
            responses(&mut text, row, name, response);
        }
    }
    line(
        &mut text,
        "utilisation of raw flash",
        &format!("{:.1} %", row.collected.utilisation * 100.0),
        "",
    );
    line(
        &mut text,
        "pages copied",
        &row.collected.copies.to_string(),
        "0",
    );
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
    let counts = &row.scheme_stats.counters;
    let merges = [
        counts.switch_merges,
        counts.partial_merges,
        counts.full_merges,
    ];
    if merges.iter().any(|merges| *merges > 0) {
        line(
            &mut text,
            "switch, partial, full merges",
            &merges.map(|merges| merges.to_string()).join(", "),
            "",
        );
    }
    stalls(&mut text, row);
    for (name, found) in [
        ("map hits of reads", row.map_cache.hit_ratio_read),
        ("map hits of writes", row.map_cache.hit_ratio_write),
    ] {
        if found.is_some() {
            line(&mut text, name, &ratio(found), "");
        }
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
            let rule = before.rule.map_or(String::new(), |rule| {
                format!(
                    " ({} windows of {} drive writes within {} %, after at most {})",
                    rule.windows,
                    rule.window_drive_writes,
                    rule.tolerance * 100.0,
                    rule.limit_drive_writes
                )
            });
            format!(
                "before: {:.2} drive writes, at the end write amplification {waf:.3}{steady}{rule}\n",
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
    let behind = match requests.out_of_order {
        0 => String::new(),
        behind => format!(", {behind} of them not in the order of their times"),
    };
    text += &format!(
        "requests: {} {how}{behind}; read {}, written {}, trimmed {}; format {}\n\n",
        requests.completed,
        show_size(requests.read_bytes),
        show_size(requests.written_bytes),
        show_size(requests.trimmed_bytes),
        trace_format(requests)
    );
    text
}

/// Returns the format of a trace, with its units.
pub(crate) fn trace_format(requests: &Requests) -> String {
    match (&requests.format, &requests.units) {
        (Some(format), Some(units)) => format!("{format} ({units})"),
        (Some(format), None) => format.clone(),
        (None, _) => "synthetic".into(),
    }
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
        &seconds(busy.total()),
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

fn stalls(text: &mut String, row: &Row) {
    for (cause, stalls) in &row.write_stalls {
        line(
            text,
            &format!("writes stalled by {cause}, s"),
            &format!("{:.3}", to_f64(stalls.total_ns) / 1e9),
            "",
        );
    }
    let Some(cost) = &row.convert_cost else {
        return;
    };
    line(
        text,
        "mapping pages per conversion",
        &format!("{:.2}", cost.mean),
        "",
    );
    for (label, pages) in [("p99", cost.p99), ("p99.9", cost.p999), ("max", cost.max)] {
        line(text, &format!("  {label}"), &pages.to_string(), "");
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
