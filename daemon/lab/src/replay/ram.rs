//! RAM of a scheme.

use ftl_core::Ftl;
use serde::{Deserialize, Serialize};

/// RAM of the scheme's tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ram {
    /// Size according to the paper.
    pub(crate) paper_bytes: u64,
    /// Allocated size.
    pub(crate) allocated_bytes: u64,
    /// Scheme parameters that follow from the requested RAM, each as KEY=VALUE.
    pub(crate) fitted: Vec<String>,
    /// The structures in RAM.
    pub(crate) parts: Vec<RamPart>,
}

/// One structure in RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RamPart {
    /// Name.
    pub(crate) part: String,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Size according to the paper.
    pub(crate) paper_bytes: u64,
    /// Allocated size.
    pub(crate) allocated_bytes: u64,
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
