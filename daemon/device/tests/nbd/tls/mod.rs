//! TLS: clients of other projects, admission, and the effect of malformed or injected bytes.

mod clients;
mod hostile;

use crate::support::certificates::Certificates;
use crate::support::ram::Ram;
use crate::support::{Rig, eventually};
use clients::{output, run};
use ftld_device::transport::nbd::{Endpoint, Limits, Tls, TlsOptions};
use ftld_nbd_client::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
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

/// Encrypts the bytes of our own client.
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

/// Whether the server sends at most a TLS alert before the end.
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
