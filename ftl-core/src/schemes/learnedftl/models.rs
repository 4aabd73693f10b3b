//! The models: for each mapping page a few lines through the locations of its pages (*pieces*), and
//! a bit for each logical page: whether its prediction is exact.
//!
//! A piece predicts `base + slope * (index - first)`, rounded, for the entries from its first one
//! to the next piece. Numbers are integers, so a prediction is the same at any time.
//!
//! Invariant: a set bit means that the page is where its piece predicts it. So the caller clears
//! the bit before it moves, trims or overwrites the page.

use crate::ram::{vec_bytes, vec_most};
use nand_model::Ppn;
use std::cmp::Reverse;

/// Slope of pages that lie next to each other, in fixed point.
const ONE: u32 = 1 << 15;
const HALF: u32 = ONE / 2;

/// Earlier lines that a new line is compared with.
const LOOK_BACK: usize = 8;

/// A line, in 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    /// Location of its first page.
    base: u32,
    /// Index of its first entry in the mapping page.
    first: u16,
    /// In units of `1 / ONE`.
    slope: u16,
}

impl Piece {
    #[inline]
    fn at(self, index: u16) -> u32 {
        let rise = u32::from(self.slope) * u32::from(index - self.first);
        self.base.wrapping_add((rise + HALF) / ONE)
    }
}

/// A line in the making: the slopes with which it passes through all its points so far.
#[derive(Clone, Copy, Debug)]
struct Cone {
    piece: Piece,
    low: u32,
    high: u32,
}

impl Cone {
    fn new((first, base): (u16, u32)) -> Self {
        let piece = Piece {
            base,
            first,
            slope: ONE as u16,
        };
        let (low, high) = (0, u32::from(u16::MAX));
        Cone { piece, low, high }
    }

    /// Takes a further point. Returns false if no line passes through all of them.
    fn take(&mut self, (index, ppn): (u16, u32)) -> bool {
        let Some(rise) = ppn.checked_sub(self.piece.base) else {
            return false;
        };
        let run = u32::from(index - self.piece.first);
        if rise > 2 * run {
            return false;
        }
        let low = self
            .low
            .max((rise * ONE).saturating_sub(HALF).div_ceil(run));
        let high = self.high.min((rise * ONE + HALF - 1) / run);
        if low > high {
            return false;
        }
        (self.low, self.high) = (low, high);
        true
    }

    fn piece(self) -> Piece {
        let slope = match (self.low..=self.high).contains(&ONE) {
            true => ONE,
            false => (self.low + self.high) / 2,
        };
        Piece {
            slope: slope as u16,
            ..self.piece
        }
    }
}

/// A line that may become a piece, and how many pages it predicts.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    piece: Piece,
    pages: u32,
}

/// The models of all mapping pages.
pub(super) struct Models {
    /// Entries of a mapping page.
    per_page: u32,
    /// Pieces that a model may have.
    most: usize,
    /// `most` of each mapping page, ascending.
    pieces: Vec<Piece>,
    /// Pieces in use, by mapping page.
    used: Vec<u8>,
    /// Whether the whole mapping page was seen since the mount, by mapping page.
    seen: Vec<bool>,
    /// One bit per logical page.
    exact: Vec<u64>,
    /// Bits that are set.
    exact_pages: u64,
    /// Indexes and locations from which a model is made.
    points: Vec<(u16, u32)>,
    candidates: Vec<Candidate>,
}

