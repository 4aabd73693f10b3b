//! Completions: the generated script, with the names of schemes, devices, presets and workloads,
//! and questions to the program for those of instances and for parameters.

use crate::cli::command;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use ftl_core::schemes;
use ftld_device::preset::PRESETS;
use ftld_kit::failure::Failure;
use ftld_kit::output::print;
use ftld_traces::workload::GENERATORS;
use nand_model::PROFILES;

/// Begin of a word that stands for the words of a question to the program.
const ASKED: &str = "FTLD-WORDS-";
/// Kinds of words that the program is asked for; of the last two also a file is taken.
const QUESTIONS: [&str; 4] = ["running", "stopped", "parameters", "instances"];
/// Stands for names besides which a file is taken.
const OR_FILE: &str = "OR-A-FILE";

/// What the generator for zsh has no way to say.
const OF_ZSH: &str = r#"
_ftld_words() {
    local -a found
    found=(${(f)"$(ftld words $1 -- $words 2>/dev/null)"})
    [[ $1 == parameters ]] && compadd -S '' -- $found || compadd -- $found
    [[ $1 == instances ]] && _files
}
_ftld_or_files() { compadd -- $@; _files }
"#;

/// A parameter goes on with its value.
const OF_BASH: &str = r#"
_ftld_words() {
    _ftld "$@"
    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
"#;

/// `ftld completions`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    print(&script(shell))
}

fn script(shell: Shell) -> String {
    let mut command = with_values(offered(&command()));
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "ftld", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Zsh => of_zsh(&script),
        Shell::Fish => of_fish(&script, &command),
        _ => of_bash(&script),
    }
}

/// Replaces the words that stand for a question, written as `shape` has `{}`.
fn asking(script: &str, shape: &str, asked: impl Fn(&str) -> String) -> String {
    QUESTIONS.iter().fold(script.to_owned(), |script, kind| {
        let stand_in = shape.replace("{}", &format!("{ASKED}{kind}"));
        script.replace(&stand_in, &asked(kind))
    })
}

fn of_zsh(script: &str) -> String {
    let script = asking(script, "({})", |kind| format!("{{_ftld_words {kind}}}"));
    let script = script.replace(&format!("({OR_FILE} "), "{_ftld_or_files ");
    let lines = script.split_inclusive('\n').map(|line| {
        // The list of names ends the argument.
        let line = match line.contains("{_ftld_or_files ") {
            true => line.replacen(")'", "}'", 1),
            false => line.to_owned(),
        };
        // Options may follow several names.
        match line.contains("{_ftld_") {
            true => line.replacen("'*::", "'*:", 1),
            false => line,
        }
    });
    let script: String = lines.collect();
    script.replacen("\n_ftld() {", &format!("{OF_ZSH}\n_ftld() {{"), 1)
}

fn of_fish(script: &str, command: &Command) -> String {
    let lines = script.split_inclusive('\n');
    let lines = lines.map(|line| match line.contains(OR_FILE) {
        true => line.replace(" -r -f ", " -r -F "),
        false => line.to_owned(),
    });
    let script: String = lines.collect();
    let script = script.replace(&format!("{OR_FILE}\\t''\n"), "");
    // An option that still lacks its value is no wrong command line.
    let script = script.replacen("    or return\n", "    or return 0\n", 1);
    let asked = |kind: &str| question(kind, "(commandline -opc)");
    asking(&script, "{}\\t''", asked) + &positionals_of_fish(command)
}

fn of_bash(script: &str) -> String {
    let asked = |kind: &str| format!("${}", question(kind, "\"${COMP_WORDS[@]}\""));
    let script = asking(script, "{}", asked).replace(&format!("{OR_FILE} "), "");
    script.replace("complete -F _ftld ", "complete -F _ftld_words ") + OF_BASH
}

/// Returns the question for words of a kind, as a substitution; the shell drops errors.
fn question(kind: &str, line: &str) -> String {
    format!("(ftld words {kind} -- {line} 2>/dev/null)")
}

