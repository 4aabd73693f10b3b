//! Wrong use: one line that names the thing, the reason and the way out; nothing is made.

use super::program::Host;
use serde_json::Value;

/// Arguments, exit code, and parts of the message: the thing and the way out.
const WRONG: [(&str, i32, &[&str]); 40] = [
    ("disk.ftld", 2, &["disk.ftld", "write --image disk.ftld"]),
    ("stauts", 2, &["\"stauts\"", "did you mean \"status\"?"]),
    (
        "remove disk",
        2,
        &["no command \"remove\"", "`ftld --help`"],
    ),
    ("--sise 1GiB", 2, &["'--sise'", "'--size'", "`ftld --help`"]),
    (
        "create --sise 1GiB",
        2,
        &["'--sise'", "`ftld create --help`"],
    ),
    (
        "create disk.ftld",
        2,
        &["disk.ftld", "write --image disk.ftld"],
    ),
    (
        "create --size 100TiB",
        2,
        &["109951162777600", "at most 8796093018112 bytes"],
    ),
    ("create --size 1XB", 2, &["--size \"1XB\"", "512MiB"]),
    (
        "create --size 1000",
        2,
        &["--size 1000", "multiple of 4 KiB"],
    ),
    ("create --size 0", 2, &["--size 0", "positive multiple"]),
    ("create --op seven", 2, &["\"seven\"", "7 or 12.5%"]),
    ("create --op 0", 2, &["--op 0", "0.1 to 1000"]),
    (
        "create --scheme lazyftk",
        2,
        &["\"lazyftk\"", "did you mean \"lazyftl\"?"],
    ),
    (
        "create --profile mlc",
        2,
        &["\"mlc\"", "did you mean \"mlc-4k\"?"],
    ),
    ("create --profile none.toml", 2, &["none.toml"]),
    (
        "create --set gc.polcy=greedy",
        2,
        &["\"gc.polcy\"", "did you mean \"gc.policy\"?"],
    ),
    ("create --set gc.policy", 2, &["\"gc.policy\"", "KEY=VALUE"]),
    (
        "create --set gc.policy=best",
        2,
        &["gc.policy", "best", "greedy"],
    ),
    ("create --preset mnftl", 2, &["\"mnftl\"", "mnftl-paper"]),
    (
        "--metrics nonsense nbd://[::1]:0",
        2,
        &["nonsense", "HOST:PORT or off"],
    ),
    (
        "--latency fast nbd://[::1]:0",
        2,
        &["\"fast\"", "none nor emulate"],
    ),
    (
        "--tls-cert none.pem --tls-key none.pem nbd://[::1]:0",
        2,
        &["none.pem"],
    ),
    ("--name a/b nbd://[::1]:0", 2, &["a/b"]),
    ("nbd://192.0.2.1", 2, &["192.0.2.1", "TLS"]),
    (
        "nbd+unix:///disk",
        2,
        &["the socket is missing", "?socket=PATH"],
    ),
    ("nbd://127.0.0.1:99999", 2, &["'99999'", "0 to 65535"]),
    ("/dev/ublkb", 2, &["/dev/ublkb", "/dev/ublkb0"]),
    ("/dev/sda", 2, &["/dev/sda", "/dev/ublkbN"]),
    ("status disk", 3, &["disk", "`ftld list`"]),
    (
        "stop",
        3,
        &["no instance is running", "`ftld TARGET` starts one"],
    ),
    (
        "rm disk",
        3,
        &["disk.ftld: no such image", "`ftld list --all`"],
    ),
    ("status --watch soon", 2, &["soon", "`ftld status --help`"]),
    ("pause --for 5h", 2, &["\"h\"", "30s or 5m"]),
    (
        "schemes lazyftk",
        2,
        &["\"lazyftk\"", "did you mean \"lazyftl\"?"],
    ),
    ("profiles mlc", 2, &["\"mlc\"", "did you mean \"mlc-4k\"?"]),
    (
        "replay uniforn",
        2,
        &["uniforn", "did you mean \"uniform\"?", "`ftld workloads`"],
    ),
    ("replay uniform:request=1", 2, &["request", "requests"]),
    ("replay", 2, &["<WORKLOAD>", "`ftld replay --help`"]),
    (
        "compare uniform zipff",
        2,
        &["zipff", "did you mean \"zipf\"?", "`ftld workloads`"],
    ),
    (
        "compare uniform --scheme pagemapp",
        2,
        &["\"pagemapp\"", "did you mean \"pagemap\"?"],
    ),
];

