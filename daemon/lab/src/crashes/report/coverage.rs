//! Points of an exploration: how completely each was visited, and where states failed.

use ftld_kit::convert::{to_u64, to_usize};
use serde::Serialize;

/// How completely points were visited.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in crate::crashes) struct Coverage {
    /// Points of which every state was made.
    pub(in crate::crashes) exhaustive: u64,
    /// Points of which states were drawn.
    pub(in crate::crashes) sampled: u64,
    /// States of the largest sampled point; `u64::MAX` for more.
    pub(in crate::crashes) largest: u64,
}

impl Coverage {
    /// Adds a point with this number of states, of which at most `most` are made.
    pub(in crate::crashes) fn add(&mut self, states: u64, most: u32) {
        if states <= u64::from(most) {
            self.exhaustive += 1;
            return;
        }
        self.sampled += 1;
        self.largest = self.largest.max(states);
    }

    /// Returns it in words; `None` if no point was counted.
    pub(super) fn text(&self, most: u32) -> Option<String> {
        let largest = match self.largest {
            u64::MAX => "more than 10^19".to_owned(),
            states if states < 1_000_000 => states.to_string(),
            states => format!("10^{}", states.ilog10()),
        };
        match (self.exhaustive, self.sampled) {
            (0, 0) => None,
            (_, 0) => Some("all states of every point".to_owned()),
            (exhaustive, sampled) => Some(format!(
                "all states of {exhaustive} points, {most} of each of {sampled}, of which the largest has {largest}"
            )),
        }
    }
}

/// Number of parts of a strip.
const PARTS: usize = 400;

/// The points in the order of the recording, in equal parts.
#[derive(Clone, Debug)]
pub(in crate::crashes) struct Strip {
    /// Entry of each point.
    entries: Vec<u64>,
    visited: Vec<u64>,
    failed: Vec<u64>,
}

impl Strip {
    pub(super) fn new(entries: Vec<u64>) -> Strip {
        let parts = entries.len().min(PARTS);
        Strip {
            entries,
            visited: vec![0; parts],
            failed: vec![0; parts],
        }
    }

    /// Notes that the states of the point after an entry were made.
    pub(in crate::crashes) fn visited(&mut self, entry: u64) {
        let at = self.part(entry);
        self.visited[at] += 1;
    }

    /// Notes a failed state of the point after an entry.
    pub(super) fn failed(&mut self, entry: u64) {
        let at = self.part(entry);
        self.failed[at] += 1;
    }

    fn part(&self, entry: u64) -> usize {
        let point = self.entries.partition_point(|at| *at < entry);
        let point = point.min(self.entries.len() - 1);
        let parts = to_u64(self.visited.len());
        to_usize(to_u64(point) * parts / to_u64(self.entries.len()))
    }

    /// Returns the strip as SVG: green where no state failed, red where one did, grey where no
    /// point was visited.
    pub(super) fn svg(&self) -> String {
        let parts = self.visited.len();
        let mut bars = String::new();
        let mut from = 0;
        for at in 1..=parts {
            if at < parts && self.class(at) == self.class(from) {
                continue;
            }
            let (class, width) = (self.class(from), at - from);
            bars +=
                &format!("<rect class=\"{class}\" x=\"{from}\" width=\"{width}\" height=\"1\"/>");
            from = at;
        }
        format!(
            "<svg class=\"strip\" viewBox=\"0 0 {parts} 1\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"points of the recording in order; red: a state failed\">{bars}</svg>\n"
        )
    }

    fn class(&self, part: usize) -> &'static str {
        match (self.failed[part], self.visited[part]) {
            (0, 0) => "unvisited",
            (0, _) => "passed",
            _ => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_has_red_where_states_failed() {
        let mut strip = Strip::new(vec![3, 5, 8, 9]);
        for entry in [3, 5, 9] {
            strip.visited(entry);
        }
        strip.failed(5);
        let classes: Vec<_> = (0..4).map(|part| strip.class(part)).collect();
        assert_eq!(classes, ["passed", "failed", "unvisited", "passed"]);
        assert_eq!(strip.svg().matches("<rect").count(), 4);
        // Many points share a part.
        let mut strip = Strip::new((1..=4000).collect());
        (1..=4000).for_each(|entry| strip.visited(entry));
        assert_eq!(strip.visited, vec![10; PARTS]);
        assert_eq!(strip.svg().matches("<rect").count(), 1);
    }

    #[test]
    fn coverage_is_said_in_words() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.text(16), None);
        coverage.add(16, 16);
        assert_eq!(coverage.text(16).unwrap(), "all states of every point");
        coverage.add(1 << 40, 16);
        assert_eq!(
            coverage.text(16).unwrap(),
            "all states of 1 points, 16 of each of 1, of which the largest has 10^12"
        );
    }
}
