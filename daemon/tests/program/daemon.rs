//! The program as its users meet it: started as a process, spoken to over NBD, HTTP, its control
//! socket and signals.

use crate::host::{Host, page};
use ftld_nbd_client::{EPERM, FLUSH, TRIM};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn what_was_acknowledged_survives_the_death_of_the_daemon() {
    let host = Host::new();
    let mut expected = vec![0u8; 2 << 20];
    for round in 0..3u8 {
        let daemon = host.serve(&[]);
        let mut client = daemon.client();
        let found = client.read(0, expected.len() as u64).data;
        assert!(found == expected, "round {round}");
        for i in 0..400u64 {
            let at = (i * 37 + u64::from(round) * 5) % 512 * 4096;
            let data = page(round.wrapping_mul(83) ^ i as u8);
            assert_eq!(client.write(0, at, &data).error, 0);
            expected[at as usize..][..4096].copy_from_slice(&data);
        }
        assert_eq!(client.ask(TRIM, 0, 64 << 10, 16 << 10).error, 0);
        expected[64 << 10..80 << 10].fill(0);
        daemon.signal(Signal::SIGKILL);
        assert_eq!(daemon.exit_code(), None, "killed");
        assert_eq!(
            host.json(&["list", "--json"])["instances"][0]["state"],
            "unclean"
        );
        let parts = [
            "\"default\" is not running",
            "a kill or a crash; `ftld start default`",
        ];
        host.fails(&["status", "default"], 3, &parts);
    }
    let (code, out, _) = host.run(&["check", "default"]);
    assert_eq!((code, out.contains("unclean shutdown")), (0, true), "{out}");
    assert!(host.serve(&[]).client().read(0, expected.len() as u64).data == expected);
}

#[test]
fn sigterm_ends_in_order_and_leaves_nothing_behind() {
    let host = Host::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = host.serve(&[]);
        let mut client = daemon.client();
        assert_eq!(client.write(0, 4096, &page(1)).error, 0);
        daemon.signal(signal);
        assert_eq!(daemon.exit_code(), Some(0));
        let (_, out, _) = host.run(&["check", "default"]);
        assert!(out.contains("(clean shutdown"), "{out}");
        assert!(
            !host.folder.path().join("run/default").exists(),
            "the runtime folder is gone"
        );
    }
    assert!(host.serve(&[]).client().read(4096, 4096).data == page(1));
}

#[test]
fn with_emulated_latency_requests_take_as_long_as_on_the_flash() {
    let host = Host::new();
    let file = host.folder.path().join("slow.toml");
    std::fs::write(&file, "latency = \"emulate\"\n").unwrap();
    for option in [
        ["--latency", "emulate"],
        ["--config", file.to_str().unwrap()],
    ] {
        let daemon = host.serve(&option);
        assert_eq!(host.json(&["status", "--json"])["latency"], "emulate");
        let mut client = daemon.client();
        let value = |name: &str, op: &str| {
            daemon.metric(&format!("{name}{{device=\"default\",op=\"{op}\"}}"))
        };
        let delayed = |op| value("ftld_host_delayed_ios_total", op);
        // A machine that is busy may serve a request later than the flash, which is no delay.
        let mut rounds = 0;
        while delayed("read") == 0.0 || delayed("write") == 0.0 {
            rounds += 1;
            assert!(rounds <= 50, "50 reads or 50 writes and none delayed");
            let began = Instant::now();
            assert_eq!(client.write(0, 0, &page(7)).error, 0);
            assert!(
                began.elapsed() >= Duration::from_micros(4 * 500),
                "four pages of 1 KiB, each a program"
            );
            let began = Instant::now();
            assert!(client.read(0, 4096).data == page(7));
            assert!(
                began.elapsed() >= Duration::from_micros(4 * 50),
                "four pages on one die"
            );
        }
        for op in ["read", "write"] {
            assert_eq!(value("ftld_host_ios_total", op), f64::from(rounds), "{op}");
            assert!(delayed(op) <= f64::from(rounds), "{op}");
            let (wall, flash) = (
                value("ftld_host_io_duration_seconds_sum", op),
                value("ftld_device_io_duration_seconds_sum", op),
            );
            assert!(flash > 0.0 && wall >= flash, "{op}: {wall} s for {flash} s");
        }
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.exit_code(), Some(0));
    }
}

