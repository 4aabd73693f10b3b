//! Versions of the controller's own pages. A scheme reads one, changes some of its words, and
//! programs it elsewhere; or it relocates one as it is.
//!
//! A store without data keeps no content of these pages; `kept.rs` has a copy of each instead. Here
//! that copy is not read: the changes are recorded, and applied to it when the new version is
//! programmed. From then on the copy belongs to the new version, because the caller supersedes the
//! old one next. If a program fails, the old version still has its copy.

use super::kept::set_word;
use super::state::Flash;
use crate::error::FtlError;
use crate::format::{Flags, OOB_SLOT, Oob, PageTag};
use crate::int::{index, to_u32, to_u64};
use crate::ram::vec_bytes;
use nand_model::{Cause, Ppn, RunError};

/// One of the controller's own pages in RAM, or the changes of the copy that stands for it.
pub(crate) struct OwnPage {
    bytes: Box<[u8]>,
    /// The page whose copy has the content, instead of `bytes`.
    at: Option<Ppn>,
    /// Changes of that copy: words of four bytes, little endian, by number.
    changes: Vec<(u32, u32)>,
}

impl OwnPage {
    /// Creates a page of this length, all zeros.
    pub(crate) fn new(bytes: usize) -> Self {
        OwnPage {
            bytes: vec![0; bytes].into(),
            at: None,
            changes: Vec::new(),
        }
    }

    /// Returns the page for new content.
    pub(crate) fn renew(&mut self) -> &mut [u8] {
        self.at = None;
        &mut self.bytes
    }

    /// Changes a word. [`Flash::own`] still returns the old one until the page is programmed, if
    /// the store keeps no data.
    #[inline]
    pub(crate) fn set_word(&mut self, number: u32, word: u32) {
        if self.at.is_some() {
            self.changes.push((number, word));
        } else {
            set_word(&mut self.bytes, number, word);
        }
    }

    /// Returns the allocated bytes.
    pub(crate) fn ram(&self) -> u64 {
        self.bytes.len() as u64 + vec_bytes::<(u32, u32)>(self.changes.capacity())
    }
}

impl Flash {
    /// Returns the content of the page that was last read, renewed or programmed.
    #[inline]
    pub(crate) fn own<'a>(&'a self, page: &'a OwnPage) -> &'a [u8] {
        match page.at {
            Some(ppn) => self.copy_of(ppn),
            None => &page.bytes,
        }
    }

    fn copy_of(&self, ppn: Ppn) -> &[u8] {
        let kept = self.kept.as_ref();
        kept.and_then(|kept| kept.get(self.chip.geometry(), ppn))
            .expect("the copy of a page that was read exists")
    }

    /// Reads one of the controller's own pages. Returns `Ok(None)` if data or record is unreadable.
    pub(crate) fn read_own(
        &mut self,
        ppn: Ppn,
        page: &mut OwnPage,
        cause: Cause,
    ) -> Result<Option<Oob>, FtlError> {
        page.changes.clear();
        page.at = None;
        let oob = self.read_into(ppn, &mut page.bytes, cause)?;
        if let Some(kept) = &self.kept
            && oob.is_some()
            && kept.get(self.chip.geometry(), ppn).is_some()
        {
            page.at = Some(ppn);
        }
        Ok(oob)
    }

    /// Programs a new version of one of the controller's own pages.
    pub(crate) fn program_own(
        &mut self,
        ppn: Ppn,
        epoch: u64,
        tag: PageTag,
        page: &mut OwnPage,
        cause: Cause,
    ) -> Result<(), RunError> {
        self.wait();
        self.pseq += 1;
        let flags = tag.flags.without(Flags::MOUNT_MARKS).with(self.mark);
        let oob = Oob {
            tag: PageTag { flags, ..tag },
            pseq: self.pseq,
            epoch,
        }
        .encode();
        // A store without data ignores it.
        let data = &page.bytes;
        let done = self.chip.program_run(self.now, ppn, 1, data, &oob, cause)?;
        self.proceed(done);
        if let Some(kept) = &mut self.kept {
            let geometry = self.chip.geometry();
            match page.at {
                Some(old) => kept.change_owner(geometry, old, ppn, &page.changes),
                None => kept.exchange(geometry, ppn, &mut page.bytes),
            }
            page.at = Some(ppn);
            page.changes.clear();
        }
        Ok(())
    }

    /// Programs copies of the controller's own pages `from`, which are of one block, upwards from
    /// `to` in another, like [`Flash::program_copies`]. The caller has read them with
    /// [`Flash::read_pages_in_place`].
    pub(crate) fn program_own_copies(
        &mut self,
        from: &[Ppn],
        to: Ppn,
        epoch: u64,
        records: &mut [[u8; OOB_SLOT]],
        data: &[u8],
        cause: Cause,
    ) -> Result<(), RunError> {
        debug_assert_eq!(from.len(), records.len(), "pages and records");
        Oob::recopy(records, self.mark, self.pseq + 1, epoch);
        self.pseq += to_u64(records.len());
        let (pages, oobs) = (to_u32(records.len()), records.as_flattened());
        let outcome = self
            .chip
            .program_run(self.now, to, pages, data, oobs, cause);
        if let Some(kept) = &mut self.kept {
            let done = match &outcome {
                Ok(_) => from.len(),
                Err(run) => index(run.done),
            };
            kept.change_owners(self.chip.geometry(), &from[..done], to);
        }
        self.proceed(outcome?);
        Ok(())
    }
}
