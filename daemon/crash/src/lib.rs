//! Does a power cut hurt your store? [`Crash`] runs a closure on a disk in memory and records what
//! it writes, syncs and marks. [`Run::explore`] then makes the states that a power cut could have
//! left, and runs your check on each: open the store, and compare it with what it had promised.
//! No root, no daemon, no device: all of it happens in `cargo test`.
//!
//! # Example
//!
//! A counter in two places, which must agree. Without the first `sync_data` this test fails.
//!
//! ```
//! use ftld_crash::Crash;
//! use std::io;
//! use std::os::unix::fs::FileExt;
//!
//! /// Stores a value, then the number of values.
//! fn append(file: &impl FileExt, sync: impl Fn() -> io::Result<()>, n: u64) -> io::Result<()> {
//!     file.write_all_at(&n.to_le_bytes(), 4096 * n)?;
//!     sync()?;
//!     file.write_all_at(&n.to_le_bytes(), 0)?;
//!     sync()
//! }
//!
//! fn read(file: &impl FileExt, at: u64) -> io::Result<u64> {
//!     let mut bytes = [0; 8];
//!     file.read_exact_at(&mut bytes, at)?;
//!     Ok(u64::from_le_bytes(bytes))
//! }
//!
//! # fn main() -> Result<(), ftld_crash::Error> {
//! let run = Crash::new(64 << 10).record(|disk| -> io::Result<()> {
//!     for n in 1..10 {
//!         append(disk, || disk.sync_data(), n)?;
//!         disk.mark(n)?; // from here on the value is promised
//!     }
//!     Ok(())
//! })?;
//! let report = run.explore(|state, mark| -> Result<(), String> {
//!     let count = read(state.disk(), 0).map_err(|error| error.to_string())?;
//!     let promised = mark.map_or(0, |mark| mark.parse().unwrap());
//!     if count < promised {
//!         return Err(format!("{promised} values were promised, there are {count}"));
//!     }
//!     for n in 1..=count {
//!         assert_eq!(read(state.disk(), 4096 * n).unwrap(), n); // a panic is a failure, too
//!     }
//!     Ok(())
//! })?;
//! report.assert_none_failed();
//! # Ok(())
//! # }
//! ```
//!
//! A report that is not green names the shortest failing case:
//!
//! ```text
//! shortest failing case:
//!   power fails after entry 2 (write of 8 bytes at 0)
//!   bytes 4096 to 8191 keep the content of the last FLUSH, not of entry 1 (write of 8 bytes at 4096)
//!   no mark before the cut
//!   the check: panicked at tests/counter.rs:34:9
//!     assertion `left == right` failed
//!       left: 0
//!      right: 1
//! show it again:
//!   run.case("cache/2/1=0", check)
//! ```
//!
//! # The disk
//!
//! A [`Disk`] has a fixed length, as a device or a preallocated file has. It implements [`FileExt`]
//! and, with a position, [`Read`], [`Write`] and [`Seek`]. Clones share the content, so a store may
//! own one. As with [`File`], [`Write::flush`] makes nothing durable: [`Disk::sync_data`] does, or
//! the handle [`Disk::flushing`]. In `tests/`, a trait of your store needs a type of yours around
//! the disk.
//!
//! The states are those of a drive with a volatile cache: every unit of 4 KiB has its content of
//! the last sync or any newer one, whatever the order of writes ([`Model::Cache`]). A unit is never
//! torn; [`Crash::unit`] sets another size. Equal states with the same mark are checked once.
//! Entries are the requests and marks of the run, from 1; reads are none.
//!
//! # Limits
//!
//! The check runs on this thread and in this process: one that aborts or never returns ends the
//! test. While a check runs, a panic hook keeps its thread's panics off the output. A store that
//! needs a path can be checked ([`State::image`]), but not recorded; `ftld crash-test` records any
//! program.
//!
//! [`File`]: std::fs::File
//! [`FileExt`]: std::os::unix::fs::FileExt
//! [`Read`]: std::io::Read
//! [`Write`]: std::io::Write
//! [`Write::flush`]: std::io::Write::flush
//! [`Seek`]: std::io::Seek

#![warn(clippy::missing_errors_doc)]

mod disk;
mod error;
mod report;
mod run;
mod state;

pub use disk::Disk;
pub use error::Error;
pub use ftld_lab::crashes::At;
pub use report::{Failing, Report};
pub use run::{Crash, Model, Run};
pub use state::State;
