//! Where a row comes from: program, trace and machine.

use ftld_kit::failure::Failure;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

static REVISION: OnceLock<&str> = OnceLock::new();

/// Sets the git revision of the program that runs, which is part of each row. The first call
/// counts.
pub fn set_revision(revision: &'static str) {
    let _ = REVISION.set(revision);
}

/// Values that differ from run to run, and what identifies the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// Version of the program.
    pub version: String,
    /// Git revision of its source, with `-dirty` if that was changed; `None` if it was built
    /// outside a repository.
    pub revision: Option<String>,
    /// SHA-256 of the trace file, as it is stored; `None` for a synthetic workload or a pipe.
    pub(crate) trace_sha256: Option<String>,
    /// Name of the machine.
    pub(crate) host: String,
    /// Resident memory of the process at the end of the measurement, bytes: of all its runs, if
    /// several run at the same time.
    pub(crate) rss_bytes: u64,
    /// CPU time of the measurement, s.
    pub(crate) cpu_seconds: f64,
    /// CPU time with preconditioning and reading the trace, s.
    pub(crate) cpu_seconds_total: f64,
    /// Wall time of the whole run, s.
    pub(crate) wall_seconds: f64,
}

impl Provenance {
    /// Returns the run of this program on this machine, without times.
    pub fn here(trace_sha256: Option<String>) -> Provenance {
        let machine = rustix::system::uname();
        Provenance {
            version: env!("CARGO_PKG_VERSION").into(),
            revision: REVISION.get().map(|revision| (*revision).to_owned()),
            trace_sha256,
            host: machine.nodename().to_string_lossy().into(),
            rss_bytes: resident_bytes(),
            ..Provenance::default()
        }
    }
}

impl Provenance {
    /// Returns whether both are of the same program. Two without a revision are, if their versions
    /// are equal.
    pub(crate) fn is_program_of(&self, other: &Provenance) -> bool {
        self.version == other.version && self.revision == other.revision
    }

    /// Returns the name of the program, for messages.
    pub(crate) fn program(&self) -> String {
        let revision = self.revision.as_deref().unwrap_or("of no known revision");
        format!("ftld {} {revision}", self.version)
    }
}

/// Returns the resident memory of this process; 0 if the kernel does not report it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the SHA-256 of a file in hexadecimal digits.
pub(super) fn sha256(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; 1 << 18]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => context.update(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let digest = context.finish();
    Ok(digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_sha256sum() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // The examples of FIPS 180.
        for (text, hash) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(sha256(file.path()).unwrap(), hash);
        }
        assert!(sha256(Path::new("/nonexistent/x")).is_err());
    }

    #[test]
    fn a_run_names_its_machine_and_its_memory() {
        set_revision("0123456789ab-dirty");
        let run = Provenance::here(None);
        assert!(!run.host.is_empty() && run.rss_bytes > 1 << 20, "{run:?}");
        assert_eq!(run.revision.as_deref(), Some("0123456789ab-dirty"));
    }
}