impl Models {
    /// Creates models that predict nothing, of at most `most` pieces each; 0 switches them off.
    pub(super) fn new(map_pages: u32, per_page: u32, most: u32) -> Self {
        let (of_map, most) = (map_pages as usize, most as usize);
        assert!(
            per_page.is_multiple_of(64),
            "a mapping page has {per_page} entries, not whole words of bits"
        );
        let words = match most {
            0 => 0,
            _ => of_map * per_page as usize / 64,
        };
        Models {
            per_page,
            most,
            pieces: vec![Piece::default(); of_map * most],
            used: vec![0; of_map],
            seen: vec![false; of_map],
            exact: vec![0; words],
            exact_pages: 0,
            points: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// Returns where a page is, if its prediction is exact.
    #[inline]
    pub(super) fn predict(&self, lpn: u32) -> Option<Ppn> {
        let word = self.exact.get(lpn as usize / 64)?;
        if word >> (lpn % 64) & 1 == 0 {
            return None;
        }
        let vtpn = (lpn / self.per_page) as usize;
        let index = (lpn % self.per_page) as u16;
        let pieces = &self.pieces[vtpn * self.most..][..usize::from(self.used[vtpn])];
        let after = pieces.partition_point(|piece| piece.first <= index);
        Some(Ppn::new(pieces[after - 1].at(index)))
    }

    /// Forgets where a page is.
    #[inline]
    pub(super) fn clear(&mut self, lpn: u32) {
        if let Some(word) = self.exact.get_mut(lpn as usize / 64) {
            self.exact_pages -= *word >> (lpn % 64) & 1;
            *word &= !(1u64 << (lpn % 64));
        }
    }

    /// Forgets where the pages of a mapping page are.
    pub(super) fn clear_all(&mut self, vtpn: u32) {
        if self.most == 0 {
            return;
        }
        self.clear_bits(vtpn);
        self.used[vtpn as usize] = 0;
    }

    /// Returns whether a model was made of the whole mapping page since the mount.
    pub(super) fn has_seen(&self, vtpn: u32) -> bool {
        self.most == 0 || self.seen[vtpn as usize]
    }

    /// Makes the model of a mapping page from the locations of all its pages, in their order.
    pub(super) fn train(&mut self, vtpn: u32, places: impl Iterator<Item = Option<Ppn>>) {
        if self.most == 0 {
            return;
        }
        self.points.clear();
        let known = (0..).zip(places);
        let known = known.filter_map(|(index, to)| to.map(|to| (index, to.raw())));
        self.points.extend(known);
        self.seen[vtpn as usize] = true;
        self.fit(vtpn);
    }

    /// Adds `count` pages of one mapping page, which were written in order to the pages from `to`
    /// on. Keeps the pieces with the most pages.
    pub(super) fn add_run(&mut self, lpn: u32, to: Ppn, count: u32) {
        if self.most == 0 {
            return;
        }
        let (vtpn, first) = (lpn / self.per_page, lpn % self.per_page);
        debug_assert!(
            first + count <= self.per_page,
            "{count} pages from {lpn} on belong to several mapping pages"
        );
        self.points.clear();
        for index in 0..self.per_page {
            let known = match index.checked_sub(first).filter(|at| *at < count) {
                Some(at) => Some(to.raw() + at),
                None => self
                    .predict(vtpn * self.per_page + index)
                    .map(|ppn| ppn.raw()),
            };
            self.points.extend(known.map(|ppn| (index as u16, ppn)));
        }
        self.fit(vtpn);
    }

    /// Makes a model from the points, and sets the bits of those that it predicts exactly.
    fn fit(&mut self, vtpn: u32) {
        self.find_lines();
        if self.candidates.len() > self.most {
            let by_pages = |line: &Candidate| (Reverse(line.pages), line.piece.first);
            self.candidates
                .select_nth_unstable_by_key(self.most, by_pages);
            self.candidates.truncate(self.most);
            self.candidates
                .sort_unstable_by_key(|line| line.piece.first);
        }
        self.clear_bits(vtpn);
        let first = vtpn as usize * self.most;
        let pieces = &mut self.pieces[first..][..self.candidates.len()];
        for (piece, line) in pieces.iter_mut().zip(&self.candidates) {
            *piece = line.piece;
        }
        self.used[vtpn as usize] = pieces.len() as u8;
        let words = self.per_page as usize / 64;
        let bits = &mut self.exact[vtpn as usize * words..][..words];
        let mut next = 0;
        for (index, ppn) in &self.points {
            while pieces.get(next).is_some_and(|piece| piece.first <= *index) {
                next += 1;
            }
            if next > 0 && pieces[next - 1].at(*index) == *ppn {
                bits[usize::from(*index) / 64] |= 1u64 << (index % 64);
                self.exact_pages += 1;
            }
        }
    }

    /// Lists lines through all points, in their order. If there are too many, a line is continued
    /// after a few pages that were written elsewhere, unless most pages were.
    fn find_lines(&mut self) {
        self.list_lines(0);
        let lines = self.candidates.len();
        if lines > self.most && 2 * lines < self.points.len() {
            self.list_lines(LOOK_BACK);
        }
    }

    /// Lists lines through all points; each may continue one of the last `back` lines.
    fn list_lines(&mut self, back: usize) {
        self.candidates.clear();
        let mut begun = 0;
        while begun < self.points.len() {
            let mut cone = Cone::new(self.points[begun]);
            let rest = &self.points[begun + 1..];
            let more = rest.iter().take_while(|point| cone.take(**point)).count();
            let end = begun + 1 + more;
            self.add_line(cone.piece(), begun..end, back);
            begun = end;
        }
    }

    /// Adds the line of these points, or continues one of the last `back` lines that predicts them
    /// too, if the lines between have no more pages.
    fn add_line(&mut self, piece: Piece, of: std::ops::Range<usize>, back: usize) {
        let points = &self.points[of];
        let (count, mut between) = (points.len() as u32, 0);
        let earlier = self.candidates.iter().enumerate().rev().take(back);
        for (at, line) in earlier {
            if points
                .iter()
                .all(|(index, ppn)| line.piece.at(*index) == *ppn)
            {
                self.candidates.truncate(at + 1);
                self.candidates[at].pages += count;
                return;
            }
            between += line.pages;
            if between > count {
                break;
            }
        }
        self.candidates.push(Candidate {
            piece,
            pages: count,
        });
    }

    fn clear_bits(&mut self, vtpn: u32) {
        let words = self.per_page as usize / 64;
        let bits = &mut self.exact[vtpn as usize * words..][..words];
        self.exact_pages -= u64::from(bits.iter().map(|word| word.count_ones()).sum::<u32>());
        bits.fill(0);
    }

    /// Returns the number of pages whose prediction is exact.
    pub(super) fn exact_pages(&self) -> u64 {
        self.exact_pages
    }

    /// Returns the bytes of the models and bits: by the paper's count, now, and at most.
    pub(super) fn bytes(&self) -> (u64, u64, u64) {
        if self.most == 0 {
            let now = vec_bytes::<u8>(self.used.capacity() + self.seen.capacity());
            return (0, now, now);
        }
        let paper = vec_bytes::<Piece>(self.pieces.len()) + vec_bytes::<u64>(self.exact.len());
        let fixed = vec_bytes::<Piece>(self.pieces.capacity())
            + vec_bytes::<u64>(self.exact.capacity())
            + vec_bytes::<u8>(self.used.capacity() + self.seen.capacity());
        let work = vec_bytes::<(u16, u32)>(self.points.capacity())
            + vec_bytes::<Candidate>(self.candidates.capacity());
        let entries = u64::from(self.per_page);
        let work_most = vec_most::<(u16, u32)>(entries) + vec_most::<Candidate>(entries);
        (paper, fixed + work, fixed + work_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;

    const PER_PAGE: u32 = 128;

    fn models(most: u32) -> Models {
        Models::new(3, PER_PAGE, most)
    }

    fn trained(most: u32, places: &[Option<u32>]) -> Models {
        let mut models = models(most);
        models.train(1, places.iter().map(|to| to.map(Ppn::new)));
        models
    }

    /// Returns the exact predictions of the second mapping page.
    fn exact(models: &Models) -> Vec<Option<u32>> {
        let lpns = PER_PAGE..2 * PER_PAGE;
        lpns.map(|lpn| models.predict(lpn).map(Ppn::raw)).collect()
    }

    fn lines(models: &Models) -> u8 {
        models.used[1]
    }

    fn row(from: u32) -> Vec<Option<u32>> {
        (0..PER_PAGE).map(|at| Some(from + at)).collect()
    }

    #[test]
    fn pages_in_order_have_one_line() {
        let models = trained(8, &row(5000));
        assert_eq!((exact(&models), lines(&models)), (row(5000), 1));
        assert_eq!(models.exact_pages(), u64::from(PER_PAGE));
        assert_eq!(models.predict(0), None, "another mapping page");
        assert_eq!(models.predict(2 * PER_PAGE), None);
        assert!(models.has_seen(1) && !models.has_seen(0));
    }

    /// Every second and every third page, as after GC of a block that had only those.
    #[test]
    fn pages_with_gaps_have_one_line_of_a_smaller_slope() {
        for gap in [2, 3] {
            let places: Vec<_> = (0..PER_PAGE)
                .map(|at| (at % gap == 0).then_some(700 + at / gap))
                .collect();
            let models = trained(8, &places);
            assert_eq!((exact(&models), lines(&models)), (places, 1), "gap {gap}");
        }
    }

    #[test]
    fn pages_written_elsewhere_do_not_part_a_line() {
        let mut places = row(5000);
        for (at, to) in [(3, 9), (40, 17), (41, 18), (90, 1), (127, 4)] {
            places[at] = Some(to);
        }
        // One line of 123 pages; the second piece has the longest of the others.
        let models = trained(2, &places);
        let found = exact(&models);
        for (at, to) in found.iter().enumerate() {
            assert!(to.is_none_or(|to| places[at] == Some(to)), "page {at}");
        }
        let alone = trained(1, &places);
        assert_eq!(alone.exact_pages(), 123);
        assert_eq!(exact(&alone)[40], None);
    }

    #[test]
    fn the_lines_with_the_most_pages_stay() {
        // Four lines of 20, 60, 8 and 40 pages.
        let starts = [(0, 900), (20, 100), (80, 3000), (88, 5000)];
        let places: Vec<_> = (0..PER_PAGE)
            .map(|at| {
                let (first, to) = starts.into_iter().rfind(|(first, _)| *first <= at).unwrap();
                Some(to + at - first)
            })
            .collect();
        let models = trained(2, &places);
        let found = exact(&models);
        let known = |range: std::ops::Range<usize>| found[range].iter().flatten().count();
        assert_eq!(
            [known(0..20), known(20..80), known(80..88), known(88..128)],
            [0, 60, 0, 40]
        );
        assert_eq!(trained(4, &places).exact_pages(), 128);
    }

    #[test]
    fn a_cleared_page_is_not_predicted_and_the_others_are() {
        let mut models = trained(8, &row(5000));
        models.clear(PER_PAGE + 7);
        let mut expected = row(5000);
        expected[7] = None;
        assert_eq!(exact(&models), expected);
        models.clear_all(1);
        assert_eq!(models.exact_pages(), 0);
    }

    #[test]
    fn a_run_replaces_what_it_covers_and_keeps_the_rest() {
        let mut models = trained(8, &row(5000));
        models.clear(PER_PAGE + 100);
        models.add_run(PER_PAGE + 10, Ppn::new(64), 30);
        let mut expected = row(5000);
        expected[100] = None;
        (10..40).for_each(|at| expected[at] = Some(64 + at as u32 - 10));
        assert_eq!((exact(&models), lines(&models)), (expected, 3));
    }

    #[test]
    fn without_pieces_nothing_is_kept() {
        let mut models = trained(0, &row(5000));
        models.add_run(PER_PAGE, Ppn::new(64), 30);
        models.clear(PER_PAGE);
        models.clear_all(1);
        assert_eq!((models.predict(PER_PAGE), models.bytes().0), (None, 0));
    }

    /// Every prediction is the location that was learned last, whatever is learned and cleared.
    #[test]
    fn predictions_agree_with_a_plain_map() {
        let mut rng = SplitMix::new(7);
        for most in [1, 3, 8, 64] {
            let mut models = models(most);
            let mut map: Vec<Option<u32>> = vec![None; 3 * PER_PAGE as usize];
            for step in 0..4000 {
                let (vtpn, at) = (rng.below(3) as u32, rng.below(u64::from(PER_PAGE)) as u32);
                let (lpn, to) = (vtpn * PER_PAGE + at, rng.below(1 << 20) as u32);
                match rng.below(8) {
                    0 => {
                        let of = (vtpn * PER_PAGE) as usize..((vtpn + 1) * PER_PAGE) as usize;
                        models.train(vtpn, map[of].iter().map(|to| to.map(Ppn::new)));
                    }
                    1 | 2 => {
                        let count = 1 + rng.below(u64::from(PER_PAGE - at)) as u32;
                        (0..count).for_each(|i| {
                            models.clear(lpn + i);
                            map[(lpn + i) as usize] = Some(to + i);
                        });
                        models.add_run(lpn, Ppn::new(to), count);
                    }
                    3 => {
                        models.clear(lpn);
                        map[lpn as usize] = None;
                    }
                    4 => models.clear_all(vtpn),
                    _ => {
                        models.clear(lpn);
                        map[lpn as usize] = Some(to);
                    }
                }
                let mut predicted = 0;
                for (lpn, known) in (0..).zip(&map) {
                    let found = models.predict(lpn).map(Ppn::raw);
                    assert!(
                        found.is_none() || found == *known,
                        "{most}, step {step}, {lpn}"
                    );
                    predicted += u64::from(found.is_some());
                }
                assert_eq!(models.exact_pages(), predicted, "{most}, step {step}");
                let (_, now, most_bytes) = models.bytes();
                assert!(now <= most_bytes, "{now} bytes, at most {most_bytes}");
            }
        }
    }
}
