//! What the shells offer, each asked as its user would.

use crate::host::Host;
use std::collections::BTreeSet;
use std::process::Command;

/// Returns what a shell offers for a line whose last word is begun, or empty.
fn offered(host: &Host, shell: &str, line: &str) -> BTreeSet<String> {
    let folder = host.folder.path();
    let script = folder.join(format!("completions.{shell}"));
    let script = script.to_str().unwrap();
    let mut asking = Command::new(shell);
    match shell {
        "bash" => {
            // An argument of its own per word, the last one included.
            let ask = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                       _ftld ftld \"${@: -1}\" \"${@: -2:1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
            asking
                .args(["-c", ask, "bash", script])
                .args(line.split(' '));
        }
        "zsh" => {
            let asks = "/../daemon/tests/program/first_contact/complete.zsh";
            let asks = env!("CARGO_MANIFEST_DIR").to_owned() + asks;
            asking.args(["-f", &asks, script, line]);
        }
        _ => {
            let ask = format!("source {script}; complete -C '{line}'");
            asking.args(["--no-config", "-c", &ask]);
        }
    }
    let ftld = host.command(&[]);
    let program = std::path::Path::new(ftld.get_program()).parent().unwrap();
    let paths = std::env::var("PATH").unwrap();
    asking.envs(
        ftld.get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    asking.env("PATH", format!("{}:{paths}", program.display()));
    asking.env("HOME", folder).current_dir(folder);
    let output = asking.output();
    let output = output.unwrap_or_else(|error| panic!("{shell}, of tests/deps.sh: {error}"));
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text
        .lines()
        .map(|line| line.split('\t').next().unwrap_or_default());
    // Only bash offers options before a dash.
    let words = words.filter(|word| !word.is_empty() && !word.starts_with('-'));
    words.map(str::to_owned).collect()
}

#[test]
fn every_shell_knows_schemes_parameters_workloads_and_instances() {
    let host = Host::new();
    for name in ["mine", "other"] {
        host.json(&["create", "--name", name, "--size", "4MiB", "--json"]);
    }
    let _live = host.serve(&["--name", "live"]);
    std::fs::write(host.folder.path().join("trace.csv"), "").unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, error) = host.run(&["completions", shell]);
        assert_eq!(code, 0, "{error}");
        assert!(
            script.contains("print-config") && !script.contains("guest-init"),
            "{shell}"
        );
        let file = host.folder.path().join(format!("completions.{shell}"));
        std::fs::write(file, script).unwrap();
        for (line, expected) in [
            ("ftld sta", &["start", "status"][..]),
            ("ftld --scheme laz", &["lazyftl"]),
            ("ftld --profile tort", &["torture"]),
            ("ftld create --preset mnftl", &["mnftl-paper"]),
            ("ftld create --scheme dftl --set dft", &["dftl.cache="]),
            ("ftld create --scheme lazyftl --set dft", &[]),
            (
                "ftld compare uniform --preset dftl-paper --set dft",
                &["dftl.cache="],
            ),
            ("ftld schemes rose", &["rose"]),
            ("ftld presets dop", &["dopftl-paper"]),
            ("ftld replay hot", &["hotcold"]),
            ("ftld start ", &["mine", "other"]),
            ("ftld rm mine o", &["other"]),
            ("ftld stop ", &["live"]),
            ("ftld mark ", &["live"]),
            ("ftld inject slow ", &["live"]),
            ("ftld check mi", &["mine"]),
        ] {
            let expected = expected.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(offered(&host, shell, line), expected, "{shell}: {line:?}");
        }
        if shell != "bash" {
            // bash itself falls back to files.
            let found = offered(&host, shell, "ftld replay tra");
            assert!(found.contains("trace.csv"), "{shell}: {found:?}");
        }
    }
}
