//! `ftld status`, once and at intervals.

use super::instances::{ask_status, page_of, pick};
use crate::convert::whole;
use crate::failure::Failure;
use crate::instance::Dirs;
use crate::output::{Tone, print, print_json, print_text, width, with_schema, wrapped};
use crate::rates::{Latency, Rates, show_ns};
use crate::size::show_size;
use crate::volume::write_cache::CutCounts;
use serde_json::{Value, json};
use std::time::Duration;

/// Lines of `ftld status --watch` between two headings.
const HEADING_EVERY: usize = 20;

/// `ftld status`; `brief` shortens the JSON to what the text has.
///
/// # Errors
/// No such instance runs, or it does not answer.
pub fn status(dirs: &Dirs, name: Option<&str>, brief: bool, as_json: bool) -> Result<(), Failure> {
    let status = ask_status(dirs, &pick(dirs, name)?)?;
    if as_json && brief {
        return print_json("status-brief", brief_json(&status));
    }
    if as_json {
        return print_json("status", status);
    }
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let size = |value: &Value| value.as_u64().map_or("-".into(), show_size);
    let mut lines = vec![format!(
        "{}: {} (pid {})",
        text(&status["name"]),
        text(&status["state"]),
        status["pid"]
    )];
    for (label, key) in [
        ("target", "target"),
        ("image", "image"),
        ("metrics", "metrics"),
    ] {
        lines.push(format!("  {label:<10} {}", text(&status[key])));
    }
    if let Some(page) = page_of(&status) {
        lines.push(format!("  {:<10} {page}", "page"));
    }
    let raw = size(&status["raw_bytes"]);
    lines.push(format!(
        "  {:<10} {} on {raw} of {} flash, scheme {}",
        "device",
        size(&status["size_bytes"]),
        text(&status["profile"]),
        text(&status["scheme"])
    ));
    if let Some(shards) = shards_text(&status) {
        lines.push(format!("  {:<10} {shards}", "shards"));
    }
    lines.push(format!("  {:<10} {}", "verify", text(&status["verify"])));
    let host = &status["host"];
    lines.push(format!(
        "  {:<10} read {}, written {}, flushes {}",
        "host",
        size(&host["read"]["bytes"]),
        size(&host["write"]["bytes"]),
        host["flush"]["completed"]
    ));
    if let Some(ratio) = status["write_amplification"].as_f64() {
        let parts = by_cause(&status).into_iter();
        let parts: Vec<_> = parts
            .map(|(cause, of)| format!("{cause} {of:.2}"))
            .collect();
        lines.push(format!(
            "  {:<10} write amplification {ratio:.2}: {}",
            "flash",
            parts.join(", ")
        ));
    }
    for op in ["write", "read", "flush"] {
        if let Some(latency) = Latency::between(&Value::Null, &status, &[op]) {
            lines.push(format!(
                "  {op:<10} p50 {}, p99 {}, p99.9 {} (wall clock, since the start)",
                show_ns(latency.p50),
                show_ns(latency.p99),
                show_ns(latency.p999)
            ));
        }
    }
    if let Some(cache) = cache_text(&status) {
        lines.push(format!("  {:<10} {cache}", "cache"));
    }
    lines.push(format!("  {:<10} {}", "mount", mount_text(&status)));
    if let Some(cut) = cut_text(&status) {
        lines.push(format!("  {:<10} {cut}", "cut"));
    }
    let wear = &status["wear"];
    let mean = wear["mean"].as_f64().unwrap_or_default();
    lines.push(format!(
        "  {:<10} erases {} to {}, mean {mean:.1}",
        "wear", wear["min"], wear["max"]
    ));
    if let Some(left) = status["paused"]["seconds_left"].as_f64() {
        lines.push(format!(
            "  {:<10} {left:.0} s left; `ftld resume` ends it",
            "paused"
        ));
    }
    if let Some(behind) = status["host_behind"].as_str() {
        lines.push(format!("  {:<10} {behind}", "behind"));
    }
    if let Some(failing) = status["writes_failing"].as_str() {
        lines.push(format!("  {:<10} {failing}", "failing"));
    }
    for fault in status["faults"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  {:<10} {}; `ftld inject clear` ends it",
            "fault",
            text(fault)
        ));
    }
    let recording = &status["recording"];
    if recording.is_object() {
        lines.push(format!(
            "  {:<10} {}",
            "recording",
            recording_text(recording)
        ));
    }
    let reason = text(&status["read_only_reason"]);
    if !reason.is_empty() {
        lines.push(format!("  {:<10} {reason}", "read-only"));
    }
    let (state, text) = (text(&status["state"]), wrapped(&lines.join("\n")));
    let painted = format!(": {} (pid", Tone::of_state(&state).paint(&state));
    print_text(&text.replacen(&format!(": {state} (pid"), &painted, 1))
}

