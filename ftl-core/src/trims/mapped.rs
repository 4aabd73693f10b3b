//! The mapped logical pages.

/// One bit per logical page: whether it has data.
pub(crate) struct Mapped {
    bits: Vec<u64>,
    count: u64,
}

impl Mapped {
    pub(crate) fn new(logical_pages: u32) -> Self {
        Mapped {
            bits: vec![0; (logical_pages as usize).div_ceil(64)],
            count: 0,
        }
    }

    #[inline]
    pub(crate) fn has(&self, lpn: u32) -> bool {
        self.bits[lpn as usize / 64] >> (lpn % 64) & 1 == 1
    }

    /// Sets whether the page has data. Returns whether that changes.
    #[inline]
    pub(crate) fn set(&mut self, lpn: u32, mapped: bool) -> bool {
        let changes = self.has(lpn) != mapped;
        if changes {
            self.bits[lpn as usize / 64] ^= 1 << (lpn % 64);
            self.count = if mapped {
                self.count + 1
            } else {
                self.count - 1
            };
        }
        changes
    }

    /// Returns the bits of the 64 pages from `64 * i` on.
    #[inline]
    pub(crate) fn word(&self, i: usize) -> u64 {
        self.bits[i]
    }

    /// Returns whether any of the pages has data.
    pub(crate) fn any(&self, mut pages: std::ops::Range<u32>) -> bool {
        pages.any(|lpn| self.has(lpn))
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn bytes(&self) -> u64 {
        8 * self.bits.len() as u64
    }
}
