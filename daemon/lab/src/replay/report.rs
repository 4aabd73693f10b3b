//! A row as human-readable text.

use super::job::{Arrival, Form};
use super::latency::Response;
use super::row::{Requests, Row, Spent, TAXES};
use ftld_device::counters::Operations;
use ftld_device::method::ResponseUnit;
use ftld_kit::convert::to_f64;
use ftld_kit::size::show_size;
use nand_model::Cause;

/// The lines of a table: name, the scheme's value, the bound's value.
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, scheme: impl ToString, optimum: impl ToString) {
        let (scheme, optimum) = (scheme.to_string(), optimum.to_string());
        let line = format!("{name:<28} {scheme:>15} {optimum:>15}");
        self.0 += line.trim_end();
        self.0.push('\n');
    }
}

fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".into(), ratio)
}

fn us(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

fn seconds(ns: f64) -> String {
    format!("{:.3}", ns / 1e9)
}

/// Returns the table of one run, with the bound alongside.
pub(super) fn table(row: &Row) -> String {
    let mut lines = Lines(head(row));
    lines.add("", &row.scheme, "optimum");
    let waf = &row.write_amplification;
    let bound = waf.total.map_or(String::new(), |_| ratio(1.0));
    lines.add("write amplification", optional(waf.total), bound);
    for (cause, value) in &waf.by_cause {
        lines.add(&format!("  {cause}"), ratio(*value), "");
    }
    if let Some(taxes) = waf.taxes.filter(|taxes| *taxes > 0.0) {
        let causes = TAXES.map(Cause::name).join(", ");
        lines.add("  taxes", ratio(taxes), format!("({causes})"));
    }
    flash(&mut lines, row);
    let all = row.load.as_ref().and(row.response_ns.all.as_ref()).cloned();
    for (name, response) in [
        ("all", &all),
        ("read", &row.response_ns.read),
        ("write", &row.response_ns.write),
        ("trim", &row.response_ns.trim),
        ("flush", &row.response_ns.flush),
    ] {
        if let Some(response) = response {
            responses(&mut lines, row, name, response);
        }
    }
    load(&mut lines, row);
    let utilisation = row.collected.utilisation * 100.0;
    lines.add(
        "utilisation of raw flash",
        format!("{utilisation:.1} %"),
        "",
    );
    lines.add("pages copied", row.collected.copies, "0");
    let erases = &row.erases;
    let per_block = row.optimum.erases / f64::from(row.device.blocks);
    let mean = format!("{:.2}", erases.mean);
    lines.add("erases per block, mean", mean, format!("{per_block:.2}"));
    lines.add(
        "  min to max",
        format!("{} to {}", erases.min, erases.max),
        "",
    );
    lines.add("  standard deviation", format!("{:.2}", erases.stddev), "");
    let counts = &row.scheme_stats.counters;
    let merges = [
        counts.switch_merges,
        counts.partial_merges,
        counts.full_merges,
    ];
    if merges.iter().any(|merges| *merges > 0) {
        let merges = merges.map(|merges| merges.to_string()).join(", ");
        lines.add("switch, partial, full merges", merges, "");
    }
    stalls(&mut lines, row);
    for (name, found) in [
        ("map hits of reads", row.map_cache.hit_ratio_read),
        ("map hits of writes", row.map_cache.hit_ratio_write),
    ] {
        if let Some(found) = found {
            lines.add(name, ratio(found), "");
        }
    }
    lines.add("RAM (paper)", show_size(row.ram.paper_bytes), "");
    lines.add("RAM (allocated)", show_size(row.ram.allocated_bytes), "");
    for pair in &row.ram.fitted {
        lines.add(&format!("  fitted {pair}"), "", "");
    }
    for part in &row.ram.parts {
        lines.add(
            &format!("  {}", part.part),
            show_size(part.allocated_bytes),
            "",
        );
    }
    lines.0 + &foot(row)
}

fn head(row: &Row) -> String {
    let (device, requests) = (&row.device, &row.requests);
    let mut text = format!(
        "{}: scheme {} on {}, {} for the host on {} of raw flash{}, effective over-provisioning {:.1} %\n",
        row.job.workload,
        row.scheme,
        device.profile,
        show_size(device.size_bytes),
        show_size(device.raw_bytes),
        match device.slc_bytes {
            0 => String::new(),
            bytes => format!(" with an SLC region of {}", show_size(bytes)),
        },
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
    text += &settling(row);
    let how = match row.job.method.arrival {
        Arrival::Closed if row.job.method.depth == 1 => "queue depth 1".into(),
        Arrival::Closed => format!("queue depth {}", row.job.method.depth),
        arrival => {
            let times = match arrival {
                Arrival::Poisson => "at random",
                Arrival::Constant => "in equal intervals",
                Arrival::Closed | Arrival::Trace => "by timestamps",
            };
            let rate = |rate| format!(", {rate} per second");
            let rate = row.job.rate.map_or(String::new(), rate);
            let idle = match row.job.method.idle {
                true => ", background GC when idle",
                false => "",
            };
            format!("{times}{rate}{idle}")
        }
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

/// Returns the form, and whether the write amplification had settled.
fn settling(row: &Row) -> String {
    let form = row.job.method.form.map(Form::name);
    let form = form.map_or(String::new(), |name| format!("form: {name}\n"));
    let Some(settling) = &row.settling else {
        return form;
    };
    let figures: Vec<_> = settling
        .write_amplification
        .iter()
        .copied()
        .map(ratio)
        .collect();
    form + &format!(
        "write amplification of the {}: {}: {}\n",
        settling.over.name(),
        figures.join(", "),
        settling.verdict()
    )
}

/// Returns the format of a trace, with its units.
pub(crate) fn trace_format(requests: &Requests) -> String {
    match (&requests.format, &requests.units) {
        (Some(format), Some(units)) => format!("{format} ({units})"),
        (Some(format), None) => format.clone(),
        (None, _) => "synthetic".into(),
    }
}

fn flash(lines: &mut Lines, row: &Row) {
    let (total, requests) = (&row.flash_total, &row.requests);
    lines.add("flash reads", total.reads, requests.pages_read);
    for (name, count) in [
        ("  partial", total.partial_reads),
        ("  OOB programs", total.oob_programs),
    ] {
        if count > 0 {
            lines.add(name, count, "");
        }
    }
    lines.add("flash programs", total.programs, requests.pages_written);
    lines.add(
        "flash erases",
        total.erases,
        format!("{:.0}", row.optimum.erases),
    );
    if let Some(energy) = &row.energy_j {
        lines.add("flash energy, J", format!("{:.3}", energy.total), "");
    }
    let busy = seconds(row.flash_busy_ns.total());
    lines.add("die busy time, s", busy, seconds(row.optimum.work_ns));
}

fn responses(lines: &mut Lines, row: &Row, name: &str, response: &Response) {
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
    let bound = bound.map_or(String::new(), us);
    lines.add(&format!("{name}{of}, mean us"), us(response.mean), bound);
    for (label, ns) in [
        ("p50", response.p50),
        ("p99", response.p99),
        ("p99.9", response.p999),
        ("max", response.max),
    ] {
        lines.add(&format!("  {label}"), us(to_f64(ns)), "");
    }
}

fn load(lines: &mut Lines, row: &Row) {
    let Some(load) = &row.load else {
        return;
    };
    let per_second = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.1}"));
    lines.add(
        "offered per second",
        per_second(load.offered_per_second),
        "",
    );
    let completed = per_second(load.completed_per_second);
    lines.add("completed per second", completed, "");
    let slowest = format!("slowest {}, mean us", load.slowest.requests);
    for (name, spent) in [(&*slowest, &load.slowest), ("slowest, us", &load.maximum)] {
        lines.add(name, us(spent.mean_ns), "");
        let Spent {
            mean_ns,
            waited_ns,
            by_cause_ns,
            ..
        } = spent;
        let mut parts: Vec<_> = by_cause_ns.iter().collect();
        parts.sort_by(|a, b| b.1.total_cmp(a.1));
        let parts = parts.into_iter().map(|(cause, ns)| (cause.as_str(), *ns));
        for (name, ns) in parts.chain(waited_ns.map(|ns| ("of all, waiting", ns))) {
            let percent = 100.0 * ns / mean_ns.max(1.0);
            lines.add(&format!("  {name}"), format!("{percent:.1} %"), "");
        }
    }
}

/// Returns a warning if the device did not sustain the load.
pub(crate) fn overload(row: &Row) -> Option<String> {
    let load = row.load.as_ref().filter(|load| !load.is_sustained)?;
    let (offered, completed) = load.offered_per_second.zip(load.completed_per_second)?;
    Some(format!(
        "{} on {}: {offered:.1} requests per second are more than the device sustains: it completed \
         {completed:.1} per second and ended {} s after the last arrival, so response times grow with \
         the length of the run; choose a --rate below {completed:.1}",
        row.job.workload,
        row.scheme,
        seconds(to_f64(load.backlog_ns))
    ))
}

fn stalls(lines: &mut Lines, row: &Row) {
    for (cause, stalls) in &row.write_stalls {
        let name = format!("writes stalled by {cause}, s");
        lines.add(&name, seconds(to_f64(stalls.total_ns)), "");
    }
    let Some(cost) = &row.convert_cost else {
        return;
    };
    lines.add(
        "mapping pages per conversion",
        format!("{:.2}", cost.mean),
        "",
    );
    for (label, pages) in [("p99", cost.p99), ("p99.9", cost.p999), ("max", cost.max)] {
        lines.add(&format!("  {label}"), pages, "");
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
