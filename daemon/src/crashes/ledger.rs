//! Verdicts in a file, so that an interrupted exploration continues: a line of JSON per checked
//! state. The first line says which recording, check and options they belong to.
//!
//! If the process dies, the file ends with a whole line or a part of one, which is cut off.

use super::args::CrashesArgs;
use super::case::Case;
use super::check::Verdict;
use crate::convert::to_u64;
use crate::failure::{Exit, Failure};
use crate::output::unwritable;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;

/// Identity of an exploration.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    recording: String,
    bytes: u64,
    modified_ns: i128,
    check: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    case: String,
    passed: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    said: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    mark: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    output: String,
}

/// A verdict of an earlier run.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) case: Case,
    pub(super) passed: bool,
    pub(super) said: String,
    pub(super) mark: String,
    pub(super) output: String,
}

/// Verdicts of earlier runs by key.
pub(super) type Known = HashMap<u128, Kept>;

/// An open ledger.
pub(super) struct Ledger {
    name: String,
    file: File,
}

impl Ledger {
    /// Opens or creates the ledger. Returns also its verdicts by key.
    ///
    /// # Errors
    /// It cannot be written, is in use, or belongs to another exploration.
    pub(super) fn open(args: &CrashesArgs) -> Result<(Option<Ledger>, Known), Failure> {
        let Some(path) = &args.ledger else {
            return Ok((None, HashMap::new()));
        };
        let name = path.display().to_string();
        let failed = |error: std::io::Error| Failure::io(&name, &error);
        let recording = std::fs::metadata(&args.recording)
            .map_err(|error| Failure::io(args.recording.display(), &error))?;
        let subject = Subject {
            recording: args.recording.display().to_string(),
            bytes: recording.len(),
            modified_ns: i128::from(recording.mtime()) * 1_000_000_000
                + i128::from(recording.mtime_nsec()),
            check: args.check.clone(),
        };
        let mut file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| unwritable("--ledger", path, &error))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            == Err(rustix::io::Errno::WOULDBLOCK)
        {
            let why = format!("{name}: another exploration writes it; wait until that has ended");
            return Err(Failure::new(Exit::InUse, why));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidData => foreign(&name),
                _ => failed(error),
            })?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        // Nothing is cut off a file before it proved to be a ledger.
        if whole == 0 && !line_of(&subject)?.starts_with(&text) {
            return Err(foreign(&name));
        }
        let mut lines = text[..whole].lines();
        let mut ledger = Ledger { name, file };
        let mut known = HashMap::new();
        match lines.next() {
            None => {
                ledger.cut(text.len(), whole)?;
                ledger.write(&subject)?;
            }
            Some(first) => {
                let of: Subject = serde_json::from_str(first).map_err(|_| foreign(&ledger.name))?;
                if of != subject {
                    return Err(Failure::usage(format!(
                        "{}: has verdicts of another recording or check ({}, {:?}); give another --ledger",
                        ledger.name, of.recording, of.check
                    )));
                }
                ledger.cut(text.len(), whole)?;
            }
        }
        for line in lines {
            let line: Line = serde_json::from_str(line).map_err(|_| foreign(&ledger.name))?;
            let key = u128::from_str_radix(&line.key, 16).map_err(|_| foreign(&ledger.name))?;
            let kept = Kept {
                case: Case::parse(&line.case)?,
                passed: line.passed,
                said: line.said,
                mark: line.mark,
                output: line.output,
            };
            known.insert(key, kept);
        }
        Ok((Some(ledger), known))
    }

    /// Cuts off the part of a line that a killed run left.
    fn cut(&mut self, len: usize, whole: usize) -> Result<(), Failure> {
        if whole == len {
            return Ok(());
        }
        self.file
            .set_len(to_u64(whole))
            .map_err(|error| Failure::io(&self.name, &error))
    }

    /// Adds a verdict.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(
        &mut self,
        key: u128,
        case: &Case,
        mark: &str,
        verdict: &Verdict,
        output: &str,
    ) -> Result<(), Failure> {
        let passed = verdict.passed();
        let text = |text: &str| {
            if passed {
                String::new()
            } else {
                text.to_owned()
            }
        };
        self.write(&Line {
            key: format!("{key:032x}"),
            case: case.to_string(),
            passed,
            said: text(&verdict.text()),
            mark: text(mark),
            output: text(output),
        })
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        self.file
            .write_all(line_of(line)?.as_bytes())
            .map_err(|error| Failure::io(&self.name, &error))
    }
}

fn line_of(line: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(line).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(text + "\n")
}

fn foreign(name: &str) -> Failure {
    Failure::usage(format!(
        "{name}: is no ledger of `ftld crashes`; give another file"
    ))
}
