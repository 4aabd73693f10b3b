//! The NBD server from its clients' side: in this process, over sockets.

mod clients;
mod commands;
mod engine;
mod handshake;
mod hostile;
mod latency;
mod support;
mod tls;
