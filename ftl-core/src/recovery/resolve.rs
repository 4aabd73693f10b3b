//! Selection of the current version of a logical page after a crash.
//!
//! A map found on flash contains the programs up to a sequence number, `upto`. Candidates are the
//! page that the map names and all versions programmed later. The newest candidate wins, unless a
//! trim is newer. A page that the cut may have hit is read in full before it is trusted. A page
//! that may become unreadable is rewritten ([`Rewrites`]). Until the rewrite is safe, the blocks
//! with the next candidates are not erased.
//!
//! This module programs nothing. If power fails, the next mount finds the same records.

use super::evidence::{Evidence, Suspects, Version};
use super::rewrite::Rewrites;
use crate::error::FtlError;
use crate::space::Space;
use nand_model::{Cause, Ppn};

/// Entries of the map and of the trims for a logical page.
#[derive(Clone, Copy, Default)]
pub(crate) struct MapCandidate {
    /// The map found on flash contains the programs up to this sequence number.
    pub(crate) upto: u64,
    /// Page that this map names.
    pub(crate) named: Option<Ppn>,
    /// Record of the named page, if no scan has returned it.
    pub(crate) record: Option<Version>,
    /// Versions older than this one are trimmed.
    pub(crate) trimmed_at: u64,
}

/// Returns the newest readable version of a logical page. `versions` are the versions found by
/// scans, in ascending order. `discarded` counts the unreadable pages.
///
/// # Errors
/// Power is lost, or the host cannot read the image.
pub(crate) fn resolve(
    space: &mut Space,
    evidence: &Evidence,
    candidate: &MapCandidate,
    versions: &[Version],
    rewrites: &mut Rewrites,
    discarded: &mut u64,
) -> Result<Option<Ppn>, FtlError> {
    debug_assert!(
        versions
            .iter()
            .all(|version| version.oob.tag.lpn == versions[0].oob.tag.lpn),
        "versions of logical page {:?} and others",
        versions.first().map(|version| version.oob.tag.lpn)
    );
    debug_assert!(
        versions.is_sorted_by_key(|v| (v.oob.tag.ver, v.oob.pseq)),
        "versions are not in ascending order"
    );
    debug_assert!(
        candidate.record.is_none_or(|record| {
            Some(record.ppn) == candidate.named
                && versions
                    .first()
                    .is_none_or(|v| v.oob.tag.lpn == record.oob.tag.lpn)
        }),
        "the record read for the map's entry is of another page: {:?}",
        candidate.record
    );
    let is_news = |v: &&Version| v.oob.pseq > candidate.upto || Some(v.ppn) == candidate.named;
    if candidate.record.is_none() {
        // Of most pages the newest version decides.
        let counts = |v: &&Version| is_news(v) && v.oob.tag.ver >= candidate.trimmed_at;
        let newest = versions.iter().rev().find(counts).map(|v| v.ppn);
        if newest.is_none_or(|ppn| !evidence.suspects.contains(ppn)) {
            return Ok(newest);
        }
    }
    let mut contenders: Vec<Version> = versions.iter().filter(is_news).copied().collect();
    if let Some(record) = candidate.record {
        contenders.push(record);
        contenders.sort_unstable_by_key(|v| (v.oob.tag.ver, v.oob.pseq));
    }
    contenders.retain(|v| v.oob.tag.ver >= candidate.trimmed_at);
    for version in contenders.iter().rev() {
        if !evidence.suspects.contains(version.ppn) {
            return Ok(Some(version.ppn));
        }
        // The cut may have torn this page or left it unstable: read it once and keep the data.
        let Some(data) = read_page(space, version.ppn, discarded)? else {
            continue;
        };
        if evidence.suspects.needs_rewrite(version.ppn) {
            let geometry = space.geometry();
            rewrites.add(version, data);
            rewrites.pin(&geometry, evidence.fallbacks(&contenders));
            rewrites.pin(&geometry, candidate.named);
        }
        return Ok(Some(version.ppn));
    }
    Ok(None)
}

/// Reads a page in full. Returns `None`, and counts the page, if it is lost.
///
/// # Errors
/// Power is lost, or the host cannot read the image.
pub(crate) fn read_page(
    space: &mut Space,
    ppn: Ppn,
    discarded: &mut u64,
) -> Result<Option<Vec<u8>>, FtlError> {
    let mut data = vec![0; space.geometry().page_len()];
    let read = space.flash.read(ppn, &mut data, Cause::Recovery)?;
    if read.is_none() {
        *discarded += 1;
        space.flash.findings.lost(ppn);
    }
    Ok(read.map(|_| data))
}

/// A readable trim record.
pub(crate) struct FoundTrim<T> {
    pub(crate) at: Version,
    pub(crate) content: T,
    /// The page's data, if the cut may have left it unstable: then the record must be rewritten.
    pub(crate) unstable: Option<Vec<u8>>,
    /// Other pages with the same record.
    pub(crate) copies: Vec<Ppn>,
}

/// Reads trim records. Copies of a record have the same `ver`; the latest readable copy is used.
/// `decode` returns the content of a well-formed page.
///
/// # Errors
/// Power is lost, or the host cannot read the image.
pub(crate) fn read_trims<T>(
    space: &mut Space,
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
                space.flash.findings.dropped(at.ppn);
                continue;
            };
            let others = copies.iter().map(|v| v.ppn).filter(|ppn| *ppn != at.ppn);
            found.push(FoundTrim {
                at: *at,
                content,
                unstable: suspects.needs_rewrite(at.ppn).then_some(data),
                copies: others.collect(),
            });
            break;
        }
    }
    assert!(
        found.is_sorted_by(|one, next| one.at.oob.tag.ver > next.at.oob.tag.ver),
        "each trim has one record, the newest comes first"
    );
    Ok(found)
}
