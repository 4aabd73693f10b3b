//! The interface of a placement.

use crate::addr::Lpn;
use crate::config::Params;
use crate::error::FtlError;

/// A rule that chooses streams. Those of host data have the numbers from 0, those of copies follow.
pub trait Placement: Send {
    /// Returns the number of streams of host data, and of copies alongside them.
    fn streams(&self) -> (u32, u32);

    /// Returns the stream of a host write of this page. `lifespan`: pages written since the
    /// replaced version was written or moved. `None` if there was none, the largest number if RAM
    /// does not have it any more. Called only with several streams.
    fn of_write(&mut self, _lpn: Lpn, _lifespan: Option<u64>) -> u32 {
        0
    }

    /// Returns the stream of a copy. `age`: pages written since the page was; `from`: the stream of
    /// its old block.
    fn of_copy(&mut self, age: u64, from: u32) -> u32;

    /// Records that GC takes a block of this stream, `lifetime` pages after it was opened.
    fn collected(&mut self, _from: u32, _lifetime: u64) {}
}

/// Creates a placement from parameters of the scheme.
pub type NewPlacement = fn(&Params) -> Result<Box<dyn Placement>, FtlError>;
