//! What the device is reached by: `/dev/ublkbN`, an NBD address, or `/dev/nbdN`.

use crate::failure::Failure;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// NBD's registered port.
const NBD_PORT: u16 = 10_809;

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A ublk device by number.
    Ublk(u32),
    /// The kernel's NBD client by number, fed by our own server.
    NbdKernel(u32),
    /// An NBD server on a loopback address.
    NbdTcp {
        /// Where to listen.
        addr: SocketAddr,
        /// Name of the export; empty for the default one.
        export: String,
    },
    /// An NBD server on a unix socket.
    NbdUnix {
        /// Path of the socket.
        socket: PathBuf,
        /// Name of the export; empty for the default one.
        export: String,
    },
}

impl Target {
    /// Reads a target as given on the command line.
    pub fn parse(text: &str) -> Result<Target, Failure> {
        if let Some(number) = text.strip_prefix("/dev/ublkb") {
            return device_number(text, number).map(Target::Ublk);
        }
        if let Some(number) = text.strip_prefix("/dev/nbd") {
            return device_number(text, number).map(Target::NbdKernel);
        }
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            return nbd_unix(text, rest);
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            return nbd_tcp(text, rest);
        }
        Err(Failure::usage(format!(
            "target {text:?} is none of /dev/ublkbN, /dev/nbdN, nbd://HOST:PORT[/EXPORT], nbd+unix:///[EXPORT]?socket=PATH; \
             see ftld --help"
        )))
    }

    /// The name an instance takes from its target.
    pub fn instance_name(&self) -> String {
        match self {
            Target::Ublk(number) => format!("ublkb{number}"),
            Target::NbdKernel(number) => format!("nbd{number}"),
            Target::NbdTcp { export, .. } | Target::NbdUnix { export, .. } if !export.is_empty() => export.clone(),
            Target::NbdTcp { .. } | Target::NbdUnix { .. } => "default".into(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ublk(number) => write!(f, "/dev/ublkb{number}"),
            Target::NbdKernel(number) => write!(f, "/dev/nbd{number}"),
            Target::NbdTcp { addr, export } if export.is_empty() => write!(f, "nbd://{addr}"),
            Target::NbdTcp { addr, export } => write!(f, "nbd://{addr}/{}", encode(export, "")),
            Target::NbdUnix { socket, export } => {
                write!(f, "nbd+unix:///{}?socket={}", encode(export, ""), encode(&socket.to_string_lossy(), "/"))
            }
        }
    }
}

fn device_number(text: &str, number: &str) -> Result<u32, Failure> {
    let digits = number.bytes().all(|b| b.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
    let number = number.parse().ok().filter(|_| digits);
    number.ok_or_else(|| Failure::usage(format!("target {text:?}: the device needs a number, as in /dev/ublkb0")))
}

fn nbd_unix(text: &str, rest: &str) -> Result<Target, Failure> {
    let wrong = |why: &str| Failure::usage(format!("target {text:?}: {why}; write nbd+unix:///EXPORT?socket=PATH"));
    let rest = rest.strip_prefix('/').ok_or_else(|| wrong("a unix socket has no host"))?;
    let (export, query) = rest.split_once('?').ok_or_else(|| wrong("the socket is missing"))?;
    let socket = query.strip_prefix("socket=").ok_or_else(|| wrong("the only parameter is socket"))?;
    let decoded = |part| decode(part).ok_or_else(|| wrong("a %-escape is wrong"));
    let (export, socket) = (decoded(export)?, decoded(socket)?);
    if socket.is_empty() || socket.contains('&') {
        return Err(wrong("the socket's path is missing"));
    }
    Ok(Target::NbdUnix { socket: Path::new(&socket).into(), export })
}

fn nbd_tcp(text: &str, rest: &str) -> Result<Target, Failure> {
    let wrong = |why: &str| Failure::usage(format!("target {text:?}: {why}; write nbd://HOST:PORT/EXPORT"));
    let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode(export).ok_or_else(|| wrong("a %-escape is wrong"))?;
    if host.is_empty() {
        return Err(wrong("the host is missing"));
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if has_port { host.to_owned() } else { format!("{host}:{NBD_PORT}") };
    let addr = with_port.to_socket_addrs().ok().and_then(|mut all| all.next());
    let addr = addr.ok_or_else(|| wrong("the host is not an address of this machine"))?;
    if !addr.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "target {text:?}: {} can be reached from other machines and NBD without TLS is neither private nor \
             authenticated; use 127.0.0.1 or a unix socket, through a tunnel if need be",
            addr.ip()
        )));
    }
    Ok(Target::NbdTcp { addr, export })
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn encode(text: &str, plain: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b) || plain.as_bytes().contains(&b);
    text.bytes().map(|b| if keep(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_shown_alike() {
        for (text, name) in [
            ("/dev/ublkb0", "ublkb0"),
            ("/dev/nbd12", "nbd12"),
            ("nbd://127.0.0.1:10809", "default"),
            ("nbd://127.0.0.1:4000/disk", "disk"),
            ("nbd://[::1]:4000/disk", "disk"),
            ("nbd+unix:///?socket=/tmp/a%20b", "default"),
            ("nbd+unix:///x%2Fy?socket=s", "x/y"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.to_string().as_str(), target.instance_name().as_str()), (text, name));
        }
        assert_eq!(Target::parse("nbd://localhost").unwrap().to_string().rsplit(':').next(), Some("10809"));
    }

    #[test]
    fn wrong_targets_say_what_is_wrong() {
        for (text, part) in [
            ("/dev/sda", "is none of"),
            ("/dev/ublkb", "needs a number"),
            ("/dev/ublkb01", "needs a number"),
            ("/dev/nbd0p1", "needs a number"),
            ("nbd+unix://host/?socket=x", "no host"),
            ("nbd+unix:///x", "socket is missing"),
            ("nbd+unix:///x?tls=1", "only parameter"),
            ("nbd+unix:///%zz?socket=x", "%-escape"),
            ("nbd:///x", "host is missing"),
            ("nbd://0.0.0.0:10809", "without TLS"),
        ] {
            let failure = Target::parse(text).unwrap_err();
            assert!(failure.message.contains(part), "{text}: {failure}");
        }
    }
}
