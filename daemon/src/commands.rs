//! Subcommands that tell and steer; each prints for people, or JSON for programs.

use crate::config::Config;
use crate::control::{self, Request};
use crate::failure::{Exit, Failure};
use crate::inject::Injection;
use crate::instance::Dirs;
use crate::preset::{PRESETS, Preset};
use crate::size::show_size;
use crate::stack;
use crate::transport;
use ftl_core::schemes::{MlcUse, SCHEMES, Scheme};
use ftld_traces::workload::{COMMON, GENERATORS, Generator, Key};
use ftld_traces::{DIALECTS, Dialect};
use nand_model::{Capacity, PROFILES, PageOrder, Profile};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// Longest wait of `ftld stop` for the daemon to be gone.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// Writes to standard output; a reader that went away is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::io("standard output", &error)),
        _ => Ok(()),
    }
}

/// Prints JSON with a newline at the end.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// `ftld create`.
pub fn create(config: &Config, as_json: bool) -> Result<(), Failure> {
    let made = stack::create(config)?;
    let (image, raw) = (config.image.display(), made.layout.profile.geometry.data_bytes());
    if as_json {
        return print_json(&json!({
            "image": config.image, "scheme": made.scheme.name, "profile": made.layout.profile.name,
            "size_bytes": made.size, "raw_bytes": raw, "blocks": made.layout.profile.geometry.blocks,
            "op_percent": made.op_percent,
        }));
    }
    print(&format!(
        "{image}: {} ({} bytes) for the host on {} of raw {} flash, scheme {}, over-provisioning {} %\n",
        show_size(made.size),
        made.size,
        show_size(raw),
        made.layout.profile.name,
        made.scheme.name,
        made.op_percent
    ))
}

/// What no scheme can beat, in the order of a scheme's lines: a figure, not a scheme, so programs do not get it as one.
const OPTIMUM: &str = "\
optimum: the bound in every result of replay and compare, no scheme: a read per page read, a program per page written, an erase per block of them
  paper    Ma, Feng, Li: LazyFTL, SIGMOD 2011, its theoretically optimal solution (fidelity A)
  mapping  none
  RAM      none
  MLC      as published
";

/// `ftld schemes`.
pub fn schemes(as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&SCHEMES.iter().enumerate().map(scheme_json).collect());
    }
    let mut text = String::new();
    for (i, scheme) in SCHEMES.iter().enumerate() {
        let default = if i == 0 { " (default)" } else { "" };
        text += &format!("{}{default}: {}\n", scheme.name, scheme.title);
        text += &format!("  paper    {} (fidelity {})\n", scheme.paper, scheme.fidelity);
        text += &format!("  mapping  {}\n  RAM      {}\n  MLC      {}\n", scheme.mapping, scheme.ram, mlc(scheme));
        for param in scheme.all_params() {
            text += &format!("  --set {}=…  {}\n", param.key, param.help);
        }
        text += "\n";
    }
    print(&(text + OPTIMUM))
}

fn mlc(scheme: &Scheme) -> &'static str {
    match scheme.mlc {
        MlcUse::AsPublished => "as published",
        MlcUse::Adapted => "by an adaptation of ours",
    }
}

fn scheme_json((i, scheme): (usize, &Scheme)) -> Value {
    let params: Vec<_> = scheme.all_params().map(|p| json!({"key": p.key, "help": p.help})).collect();
    json!({
        "name": scheme.name, "default": i == 0, "title": scheme.title, "paper": scheme.paper,
        "mapping": scheme.mapping, "ram": scheme.ram, "fidelity": scheme.fidelity, "mlc": mlc(scheme), "params": params,
    })
}