#[test]
fn a_vhost_user_socket_is_private_and_goes_with_its_daemon() {
    let host = Host::new();
    let socket = host.folder.path().join("vu");
    let target = format!("vhost-user://{}", socket.display());
    let daemon = host.serve(&["--name", "guest", &target]);
    assert_eq!(daemon.socket, socket);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let status = host.json(&["status", "--json"]);
    let found = ["transport", "target"].map(|key| status[key].as_str().unwrap_or_default());
    assert_eq!(found, ["vhost-user", &target]);
    let taken = &["--name", "other", &target];
    host.fails(taken, 7, &["another server listens there"]);
    host.fails(&["recover", &target], 2, &["only /dev/ublkbN", &target]);
    // GET_FEATURES: the socket is served.
    let mut front_end = UnixStream::connect(&socket).unwrap();
    front_end
        .write_all(&[1u32, 1, 0].map(u32::to_le_bytes).concat())
        .unwrap();
    front_end.read_exact(&mut [0; 20]).unwrap();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    assert!(!socket.exists());
    assert!(matches!(front_end.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_running_instance_can_be_seen_and_stopped() {
    let host = Host::new();
    let daemon = host.serve(&["--name", "disk"]);
    assert_eq!(daemon.client().write(0, 0, &page(9)).error, 0);
    let listed = host.json(&["list", "--json"]);
    let status = host.json(&["status", "--json"]);
    for one in [&listed["instances"][0], &status] {
        assert_eq!(
            (one["name"].as_str(), one["state"].as_str()),
            (Some("disk"), Some("serving"))
        );
        assert_eq!(
            (one["pid"].as_u64(), one["size_bytes"].as_u64()),
            (Some(daemon.child.id().into()), Some(2 << 20))
        );
    }
    assert_eq!(status["host"]["write"]["bytes"], 4096);
    let over_http: Value = serde_json::from_str(&daemon.get("/status").1).unwrap();
    assert_eq!(over_http["target"], status["target"]);
    let socket = host.folder.path().join("run/disk/control.sock");
    assert_eq!(
        std::fs::metadata(socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(host.run(&["stop", "disk"]).0, 0);
    assert_eq!(daemon.exit_code(), Some(0));
    host.fails(
        &["stop"],
        3,
        &["\"disk\" is not running", "`ftld start disk`"],
    );
}

#[test]
fn http_serves_its_pages_to_get_and_by_its_names_and_nothing_else() {
    let daemon = Host::new().serve(&[]);
    let (status, body) = daemon.get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let mut own = body
        .lines()
        .filter(|line| line.starts_with("ftld_") && !line.starts_with("ftld_build_info"));
    assert!(own.all(|line| line.contains("{device=\"default\"")));
    assert_eq!(daemon.get("/etc/passwd").0, "HTTP/1.1 404 Not Found");
    let (status, _) =
        daemon.http("POST /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
    // The request of another site's page whose name resolves to this address.
    let (status, _) =
        daemon.http("GET /status HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 421 Misdirected Request");
    assert!(daemon.get("/").1.contains("<title>"));
    let long = "x".repeat(100 << 10);
    let addr = daemon
        .metrics
        .trim_start_matches("http://")
        .trim_end_matches("/metrics")
        .to_owned();
    let mut stream = TcpStream::connect(addr).unwrap();
    // The server may hang up before it has read all of it.
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(
        !answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(daemon.get("/healthz").0, "HTTP/1.1 200 OK");
}

#[test]
fn what_is_taken_is_named_with_its_way_out() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let port = daemon
        .metrics
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    host.fails(
        &["--name", "b", "--metrics", port],
        7,
        &[port, "--metrics ADDR", "--metrics off"],
    );
    assert!(!host.image("b").exists(), "nothing was made");
    host.fails(
        &["--metrics", "off"],
        7,
        &["instance \"default\" is already running (pid", "--name"],
    );
    let image = host.image("default");
    let image = image.to_str().unwrap();
    host.fails(
        &["--name", "b", "--metrics", "off", "--image", image],
        7,
        &[image, "in use by another process"],
    );
    let socket = format!("nbd+unix:///?socket={}", daemon.socket.display());
    host.fails(
        &["--name", "b", "--metrics", "off", &socket],
        7,
        &[daemon.socket.to_str().unwrap()],
    );
    assert!(!host.image("b").exists(), "the new image is removed");
}

#[test]
fn options_that_contradict_the_image_are_refused_by_name() {
    let host = Host::new();
    let made = host.json(&[
        "create",
        "--size",
        "4MiB",
        "--set",
        "gc.free_threshold=9",
        "--json",
    ]);
    assert_eq!(
        (made["size_bytes"].as_u64(), made["profile"].as_str()),
        (Some(4 << 20), Some("mlc-4k"))
    );
    assert!(made["raw_bytes"].as_u64() > Some(4 << 20));
    let before = std::fs::read(host.image("default")).unwrap();
    let off = ["--metrics", "off"];
    for (option, value, part) in [
        ("--size", "8MiB", "the image has size 4 MiB, not 8 MiB"),
        (
            "--profile",
            "slc-2k",
            "the image has profile mlc-4k, not slc-2k",
        ),
        (
            "--op",
            "12.5",
            "the image has over-provisioning 7 %, not 12.5",
        ),
        (
            "--set",
            "gc.free_threshold=10",
            "the image has parameter gc.free_threshold at 9, not 10",
        ),
        ("--scheme", "nosuch", "no scheme \"nosuch\"; there are"),
    ] {
        host.fails(&[option, value, off[0], off[1]], 2, &[part]);
    }
    assert!(
        std::fs::read(host.image("default")).unwrap() == before,
        "not a byte has changed"
    );
    host.fails(&["create"], 1, &["file exists and is not overwritten"]);
}

#[test]
fn wrong_use_is_told_before_anything_is_made() {
    let host = Host::new();
    for (args, code, part) in [
        (&["create", "--size", "1000"][..], 2, "multiple of 4 KiB"),
        (
            &["create", "--profile", "nosuch"],
            2,
            "no profile \"nosuch\"; there are mlc-4k",
        ),
        (
            &["create", "--set", "nosuch=1"],
            2,
            "no parameter \"nosuch\"; this scheme has",
        ),
        (
            &["create", "--set", "gc.free_threshold=many"],
            2,
            "gc.free_threshold",
        ),
        (&["/dev/sda"], 2, "is none of /dev/ublkbN"),
        (&["nbd://192.0.2.1/x"], 2, "without TLS"),
        (
            &["--latency", "slow"],
            2,
            "--latency \"slow\" is neither none nor emulate",
        ),
        (&["--read-only"], 1, "--read-only creates none"),
        (
            &["recover", "nbd+unix:///?socket=x"],
            2,
            "can be reattached",
        ),
        (&["status"], 3, "no instance is running"),
        (&["inspect", "nosuch"], 1, "no such image"),
    ] {
        host.fails(args, code, &[part]);
    }
    // Where the kernel has ublk, the guest suite serves it.
    if !Path::new("/dev/ublk-control").exists() {
        host.fails(&["/dev/ublkb0"], 5, &["serve NBD instead"]);
    }
    assert_eq!(host.run(&["--nosuch"]).0, 2);
    assert!(!host.image("default").exists());
}

#[test]
fn damage_is_exit_8_and_nothing_is_written_to_it() {
    let host = Host::new();
    host.json(&["create", "--size", "2MiB", "--json"]);
    let image = host.image("default");
    let good = std::fs::read(&image).unwrap();
    let mut foreign = good.clone();
    foreign[..8].fill(b'x');
    foreign[4096..4104].fill(b'x');
    for (bytes, part) in [
        (&good[..good.len() / 2], "cut off"),
        (&foreign[..], "not an ftld image"),
        (b"", "not an ftld image"),
    ] {
        std::fs::write(&image, bytes).unwrap();
        host.fails(&["--metrics", "off"], 8, &[part]);
        host.fails(&["check", "default"], 8, &[part]);
        if part != "cut off" {
            // A header can be shown although the rest of its image is gone.
            host.fails(&["inspect", "default"], 8, &[part]);
        }
        assert!(std::fs::read(&image).unwrap() == bytes);
    }
}

/// `inspect` accepts the numbers that it prints, also on a device of several shards.
#[test]
fn a_place_that_inspect_prints_is_the_one_that_it_takes() {
    let host = Host::new();
    let create = [
        "create", "--name", "two", "--size", "8MiB", "--scheme", "pagemap", "--shards", "2",
        "--age", "1",
    ];
    assert_eq!(host.run(&create).0, 0);
    let mut shards = std::collections::BTreeSet::new();
    for lpn in ["0", "127", "128", "700", "2047"] {
        let page = host.json(&["inspect", "two", "--lpn", lpn, "--json"])["lpn"].clone();
        assert_eq!(page["lpn"].to_string(), lpn);
        shards.insert(page["shard"].as_u64());
        let copies = page["copies"].as_array().unwrap();
        assert!(!copies.is_empty(), "{page}");
        for copy in copies {
            let place = format!("{}:{}", copy["block"], copy["page"]);
            let seen = host.json(&["inspect", "two", "--page", &place, "--json"])["page"].clone();
            assert_eq!(seen["record"], copy["record"], "{place}");
            assert_eq!(seen["record"]["lpn"].to_string(), lpn, "{place}");
            assert_eq!(seen["place"]["block"], copy["block"]);
            assert_eq!(seen["shard"], page["shard"]);
        }
    }
    assert_eq!(shards.len(), 2, "pages of one shard alone");
}

#[test]
fn looking_never_changes_a_byte_also_after_a_cut() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let mut client = daemon.client();
    for i in 0..300u64 {
        assert_eq!(
            client.write(0, i * 37 % 512 * 4096, &page(i as u8)).error,
            0
        );
    }
    daemon.signal(Signal::SIGKILL);
    daemon.exit_code();
    let before = std::fs::read(host.image("default")).unwrap();
    assert_eq!(host.run(&["check", "default"]).0, 0);
    let seen = host.json(&[
        "inspect", "default", "--blocks", "--page", "3:0", "--lpn", "0", "--json",
    ]);
    let blocks = seen["geometry"]["blocks"].as_u64().unwrap();
    assert_eq!(seen["blocks"].as_array().unwrap().len() as u64, blocks);
    assert_eq!(
        (
            &seen["lpn"]["mapped"],
            seen["lpn"]["copies"].as_array().unwrap().is_empty()
        ),
        (&Value::Bool(true), false)
    );
    // Mapping pages and checkpoints have a number 0, too, and are no versions of logical page 0.
    let copies = seen["lpn"]["copies"].as_array().unwrap();
    let is_host_data =
        |copy: &Value| copy["record"]["role"] == "update" || copy["record"]["role"] == "cold";
    assert!(copies.iter().all(is_host_data), "{copies:?}");
    let (_, text, _) = host.run(&["inspect", "default", "--page", "3:0", "--lpn", "0"]);
    assert!(
        text.contains("\npage 3:0: ") && text.contains("\nlogical page 0: mapped\n"),
        "{text}"
    );
    assert!(!text.contains('{'), "{text}");
    let looker = host.serve(&["--read-only"]);
    let mut client = looker.client();
    assert!(client.read(0, 4096).data == page(0));
    assert_eq!(client.write(0, 0, &page(1)).error, EPERM);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    looker.signal(Signal::SIGTERM);
    assert_eq!(looker.exit_code(), Some(0));
    assert!(std::fs::read(host.image("default")).unwrap() == before);
}

#[test]
fn a_configuration_file_gives_what_flags_do_not() {
    let host = Host::new();
    let file = host.folder.path().join("disk.toml");
    let socket = host.folder.path().join("a b.sock");
    let target = format!(
        "nbd+unix:///disk?socket={}",
        socket.display().to_string().replace(' ', "%20")
    );
    std::fs::write(
        &file,
        format!("target = \"{target}\"\nop = 28\n[set]\n\"wear.gap\" = 4\n"),
    )
    .unwrap();
    let daemon = host.serve(&["--config", file.to_str().unwrap()]);
    assert!(Path::new(&socket).exists());
    assert_eq!(
        host.json(&["list", "--json"])["instances"][0]["name"],
        "disk"
    );
    drop(daemon);
    let params = &host.json(&["inspect", "disk", "--json"])["params"];
    assert_eq!(
        params,
        &serde_json::json!(["image.op_percent=28", "wear.gap=4"])
    );
    std::fs::write(&file, "sise = 1\n").unwrap();
    host.fails(
        &["--config", file.to_str().unwrap()],
        2,
        &["disk.toml", "no option `sise` (did you mean \"size\"?)"],
    );
}

#[test]
fn lists_are_for_people_and_programs() {
    let host = Host::new();
    for command in ["schemes", "profiles"] {
        let listed = host.json(&[command, "--json"]);
        let (_, text, _) = host.run(&[command]);
        assert_eq!(listed["schema"], format!("ftld.{command}/1"));
        let listed = &listed[command];
        let names: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert!(!names.is_empty() && names.iter().all(|name| text.contains(name)));
        assert_eq!(
            listed
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one["default"] == true)
                .count(),
            1
        );
    }
    // Every scheme with its full description, and the bound at the end.
    let (_, text, _) = host.run(&["schemes", "--long"]);
    let blocks: Vec<_> = text.split("\n\n").collect();
    for block in &blocks {
        let told: Vec<_> = block
            .lines()
            .skip(1)
            // A line that continues another one is indented further.
            .filter_map(|line| {
                line.strip_prefix("  ")
                    .filter(|line| !line.starts_with(' '))
            })
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(&told[..4], ["paper", "mapping", "RAM", "MLC"], "{block}");
        assert!(block.contains("(fidelity "), "{block}");
    }
    assert_eq!(
        blocks.len(),
        host.json(&["schemes", "--json"])["schemes"]
            .as_array()
            .unwrap()
            .len()
            + 1
    );
    assert!(blocks.last().unwrap().starts_with("optimum: "), "{text}");
    assert_eq!(
        host.json(&["list", "--json"])["instances"],
        serde_json::json!([])
    );
}
