//! Lists of schemes, flash devices, presets and workloads.

use ftl_core::schemes::{self, MlcUse, NOT_GRADED, SCHEMES, Scheme};
use ftld_device::config::find_scheme;
use ftld_device::preset::{PRESETS, Preset};
use ftld_kit::failure::Failure;
use ftld_kit::output::{print, print_json, wrapped};
use ftld_kit::profile_file;
use ftld_kit::size::show_size;
use ftld_traces::workload::{COMMON, GENERATORS, Generator, Key};
use ftld_traces::{DIALECTS, TraceFormat};
use nand_model::{Capacity, PROFILES, Profile, Suspend};
use serde_json::{Value, json};

/// The lower bound for every scheme. It is not a scheme, so the JSON output omits it.
const OPTIMUM: &str = "the bound in every result of replay and compare, no scheme";

/// Columns of the names of schemes.
const NAME_WIDTH: usize = 12;

/// `ftld schemes`: a line per scheme; with a name that scheme in full, with `in_full` all of them.
///
/// # Errors
/// There is no scheme of this name, or standard output cannot be written.
pub(crate) fn schemes(name: Option<&str>, in_full: bool, as_json: bool) -> Result<(), Failure> {
    if let Some(name) = name {
        let wanted = find_scheme(name)?;
        return match as_json {
            true => print_schemes(schemes::all().filter(|scheme| scheme.name == wanted.name)),
            false => print(&wrapped(&scheme_text(wanted))),
        };
    }
    if as_json {
        return print_schemes(schemes::all());
    }
    let text = match in_full {
        true => schemes::all()
            .map(scheme_text)
            .chain([optimum_text()])
            .collect::<Vec<_>>()
            .join("\n"),
        false => schemes_table(),
    };
    print(&wrapped(&text))
}

/// Returns a line per scheme, and the bound.
fn schemes_table() -> String {
    let line = |name: &str, title: &str| format!("{name:<NAME_WIDTH$}{title}\n");
    let mut text = line("NAME", "SCHEME");
    for scheme in schemes::all() {
        text += &line(scheme.name, scheme.title);
    }
    text += &line("optimum", OPTIMUM);
    text += &format!(
        "\nThe default is {}.\n`ftld schemes NAME` shows one in full: paper, mapping, RAM, \
         parameters; --long shows all of them.\n",
        SCHEMES[0].name
    );
    text
}

fn is_default_scheme(scheme: &Scheme) -> bool {
    scheme.name == SCHEMES[0].name
}

/// Returns the full description of a scheme.
fn scheme_text(scheme: &Scheme) -> String {
    let default = if is_default_scheme(scheme) {
        " (default)"
    } else {
        ""
    };
    let mut text = format!("{}{default}: {}\n", scheme.name, scheme.title);
    text += &format!("  paper    {} ({})\n", scheme.paper, fidelity(scheme));
    text += &format!(
        "  mapping  {}\n  RAM      {}\n  MLC      {}\n  {}\n",
        scheme.mapping,
        scheme.ram,
        mlc(scheme),
        scheme.about
    );
    for param in scheme.all_params() {
        text += &format!("  --set {}=…  {}\n", param.key, param.help);
    }
    text
}

/// Returns the bound in the layout of a scheme.
fn optimum_text() -> String {
    format!(
        "optimum: {OPTIMUM}: a read per page read, a program per page written, an erase per block of them\n\
         \x20 paper    Ma, Feng, Li: LazyFTL, SIGMOD 2011, its theoretically optimal solution (fidelity A)\n\
         \x20 mapping  none\n\
         \x20 RAM      none\n\
         \x20 MLC      as published\n"
    )
}

fn print_schemes(listed: impl Iterator<Item = &'static Scheme>) -> Result<(), Failure> {
    print_json(
        "schemes",
        json!({"schemes": listed.map(scheme_json).collect::<Value>()}),
    )
}

/// Returns how closely a scheme follows its paper, or that it is not graded.
fn fidelity(scheme: &Scheme) -> String {
    match scheme.fidelity {
        NOT_GRADED => "not graded: a scheme of another crate".into(),
        grade => format!("fidelity {grade}"),
    }
}

