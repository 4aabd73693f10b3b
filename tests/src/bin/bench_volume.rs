//! Benchmark of a volume without a transport: threads of this process read and write it at random,
//! in requests of 4 KiB. `tests/bench/volume.py` runs it.
//!
//!     bench_volume CONFIG.toml DRIVE_WRITES ROUNDS MILLISECONDS THREADS...
//!
//! CONFIG.toml has the options of the daemon; it names the image, which must not exist and is
//! removed at the end. The device is filled sequentially and gets DRIVE_WRITES times its size in
//! random writes. In each round every number of THREADS reads for MILLISECONDS, then every number
//! writes; a later round begins with another number. Every measurement prints one line:
//!
//!     read|write THREADS REQUESTS WALL_SECONDS CPU_SECONDS
//!
//! CPU time is that of the threads that send requests. As in the daemon, a thread syncs when erased
//! space runs short. Every page contains its own number, and every read is checked for it.

use ftld_device::config::Config;
use ftld_device::device::BlockDevice;
use ftld_device::instance::Dirs;
use ftld_device::options::DeviceArgs;
use ftld_device::stack::{Stack, open_or_create};
use nand_model::SplitMix;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PAGE: usize = 4096;
/// Bytes of a request of the sequential fill.
const FILL: usize = 128 << 10;
/// Requests of a thread between two looks at the clock.
const BATCH: u64 = 64;
/// Longest wait of the sync thread for work.
const SYNC_PATIENCE: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_volume: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What to measure.
struct Plan {
    drive_writes: u64,
    rounds: usize,
    /// Length of a measurement.
    length: Duration,
    threads: Vec<u64>,
}

fn run(args: &[&str]) -> Result<(), Failure> {
    let [file, drive_writes, rounds, millis, ref threads @ ..] = *args else {
        let usage = "bench_volume CONFIG.toml DRIVE_WRITES ROUNDS MILLISECONDS THREADS...";
        return Err(format!("usage: {usage}").into());
    };
    let threads: Result<_, _> = threads.iter().map(|count| count.parse()).collect();
    let plan = Plan {
        drive_writes: drive_writes.parse()?,
        rounds: rounds.parse()?,
        length: Duration::from_millis(millis.parse()?),
        threads: threads?,
    };
    let device = DeviceArgs {
        config: Some(file.into()),
        ..DeviceArgs::default()
    };
    let config = Config::new(&device, &Dirs::from_env())?;
    if config.image.exists() {
        return Err(format!("{} exists already", config.image.display()).into());
    }
    let done = open_or_create(&config)
        .map_err(Failure::from)
        .and_then(|stack| bench(&stack, &plan));
    remove(&config.image)?;
    done
}

fn remove(image: &Path) -> Result<(), Failure> {
    if image.exists() {
        std::fs::remove_file(image)?;
    }
    Ok(())
}

fn bench(stack: &Stack, plan: &Plan) -> Result<(), Failure> {
    let volume = &stack.volume;
    std::thread::scope(|scope| {
        // Dropped at the end, also by a panic.
        let (_stop, stopped) = channel::<()>();
        scope.spawn(move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                volume.reclaim_when_short(SYNC_PATIENCE);
            }
        });
        measure(volume, plan)
    })
}

fn measure(volume: &dyn BlockDevice, plan: &Plan) -> Result<(), Failure> {
    fill(volume)?;
    let mut client = Client::new(volume, 0);
    for _ in 0..plan.drive_writes * client.pages {
        client.write()?;
    }
    for round in 0..plan.rounds {
        for (index, name) in ["read", "write"].into_iter().enumerate() {
            for turn in 0..plan.threads.len() {
                let count = plan.threads[(turn + round) % plan.threads.len()];
                let seed = (round * 2 + index) as u64 * 1000;
                let reads = name == "read";
                let (requests, wall, cpu) = together(volume, reads, count, plan.length, seed)?;
                println!("{name} {count} {requests} {wall:.6} {cpu:.6}");
            }
        }
    }
    Ok(())
}

/// Writes all pages in order; each gets its number.
fn fill(volume: &dyn BlockDevice) -> Result<(), Failure> {
    let mut data = vec![0xA5; FILL];
    for offset in (0..volume.size()).step_by(FILL) {
        let len = FILL.min((volume.size() - offset) as usize);
        for (index, page) in data[..len].chunks_mut(PAGE).enumerate() {
            page[..8].copy_from_slice(&(offset / PAGE as u64 + index as u64).to_le_bytes());
        }
        volume.write(offset, &data[..len])?;
    }
    Ok(())
}

/// Runs `count` threads for `length`. Returns their requests, the wall time and the CPU time of
/// all threads, s.
fn together(
    volume: &dyn BlockDevice,
    reads: bool,
    count: u64,
    length: Duration,
    seed: u64,
) -> Result<(u64, f64, f64), Failure> {
    let begin = Instant::now();
    let work =
        |number: u64| move || Client::new(volume, 1 + seed + number).work(reads, begin, length);
    let each: Vec<(u64, f64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(work(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Result<_, Failure>>()
    })?;
    let wall = begin.elapsed().as_secs_f64();
    let sum = |(requests, cpu), (more, used)| (requests + more, cpu + used);
    let (requests, cpu) = each.into_iter().fold((0, 0.0), sum);
    Ok((requests, wall, cpu))
}

/// Sends random requests of one page, one after the other.
struct Client<'a> {
    volume: &'a dyn BlockDevice,
    pages: u64,
    rng: SplitMix,
    page: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(volume: &'a dyn BlockDevice, seed: u64) -> Self {
        Client {
            volume,
            pages: volume.size() / PAGE as u64,
            rng: SplitMix::new(seed),
            page: vec![0x5A; PAGE],
        }
    }

    /// Sends requests until `length` after `begin`. Returns their number and this thread's CPU
    /// time, s.
    fn work(
        mut self,
        reads: bool,
        begin: Instant,
        length: Duration,
    ) -> Result<(u64, f64), Failure> {
        let (mut requests, before) = (0, thread_cpu());
        while begin.elapsed() < length {
            for _ in 0..BATCH {
                if reads {
                    self.read()?;
                } else {
                    self.write()?;
                }
            }
            requests += BATCH;
        }
        Ok((requests, thread_cpu() - before))
    }

    fn write(&mut self) -> Result<(), Failure> {
        let number = self.rng.below(self.pages);
        self.page[..8].copy_from_slice(&number.to_le_bytes());
        self.volume.write(number * PAGE as u64, &self.page)?;
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        let number = self.rng.below(self.pages);
        self.volume.read(number * PAGE as u64, &mut self.page)?;
        if self.page[..8] != number.to_le_bytes() {
            return Err(format!("page {number} has the content of another page").into());
        }
        Ok(())
    }
}

/// Returns the CPU time of this thread, s.
fn thread_cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("getrusage of oneself cannot fail");
    (usage.user_time() + usage.system_time()).num_nanoseconds() as f64 / 1e9
}
