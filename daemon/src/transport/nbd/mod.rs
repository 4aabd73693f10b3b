//! Our NBD server: the device over a unix socket or TCP, for clients we know nothing about.
//!
//! Fixed newstyle; simple, structured and extended replies; `base:allocation`; FLUSH, FUA, TRIM,
//! WRITE_ZEROES, CACHE, BLOCK_STATUS; several connections at once; byte-granular; [`tls`] if asked
//! for, and always beyond loopback.
//!
//! [`wire`] knows bytes, [`handshake`] and [`engine`] are state machines without a socket (what a
//! fuzzer drives), [`connection`] moves bytes, [`server`] counts connections. [`Limits`] says what
//! a peer may cost. A peer that breaks a rule loses its connection or gets an error, and nobody
//! else notices. [`kernel`] hands connections to the kernel's own client, which makes a `/dev/nbdN`
//! of them. What power failure does to acknowledged requests is the device's affair: a reply leaves
//! only after the device said so, and for FLUSH and FUA only after [`crate::device::Flush::wait`].

pub mod buffer;
pub mod connection;
mod copies;
pub mod endpoint;
pub mod engine;
pub mod export;
pub mod handshake;
pub mod kernel;
pub mod limits;
pub mod netlink;
pub mod server;
pub mod stats;
pub mod tls;
pub mod wire;

pub use crate::target::{Endpoint, NbdUri, UriError};
pub use connection::{Ended, attach_stream, serve_stream};
pub use endpoint::Listening;
pub use export::{Export, ExportInfo};
pub use limits::Limits;
pub use server::Server;
pub use stats::{COMMANDS, NbdSnapshot, NbdStats};
pub use tls::{Tls, TlsError, TlsOptions};
