//! Metrics port of a daemon.
//!
//! Invariants: a taken port fails a first start. The successor of a dead daemon serves its device,
//! without metrics until the port is free. Power failure does not matter here.

use crate::metrics::http;
use ftld_device::config::{METRICS_DEFAULT, Metrics};
use ftld_device::instance::Instance;
use ftld_kit::failure::{Exit, Failure};
use std::net::SocketAddr;

/// Ports after the default one that are tried.
const PORTS_TRIED: u16 = 64;

/// State of the HTTP port.
pub(super) enum Http {
    Off,
    Listens(std::net::TcpListener),
    /// Another process has the address: HTTP starts when it is free.
    Taken(SocketAddr),
}

impl Http {
    /// Returns the inherited listener, or binds a new one.
    pub(super) fn take(
        passed: Option<std::net::TcpListener>,
        metrics: Metrics,
        instance: &Instance,
    ) -> Result<Http, Failure> {
        match (passed, metrics) {
            (Some(listener), _) => Ok(Http::Listens(listener)),
            (None, Metrics::Off) => Ok(Http::Off),
            (None, Metrics::At(addr)) => Http::bind(addr, instance),
            (None, Metrics::Default) if instance.taken_over() => {
                Http::bind(METRICS_DEFAULT, instance)
            }
            (None, Metrics::Default) => Http::bind_next().map(Http::Listens),
        }
    }

    /// Binds the default address, or the next free port: another instance may have it.
    fn bind_next() -> Result<std::net::TcpListener, Failure> {
        let mut addr = METRICS_DEFAULT;
        loop {
            match http::bind(addr) {
                Err(failure)
                    if failure.exit == Exit::InUse
                        && addr.port() < METRICS_DEFAULT.port() + PORTS_TRIED =>
                {
                    addr.set_port(addr.port() + 1);
                }
                Ok(listener) => {
                    if addr != METRICS_DEFAULT {
                        tracing::warn!("{METRICS_DEFAULT} is in use: metrics are at {addr}");
                    }
                    return Ok(listener);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Binds the address that was asked for. Any user can take a port while no daemon has it. A
    /// taken port therefore fails a first start, which a user watches, but not the successor of a
    /// dead daemon, whose users wait.
    fn bind(addr: SocketAddr, instance: &Instance) -> Result<Http, Failure> {
        match http::bind(addr) {
            Ok(listener) => Ok(Http::Listens(listener)),
            Err(failure) if failure.exit == Exit::InUse && instance.taken_over() => {
                tracing::warn!("{failure}; reattaching without metrics until the address is free");
                Ok(Http::Taken(addr))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns whether only this machine reaches it.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Http::Off => false,
            Http::Listens(listener) => listener
                .local_addr()
                .is_ok_and(|addr| addr.ip().is_loopback()),
            Http::Taken(addr) => addr.ip().is_loopback(),
        }
    }

    pub(super) fn url(&self) -> Result<Option<String>, Failure> {
        let Http::Listens(listener) = self else {
            return Ok(None);
        };
        let addr = listener
            .local_addr()
            .map_err(|error| Failure::io("metrics socket", &error))?;
        Ok(Some(format!("http://{addr}/metrics")))
    }
}
