//! The program as a process, on a machine of its own.

use ftld_nbd_client::{ACK, Client, go_data};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A machine of its own: where instances and images lie.
pub(crate) struct Host {
    pub(crate) folder: TempDir,
}

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    pub(crate) metrics: String,
}

impl Host {
    pub(crate) fn new() -> Self {
        Host {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("state/{name}.ftld"))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftld"));
        let folder = self.folder.path();
        command
            .env("FTLD_CONFIG_DIR", folder.join("etc"))
            .env("FTLD_STATE_DIR", folder.join("state"));
        command.env("FTLD_RUNTIME_DIR", folder.join("run"));
        command.env("FTLD_LOG", "warn").args(args);
        command
    }

    /// Exit code, standard output, standard error.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            status.code().expect("not killed"),
            text(stdout),
            text(stderr),
        )
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let (code, out, error) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {error}");
        serde_json::from_str(&out).unwrap()
    }

    pub(crate) fn fails(&self, args: &[&str], code: i32, parts: &[&str]) {
        let (found, out, error) = self.run(args);
        assert_eq!((found, out.as_str()), (code, ""), "{args:?}: {error}");
        assert_eq!(
            error
                .lines()
                .filter(|line| line.starts_with("ftld: "))
                .count(),
            1,
            "{args:?}: {error}"
        );
        for part in parts {
            assert!(error.contains(part), "{args:?}: {part:?} is not in {error}");
        }
    }

    /// Returns the standard error of its daemons.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn serve(&self, args: &[&str]) -> Daemon {
        self.serve_with(args, &[])
    }

    /// The library that, preloaded, lets writes fail while the file `fail` of the folder holds an
    /// errno; and what sets it up.
    pub(crate) fn meddler(&self) -> [(&'static str, String); 2] {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/native/meddle.c");
        let library = self.folder.path().join("meddle.so");
        let mut compiler = Command::new("cc");
        let built = compiler
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .args([source, "-ldl"])
            .status();
        assert!(built.unwrap().success(), "{source} does not build");
        let fail = self.folder.path().join("fail");
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAIL", fail.display().to_string()),
        ]
    }

    pub(crate) fn serve_with(&self, args: &[&str], env: &[(&str, &str)]) -> Daemon {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        self.serve_with_log(args, env, log.unwrap())
    }

    pub(crate) fn serve_with_log(&self, args: &[&str], env: &[(&str, &str)], log: File) -> Daemon {
        let mut command = self.command(&[
            "--metrics",
            "127.0.0.1:0",
            "--profile",
            "torture",
            "--size",
            "2MiB",
        ]);
        command
            .args(args)
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let [ready, target, metrics] = words[..] else {
            panic!("not a ready line: {line:?}")
        };
        assert_eq!(ready, "ready");
        let parts = target.split_once("socket=");
        let parts = parts.or_else(|| target.split_once("vhost-user://"));
        let socket = parts.expect("a unix socket").1.into();
        let metrics = metrics.strip_prefix("metrics=").unwrap().to_owned();
        Daemon {
            child,
            socket,
            metrics,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

impl Daemon {
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::hello(&self.socket);
        assert_eq!(client.option(7, &go_data("", &[])).last().unwrap().0, ACK);
        client
    }

    /// Where HTTP is served.
    fn addr(&self) -> &str {
        self.metrics
            .strip_prefix("http://")
            .unwrap()
            .strip_suffix("/metrics")
            .unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> (String, String) {
        get(self.addr(), path)
    }

    pub(crate) fn http(&self, request: &str) -> (String, String) {
        http(self.addr(), request)
    }

    pub(crate) fn metric(&self, series: &str) -> f64 {
        metric(self.addr(), series)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub(crate) fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// First line and body of what is at this path.
pub(crate) fn get(addr: &str, path: &str) -> (String, String) {
    http(
        addr,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    )
}

pub(crate) fn http(addr: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

pub(crate) fn metric(addr: &str, series: &str) -> f64 {
    let (_, body) = get(addr, "/metrics");
    let line = body
        .lines()
        .find(|line| line.starts_with(series))
        .unwrap_or_else(|| panic!("no {series}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

pub(crate) fn page(seed: u8) -> Vec<u8> {
    (0..4096u32)
        .map(|i| (i as u8).wrapping_mul(31) ^ seed)
        .collect()
}
