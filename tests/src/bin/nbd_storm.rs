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

use nand_model::SplitMix;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

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

// The protocol, spelled out once more on purpose: a mistake of the server must not be repeated
// here.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

fn option(out: &mut Vec<u8>, option: u32, announced: u32, data: &[u8]) {
    out.extend(b"IHAVEOPT");
    out.extend(option.to_be_bytes());
    out.extend(announced.to_be_bytes());
    out.extend(data);
}

fn request(
    extended: bool,
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u64,
) -> Vec<u8> {
    let mut out = (if extended {
        0x21e4_1c71u32
    } else {
        0x2560_9513
    })
    .to_be_bytes()
    .to_vec();
    out.extend(flags.to_be_bytes());
    out.extend(command.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(offset.to_be_bytes());
    if extended {
        out.extend(length.to_be_bytes())
    } else {
        out.extend((length as u32).to_be_bytes())
    }
    out
}

/// A client that keeps to the rules, with simple replies.
struct Honest {
    stream: UnixStream,
    next: u64,
}

impl Honest {
    fn connect(server: &Server) -> Outcome<Self> {
        let mut honest = Honest {
            stream: server.connect()?,
            next: 1,
        };
        let lost = |error: std::io::Error| format!("an honest client's handshake: {error}");
        let mut bytes = 3u32.to_be_bytes().to_vec();
        option(&mut bytes, 7, 6, &[0; 6]);
        honest.stream.read_exact(&mut [0; 18]).map_err(lost)?;
        honest.stream.write_all(&bytes).map_err(lost)?;
        loop {
            let mut head = [0; 20];
            honest.stream.read_exact(&mut head).map_err(lost)?;
            let (kind, length) = (u32_at(&head, 12), u32_at(&head, 16));
            let mut data = vec![0; length as usize];
            honest.stream.read_exact(&mut data).map_err(lost)?;
            match kind {
                1 => return Ok(honest),
                3 => {}
                _ => {
                    return Err(format!(
                        "an honest client is refused: {}",
                        String::from_utf8_lossy(&data)
                    ));
                }
            }
        }
    }

    fn ask(
        &mut self,
        command: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
        answer: &mut [u8],
    ) -> Outcome<()> {
        let lost = |error: std::io::Error| {
            format!("an honest client's request {command} at {offset}: {error}")
        };
        let cookie = self.next;
        self.next += 1;
        let mut bytes = request(false, 0, command, cookie, offset, length);
        bytes.extend(payload);
        self.stream.write_all(&bytes).map_err(lost)?;
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).map_err(lost)?;
        let expected = [
            &0x6744_6698u32.to_be_bytes()[..],
            &[0; 4],
            &cookie.to_be_bytes(),
        ]
        .concat();
        if head[..] != expected {
            return Err(format!(
                "an honest client's request {command} at {offset} is answered {head:?}"
            ));
        }
        self.stream.read_exact(answer).map_err(lost)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Blocks of the honest client, each filled with its number and version.
const BLOCK: u64 = 4096;
const BLOCKS: u64 = (SIZE - BORDER) / BLOCK;

/// Writes and checks blocks until told to stop. Returns how many requests it made and how long they
/// took, ascending, in microseconds.
fn witness(server: &Server, stop: &AtomicBool, seed: u64) -> Outcome<Vec<u32>> {
    let mut honest = Honest::connect(server)?;
    let mut rng = SplitMix::new(seed);
    let mut versions = vec![0u64; BLOCKS as usize];
    let mut took = Vec::new();
    let (mut data, mut found) = (Vec::new(), vec![0; BLOCK as usize]);
    honest.ask(TRIM, BORDER, SIZE - BORDER, &[], &mut [])?;
    let mut check = |honest: &mut Honest, block: u64, version: u64| {
        honest.ask(READ, BORDER + block * BLOCK, BLOCK, &[], &mut found)?;
        fill(&mut data, block, version);
        if found == data {
            Ok(())
        } else {
            Err(format!("block {block} does not hold version {version}"))
        }
    };
    while !stop.load(Relaxed) {
        let (block, begin) = (rng.below(BLOCKS), Instant::now());
        let version = &mut versions[block as usize];
        match rng.below(16) {
            0 => honest.ask(FLUSH, 0, 0, &[], &mut [])?,
            1..=7 => {
                let next = *version + 1;
                let mut data = Vec::new();
                fill(&mut data, block, next);
                honest.ask(WRITE, BORDER + block * BLOCK, BLOCK, &data, &mut [])?;
                *version = next;
            }
            _ => check(&mut honest, block, *version)?,
        }
        took.push(begin.elapsed().as_micros() as u32);
    }
    for (block, version) in (0..).zip(&versions) {
        check(&mut honest, block, *version)?;
    }
    took.sort_unstable();
    Ok(took)
}

/// Version 0 is what was never written: zeros.
fn fill(data: &mut Vec<u8>, block: u64, version: u64) {
    data.clear();
    let word = if version == 0 {
        0
    } else {
        SplitMix::new(block << 32 ^ version).next_u64() | 1
    };
    (0..BLOCK / 8).for_each(|i| data.extend((word.wrapping_mul(2 * i + 1)).to_le_bytes()));
}

/// Connections that misbehave at once.
const STORMERS: u64 = 3;

fn storm(server: &Server, sessions: u64, seed: u64) -> Outcome<String> {
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    // What it needs for this many clients it may keep.
    run_storm(server, &done, &stop, sessions.min(500), seed ^ 1)?;
    let before = server.cost()?;
    let begin = Instant::now();
    done.store(0, Relaxed);
    stop.store(false, Relaxed);
    let took = run_storm(server, &done, &stop, sessions, seed)?;
    let seconds = begin.elapsed().as_secs_f64();
    let after = server.cost_at_rest(before, STORM_GROWTH)?;
    let mut report = format!("{sessions} malformed sessions in {seconds:.1} s; ");
    let grown = after.anonymous as i64 - before.anonymous as i64;
    let _ = write!(
        report,
        "server: {} KiB before, {:+} KiB; ",
        before.anonymous >> 10,
        grown >> 10
    );
    let at = |permille: usize| {
        took.get(took.len() * permille / 1000)
            .copied()
            .unwrap_or_default()
    };
    let slowest = took.last().copied().unwrap_or_default();
    let (median, high) = (at(500), at(990));
    let _ = write!(
        report,
        "honest client: {} requests right, median {median} us, 99 % {high} us, slowest {slowest} us",
        took.len()
    );
    Ok(report)
}

fn run_storm(
    server: &Server,
    done: &AtomicU64,
    stop: &AtomicBool,
    sessions: u64,
    seed: u64,
) -> Outcome<Vec<u32>> {
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| witness(server, stop, seed));
        let stormers: Vec<_> = (0..STORMERS)
            .map(|own| {
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        let number = done.fetch_add(1, Relaxed);
                        if number >= sessions {
                            return Ok(());
                        }
                        session(server, SplitMix::new(seed ^ number << 20)).map_err(|why| {
                            stop.store(true, Relaxed);
                            format!("session {number} of seed {seed} on connection {own}: {why}")
                        })?;
                    }
                    Ok(())
                })
            })
            .collect();
        let ended: Vec<Outcome<()>> = stormers
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        stop.store(true, Relaxed);
        let honest = honest.join().expect("no panic");
        ended.into_iter().collect::<Outcome<()>>()?;
        honest
    })
}

