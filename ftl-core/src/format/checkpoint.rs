//! The data of a [`Role::Checkpoint`](super::Role) page: one chunk of a set.

use super::bytes::array_at;
use super::oob::COUNTER_FOUND_MAX;
use crate::int::to_u64;

/// Bytes in front of a chunk's payload.
pub const CHUNK_HEAD: usize = 24;
const MAGIC: u32 = 0x4B50_4346; // "FCPK"

/// Header of a chunk's payload, without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// Chunks of the whole set.
    pub total: u32,
    /// Program sequence number up to which the chunk's content reaches.
    pub upto: u64,
}

impl ChunkHead {
    /// Encodes a chunk of `page_bytes` with this payload, which must fit, into `page`.
    pub fn encode(&self, payload: &[u8], page_bytes: usize, page: &mut Vec<u8>) {
        assert!(
            CHUNK_HEAD + payload.len() <= page_bytes,
            "chunk with a payload of {} bytes does not fit into a page of {page_bytes} bytes",
            payload.len()
        );
        page.clear();
        page.extend(MAGIC.to_le_bytes());
        page.extend(self.total.to_le_bytes());
        page.extend((to_u64(payload.len())).to_le_bytes());
        page.extend(self.upto.to_le_bytes());
        page.extend(payload);
        page.resize(page_bytes, 0);
    }

    /// Returns header and payload of a chunk, or `None` if the page holds no chunk.
    pub fn decode(page: &[u8]) -> Option<(ChunkHead, &[u8])> {
        let behind = page.get(CHUNK_HEAD..)?;
        if u32::from_le_bytes(array_at(page, 0)) != MAGIC {
            return None;
        }
        let length = usize::try_from(u64::from_le_bytes(array_at(page, 8))).ok()?;
        let head = ChunkHead {
            total: u32::from_le_bytes(array_at(page, 4)),
            upto: u64::from_le_bytes(array_at(page, 16)),
        };
        Some((head, behind.get(..length)?)).filter(|_| head.upto <= COUNTER_FOUND_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_survive_the_round_trip() {
        let head = ChunkHead {
            total: 7,
            upto: 1 << 40,
        };
        let mut page = Vec::new();
        for payload in [&[][..], &[1, 2, 3], &[9; 40]] {
            head.encode(payload, 64, &mut page);
            assert_eq!(
                (page.len(), ChunkHead::decode(&page)),
                (64, Some((head, payload)))
            );
        }
    }

    #[test]
    fn foreign_pages_and_lengths_that_lie_are_refused() {
        assert_eq!(ChunkHead::decode(&[0; 64]), None);
        let mut page = Vec::new();
        ChunkHead { total: 1, upto: 1 }.encode(&[5; 40], 64, &mut page);
        assert_eq!(ChunkHead::decode(&page[..CHUNK_HEAD - 1]), None);
        let mut late = page.clone();
        late[23] = 1;
        assert_eq!(
            ChunkHead::decode(&late),
            None,
            "upto exceeds the maximum of a counter"
        );
        page[8] = 41;
        assert_eq!(ChunkHead::decode(&page), None);
        page[15] = 0xFF;
        assert_eq!(ChunkHead::decode(&page), None);
    }
}
