//! Manual pages and completions, generated from the definitions of the command line.

mod completions;
mod examples;

pub(crate) use completions::completions;

use crate::cli::command;
use clap::{Arg, Args, Command};
use clap_mangen::Man;
use examples::Example;
use ftl_core::schemes::SCHEMES;
use ftld_device::options::DeviceOptions;
use ftld_kit::failure::{Exit, Failure};
use roff::{Roff, bold, italic, roman};
use std::path::Path;
use strum::VariantArray;

/// The version in the foot of every page.
const VERSION: &str = concat!("ftld ", env!("CARGO_PKG_VERSION"));

/// `ftld man`: `ftld(8)` and a page for every subcommand, `ftld.toml(5)`, `ftld-schemes(7)`.
///
/// # Errors
/// A page cannot be written into the folder.
pub(crate) fn manual(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder.display(), &error))?;
    // There is a page for every subcommand but `help`, so no page may refer to `ftld help`.
    let mut program = command()
        .disable_help_subcommand(true)
        .mut_subcommand("inject", |inject| inject.disable_help_subcommand(true));
    program.build();
    let mut pages = vec![
        ("ftld.toml.5".into(), file_page()),
        ("ftld-schemes.7".into(), schemes_page()),
    ];
    command_pages(&program, &mut pages);
    for (name, text) in pages {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::io(path.display(), &error))?;
    }
    Ok(())
}

/// `ftld(8)`, `ftld-list(8)`, `ftld-inject-power-cut(8)` …
fn command_pages(command: &Command, pages: &mut Vec<(String, String)>) {
    let name = page_name(command);
    pages.push((format!("{name}.8"), command_page(command)));
    let subcommands = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set());
    subcommands.for_each(|subcommand| command_pages(subcommand, pages));
}

fn page_name(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name());
    name.to_owned()
}

/// Returns the page of a command, in the order of sections of nbdkit(1).
fn command_page(command: &Command) -> String {
    let name = page_name(command);
    let man = Man::new(command.clone())
        .title(&name)
        .section("8")
        .source(VERSION)
        .manual("System Manager's Manual");
    let part = |render: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| {
        let mut text = Vec::new();
        render(&mut text).expect("memory takes everything");
        String::from_utf8_lossy(&text).into_owned()
    };
    let is_program = name == "ftld";
    let mut page = part(&|to| man.render_title(to));
    page += &part(&|to| man.render_name_section(to));
    page += &synopsis(command).to_roff();
    page += &match is_program {
        true => description_of_the_program().to_roff(),
        false => part(&|to| man.render_description_section(to)),
    };
    page += &examples(examples::of(&name)).to_roff();
    page += &part(&|to| man.render_options_section(to));
    if command.has_subcommands() {
        page += &part(&|to| man.render_subcommands_section(to));
    }
    page += &match is_program {
        true => of_the_program().to_roff(),
        false => of_a_command(command).to_roff(),
    };
    page
}

/// Returns how a command is called: its options with their values, and its arguments.
fn synopsis(command: &Command) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["SYNOPSIS"]);
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let line = |page: &mut Roff, words: Vec<String>| {
        page.control("HP", []);
        page.text([bold(name), roman(format!(" {}", words.join(" ")))]);
    };
    let is_standard = |arg: &&Arg| ["help", "version"].contains(&arg.get_id().as_str());
    let args = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !is_standard(arg));
    let (last, options): (Vec<_>, Vec<_>) = args.partition(|arg| arg.is_positional());
    let words: Vec<_> = options.into_iter().chain(last).map(usage).collect();
    if !(command.has_subcommands() && command.get_name() == "inject") {
        line(&mut page, words);
    }
    if command.has_subcommands() {
        line(&mut page, vec!["COMMAND [OPTIONS]".into()]);
    }
    line(&mut page, vec!["-h|--help".into()]);
    if command.get_version().is_some() {
        line(&mut page, vec!["-V|--version".into()]);
    }
    page
}

/// Returns an argument as a synopsis shows it: `[-d|--delay SECONDS]`.
fn usage(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values: Vec<_> = names.iter().map(|name| name.as_str()).collect();
    let several = arg
        .get_num_args()
        .is_some_and(|count| count.max_values() > 1);
    let more = if several { "\u{a0}..." } else { "" };
    let value = values.join(" ") + more;
    let text = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}|--{long}"),
        (None, Some(long)) => format!("--{long}"),
        _ => value.clone(),
    };
    let text = match arg.is_positional() || !arg.get_action().takes_values() {
        true => text,
        // A line does not end between an option and its value.
        false => format!("{text}\u{a0}{value}"),
    };
    match arg.is_required_set() {
        true => text,
        false => format!("[{text}]"),
    }
}

