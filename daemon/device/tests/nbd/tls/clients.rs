//! Clients of libnbd and QEMU over TLS.

use super::on_tcp;
use ftld_device::transport::nbd::Endpoint;
use std::process::{Command, Output};

/// Runs a tool, for a minute at most.
pub(super) fn output(package: &str, program: &str, args: &[&str]) -> Output {
    let output = Command::new("timeout")
        .arg("60")
        .arg(program)
        .args(args)
        .output()
        .unwrap();
    assert_ne!(
        output.status.code(),
        Some(127),
        "{program} is missing: apt-get install {package}"
    );
    output
}

pub(super) fn run(package: &str, program: &str, args: &[&str]) -> String {
    let output = output(package, program, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {args:?}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn libnbd_s_tools_over_tls_with_a_client_certificate() {
    let secured = on_tcp(true);
    let uri = secured.uri(secured.certificates.folder());
    let facts = run("libnbd-bin", "nbdinfo", &["--json", &uri]);
    assert!(
        facts.contains("\"TLS\": true") && facts.contains("\"export-size\": 67108864"),
        "{facts}"
    );
    let folder = secured.rig.folder.path();
    let (from, to) = (folder.join("from"), folder.join("to"));
    let data: Vec<u8> = (0..64u64 << 20)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect();
    std::fs::write(&from, &data).unwrap();
    let several = ["--connections=4", "--threads=2"];
    run(
        "libnbd-bin",
        "nbdcopy",
        &[&several[..], &[from.to_str().unwrap(), &uri]].concat(),
    );
    run(
        "libnbd-bin",
        "nbdcopy",
        &[&several[..], &[&uri, to.to_str().unwrap()]].concat(),
    );
    assert!(std::fs::read(&to).unwrap() == data);
    assert_eq!(secured.dropped(), 0);
}

#[test]
fn qemu_over_tls() {
    let secured = on_tcp(true);
    let Endpoint::Tcp(address) = secured.rig.served_at.endpoint else {
        panic!("a TCP server")
    };
    let folder = secured.certificates.folder().display().to_string();
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={folder}");
    let image = format!(
        "driver=nbd,host=localhost,port={},export=disk,tls-creds=tls",
        address.port()
    );
    let mut args = vec!["--object", &object, "--image-opts", &image];
    for command in [
        "write -P 0xab 0 4M",
        "write -f -P 0x11 64k 4k",
        "read -P 0x11 64k 4k",
        "read -P 0xab 1M 3M",
        "aio_write -P 0x22 8M 4M",
        "aio_write -P 0x33 16M 1M",
        "aio_read -P 0xab 1M 3M",
        "aio_flush",
        "read -P 0x22 8M 4M",
        "read -P 0x33 16M 1M",
        "flush",
    ] {
        args.extend(["-c", command]);
    }
    let said = run("qemu-utils", "qemu-io", &args);
    assert!(!said.contains("failed") && !said.contains("rror"), "{said}");
    assert_eq!(secured.dropped(), 0);
}
