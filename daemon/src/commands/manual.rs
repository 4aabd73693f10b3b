//! Manual pages and completions, generated from the definitions of the command line.

use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use crate::options::DeviceOptions;
use crate::output::print;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use ftl_core::schemes::SCHEMES;
use roff::{Roff, bold, italic, roman};
use std::path::Path;
use strum::VariantArray;

/// `ftld completions`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ftld", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// `ftld man`: `ftld(8)` and a page for every subcommand, `ftld.toml(5)`, `ftld-schemes(7)`.
///
/// # Errors
/// A page cannot be written into the folder.
pub fn manual(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder.display(), &error))?;
    // There is a page for every subcommand but `help`, so no page may refer to `ftld help`.
    let mut program = Cli::command()
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
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut page = Vec::new();
    let written = Man::new(command.clone()).section("8").render(&mut page);
    written.expect("memory takes everything");
    let mut text = String::from_utf8_lossy(&page).into_owned();
    if name == "ftld" {
        text += &of_the_program().to_roff();
    }
    pages.push((format!("{name}.8"), text));
    let subcommands = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help");
    subcommands.for_each(|subcommand| command_pages(subcommand, pages));
}

/// Returns the sections besides the options.
fn of_the_program() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    entry(&mut page, "0", "done");
    for &exit in Exit::VARIANTS {
        entry(&mut page, &exit.code().to_string(), exit.meaning());
    }
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
        "instead of the folders below",
    );
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
        "/run/ftld/NAME/",
        "its process number and control socket, while it runs",
    );
    page.text([roman(
        "For other users than root: $XDG_CONFIG_HOME/ftld, $XDG_STATE_HOME/ftld and $XDG_RUNTIME_DIR/ftld.",
    )]);
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
    page.control(
        "TH",
        [
            name,
            section,
            "",
            concat!("ftld ", env!("CARGO_PKG_VERSION")),
        ],
    );
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
    page.control("SH", ["KEYS"]);
    entry(
        &mut page,
        "target",
        "Target: /dev/ublkbN, /dev/nbdN, nbd://HOST:PORT[/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH",
    );
    for arg in DeviceOptions::augment_args(Command::new("keys")).get_arguments() {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let key = arg.get_id().as_str().replace('_', "-");
        entry(&mut page, if key == "set" { "[set]" } else { &key }, &help);
    }
    page.control("SH", ["EXAMPLE"]);
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
