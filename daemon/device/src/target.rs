//! Address of a device: `/dev/ublkbN`, `/dev/nbdN`, an NBD address, or a vhost-user socket.

mod nbd_uri;

pub use nbd_uri::SOCKET_PATH_MAX;
pub use nbd_uri::{Endpoint, NbdUri, UriError};

use ftld_kit::failure::Failure;
use nbd_uri::{Fault, decode_percent, encode_percent};
use std::fmt;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A ublk device by number.
    Ublk(u32),
    /// `/dev/nbdN`: the kernel's NBD client N, connected to our own server.
    NbdKernel(u32),
    /// An NBD server on a unix socket or a TCP address.
    Nbd(NbdUri),
    /// A vhost-user-blk server on a unix socket with this absolute path.
    VhostUser(PathBuf),
}

const VHOST_USER: &str = "vhost-user://";

impl Target {
    /// Reads a target as given on the command line.
    ///
    /// # Errors
    /// The text is no target; the message says how one is written.
    pub fn parse(text: &str) -> Result<Target, Failure> {
        for (kind, target) in [
            ("/dev/ublkb", Target::Ublk as fn(u32) -> Target),
            ("/dev/nbd", Target::NbdKernel),
        ] {
            if let Some(number) = text.strip_prefix(kind) {
                return device_number(text, kind, number).map(target);
            }
        }
        if text.starts_with("nbd") {
            return nbd(text);
        }
        if let Some(path) = text.strip_prefix(VHOST_USER) {
            return vhost_user(path)
                .map_err(|fault| Failure::usage(format!("target {text}: {fault}")));
        }
        if text.ends_with(".ftld") {
            return Err(Failure::usage(format!(
                "target {text:?} is the name of an image; write --image {text}"
            )));
        }
        Err(Failure::usage(format!(
            "target {text:?} is none of /dev/ublkbN, /dev/nbdN, nbd://HOST:PORT[/EXPORT], nbd+unix:///[EXPORT]?socket=PATH, \
             vhost-user:///PATH; see ftld --help"
        )))
    }

    /// Returns the target that `ftld recover TEXT` means: a device may be given by the name of its
    /// instance, as other commands take it.
    ///
    /// # Errors
    /// It is the name of an instance that leaves no device when its daemon dies.
    pub fn text_to_recover(text: &str) -> Result<String, Failure> {
        if text.contains(['/', ':']) {
            return Ok(text.into());
        }
        let numbered = ["ublkb", "nbd"]
            .iter()
            .find_map(|kind| text.strip_prefix(kind)?.parse::<u32>().ok());
        match numbered {
            Some(_) => Ok(format!("/dev/{text}")),
            None => Err(Failure::usage(format!(
                "{text}: only /dev/ublkbN and /dev/nbdN outlive their daemon and can be reattached: `ftld recover \
                 /dev/ublkbN --name {text}`; `ftld start {text}` serves an instance at an \
                 NBD address again"
            ))),
        }
    }

    /// The name an instance takes from its target.
    pub fn instance_name(&self) -> String {
        match self {
            Target::Ublk(number) => format!("ublkb{number}"),
            Target::NbdKernel(number) => format!("nbd{number}"),
            Target::Nbd(uri) if uri.export.is_empty() => "default".into(),
            Target::Nbd(uri) => uri.export.clone(),
            Target::VhostUser(_) => "default".into(),
        }
    }

    /// Whether it is a block device of this kernel.
    pub fn in_kernel(&self) -> bool {
        matches!(self, Target::Ublk(_) | Target::NbdKernel(_))
    }

    /// The address, if other machines can reach it.
    pub fn beyond_this_machine(&self) -> Option<IpAddr> {
        match self {
            Target::Nbd(NbdUri {
                endpoint: Endpoint::Tcp(addr),
                ..
            }) => Some(addr.ip()).filter(|ip| !ip.is_loopback()),
            _ => None,
        }
    }

    /// The name of its transport, as in metric labels.
    pub fn transport(&self) -> &'static str {
        match self {
            Target::Ublk(_) => "ublk",
            Target::NbdKernel(_) | Target::Nbd(_) => "nbd",
            Target::VhostUser(_) => "vhost-user",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ublk(number) => write!(f, "/dev/ublkb{number}"),
            Target::NbdKernel(number) => write!(f, "/dev/nbd{number}"),
            Target::Nbd(uri) => uri.fmt(f),
            Target::VhostUser(path) => {
                write!(
                    f,
                    "{VHOST_USER}{}",
                    encode_percent(path.as_os_str().as_bytes())
                )
            }
        }
    }
}

fn device_number(text: &str, kind: &str, number: &str) -> Result<u32, Failure> {
    let digits =
        number.bytes().all(|b| b.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
    let number = number.parse().ok().filter(|_| digits);
    number.ok_or_else(|| {
        Failure::usage(format!(
            "target {text:?}: the device needs a number, as in {kind}0"
        ))
    })
}

fn nbd(text: &str) -> Result<Target, Failure> {
    text.parse()
        .map(Target::Nbd)
        .map_err(|error| Failure::usage(format!("target {error}")))
}

fn vhost_user(path: &str) -> Result<Target, Fault> {
    let path = decode_percent(path)?;
    match path.len() {
        _ if !path.starts_with('/') => Err(Fault::Missing("absolute path", "vhost-user:///PATH")),
        len if len > SOCKET_PATH_MAX => Err(Fault::LongPath(len)),
        _ => Ok(Target::VhostUser(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_shown_alike() {
        for (text, name) in [
            ("/dev/ublkb0", "ublkb0"),
            ("/dev/nbd12", "nbd12"),
            ("nbd://127.0.0.1:4000/disk", "disk"),
            ("nbd://[::1]:4000/disk", "disk"),
            ("nbd+unix:///?socket=/tmp/a%20b", "default"),
            ("nbd+unix:///x?socket=s", "x"),
            ("nbds://192.0.2.1:4000/disk", "disk"),
            ("vhost-user:///tmp/a%20b", "default"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(
                (target.to_string().as_str(), target.instance_name().as_str()),
                (text, name)
            );
        }
    }

    #[test]
    fn what_outlives_its_daemon_is_recovered_by_its_name_too() {
        for (text, target) in [
            ("ublkb0", "/dev/ublkb0"),
            ("nbd12", "/dev/nbd12"),
            ("/dev/nbd1", "/dev/nbd1"),
            ("nbd://[::1]:1/a", "nbd://[::1]:1/a"),
        ] {
            assert_eq!(Target::text_to_recover(text).unwrap(), target);
        }
        for name in ["a", "nbd", "ublkbx", "default"] {
            let failure = Target::text_to_recover(name).unwrap_err();
            assert!(
                failure
                    .message
                    .starts_with(&format!("{name}: only /dev/ublkbN")),
                "{failure}"
            );
        }
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
            ("nbd:///x", "host is missing"),
            ("vhost-user://vu", "write vhost-user:///PATH"),
            ("vhost-user:///%00", "zero byte"),
            (
                &format!("vhost-user:///{}", "x".repeat(107)),
                "choose a shorter one",
            ),
        ] {
            let failure = Target::parse(text).unwrap_err();
            assert!(failure.message.contains(part), "{text}: {failure}");
        }
    }
}
