//! A plain file as `/dev/ublkbN` or `/dev/nbdN`, with no flash below: for working on the transports
//! alone.
//!
//! `cargo run --example plain_file -- DEVICE FILE BYTES [FLUSH_MS]`; a FLUSH takes `FLUSH_MS`
//! longer. `plain_file --stop N` stops, SIGTERM leaves it to a successor; an NBD device ends on
//! SIGTERM.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io, thread};

use ftld_device::device::{BlockDevice, Completion, Extent, Flush, FlushOf};
use ftld_device::sys;
use ftld_device::target::Target;
use ftld_device::transport::ublk;
use ftld_device::transport::{self, Context, StopHow};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::signal::{SigSet, Signal};

struct PlainFile {
    file: Arc<File>,
    size: u64,
    flush_delay: Duration,
}

struct Sync(Arc<File>, Duration);

impl Flush for Sync {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        thread::sleep(self.1);
        self.0.sync_data().map(|()| None)
    }
}

impl BlockDevice for PlainFile {
    fn size(&self) -> u64 {
        self.size
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        4096
    }
    fn preferred_block(&self) -> u32 {
        4096
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.file.read_exact_at(buf, offset).map(|()| None)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.file.write_all_at(data, offset).map(|()| None)
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.file, mode, offset as i64, len as i64)?;
        Ok(None)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.trim(offset, len)
    }
    fn flush(&self, _of: FlushOf) -> io::Result<Box<dyn Flush>> {
        Ok(Box::new(Sync(self.file.clone(), self.flush_delay)))
    }
    fn extents(&self, _offset: u64, len: u64, _max: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { len, mapped: true }])
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plain_file: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stop", n] => Ok(ublk::stop(n.parse()?, false)?),
        ["--force", n] => Ok(ublk::stop(n.parse()?, true)?),
        [node, path, bytes] => serve(node, path, bytes.parse()?, Duration::ZERO),
        [node, path, bytes, ms] => serve(node, path, bytes.parse()?, Duration::from_millis(ms.parse()?)),
        _ => Err("usage: plain_file DEVICE FILE BYTES [FLUSH_MS] | plain_file --stop N | plain_file --force N".into()),
    }
}

fn serve(node: &str, path: &str, size: u64, flush_delay: Duration) -> Result<(), Box<dyn Error>> {
    let left = SigSet::from_iter([Signal::SIGTERM]);
    left.thread_block()?;
    let prepared = sys::prepare_for_block_device(&[path.into()]);
    for refused in &prepared.refused {
        eprintln!("plain_file: continues without {refused}");
    }
    let name = node
        .strip_prefix("/dev/")
        .ok_or("DEVICE is /dev/ublkbN or /dev/nbdN")?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.set_len(size)?;
    let device: Arc<dyn BlockDevice> = Arc::new(PlainFile {
        file: Arc::new(file),
        size,
        flush_delay,
    });
    let target = Target::parse(node)?;
    let how = if matches!(target, Target::Ublk(_)) {
        StopHow::Leave
    } else {
        StopHow::Remove
    };
    let service = transport::start(
        &target,
        None,
        device,
        Context {
            name,
            image: path,
            tls: None,
        },
    )?;
    println!("ready {}", service.target());
    let leaving = service.clone();
    thread::spawn(move || {
        let _ = left.wait();
        let stopped = leaving.stop(how);
        exit(if stopped.is_err() {
            1
        } else if how == StopHow::Leave {
            4
        } else {
            0
        });
    });
    loop {
        if let Some(why) = service.ended() {
            println!("{why}");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
}
