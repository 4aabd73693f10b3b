//! TLS: clients that we did not write, who is let in, and what malformed or injected bytes come to.

mod nbd_support;

use ftld::transport::nbd::{Endpoint, Limits, Tls, TlsOptions};
use nbd_support::certificates::Certificates;
use nbd_support::client::*;
use nbd_support::{Rig, eventually, ram::Ram};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

const STARTTLS: u32 = 5;
const ERR_UNSUP: u32 = ERR + 1;
const ERR_INVALID: u32 = ERR + 3;
const ERR_TLS_REQD: u32 = ERR + 5;

/// A server with TLS, and the certificates of both sides.
struct Secured {
    rig: Rig,
    certificates: Certificates,
}

fn secured(endpoint: Option<Endpoint>, required: bool, client_ca: bool, limits: Limits) -> Secured {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(&folder.path().join("pki"));
    let tls = certificates.server(required, client_ca);
    Secured {
        rig: Rig::start(folder, endpoint, Ram::new(64 << 20), limits, Some(tls)),
        certificates,
    }
}

fn on_tcp(client_ca: bool) -> Secured {
    secured(
        Some(Endpoint::Tcp("127.0.0.1:0".parse().unwrap())),
        true,
        client_ca,
        Limits::default(),
    )
}

fn hasty() -> Limits {
    Limits {
        handshake: Duration::from_millis(400),
        ..Limits::default()
    }
}

impl Secured {
    /// The URI with a host name, which the certificate is for, and the folder of certificates.
    fn uri(&self, certificates: &Path) -> String {
        let uri = self.rig.served_at.to_string();
        assert!(uri.starts_with("nbds://127.0.0.1:"), "{uri}");
        format!(
            "{}?tls-certificates={}",
            uri.replace("127.0.0.1", "localhost"),
            certificates.display()
        )
    }

    fn dropped(&self) -> u64 {
        self.rig.stats.snapshot().dropped
    }
}

