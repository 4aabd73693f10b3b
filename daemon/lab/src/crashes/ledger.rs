//! Verdicts in a file, so that an interrupted exploration continues: a line of JSON per checked
//! state. The first line says which recording, check and options they belong to.
//!
//! If the process dies, the file ends with a whole line or a part of one, which is cut off.

use super::args::CrashesArgs;
use super::case::Case;
use super::check::Checked;
use super::worker::Done;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::unwritable;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest line: the case names many units, the output is bounded.
const LINE_MAX: u64 = 64 << 20;

/// Identity of an exploration.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    recording: String,
    bytes: u64,
    modified_ns: i128,
    check: String,
    /// The check stays up.
    #[serde(default)]
    server: bool,
    /// Folder whose files it gets.
    #[serde(default)]
    files: Option<String>,
    /// The recordings of the other devices: name, bytes, and when they were modified.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<(String, u64, i128)>,
    /// Options with which it gets a state mounted.
    #[serde(default)]
    mounts: Vec<String>,
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    explained: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery: Option<Recovery>,
}

/// The states of the recovery from a good state; the lines before have their verdicts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Recovery {
    /// Which states were checked.
    pub(super) plan: String,
    #[serde(with = "hex")]
    pub(super) keys: Vec<u128>,
}

/// A verdict of an earlier run.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) case: Case,
    pub(super) passed: bool,
    pub(super) said: String,
    pub(super) mark: String,
    pub(super) output: String,
    /// Of a failed state of a recovery: what its second cut means.
    pub(super) explained: Vec<String>,
    /// `None` if the recovery was not cut.
    pub(super) recovery: Option<Recovery>,
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
        let identity = |path: &Path| {
            let of = std::fs::metadata(path);
            let of = of.map_err(|error| Failure::io(path.display(), &error))?;
            let modified_ns = i128::from(of.mtime()) * 1_000_000_000 + i128::from(of.mtime_nsec());
            Ok((path.display().to_string(), of.len(), modified_ns))
        };
        let (recording, bytes, modified_ns) = identity(&args.recording)?;
        let others = args.others.iter().map(|path| identity(path));
        let subject = Subject {
            recording,
            bytes,
            modified_ns,
            others: others.collect::<Result<_, Failure>>()?,
            check: args.check.clone(),
            server: args.server,
            files: args.files.clone(),
            mounts: args.mount_options(),
        };
        // A pipe or an endless device has no end to append to.
        if std::fs::metadata(path).is_ok_and(|of| !of.is_file() && !of.is_dir()) {
            return Err(Failure::usage(format!(
                "--ledger {name}: is no regular file; name one, or a new file"
            )));
        }
        let file = File::options()
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
        let length = file.metadata().map_err(failed)?.len();
        let mut lines = Lines {
            source: BufReader::new(file.try_clone().map_err(failed)?),
            whole: 0,
        };
        let mut ledger = Ledger {
            name: name.clone(),
            file,
        };
        let first = match lines.next().map_err(failed)? {
            Next::Whole(line) => Some(line),
            Next::Part(part) => {
                // Nothing is cut off a file before it proved to be a ledger.
                if !line_of(&subject)?.as_bytes().starts_with(&part) {
                    return Err(foreign(&ledger.name));
                }
                None
            }
        };
        let Some(first) = first else {
            ledger.cut(length, 0)?;
            ledger.write(&subject)?;
            return Ok((Some(ledger), HashMap::new()));
        };
        let of: Subject = serde_json::from_slice(&first).map_err(|_| foreign(&ledger.name))?;
        if of != subject {
            return Err(Failure::usage(format!(
                "{}: has verdicts of another recording or check ({}, {:?}); give another --ledger",
                ledger.name, of.recording, of.check
            )));
        }
        let (mut known, mut unknown) = (HashMap::new(), 0u64);
        while let Next::Whole(line) = lines.next().map_err(failed)? {
            match verdict(&line) {
                Some((key, kept)) => drop(known.insert(key, kept)),
                None => unknown += 1,
            }
        }
        if unknown > 0 {
            tracing::warn!(
                "{}: {} no verdict; such states are checked again",
                ledger.name,
                match unknown {
                    1 => "1 line is".to_owned(),
                    several => format!("{several} lines are"),
                }
            );
        }
        ledger.cut(length, lines.whole)?;
        Ok((Some(ledger), known))
    }

    /// Cuts off the part of a line that a killed run left.
    fn cut(&mut self, length: u64, whole: u64) -> Result<(), Failure> {
        if whole == length {
            return Ok(());
        }
        self.file
            .set_len(whole)
            .map_err(|error| Failure::io(&self.name, &error))
    }

    /// Adds a verdict.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(
        &mut self,
        key: u128,
        done: &Done,
        mark: &str,
        checked: &Checked,
        recovery: Option<Recovery>,
    ) -> Result<(), Failure> {
        let passed = checked.verdict.passed();
        let text = |text: &str| {
            if passed {
                String::new()
            } else {
                text.to_owned()
            }
        };
        self.write(&Line {
            key: format!("{key:032x}"),
            case: done.case.to_string(),
            passed,
            said: text(&checked.verdict.text()),
            mark: text(mark),
            output: text(&checked.output),
            explained: done.explained.clone(),
            recovery,
        })
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        self.file
            .write_all(line_of(line)?.as_bytes())
            .map_err(|error| Failure::io(&self.name, &error))
    }
}

/// Keys as in a line.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(keys: &[u128], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(keys.iter().map(|key| format!("{key:032x}")))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u128>, D::Error> {
        let keys = Vec::<String>::deserialize(from)?;
        let number = |key: &String| u128::from_str_radix(key, 16).map_err(D::Error::custom);
        keys.iter().map(number).collect()
    }
}

/// Reads a ledger line by line: its length is no bound of the memory.
struct Lines {
    source: BufReader<File>,
    /// Bytes of the lines so far.
    whole: u64,
}

enum Next {
    Whole(Vec<u8>),
    /// The last line without its end; empty at the end of the file.
    Part(Vec<u8>),
}

impl Lines {
    fn next(&mut self) -> std::io::Result<Next> {
        let mut line = Vec::new();
        let mut source = (&mut self.source).take(LINE_MAX);
        let bytes = source.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            // The rest of a line this long would be cut off with all that follows.
            return match to_u64(bytes) {
                LINE_MAX => Err(std::io::Error::other(format!(
                    "a line longer than {LINE_MAX} bytes begins at byte {}: no ledger",
                    self.whole
                ))),
                _ => Ok(Next::Part(line)),
            };
        }
        self.whole += to_u64(bytes);
        Ok(Next::Whole(line))
    }
}

/// Returns the verdict of a line with its key, if it is one.
fn verdict(line: &[u8]) -> Option<(u128, Kept)> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let key = u128::from_str_radix(&line.key, 16).ok()?;
    let kept = Kept {
        case: Case::parse(&line.case).ok()?,
        passed: line.passed,
        said: line.said,
        mark: line.mark,
        output: line.output,
        explained: line.explained,
        recovery: line.recovery,
    };
    Some((key, kept))
}

fn line_of(line: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(line).map_err(Failure::failed)?;
    Ok(text + "\n")
}

fn foreign(name: &str) -> Failure {
    Failure::usage(format!(
        "{name}: is no ledger of `ftld crashes`; give another file"
    ))
}
