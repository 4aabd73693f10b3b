//! The file to which rows are appended.

use super::outcome::Outcome;
use super::rows;
use crate::replay::{Job, Provenance};
use ftld_kit::convert::to_u64;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::unwritable;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens a file for appending, and locks it until it is closed: a task that outlived its sweep
/// would append the rows of the next one a second time.
fn locked(path: &Path) -> Result<File, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    loop {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| unwritable("--append", path, &error))?;
        // Any other error is that of a file system without locks, which clusters have.
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if locked == Err(Errno::WOULDBLOCK) {
            return Err(Failure::new(
                Exit::InUse,
                format!(
                    "{}: another run appends rows to it; wait until that has ended, or end it",
                    path.display()
                ),
            ));
        }
        // The run that held the lock may have given the name to a new file.
        let (ours, now) = (file.metadata(), std::fs::metadata(path));
        let (ours, now) = (ours.map_err(failed)?, now.map_err(failed)?);
        if (ours.dev(), ours.ino()) == (now.dev(), now.ino()) {
            return Ok(file);
        }
    }
}

/// A file of rows that grows.
pub(super) struct Appended {
    name: String,
    file: File,
    /// Rows that were there, in their order.
    pub(super) rows: Vec<Outcome>,
}

/// Beginning of every row and failure.
const ROW_BEGINS: &str = "{\"schema\":\"ftld.";

impl Appended {
    /// Opens a file of rows, or creates it. A partial line of a killed run is cut off, and rows of
    /// failed runs are removed: these runs are repeated.
    ///
    /// # Errors
    /// The file cannot be written, another run appends to it, it contains something else, or rows
    /// of another program.
    pub(super) fn open(path: &Path) -> Result<Appended, Failure> {
        let failed = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut file = locked(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let found = rows::parse(path, &text[..whole])?;
        // A file with other content is not cut off.
        let rest = &text[whole..];
        if !(rest.starts_with(ROW_BEGINS) || ROW_BEGINS.starts_with(rest)) {
            return Err(Failure::failed(format!(
                "{}: its last line is not the beginning of a row; give another file",
                path.display()
            )));
        }
        let (done, again): (Vec<_>, Vec<_>) = found
            .into_iter()
            .map(|read| read.outcome)
            .partition(|outcome| matches!(outcome, Outcome::Done(_)));
        let here = Provenance::here(None);
        for row in done.iter().filter_map(Outcome::row) {
            if !row.run.is_program_of(&here) {
                return Err(Failure::failed(format!(
                    "{}: has rows of {}, this is {}; use another file, or that program",
                    path.display(),
                    row.run.program(),
                    here.program()
                )));
            }
        }
        if !again.is_empty() {
            let kept: String = done.iter().map(Outcome::line).collect();
            let mut part = path.as_os_str().to_owned();
            part.push(".part");
            // Locked before it is written, and before it has the name. The lock of the old file
            // ends when that file has no name.
            let mut new = locked(Path::new(&part))?;
            // Synced before it has the name: a host crash must not leave an empty file there.
            new.set_len(0)
                .and_then(|()| new.write_all(kept.as_bytes()))
                .and_then(|()| new.sync_all())
                .map_err(failed)?;
            std::fs::rename(&part, path).map_err(failed)?;
            file = new;
        } else if !rest.is_empty() {
            file.set_len(to_u64(whole)).map_err(failed)?;
        }
        Ok(Appended {
            name: path.display().to_string(),
            file,
            rows: done,
        })
    }

    /// Returns the jobs that have no row yet.
    pub(super) fn remaining(&self, jobs: Vec<Job>) -> Vec<Job> {
        let done: HashSet<String> = self.rows.iter().map(Outcome::key).collect();
        jobs.into_iter()
            .filter(|job| !done.contains(&job.key()))
            .collect()
    }

    /// Appends a row, in one call to the kernel.
    pub(super) fn add(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        self.file
            .write_all(outcome.line().as_bytes())
            .map_err(|error| Failure::io(&self.name, &error))
    }
}
