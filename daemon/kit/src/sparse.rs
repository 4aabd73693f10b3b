//! Sparse files: copies of their data, without their holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;

use crate::convert::{to_u64, to_usize};
use crate::failure::Failure;

/// Maximum bytes copied at a time.
const PIECE: u64 = 1 << 20;

/// Copies the data of a part of a file to the same place of another one. Calls `keep_on` after each
/// piece. Returns the bytes copied.
///
/// # Errors
/// What `failed` makes of an error of the host, or the error of `keep_on`.
pub fn copy(
    from: &File,
    to: &File,
    part: Range<u64>,
    keep_on: &mut dyn FnMut() -> Result<(), Failure>,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut bytes = 0;
    let put = |at, piece: &[u8]| {
        to.write_all_at(piece, at).map_err(failed)?;
        bytes += to_u64(piece.len());
        keep_on()
    };
    each(from, part, put, failed)?;
    Ok(bytes)
}

/// Passes the data of a part of a file, in pieces with their places, to `take`.
///
/// # Errors
/// What `failed` makes of an error of the host, or the error of `take`.
pub fn each(
    from: &File,
    part: Range<u64>,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    let mut buffer = vec![0; to_usize(PIECE.min(part.end - part.start))];
    let mut at = part.start;
    while let Some(data) = next_data(from, at)
        .map_err(failed)?
        .filter(|at| *at < part.end)
    {
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data));
        let hole = hole.map_err(|error| failed(error.into()))?;
        let end = hole.min(part.end).min(data + PIECE);
        let piece = &mut buffer[..to_usize(end - data)];
        from.read_exact_at(piece, data).map_err(failed)?;
        take(data, piece)?;
        at = end;
    }
    Ok(())
}

/// Returns where the next data of a file begins.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
