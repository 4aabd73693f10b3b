//! NBD server: the device over a unix socket or TCP, for arbitrary clients.
//!
//! Fixed newstyle; simple, structured and extended replies; `base:allocation`; FLUSH, FUA, TRIM,
//! WRITE_ZEROES, CACHE, BLOCK_STATUS; several connections at once; byte-granular; [`tls`] on
//! request, and always beyond loopback.
//!
//! [`wire`] encodes and decodes, [`handshake`] and [`engine`] are state machines without a socket
//! (for a fuzzer), [`connection`] moves bytes, [`server`] counts connections. [`Limits`] bounds the
//! resources of a peer. A peer that breaks a rule loses its connection or gets an error; other
//! peers are not affected. [`kernel`] hands connections to the kernel's own client, which turns
//! them into a `/dev/nbdN`. The device determines the effect of power failure on acknowledged
//! requests. A reply leaves only after the device has finished the request, and for FLUSH and FUA
//! only after [`crate::device::Flush::wait`].

pub mod buffer;
pub(crate) mod connection;
mod copies;
pub(crate) mod endpoint;
pub mod engine;
pub(crate) mod export;
pub mod handshake;
pub(crate) mod kernel;
pub(crate) mod limits;
pub(crate) mod netlink;
pub(crate) mod server;
pub(crate) mod stats;
pub(crate) mod tls;
pub mod wire;

pub use crate::target::{Endpoint, NbdUri, UriError};
pub use connection::{CloseReason, attach_stream, serve_stream};
pub use endpoint::Listening;
pub use export::{Export, ExportInfo};
pub use limits::Limits;
pub use server::Server;
pub use stats::{COMMANDS, NbdSnapshot, NbdStats};
pub use tls::{Tls, TlsError, TlsOptions};