/// Returns the chips of a device that has several.
fn shards_text(status: &Value) -> Option<String> {
    let shards = status["shards"].as_array().filter(|all| all.len() > 1)?;
    let of = |key: &str| {
        let counts: Vec<_> = shards.iter().map(|shard| shard[key].to_string()).collect();
        counts.join(", ")
    };
    Some(format!(
        "{}: programs {}; erases {}; free blocks {}",
        shards.len(),
        of("programs"),
        of("erases"),
        of("free_blocks")
    ))
}

/// Returns where requests are recorded, and how much.
fn recording_text(recording: &Value) -> String {
    if let Some(why) = recording["failure"].as_str() {
        return format!("failed: {why}");
    }
    format!(
        "to {}: {} entries, {}; {} requests waited for it",
        recording["file"].as_str().unwrap_or("-"),
        recording["entries"],
        show_size(recording["bytes"].as_u64().unwrap_or_default()),
        recording["waits"]
    )
}

/// Returns the state of the write cache, if there is one or none is announced.
fn cache_text(status: &Value) -> Option<String> {
    let cache = &status["write_cache"];
    let size = |key: &str| show_size(cache[key].as_u64().unwrap_or(0));
    if cache["capacity_bytes"].as_u64()? == 0 {
        let is_durable = cache["write_through"] == true;
        return is_durable
            .then(|| "none announced: every write is durable when it completes".into());
    }
    let loses = match cache["power_loss_protection"] == true {
        true => "power-loss protection",
        false => cache["model"].as_str().unwrap_or("-"),
    };
    let through = match cache["write_through"] == true {
        true => "; write through",
        false => "",
    };
    Some(format!(
        "{} dirty of {}, read hits {} ({loses}{through})",
        size("dirty_bytes"),
        size("capacity_bytes"),
        size("read_hit_bytes")
    ))
}

/// Returns what the power cut or host crash before this start left of a write cache.
fn cut_text(status: &Value) -> Option<String> {
    let units = status["write_cache"]["last_cut_units"].as_object()?;
    let count = |name: &str| units.get(name).and_then(Value::as_u64).unwrap_or(0);
    let names = CutCounts::NAMES;
    let all: u64 = names.iter().map(|name| count(name)).sum();
    let parts: Vec<_> = names
        .iter()
        .map(|name| format!("{} {name}", count(name)))
        .collect();
    (all > 0).then(|| format!("{all} units of the write cache: {}", parts.join(", ")))
}

/// Returns what the mount of this start found.
fn mount_text(status: &Value) -> String {
    let mount = &status["scheme_stats"]["mount"];
    let steps = mount["steps"].as_array().into_iter().flatten();
    let ns: f64 = steps.filter_map(|step| step["nanoseconds"].as_f64()).sum();
    let shutdown = if mount["clean"] == true {
        "a clean shutdown"
    } else {
        "an unclean shutdown"
    };
    format!(
        "after {shutdown}: {} pages scanned, {} rewritten or discarded, {} of flash time",
        mount["pages_scanned"],
        mount["pages_discarded"],
        show_ns(ns)
    )
}

/// Returns the flash programs per page written by cause, largest first.
fn by_cause(status: &Value) -> Vec<(String, f64)> {
    Rates::between(&Value::Null, status).by_cause
}

/// Returns what the text shows.
fn brief_json(status: &Value) -> Value {
    const KEYS: [&str; 17] = [
        "name",
        "pid",
        "state",
        "target",
        "image",
        "metrics",
        "scheme",
        "profile",
        "size_bytes",
        "raw_bytes",
        "verify",
        "uptime_seconds",
        "write_amplification",
        "wear",
        "paused",
        "recording",
        "read_only_reason",
    ];
    let mut brief = json!({});
    for key in KEYS {
        brief[key] = status[key].clone();
    }
    brief["shards"] = status["shards"].as_array().map(Vec::len).into();
    let host = &status["host"];
    brief["read_bytes"] = host["read"]["bytes"].clone();
    brief["written_bytes"] = host["write"]["bytes"].clone();
    brief["flushes"] = host["flush"]["completed"].clone();
    brief["write_amplification_by_cause"] = by_cause(status).into_iter().collect();
    for op in ["write", "read", "flush"] {
        brief["latency_ns"][op] = Latency::between(&Value::Null, status, &[op]).map_or(
            Value::Null,
            |of| json!({"mean": of.mean, "p50": of.p50, "p99": of.p99, "p999": of.p999}),
        );
    }
    brief
}

/// `ftld status --watch`: a line for each interval, until interrupted or the instance ends.
///
/// # Errors
/// No such instance runs, or standard output cannot be written.
pub fn watch(dirs: &Dirs, name: Option<&str>, seconds: f64, as_json: bool) -> Result<(), Failure> {
    if !(0.1..=3600.0).contains(&seconds) {
        return Err(Failure::usage(format!(
            "--watch {seconds}: need 0.1 to 3600 seconds"
        )));
    }
    let name = pick(dirs, name)?;
    let mut before = ask_status(dirs, &name)?;
    for line in 0.. {
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let now = ask_status(dirs, &name)?;
        if as_json {
            print(&format!("{}\n", with_schema("status", now.clone())))?;
        } else {
            let columns = columns(width());
            let heading = match line % HEADING_EVERY {
                0 => line_of(&columns, |column| column.head.to_owned()),
                _ => String::new(),
            };
            print(&(heading + &rates(&columns, &before, &now)))?;
        }
        before = now;
    }
    Ok(())
}

