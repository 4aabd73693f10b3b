//! Which version of a logical page is the current one after a crash.
//!
//! A map that was found on flash contains the programs up to some point, its *reach*. Candidates
//! are the page that it names and all versions that were programmed later. The newest candidate
//! wins, unless a trim is newer. A page that the cut may have hit is read in full before it is
//! trusted. One that may become unreadable is rewritten ([`Rescues`]); until the rewrite is safe,
//! the blocks with the next candidates are not erased.
//!
//! Nothing is programmed here. If power fails, the next mount finds the same records.

use super::evidence::{Evidence, Suspects, Version};
use super::rescue::Rescues;
use crate::error::FtlError;
use crate::space::Space;
use nand_model::{Cause, Ppn, Store};

/// What is known of a logical page beside the records of its versions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Claim {
    /// Programs up to this one are contained in the map that was found.
    pub(crate) reach: u64,
    /// Where that map says the page is.
    pub(crate) named: Option<Ppn>,
    /// The record of that page, where no scan shows it.
    pub(crate) record: Option<Version>,
    /// Versions before this one were trimmed.
    pub(crate) trimmed_at: u64,
}

/// Returns the newest version of a logical page that can be had. `versions` are those that were
/// found of it, in rising order; `discarded` counts the pages that cannot be read.
///
/// # Errors
/// Power is lost, or the host cannot read the image.
pub(crate) fn resolve<S: Store>(
    space: &mut Space<S>,
    evidence: &Evidence,
    claim: &Claim,
    versions: &[Version],
    rescues: &mut Rescues,
    discarded: &mut u64,
) -> Result<Option<Ppn>, FtlError> {
    let is_news = |v: &&Version| v.oob.pseq > claim.reach || Some(v.ppn) == claim.named;
    let mut contenders: Vec<Version> = versions.iter().filter(is_news).copied().collect();
    if let Some(record) = claim.record {
        contenders.push(record);
        contenders.sort_unstable_by_key(|v| (v.oob.tag.ver, v.oob.pseq));
    }
    contenders.retain(|v| v.oob.tag.ver >= claim.trimmed_at);
    for version in contenders.iter().rev() {
        if !evidence.suspects.contains(version.ppn) {
            return Ok(Some(version.ppn));
        }
        // The cut may have torn this page, or left it unstable: read it once, and keep what was
        // read.
        let Some(data) = read_page(space, version.ppn, discarded)? else {
            continue;
        };
        if evidence.suspects.is_shaky(version.ppn) {
            let geometry = space.geometry();
            rescues.add(version, data);
            rescues.pin(&geometry, evidence.fallbacks(&contenders));
            rescues.pin(&geometry, claim.named);
        }
        return Ok(Some(version.ppn));
    }
    Ok(None)
}

/// Reads a page in full; `None` (counted) if it is lost.
///
/// # Errors
/// Power is lost, or the host cannot read the image.
pub(crate) fn read_page<S: Store>(
    space: &mut Space<S>,
    ppn: Ppn,
    discarded: &mut u64,
) -> Result<Option<Vec<u8>>, FtlError> {
    let mut data = vec![0; space.geometry().page_len()];
    let read = space.flash.read(ppn, &mut data, Cause::Recovery)?;
    *discarded += u64::from(read.is_none());
    Ok(read.map(|_| data))
}

/// A trim record that can be read.
pub(crate) struct FoundTrim<T> {
    pub(crate) at: Version,
    pub(crate) content: T,
    /// Its bytes, if the cut may have left them unstable: then it has to be programmed again.
    pub(crate) shaky: Option<Vec<u8>>,
    /// Other pages with the same record.
    pub(crate) copies: Vec<Ppn>,
}

/// Reads trim records; of copies of one (their `ver` is the same) the latest readable rules.
/// `decode` gives the content of a page that makes sense.
///
/// # Errors
/// Power is lost, or the host cannot read the image.
pub(crate) fn read_trims<S: Store, T>(
    space: &mut Space<S>,
    mut records: Vec<Version>,
    suspects: &Suspects,
    discarded: &mut u64,
    mut decode: impl FnMut(&Version, &[u8]) -> Option<T>,
) -> Result<Vec<FoundTrim<T>>, FtlError> {
    records.sort_unstable_by_key(|v| std::cmp::Reverse((v.oob.tag.ver, v.oob.pseq)));
    let mut found: Vec<FoundTrim<T>> = Vec::new();
    for copies in records.chunk_by(|a, b| a.oob.tag.ver == b.oob.tag.ver) {
        for at in copies {
            let Some(data) = read_page(space, at.ppn, discarded)? else {
                continue;
            };
            let Some(content) = decode(at, &data) else {
                *discarded += 1;
                continue;
            };
            let others = copies.iter().map(|v| v.ppn).filter(|ppn| *ppn != at.ppn);
            found.push(FoundTrim {
                at: *at,
                content,
                shaky: suspects.is_shaky(at.ppn).then_some(data),
                copies: others.collect(),
            });
            break;
        }
    }
    Ok(found)
}