/// One malformed session from its seed: what is sent, in which pieces, and how it is left.
fn session(server: &Server, mut rng: SplitMix) -> Outcome<()> {
    let rng = &mut rng;
    let mut bytes = Vec::new();
    let extended = handshake(&mut bytes, rng);
    for _ in 0..rng.below(12) {
        command(&mut bytes, extended, rng);
    }
    match rng.below(8) {
        0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend((0..rng.below(200)).map(|_| rng.next_u64() as u8)),
        2 => bytes.extend(request(extended, 0, 2, 0, 0, 0)),
        _ => {}
    }
    let mut stream = server.connect()?;
    let piece = if rng.below(4) == 0 {
        1 + rng.below(40) as usize
    } else {
        bytes.len().max(1)
    };
    for part in bytes.chunks(piece) {
        match stream.write_all(part) {
            Ok(()) => {}
            // It has closed already, as it should.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(());
            }
            // It waits for us to take its answers.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(format!("sending: {error}")),
        }
    }
    if rng.below(4) == 0 {
        return Ok(());
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut sink = [0; 64 << 10];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(format!("the server does not end it: {error}")),
        }
    }
}

/// Flags and options; whether extended headers were asked for.
fn handshake(out: &mut Vec<u8>, rng: &mut SplitMix) -> bool {
    let flags = if rng.below(20) == 0 {
        rng.next_u64() as u32
    } else {
        3
    };
    out.extend(flags.to_be_bytes());
    let mut extended = false;
    for _ in 0..rng.below(6) {
        any_option(out, rng);
    }
    match rng.below(3) {
        0 => {}
        1 => option(out, 8, 0, &[]),
        _ => {
            option(out, 11, 0, &[]);
            extended = true;
        }
    }
    if rng.below(2) == 0 {
        option(out, 10, 27, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation");
    }
    match rng.below(10) {
        0 => any_option(out, rng),
        1 => option(out, 1, 0, &[]),
        _ => option(out, 7, 6, &[0; 6]),
    }
    // A header of the other kind is a broken one.
    extended ^ (rng.below(20) == 0)
}

fn any_option(out: &mut Vec<u8>, rng: &mut SplitMix) {
    const OPTIONS: [u32; 12] = [2, 3, 5, 6, 7, 8, 9, 10, 11, 0, 12, u32::MAX];
    let number = OPTIONS[rng.below(OPTIONS.len() as u64) as usize];
    let mut data = Vec::new();
    match rng.below(6) {
        0 => {}
        1 => data.extend([0; 6]),
        2 => {
            // Lengths and counts that lie.
            data.extend((rng.below(64) as u32).wrapping_sub(8).to_be_bytes());
            data.extend((0..rng.below(40)).map(|_| rng.next_u64() as u8));
        }
        3 => {
            data.extend([0; 4]);
            data.extend((rng.next_u64() as u32).to_be_bytes());
            data.extend(b"\0\0\0\x05base:\xff\xff\xff\xff");
        }
        4 => data.resize(rng.below(70_000) as usize, b'x'),
        _ => data.extend((0..rng.below(100)).map(|_| rng.next_u64() as u8)),
    }
    let announced = match rng.below(12) {
        0 => rng.next_u64() as u32,
        1 => data.len() as u32 + 1,
        2 => (data.len() as u32).saturating_sub(1),
        _ => data.len() as u32,
    };
    if rng.below(30) == 0 {
        out.extend(rng.next_u64().to_be_bytes());
    }
    option(out, number, announced, &data);
}

fn command(out: &mut Vec<u8>, extended: bool, rng: &mut SplitMix) {
    const COMMANDS: [u16; 11] = [
        READ,
        WRITE,
        FLUSH,
        TRIM,
        CACHE,
        WRITE_ZEROES,
        BLOCK_STATUS,
        8,
        9,
        0x7fff,
        0xffff,
    ];
    let command = COMMANDS[rng.below(COMMANDS.len() as u64) as usize];
    // Each either lies below the border or is refused as a whole: the honest client's blocks stay
    // its own.
    let offset = match rng.below(8) {
        0 => SIZE - 1,
        1 => SIZE + rng.below(1 << 40),
        2 => u64::MAX - rng.below(1 << 20),
        _ => rng.below(BORDER),
    };
    let room = BORDER.saturating_sub(offset);
    let length = match rng.below(10) {
        0 => 0,
        1 => u64::from(u32::MAX) - rng.below(16),
        2 if extended => u64::MAX - rng.below(1 << 20),
        3 => room.min(rng.below(4 * MIB)),
        _ => room.min(1 + rng.below(9000)),
    };
    let changes = matches!(command, WRITE | TRIM | WRITE_ZEROES);
    let length = if changes && offset == SIZE - 1 {
        2 + rng.below(100)
    } else {
        length
    };
    let mut flags = if rng.below(6) == 0 {
        rng.next_u64() as u16
    } else {
        [0, 1][rng.below(2) as usize]
    };
    let payload = match command {
        WRITE if extended && rng.below(8) != 0 => {
            flags |= 32;
            length
        }
        WRITE => length,
        BLOCK_STATUS if extended && rng.below(2) == 0 => {
            flags |= 32;
            12
        }
        _ => 0,
    };
    let mut bytes = request(extended, flags, command, rng.next_u64(), offset, length);
    if rng.below(40) == 0 {
        bytes[rng.below(4) as usize] ^= 0x10;
    }
    out.extend(bytes);
    // Bytes that cannot be taken for a header, should the server come to read them as one.
    let sent = if rng.below(16) == 0 {
        rng.below(payload.min(MIB) + 1)
    } else {
        payload.min(MIB)
    };
    out.resize(out.len() + sent as usize, 0xEE);
}

const IDLE: usize = 1000;
const SLOW: usize = 100;
const HALF: usize = 100;
/// How long the flood is kept up while honest clients come and go.
const FLOOD: Duration = Duration::from_secs(5);
/// A new client is served within this.
const WELCOME: Duration = Duration::from_secs(1);

fn flood(server: &Server) -> Outcome<String> {
    let stop = AtomicBool::new(false);
    drop(Honest::connect(server)?);
    let before = server.cost()?;
    let welcomed = std::thread::scope(|scope| {
        let honest = scope.spawn(|| witness(server, &stop, 1));
        let slow = scope.spawn(|| trickle(server, &stop));
        let welcomed = crowd(server);
        stop.store(true, Relaxed);
        slow.join().expect("no panic")?;
        honest
            .join()
            .expect("no panic")
            .and_then(|took| welcomed.map(|welcomed| (welcomed, took.len())))
    });
    let ((slowest, clients, peak), requests) = welcomed?;
    let after = server.cost_at_rest(before, FLOOD_GROWTH)?;
    Ok(format!(
        "{IDLE} idle, {SLOW} at a byte a second, {HALF} half-sent writes of 32 MiB: {clients} new clients one after the other, the slowest \
         served after {} ms; server: {} KiB before, {} KiB during, {} KiB after; honest client: {requests} requests right",
        slowest.as_millis(),
        before.anonymous >> 10,
        peak >> 10,
        after.anonymous >> 10
    ))
}

/// Slow handshakes, a byte a second each, begun anew when they are cut off.
fn trickle(server: &Server, stop: &AtomicBool) -> Outcome<()> {
    let bytes = [
        &3u32.to_be_bytes()[..],
        &b"IHAVEOPT\0\0\0\x03\0\0\0\x40".repeat(4),
    ]
    .concat();
    let mut slow = Vec::new();
    for turn in 0.. {
        slow.resize_with(SLOW, || (server.connect(), turn));
        for (stream, begun) in &mut slow {
            let byte = bytes[(turn - *begun) % bytes.len()];
            if !stream
                .as_mut()
                .is_ok_and(|stream| stream.write_all(&[byte]).is_ok())
            {
                (*stream, *begun) = (server.connect(), turn + 1);
            }
        }
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            if stop.load(Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// The rest of the flood, and the clients that must get through it: slowest welcome, their number,
/// the server's memory at its most.
fn crowd(server: &Server) -> Outcome<(Duration, u32, u64)> {
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(server.connect()?);
    }
    let mut half = Vec::new();
    let (mut slowest, mut clients, mut peak) = (Duration::ZERO, 0, 0);
    let end = Instant::now() + FLOOD;
    while Instant::now() < end {
        half.retain(|stream: &UnixStream| !is_closed(stream));
        while half.len() < HALF {
            // Those that find no place are refused at once, and are half-sent all the same.
            half.push(half_sent(server)?);
        }
        peak = peak.max(server.cost()?.anonymous);
        // The flood stands still for as long as an honest client would wait before its first
        // request.
        std::thread::sleep(Duration::from_millis(600));
        let begin = Instant::now();
        Honest::connect(server)?.ask(READ, 0, 512, &[], &mut [0; 512])?;
        slowest = slowest.max(begin.elapsed());
        clients += 1;
    }
    if slowest > WELCOME {
        return Err(format!("a new client was served after {slowest:?} only"));
    }
    drop(idle);
    Ok((slowest, clients, peak))
}

/// A client that is let in and sends a part of a large write.
fn half_sent(server: &Server) -> Outcome<UnixStream> {
    let mut stream = server.connect()?;
    let mut bytes = 3u32.to_be_bytes().to_vec();
    option(&mut bytes, 7, 6, &[0; 6]);
    bytes.extend(request(false, 0, WRITE, 1, 0, BORDER));
    bytes.resize(bytes.len() + 100_000, 0xEE);
    stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .map_err(|error| error.to_string())?;
    // A server that has no place closes before it has read it all.
    let _ = stream.write_all(&bytes);
    Ok(stream)
}

fn is_closed(stream: &UnixStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let mut stream = stream;
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}
