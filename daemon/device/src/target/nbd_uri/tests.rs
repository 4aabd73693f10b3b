use super::*;
use proptest::prelude::*;

fn uri(text: &str) -> NbdUri {
    text.parse().unwrap()
}

fn error(text: &str) -> String {
    text.parse::<NbdUri>().unwrap_err().to_string()
}

#[test]
fn addresses_that_are_understood() {
    let tcp = |a: &str, export: &str| NbdUri {
        endpoint: Endpoint::Tcp(a.parse().unwrap()),
        export: export.into(),
        tls: false,
    };
    assert_eq!(uri("nbd://127.0.0.1:99/disk"), tcp("127.0.0.1:99", "disk"));
    assert_eq!(uri("nbd://localhost"), tcp("127.0.0.1:10809", ""));
    assert_eq!(uri("nbd://[::1]:7/"), tcp("[::1]:7", ""));
    assert_eq!(uri("nbd://[::1]"), tcp("[::1]:10809", ""));
    assert_eq!(
        uri("nbds://[::1]:7/"),
        NbdUri {
            tls: true,
            ..tcp("[::1]:7", "")
        }
    );
    let unix = NbdUri {
        endpoint: Endpoint::Unix("/run/a b.sock".into()),
        export: "x/y".into(),
        tls: false,
    };
    assert_eq!(uri("nbd+unix:///x/y?socket=/run/a%20b.sock"), unix);
    assert_eq!(
        uri("nbds+unix:///x/y?socket=/run/a%20b.sock"),
        NbdUri { tls: true, ..unix }
    );
    assert_eq!(
        uri("nbd+unix://?socket=s").endpoint,
        Endpoint::Unix("s".into())
    );
}

#[test]
fn addresses_that_are_not_say_why() {
    for (text, reason) in [
        ("/dev/nbd0", "not an NBD address"),
        ("http://x", "unknown scheme 'http'"),
        ("nbdss://localhost", "unknown scheme 'nbdss'"),
        ("nbd://", "host is missing"),
        ("nbd://example.org", "'example.org' is not an IP address"),
        ("nbd://localhost:70000", "'70000' is not a port"),
        ("nbd://localhost?socket=x", "'socket=x' means nothing"),
        ("nbd+unix:///disk", "socket is missing"),
        ("nbd+unix:///?socket=", "socket is missing"),
        ("nbd+unix://host/?socket=x", "no host"),
        ("nbd+unix:///?socket=a&tls=1", "'tls=1' is not understood"),
        ("nbd+unix:///%zz?socket=a", "two hex digits"),
        ("nbd+unix:///?socket=%00", "zero byte"),
    ] {
        let said = error(text);
        assert!(said.starts_with(text) && said.contains(reason), "{said}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(export in "\\PC{0,20}", path in "/\\PC{1,20}", tls: bool) {
        let unix = NbdUri { endpoint: Endpoint::Unix(path.into()), export, tls };
        prop_assert_eq!(&unix.to_string().parse::<NbdUri>().unwrap(), &unix);
    }
}
