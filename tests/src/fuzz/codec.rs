//! Codecs of on-flash records: OOB records, checkpoint chunks, trim records.
//!
//! Properties: a codec rejects arbitrary bytes, or decodes them to a value whose encoding has the
//! same meaning. The short cuts on encoded records agree with the full decoder.

use super::Input;
use ftl_core::format::checkpoint::ChunkHead;
use ftl_core::format::{Flags, OOB_BYTES, OOB_SLOT, Oob, PageTag, trim};

/// Runs one input. The first byte selects the codec.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.u8() % 3 {
        0 => oob(input.rest()),
        1 => chunk(input.rest()),
        _ => trims(input.rest()),
    }
}

fn oob(bytes: &[u8]) {
    let Some(found) = Oob::decode(bytes) else {
        return;
    };
    let slot = found.encode();
    assert_eq!(Oob::decode(&slot), Some(found));
    assert_eq!(
        slot[..OOB_BYTES],
        bytes[..OOB_BYTES],
        "two spellings of one record"
    );
    assert!(Oob::is_record(&slot));
    assert_eq!(Oob::owner(&slot), (found.tag.role, found.tag.lpn));
    for mark in [
        Flags::NONE,
        Flags::OF_MOUNT,
        Flags::OF_MOUNT.with(Flags::PROVISIONAL),
    ] {
        let mut copy: [u8; OOB_SLOT] = slot;
        let (pseq, epoch) = (found.epoch, found.pseq);
        Oob::recopy(std::slice::from_mut(&mut copy), mark, pseq, epoch);
        let flags = found
            .tag
            .flags
            .without(Flags::PROVISIONAL.with(Flags::OF_MOUNT))
            .with(Flags::COPY)
            .with(mark);
        assert_eq!(
            copy,
            Oob {
                tag: PageTag { flags, ..found.tag },
                pseq,
                epoch
            }
            .encode()
        );
    }
}

fn chunk(page: &[u8]) {
    let Some((head, payload)) = ChunkHead::decode(page) else {
        return;
    };
    let mut again = Vec::new();
    head.encode(payload, page.len(), &mut again);
    assert_eq!(ChunkHead::decode(&again), Some((head, payload)));
}

fn trims(page: &[u8]) {
    let Some(ranges) = trim::decode(page) else {
        return;
    };
    let mut again = vec![0; page.len()];
    assert_eq!(trim::encode(&ranges, &mut again), ranges.len());
    assert_eq!(trim::decode(&again), Some(ranges));
}