/// `ftld workloads`.
pub fn workloads(as_json: bool) -> Result<(), Failure> {
    let keys = |keys: &[Key]| keys.iter().map(|key| json!({"key": key.name, "help": key.help})).collect::<Vec<_>>();
    if as_json {
        let generator = |g: &Generator| json!({"name": g.name, "title": g.title, "keys": keys(g.keys), "stands_for": g.stands_for()});
        let format = |d: &Dialect| json!({"name": d.name, "title": d.title, "line": d.line});
        return print_json(&json!({
            "generators": GENERATORS.iter().map(generator).collect::<Vec<_>>(), "common_keys": keys(COMMON),
            "formats": DIALECTS.iter().map(format).collect::<Vec<_>>(),
        }));
    }
    let mut text = String::from("Workloads: GENERATOR or GENERATOR:KEY=VALUE,...\n");
    for generator in GENERATORS {
        text += &format!("  {:<22} {}\n", generator.name, generator.title);
        generator.keys.iter().for_each(|key| text += &format!("    {:<12} {}\n", key.name, key.help));
        if let Some(alias) = generator.stands_for() {
            text += &format!("    is {alias}\n");
        }
    }
    text += "\nKeys of every generator but stand-in-usr_2:\n";
    COMMON.iter().for_each(|key| text += &format!("  {:<10} {}\n", key.name, key.help));
    text += "\nTrace formats, plain or compressed by gzip or zstd:\n";
    DIALECTS.iter().for_each(|d| text += &format!("  {:<10} {}: {}\n", d.name, d.title, d.line));
    print(&text)
}

/// `ftld profiles`.
pub fn profiles(as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&PROFILES.iter().enumerate().map(profile_json).collect());
    }
    let mut text = String::new();
    for (i, profile) in PROFILES.iter().enumerate() {
        let default = if i == 0 { " (default)" } else { "" };
        let (g, t) = (&profile.geometry, &profile.timing);
        let raw = match profile.capacity {
            Capacity::Blocks(_) => format!("{} raw", show_size(g.data_bytes())),
            Capacity::BySize => "as large as asked for".into(),
        };
        text += &format!("{}{default}: {}\n", profile.name, profile.source);
        text += &format!(
            "  {} pages of {}+{} bytes per block, {} die(s), {raw}; pages programmed {}, {} time(s)\n",
            g.pages_per_block,
            g.page_bytes,
            g.oob_bytes,
            g.dies(),
            order(profile),
            profile.nop
        );
        text += &format!(
            "  read {}, program {}/{}, erase {} us; {} cycles\n",
            t.read_ns / 1000,
            t.program_ns / 1000,
            t.program_msb_ns / 1000,
            t.erase_ns / 1000,
            profile.endurance
        );
    }
    print(&text)
}

fn order(profile: &Profile) -> &'static str {
    match profile.order {
        PageOrder::Any => "in any order",
        PageOrder::Ascending => "upwards",
        PageOrder::Consecutive => "one after the other",
    }
}

fn profile_json((i, profile): (usize, &Profile)) -> Value {
    let (g, t) = (&profile.geometry, &profile.timing);
    let blocks = match profile.capacity {
        Capacity::Blocks(blocks) => Some(blocks),
        Capacity::BySize => None,
    };
    json!({
        "name": profile.name, "default": i == 0, "source": profile.source, "blocks": blocks,
        "channels": g.channels, "ways": g.ways, "planes": g.planes, "pages_per_block": g.pages_per_block,
        "page_bytes": g.page_bytes, "oob_bytes": g.oob_bytes, "order": order(profile), "nop": profile.nop,
        "mlc": profile.is_mlc(), "endurance": profile.endurance, "read_ns": t.read_ns, "partial_read_ns": t.partial_read_ns,
        "program_ns": t.program_ns, "program_msb_ns": t.program_msb_ns, "erase_ns": t.erase_ns, "bus_ns": t.bus_ns,
        "factory_bad_permille": profile.factory_bad_permille, "max_bad_permille": profile.max_bad_permille,
    })
}

/// `ftld presets`.
pub fn presets(as_json: bool) -> Result<(), Failure> {
    let table =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| (key.to_string(), json!(value))).collect::<Value>();
    if as_json {
        let preset = |p: &Preset| {
            json!({
                "name": p.name, "title": p.title, "scheme": p.scheme, "profile": p.profile, "size": p.size, "op_percent": p.op,
                "params": table(p.params), "simulation_params": table(p.unsafe_params),
                "precondition": p.precondition, "average": p.average,
            })
        };
        return print_json(&PRESETS.iter().map(preset).collect());
    }
    let list = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| format!(" {key}={value}")).collect::<String>();
    let mut text =
        String::from("Each fills in what no option says; its parameters go to the schemes that have them.\n");
    for preset in PRESETS {
        let size = preset.size.map_or(String::new(), |size| format!(", size {size}"));
        let average = serde_json::to_value(preset.average).expect("plain data");
        text += &format!("{}: {}\n", preset.name, preset.title);
        text += &format!(
            "  scheme {}, profile {}{size}, over-provisioning {} %\n",
            preset.scheme, preset.profile, preset.op
        );
        text += &format!("  set{}\n", list(preset.params));
        text += &format!(
            "  replay and compare: precondition {}, average {}{}\n",
            preset.precondition,
            average.as_str().unwrap_or_default(),
            match preset.unsafe_params {
                [] => String::new(),
                pairs =>
                    format!("; set{} (gives up what was flushed or acknowledged, so never a live device)", list(pairs)),
            }
        );
    }
    print(&text)
}

