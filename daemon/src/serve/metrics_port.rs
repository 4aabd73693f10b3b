//! The metrics port of a daemon.
//!
//! Always true: a first start without its port fails; the successor of a dead daemon serves its
//! device meanwhile. Power failure does not matter here.

use crate::failure::{Exit, Failure};
use crate::instance::Instance;
use crate::metrics::http;
use std::net::SocketAddr;

/// Where HTTP is served.
pub(super) enum Http {
    Off,
    Listens(std::net::TcpListener),
    /// Another process has the address: served when it is free.
    Taken(SocketAddr),
}

impl Http {
    /// The listener that was passed, or one of its own.
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

    /// Any user can take a port while no daemon has it. So one that is taken stops a first start,
    /// which somebody looks at, but not the successor of a daemon that died, whose users wait.
    fn bind(addr: Option<SocketAddr>, instance: &Instance) -> Result<Http, Failure> {
        let Some(addr) = addr else {
            return Ok(Http::Off);
        };
        match http::bind(addr) {
            Ok(listener) => Ok(Http::Listens(listener)),
            Err(failure) if failure.exit == Exit::InUse && instance.taken_over() => {
                tracing::warn!(
                    "{failure}; taking over from a dead daemon without metrics, until the address is free"
                );
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
