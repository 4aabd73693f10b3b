//! Listening sockets of a server.
//!
//! A unix socket is private ([`unix_socket`]), a TCP socket beyond loopback requires TLS.

use crate::target::Endpoint;
use crate::transport::unix_socket::{self, SocketFile, named};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u16 = 1024;

/// A socket on which the service manager listens for this process. The file belongs to the manager.
#[derive(Debug)]
pub enum Listening {
    /// A unix socket.
    Unix(std::os::unix::net::UnixListener),
    /// A TCP socket.
    Tcp(std::net::TcpListener),
}

/// A listening socket.
#[derive(Debug)]
pub(super) enum Listener {
    /// The file is removed first, so that no client connects to a server that is stopping.
    Unix(SocketFile, UnixListener),
    /// An inherited unix socket, and its path.
    InheritedSockets(PathBuf, UnixListener),
    Tcp(TcpListener),
}

/// A client's socket.
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Moves the socket from the runtime that created it to the current one.
    pub(super) fn rehome(&mut self) -> io::Result<()> {
        *self = match self {
            Socket::Unix(stream) => Socket::Unix(UnixStream::from_std(
                stream.as_fd().try_clone_to_owned()?.into(),
            )?),
            Socket::Tcp(stream) => Socket::Tcp(TcpStream::from_std(
                stream.as_fd().try_clone_to_owned()?.into(),
            )?),
        };
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Listener {
    /// Binds and listens; beyond loopback only if TLS is required. Must be called inside a tokio
    /// runtime.
    pub(super) fn bind(endpoint: &Endpoint, tls_required: bool) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => bind_unix(path),
            Endpoint::Tcp(address) => {
                let bound = within_reach(*address, tls_required).and_then(|()| bind_tcp(*address));
                bound.map_err(|error| named(address, error))
            }
        }
    }

    /// Adopts a socket that listens already; beyond loopback only if TLS is required. Must be
    /// called inside a tokio runtime.
    pub(super) fn adopt(socket: Listening, tls_required: bool) -> io::Result<Self> {
        match socket {
            Listening::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address
                    .as_pathname()
                    .ok_or_else(|| io::Error::other("the socket passed has no path"))?;
                listener.set_nonblocking(true)?;
                Ok(Listener::InheritedSockets(
                    path.to_owned(),
                    UnixListener::from_std(listener)?,
                ))
            }
            Listening::Tcp(listener) => {
                let address = listener.local_addr()?;
                within_reach(address, tls_required).map_err(|error| named(address, error))?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(TcpListener::from_std(listener)?))
            }
        }
    }

    pub(super) fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Listener::Unix(file, _) => Ok(Endpoint::Unix(file.path().to_owned())),
            Listener::InheritedSockets(path, _) => Ok(Endpoint::Unix(path.clone())),
            Listener::Tcp(listener) => Ok(Endpoint::Tcp(listener.local_addr()?)),
        }
    }

    /// Accepts the next client; returns its address if it has one.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Listener::Unix(_, listener) | Listener::InheritedSockets(_, listener) => {
                Ok((Socket::Unix(listener.accept().await?.0), None))
            }
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // The first read detects a peer that is gone already.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), Some(peer)))
            }
        }
    }
}

fn within_reach(address: SocketAddr, tls_required: bool) -> io::Result<()> {
    if address.ip().is_loopback() || tls_required {
        return Ok(());
    }
    let text = "beyond loopback NBD needs TLS; give it a certificate, or listen on 127.0.0.1 or a unix socket";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let (file, listener) = unix_socket::bind(path, BACKLOG)?;
    Ok(Listener::Unix(file, UnixListener::from_std(listener)?))
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    Ok(Listener::Tcp(take_tcp(address)?.listen(BACKLOG.into())?))
}

/// Binds, and does not listen yet.
fn take_tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => "stop its program or choose another port",
            _ => "choose another address",
        };
        io::Error::new(error.kind(), format!("{error}; {remedy}"))
    })?;
    Ok(socket)
}

/// Checks whether a server could listen there. Does not listen, so no client connects in vain.
///
/// # Errors
/// Another server listens there, something else has the path, or its folder is missing or closed.
pub(crate) fn probe(endpoint: &Endpoint) -> io::Result<()> {
    match endpoint {
        Endpoint::Tcp(address) => take_tcp(*address)
            .map(drop)
            .map_err(|error| named(address, error)),
        Endpoint::Unix(path) => unix_socket::probe(path),
    }
}

#[cfg(test)]
mod tests;