/// `ftld list`.
pub fn list(dirs: &Dirs, as_json: bool) -> Result<(), Failure> {
    let instances: Vec<_> = dirs.names().into_iter().map(|name| instance_json(dirs, &name)).collect();
    if as_json {
        return print_json(&instances.into());
    }
    if instances.is_empty() {
        return print("no instance is running\n");
    }
    let mut text = String::new();
    for instance in &instances {
        let field = |key: &str| instance[key].as_str().unwrap_or("-").to_owned();
        let size = instance["size_bytes"].as_u64().map_or("-".into(), show_size);
        text += &format!(
            "{:<16} {:<10} {:<10} {:>10}  {}\n",
            field("name"),
            field("state"),
            field("scheme"),
            size,
            field("target")
        );
    }
    print(&text)
}

fn instance_json(dirs: &Dirs, name: &str) -> Value {
    match (control::ask(dirs, name, &Request::Status {}), dirs.holder(name)) {
        (Ok(status), _) => {
            let keys = ["name", "pid", "state", "target", "image", "scheme", "profile", "size_bytes", "metrics"];
            Value::Object(keys.iter().map(|&key| (key.to_owned(), status[key].clone())).collect())
        }
        (Err(_), Some(pid)) => json!({"name": name, "pid": pid, "state": "starting or busy"}),
        (Err(_), None) => json!({"name": name, "state": "dead"}),
    }
}

/// The one that is running, if no name was given.
fn pick(dirs: &Dirs, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let mut running: Vec<_> = dirs.names().into_iter().filter(|name| dirs.holder(name).is_some()).collect();
    match running.len() {
        0 => Err(Failure::new(Exit::NotRunning, "no instance is running")),
        1 => Ok(running.remove(0)),
        _ => Err(Failure::usage(format!("several instances are running, name one: {}", running.join(", ")))),
    }
}

/// `ftld status`.
pub fn status(dirs: &Dirs, name: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let status = control::ask(dirs, &pick(dirs, name)?, &Request::Status {})?;
    if as_json {
        return print_json(&status);
    }
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let size = |value: &Value| value.as_u64().map_or("-".into(), show_size);
    let mut lines = vec![format!("{}: {} (pid {})", text(&status["name"]), text(&status["state"]), status["pid"])];
    for (label, key) in [("target", "target"), ("image", "image"), ("metrics", "metrics")] {
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
    lines.push(format!("  {:<10} erases {} to {}, mean {mean:.1}", "wear", wear["min"], wear["max"]));
    let reason = text(&status["read_only_reason"]);
    if !reason.is_empty() {
        lines.push(format!("  {:<10} {reason}", "read-only"));
    }
    print(&(lines.join("\n") + "\n"))
}

/// `ftld inject`.
pub fn inject(dirs: &Dirs, name: Option<&str>, injection: Injection, as_json: bool) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let mut answer = control::ask(dirs, &name, &Request::Inject { fault: injection })?;
    if as_json {
        answer["name"] = name.into();
        return print_json(&answer);
    }
    print(&format!("{name}: {}\n", answer["text"].as_str().unwrap_or("done")))
}

/// `ftld stop`.
pub fn stop(dirs: &Dirs, name: Option<&str>, force: bool) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let answer = match control::ask(dirs, &name, &Request::Stop { force }) {
        Err(failure) if failure.exit == Exit::NotRunning => {
            return transport::stop_left(&name, force).unwrap_or(Err(failure));
        }
        answer => answer?,
    };
    let holders: Vec<_> = answer["waiting_for"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !holders.is_empty() {
        return Err(Failure::new(
            Exit::InUse,
            format!(
                "instance {name:?} is held by {}; everything is flushed and it stops when they let go; \
                 `ftld stop {name} --force` removes it under them",
                holders.join(", ")
            ),
        ));
    }
    let until = Instant::now() + STOP_PATIENCE;
    while dirs.holder(&name).is_some() {
        if Instant::now() > until {
            return Err(Failure::failed(format!("instance {name:?} is still stopping; its log says why")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