#[test]
fn wrong_use_is_one_line_that_names_the_thing_and_the_way_out() {
    let mut wrong = Vec::new();
    for (line, exit, parts) in WRONG {
        let host = Host::new();
        let args: Vec<_> = line.split(' ').collect();
        let (code, out, text) = host.run(&args);
        let json = [&args[..], &["--json"]].concat();
        let (json_code, json_out, error) = host.run(&json);
        let said: Value = serde_json::from_str(&error).unwrap_or_default();
        let made = walk(host.folder.path());
        let is_right = (code, json_code) == (exit, exit)
            && out.is_empty()
            && json_out.is_empty()
            && text.lines().count() == 1
            && text.starts_with("ftld: ")
            && parts.iter().all(|part| text.contains(part))
            && said["exit"] == exit
            && said["error"].as_str() == text.trim_end().strip_prefix("ftld: ")
            && made.is_empty();
        if !is_right {
            wrong.push(format!(
                "{line}: exit {code}, {json_code}; made {made:?}; {out}{text}{error}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files in a folder and below.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.map(|entry| entry.path());
    found
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false => vec![path],
        })
        .collect()
}

#[test]
fn a_start_that_fails_leaves_no_image() {
    let host = Host::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("nbd://{}", taken.local_addr().unwrap());
    host.fails(
        &["--metrics", "off", "--size", "4MiB", &target],
        7,
        &["in use"],
    );
    assert!(!host.image("default").exists());
    let long = format!("nbd+unix:///?socket=/tmp/{}", "a".repeat(120));
    host.fails(
        &["--metrics", "off", &long],
        2,
        &["125 bytes", "allows 107"],
    );
    assert!(!host.image("default").exists());
    // An image that was there stays.
    host.json(&["create", "--size", "4MiB", "--json"]);
    host.fails(&["--metrics", "off", &target], 7, &["in use"]);
    assert!(host.image("default").exists());
}

#[test]
fn stopped_images_are_listed_and_removed() {
    let host = Host::new();
    host.json(&["create", "--name", "old", "--size", "4MiB", "--json"]);
    let daemon = host.serve(&[]);
    let (_, text, _) = host.run(&["list", "--all"]);
    assert!(text.contains("old") && text.contains("stopped"), "{text}");
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    host.fails(&["rm", "default"], 7, &["running", "`ftld stop default`"]);
    host.fails(&["rm", "olt"], 3, &["did you mean \"old\"?"]);
    let (code, text, _) = host.run(&["rm", "old"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("removed ") && !host.image("old").exists());
    drop(daemon);
    // The image of a killed daemon is not in use any more.
    let (code, _, error) = host.run(&["rm", "default"]);
    assert_eq!(
        (code, host.image("default").exists()),
        (0, false),
        "{error}"
    );
}

#[test]
fn status_says_what_the_mount_found() {
    let host = Host::new();
    let first = host.serve(&[]);
    let of = |host: &Host| host.run(&["status"]).1;
    let text = of(&host);
    assert!(
        text.contains("mount      after a clean shutdown: "),
        "{text}"
    );
    drop(first);
    let _second = host.serve(&[]);
    let text = of(&host);
    assert!(
        text.contains("mount      after an unclean shutdown: "),
        "{text}"
    );
    assert!(text.contains(" rewritten or discarded, "), "{text}");
}

#[test]
fn the_second_instance_takes_the_next_port() {
    let host = Host::new();
    // Whoever has the default port: another test, or this one.
    let _taken = std::net::TcpListener::bind("127.0.0.1:9917");
    let socket = host.folder.path().join("s");
    let target = format!("nbd+unix:///?socket={}", socket.display());
    let (code, _, error) = host.run(&["--detach", "--size", "4MiB", &target]);
    assert_eq!(code, 0, "{error}");
    let status = host.json(&["status", "--brief", "--json"]);
    let metrics = status["metrics"].as_str().unwrap().to_owned();
    host.run(&["stop"]);
    let port = metrics.strip_prefix("http://127.0.0.1:").unwrap();
    let port: u16 = port.split('/').next().unwrap().parse().unwrap();
    assert!((9918..9982).contains(&port), "{metrics}");
    assert!(status["latency_ns"].is_object() && status["nand"].is_null());
}
