//! Raw flash and RAM that a job requests, and the RAM that its scheme has.

use super::job::Job;
use crate::failure::Failure;
use crate::size::parse_size;
use ftl_core::Ftl;
use ftl_core::schemes::Scheme;
use serde::{Deserialize, Serialize};

/// RAM of the scheme's tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ram {
    /// Size according to the paper.
    pub paper_bytes: u64,
    /// Allocated size.
    pub allocated_bytes: u64,
    /// Scheme parameters that follow from the requested RAM, each as KEY=VALUE.
    pub fitted: Vec<String>,
    /// The structures in RAM.
    pub parts: Vec<RamPart>,
}

/// One structure in RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RamPart {
    /// Name.
    pub part: String,
    /// Number of entries.
    pub entries: u64,
    /// Size according to the paper.
    pub paper_bytes: u64,
    /// Allocated size.
    pub allocated_bytes: u64,
}

/// Returns the RAM of a scheme; `fitted` parameters follow from the requested RAM.
pub(super) fn ram(ftl: &dyn Ftl, fitted: Vec<String>) -> Ram {
    let parts: Vec<_> = ftl
        .ram_report()
        .into_iter()
        .map(|entry| RamPart {
            part: entry.part.name().into(),
            entries: entry.entries,
            paper_bytes: entry.paper_bytes,
            allocated_bytes: entry.allocated_bytes,
        })
        .collect();
    Ram {
        paper_bytes: parts.iter().map(|part| part.paper_bytes).sum(),
        allocated_bytes: parts.iter().map(|part| part.allocated_bytes).sum(),
        fitted,
        parts,
    }
}

/// Returns whether this KEY=VALUE is of a parameter that takes RAM.
pub(super) fn takes_ram(scheme: &Scheme, pair: &str) -> bool {
    let key = pair.split_once('=').map(|(key, _)| key);
    let is_key = |own| Some(own) == key;
    scheme.ram_params.iter().any(|param| is_key(param.key))
}

impl Job {
    /// Returns the requested raw flash in bytes.
    ///
    /// # Errors
    /// It is not a size, or the over-provisioning is requested, too.
    pub(crate) fn raw_bytes(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.raw else {
            return Ok(None);
        };
        if let Some(op) = self.op {
            return Err(Failure::usage(format!(
                "--raw {text} and --op {op} both determine the over-provisioning; leave --op out for exactly this raw \
                 flash, or --raw for the scheme's own layout"
            )));
        }
        parse_size(text)
            .map(Some)
            .map_err(|why| Failure::usage(format!("--raw {why}")))
    }

    /// Returns the requested RAM in bytes.
    ///
    /// # Errors
    /// It is not a size.
    pub(crate) fn ram_bytes(&self) -> Result<Option<u64>, Failure> {
        let parsed = self.ram.as_deref().map(parse_size).transpose();
        parsed.map_err(|why| Failure::usage(format!("--ram {why}")))
    }
}
