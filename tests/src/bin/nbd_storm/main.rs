//! Hostile clients against a running NBD server on a unix socket, while another client's data is
//! continuously written and checked.
//!
//!     nbd_storm sessions SOCKET PID SESSIONS SEED
//!         malformed sessions in sequence on three connections
//!     nbd_storm flood SOCKET PID
//!         1,000 idle sockets, 100 that send one byte per second, 100 half-sent writes
//!
//! PID is the server's: its memory, file descriptors and threads are monitored. The export is the
//! default one and has at least 64 MiB; all of it is overwritten. Fails if the server dies, if a
//! session does not end, or if the server has grown. Fails also if the other client gets an error,
//! wrong data or no connection. `tests/native/nbd_hostile.sh` runs both.

mod flood;
mod storm;
mod wire;
mod witness;

use flood::flood;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use storm::storm;

const MIB: u64 = 1 << 20;

/// Hostile clients write below this offset, the honest one above.
const BORDER: u64 = 32 * MIB;

const SIZE: u64 = 64 * MIB;

/// Time after the client's close within which a session must have ended and sent every answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Permitted memory growth of the server after malformed sessions, whatever their number. It grows
/// ever more slowly (8 MiB after 20,000 sessions, 12 MiB after 60,000, 18 MiB after a million). A
/// leak of 32 bytes in each of a million sessions would total as much.
const STORM_GROWTH: u64 = 32 * MIB;

/// Permitted growth after a flood: the server's allocator may keep the buffers of all connections
/// served at once.
const FLOOD_GROWTH: u64 = 64 * MIB;

type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sessions", socket, pid, sessions, seed] => {
            match (pid.parse(), sessions.parse(), seed.parse()) {
                (Ok(pid), Ok(sessions), Ok(seed)) => {
                    storm(&Server::new(socket, pid), sessions, seed)
                }
                _ => Err("PID, SESSIONS and SEED are numbers".into()),
            }
        }
        ["flood", socket, pid] => match pid.parse() {
            Ok(pid) => flood(&Server::new(socket, pid)),
            Err(_) => Err("PID is a number".into()),
        },
        _ => Err("usage: nbd_storm sessions SOCKET PID SESSIONS SEED | flood SOCKET PID".into()),
    };
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("nbd_storm: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Server under test.
struct Server {
    socket: PathBuf,
    pid: u32,
}

/// Resources of a process.
#[derive(Clone, Copy)]
struct Cost {
    anonymous: u64,
    files: u64,
    threads: u64,
}

impl Server {
    fn new(socket: &str, pid: u32) -> Self {
        Server {
            socket: socket.into(),
            pid,
        }
    }

    fn connect(&self) -> Outcome<UnixStream> {
        let stream = UnixStream::connect(&self.socket)
            .map_err(|error| format!("cannot connect: {error}"))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(|error| error.to_string())?;
        stream
            .set_write_timeout(Some(PATIENCE))
            .map_err(|error| error.to_string())?;
        Ok(stream)
    }

    fn cost(&self) -> Outcome<Cost> {
        let folder = Path::new("/proc").join(self.pid.to_string());
        let gone = |error| format!("the server is gone: {error}");
        let status = std::fs::read_to_string(folder.join("status")).map_err(gone)?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line
                .and_then(|line| line.split_whitespace().next())
                .and_then(|text| text.parse().ok());
            number.ok_or_else(|| format!("the server is gone: no {name} in its status"))
        };
        let files = std::fs::read_dir(folder.join("fd")).map_err(gone)?.count() as u64;
        Ok(Cost {
            anonymous: field("RssAnon:")? << 10,
            files,
            threads: field("Threads:")?,
        })
    }

    /// Returns the cost after the server has detected that its clients are gone.
    fn cost_at_rest(&self, before: Cost, growth: u64) -> Outcome<Cost> {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.cost()?;
            let rests = now.files <= before.files && now.threads <= before.threads;
            if rests && now.anonymous <= before.anonymous + growth {
                return Ok(now);
            }
            if Instant::now() > end {
                return Err(format!(
                    "the server keeps {} descriptors, {} threads and {} KiB; before, {}, {} and {} KiB",
                    now.files,
                    now.threads,
                    now.anonymous >> 10,
                    before.files,
                    before.threads,
                    before.anonymous >> 10
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