/// Returns the program as the scripts offer it: without hidden commands and options, and without
/// its target, which zsh would take a command for.
fn offered(program: &Command) -> Command {
    let visible =
        |arg: &&Arg| !(arg.is_hide_set() || arg.is_positional() && program.has_subcommands());
    // zsh would take the name for the text that has to follow it.
    let first = |arg: Arg| match arg.get_id() == "name" && arg.is_positional() {
        true => arg.required(matches!(program.get_name(), "mark" | "add" | "rm")),
        false => arg,
    };
    let args = program.get_arguments().filter(visible);
    let commands = program.get_subcommands().filter(|one| !one.is_hide_set());
    let offered = Command::new(program.get_name().to_owned())
        .args(args.cloned().map(first).map(plainly_named))
        .subcommands(commands.map(offered));
    match program.get_about() {
        Some(about) => offered.about(about.clone()),
        None => offered,
    }
}

/// Shortens the name of a value that zsh would read as several parts: SCHEME[:KEY=VALUE,...].
fn plainly_named(arg: Arg) -> Arg {
    let name = arg.get_value_names().and_then(|names| names.first());
    let short = name.and_then(|name| Some(name.split_once("[:")?.0.to_owned()));
    match short {
        Some(short) => arg.value_name(short),
        None => arg,
    }
}

/// Gives arguments the values that are known.
fn with_values(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match values(&name, &arg) {
        values if values.is_empty() => arg,
        values => arg.value_parser(PossibleValuesParser::new(values)),
    });
    command.mut_subcommands(with_values)
}

/// Returns the values of an argument; none if they are not known.
fn values(command: &str, arg: &Arg) -> Vec<String> {
    let schemes = || schemes::all().map(|scheme| scheme.name.to_owned());
    let presets = || PRESETS.iter().map(|preset| preset.name.to_owned());
    let or_file = |names: Vec<&str>| {
        let all = std::iter::once(OR_FILE).chain(names);
        all.map(str::to_owned).collect()
    };
    let asked = |kind: &str| vec![format!("{ASKED}{kind}")];
    match (command, arg.get_id().as_str(), arg.is_positional()) {
        (_, "scheme" | "shadow", false) | ("schemes", "name", true) | ("add", "shadow", true) => {
            schemes().collect()
        }
        (_, "preset", false) | ("presets", "name", true) => presets().collect(),
        (_, "profile", false) | ("profiles", "name", true) => {
            or_file(PROFILES.iter().map(|profile| profile.name).collect())
        }
        ("replay" | "compare", "workload" | "workloads", true) => {
            or_file(GENERATORS.iter().map(|generator| generator.name).collect())
        }
        (_, "set", false) => asked("parameters"),
        ("start" | "rm", "names", true) | (_, "name", false) => asked("stopped"),
        (_, "name" | "names", true) => asked("running"),
        ("inspect" | "check" | "clone", "image", true) => asked("instances"),
        _ => Vec::new(),
    }
}

/// Returns the lines for arguments without an option: the generator for fish has none.
fn positionals_of_fish(program: &Command) -> String {
    let mut lines = String::new();
    for command in program.get_subcommands() {
        let using = format!("__fish_ftld_using_subcommand {}", command.get_name());
        add_positionals(&mut lines, command, &using);
        for below in command.get_subcommands() {
            let name = below.get_name();
            let using = format!("{using}; and __fish_seen_subcommand_from {name}");
            add_positionals(&mut lines, below, &using);
        }
    }
    lines
}

fn add_positionals(lines: &mut String, command: &Command, using: &str) {
    for arg in command.get_positionals() {
        let values = values(command.get_name(), arg);
        let takes_file = values
            .iter()
            .any(|word| word == OR_FILE || word.ends_with("instances"));
        let files = if takes_file { "" } else { "-f " };
        let words: Vec<_> = values.into_iter().filter(|word| word != OR_FILE).collect();
        if words.is_empty() {
            continue;
        }
        let asked = |kind: &str| question(kind, "(commandline -opc)");
        let words = asking(&words.join(" "), "{}", asked);
        *lines += &format!("complete -c ftld -n \"{using}\" {files}-a \"{words}\"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_knows_schemes_devices_presets_workloads_and_asks_for_the_rest() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for word in ["lazyftl", "mlc-4k", "mnftl-paper", "hotcold", "ftld words"] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
            for kind in QUESTIONS {
                assert!(
                    script.contains(&format!("words {kind}")),
                    "{shell}: no {kind}"
                );
            }
            for left in [ASKED, OR_FILE] {
                assert!(!script.contains(left), "{shell}: {left}");
            }
        }
    }
}
