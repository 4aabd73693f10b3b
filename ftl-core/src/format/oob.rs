//! The fixed part of every page's OOB area: owner of the page, version, program sequence number,
//! and epoch of its block.

use crate::addr::Lpn;
use crate::int::{low_u8, low_u16, narrow, to_u64, to_usize};

/// Bytes of the fixed part; a scheme's own part follows.
pub const OOB_BYTES: usize = 26;

/// [`OOB_BYTES`] rounded up, so that records start at whole words in the buffers of a run.
pub const OOB_SLOT: usize = 32;

/// First byte of every record: format 1.
const MAGIC: u8 = 0xF1;

const COUNTER_BITS: u32 = 48;
const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;

/// Maximum counter value accepted from flash. No device reaches a larger value, so a larger value
/// is forged; counters that continued from it would exhaust too soon.
pub const COUNTER_FOUND_MAX: u64 = COUNTER_MAX >> 1;

/// Purpose of a page, or of a block by its first readable page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// Host data.
    Data = 1,
    /// Host data of a log block.
    Log = 2,
    /// A mapping page.
    Map = 3,
    /// Host data relocated by GC (LazyFTL's cold area).
    Cold = 4,
    /// Newly written host data (LazyFTL's update area).
    Update = 5,
    /// A trim record.
    Trim = 6,
    /// A checkpoint page.
    Checkpoint = 7,
    /// A page of a write buffer's journal.
    Journal = 8,
    /// Padding that completes a word line.
    Pad = 9,
}

impl Role {
    /// Number of entries of a table indexed by role.
    pub const SLOTS: usize = 10;

    /// Returns whether the page's data is host data.
    pub const fn is_host_data(self) -> bool {
        matches!(
            self,
            Role::Data | Role::Log | Role::Cold | Role::Update | Role::Journal
        )
    }

    /// Returns the index into a table of [`Role::SLOTS`] entries.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the role's code in an OOB record.
    #[inline]
    pub(crate) const fn byte(self) -> u8 {
        self as u8
    }

    #[inline]
    fn from_byte(byte: u8) -> Option<Role> {
        Some(match byte {
            1 => Role::Data,
            2 => Role::Log,
            3 => Role::Map,
            4 => Role::Cold,
            5 => Role::Update,
            6 => Role::Trim,
            7 => Role::Checkpoint,
            8 => Role::Journal,
            9 => Role::Pad,
            _ => return None,
        })
    }
}

/// Flag bits of the OOB record. Stored inverted, so that setting a flag later is a legal second
/// program where NOP allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// A copy made by the controller, not a host write.
    pub const COPY: Flags = Flags(1);
    /// The data was unreadable when the page was relocated: reading it is an error, not zeros.
    pub const LOST: Flags = Flags(2);
    /// The last page of a set, which makes the whole set valid.
    pub const COMMIT: Flags = Flags(4);
    /// SLC only: the page is invalid. A hint; versions decide.
    pub const INVALID: Flags = Flags(8);
    /// Programmed by a mount, and not committed before padding follows in its block, which the
    /// mount writes when it has progressed that far.
    pub const PROVISIONAL: Flags = Flags(16);
    /// Programmed by a mount: the programs before it may have been in flight at the last cut of a
    /// device in use.
    pub const OF_MOUNT: Flags = Flags(32);
    /// The flags of a mount, which a copy does not inherit.
    pub(crate) const MOUNT_MARKS: Flags = Flags::PROVISIONAL.with(Flags::OF_MOUNT);

    /// Returns the union of both sets of flags.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Returns these flags without those of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
    /// Returns whether all flags of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Part of a page's identity that its writer sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTag {
    /// Purpose of the page.
    pub role: Role,
    /// Flags.
    pub flags: Flags,
    /// Logical page, mapping page, logical block or chunk number, depending on the role.
    pub lpn: u32,
    /// Version of the content: assigned once per host write, kept by copies.
    pub ver: u64,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oob {
    /// Tag set by the writer.
    pub tag: PageTag,
    /// Program sequence number: new for every program, including copies.
    pub pseq: u64,
    /// Allocation number of the block.
    pub epoch: u64,
}