fn mlc(scheme: &Scheme) -> &'static str {
    match scheme.mlc {
        MlcUse::Own => "as its author wrote it",
        MlcUse::AsPublished => "as published",
        MlcUse::Adapted => "by our adaptation",
    }
}

fn scheme_json(scheme: &Scheme) -> Value {
    let params: Vec<_> = scheme
        .all_params()
        .map(|p| json!({"key": p.key, "help": p.help}))
        .collect();
    json!({
        "name": scheme.name, "default": is_default_scheme(scheme), "title": scheme.title, "about": scheme.about, "paper": scheme.paper,
        "mapping": scheme.mapping, "ram": scheme.ram, "fidelity": scheme.fidelity, "mlc": mlc(scheme), "params": params,
    })
}

/// `ftld workloads`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn workloads(as_json: bool) -> Result<(), Failure> {
    let keys = |keys: &[Key]| {
        keys.iter()
            .map(|key| json!({"key": key.name, "help": key.help}))
            .collect::<Vec<_>>()
    };
    if as_json {
        let generator = |g: &Generator| json!({"name": g.name, "title": g.title, "keys": keys(g.keys), "stands_for": g.stands_for()});
        let format = |d: &TraceFormat| json!({"name": d.name, "title": d.title, "line": d.line, "units": d.units.to_string()});
        let generators: Value = GENERATORS.iter().map(generator).collect();
        let formats: Value = DIALECTS.iter().map(format).collect();
        return print_json(
            "workloads",
            json!({"generators": generators, "common_keys": keys(COMMON), "formats": formats}),
        );
    }
    let mut text = String::from("Workloads: GENERATOR or GENERATOR:KEY=VALUE,...\n");
    for generator in GENERATORS {
        text += &format!("  {:<22} {}\n", generator.name, generator.title);
        generator
            .keys
            .iter()
            .for_each(|key| text += &format!("    {:<12} {}\n", key.name, key.help));
        if let Some(alias) = generator.stands_for() {
            text += &format!("    is {alias}\n");
        }
    }
    text += "\nKeys of every generator but stand-in-usr_2:\n";
    COMMON
        .iter()
        .for_each(|key| text += &format!("  {:<10} {}\n", key.name, key.help));
    text += "\nTrace formats, plain or compressed by gzip or zstd:\n";
    DIALECTS
        .iter()
        .for_each(|d| text += &format!("  {:<13} {}: {}\n", d.name, d.title, d.line));
    print(&wrapped(&text))
}

/// `ftld profiles`: all of them, or one by its name or file.
///
/// # Errors
/// There is no such profile, its file is wrong, or standard output cannot be written.
pub(crate) fn profiles(name: Option<&str>, as_toml: bool, as_json: bool) -> Result<(), Failure> {
    let shown = match name {
        Some(name) => vec![profile_file::find(name)?],
        None => PROFILES.to_vec(),
    };
    if as_toml {
        return print(&shown.iter().map(profile_file::to_toml).collect::<String>());
    }
    if as_json {
        let profiles: Value = shown.iter().map(profile_json).collect();
        return print_json("profiles", json!({"profiles": profiles}));
    }
    let text: String = shown.iter().map(profile_text).collect();
    print(&wrapped(&text))
}

fn is_default(profile: &Profile) -> bool {
    profile.name == Profile::default_profile().name
}

fn profile_text(profile: &Profile) -> String {
    let default = if is_default(profile) {
        " (default)"
    } else {
        ""
    };
    let raw = match profile.capacity {
        Capacity::Blocks(_) => format!("{} raw", show_size(profile.geometry.data_bytes())),
        Capacity::BySize => "any size".into(),
    };
    let Profile { name, source, .. } = profile;
    let summary = profile_file::summary(profile);
    format!("{name}{default}: {source}\n  {raw}; {summary}")
}