/// Runs a tool, for a minute at most.
fn output(package: &str, program: &str, args: &[&str]) -> Output {
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

fn run(package: &str, program: &str, args: &[&str]) -> String {
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

/// Encrypts what our own client says.
type Encrypted = StreamOwned<ClientConnection, UnixStream>;

/// Upgrades a client whose STARTTLS was acknowledged.
fn encrypt(client: Client, certificates: &Certificates) -> Encrypted {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(certificates.path("ca-cert.pem")).unwrap())
        .unwrap();
    let chain = vec![CertificateDer::from_pem_file(certificates.path("client-cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificates.path("client-key.pem")).unwrap();
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = config.with_client_auth_cert(chain, key).unwrap();
    let connection =
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(connection, client.stream)
}

/// One option under TLS and the kinds of its replies.
fn ask(stream: &mut Encrypted, option: u32, data: &[u8]) -> Vec<u32> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes).unwrap();
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        stream
            .read_exact(&mut vec![0; u32_at(&head, 16) as usize])
            .unwrap();
        kinds.push(u32_at(&head, 12));
        if kinds
            .last()
            .is_some_and(|kind| *kind == ACK || kind & ERR != 0)
        {
            return kinds;
        }
    }
}

fn start_tls(rig: &Rig) -> Client {
    let mut client = Client::hello(&rig.socket);
    assert_eq!(client.option(STARTTLS, &[]), [(ACK, vec![])]);
    client
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

#[test]
fn only_certificates_of_the_named_authority_are_let_in() {
    let secured = on_tcp(true);
    let none = secured.rig.folder.path().join("none");
    std::fs::create_dir(&none).unwrap();
    std::fs::copy(
        secured.certificates.path("ca-cert.pem"),
        none.join("ca-cert.pem"),
    )
    .unwrap();
    let other = Certificates::make(&secured.rig.folder.path().join("other"));
    std::fs::copy(
        secured.certificates.path("ca-cert.pem"),
        other.path("ca-cert.pem"),
    )
    .unwrap();
    for (folder, dropped) in [(none.as_path(), 1), (other.folder(), 2)] {
        assert!(
            !output("libnbd-bin", "nbdinfo", &["--size", &secured.uri(folder)])
                .status
                .success()
        );
        eventually("it is counted", || secured.dropped() == dropped);
    }
    let plain = secured
        .uri(secured.certificates.folder())
        .replace("nbds://", "nbd://");
    let refused = output(
        "libnbd-bin",
        "nbdinfo",
        &["--size", plain.split('?').next().unwrap()],
    );
    assert!(!refused.status.success(), "without TLS nothing is told");
    assert_eq!(
        run(
            "libnbd-bin",
            "nbdinfo",
            &["--size", &secured.uri(secured.certificates.folder())]
        ),
        "67108864\n"
    );
}

#[test]
fn without_an_authority_any_client_is_let_in_that_trusts_us() {
    let secured = on_tcp(false);
    let folder = secured.rig.folder.path().join("ca");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(
        secured.certificates.path("ca-cert.pem"),
        folder.join("ca-cert.pem"),
    )
    .unwrap();
    assert_eq!(
        run("libnbd-bin", "nbdinfo", &["--size", &secured.uri(&folder)]),
        "67108864\n"
    );
    let stranger = Certificates::make(&secured.rig.folder.path().join("stranger"));
    assert!(
        !output(
            "libnbd-bin",
            "nbdinfo",
            &["--size", &secured.uri(stranger.folder())]
        )
        .status
        .success()
    );
}

#[test]
fn where_tls_is_required_nothing_else_is_answered_before_it() {
    let secured = secured(None, true, false, Limits::default());
    let mut client = Client::hello(&secured.rig.socket);
    for option in [3, 6, 7, 8, 9, 10, 11, 99] {
        let replies = client.option(option, &[]);
        assert_eq!(
            (replies.len(), replies[0].0),
            (1, ERR_TLS_REQD),
            "option {option}"
        );
        assert!(String::from_utf8_lossy(&replies[0].1).contains("nbds://"));
    }
    assert_eq!(client.option(7, &[0; 5000])[0].0, ERR_TLS_REQD, "oversized");
    assert_eq!(client.option(STARTTLS, &[0])[0].0, ERR_INVALID, "with data");
    assert_eq!(
        client.option(STARTTLS, &[])[0].0,
        ACK,
        "and then it still may"
    );
    let mut stream = encrypt(client, &secured.certificates);
    assert_eq!(ask(&mut stream, STARTTLS, &[]), [ERR_INVALID], "twice");
    assert_eq!(ask(&mut stream, 8, &[]), [ACK]);
    assert_eq!(
        ask(&mut stream, 7, &go_data("disk", &[])).last(),
        Some(&ACK)
    );
    let mut old = Client::hello(&secured.rig.socket);
    old.send_option(1, b"disk");
    assert!(old.is_closed(), "EXPORT_NAME cannot be answered");
    assert_eq!(
        Client::hello(&secured.rig.socket).option(2, &[])[0].0,
        ACK,
        "ABORT"
    );
    let mut ancient = Client::connect(&secured.rig.socket);
    ancient.send(&[0; 4]);
    assert!(ancient.is_closed(), "no fixed newstyle");
}

#[test]
fn where_tls_is_optional_both_ways_are_open_and_nothing_agreed_before_counts_after() {
    let secured = secured(None, false, false, Limits::default());
    assert!(!secured.rig.served_at.tls);
    assert_eq!(
        Client::ready(&secured.rig.socket, Style::Extended)
            .read(0, 8)
            .data,
        [0; 8]
    );
    let mut client = Client::hello(&secured.rig.socket);
    assert_eq!(client.option(11, &[])[0].0, ACK);
    assert_eq!(
        client
            .option(10, &meta_query("disk", &["base:allocation"]))
            .len(),
        2
    );
    assert_eq!(client.option(STARTTLS, &[])[0].0, ACK);
    let mut stream = encrypt(client, &secured.certificates);
    let query = meta_query("disk", &["base:allocation"]);
    assert_eq!(
        ask(&mut stream, 10, &query),
        [ERR_INVALID],
        "structured replies are not agreed on any more"
    );
    assert_eq!(ask(&mut stream, 8, &[]), [ACK], "nor extended headers");
    assert_eq!(
        ask(&mut stream, 7, &go_data("disk", &[])).last(),
        Some(&ACK)
    );
    let mut read = vec![0x25, 0x60, 0x95, 0x13];
    read.extend([0; 23]);
    read.push(16);
    stream.write_all(&read).unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [0x66, 0x8e, 0x33, 0xef], "a structured reply");
    assert_eq!(
        Client::hello(&Rig::new().socket).option(STARTTLS, &[])[0].0,
        ERR_UNSUP,
        "a server without TLS"
    );
}

#[test]
fn plaintext_behind_starttls_is_never_taken_for_part_of_the_session() {
    let secured = secured(None, false, false, Limits::default());
    let mut client = Client::hello(&secured.rig.socket);
    client.send(b"IHAVEOPT\0\0\0\x05\0\0\0\0IHAVEOPT\0\0\0\x08\0\0\0\0");
    assert!(client.is_closed(), "not even acknowledged");
    let mut client = start_tls(&secured.rig);
    client.send(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0");
    assert!(no_plaintext(&mut client), "answered in the clear");
    eventually("both are counted", || secured.dropped() == 2);
}

/// Whether all that comes up to the end is a TLS alert at most.
fn no_plaintext(client: &mut Client) -> bool {
    let mut rest = Vec::new();
    match client.stream.read_to_end(&mut rest) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            panic!("still connected: {error}")
        }
        _ => rest.is_empty() || (rest[0] == 21 && rest.len() <= 7),
    }
}

