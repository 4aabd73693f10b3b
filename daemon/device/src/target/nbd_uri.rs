//! NBD addresses: a place to listen and the name of an export, as text and as values.
//!
//! The text of an address parses to the same address. Nothing is opened here, so power failure does
//! not matter.

use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, percent_encode,
};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that IANA gave to NBD.
const DEFAULT_PORT: u16 = 10809;

/// Longest path of a unix socket: `sun_path` without the byte that ends it.
pub const SOCKET_PATH_MAX: usize = 107;

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP address; port 0 lets the kernel choose.
    Tcp(SocketAddr),
}

/// An NBD URI: a place and the name of an export, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Where.
    pub endpoint: Endpoint,
    /// What.
    pub export: String,
    /// Whether TLS is required: `nbds` instead of `nbd`.
    pub tls: bool,
}

/// Fault of an NBD URI, with the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{uri}: {fault}")]
pub struct UriError {
    uri: String,
    fault: Fault,
}

const UNIX: &str = "nbd+unix:///[EXPORT]?socket=PATH";
const WAYS: &str = "write nbd://HOST:PORT[/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("not an NBD address; {WAYS}")]
    NotAnAddress,
    #[error("unknown scheme '{0}'; {WAYS}")]
    Scheme(String),
    #[error("a unix socket has no host; write {UNIX}")]
    HostOfSocket,
    #[error("the {0} is missing; write {1}")]
    Missing(&'static str, &'static str),
    #[error(
        "the path of the socket has {0} bytes, the system allows {SOCKET_PATH_MAX}; choose a shorter one"
    )]
    LongPath(usize),
    /// A part of the address, and what is wrong with it.
    #[error("'{0}' {1}")]
    Part(String, &'static str),
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        parse(uri).map_err(|fault| UriError {
            uri: uri.to_owned(),
            fault,
        })
    }
}

fn parse(uri: &str) -> Result<NbdUri, Fault> {
    let (scheme, rest) = uri.split_once("://").ok_or(Fault::NotAnAddress)?;
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode_percent(path)?;
    let (scheme, tls) = match scheme {
        "nbds" => ("nbd", true),
        "nbds+unix" => ("nbd+unix", true),
        _ => (scheme, false),
    };
    let endpoint = match (scheme, query) {
        ("nbd+unix", query) => {
            if !authority.is_empty() {
                return Err(Fault::HostOfSocket);
            }
            Endpoint::Unix(parse_socket(query.unwrap_or_default())?)
        }
        ("nbd", None) => Endpoint::Tcp(parse_host(authority)?),
        ("nbd", Some(query)) => return Err(Fault::Part(query.into(), "means nothing for nbd://")),
        _ => return Err(Fault::Scheme(scheme.into())),
    };
    Ok(NbdUri {
        endpoint,
        export,
        tls,
    })
}

fn parse_socket(query: &str) -> Result<PathBuf, Fault> {
    let wrong = |item: &str| Fault::Part(item.into(), "is not understood; only one socket=PATH is");
    let mut socket = None;
    for item in query.split('&').filter(|item| !item.is_empty()) {
        match item.split_once('=') {
            Some(("socket", path)) if socket.is_none() => socket = Some(decode_percent(path)?),
            _ => return Err(wrong(item)),
        }
    }
    match socket {
        Some(path) if path.len() > SOCKET_PATH_MAX => Err(Fault::LongPath(path.len())),
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(Fault::Missing("socket", UNIX)),
    }
}

fn parse_host(authority: &str) -> Result<SocketAddr, Fault> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (
            host,
            port.parse()
                .map_err(|_| Fault::Part(port.into(), "is not a port (0 to 65535)"))?,
        ),
        _ => (authority, DEFAULT_PORT),
    };
    const NO_IP: &str = "is not an IP address; write 127.0.0.1, [::1] or localhost";
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let ip = match bare {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        "" => return Err(Fault::Missing("host", "127.0.0.1, [::1] or localhost")),
        _ => bare.parse().map_err(|_| Fault::Part(host.into(), NO_IP))?,
    };
    Ok(SocketAddr::new(ip, port))
}

/// Characters that a URI escapes in the name of an export and in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Text without its percent escapes. The crate takes a `%` that escapes nothing for itself; here
/// it is an error.
pub(super) fn decode_percent(text: &str) -> Result<String, Fault> {
    let wrong = |fault| Err(Fault::Part(text.into(), fault));
    let escapes = |after: &str| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(escapes) {
        return wrong("has a % that is not followed by two hex digits");
    }
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    if bytes.contains(&0) {
        return wrong("contains a zero byte");
    }
    String::from_utf8(bytes).or_else(|_| wrong("is not UTF-8"))
}

pub(super) fn encode_percent(bytes: &[u8]) -> PercentEncode<'_> {
    percent_encode(bytes, ESCAPED)
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        let export = encode_percent(self.export.as_bytes()).to_string();
        match &self.endpoint {
            Endpoint::Unix(path) => {
                write!(
                    f,
                    "{scheme}+unix:///{export}?socket={}",
                    encode_percent(path.as_os_str().as_bytes())
                )
            }
            Endpoint::Tcp(address) if export.is_empty() => write!(f, "{scheme}://{address}"),
            Endpoint::Tcp(address) => write!(f, "{scheme}://{address}/{export}"),
        }
    }
}

#[cfg(test)]
mod tests;
