//! Errors that docs/OPERATING.md lists, each tried.

use super::home::ordinary_user;
use crate::host::Host;
use std::process::{Command, Output};

/// The rows of docs/OPERATING.md's table of errors: exit code, error, part of the message, where it
/// is tried if not here.
fn documented() -> Vec<[String; 4]> {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPERATING.md"))
            .unwrap();
    let (_, table) = page
        .split_once("| exit | error | message | test |")
        .expect("the table of errors");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        row.split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect::<Vec<_>>()
    };
    rows.map(|row| cells(row)[1..5].to_vec().try_into().unwrap())
        .collect()
}

#[test]
fn every_documented_error_ends_with_its_code_and_says_its_way_out() {
    let rows = documented();
    assert!(rows.len() >= 20, "{rows:?}");
    let mut wrong = Vec::new();
    for [exit, what, message, tried] in &rows {
        let exit: i32 = exit.parse().unwrap();
        if tried.is_empty() {
            // A program without ublk says that instead.
            let lacks_ublk = what.ends_with("ublk") && !cfg!(feature = "ublk");
            let message = if lacks_ublk {
                "built without ublk"
            } else {
                message
            };
            let (code, text) = try_it(what);
            let text = text.replace('`', "");
            if code != exit || !message.split('…').all(|part| text.contains(part.trim())) {
                wrong.push(format!(
                    "{what}: exit {exit} and {message:?}, but it was {code} and {text}"
                ));
            }
        } else {
            // Needs a kernel with drivers: the script makes the same claim with the same code.
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/").to_owned() + tried;
            let script = std::fs::read_to_string(&script)
                .unwrap_or_else(|error| panic!("{script}: {error}"));
            assert!(
                script.contains(&format!("refused \"{what}\" {exit} ")),
                "{what} is not in {tried}"
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The short list names the same codes.
    let codes: std::collections::BTreeSet<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(
        codes.into_iter().collect::<Vec<_>>(),
        ["1", "2", "3", "4", "5", "6", "7", "8", "9"]
    );
}

/// Makes the error happen. Exit code, standard error.
fn try_it(what: &str) -> (i32, String) {
    let host = Host::new();
    let run = |args: &[&str]| {
        let (code, _, error) = host.run(args);
        (code, error)
    };
    let (image, path) = (host.image("default"), |name: &str| {
        host.folder.path().join(name).display().to_string()
    });
    let write =
        |name: &str, text: &str| std::fs::write(host.folder.path().join(name), text).unwrap();
    match what {
        "unknown option" => run(&["--sise", "1GiB"]),
        "unknown scheme" => run(&["--scheme", "lazyftk"]),
        "unknown parameter" => run(&["create", "--size", "4MiB", "--set", "gc.fre_threshold=4"]),
        "unknown key in a configuration file" => {
            write("disk.toml", "sise = \"1GiB\"\n");
            run(&["--config", &path("disk.toml")])
        }
        "configuration file missing" => run(&["--config", &path("none.toml")]),
        "unknown log level" => {
            let mut list = host.command(&["list"]);
            let output = list.env("FTLD_LOG", "loud").output().unwrap();
            ended(&output)
        }
        "no home to write to" => {
            let start = ["--metrics", "off", "nbd+unix:///?socket=disk.sock"];
            ended(
                &ordinary_user(&host, Some("/sys/none"), &start)
                    .output()
                    .unwrap(),
            )
        }
        "rm of another file" => {
            std::fs::create_dir(host.folder.path().join("state")).unwrap();
            std::fs::write(host.image("notes"), "what I wanted to buy\n").unwrap();
            let found = run(&["rm", "notes"]);
            assert!(host.image("notes").exists());
            found
        }
        "target that is none" => run(&["/dev/sda"]),
        "image made differently" => {
            host.json(&["create", "--size", "4MiB", "--json"]);
            run(&["--metrics", "off", "--scheme", "pagemap"])
        }
        "NBD beyond this machine without TLS" => run(&["--metrics", "off", "nbd://192.0.2.1"]),
        "no such instance" => run(&["status", "disk"]),
        "nothing runs" => run(&["stop"]),
        "driver missing: ublk" => without_drivers(&host, "/dev/ublkb0"),
        "image that may not be opened" => {
            run(&["--metrics", "off", "--image", "/sys/kernel/disk.ftld"])
        }
        "name in use" => {
            let _daemon = host.serve(&[]);
            run(&["--metrics", "off"])
        }
        "image in use" => {
            let _daemon = host.serve(&[]);
            run(&[
                "--metrics",
                "off",
                "--name",
                "other",
                "--image",
                &image.display().to_string(),
            ])
        }
        "metrics address in use" => {
            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            run(&["--metrics", &taken.local_addr().unwrap().to_string()])
        }
        "NBD address in use" => {
            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let target = format!("nbd://127.0.0.1:{}", taken.local_addr().unwrap().port());
            run(&["--metrics", "off", "--size", "4MiB", &target])
        }
        "not an image" => {
            write("notes.txt", &"what I wanted to buy\n".repeat(1000));
            run(&["--metrics", "off", "--image", &path("notes.txt")])
        }
        "image damaged" => {
            host.json(&["create", "--size", "4MiB", "--json"]);
            let mut bytes = std::fs::read(&image).unwrap();
            bytes[64..8192].fill(0x5a);
            std::fs::write(&image, bytes).unwrap();
            run(&["check", "default"])
        }
        "image cut short" => {
            host.json(&["create", "--size", "4MiB", "--json"]);
            std::fs::File::options()
                .write(true)
                .open(&image)
                .unwrap()
                .set_len(6000)
                .unwrap();
            run(&["--metrics", "off"])
        }
        "no such image, read-only" => run(&["--metrics", "off", "--read-only"]),
        "power cut injected" => {
            let daemon = host.serve(&[]);
            host.json(&["inject", "power-cut", "--json"]);
            (daemon.exit_code().unwrap(), host.log())
        }
        other => panic!("no test makes {other:?} happen"),
    }
}

/// Exit code, standard error.
fn ended(output: &Output) -> (i32, String) {
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    (output.status.code().unwrap(), error)
}

/// With an empty /dev, as on a machine without the driver.
pub(super) fn without_drivers(host: &Host, target: &str) -> (i32, String) {
    let daemon = host.command(&[]);
    let inside = format!(
        "mount -t tmpfs none /dev && exec {} {target}",
        daemon.get_program().display()
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &inside]);
    command.envs(
        daemon
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    ended(&command.output().unwrap())
}