#[test]
fn malformed_tls_ends_the_session_and_nobody_else_notices() {
    let secured = secured(None, true, true, hasty());
    let hello = client_hello(&secured);
    let mut hostile: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 1 << 16],
    ];
    // A record that announces more than TLS allows, a handshake message of 16 MiB, SSL 2.
    hostile.push(vec![22, 3, 1, 0xff, 0xff]);
    hostile.push(
        [
            &[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..],
            &[0; 0x4000 - 4],
        ]
        .concat(),
    );
    hostile.push(vec![0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]);
    for at in (5..hello.len()).step_by(7) {
        let mut bytes = hello.clone();
        bytes[at] ^= 0x55;
        hostile.push(bytes);
    }
    let count = hostile.len() as u64;
    for bytes in &hostile {
        let mut client = start_tls(&secured.rig);
        // It may be gone before it has taken all of it.
        let _ = client.stream.write_all(bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
    }
    eventually("all are gone", || {
        secured.rig.stats.snapshot().negotiating == 0
    });
    assert_eq!(secured.rig.stats.snapshot().accepted, count);
    let mut stream = encrypt(start_tls(&secured.rig), &secured.certificates);
    assert_eq!(
        ask(&mut stream, 7, &go_data("disk", &[])).last(),
        Some(&ACK)
    );
}

#[test]
fn a_slow_or_silent_tls_handshake_meets_the_deadline_of_every_handshake() {
    let secured = secured(None, true, false, hasty());
    let hello = client_hello(&secured);
    let mut silent = start_tls(&secured.rig);
    let mut half = start_tls(&secured.rig);
    half.send(&hello[..hello.len() / 2]);
    assert!(silent.is_closed() && half.is_closed());
    let mut slow = start_tls(&secured.rig);
    let closed = hello.iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(5));
        slow.stream.write_all(&[*byte]).is_err()
    });
    assert!(closed || slow.is_closed());
    eventually("all are counted", || secured.dropped() == 3);
}

/// A first message as a good client sends it.
fn client_hello(secured: &Secured) -> Vec<u8> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut stream = encrypt(
        Client {
            stream: ours,
            style: Style::Simple,
            next: 0,
        },
        &secured.certificates,
    );
    stream.conn.write_tls(&mut stream.sock).unwrap();
    drop(stream);
    let mut bytes = Vec::new();
    theirs.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > 100 && bytes[0] == 22);
    bytes
}

#[test]
fn a_thousand_stuck_tls_handshakes_lock_nobody_out() {
    let secured = on_tcp(false);
    let Endpoint::Tcp(address) = secured.rig.served_at.endpoint else {
        panic!("a TCP server")
    };
    let stuck: Vec<_> = (0..1000)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // Those that already had to make way refuse it.
            let _ = stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0");
            stream
        })
        .collect();
    let start = std::time::Instant::now();
    assert_eq!(
        run(
            "libnbd-bin",
            "nbdinfo",
            &["--size", &secured.uri(secured.certificates.folder())]
        ),
        "67108864\n"
    );
    eprintln!(
        "a new client behind {} stuck ones: {:?}",
        stuck.len(),
        start.elapsed()
    );
    assert!(secured.rig.stats.snapshot().evicted >= 1000 - 64);
}

#[test]
fn files_that_will_not_do_are_named_with_their_option() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(&folder.path().join("pki"));
    let good = certificates.options(true, true);
    let client_key = certificates.path("client-key.pem");
    let missing = folder.path().join("missing.pem");
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(
        &garbage,
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    for (options, parts) in [
        (
            TlsOptions {
                cert: missing.clone(),
                ..good.clone()
            },
            ["--tls-cert", "missing.pem: No such file"],
        ),
        (
            TlsOptions {
                key: missing,
                ..good.clone()
            },
            ["--tls-key", "missing.pem: No such file"],
        ),
        (
            TlsOptions {
                cert: good.key.clone(),
                ..good.clone()
            },
            ["--tls-cert", "there is no certificate"],
        ),
        (
            TlsOptions {
                key: good.cert.clone(),
                ..good.clone()
            },
            ["--tls-key", "there is no private key"],
        ),
        (
            TlsOptions {
                key: client_key,
                ..good.clone()
            },
            ["--tls-cert", "keys may not be consistent"],
        ),
        (
            TlsOptions {
                cert: garbage.clone(),
                ..good.clone()
            },
            ["--tls-cert", "garbage.pem"],
        ),
        (
            TlsOptions {
                client_ca: Some(garbage),
                ..good.clone()
            },
            ["--tls-client-ca", "garbage.pem"],
        ),
    ] {
        let error = Tls::load(&options).map(drop).unwrap_err().to_string();
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{parts:?}: {error}"
        );
    }
}