fn description_of_the_program() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["DESCRIPTION"]);
    for text in [
        "ftld serves a block device, through ublk or NBD, whose data are in an emulated NAND \
         flash. A flash translation layer, the scheme, maps the blocks of the device to pages \
         of the flash. The flash is a file, the image, and obeys the rules of NAND: pages are \
         programmed in order, blocks are erased as a whole, and both wear out.",
        "Without a command, ftld serves the TARGET until it is stopped. A new device needs no \
         other option. Data that were acknowledged survive the death of the daemon; flushed \
         data survive a crash of the host and a power cut.",
        "The live page at http://127.0.0.1:9917/ shows every block of the flash, write \
         amplification by cause, latencies and events; /metrics at the same address is for \
         Prometheus.",
        "Other commands look at instances and images, inject faults, or run a workload \
         through a scheme in memory and in emulated time.",
    ] {
        page.control("PP", []);
        page.text([roman(text)]);
    }
    page
}

fn examples(examples: &[Example]) -> Roff {
    let mut page = Roff::new();
    if examples.is_empty() {
        return page;
    }
    page.control("SH", ["EXAMPLES"]);
    for (purpose, lines) in examples {
        page.control("PP", []);
        page.text([roman(*purpose)]);
        page.control("PP", []);
        page.control("nf", []);
        for line in *lines {
            page.text([roman(format!("  {line}"))]);
        }
        page.control("fi", []);
    }
    page
}

/// Returns the sections after the options of a command.
fn of_a_command(command: &Command) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    page.text([
        roman("0 if it is done. The other codes are those of "),
        bold("ftld"),
        roman("(8)."),
    ]);
    page.control("SH", ["FILES"]);
    page.text([roman("As of "), bold("ftld"), roman("(8).")]);
    page.control("SH", ["ENVIRONMENT"]);
    if command.get_arguments().any(|arg| arg.get_env().is_some()) {
        page.text([roman(
            "Every option of a device can be given as FTLD_OPTION.",
        )]);
    }
    page.text([
        roman("FTLD_LOG, FTLD_CONFIG_DIR, FTLD_STATE_DIR, FTLD_RUNTIME_DIR, NO_COLOR and CLICOLOR_FORCE as of "),
        bold("ftld"),
        roman("(8)."),
    ]);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("ftld"),
        roman("(8), "),
        bold("ftld.toml"),
        roman("(5), "),
        bold("ftld-schemes"),
        roman("(7)"),
    ]);
    page
}

/// Returns the sections besides the options.
fn of_the_program() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    page.text([roman("Every command ends with one of these codes.")]);
    entry(&mut page, "0", "done");
    for &exit in Exit::VARIANTS {
        entry(&mut page, &exit.code().to_string(), exit.meaning());
    }
    page.control("SH", ["FILES"]);
    entry(
        &mut page,
        "/etc/ftld/NAME.toml",
        "options of an instance, see ftld.toml(5)",
    );
    entry(
        &mut page,
        "/var/lib/ftld/NAME.ftld",
        "its image, unless --image names another",
    );
    entry(
        &mut page,
        "/var/lib/ftld/NAME.start",
        "options of its last start, for ftld-start(8)",
    );
    entry(
        &mut page,
        "/run/ftld/NAME/",
        "its process number and control socket, while it runs",
    );
    page.control("PP", []);
    page.text([roman(
        "For other users than root: $XDG_CONFIG_HOME/ftld, $XDG_STATE_HOME/ftld and $XDG_RUNTIME_DIR/ftld.",
    )]);
    page.control("SH", ["ENVIRONMENT"]);
    page.text([
        roman("Every option of a device can be given as "),
        bold("FTLD_OPTION"),
        roman(" too: FTLD_SCHEME, FTLD_READ_ONLY=true, "),
    ]);
    page.text([roman(
        "FTLD_SET=\"lazy.cache_pages=32 wear.gap=4\". Priority: command line, environment, file.",
    )]);
    entry(
        &mut page,
        "FTLD_LOG",
        "error, warn, info (the default), debug or trace",
    );
    entry(
        &mut page,
        "FTLD_CONFIG_DIR, FTLD_STATE_DIR, FTLD_RUNTIME_DIR",
        "instead of the folders above",
    );
    entry(
        &mut page,
        "NO_COLOR, CLICOLOR_FORCE",
        "no colours on a terminal; colours also elsewhere",
    );
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("ftld.toml"),
        roman("(5), "),
        bold("ftld-schemes"),
        roman("(7), "),
        bold("nbd-client"),
        roman("(8)"),
    ]);
    page
}

