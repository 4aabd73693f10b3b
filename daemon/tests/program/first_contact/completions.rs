//! What the shells offer, each asked as its user would.

use crate::host::Host;
use std::collections::BTreeSet;
use std::process::Command;

/// Returns what a shell offers for each of these lines, whose last word is begun, or empty.
fn offered(host: &Host, shell: &str, lines: &[&str]) -> Vec<BTreeSet<String>> {
    let folder = host.folder.path();
    let script = folder.join(format!("completions.{shell}"));
    let mut asking = Command::new(shell);
    match shell {
        "bash" => {
            // A word of its own for each, the last one included.
            let ask = "source \"$1\"; shift; number=0; for line in \"$@\"; do \
                       read -ra COMP_WORDS <<< \"$line\"; [[ $line != *' ' ]] || COMP_WORDS+=(''); \
                       COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                       _ftld ftld \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; \
                       printf \"$number\\t%s\\n\" \"${COMPREPLY[@]}\"; number=$((number + 1)); done";
            asking.args(["-c", ask, "bash"]);
        }
        "zsh" => {
            let asks = "/../daemon/tests/program/first_contact/complete.zsh";
            asking.args(["-f", &(env!("CARGO_MANIFEST_DIR").to_owned() + asks)]);
        }
        _ => {
            let ask = "source $argv[1]; set number 0; for line in $argv[2..]; \
                       for word in (complete -C $line); echo $number\\t$word; end; \
                       set number (math $number + 1); end";
            asking.args(["--no-config", "-c", ask]);
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
    let output = asking.arg(script).args(lines).output();
    let output = output.unwrap_or_else(|error| panic!("{shell}, of tests/deps.sh: {error}"));
    let mut found = vec![BTreeSet::new(); lines.len()];
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (number, word) = line.split_once('\t').unwrap();
        let word = word.split('\t').next().unwrap_or_default();
        // Only bash offers options before a dash.
        if !word.is_empty() && !word.starts_with('-') {
            found[number.parse::<usize>().unwrap()].insert(word.to_owned());
        }
    }
    found
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
        let table = [
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
            ("ftld --shadow dopf", &["dopftl"]),
            ("ftld check mi", &["mine"]),
        ];
        let lines = table.map(|(line, _)| line);
        let found = offered(&host, shell, &lines);
        for ((line, expected), found) in table.iter().zip(found) {
            let expected = expected.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(found, expected, "{shell}: {line:?}");
        }
        if shell != "bash" {
            // bash itself falls back to files.
            let found = &offered(&host, shell, &["ftld replay tra"])[0];
            assert!(found.contains("trace.csv"), "{shell}: {found:?}");
        }
    }
}
