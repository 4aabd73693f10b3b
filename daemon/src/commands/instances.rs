//! Commands for running instances: list, status, pause, step, resume, inject, stop.

use crate::control::{self, Request};
use crate::convert::whole;
use crate::failure::{Exit, Failure};
use crate::inject::Injection;
use crate::instance::Dirs;
use crate::output::{print, print_json, with_schema};
use crate::pause::PauseCommand;
use crate::rates::Rates;
use crate::size::show_size;
use crate::transport;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest wait of `ftld stop` for the daemon to exit.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// Lines of `ftld status --watch` between two headings.
const HEADING_EVERY: usize = 20;

/// `ftld list`.
///
/// # Errors
/// Standard output cannot be written.
pub fn list(dirs: &Dirs, as_json: bool) -> Result<(), Failure> {
    let instances: Vec<_> = dirs
        .names()
        .into_iter()
        .map(|name| instance_json(dirs, &name))
        .collect();
    if as_json {
        return print_json("list", json!({"instances": instances}));
    }
    if instances.is_empty() {
        return print("no instance is running\n");
    }
    let line = |cells: [&str; 7]| {
        let [name, state, scheme, size, ratio, target, image] = cells;
        format!("{name:<16} {state:<18} {scheme:<10} {size:>10} {ratio:>6}  {target:<14} {image}\n")
    };
    let mut text = line(["NAME", "STATE", "SCHEME", "SIZE", "WAF", "TARGET", "IMAGE"]);
    for instance in &instances {
        let field = |key: &str| instance[key].as_str().unwrap_or("-");
        let size = instance["size_bytes"]
            .as_u64()
            .map_or("-".into(), show_size);
        let ratio = instance["write_amplification"]
            .as_f64()
            .map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let state = field("state");
        text += &line([
            field("name"),
            state,
            field("scheme"),
            &size,
            &ratio,
            field("target"),
            field("image"),
        ]);
    }
    print(&text)
}

fn instance_json(dirs: &Dirs, name: &str) -> Value {
    const KEYS: [&str; 11] = [
        "name",
        "pid",
        "state",
        "target",
        "image",
        "scheme",
        "profile",
        "size_bytes",
        "write_amplification",
        "uptime_seconds",
        "metrics",
    ];
    let mut instance = status_of(dirs, name);
    if let Some(fields) = instance.as_object_mut() {
        fields.retain(|key, _| KEYS.contains(&key.as_str()));
    }
    instance
}

/// Returns the status of an instance; of one that does not answer, name and state alone.
pub(crate) fn status_of(dirs: &Dirs, name: &str) -> Value {
    match (
        control::ask(dirs, name, &Request::Status {}),
        dirs.holder(name),
    ) {
        (Ok(status), _) => status,
        (Err(_), Some(pid)) => json!({"name": name, "pid": pid, "state": "starting or busy"}),
        _ if dirs.is_of_another_user(name) => json!({"name": name, "state": "of another user"}),
        (Err(_), None) if transport::orphaned_target(name).is_some() => {
            json!({"name": name, "state": "quiesced"})
        }
        (Err(_), None) => json!({"name": name, "state": "dead"}),
    }
}

/// Returns the only running instance if no name was given.
fn pick(dirs: &Dirs, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let names = dirs.names();
    let mut running: Vec<_> = names
        .iter()
        .filter(|name| dirs.holder(name).is_some())
        .cloned()
        .collect();
    let other = names.iter().find(|name| dirs.is_of_another_user(name));
    match (running.len(), other) {
        (0, Some(other)) => Err(control::not_permitted(dirs, other)),
        (0, None) => Err(Failure::new(
            Exit::NotRunning,
            "no instance is running; `ftld TARGET` starts one, `ftld doctor` checks prerequisites",
        )),
        (1, _) => Ok(running.remove(0)),
        _ => Err(Failure::usage(format!(
            "several instances are running, name one: {}",
            running.join(", ")
        ))),
    }
}

/// Returns the status of a running instance. Exit 4 if it left a quiesced device, 3 if there is
/// none.
fn ask_status(dirs: &Dirs, name: &str) -> Result<Value, Failure> {
    control::ask(dirs, name, &Request::Status {}).map_err(
        |failure| match transport::orphaned_target(name) {
            Some(target) if failure.exit == Exit::NotRunning => {
                transport::orphan_error(name, &target)
            }
            _ => failure,
        },
    )
}