fn entry(page: &mut Roff, name: &str, meaning: &str) {
    page.control("TP", []);
    page.text([bold(name)]);
    page.text([roman(meaning)]);
}

fn titled(name: &str, section: &str, line: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [name, section, "", VERSION]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {line}"))]);
    page
}

/// `ftld.toml(5)`.
fn file_page() -> String {
    let mut page = titled("ftld.toml", "5", "options of an ftld device in a file");
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        bold("ftld"),
        roman(" reads "),
        italic("/etc/ftld/NAME.toml"),
        roman(" when it serves the instance NAME, or the file that --config names. The keys are the options of the command line, which has priority, "),
        roman("as does the environment. An unknown key is an error. "),
        bold("ftld --print-config"),
        roman(" prints all values with their sources, in this form."),
    ]);
    page.control("SH", ["EXAMPLES"]);
    page.control("nf", []);
    for line in [
        "target = \"/dev/ublkb0\"",
        "scheme = \"lazyftl\"",
        "size = \"8GiB\"",
        "op = 12.5",
        "[set]",
        "\"lazy.cache_pages\" = 32",
    ] {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["KEYS"]);
    entry(
        &mut page,
        "target",
        "Target: /dev/ublkbN, /dev/nbdN, nbd://HOST:PORT[/EXPORT], nbd+unix:///[EXPORT]?socket=PATH or vhost-user:///PATH",
    );
    for arg in DeviceOptions::augment_args(Command::new("keys")).get_arguments() {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let key = arg.get_id().as_str().replace('_', "-");
        entry(&mut page, if key == "set" { "[set]" } else { &key }, &help);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("ftld"),
        roman("(8), "),
        bold("ftld-schemes"),
        roman("(7)"),
    ]);
    page.to_roff()
}

/// `ftld-schemes(7)`.
fn schemes_page() -> String {
    let mut page = titled("ftld-schemes", "7", "the flash translation layers of ftld");
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("A scheme maps logical pages to flash pages and frees space by GC or merges. Choose one with "),
        bold("--scheme"),
        roman("; its parameters with "),
        bold("--set KEY=VALUE"),
        roman(". Fidelity: A, as its authors did; B, well known but the original was not available; C, a reconstruction."),
    ]);
    for scheme in SCHEMES {
        page.control("SH", [scheme.name]);
        page.text([roman(format!("{}. {}", scheme.title, scheme.about))]);
        entry(
            &mut page,
            "paper",
            &format!("{} (fidelity {})", scheme.paper, scheme.fidelity),
        );
        entry(&mut page, "mapping", scheme.mapping);
        entry(&mut page, "RAM", scheme.ram);
        for param in scheme.all_params() {
            entry(&mut page, param.key, param.help);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("ftld"),
        roman("(8), "),
        bold("ftld.toml"),
        roman("(5)"),
    ]);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    /// Returns the words of a line up to a redirection, without quotes.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(['|', '>', '&']).next().unwrap_or_default();
        let words = line.split_whitespace();
        words
            .map(|word| word.trim_matches('\'').to_owned())
            .collect()
    }

    #[test]
    fn every_page_has_examples_that_the_program_takes() {
        let mut pages = Vec::new();
        let mut program = command().disable_help_subcommand(true);
        for group in ["inject", "shadow"] {
            program = program.mut_subcommand(group, |of| of.disable_help_subcommand(true));
        }
        program.build();
        command_pages(&program, &mut pages);
        for (page, text) in &pages {
            let name = page.trim_end_matches(".8");
            let mut lines = examples::of(name).iter().flat_map(|(_, lines)| *lines);
            assert!(lines.clone().count() > 0, "{name} has no example");
            let own = name.replacen("ftld-", "ftld ", 1);
            let own = own.replacen("inject-", "inject ", 1);
            let own = own.replacen("shadow-", "shadow ", 1);
            assert!(
                lines.any(|line| line.contains(&own)),
                "no example of {name} shows it"
            );
            let order = [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "EXAMPLES",
                "OPTIONS",
                "EXIT STATUS",
                "FILES",
                "ENVIRONMENT",
                "SEE ALSO",
            ];
            let at = order.map(|head| {
                let quoted = text.find(&format!(".SH \"{head}\"\n"));
                quoted
                    .or_else(|| text.find(&format!(".SH {head}\n")))
                    .unwrap_or_else(|| panic!("{name} lacks {head}"))
            });
            assert!(at.is_sorted(), "{name}: {at:?}");
        }
        let of_ftld = examples::EXAMPLES.iter().flat_map(|(_, of)| *of);
        for line in of_ftld.flat_map(|(_, lines)| *lines) {
            if line.starts_with("ftld ") {
                let parsed = Cli::try_parse_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
