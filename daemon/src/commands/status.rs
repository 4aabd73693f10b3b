//! `ftld status`, once and at intervals.

use super::instances::{ask_status, pick};
use super::list::print_stopped;
use crate::rates::{Latency, Rates, show_ns};
use ftld_device::instance::Dirs;
use ftld_device::record::RecordingView;
use ftld_device::status::{BlockState, Mount, Pause, Shadow, Shard, Status, WearOfRated};
use ftld_device::volume::write_cache::CacheView;
use ftld_device::volume::{Op, Wear};
use ftld_kit::convert::{to_f64, whole};
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{Tone, print, print_json, print_text, width, with_schema, wrapped};
use ftld_kit::size::show_size;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Lines of `ftld status --watch` between two headings.
const HEADING_EVERY: usize = 20;

/// `ftld status`; `brief` shortens the JSON to what the text has.
///
/// # Errors
/// No such instance runs, or it does not answer.
pub(crate) fn status(
    dirs: &Dirs,
    name: Option<&str>,
    brief: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let stopped = |failure: Failure| match as_json && failure.exit == Exit::NotRunning {
        true => print_stopped(dirs, &name).err().unwrap_or(failure),
        false => failure,
    };
    if as_json && !brief {
        // As the daemon wrote it: one of another version may have other keys.
        let status = ask_status::<Map<String, Value>>(dirs, &name).map_err(stopped)?;
        return print_json("status", status);
    }
    let status: Status = ask_status(dirs, &name).map_err(stopped)?;
    if as_json {
        return print_json("status-brief", Brief::of(&status));
    }
    let text = wrapped(&text(&status));
    let state = &status.state;
    let painted = format!(": {} (pid", Tone::of_state(state).paint(state));
    print_text(&text.replacen(&format!(": {state} (pid"), &painted, 1))
}

/// Returns the status as lines of a label and a text.
fn text(status: &Status) -> String {
    let mut text = format!("{}: {} (pid {})", status.name, status.state, status.pid);
    let mut line = |label: &str, line: &str| text += &format!("\n  {label:<10} {line}");
    line("target", &status.target);
    line("image", &status.image.image);
    line("metrics", status.metrics.as_deref().unwrap_or("-"));
    if let Some(page) = status.page() {
        line("page", page);
    }
    let (size, raw) = (show_size(status.size_bytes), show_size(status.raw_bytes));
    let (profile, scheme) = (&status.profile, &status.scheme);
    line(
        "device",
        &format!("{size} on {raw} of {profile} flash, scheme {scheme}"),
    );
    if let Some(shards) = shards_text(status) {
        line("shards", &shards);
    }
    line("verify", &status.verify);
    line(
        "host",
        &format!(
            "read {}, written {}, flushes {}",
            show_size(status.requests(Op::Read).bytes),
            show_size(status.requests(Op::Write).bytes),
            status.requests(Op::Flush).completed
        ),
    );
    if let Some(ratio) = status.write_amplification {
        let parts = Rates::since_start(status).by_cause.into_iter();
        let parts: Vec<_> = parts
            .map(|(cause, of)| format!("{cause} {of:.2}"))
            .collect();
        let parts = parts.join(", ");
        line("flash", &format!("write amplification {ratio:.2}: {parts}"));
    }
    for op in TIMED {
        if let Some(latency) = Latency::since_start(status, op) {
            let [p50, p99, p999] = [latency.p50, latency.p99, latency.p999].map(show_ns);
            line(
                op.name(),
                &format!("p50 {p50}, p99 {p99}, p99.9 {p999} (wall clock, since the start)"),
            );
        }
    }
    if let Some(cache) = cache_text(&status.write_cache) {
        line("cache", &cache);
    }
    match &status.recovery {
        Some(recovery) => line("recovery", &recovery.text()),
        None => line("mount", &mount_text(&status.scheme_stats.mount)),
    }
    let cut = &status.write_cache.last_cut;
    if cut.units() > 0 {
        let units = cut.units();
        line(
            "cut",
            &format!("{units} units of the write cache: {}", cut.text()),
        );
    }
    let Wear { min, max, mean, .. } = status.wear.wear;
    line("wear", &format!("erases {min} to {max}, mean {mean:.1}"));
    if let Some(pause) = &status.paused {
        let left = pause.seconds_left;
        line(
            "paused",
            &format!("{left:.0} s left; `ftld resume` ends it"),
        );
    }
    if let Some(behind) = &status.host_behind {
        line("behind", behind);
    }
    if let Some(failing) = &status.writes_failing {
        line("failing", failing);
    }
    for fault in &status.faults {
        line("fault", &format!("{fault}; `ftld inject clear` ends it"));
    }
    if let Some(recording) = &status.recording {
        line("recording", &recording_text(recording));
    }
    for shadow in &status.shadows {
        line("shadow", &shadow_text(shadow));
    }
    if !status.read_only_reason.is_empty() {
        line("read-only", &status.read_only_reason);
    }
    text
}

