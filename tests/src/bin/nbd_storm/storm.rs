//! Malformed sessions.

use super::wire::{BLOCK_STATUS, CACHE, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES, option, request};
use super::witness::witness;
use super::{BORDER, MIB, Outcome, SIZE, STORM_GROWTH, Server};
use nand_model::SplitMix;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// Concurrent malformed connections.
const STORMERS: u64 = 3;

pub(super) fn storm(server: &Server, sessions: u64, seed: u64) -> Outcome<String> {
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    // The server may keep the memory needed for this number of clients.
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

/// Runs one malformed session; the seed determines the bytes, the pieces, and the end.
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
            // The server has closed the connection, as required.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(());
            }
            // The server waits until the client reads its answers.
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

/// Appends flags and options; returns whether extended headers were requested.
pub(super) fn handshake(out: &mut Vec<u8>, rng: &mut SplitMix) -> bool {
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
    // A header of the other kind is malformed.
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
            // Wrong lengths and counts.
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

pub(super) fn command(out: &mut Vec<u8>, extended: bool, rng: &mut SplitMix) {
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
    // Each request is below the border or is rejected as a whole: it never touches the honest
    // client's blocks.
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
    // Bytes that are no valid header, in case the server parses them as one.
    let sent = if rng.below(16) == 0 {
        rng.below(payload.min(MIB) + 1)
    } else {
        payload.min(MIB)
    };
    out.resize(out.len() + sent as usize, 0xEE);
}