/// A device as `profiles` and `inspect` show it.
pub(super) fn profile_json(profile: &Profile) -> Value {
    let (g, t, ecc) = (&profile.geometry, &profile.timing, &profile.ecc);
    let bits = usize::from(profile.bits());
    let blocks = match profile.capacity {
        Capacity::Blocks(blocks) => Some(blocks),
        Capacity::BySize => None,
    };
    let law = profile.error_model.law();
    let bit_errors = json!({
        "model": profile.error_model.name(), "e": law.e, "a": law.a, "k": law.k, "b": law.b, "m": law.m,
        "n": law.n, "g": law.g, "p": law.p, "q": law.q, "reads_max": law.reads_max,
    });
    let Suspend {
        erase_ns,
        program_ns,
        resume_ns,
    } = t.suspend;
    let suspend = json!({"erase_ns": erase_ns, "program_ns": program_ns, "resume_ns": resume_ns});
    let mut shown = json!({
        "name": profile.name, "default": is_default(profile), "source": profile.source, "blocks": blocks,
        "channels": g.channels, "ways": g.ways, "dies_per_chip": profile.dies_per_chip, "planes": g.planes,
        "pages_per_block": g.pages_per_block, "page_bytes": g.page_bytes, "oob_bytes": g.oob_bytes,
        "cell": profile.cell(), "bits_per_cell": bits, "pairing": profile.pairing.name(),
        "order": profile_file::order(profile.order), "nop": profile.nop, "endurance": profile.endurance,
        "read_ns": t.read_ns[..bits], "partial_read_ns": t.partial_read_ns, "program_ns": t.program_ns[..bits],
        "oob_program_ns": t.oob_program_ns, "erase_ns": t.erase_ns, "bus_ns": t.bus_ns, "controller_ns": t.controller_ns,
        "suspend": suspend,
        "factory_bad_permille": profile.factory_bad_permille, "max_bad_permille": profile.max_bad_permille,
        "ecc": {"codeword_bytes": ecc.codeword_bytes, "correctable_bits": ecc.bits, "retries": ecc.retries},
        "bit_errors": bit_errors,
    });
    if let Some(region) = profile.slc {
        shown["slc_mode"] = json!({
            "region_percent": region.percent(), "blocks": profile.slc_blocks(), "pages_per_block": profile.slc_pages(),
            "read_ns": region.read_ns, "program_ns": region.program_ns, "endurance": region.endurance,
        });
    }
    shown
}

/// `ftld presets`: all of them, or one by its name.
///
/// # Errors
/// There is no such preset, or standard output cannot be written.
pub(crate) fn presets(name: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let shown = match name {
        Some(name) => std::slice::from_ref(Preset::find(name)?),
        None => PRESETS,
    };
    let table = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), json!(value)))
            .collect::<Value>()
    };
    if as_json {
        let preset = |p: &Preset| {
            json!({
                "name": p.name, "title": p.title, "scheme": p.scheme, "profile": p.profile, "size": p.size, "op_percent": p.op,
                "params": table(p.params), "simulation_params": table(p.unsafe_params),
                "precondition": p.precondition, "response_unit": p.response_unit,
            })
        };
        return print_json(
            "presets",
            json!({"presets": shown.iter().map(preset).collect::<Value>()}),
        );
    }
    let list = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| format!(" {key}={value}"))
            .collect::<String>()
    };
    let mut text = String::from(
        "Explicit options have priority; the parameters apply to schemes that have them.\n",
    );
    for preset in shown {
        let size = preset
            .size
            .map_or(String::new(), |size| format!(", size {size}"));
        let response_unit = serde_json::to_value(preset.response_unit).expect("plain data");
        text += &format!("{}: {}\n", preset.name, preset.title);
        text += &format!(
            "  scheme {}, profile {}{size}, over-provisioning {} %\n",
            preset.scheme, preset.profile, preset.op
        );
        text += &format!("  set{}\n", list(preset.params));
        text += &format!(
            "  replay and compare: precondition {}, response times {}{}\n",
            preset.precondition.name(),
            response_unit.as_str().unwrap_or_default(),
            match preset.unsafe_params {
                [] => String::new(),
                pairs => format!(
                    "; set{} (loses flushed or acknowledged data, so never for a live device)",
                    list(pairs)
                ),
            }
        );
    }
    print(&wrapped(&text))
}
