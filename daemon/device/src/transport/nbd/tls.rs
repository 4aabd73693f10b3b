//! TLS for NBD: certificates from PEM files, and a stream that is upgraded on request of the
//! handshake.
//!
//! Invariants: TLS 1.2 or 1.3, no resumption, no early data. A session therefore begins with a full
//! handshake, and the server stores nothing about past ones. A stream never returns to plaintext.
//! The files are read once, at the start.

use super::handshake::Security;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether clients without TLS are refused.
    pub required: bool,
    /// PEM file of the server's certificate, followed by the chain to its authority.
    pub cert: PathBuf,
    /// PEM file of the server's private key.
    pub key: PathBuf,
    /// PEM file of the authorities of client certificates. Without it any client is accepted.
    pub client_ca: Option<PathBuf>,
}

/// Reason why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("{option} {path}: {reason}")]
    File {
        /// Option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        reason: String,
    },
    /// Certificate and key are readable but do not match.
    #[error("--tls-cert {cert} and --tls-key {key}: {reason}")]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Fault of the pair.
        reason: rustls::Error,
    },
}

/// The server's side of TLS.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    required: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or contains no certificate or key, or certificate and key do not
    /// match.
    pub fn load(options: &TlsOptions) -> Result<Tls, TlsError> {
        let TlsOptions {
            required,
            cert,
            key,
            client_ca,
        } = options;
        let chain = certificates("--tls-cert", cert)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| pem_error("--tls-key", key, error))?;
        let provider = Arc::new(ring::default_provider());
        let versions = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions();
        let versions = versions.expect("ring has what TLS 1.2 and 1.3 need");
        let verified = match client_ca {
            None => versions.with_no_client_auth(),
            Some(path) => {
                let wrong = |reason: String| TlsError::File {
                    option: "--tls-client-ca",
                    path: path.clone(),
                    reason,
                };
                let mut roots = RootCertStore::empty();
                for authority in certificates("--tls-client-ca", path)? {
                    roots
                        .add(authority)
                        .map_err(|error| wrong(error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                versions
                    .with_client_cert_verifier(verifier.map_err(|error| wrong(error.to_string()))?)
            }
        };
        let pair = |reason| TlsError::Pair {
            cert: cert.clone(),
            key: key.clone(),
            reason,
        };
        let mut config = verified.with_single_cert(chain, private).map_err(pair)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Tls {
            acceptor: Arc::new(config).into(),
            required: *required,
        })
    }

    /// Returns whether clients without TLS are refused.
    pub(crate) fn required(&self) -> bool {
        self.required
    }

    /// Returns the initial state of a negotiation.
    pub(super) fn security(&self) -> Security {
        if self.required {
            Security::Required
        } else {
            Security::Offered
        }
    }
}

fn certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all =
        CertificateDer::pem_file_iter(path).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    let all = all.map_err(|error| pem_error(option, path, error))?;
    if all.is_empty() {
        Err(pem_error(option, path, PemError::NoItemsFound))
    } else {
        Ok(all)
    }
}

fn pem_error(option: &'static str, path: &Path, error: PemError) -> TlsError {
    let wanted = if option == "--tls-key" {
        "private key (-----BEGIN PRIVATE KEY-----)"
    } else {
        "certificate"
    };
    let reason = match error {
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => format!("there is no {wanted} in this file, which must be PEM"),
        error => format!("not valid PEM: {error}"),
    };
    TlsError::File {
        option,
        path: path.to_owned(),
        reason,
    }
}

/// A stream in plaintext or over TLS.
pub(super) enum Channel<S> {
    Plain(S),
    Tls(Box<TlsStream<S>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Channel<S> {
    /// Performs the TLS handshake. The client must begin it with the next byte.
    pub(super) async fn upgrade(self, tls: &Tls) -> io::Result<Self> {
        match self {
            Channel::Plain(stream) => {
                Ok(Channel::Tls(Box::new(tls.acceptor.accept(stream).await?)))
            }
            Channel::Tls(_) => Err(io::Error::other("TLS inside TLS")),
        }
    }

    /// Returns the underlying stream.
    pub(super) fn lower(&mut self) -> &mut S {
        match self {
            Channel::Plain(stream) => stream,
            Channel::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Channel<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Channel::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Channel<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Channel::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Channel::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Channel::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Channel::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
