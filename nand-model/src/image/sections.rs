//! The sections of a header copy, one after the other: what each is about, the version of its
//! fields, and whether a build that does not know it may use the image.
//!
//! Invariants: a section that this build does not know is kept as it is, or the image is
//! refused because of it. So a later build can say more about a device without a new format.

use super::fields::{Put, Take};
use crate::convert::to_u32;
use crate::invalid::{Invalid, ensure};

/// Set in the flags of a section without which nobody may use the image.
const NEEDED: u8 = 1;
/// Sections begin at multiples of this many bytes.
const ALIGN: usize = 8;

/// One section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(super) id: u16,
    /// Version of its fields.
    pub(super) version: u8,
    /// Whether a build that does not know it has to refuse the image.
    pub(super) is_needed: bool,
    pub(super) bytes: Vec<u8>,
}

impl Section {
    /// Version 1 of a section that every build has to know.
    pub(super) fn needed(id: u16, fields: Put) -> Section {
        Section {
            id,
            version: 1,
            is_needed: true,
            bytes: fields.0,
        }
    }

    /// The error of a build that has to know it and does not.
    pub(super) fn unknown(&self) -> Invalid {
        let Section { id, version, .. } = self;
        Invalid::Image(format!(
            "section {id}, version {version}, is unknown here and must be known: use a newer ftld"
        ))
    }
}

/// Encodes the sections in their order.
pub(super) fn encode(sections: &[Section], to: &mut Put) {
    for section in sections {
        to.0.extend_from_slice(&section.id.to_le_bytes());
        let flags = if section.is_needed { NEEDED } else { 0 };
        to.0.extend_from_slice(&[section.version, flags]);
        to.u32(to_u32(section.bytes.len()));
        to.0.extend_from_slice(&section.bytes);
        to.0.resize(to.0.len().next_multiple_of(ALIGN), 0);
    }
}

/// Decodes the sections; the bytes contain nothing else.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Section>, Invalid> {
    let mut take = Take(bytes);
    let mut sections: Vec<Section> = Vec::new();
    while !take.0.is_empty() {
        let [low, high, version, flags] = take.array()?;
        let id = u16::from_le_bytes([low, high]);
        let length = take.length()?;
        let bytes = take.bytes(length)?.to_vec();
        take.bytes(length.next_multiple_of(ALIGN) - length)?;
        let is_new = sections.iter().all(|section| section.id != id);
        ensure(is_new, Invalid::Image, || {
            format!("section {id} stands twice")
        })?;
        sections.push(Section {
            id,
            version,
            is_needed: flags & NEEDED != 0,
            bytes,
        });
    }
    Ok(sections)
}
