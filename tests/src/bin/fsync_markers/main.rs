//! Durability after fsync, while the device below loses power at any moment.
//!
//! usage: fsync_markers work FOLDER MARKERS SEED     until the device fails
//!        fsync_markers check FOLDER MARKERS         after it was mounted again
//!
//! Workers change files in FOLDER. They record in MARKERS, which is outside the device, the next
//! change and the changes made durable by fsync or fdatasync. `check` requires of every file the
//! last durable version, or the one in flight when the device failed, whole. It records the
//! versions found, which must persist. MARKERS is a file, or a raw disk of zeros: every marker is
//! one sector.
//!
//! `work` prints `durable: ...` when its first operation is durable. Both commands print a last
//! line; any mistake gives exit code 1 and the reason. A run without evidence fails as well: `work`
//! without a durable operation, `check` without markers.

mod check;
mod markers;
mod objects;
mod work;

use check::check;
use markers::Markers;
use std::path::Path;
use work::work;

const WORKERS: u32 = 4;

/// Names per kind and worker.
const NAMES: u32 = 6;

/// Records overwritten in place, of one page each.
const SLOTS: u32 = 32;

const SLOT_BYTES: usize = 4096;

/// Records after which a log is truncated.
const LOG_RECORDS: u64 = 64;

const SECTOR: usize = 512;

type Result<T> = std::result::Result<T, String>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["work", folder, markers, seed] => seed
            .parse()
            .map_err(|_| format!("{seed} is not a seed"))
            .and_then(|seed| {
                work(
                    Path::new(folder),
                    Markers::open_or_create(Path::new(markers))?,
                    seed,
                )
            }),
        ["check", folder, markers] => {
            Markers::open(Path::new(markers)).and_then(|m| check(Path::new(folder), m))
        }
        _ => Err("usage: fsync_markers work FOLDER MARKERS SEED | check FOLDER MARKERS".into()),
    };
    match outcome {
        Ok(line) => println!("{line}"),
        Err(why) => {
            println!("fsync_markers: {why}");
            std::process::exit(1);
        }
    }
}
