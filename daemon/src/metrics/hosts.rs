//! Host names that the server accepts. A page of another site can make a browser request a server
//! on this machine under that site's own name (DNS rebinding). The page could then read the answer.
//! The server therefore refuses names that are not configured here.

use std::net::IpAddr;

/// Accepted names, besides IP addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Accepts these names and the machine's own host name.
    pub(crate) fn new(names: &[String]) -> Self {
        let machine = rustix::system::uname();
        let own = machine.nodename().to_string_lossy();
        let names = names
            .iter()
            .map(String::as_str)
            .chain([&*own])
            .filter(|name| !name.is_empty());
        Hosts {
            names: names.map(|name| plain(name).to_owned()).collect(),
        }
    }

    /// Returns whether a request with this `Host` header is accepted.
    pub(crate) fn allow(&self, header: &str) -> bool {
        let Some(host) = host_of(header) else {
            return false;
        };
        let name = plain(host);
        let address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        address.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.names.contains(&name)
    }
}

/// Normalizes a name: lower case, without the root's dot at the end.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Returns the header without its port.
fn host_of(header: &str) -> Option<&str> {
    let after_brackets = header.find(']').map_or(0, |end| end + 1);
    match header[after_brackets..].find(':') {
        None => Some(header),
        Some(colon) => {
            let (host, port) = header.split_at(after_brackets + colon);
            port[1..]
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then_some(host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_of_ours_are_allowed_and_no_others() {
        let hosts = Hosts::new(&["ftld.example.org".into()]);
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        for header in [
            "127.0.0.1:9917",
            "192.0.2.7",
            "[::1]:9917",
            "[2001:db8::1]",
            "localhost",
            "LocalHost:1",
            "x.localhost:9917",
            "ftld.example.org:9917",
            "FTLD.Example.org.",
            own.trim(),
        ] {
            assert!(hosts.allow(header), "{header}");
        }
        for header in [
            "",
            "evil.example.org:9917",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "ftld.example.org.evil",
            "[::1",
            "localhost:9917@evil",
            "[localhost]",
            "::1",
        ] {
            assert!(!hosts.allow(header), "{header}");
        }
    }
}
