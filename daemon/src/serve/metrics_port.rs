//! Metrics port of a daemon.
//!
//! Invariants: a first start without its port fails; the successor of a dead daemon serves its
//! device meanwhile. Power failure does not matter here.

use crate::failure::{Exit, Failure};
use crate::instance::Instance;
use crate::metrics::http;
use std::net::SocketAddr;

/// Where HTTP is served.
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
        addr: Option<SocketAddr>,
        instance: &Instance,
    ) -> Result<Http, Failure> {
        match passed {
            Some(listener) => Ok(Http::Listens(listener)),
            None => Http::bind(addr, instance),
        }
    }

    /// Binds the address. Any user can take a port while no daemon has it. A taken port therefore
    /// fails a first start, which a user watches, but not the successor of a dead daemon, whose
    /// users wait.
    fn bind(addr: Option<SocketAddr>, instance: &Instance) -> Result<Http, Failure> {
        let Some(addr) = addr else {
            return Ok(Http::Off);
        };
        match http::bind(addr) {
            Ok(listener) => Ok(Http::Listens(listener)),
            Err(failure) if failure.exit == Exit::InUse && instance.taken_over() => {
                tracing::warn!("{failure}; reattaching without metrics until the address is free");
                Ok(Http::Taken(addr))
            }
            Err(failure) => Err(failure),
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