/// Operations whose times are shown.
const TIMED: [Op; 3] = [Op::Write, Op::Read, Op::Flush];

/// Returns the chips of a device that has several.
fn shards_text(status: &Status) -> Option<String> {
    let shards = Some(&status.shards).filter(|all| all.len() > 1)?;
    let of = |count: fn(&Shard) -> u64| {
        let counts: Vec<_> = shards
            .iter()
            .map(|shard| count(shard).to_string())
            .collect();
        counts.join(", ")
    };
    Some(format!(
        "{}: programs {}; erases {}; free blocks {}",
        shards.len(),
        of(|shard| shard.programs),
        of(|shard| shard.erases),
        of(|shard| shard.free_blocks.into())
    ))
}

/// Returns where requests are recorded, and how much.
fn recording_text(recording: &RecordingView) -> String {
    if let Some(why) = &recording.failure {
        return format!("failed: {why}");
    }
    format!(
        "to {}: {} entries, {}; {} requests waited for it",
        recording.file,
        recording.entries,
        show_size(recording.bytes),
        recording.waits
    )
}

/// Returns the figures of a shadow, each with the device's own behind it.
fn shadow_text(shadow: &Shadow) -> String {
    if let Some(why) = &shadow.failure {
        return format!("{} has ended: {why}", shadow.name);
    }
    let (own, live) = (&shadow.figures, &shadow.live);
    let time = |ns: Option<f64>| ns.map_or("-".into(), show_ns);
    let ratio = |of: Option<f64>| of.map_or("-".into(), |of| format!("{of:.2}"));
    let mut text = format!(
        "{}: write amplification {} (device {}), erases {} ({}), RAM {} ({}), write p99 {} ({}) of \
         flash time",
        shadow.name,
        ratio(own.write_amplification),
        ratio(live.write_amplification),
        own.erases,
        live.erases,
        show_size(own.ram_bytes),
        show_size(live.ram_bytes),
        time(own.write_p99_ns),
        time(live.write_p99_ns)
    );
    if shadow.behind > 0 {
        text += &format!("; {} requests behind", shadow.behind);
    }
    if !shadow.exact {
        text += &format!("; inexact: {} requests dropped", shadow.dropped);
    }
    text
}

/// Returns the state of the write cache, or that no volatile cache is announced; `None` otherwise.
fn cache_text(cache: &CacheView) -> Option<String> {
    if cache.capacity_bytes == 0 {
        return cache
            .write_through
            .then(|| "none announced: every write is durable when it completes".into());
    }
    let loses = match cache.protected {
        true => "power-loss protection",
        false => cache.model.name(),
    };
    let through = match cache.write_through {
        true => "; write through",
        false => "",
    };
    Some(format!(
        "{} dirty of {}, read hits {} ({loses}{through})",
        show_size(cache.dirty_bytes),
        show_size(cache.capacity_bytes),
        show_size(cache.read_hit_bytes)
    ))
}

/// Returns what the mount of this start found.
fn mount_text(mount: &Mount) -> String {
    let ns: u64 = mount.steps.iter().map(|step| step.nanoseconds).sum();
    let shutdown = if mount.clean {
        "a clean shutdown"
    } else {
        "an unclean shutdown"
    };
    format!(
        "after {shutdown}: {} pages scanned, {} rewritten or discarded, {} of flash time",
        mount.pages_scanned,
        mount.pages_discarded,
        show_ns(to_f64(ns))
    )
}

