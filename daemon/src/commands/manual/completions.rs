//! Completions: the generated script, with the names of schemes, devices, presets and parameters,
//! and a question to the program for those of instances.

use crate::cli::command;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use ftl_core::schemes;
use ftld_device::preset::PRESETS;
use ftld_kit::failure::Failure;
use ftld_kit::output::print;
use nand_model::PROFILES;
use std::collections::BTreeSet;

/// Stands for the names of instances, which the script asks for.
const INSTANCES: &str = "INSTANCES-OF-FTLD";
/// Command that lists the instances; the script discards its errors.
const ASK: &str = "ftld list --names 2>/dev/null";

/// `ftld completions`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    print(&script(shell))
}

fn script(shell: Shell) -> String {
    let mut command = with_values(command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "ftld", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Fish => {
            let script = script.replace(&format!("{INSTANCES}\\t''"), &format!("({ASK})"));
            script + &positionals_of_fish(&command)
        }
        _ => script.replace(INSTANCES, &format!("$({ASK})")),
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
    let profiles = || PROFILES.iter().map(|profile| profile.name.to_owned());
    match (command, arg.get_id().as_str(), arg.is_positional()) {
        (_, "scheme", false) | ("schemes", "name", true) => schemes().collect(),
        (_, "profile", false) | ("profiles", "name", true) => profiles().collect(),
        (_, "preset", false) => PRESETS.iter().map(|preset| preset.name.into()).collect(),
        (_, "set", false) => {
            let params = schemes::all().flat_map(|scheme| scheme.all_params());
            let keys: BTreeSet<_> = params.map(|param| format!("{}=", param.key)).collect();
            keys.into_iter().collect()
        }
        (_, "name" | "names", _) | ("inspect" | "check" | "clone", "image", true) => {
            vec![INSTANCES.into()]
        }
        _ => Vec::new(),
    }
}

/// Returns the lines for arguments without an option: the generator for fish has none.
fn positionals_of_fish(program: &Command) -> String {
    let mut lines = String::new();
    for command in program.get_subcommands() {
        let name = command.get_name();
        for arg in command.get_positionals() {
            let words = values(name, arg).join(" ");
            if !words.is_empty() {
                let words = words.replace(INSTANCES, &format!("({ASK})"));
                lines += &format!(
                    "complete -c ftld -n \"__fish_ftld_using_subcommand {name}\" -a \"{words}\"\n"
                );
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_knows_schemes_devices_presets_parameters_and_asks_for_instances() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for word in ["lazyftl", "mlc-4k", "mnftl-paper", "wear.gap=", ASK] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
            assert!(!script.contains(INSTANCES), "{shell}");
        }
    }
}
