//! Another user of the machine tries every file and socket of an instance: opens, locks, connects,
//! removes, renames, makes files beside them. None of this delays a start.
//!
//! To become another user the test needs root. Without root it only compares the files' modes.

use crate::host::{Host, page};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;

/// Tries everything, prints `PATH|WHAT|done or errno`, then `waiting`; keeps the locks it has, and
/// waits in threads for all others and for the metrics port.
const STRANGER: &str = r#"
import errno, fcntl, os, socket, struct, sys, threading, time
paths, port = sys.argv[2:], int(sys.argv[1])
kept, openable = [], []
def attempt(path, what, action):
    try:
        kept.append(action())
        result = 'done'
    except OSError as error:
        result = errno.errorcode.get(error.errno, str(error.errno))
    print(f'{path}|{what}|{result}', flush=True)
    return result == 'done'
def opened(path, flags):
    file = os.open(path, flags | os.O_NONBLOCK)
    openable.append(file)
    return file
def ofd(file):
    fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 0, 0, 0))
def connected(path):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    return client
for path in paths:
    if attempt(path, 'open for reading', lambda: opened(path, os.O_RDONLY)):
        file = openable[-1]
        attempt(path, 'lock shared (flock)', lambda: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB))
        attempt(path, 'lock shared (record)', lambda: ofd(file))
    if not os.path.isdir(path):
        attempt(path, 'open for writing', lambda: opened(path, os.O_WRONLY))
        attempt(path, 'connect', lambda: connected(path))
        attempt(path, 'remove', lambda: os.unlink(path))
    else:
        attempt(path, 'lock exclusive (flock)', lambda: fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))
        attempt(path, 'make a file in it', lambda: os.open(path + '/intruder', os.O_CREAT | os.O_WRONLY))
    attempt(path, 'rename', lambda: os.rename(path, path + '.gone'))
    attempt(path, 'change its mode', lambda: os.chmod(path, 0o777))
    attempt(path, 'make a file beside it', lambda: os.open(path + '.beside', os.O_CREAT | os.O_WRONLY))
    attempt(path, 'make its lock', lambda: os.open(path + '.lock', os.O_CREAT | os.O_WRONLY))
def wait_for(file):
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_SH)
def wait_for_port():
    while True:
        thief = socket.socket()
        try:
            thief.bind(('127.0.0.1', port))
            thief.listen()
            print('port taken', flush=True)
            return kept.append(thief)
        except OSError:
            time.sleep(0.001)
for file in openable:
    threading.Thread(target=wait_for, args=(file,), daemon=True).start()
threading.Thread(target=wait_for_port, daemon=True).start()
print('waiting', flush=True)
time.sleep(3600)
"#;

/// An instance in the background as a service manager starts one; killed when dropped.
struct Detached<'h> {
    host: &'h Host,
    args: Vec<String>,
}