impl Oob {
    /// Encodes the record, with erased bytes up to [`OOB_SLOT`].
    ///
    /// # Panics
    /// If a counter exceeds 48 bits: at a million programs per second that takes nine years.
    #[inline]
    pub fn encode(&self) -> [u8; OOB_SLOT] {
        let (ver, pseq, epoch) = (self.tag.ver, self.pseq, self.epoch);
        assert!(
            (ver | pseq | epoch) >> COUNTER_BITS == 0,
            "a 48-bit counter is exhausted"
        );
        // Four words: magic, role, flags, lpn; ver and the start of pseq; its rest and most of
        // epoch; the rest of epoch.
        let [magic, role] = [MAGIC, self.tag.role.byte()].map(u64::from);
        let head =
            magic | role << 8 | u64::from(!self.tag.flags.0) << 16 | u64::from(self.tag.lpn) << 32;
        let words = [
            head,
            ver | pseq << 48,
            pseq >> 16 | epoch << 32,
            epoch >> 32 | !0xFFFF,
        ];
        let mut out = [0; OOB_SLOT];
        for (word, out) in words.into_iter().zip(out.as_chunks_mut().0) {
            *out = word.to_le_bytes();
        }
        out
    }

    /// Decodes a record; returns `None` if the bytes are not a record (blank page, other format,
    /// impossible counters).
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Oob> {
        let bytes: &[u8; OOB_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
        let (head, middle, tail) = (word(0), word(8), word(16));
        if low_u8(head) != MAGIC {
            return None;
        }
        let last = u64::from(u16::from_le_bytes([bytes[24], bytes[25]]));
        let (ver, pseq) = (
            middle & COUNTER_MAX,
            middle >> 48 | (tail << 16) & COUNTER_MAX,
        );
        let epoch = tail >> 32 | last << 32;
        if ver | pseq | epoch > COUNTER_FOUND_MAX {
            return None;
        }
        let (role, flags) = (
            Role::from_byte(low_u8(head >> 8))?,
            Flags(!low_u16(head >> 16)),
        );
        Some(Oob {
            tag: PageTag {
                role,
                flags,
                lpn: narrow(head >> 32),
                ver,
            },
            pseq,
            epoch,
        })
    }

    /// Returns whether magic and role are those of a record that [`Oob::decode`] accepts.
    #[inline]
    pub fn is_record(slot: &[u8; OOB_SLOT]) -> bool {
        // One comparison, because mounts check whole blocks of records: number the roles from 0 and
        // accept nothing else.
        let start = u16::from_le_bytes([slot[0], slot[1]]);
        start
            .wrapping_sub(u16::from_le_bytes([MAGIC, 1]))
            .rotate_right(8)
            < u16::from(Role::Pad.byte())
    }

    /// Returns role and logical page of a record.
    #[inline]
    pub fn owner(slot: &[u8; OOB_SLOT]) -> (Role, u32) {
        (
            Role::from_byte(slot[1]).expect("the slot holds a record"),
            Oob::lpn(slot),
        )
    }

    /// Returns the logical page of a record.
    #[inline]
    pub fn lpn(slot: &[u8; OOB_SLOT]) -> u32 {
        u32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]])
    }

    /// Returns the logical page of a record, unless it is of a trim.
    #[inline]
    pub(crate) fn data_page(slot: &[u8; OOB_SLOT]) -> Option<Lpn> {
        (slot[1] != Role::Trim.byte()).then(|| Lpn::new(Oob::lpn(slot)))
    }

    /// Returns whether a record has all these flags.
    #[inline]
    pub(crate) fn has(slot: &[u8; OOB_SLOT], flags: Flags) -> bool {
        Flags(!u16::from_le_bytes([slot[2], slot[3]])).has(flags)
    }

    /// Returns the version of a record.
    #[inline]
    pub fn ver(slot: &[u8; OOB_SLOT]) -> u64 {
        let word = slot[8..]
            .first_chunk()
            .expect("a record has eight bytes from there on");
        u64::from_le_bytes(*word) & COUNTER_MAX
    }

    /// Changes the role in a record.
    #[inline]
    pub fn assume(slot: &mut [u8; OOB_SLOT], role: Role) {
        slot[1] = role.byte();
    }

    /// Turns records into those of copies of their pages, programmed as `pseq` and following in
    /// another block. Equals decoding each, setting [`Flags::COPY`], replacing the flags of a mount
    /// by `mark` and encoding it again.
    ///
    /// # Panics
    /// As [`Oob::encode`].
    #[inline]
    pub fn recopy(slots: &mut [[u8; OOB_SLOT]], mark: Flags, pseq: u64, epoch: u64) {
        let last = pseq + to_u64(slots.len()).saturating_sub(1);
        assert!(
            (last | epoch) >> COUNTER_BITS == 0,
            "a 48-bit counter is exhausted"
        );
        let (cleared, set) = (
            u64::from(Flags::MOUNT_MARKS.0) << 16,
            u64::from(Flags::COPY.with(mark).0) << 16,
        );
        // Records whose sequence numbers differ only in the last 16 bits have an equal second half.
        let (mut left, mut pseq) = (slots, pseq);
        while !left.is_empty() {
            let alike = left.len().min(0x1_0000 - to_usize(pseq & 0xFFFF));
            let (slots, rest) = left.split_at_mut(alike);
            let second = [pseq >> 16 | epoch << 32, epoch >> 32 | !0xFFFF].map(u64::to_le_bytes);
            let mut number = pseq << 48;
            for slot in slots {
                let [head, middle, tail @ ..] = slot.as_chunks_mut::<8>().0 else {
                    unreachable!("a record slot has four words")
                };
                *head = ((u64::from_le_bytes(*head) | cleared) & !set).to_le_bytes();
                *middle = (u64::from_le_bytes(*middle) & COUNTER_MAX | number).to_le_bytes();
                tail.copy_from_slice(&second);
                number = number.wrapping_add(1 << 48);
            }
            (left, pseq) = (rest, pseq + to_u64(alike));
        }
    }

    /// Returns the bytes that, programmed over a record, mark it [`Flags::INVALID`].
    pub fn invalid_mark() -> [u8; 4] {
        let [lo, hi] = (!Flags::INVALID.0).to_le_bytes();
        [0xFF, 0xFF, lo, hi]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Oob {
        let tag = PageTag {
            role: Role::Cold,
            flags: Flags::COPY,
            lpn: 0x1234_5678,
            ver: (1 << 47) - 1,
        };
        Oob {
            tag,
            pseq: 0x0A1B_2C3D_4E5F,
            epoch: 0x1182_7364_5546,
        }
    }

    #[test]
    fn records_survive_the_round_trip() {
        let bytes = sample().encode();
        assert_eq!(Oob::decode(&bytes), Some(sample()));
        assert_eq!(Oob::decode(&bytes[..OOB_BYTES]), Some(sample()));
        assert!(
            bytes[OOB_BYTES..].iter().all(|b| *b == 0xFF),
            "the scheme's part is erased"
        );
    }

    #[test]
    fn the_bytes_on_flash_are_those_of_format_1() {
        let bytes = sample().encode();
        let mut expected = vec![MAGIC, 4, 0xFE, 0xFF, 0x78, 0x56, 0x34, 0x12];
        expected.extend([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
        expected.extend([0x5F, 0x4E, 0x3D, 0x2C, 0x1B, 0x0A]);
        expected.extend([0x46, 0x55, 0x64, 0x73, 0x82, 0x11]);
        expected.extend([0xFF; OOB_SLOT - OOB_BYTES]);
        assert_eq!(bytes[..], expected);
        for byte in 0..=u8::MAX {
            assert_eq!(
                Role::from_byte(byte).map(|role| role as u8),
                (1..=9).contains(&byte).then_some(byte)
            );
        }
    }

    #[test]
    fn a_record_is_recopied_as_if_decoded_and_encoded_anew() {
        for flags in [Flags::NONE, Flags::COPY, Flags::LOST.with(Flags::COMMIT)] {
            let original = Oob {
                tag: PageTag {
                    flags,
                    ..sample().tag
                },
                ..sample()
            };
            let mut slot = original.encode();
            assert!(Oob::is_record(&slot));
            assert_eq!(Oob::owner(&slot), (original.tag.role, original.tag.lpn));
            for mark in [Flags::MOUNT_MARKS, Flags::OF_MOUNT, Flags::NONE] {
                Oob::recopy(
                    std::slice::from_mut(&mut slot),
                    mark,
                    0x1234_5678_9ABC,
                    0x7EDC_BA98_7654,
                );
                let tag = PageTag {
                    flags: flags.with(Flags::COPY).with(mark),
                    ..original.tag
                };
                assert_eq!(
                    slot,
                    Oob {
                        tag,
                        pseq: 0x1234_5678_9ABC,
                        epoch: 0x7EDC_BA98_7654
                    }
                    .encode()
                );
            }
        }
        assert!(!Oob::is_record(&[0xFF; OOB_SLOT]) && !Oob::is_record(&[MAGIC; OOB_SLOT]));
    }

    #[test]
    fn a_run_is_recopied_as_its_records_one_by_one_also_where_numbers_carry() {
        for pseq in [0xFFFE, 0xFFFF, 0x1_0000, 0x1234_FFFD] {
            let original = |i: u64| Oob {
                tag: PageTag {
                    lpn: i as u32,
                    ver: 7 * i,
                    ..sample().tag
                },
                ..sample()
            };
            let mut run: Vec<_> = (0..5).map(|i| original(i).encode()).collect();
            let mut alone = run.clone();
            Oob::recopy(&mut run, Flags::NONE, pseq, 9);
            for (slot, pseq) in alone.iter_mut().zip(pseq..) {
                Oob::recopy(std::slice::from_mut(slot), Flags::NONE, pseq, 9);
                assert_eq!(
                    Oob::decode(slot).map(|oob| (oob.pseq, oob.epoch)),
                    Some((pseq, 9))
                );
            }
            assert_eq!(run, alone);
        }
    }

    #[test]
    fn blank_foreign_and_short_bytes_are_no_record() {
        assert_eq!(Oob::decode(&[0xFF; 64]), None);
        assert_eq!(Oob::decode(&[0; 64]), None);
        assert_eq!(Oob::decode(&[MAGIC; 12]), None);
        let mut bytes = sample().encode();
        bytes[1] = 0;
        assert_eq!(Oob::decode(&bytes), None);
        assert_eq!(
            Oob::decode(
                &Oob {
                    epoch: COUNTER_FOUND_MAX + 1,
                    ..sample()
                }
                .encode()
            ),
            None
        );
    }

    #[test]
    fn the_invalid_mark_only_clears_bits_and_sets_only_its_flag() {
        let mut bytes = sample().encode();
        bytes
            .iter_mut()
            .zip(Oob::invalid_mark())
            .for_each(|(b, m)| *b &= m);
        let marked = Oob::decode(&bytes).unwrap();
        assert_eq!(marked.tag.flags, Flags::COPY.with(Flags::INVALID));
        assert_eq!(
            Oob {
                tag: PageTag {
                    flags: Flags::COPY,
                    ..marked.tag
                },
                ..marked
            },
            sample()
        );
    }

    #[test]
    #[should_panic(expected = "48-bit counter")]
    fn an_exhausted_counter_is_not_truncated() {
        Oob {
            pseq: 1 << 48,
            ..sample()
        }
        .encode();
    }
}
