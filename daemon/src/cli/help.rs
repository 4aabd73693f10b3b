//! What the help shows: commands and options by purpose, and the options that matter to a command.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};
use ftld_kit::failure::Exit;
use ftld_kit::output::{STYLES, width, wrapped_to};
use ftld_lab::replay::Provenance;
use nand_model::FORMAT_VERSION;
use strum::VariantArray;

/// Options that only a device in service has.
const SERVING: &[&str] = &[
    "metrics",
    "metrics_host",
    "latency",
    "verify",
    "tls",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "record",
    "record_data",
    "shadow",
    "read_only",
    "write_cache",
    "cache_model",
    "cache_tear",
    "cache_plp",
    "write_cache_announce",
    "atomic_unit",
];
/// Options that only a new image has.
const MAKING: &[&str] = &[
    "preset",
    "scheme",
    "size",
    "profile",
    "slc_region",
    "op",
    "shards",
    "set",
];
/// Options for which `ftld doctor` has no check.
const UNCHECKED: &[&str] = &[
    "metrics_host",
    "latency",
    "verify",
    "record",
    "record_data",
    "shadow",
    "read_only",
    "write_cache",
    "cache_model",
    "cache_tear",
    "cache_plp",
    "write_cache_announce",
    "atomic_unit",
];

/// Commands by purpose, for the help.
pub(super) const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Serve",
        &[
            "demo", "start", "stop", "create", "recover", "list", "clone", "rm",
        ],
    ),
    (
        "Simulate",
        &[
            "replay",
            "compare",
            "workloads",
            "schemes",
            "profiles",
            "presets",
            "new-scheme",
        ],
    ),
    (
        "Look",
        &["status", "top", "where", "shadow", "inspect", "check"],
    ),
    ("Control", &["pause", "step", "resume", "mark"]),
    ("Faults", &["inject", "crash-test", "crashes"]),
    ("Set up", &["doctor", "completions", "man", "help"]),
];

/// Options of serving by purpose, for the help.
pub(super) const OPTIONS: [(&str, &[&str]); 7] = [
    (
        "Instance",
        &[
            "config",
            "name",
            "image",
            "read_only",
            "detach",
            "print_config",
        ],
    ),
    (
        "New image",
        &[
            "preset",
            "scheme",
            "size",
            "profile",
            "op",
            "set",
            "slc_region",
            "shards",
            "age",
        ],
    ),
    ("Page and metrics", &["metrics", "metrics_host"]),
    (
        "Requests",
        &["latency", "verify", "record", "record_data", "shadow"],
    ),
    (
        "Write cache",
        &[
            "write_cache",
            "cache_model",
            "cache_tear",
            "cache_plp",
            "write_cache_announce",
            "atomic_unit",
        ],
    ),
    (
        "TLS for NBD",
        &["tls", "tls_cert", "tls_key", "tls_client_ca"],
    ),
    (OTHERS, &["json", "help", "version"]),
];
/// Heading of the options that every command has.
const OTHERS: &str = "Options";

/// Puts an option of serving under its heading.
fn under_heading(arg: Arg) -> Arg {
    let found = |(_, ids): &&(&str, &[&str])| ids.contains(&arg.get_id().as_str());
    match OPTIONS.iter().find(found) {
        // The epilogue says it once for all.
        Some((heading, _)) => arg.help_heading(*heading).hide_env(true),
        None => arg,
    }
}

/// Returns the options of serving as the help shows them, those of every command last.
fn options_text(program: &Command, columns: usize) -> String {
    let of_clap = |short: char, long: &'static str, help: &'static str| {
        let arg = Arg::new(long).short(short).long(long);
        arg.help(help).action(ArgAction::SetTrue)
    };
    let own = program.get_arguments().filter(|arg| !arg.is_positional());
    let args = own.cloned().chain([
        of_clap('h', "help", "Print help"),
        of_clap('V', "version", "Print version"),
    ]);
    let listed = Command::new("ftld")
        .args(args.map(under_heading))
        .disable_help_flag(true)
        .styles(STYLES)
        .term_width(columns)
        .help_template("{all-args}")
        .render_help();
    listed.ansi().to_string().trim_end().to_owned()
}

/// Returns the help of the whole program, with its commands by purpose.
fn help_template(command: &Command, columns: usize) -> String {
    let about = |name: &str| {
        let command = command.find_subcommand(name)?;
        Some(command.get_about()?.to_string())
    };
    let heading = |name: &str| {
        let style = STYLES.get_header();
        format!("{style}{name}:{style:#}\n")
    };
    let literal = STYLES.get_literal();
    let groups = GROUPS.map(|(group, names)| {
        let lines = names.iter().map(|name| {
            let about = about(name).unwrap_or_else(|| "Print the help of a command".into());
            let line = wrapped_to(&format!("  {name:<11}  {about}"), columns);
            // Colours come last: a line is broken by the columns that it shows.
            line.replacen(name, &format!("{literal}{name}{literal:#}"), 1)
        });
        heading(group) + &lines.collect::<String>()
    });
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n{}{{positionals}}\n\n{}{{after-help}}",
        groups.join("\n"),
        heading("Arguments"),
        options_text(command, columns),
    )
}

/// Returns the command line. Commands accept all options of a device, as a configuration file has
/// them, and show those that matter to them.
pub(crate) fn command() -> Command {
    command_of(width())
}

/// As [`command`], with help of this width.
pub(super) fn command_of(columns: usize) -> Command {
    let shown = [
        ("create", SERVING),
        ("recover", MAKING),
        ("doctor", UNCHECKED),
    ];
    let all = shown.iter().fold(Cli::command(), |all, (name, hidden)| {
        all.mut_subcommand(name, |command| {
            let others = "The other options of `ftld` are accepted, too.";
            let command = command.mut_args(under_heading).after_help(others);
            let hide = |command: Command, id: &&str| command.mut_arg(id, |arg| arg.hide(true));
            hidden.iter().fold(command, hide)
        })
    });
    let template = help_template(&all, columns);
    all.mut_arg("target", |arg| arg.hide_env(true))
        .help_template(template)
        .term_width(columns)
}

/// Returns version, revision, features and image format.
pub(super) fn long_version() -> String {
    let run = Provenance::here(None);
    let ublk = if cfg!(feature = "ublk") { "ublk, " } else { "" };
    format!(
        "{}\nrevision      {}\nfeatures      {ublk}nbd, tls\nimage format  {FORMAT_VERSION}",
        run.version,
        run.revision.as_deref().unwrap_or("unknown")
    )
}

pub(super) fn epilogue() -> String {
    let exits = Exit::VARIANTS
        .iter()
        .map(|&exit| format!("{} {}", exit.code(), exit.meaning()))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "Examples:\n  ftld --scheme lazyftl /dev/ublkb0\n  ftld --size 4GiB 'nbd+unix:///disk?socket=/tmp/disk.sock'\n\n\
         TARGET and every option can be given as FTLD_OPTION or in a file, too: ftld.toml(5).\n\
         Exit codes: 0 done, {exits}"
    )
}