/// `ftld status`.
///
/// # Errors
/// No such instance runs, or it does not answer.
pub fn status(dirs: &Dirs, name: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let status = ask_status(dirs, &pick(dirs, name)?)?;
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
    let raw = size(&status["raw_bytes"]);
    lines.push(format!(
        "  {:<10} {} on {raw} of {} flash, scheme {}",
        "device",
        size(&status["size_bytes"]),
        text(&status["profile"]),
        text(&status["scheme"])
    ));
    let host = &status["host"];
    lines.push(format!(
        "  {:<10} read {}, written {}, flushes {}",
        "host",
        size(&host["read"]["bytes"]),
        size(&host["write"]["bytes"]),
        host["flush"]["completed"]
    ));
    if let Some(ratio) = status["write_amplification"].as_f64() {
        lines.push(format!("  {:<10} write amplification {ratio:.2}", "flash"));
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
        lines.push(format!("  {:<10} {behind}", "latency"));
    }
    if let Some(failing) = status["writes_failing"].as_str() {
        lines.push(format!("  {:<10} {failing}", "failing"));
    }
    let reason = text(&status["read_only_reason"]);
    if !reason.is_empty() {
        lines.push(format!("  {:<10} {reason}", "read-only"));
    }
    print(&(lines.join("\n") + "\n"))
}

/// `ftld pause`, `step` and `resume`.
///
/// # Errors
/// No such instance runs, or it refuses: the device failed, or is not paused.
pub fn pause(
    dirs: &Dirs,
    name: Option<&str>,
    command: PauseCommand,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let mut answer = control::ask(dirs, &name, &Request::Pause { action: command })?;
    if as_json {
        answer["name"] = name.into();
        return print_json("pause", answer);
    }
    let mut text = format!("{name}: {}\n", answer["text"].as_str().unwrap_or("done"));
    for event in answer["events"].as_array().into_iter().flatten() {
        let kind = event["kind"].as_str().unwrap_or_default().replace('_', " ");
        let block = event["block"]
            .as_u64()
            .map_or(String::new(), |block| format!(", block {block}"));
        let took = event["took_ns"].as_f64().unwrap_or_default() / 1e6;
        text += &format!(
            "  event {}: {kind}{block}, {} pages, {took:.3} ms\n",
            event["number"], event["pages"]
        );
    }
    print(&text)
}

/// `ftld inject`.
///
/// # Errors
/// No such instance runs, or the fault cannot be injected.
pub fn inject(
    dirs: &Dirs,
    name: Option<&str>,
    injection: Injection,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let mut answer = control::ask(dirs, &name, &Request::Inject { fault: injection })?;
    if as_json {
        answer["name"] = name.into();
        return print_json("inject", answer);
    }
    print(&format!(
        "{name}: {}\n",
        answer["text"].as_str().unwrap_or("done")
    ))
}

/// `ftld stop`.
///
/// # Errors
/// No such instance runs, or it does not answer.
pub fn stop(dirs: &Dirs, name: Option<&str>, force: bool) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let answer = match control::ask(dirs, &name, &Request::Stop { force }) {
        Err(failure) if failure.exit == Exit::NotRunning => {
            return transport::stop_left(&name, force).unwrap_or(Err(failure));
        }
        answer => answer?,
    };
    let holders: Vec<_> = answer["waiting_for"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !holders.is_empty() {
        return Err(Failure::new(
            Exit::InUse,
            format!(
                "instance {name:?} is in use: {}; it is flushed and stops after last close; \
                 `ftld stop {name} --force` removes it even if open",
                holders.join(", ")
            ),
        ));
    }
    let until = Instant::now() + STOP_PATIENCE;
    while dirs.holder(&name).is_some() {
        if Instant::now() > until {
            return Err(Failure::failed(format!(
                "instance {name:?} is still stopping; see its log"
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
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
            let heading = if line % HEADING_EVERY == 0 {
                HEADING
            } else {
                ""
            };
            print(&format!("{heading}{}\n", rates(&before, &now)))?;
        }
        before = now;
    }
    Ok(())
}

const HEADING: &str = "state           read/s    write/s    ops/s  WAF now   life  free blk  moved/s  map hit  erases\n";

/// Returns the line of the time between two status answers.
fn rates(before: &Value, now: &Value) -> String {
    let rates = Rates::between(before, now);
    let shown = |number: Option<f64>, digits: usize| {
        number.map_or("-".into(), |number| format!("{number:.digits$}"))
    };
    format!(
        "{:<11} {:>10} {:>10} {:>8.0} {:>8} {:>6} {:>9} {:>8.0} {:>8} {:>3}-{}",
        now["state"].as_str().unwrap_or("-"),
        show_size(whole(rates.read_bytes)),
        show_size(whole(rates.written_bytes)),
        rates.requests,
        shown(rates.write_amplification, 2),
        shown(now["write_amplification"].as_f64(), 2),
        now["blocks"]["free"],
        rates.gc_pages,
        shown(rates.hit_ratio, 3),
        now["wear"]["min"],
        now["wear"]["max"],
    )
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
        let line = rates(&look(10.0, 4096 * 100, 100), &look(12.0, 4096 * 300, 200));
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "serving", "0", "B", "400", "KiB", "100", "1.50", "1.25", "17", "50", "0.750",
                "1-3"
            ]
        );
    }
}