/// A column of `ftld status --watch`.
struct Column {
    head: &'static str,
    width: usize,
    /// Narrow terminals leave out the columns with the largest numbers.
    rank: usize,
    of: fn(&Rates, &Value) -> String,
}

const fn column(
    head: &'static str,
    width: usize,
    rank: usize,
    of: fn(&Rates, &Value) -> String,
) -> Column {
    Column {
        head,
        width,
        rank,
        of,
    }
}

static COLUMNS: [Column; 11] = [
    column("state", 10, 0, |_, now| {
        now["state"].as_str().unwrap_or("-").to_owned()
    }),
    column("read/s", 10, 2, |rates, _| {
        show_size(whole(rates.read_bytes))
    }),
    column("write/s", 10, 1, |rates, _| {
        show_size(whole(rates.written_bytes))
    }),
    column("ops/s", 7, 5, |rates, _| format!("{:.0}", rates.requests)),
    column("p99", 8, 4, |rates, _| {
        rates
            .latency
            .map_or("-".into(), |latency| show_ns(latency.p99))
    }),
    column("WAF now", 7, 3, |rates, _| {
        shown(rates.write_amplification, 2)
    }),
    column("life", 6, 8, |_, now| {
        shown(now["write_amplification"].as_f64(), 2)
    }),
    column("free blk", 8, 6, |_, now| now["blocks"]["free"].to_string()),
    column("GC pages/s", 10, 7, |rates, _| {
        format!("{:.0}", rates.gc_pages)
    }),
    column("map hit", 7, 10, |rates, _| shown(rates.hit_ratio, 3)),
    column("erases", 7, 9, |_, now| {
        format!("{}-{}", now["wear"]["min"], now["wear"]["max"])
    }),
];

fn shown(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
}

/// Returns the columns that fit a line of `width`: whole ones, the most wanted first.
fn columns(width: usize) -> Vec<&'static Column> {
    let needs = |most: usize| {
        let kept = COLUMNS.iter().filter(|column| column.rank <= most);
        kept.map(|column| column.width + 1).sum::<usize>() - 1
    };
    let most = (0..COLUMNS.len()).rev().find(|most| needs(*most) <= width);
    let kept = COLUMNS.iter();
    kept.filter(|column| column.rank <= most.unwrap_or(0))
        .collect()
}

/// Returns a line of cells, the first one to the left.
fn line_of(columns: &[&Column], cell: impl Fn(&Column) -> String) -> String {
    let mut line = String::new();
    for (place, column) in columns.iter().enumerate() {
        let (cell, width) = (cell(column), column.width);
        line += &match place {
            0 => format!("{cell:<width$}"),
            _ => format!(" {cell:>width$}"),
        };
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// Returns the line of the time between two status answers.
fn rates(columns: &[&Column], before: &Value, now: &Value) -> String {
    let rates = Rates::between(before, now);
    line_of(columns, |column| (column.of)(&rates, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rates_in_between() {
        let look = |seconds: f64, written: u64, programs: u64| {
            json!({
                "state": "serving", "uptime_seconds": seconds, "page_bytes": 4096, "host_written_bytes": written,
                "host": {"write": {"completed": written / 4096, "bytes": written}, "read": {"completed": 0, "bytes": 0}},
                "nand": {"host": {"programs": written / 4096}, "gc": {"programs": programs}}, "write_amplification": 1.25,
                "blocks": {"free": 17}, "wear": {"min": 1, "max": 3},
                "scheme_stats": {"gc_pages_moved": programs, "hits_read": programs, "lookups_read": programs,
                    "hits_write": 2 * programs, "lookups_write": 3 * programs},
            })
        };
        let (before, now) = (look(10.0, 4096 * 100, 100), look(12.0, 4096 * 300, 200));
        let line = rates(&columns(100), &before, &now);
        let words: Vec<_> = line.split_whitespace().collect();
        // A narrow terminal has fewer columns, and each of them whole.
        for width in [40, 60, 80, 100] {
            let columns = columns(width);
            let heads = line_of(&columns, |column| column.head.to_owned());
            let line = rates(&columns, &before, &now);
            for text in [&heads, &line] {
                assert!(text.trim_end().chars().count() <= width, "{text}");
            }
            assert!(line.contains(" 400 KiB"), "{line}");
        }
        assert_eq!(
            words,
            [
                "serving", "0", "B", "400", "KiB", "100", "-", "1.50", "1.25", "17", "50", "0.750",
                "1-3"
            ]
        );
    }
}
