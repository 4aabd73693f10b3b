//! Honest client alongside the storm, with checked data.

use super::wire::{FLUSH, READ, TRIM, WRITE, option, request, u32_at};
use super::{BORDER, Outcome, SIZE, Server};
use nand_model::SplitMix;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Conforming client, with simple replies.
pub(super) struct Honest {
    stream: UnixStream,
    next: u64,
}

impl Honest {
    pub(super) fn connect(server: &Server) -> Outcome<Self> {
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

    pub(super) fn ask(
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

/// Block size of the honest client; each block is filled with its number and version.
const BLOCK: u64 = 4096;

const BLOCKS: u64 = (SIZE - BORDER) / BLOCK;

/// Writes and checks blocks until `stop` is set. Returns the latencies of its requests in us,
/// ascending.
pub(super) fn witness(server: &Server, stop: &AtomicBool, seed: u64) -> Outcome<Vec<u32>> {
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

/// Fills a block; version 0 is a block never written: zeros.
fn fill(data: &mut Vec<u8>, block: u64, version: u64) {
    data.clear();
    let word = if version == 0 {
        0
    } else {
        SplitMix::new(block << 32 ^ version).next_u64() | 1
    };
    (0..BLOCK / 8).for_each(|i| data.extend((word.wrapping_mul(2 * i + 1)).to_le_bytes()));
}
