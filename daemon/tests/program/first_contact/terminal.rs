//! Output on a terminal: lines of at most its columns, and colours only where they are wanted.

use crate::host::Host;
use std::process::{Command, Stdio};

const WIDTH: usize = 100;

/// The escape character, which begins every colour.
const ESCAPE: char = '\x1b';

/// A workload that runs in a fraction of a second.
const SHORT: &str = "uniform:requests=2K";

#[test]
fn no_line_of_a_list_or_a_table_is_longer_than_the_terminal_is_wide() {
    let host = Host::new();
    let compare = ["compare", SHORT, "zipf:requests=2K", "--size", "16MiB"];
    let replay = ["replay", SHORT, "--size", "16MiB", "--age", "1"];
    let seeds = [
        &compare[..],
        &["--scheme", "pagemap,lazyftl", "--seeds", "2"],
    ]
    .concat();
    let schemes = host.json(&["schemes", "--json"]);
    let names = schemes["schemes"].as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|scheme| scheme["name"].as_str().unwrap())
        .collect();
    let mut commands: Vec<Vec<&str>> = [
        &["schemes"][..],
        &["schemes", "--long"],
        &["profiles"],
        &["workloads"],
        &["presets"],
        &["doctor", "--metrics", "off"],
        &replay,
        &compare,
        &seeds,
    ]
    .map(<[_]>::to_vec)
    .into();
    commands.extend(names.iter().map(|name| vec!["schemes", name]));
    let daemon = host.serve(&["--name", "short"]);
    let mut client = daemon.client();
    assert_eq!(client.write(0, 0, &[7; 4096]).error, 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    commands.extend([vec!["list"], vec!["list", "--all"], vec!["status"]]);
    for width in [WIDTH, 80, 60] {
        let columns = width.to_string();
        for command in &commands {
            // The runs take longest.
            if command[0] == "compare" && width == 80 {
                continue;
            }
            let output = host.command(command).env("COLUMNS", &columns).output();
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            assert!(text.lines().count() > 1, "{command:?}: {text}");
            for line in text.lines() {
                // Paths are not broken: each has its own line, or is at the end of one.
                let path = host.folder.path().display().to_string();
                let line = line.split(&path).next().unwrap_or(line);
                let length = line.chars().count();
                // A workload to be copied is one word, however long.
                let words = line.split_whitespace().map(|word| word.chars().count());
                let is_a_word = words.max() > Some(width - 12);
                assert!(
                    length <= width || is_a_word,
                    "{command:?} at {width}: {line}"
                );
            }
        }
    }
    let mut watch = host.command(&["status", "--watch", "0.1"]);
    let watch = watch.env("COLUMNS", "60").stdout(Stdio::piped()).spawn();
    std::thread::sleep(std::time::Duration::from_millis(500));
    drop(daemon);
    let text = watch.unwrap().wait_with_output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().count() > 1, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 60),
        "{text}"
    );
}

#[test]
fn the_list_of_schemes_fits_a_screen_and_names_the_way_to_more() {
    let host = Host::new();
    let (_, text, _) = host.run(&["schemes"]);
    assert!(text.lines().count() <= 24, "{text}");
    let schemes = host.json(&["schemes", "--json"]);
    for scheme in schemes["schemes"].as_array().unwrap() {
        let (name, title) = (&scheme["name"], &scheme["title"]);
        let line = format!("{:<12}{}", name.as_str().unwrap(), title.as_str().unwrap());
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    for part in [
        "default is lazyftl",
        "`ftld schemes NAME`",
        "--long",
        "\noptimum ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let (_, one, _) = host.run(&["schemes", "lazyftl"]);
    let (_, all, _) = host.run(&["schemes", "--long"]);
    assert!(
        one.contains("--set lazy.") && all.starts_with(&one),
        "{one}"
    );
}

/// Runs the program on a terminal of its own; returns what it wrote there.
fn on_a_terminal(host: &Host, variables: &[(&str, &str)], args: &[&str]) -> String {
    let program = host.command(&[]);
    let mut script = Command::new("script");
    let line = [&[program.get_program().to_str().unwrap()], args]
        .concat()
        .join(" ");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.envs(
        program
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    // With CI set, every terminal counts as one with colours.
    for variable in ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        script.env_remove(variable);
    }
    script.env("TERM", "xterm").envs(variables.iter().copied());
    let output = script.stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let host = Host::new();
    let image = host.image("default");
    let _daemon = host.serve(&[]);
    // The state, the verdicts, the prefix of an error, a warning, the headings of the help.
    for (args, word) in [
        (&["list"][..], "serving"),
        (&["status"], "serving"),
        (&["doctor", "--metrics", "off"], "ok"),
        (&["stauts"], "ftld:"),
        (
            &[
                "--metrics",
                "0.0.0.0:0",
                "--name",
                "other",
                "--read-only",
                "nbd://127.0.0.1:0",
            ],
            "WARN",
        ),
        (&["stop", "--help"], "Usage:"),
    ] {
        let painted = |text: &str| {
            let at = text
                .find(word)
                .unwrap_or_else(|| panic!("{args:?}: no {word} in {text}"));
            text[..at].trim_end().ends_with('m') && text[at + word.len()..].starts_with(ESCAPE)
        };
        let text = on_a_terminal(&host, &[], args);
        assert!(painted(&text), "{args:?} on a terminal: {text:?}");
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let text = on_a_terminal(&host, &[variable], args);
            assert!(
                text.contains(word) && !text.contains(ESCAPE),
                "{args:?}, {variable:?}: {text:?}"
            );
        }
        let piped = |variables: &[(&str, &str)]| {
            let mut command = host.command(args);
            command
                .env_remove("CLICOLOR_FORCE")
                .envs(variables.iter().copied());
            let output = command.output().unwrap();
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        let text = piped(&[]);
        assert!(
            text.contains(word) && !text.contains(ESCAPE),
            "{args:?}, piped: {text:?}"
        );
        let text = piped(&[("CLICOLOR_FORCE", "1")]);
        assert!(painted(&text), "{args:?}, forced: {text:?}");
    }
    // JSON has no colours, whatever the terminal wants.
    let text = on_a_terminal(&host, &[("CLICOLOR_FORCE", "1")], &["status", "--json"]);
    assert!(
        text.contains("serving") && !text.contains(ESCAPE),
        "{text:?}"
    );
    assert!(image.exists());
}

/// The log of an instance in the background is a file, although its start was on a terminal.
#[test]
fn the_log_of_an_instance_has_no_colours() {
    let host = Host::new();
    let socket = host.folder.path().join("a.sock");
    let target = format!("'nbd+unix:///a?socket={}'", socket.display());
    let device = host.serve(&[target.trim_matches('\'')]);
    drop(device);
    let start = ["--detach", "--metrics", "off", &target];
    let text = on_a_terminal(&host, &[("FTLD_LOG", "info")], &start);
    assert!(text.contains(ESCAPE) && text.contains("INFO"), "{text:?}");
    assert_eq!(host.run(&["stop", "a"]).0, 0);
    let log = std::fs::read_to_string(host.folder.path().join("state/a.log")).unwrap();
    assert!(log.contains("INFO") && !log.contains(ESCAPE), "{log:?}");
}