/// The content of the text output, as JSON.
#[derive(Serialize)]
struct Brief<'a> {
    name: &'a str,
    pid: u32,
    state: &'a str,
    target: &'a str,
    image: &'a str,
    metrics: &'a Option<String>,
    scheme: &'a str,
    profile: &'a str,
    size_bytes: u64,
    raw_bytes: u64,
    verify: &'a str,
    uptime_seconds: f64,
    write_amplification: Option<f64>,
    wear: &'a WearOfRated,
    paused: &'a Option<Pause>,
    recording: &'a Option<RecordingView>,
    read_only_reason: &'a str,
    shards: usize,
    read_bytes: u64,
    written_bytes: u64,
    flushes: u64,
    write_amplification_by_cause: BTreeMap<&'static str, f64>,
    latency_ns: BTreeMap<&'static str, Option<Latency>>,
}

impl Brief<'_> {
    fn of(status: &Status) -> Brief<'_> {
        let latency = |op: Op| (op.name(), Latency::since_start(status, op));
        Brief {
            name: &status.name,
            pid: status.pid,
            state: &status.state,
            target: &status.target,
            image: &status.image.image,
            metrics: &status.metrics,
            scheme: &status.scheme,
            profile: &status.profile,
            size_bytes: status.size_bytes,
            raw_bytes: status.raw_bytes,
            verify: &status.verify,
            uptime_seconds: status.uptime_seconds,
            write_amplification: status.write_amplification,
            wear: &status.wear,
            paused: &status.paused,
            recording: &status.recording,
            read_only_reason: &status.read_only_reason,
            shards: status.shards.len(),
            read_bytes: status.requests(Op::Read).bytes,
            written_bytes: status.requests(Op::Write).bytes,
            flushes: status.requests(Op::Flush).completed,
            write_amplification_by_cause: Rates::since_start(status).by_cause.into_iter().collect(),
            latency_ns: TIMED.map(latency).into(),
        }
    }
}

/// `ftld status --watch`: a line for each interval, until interrupted or the instance ends.
///
/// # Errors
/// No such instance runs, or standard output cannot be written.
pub(crate) fn watch(
    dirs: &Dirs,
    name: Option<&str>,
    seconds: f64,
    as_json: bool,
) -> Result<(), Failure> {
    if !(0.1..=3600.0).contains(&seconds) {
        return Err(Failure::usage(format!(
            "--watch {seconds}: need 0.1 to 3600 seconds"
        )));
    }
    let name = pick(dirs, name)?;
    let mut before: Status = ask_status(dirs, &name)?;
    for line in 0.. {
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let now: Status = ask_status(dirs, &name)?;
        if as_json {
            print(&format!("{}\n", with_schema("status", &now)))?;
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
    of: fn(&Rates, &Status) -> String,
}

const fn column(
    head: &'static str,
    width: usize,
    rank: usize,
    of: fn(&Rates, &Status) -> String,
) -> Column {
    Column {
        head,
        width,
        rank,
        of,
    }
}

static COLUMNS: [Column; 11] = [
    column("state", 10, 0, |_, now| now.state.clone()),
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
    column("life", 6, 8, |_, now| shown(now.write_amplification, 2)),
    column("free blk", 8, 6, |_, now| {
        now.blocks_of(BlockState::Free).to_string()
    }),
    column("GC pages/s", 10, 7, |rates, _| {
        format!("{:.0}", rates.gc_pages)
    }),
    column("map hit", 7, 10, |rates, _| shown(rates.hit_ratio, 3)),
    column("erases", 7, 9, |_, now| {
        format!("{}-{}", now.wear.wear.min, now.wear.wear.max)
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
fn rates(columns: &[&Column], before: &Status, now: &Status) -> String {
    let rates = Rates::between(before, now);
    line_of(columns, |column| (column.of)(&rates, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::Cause;

    #[test]
    fn a_line_has_the_rates_in_between() {
        let look = |seconds: f64, written: u64, programs: u64| {
            let mut status = Status {
                state: "serving".into(),
                uptime_seconds: seconds,
                page_bytes: 4096,
                host_written_bytes: written,
                write_amplification: Some(1.25),
                ..Status::default()
            };
            let write = &mut status.host[Op::Write.index()];
            (write.completed, write.bytes) = (written / 4096, written);
            status.nand[Cause::Host.index()].programs = written / 4096;
            status.nand[Cause::Gc.index()].programs = programs;
            status.blocks[BlockState::Free as usize] = 17;
            (status.wear.wear.min, status.wear.wear.max) = (1, 3);
            let stats = &mut status.scheme_stats;
            stats.counters.gc_pages_moved = programs;
            (stats.hits_read, stats.lookups_read) = (programs, programs);
            (stats.hits_write, stats.lookups_write) = (2 * programs, 3 * programs);
            status
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
