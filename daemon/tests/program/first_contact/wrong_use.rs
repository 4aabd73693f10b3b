//! Wrong use: one line that names the thing, the reason and the way out; nothing is made.

use super::errors::without_drivers;
use crate::host::Host;
use serde_json::Value;

/// Arguments, exit code, and parts of the message: the thing and the way out.
const WRONG: &[(&str, i32, &[&str])] = &[
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
    ("create --size -1", 2, &["'-1'", "`ftld create --help`"]),
    ("create --op seven", 2, &["\"seven\"", "7 or 12.5%"]),
    ("create --op 0", 2, &["--op 0", "0.1 to 1000"]),
    ("create --shards 0", 2, &["'0'", "1 to 16 shards"]),
    ("create --shards 17", 2, &["'17'", "1 to 16 shards"]),
    (
        "create --shards two",
        2,
        &[
            "'two'",
            "'--shards <N>'",
            "1 to 16 shards",
            "`ftld create --help`",
        ],
    ),
    (
        "create --shards -1",
        2,
        &[
            "'-1'",
            "'--shards <N>'",
            "1 to 16 shards",
            "`ftld create --help`",
        ],
    ),
    (
        "--shards x nbd://[::1]:0",
        2,
        &["'x'", "'--shards <N>'", "1 to 16 shards", "`ftld --help`"],
    ),
    (
        "create --shards 2 --write-cache 1MiB --cache-model ordered",
        2,
        &["--cache-model ordered", "2 shards", "choose any or lost"],
    ),
    (
        "create --size 1MiB --shards 3",
        2,
        &["--shards 3", "choose fewer shards or a larger --size"],
    ),
    ("--shards 0 nbd://[::1]:0", 2, &["'0'", "1 to 16 shards"]),
    (
        "--shards 2 --metrics off --write-cache 1MiB --cache-model ordered nbd://[::1]:0",
        2,
        &["--cache-model ordered", "2 shards"],
    ),
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
        "--verify never nbd://[::1]:0",
        2,
        &["\"never\"", "always nor once"],
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
    ("/dev/nbd", 2, &["/dev/nbd", "/dev/nbd0"]),
    (
        "--size 1MiB nbd://[::1]:0 nbd://[::1]:1",
        2,
        &["\"nbd://[::1]:1\"", "a command of its own"],
    ),
    (
        "nbd+unix:///?socket=/none/a.sock",
        1,
        &[
            "cannot listen on /none/a.sock",
            "/none: this folder does not exist; create it",
        ],
    ),
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
    (
        "rm state/disk.ftld",
        2,
        &["\"state/disk.ftld\"", "`ftld list --all`"],
    ),
    (
        "inspect disk",
        1,
        &["neither a file disk here nor", "`ftld list --all`"],
    ),
    (
        "inject",
        2,
        &["power-cut, bad-block", "`ftld inject --help`"],
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
    (
        "compare uniform --html /none/page.html",
        1,
        &["--html /none/page.html", "no folder /none; create it"],
    ),
    (
        "--record /none/run.rec nbd://[::1]:0",
        1,
        &["--record /none/run.rec", "no folder /none; create it"],
    ),
    // These need no recording: the places of the results are checked before it is read.
    (
        "crashes run.rec --check true --case prefix/1 --keep /none/disk.img",
        1,
        &["--keep /none/disk.img", "no folder /none; create it"],
    ),
    (
        "crashes run.rec --check true --html /dev",
        1,
        &["--html /dev", "this is a folder; name a file in it"],
    ),
    (
        "crashes run.rec --check true --junit /dev/null/x.xml",
        1,
        &["--junit /dev/null/x.xml", "/dev/null is not a folder"],
    ),
    (
        "schemes lazyftl --long",
        2,
        &["'--long'", "`ftld schemes --help`"],
    ),
];

const TARGET: &str = "nbd://[::1]:0";

#[test]
fn wrong_use_is_one_line_that_names_the_thing_and_the_way_out() {
    let mut wrong = Vec::new();
    for (line, exit, parts) in WRONG {
        let (exit, parts) = (*exit, *parts);
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

/// An image keeps its shards; another number is refused, and the image stays as it is.
#[test]
fn shards_other_than_the_images_are_refused() {
    let host = Host::new();
    let (one, two) = (["--name", "one"], ["--name", "two", "--shards", "2"]);
    for own in [&one[..], &two] {
        host.json(&[&["create", "--size", "4MiB", "--json"], own].concat());
    }
    let before = walk(host.folder.path());
    let bytes = |path: &std::path::PathBuf| std::fs::read(path).unwrap();
    let content: Vec<_> = before.iter().map(bytes).collect();
    for (name, shards, has) in [
        ("one", "2", "1, not 2"),
        ("two", "3", "2, not 3"),
        ("two", "1", "2, not 1"),
    ] {
        let start = [
            "--name",
            name,
            "--shards",
            shards,
            "--metrics",
            "off",
            TARGET,
        ];
        let parts = [&format!("{name}.ftld")[..], has, "leave the option out"];
        host.fails(&start, 2, &parts);
        let (_, _, error) = host.run(&start);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let ordered = ["--write-cache", "1MiB", "--cache-model", "ordered"];
    let start = [
        &["--name", "two", "--metrics", "off"],
        &ordered[..],
        &[TARGET],
    ]
    .concat();
    host.fails(&start, 2, &["2 shards", "choose any or lost"]);
    assert_eq!(walk(host.folder.path()), before);
    assert!(before.iter().map(bytes).eq(content), "an image has changed");
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

/// The place of a result is tried before a run, and one that was free is free afterwards.
#[test]
fn a_failed_command_leaves_no_result_and_overwrites_no_input() {
    let host = Host::new();
    let path = |name: &str| host.folder.path().join(name).display().to_string();
    let (page, trace) = (path("page.html"), path("trace.csv"));
    host.fails(&["compare", "zipff", "--html", &page], 2, &["zipff"]);
    host.fails(
        &["crashes", &trace, "--check", "true", "--html", &page],
        1,
        &["trace.csv: "],
    );
    assert!(walk(host.folder.path()).is_empty());
    let text = "0,W,0,4096\n";
    std::fs::write(&trace, text).unwrap();
    for args in [
        &["compare", &trace, "--html", &trace][..],
        &["compare", "--rows", &trace, "--html", &trace],
        &["crashes", &trace, "--check", "true", "--junit", &trace],
        &[
            "crashes", &trace, "--check", "true", "--case", "prefix/1", "--keep", &trace,
        ],
    ] {
        host.fails(args, 2, &["would overwrite the ", "; name another file"]);
    }
    let case = ["crashes", "run.rec", "--check", "true", "--case"];
    let keep = [&case[..], &["prefix/1", "--keep", &trace]].concat();
    host.fails(&keep, 2, &["the file exists", "; name another file"]);
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), text);
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

/// The error is one line, with messages of the log level `info` on, and nothing is created before
/// the address is known to be free.
#[test]
fn an_address_that_cannot_be_had_is_one_line() {
    let host = Host::new();
    let folder = host.folder.path();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _server = std::os::unix::net::UnixListener::bind(folder.join("s")).unwrap();
    std::fs::write(folder.join("notes"), "no socket").unwrap();
    let unix = |name: &str| format!("nbd+unix:///?socket={}", folder.join(name).display());
    for (target, exit, part) in [
        (
            format!("nbd://{}", taken.local_addr().unwrap()),
            7,
            "stop its program",
        ),
        (unix("s"), 7, "another server listens there; stop it"),
        (unix("notes"), 1, "is not a socket; choose another path"),
        (
            unix("none/s"),
            1,
            "/none: this folder does not exist; create it",
        ),
    ] {
        let mut start = host.command(&["--metrics", "off", "--size", "4MiB", &target]);
        let output = start.env("FTLD_LOG", "info").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{error}");
        assert!(
            error.lines().count() == 1 && error.contains(part),
            "{error}"
        );
        assert!(!folder.join("state").exists(), "{target}");
    }
    let long = folder.join("a".repeat(100));
    let mut start = host.command(&["--metrics", "off", "--size", "4MiB", &unix("t")]);
    let output = start.env("FTLD_RUNTIME_DIR", &long).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("choose a shorter folder with FTLD_RUNTIME_DIR"),
        "{error}"
    );
    assert!(!long.exists());
}

#[test]
fn without_ublk_recover_asks_for_its_device() {
    let (code, error) = without_drivers(&Host::new(), "recover");
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("`ftld recover /dev/nbdN`; `ftld list`"),
        "{error}"
    );
}

#[test]
fn messages_name_the_image_and_not_its_temporary_name() {
    let host = Host::new();
    for (image, part) in [
        (
            "/sys/kernel/disk.ftld",
            "/sys/kernel/disk.ftld: cannot create it: ",
        ),
        (
            "/dev/null/disk.ftld",
            "/dev/null: a file is in its place; choose another place",
        ),
    ] {
        let (code, _, error) = host.run(&["create", "--image", image]);
        assert_ne!(code, 0);
        assert!(
            error.contains(part) && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn what_is_left_of_an_image_is_removed_and_no_other_file() {
    let host = Host::new();
    let cut = |bytes: u64| {
        host.json(&["create", "--name", "cut", "--size", "4MiB", "--json"]);
        let image = std::fs::File::options().write(true).open(host.image("cut"));
        image.unwrap().set_len(bytes).unwrap();
    };
    for bytes in [100, 4096, 6000, 1 << 20] {
        cut(bytes);
        let (code, text, _) = host.run(&["list", "--all"]);
        assert!(code == 0 && text.contains("unreadable"), "{bytes}: {text}");
        host.fails(&["inspect", "cut"], 8, &["cut.ftld: ", "from a copy"]);
        let (code, text, error) = host.run(&["rm", "cut"]);
        assert_eq!((code, &*error), (0, ""), "{bytes}");
        assert!(
            text.starts_with("removed ") && !host.image("cut").exists(),
            "{bytes}: {text}"
        );
    }
    // A file that does not begin as an image may belong to another program, so it stays.
    cut(0);
    std::fs::create_dir(host.image("folder")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", host.image("link")).unwrap();
    for (name, exit, part) in [
        ("cut", 8, "not an ftld image, so it stays"),
        ("folder", 1, "not a regular file"),
        ("link", 1, "not a regular file"),
    ] {
        host.fails(&["rm", name], exit, &[&format!("{name}.ftld: "), part]);
        assert!(host.image(name).symlink_metadata().is_ok(), "{name}");
    }
    assert!(walk(&host.folder.path().join("run")).is_empty());
}

#[test]
fn the_log_of_an_image_elsewhere_is_removed() {
    let host = Host::new();
    let (image, socket) = (
        host.folder.path().join("a.ftld"),
        host.folder.path().join("s"),
    );
    let target = format!("nbd+unix:///?socket={}", socket.display());
    let image = image.to_str().unwrap();
    let start = [
        "--detach",
        "--metrics",
        "off",
        "--name",
        "a",
        "--size",
        "4MiB",
        "--image",
        image,
    ];
    assert_eq!(host.run(&[&start[..], &[&target]].concat()).0, 0);
    host.fails(&["rm", "a"], 7, &["running", "`ftld stop a`"]);
    assert_eq!(host.run(&["stop", "a"]).0, 0);
    let (code, text, error) = host.run(&["rm", "a"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.ends_with(&format!("state/a.log; its image {image} stays\n")),
        "{text}"
    );
    assert!(walk(&host.folder.path().join("state")).is_empty());
    assert!(std::fs::exists(image).unwrap());
    host.fails(&["rm", "a"], 3, &["no such image"]);
}

#[test]
fn stopped_images_are_listed_and_removed() {
    let host = Host::new();
    host.json(&["create", "--name", "old", "--size", "4MiB", "--json"]);
    let daemon = host.serve(&[]);
    let (_, text, _) = host.run(&["list", "--all"]);
    assert!(text.contains("old") && text.contains("clean"), "{text}");
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
    let _second = host.serve_with(&[], &[("FTLD_LOG", "info")]);
    let text = of(&host);
    let recovered = "  recovery   recovered after a kill or a crash: scanned ";
    assert!(text.contains(recovered), "{text}");
    assert!(
        host.log()
            .contains(": recovery: Read the first record of every block (")
    );
}

#[test]
fn the_second_instance_takes_the_next_port() {
    let host = Host::new();
    // The default port is in use, by another test or by this one.
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
