//! Flood of connections beyond the server's limit: idle ones, slow ones, half-sent requests.

use super::wire::{READ, WRITE, option, request};
use super::witness::{Honest, witness};
use super::{BORDER, FLOOD_GROWTH, Outcome, Server};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const IDLE: usize = 1000;

const SLOW: usize = 100;

const HALF: usize = 100;

/// Duration of the flood while honest clients connect and disconnect.
const FLOOD: Duration = Duration::from_secs(5);

/// Time limit for serving a new client.
const WELCOME: Duration = Duration::from_secs(1);

pub(super) fn flood(server: &Server) -> Outcome<String> {
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

/// Runs slow handshakes, one byte per second each, and restarts them when they are closed.
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

/// Runs the rest of the flood, and the clients that must succeed despite it. Returns the slowest
/// welcome, the number of clients, and the server's peak memory.
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
            // The server rejects excess connections at once; they count as half-sent all the same.
            half.push(half_sent(server)?);
        }
        peak = peak.max(server.cost()?.anonymous);
        // The flood pauses for as long as an honest client would wait before its first request.
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

/// Connects a client and sends part of a large write.
fn half_sent(server: &Server) -> Outcome<UnixStream> {
    let mut stream = server.connect()?;
    let mut bytes = 3u32.to_be_bytes().to_vec();
    option(&mut bytes, 7, 6, &[0; 6]);
    bytes.extend(request(false, 0, WRITE, 1, 0, BORDER));
    bytes.resize(bytes.len() + 100_000, 0xEE);
    stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .map_err(|error| error.to_string())?;
    // A full server closes the connection before it has read all bytes.
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
