//! Clients that we did not write. A missing one fails the test and names its Debian package.

use crate::support::{MIB, Rig, ram::Ram};
use ftld_device::transport::nbd::Limits;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Runs a tool, for a minute at most; returns its standard output.
fn run(package: &str, program: &str, args: &[&str]) -> String {
    let output = match Command::new("timeout")
        .arg("60")
        .arg(program)
        .args(args)
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("timeout is missing: apt-get install coreutils")
        }
        output => output.unwrap(),
    };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert_ne!(
        code,
        Some(127),
        "{program} is missing: apt-get install {package}"
    );
    assert_eq!(code, Some(0), "{program} {args:?}\n{stdout}\n{stderr}");
    stdout
}

/// A file with data, zeros and a ragged end.
fn image(path: &Path, length: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (0..length as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect();
    data[length / 4..length / 2].fill(0);
    std::fs::write(path, &data).unwrap();
    data
}

#[test]
fn nbdinfo() {
    let rig = Rig::new();
    let facts = run("libnbd-bin", "nbdinfo", &["--json", &rig.uri()]);
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"disk\"",
        "\"description\": \"a disk\"",
        "\"export-size\": 67108864",
        "\"base:allocation\"",
        "\"can_multi_conn\": true",
        "\"can_fast_zero\": true",
        "\"block_size_minimum\": 1,",
    ] {
        assert!(facts.contains(expected), "no {expected} in {facts}");
    }
    let list = run("libnbd-bin", "nbdinfo", &["--list", &rig.uri()]);
    assert!(list.contains("export=\"disk\""), "{list}");
    let map = run("libnbd-bin", "nbdinfo", &["--map", &rig.uri()]);
    assert_eq!(
        map.split_whitespace().collect::<Vec<_>>(),
        ["0", "67108864", "3", "hole,zero"]
    );
}

#[test]
fn nbdcopy_there_and_back_on_several_connections() {
    let rig = Rig::new();
    let (from, to) = (rig.folder.path().join("from"), rig.folder.path().join("to"));
    let data = image(&from, 64 << 20);
    let (connections, threads) = ("--connections=4", "--threads=4");
    run(
        "libnbd-bin",
        "nbdcopy",
        &[connections, threads, from.to_str().unwrap(), &rig.uri()],
    );
    run(
        "libnbd-bin",
        "nbdcopy",
        &[connections, threads, &rig.uri(), to.to_str().unwrap()],
    );
    assert!(std::fs::read(&to).unwrap() == data);
    assert!(rig.stats.snapshot().accepted >= 8);
    let map = run("libnbd-bin", "nbdinfo", &["--map", "--totals", &rig.uri()]);
    assert!(
        map.contains("hole,zero"),
        "what was zero was not stored: {map}"
    );
}

#[test]
fn libnbd_from_python() {
    let rig = Rig::new();
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/nbd/support/conformance.py"
    );
    run("python3-libnbd", "/usr/bin/python3", &["-c", "import nbd"]);
    let said = run("python3-libnbd", "/usr/bin/python3", &[script, &rig.uri()]);
    assert!(said.ends_with("OK\n"), "{said}");
}

#[test]
fn qemu_io() {
    let rig = Rig::new();
    let uri = rig.uri();
    let mut args = vec!["-f", "raw"];
    for command in [
        "write -P 0xab 0 64k",
        "read -P 0xab 0 64k",
        "write -f -P 0x11 65k 5123",
        "read -P 0x11 65k 5123",
        "write -z -u 1M 1M",
        "write -P 0x22 2M 9M",
        "discard 2M 1M",
        "read -P 0 2M 1M",
        "read -P 0x22 3M 8M",
        "aio_write -P 0x33 20M 4M",
        "aio_read -P 0x22 4M 1M",
        "aio_flush",
        "read -P 0x33 20M 4M",
        "flush",
    ] {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let said = run("qemu-utils", "qemu-io", &args);
    assert!(!said.contains("failed") && !said.contains("rror"), "{said}");
}

#[test]
fn qemu_img() {
    let rig = Rig::new();
    let from = rig.folder.path().join("from");
    image(&from, 64 << 20);
    let (from, uri) = (from.to_str().unwrap(), &rig.uri());
    run(
        "qemu-utils",
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", from, uri],
    );
    run(
        "qemu-utils",
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", from, uri],
    );
    let map = run(
        "qemu-utils",
        "qemu-img",
        &["map", "--output=json", "-f", "raw", uri],
    );
    assert!(
        map.contains("\"zero\": true") && map.contains("\"data\": true"),
        "{map}"
    );
    run(
        "qemu-utils",
        "qemu-img",
        &[
            "bench",
            "-f",
            "raw",
            "-c",
            "2000",
            "-d",
            "48",
            "-s",
            "4k",
            "-w",
            "--flush-interval=50",
            uri,
        ],
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    let rig = Rig::with(Ram::new(64 * MIB), Limits::default());
    let folder = format!("--aux-path={}", rig.folder.path().display());
    let uri = format!("--uri={}", rig.uri());
    let common = [
        "--ioengine=nbd",
        &uri,
        &folder,
        "--verify=crc32c",
        "--verify_fatal=1",
        "--rw=randwrite",
    ];
    let common: Vec<_> = common
        .into_iter()
        .chain(["--iodepth=32", "--bsrange=512-128k", "--blockalign=512"])
        .collect();
    let jobs = [
        "--name=a",
        "--size=24m",
        "--name=b",
        "--offset=32m",
        "--size=24m",
        "--fsync=16",
    ];
    run("fio", "fio", &[&common[..], &jobs[..]].concat());
    let seen = rig.stats.snapshot();
    assert!(
        seen.requests[0] > 100 && seen.requests[1] > 100 && seen.errors == 0,
        "{seen:?}"
    );
}

#[test]
fn nbd_over_tcp() {
    use ftld_device::transport::nbd::{ExportInfo, Server};
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let endpoint = "nbd://127.0.0.1:0"
            .parse::<ftld_device::transport::nbd::NbdUri>()
            .unwrap()
            .endpoint;
        let device = std::sync::Arc::new(Ram::new(MIB));
        let server = Server::bind(
            &endpoint,
            device,
            ExportInfo::default(),
            Limits::default(),
            None,
        )
        .unwrap();
        let uri = server.uri().unwrap().to_string();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async { drop(stopped.await) }));
        let size =
            tokio::task::spawn_blocking(move || run("libnbd-bin", "nbdinfo", &["--size", &uri]));
        assert_eq!(size.await.unwrap().trim(), "1048576");
        drop(stop);
        running.await.unwrap();
    });
}
