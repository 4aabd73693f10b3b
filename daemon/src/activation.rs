//! Sockets passed by the service manager (`LISTEN_FDS`), distinguished by their names.
//!
//! The daemon uses a passed socket in place of binding its own. A passed socket without a use is an
//! error: its clients would wait forever.

use ftld_device::target::Target;
use ftld_device::transport::nbd::Listening;
use ftld_kit::failure::Failure;
use listenfd::ListenFd;
use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use std::fmt::Display;
use std::net::TcpListener;
use std::os::fd::AsFd;

/// Sockets inherited from the service manager.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets {
    /// Listener for NBD clients.
    pub(crate) nbd: Option<Listening>,
    /// Listener for HTTP.
    pub(crate) metrics: Option<TcpListener>,
}

impl InheritedSockets {
    /// Takes the sockets from the environment. Called once, before a second thread exists.
    pub(crate) fn take(target: &Target) -> Result<InheritedSockets, Failure> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut sockets = ListenFd::from_env();
        let mut passed = InheritedSockets::default();
        for at in 0..sockets.len() {
            let name = names.split(':').nth(at).unwrap_or_default();
            passed
                .add(&mut sockets, at, name)
                .map_err(|why| refused(name, &why))?;
        }
        if passed.nbd.is_some() && !matches!(target, Target::Nbd(_)) {
            let why = format!("{target} is no NBD address, as nbd+unix:///?socket=PATH is one");
            return Err(refused("nbd", &why));
        }
        Ok(passed)
    }

    fn add(&mut self, sockets: &mut ListenFd, at: usize, name: &str) -> Result<(), Failure> {
        let twice = match name {
            "nbd" => {
                let listening = match sockets.take_unix_listener(at) {
                    Ok(listener) => listener.map(Listening::Unix),
                    Err(_) => {
                        let tcp = sockets.take_tcp_listener(at);
                        tcp.ok().flatten().map(Listening::Tcp)
                    }
                };
                let listening = listening.ok_or_else(|| Failure::usage(NO_STREAM))?;
                match &listening {
                    Listening::Unix(listener) => listens(listener),
                    Listening::Tcp(listener) => listens(listener),
                }?;
                self.nbd.replace(listening).is_some()
            }
            "metrics" => {
                let listener = sockets.take_tcp_listener(at).ok().flatten();
                let listener = listener.ok_or_else(|| Failure::usage(NO_TCP))?;
                listens(&listener)?;
                self.metrics.replace(listener).is_some()
            }
            _ => {
                return Err(Failure::usage(
                    "nobody here asks for it; FileDescriptorName= is nbd or metrics",
                ));
            }
        };
        if twice {
            Err(Failure::usage("there are two of this name"))
        } else {
            Ok(())
        }
    }
}

const NO_TCP: &str = "it is no TCP socket, as ListenStream=127.0.0.1:9917 makes one";
const NO_STREAM: &str = "it is neither a unix nor a TCP stream socket, as ListenStream= makes them";

fn listens(socket: &impl AsFd) -> Result<(), Failure> {
    match getsockopt(socket, AcceptConn) {
        Ok(true) => Ok(()),
        _ => Err(Failure::usage(
            "it does not listen; the socket unit needs Accept=no",
        )),
    }
}

fn refused(name: &str, why: &dyn Display) -> Failure {
    Failure::usage(format!("socket {name:?} from the service manager: {why}"))
}