impl Detached<'_> {
    /// Starts it, and returns its ready line.
    fn start(&self) -> String {
        let args: Vec<_> = self.args.iter().map(String::as_str).collect();
        let mut command = self.host.command(&args);
        let run = command.stderr(Stdio::piped()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        text(&run.stdout)
    }

    fn pid(&self) -> Option<i32> {
        let listed = self.host.json(&["list", "--json"]);
        listed["instances"][0]["pid"].as_i64().map(|pid| pid as i32)
    }

    fn kill(&self) {
        let pid = self.pid().expect("it runs");
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        // Its locks are free when the last thread has closed its files.
        let threads = || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
            tasks.map_or(0, |tasks| tasks.count())
        };
        while Path::new(&format!("/proc/{pid}/root/..")).exists() || threads() > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

struct Stranger(Child, BufReader<std::process::ChildStdout>);

impl Stranger {
    fn start(port: u16, paths: &[PathBuf]) -> Stranger {
        let mut command = Command::new("python3");
        command
            .args(["-c", STRANGER, &port.to_string()])
            .args(paths)
            .current_dir("/");
        let mut child = command
            .uid(NOBODY)
            .gid(NOBODY)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Stranger(child, answers)
    }

    fn lines_up_to(&mut self, last: &str) -> Vec<String> {
        let lines = self.1.by_ref().lines().map(Result::unwrap);
        lines.take_while(|line| line != last).collect()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn all_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        found.push(entry.path());
        if entry.path().is_dir() {
            all_below(&entry.path(), found);
        }
    }
}

#[test]
fn another_user_reaches_nothing_and_delays_no_start() {
    let host = Host::new();
    let root = host.folder.path();
    // As a service manager leaves them, and an older version its files: anybody may look.
    for folder in ["", "run", "run/default", "state", "shared"] {
        fs::create_dir_all(root.join(folder)).unwrap();
        set_mode(&root.join(folder), 0o755);
    }
    fs::write(root.join("run/default/pid"), "4242\n").unwrap();
    fs::write(root.join("state/default.log"), "").unwrap();
    for file in ["run/default/pid", "state/default.log"] {
        set_mode(&root.join(file), 0o644);
    }
    let is_root = geteuid().is_root();
    // Somebody who waited since the days of the older version.
    let early = is_root.then(|| {
        let mut early = Stranger::start(1, &[root.join("run/default/pid"), root.join("shared")]);
        early.lines_up_to("waiting");
        early
    });
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let socket = root.join("shared/disk.sock");
    let args = [
        "--detach",
        "--profile",
        "torture",
        "--size",
        "2MiB",
        "--metrics",
    ]
    .map(str::to_owned);
    let ends = [
        format!("127.0.0.1:{port}"),
        format!("nbd+unix:///?socket={}", socket.display()),
    ];
    let name = ["--name", "default"].map(str::to_owned);
    let daemon = Detached {
        host: &host,
        args: args.into_iter().chain(ends).chain(name).collect(),
    };
    let ready = daemon.start();
    assert!(ready.contains(&format!("127.0.0.1:{port}")), "{ready}");

    let mut paths = Vec::new();
    all_below(root, &mut paths);
    paths.sort();
    for part in [
        "run/default/pid",
        "run/default/control.sock",
        "state/default.ftld",
        "state/default.log",
    ] {
        assert!(
            paths.contains(&root.join(part)),
            "{part} is not in {paths:?}"
        );
    }
    for path in &paths {
        let wanted = if path.is_dir() { 0o022 } else { 0o077 };
        assert_eq!(
            mode(path) & wanted,
            0,
            "{} has mode {:o}",
            path.display(),
            mode(path)
        );
    }
    assert_eq!(mode(&root.join("run/default")), 0o700);
    drop(early);
    if !is_root {
        println!(
            "not root: nobody else could be asked; the modes of {} files hold",
            paths.len()
        );
        return;
    }

    let mut stranger = Stranger::start(port, &paths);
    let tried = stranger.lines_up_to("waiting");
    for line in &tried {
        println!(
            "{}",
            line.strip_prefix(&format!("{}/", root.display()))
                .unwrap_or(line)
        );
    }
    assert!(
        tried.len() > 6 * paths.len(),
        "{} attempts on {} files",
        tried.len(),
        paths.len()
    );
    for done in tried.iter().filter(|line| line.ends_with("|done")) {
        // A folder that all may list can be locked by all; nothing here asks for its lock.
        let path = Path::new(done.split('|').next().unwrap());
        let harmless = done.contains("|open for reading|") || done.contains("|lock ");
        assert!(harmless && path.is_dir() && mode(path) == 0o755, "{done}");
    }
    for round in 0..3 {
        daemon.kill();
        if round == 0 {
            stranger.lines_up_to("port taken");
        }
        let began = Instant::now();
        let ready = daemon.start();
        println!("started again in {:?}: {}", began.elapsed(), ready.trim());
        assert!(ready.contains("disk.sock metrics=off"), "{ready}");
    }
    drop(stranger);
    // The port is free again, and the metrics come by themselves.
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "no metrics");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(host.run(&["stop"]).0, 0);
}

#[test]
fn another_user_is_told_why_nothing_is_shown() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    assert_eq!(
        mode(&host.folder.path().join("state")),
        0o700,
        "made by the daemon, so nobody else's"
    );
    if !geteuid().is_root() {
        println!(
            "not root: nobody else can be asked; a folder that cannot be entered stands for theirs"
        );
        set_mode(&host.folder.path().join("run/default"), 0);
    }
    let ask = |args: &[&str]| {
        set_mode(host.folder.path(), 0o755);
        // A place where another user can run it.
        let program = host.folder.path().join("ftld");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_ftld"), &program).unwrap();
        }
        let mut command = Command::new(&program);
        command
            .args(args)
            .env("FTLD_RUNTIME_DIR", host.folder.path().join("run"))
            .current_dir("/");
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        // A process that another test began while the file was written may still have it open.
        let output = loop {
            match command.output() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                output => break output.unwrap(),
            }
        };
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, out, _) = ask(&["list"]);
    assert_eq!(code, Some(0));
    assert!(
        out.contains("default") && out.contains("of another user"),
        "{out}"
    );
    for args in [
        &["status"][..],
        &["status", "default"],
        &["stop"],
        &["stop", "default"],
    ] {
        let (code, _, error) = ask(args);
        assert_eq!(code, Some(6), "{args:?}: {error}");
        assert!(
            error.contains("only the user who started instance \"default\" controls it"),
            "{args:?}: {error}"
        );
    }
    set_mode(&host.folder.path().join("run/default"), 0o700);
    assert_eq!(daemon.client().write(0, 0, &page(1)).error, 0);
}
