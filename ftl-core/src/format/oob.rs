//! The fixed part of every page's spare bytes: who the page is, which version, when programmed, in which life of its block.

/// Bytes of the fixed part; a scheme's own part follows.
pub const OOB_BYTES: usize = 26;

/// First byte of every record: format 1.
const MAGIC: u8 = 0xF1;

const COUNTER_BITS: u32 = 48;

/// What a page, or a block by its first readable page, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// Host data.
    Data = 1,
    /// Pages of a log block.
    Log = 2,
    /// Mapping pages.
    Map = 3,
    /// Host data moved by garbage collection (LazyFTL's cold area).
    Cold = 4,
    /// Host data newly written (LazyFTL's update area).
    Update = 5,
    /// A trim record.
    Trim = 6,
    /// A checkpoint page.
    Checkpoint = 7,
    /// A page of a buffer's journal.
    Journal = 8,
    /// Filler that completes a word line.
    Pad = 9,
}

impl Role {
    /// How many numbers a table indexed by role needs.
    pub const SLOTS: usize = 10;

    fn from_byte(byte: u8) -> Option<Role> {
        use Role::*;
        [Data, Log, Map, Cold, Update, Trim, Checkpoint, Journal, Pad].into_iter().find(|r| *r as u8 == byte)
    }
}

/// Bits of the OOB record. Stored inverted, so that setting one later is a legal second program where NOP allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// A copy made by the controller, not a host write.
    pub const COPY: Flags = Flags(1);
    /// The data could not be read when the page was moved: reading it is an error, not zeros.
    pub const LOST: Flags = Flags(2);
    /// The last page of a set that is valid as a whole.
    pub const COMMIT: Flags = Flags(4);
    /// SLC only: superseded. A hint; versions decide.
    pub const INVALID: Flags = Flags(8);

    /// Both sets of flags.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Whether all of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The part of a page's identity that its writer chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTag {
    /// What the page is for.
    pub role: Role,
    /// Flags.
    pub flags: Flags,
    /// Logical page, mapping page, logical block or chunk number, by role.
    pub lpn: u32,
    /// Version of the content: given once per host write, kept by copies.
    pub ver: u64,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oob {
    /// Chosen by the writer.
    pub tag: PageTag,
    /// Program sequence number: new for every program, copies included.
    pub pseq: u64,
    /// Allocation number of the block's present life.
    pub epoch: u64,
}

impl Oob {
    /// Writes the record into the first [`OOB_BYTES`] of `out`.
    ///
    /// # Panics
    /// When a counter leaves its 48 bits: at a million programs a second that takes nine years.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) {
        let word = |n: u64| {
            assert!(n >> COUNTER_BITS == 0, "a 48-bit counter is exhausted");
            n.to_le_bytes()
        };
        let out: &mut [u8; OOB_BYTES] = out.first_chunk_mut().expect("room for the OOB record");
        out[0] = MAGIC;
        out[1] = self.tag.role as u8;
        out[2..4].copy_from_slice(&(!self.tag.flags.0).to_le_bytes());
        out[4..8].copy_from_slice(&self.tag.lpn.to_le_bytes());
        out[8..14].copy_from_slice(&word(self.tag.ver)[..6]);
        out[14..20].copy_from_slice(&word(self.pseq)[..6]);
        out[20..26].copy_from_slice(&word(self.epoch)[..6]);
    }

    /// Reads a record; `None` where the bytes are none of ours (a blank page, another format).
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Oob> {
        let bytes: &[u8; OOB_BYTES] = bytes.first_chunk()?;
        if bytes[0] != MAGIC {
            return None;
        }
        let word = |at: usize| {
            let mut n = [0; 8];
            n[..6].copy_from_slice(&bytes[at..at + 6]);
            u64::from_le_bytes(n)
        };
        Some(Oob {
            tag: PageTag {
                role: Role::from_byte(bytes[1])?,
                flags: Flags(!u16::from_le_bytes([bytes[2], bytes[3]])),
                lpn: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
                ver: word(8),
            },
            pseq: word(14),
            epoch: word(20),
        })
    }

    /// The bytes that mark a programmed record [`Flags::INVALID`] when programmed over it.
    pub fn invalid_mark() -> [u8; 4] {
        let [lo, hi] = (!Flags::INVALID.0).to_le_bytes();
        [0xFF, 0xFF, lo, hi]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Oob {
        let tag = PageTag { role: Role::Cold, flags: Flags::COPY, lpn: 0x1234_5678, ver: (1 << 48) - 1 };
        Oob { tag, pseq: 42, epoch: 7 }
    }

    #[test]
    fn records_survive_the_round_trip() {
        let mut bytes = [0xFF; 64];
        sample().encode(&mut bytes);
        assert_eq!(Oob::decode(&bytes), Some(sample()));
        assert!(bytes[OOB_BYTES..].iter().all(|b| *b == 0xFF), "the scheme's part is left alone");
    }

    #[test]
    fn blank_foreign_and_short_bytes_are_no_record() {
        assert_eq!(Oob::decode(&[0xFF; 64]), None);
        assert_eq!(Oob::decode(&[0; 64]), None);
        assert_eq!(Oob::decode(&[MAGIC; 12]), None);
        let mut bytes = [0; OOB_BYTES];
        sample().encode(&mut bytes);
        bytes[1] = 0;
        assert_eq!(Oob::decode(&bytes), None);
    }

    #[test]
    fn the_invalid_mark_only_clears_bits_and_sets_only_its_flag() {
        let mut bytes = [0xFF; OOB_BYTES];
        sample().encode(&mut bytes);
        bytes.iter_mut().zip(Oob::invalid_mark()).for_each(|(b, m)| *b &= m);
        let marked = Oob::decode(&bytes).unwrap();
        assert_eq!(marked.tag.flags, Flags::COPY.with(Flags::INVALID));
        assert_eq!(Oob { tag: PageTag { flags: Flags::COPY, ..marked.tag }, ..marked }, sample());
    }

    #[test]
    #[should_panic(expected = "48-bit counter")]
    fn an_exhausted_counter_is_not_truncated() {
        Oob { pseq: 1 << 48, ..sample() }.encode(&mut [0; 64]);
    }
}
