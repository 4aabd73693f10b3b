//! The filter of hot pages, which decides the writes that go to the HOT group.

use crate::addr::Lpn;

/// Largest value of a counter, and that of a hot page.
const HOT: u8 = 3;
/// Least share of the writes that HOT has, and largest share of valid pages in its victims, if the
/// filter is accurate.
const TRAFFIC_LEAST: f64 = 0.15;
const VALID_MOST: f64 = 0.2;

pub(super) struct HotFilter {
    /// Counters of 2 bits by page, four in a byte.
    counters: Vec<u8>,
    /// Writes that are not counted at first: the first drive write.
    warm_up: u64,
    /// Largest age of a block at which an overwrite of its page counts as hot, in writes.
    age_limit: u64,
    /// Writes until the limit is set again.
    left: u64,
    /// Ages of the HOT blocks erased since then, and their number.
    ages: (u64, u64),
    /// Hot writes and all writes of this epoch.
    traffic: (u64, u64),
}

impl HotFilter {
    pub(super) fn new(logical_pages: u32) -> Self {
        let pages = u64::from(logical_pages.max(1));
        HotFilter {
            counters: vec![0; logical_pages.div_ceil(4) as usize],
            warm_up: pages,
            age_limit: pages,
            left: pages,
            ages: (0, 0),
            traffic: (0, 0),
        }
    }

    /// Counts a write; `age` of the block of the replaced version, if that is in the first group.
    /// Returns whether the page is hot.
    #[inline]
    pub(super) fn on_write(&mut self, lpn: Lpn, age: Option<u64>) -> bool {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return false;
        }
        match age {
            Some(age) if age <= self.age_limit => self.change(lpn, 1),
            Some(_) => self.change(lpn, -1),
            None => {}
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 && self.ages.1 > 0 {
            let mean = self.ages.0 / self.ages.1;
            self.age_limit = u64::midpoint(self.age_limit, mean).max(1);
            (self.left, self.ages) = (self.age_limit, (0, 0));
        }
        let is_hot = self.counter(lpn) == HOT;
        let (hot, all) = self.traffic;
        self.traffic = (hot + u64::from(is_hot), all + 1);
        is_hot
    }

    /// Counts a copy out of HOT, or out of the first group.
    pub(super) fn on_copy(&mut self, lpn: Lpn, is_of_hot: bool) {
        self.change(lpn, if is_of_hot { -2 } else { -1 });
    }

    /// Counts an erased block of HOT; `age` since it was opened, in writes.
    pub(super) fn on_erase(&mut self, age: u64) {
        (self.ages.0, self.ages.1) = (self.ages.0 + age, self.ages.1 + 1);
    }

    /// Ends an epoch. Returns the share of hot writes.
    pub(super) fn end_epoch(&mut self) -> f64 {
        let (hot, all) = std::mem::take(&mut self.traffic);
        hot as f64 / all.max(1) as f64
    }

    /// Returns whether the filter finds the pages that the model supposes in HOT.
    pub(super) fn is_accurate(traffic: f64, valid: f64) -> bool {
        traffic >= TRAFFIC_LEAST && valid <= VALID_MOST
    }

    fn counter(&self, lpn: Lpn) -> u8 {
        let byte = self.counters.get(lpn.index() / 4).copied();
        byte.unwrap_or(0) >> (2 * (lpn.raw() % 4)) & HOT
    }

    fn change(&mut self, lpn: Lpn, by: i8) {
        let changed = self.counter(lpn).saturating_add_signed(by).min(HOT);
        let shift = 2 * (lpn.raw() % 4);
        if let Some(byte) = self.counters.get_mut(lpn.index() / 4) {
            *byte = *byte & !(HOT << shift) | changed << shift;
        }
    }

    /// Returns its bytes: 2 bits per page.
    pub(super) fn bytes(&self) -> u64 {
        self.counters.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_hot_after_three_short_lives_and_cools_by_copies() {
        let mut filter = HotFilter::new(8);
        let page = Lpn::new(5);
        // The first drive write does not count.
        (0..8).for_each(|_| assert!(!filter.on_write(page, Some(1))));
        let hot = [1, 2, 3, 4].map(|_| filter.on_write(page, Some(8)));
        assert_eq!(hot, [false, false, true, true]);
        assert_eq!(filter.counter(Lpn::new(4)), 0);
        // A version that lived longer than the limit, and one that is not in the first group.
        assert!(!filter.on_write(page, Some(9)));
        assert!(filter.on_write(page, Some(8)));
        assert!(filter.on_write(page, None));
        filter.on_copy(page, true);
        assert_eq!(filter.counter(page), 1);
        filter.on_copy(page, false);
        filter.on_copy(page, false);
        assert_eq!(filter.counter(page), 0);
    }

    #[test]
    fn the_limit_follows_the_lifetime_of_hot_blocks() {
        let mut filter = HotFilter::new(8);
        (0..12).for_each(|_| assert!(!filter.on_write(Lpn::new(0), None)));
        filter.on_erase(2);
        filter.on_erase(4);
        (0..3).for_each(|_| assert!(!filter.on_write(Lpn::new(0), None)));
        assert_eq!((filter.age_limit, filter.left), (8, 1));
        filter.on_write(Lpn::new(0), None);
        // (8 + 3) / 2.
        assert_eq!((filter.age_limit, filter.left), (5, 5));
        assert_eq!(filter.bytes(), 2);
    }
}
