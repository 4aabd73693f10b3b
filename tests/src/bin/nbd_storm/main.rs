//! Hostile clients against a running NBD server on a unix socket, while another client's data is
//! written and checked all the time.
//!
//!     nbd_storm sessions SOCKET PID SESSIONS SEED     malformed sessions, one after the other on
//!     three connections nbd_storm flood SOCKET PID                      1,000 idle sockets, 100
//!     that send a byte a second, 100 half-sent writes
//!
//! PID is the server's: its memory, file descriptors and threads are watched. The export is the
//! default one and at least 64 MiB; all of it is written over. Fails when the server dies, when a
//! session does not end, when the other client sees an error, wrong data or is locked out, or when
//! the server has grown. `tests/native/nbd_hostile.sh` runs both.

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

/// Hostile clients write below, the honest one above.
const BORDER: u64 = 32 * MIB;

const SIZE: u64 = 64 * MIB;

/// A session that is closed on our side must be over by then, and every answer be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much more memory the server may have after malformed sessions, however many. It grows ever
/// more slowly (8 MiB after 20,000, 12 after 60,000, 18 after a million); 32 bytes that each of a
/// million leaks would come to as much.
const STORM_GROWTH: u64 = 32 * MIB;

/// The same after a flood: its allocator may keep the buffers of as many connections as it serves
/// at once.
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

/// The server under attack.
struct Server {
    socket: PathBuf,
    pid: u32,
}

/// What a process costs.
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

    /// The cost once the server has noticed that its clients are gone.
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
