//! The program under a service manager: its messages, its keep-alives for the watchdog, and the
//! sockets it inherits.

use crate::host::{Host, page};
use ftld_nbd_client::{ACK, Client, go_data};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// A service manager's ear.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new(host: &Host) -> Self {
        let path = host.folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Manager {
            socket,
            path: path.to_str().unwrap().to_owned(),
        }
    }

    /// The next message, if one comes in time.
    fn hear(&self, within: Duration) -> Option<String> {
        let mut buffer = [0; 4096];
        self.socket.set_read_timeout(Some(within)).unwrap();
        match self.socket.recv(&mut buffer) {
            Ok(len) => Some(String::from_utf8(buffer[..len].to_vec()).unwrap()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message that has this line; others are passed over.
    fn until(&self, line: &str) -> String {
        loop {
            let message = self
                .hear(LONG)
                .unwrap_or_else(|| panic!("{line:?} was never said"));
            if message.lines().any(|said| said.starts_with(line)) {
                return message;
            }
        }
    }
}

#[test]
fn the_manager_hears_of_every_step_and_kicks_stop_with_the_process() {
    let host = Host::new();
    let manager = Manager::new(&host);
    let daemon = host.serve_with(
        &[],
        &[
            ("NOTIFY_SOCKET", &manager.path),
            ("WATCHDOG_USEC", "600000"),
        ],
    );
    let first = manager.hear(LONG).unwrap();
    assert!(
        first.contains("EXTEND_TIMEOUT_USEC=30000000\nSTATUS=recovering: opening "),
        "{first}"
    );
    let ready = manager.until("READY=1");
    assert!(
        ready.contains("STATUS=serving nbd+unix:///?socket="),
        "{ready}"
    );
    let idle = manager.until("WATCHDOG=1");
    assert!(
        idle.contains("STATUS=lazyftl: write amplification -, ")
            && idle.contains(" free blocks, 0.0 MB/s"),
        "{idle}"
    );
    let mut client = daemon.client();
    assert_eq!(client.write(0, 4096, &page(1)).error, 0);
    manager.until("STATUS=lazyftl: write amplification 1.");

    daemon.signal(Signal::SIGSTOP);
    // Skips the earlier messages.
    while manager.hear(Duration::from_millis(600)).is_some() {}
    assert_eq!(
        manager.hear(Duration::from_millis(1_200)),
        None,
        "twice the watchdog's limit"
    );
    daemon.signal(Signal::SIGCONT);
    manager.until("WATCHDOG=1");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(manager.until("STOPPING=1"), "STOPPING=1\nSTATUS=stopping\n");
    assert_eq!(daemon.exit_code(), Some(0));
}

/// The program with these sockets, as a service manager starts it.
fn start(host: &Host, names: &str, sockets: &[OwnedFd], args: &[&str]) -> Child {
    let ftld = host.command(&[]);
    let mut shell = Command::new("bash");
    shell.envs(
        ftld.get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    let moves: String = sockets
        .iter()
        .enumerate()
        .map(|(at, fd)| format!(" {}<&{}", at + 3, fd.as_raw_fd()))
        .collect();
    let script = format!("exec{moves}; LISTEN_PID=$$ exec \"$@\"");
    shell
        .env("LISTEN_FDS", sockets.len().to_string())
        .env("LISTEN_FDNAMES", names);
    shell
        .args(["-c", &script, "bash"])
        .arg(ftld.get_program())
        .args(args);
    shell
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// One that a child inherits.
fn inherited(socket: &impl AsFd) -> OwnedFd {
    nix::unistd::dup(socket).unwrap()
}

#[test]
fn sockets_that_are_passed_are_used_and_stay() {
    let host = Host::new();
    let path = host.folder.path().join("passed.sock");
    let nbd = UnixListener::bind(&path).unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = metrics.local_addr().unwrap();
    let target = "nbd+unix:///?socket=/nowhere/else.sock";
    let args = [
        "--profile",
        "torture",
        "--size",
        "2MiB",
        "--metrics",
        "off",
        target,
    ];
    let mut child = start(
        &host,
        "metrics:nbd",
        &[inherited(&metrics), inherited(&nbd)],
        &args,
    );
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(
        line,
        format!(
            "ready nbd+unix:///?socket={} metrics=http://{http}/metrics\n",
            path.display()
        )
    );
    let mut client = Client::hello(&path);
    assert_eq!(client.option(7, &go_data("", &[])).last().unwrap().0, ACK);
    assert_eq!(client.write(0, 4096, &page(1)).error, 0);
    let (mut stream, mut answer) = (TcpStream::connect(http).unwrap(), String::new());
    write!(
        stream,
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("serving\n"), "{answer}");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id() as i32),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(path.exists(), "the file belongs to the service manager");
}

#[test]
fn sockets_that_nobody_would_use_are_named() {
    let host = Host::new();
    let unix = |name: &str| UnixListener::bind(host.folder.path().join(name)).unwrap();
    let (one, two, tcp) = (
        unix("one"),
        unix("two"),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let (udp, connected) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        TcpStream::connect(tcp.local_addr().unwrap()).unwrap(),
    );
    let file = tempfile::tempfile().unwrap();
    let nbd = "nbd+unix:///?socket=x";
    for (names, sockets, target, part) in [
        (
            "http",
            vec![inherited(&tcp)],
            nbd,
            "socket \"http\" from the service manager: nobody here asks for it",
        ),
        (
            "",
            vec![inherited(&one)],
            nbd,
            "FileDescriptorName= is nbd or metrics",
        ),
        (
            "nbd",
            vec![inherited(&udp)],
            nbd,
            "neither a unix nor a TCP stream socket",
        ),
        (
            "nbd",
            vec![inherited(&file)],
            nbd,
            "neither a unix nor a TCP stream socket",
        ),
        ("metrics", vec![inherited(&one)], nbd, "no TCP socket"),
        ("nbd", vec![inherited(&connected)], nbd, "needs Accept=no"),
        (
            "nbd:nbd",
            vec![inherited(&one), inherited(&two)],
            nbd,
            "two of this name",
        ),
        (
            "nbd",
            vec![inherited(&one)],
            "/dev/ublkb0",
            "/dev/ublkb0 is no NBD address",
        ),
    ] {
        let output = start(&host, names, &sockets, &["--metrics", "off", target])
            .wait_with_output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), error.contains(part)),
            (Some(2), true),
            "{names}: {error}"
        );
    }
    assert!(
        !host.folder.path().join("state").exists(),
        "nothing was made"
    );
}
