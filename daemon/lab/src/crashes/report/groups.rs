//! Failed states that say the same: one line of a report for each fault instead of one for each
//! state.

use super::FailedCase;
use serde_json::{Value, json};

/// Largest number of groups; further messages share the last one.
const GROUPS_MAX: usize = 40;
/// Longest message in characters.
const MESSAGE_MAX: usize = 160;
/// Message of the group of all further messages.
const OTHERS: &str = "other messages";

/// Failed states with one message.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) message: String,
    pub(super) states: u64,
    /// The case that fails after the fewest entries.
    pub(super) earliest: FailedCase,
    /// The case with the fewest deviating units.
    pub(super) smallest: FailedCase,
}

/// The groups, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    pub(super) fn add(&mut self, case: &FailedCase) {
        let mut message = message(case);
        let is_new = |message: &str| self.0.iter().all(|group| group.message != message);
        if self.0.len() >= GROUPS_MAX && is_new(&message) {
            OTHERS.clone_into(&mut message);
        }
        match self.0.iter_mut().find(|group| group.message == message) {
            Some(group) => group.add(case),
            None => self.0.push(Group {
                message,
                states: 1,
                earliest: case.clone(),
                smallest: case.clone(),
            }),
        }
    }

    /// Returns the groups, that with the most states first.
    pub(super) fn by_states(&self) -> Vec<&Group> {
        let mut groups: Vec<_> = self.0.iter().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.states));
        groups
    }

    /// Returns the failed case after the fewest entries.
    pub(super) fn earliest(&self) -> Option<&FailedCase> {
        let earliest = self.0.iter().map(|group| &group.earliest);
        earliest.min_by_key(|failed| place(failed))
    }
}

impl Group {
    fn add(&mut self, case: &FailedCase) {
        self.states += 1;
        if place(case) < place(&self.earliest) {
            self.earliest = case.clone();
        }
        if case.size() < self.smallest.size() {
            self.smallest = case.clone();
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "message": self.message,
            "states": self.states,
            "earliest": self.earliest.case.to_string(),
            "smallest": self.smallest.case.to_string(),
        })
    }
}

fn place(failed: &FailedCase) -> (u64, u64) {
    (failed.case.entry(), failed.case.deviating())
}

/// Returns what a check said, without numbers: its last line that is not empty, where most
/// programs and exceptions have their message; without output, how it ended. After the message of a
/// panic Rust explains how to get more.
fn message(failed: &FailedCase) -> String {
    let lines = failed.output.lines().map(str::trim);
    let is_hint = |line: &str| line.starts_with("note: ") && line.contains("RUST_BACKTRACE");
    let said = lines.rev().find(|line| !line.is_empty() && !is_hint(line));
    let mut text = String::new();
    let mut is_number = false;
    for c in said.unwrap_or(&failed.said).chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !is_number {
            text.push('#');
        }
        is_number = c.is_ascii_digit();
    }
    match text.char_indices().nth(MESSAGE_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::case::Case;
    use super::*;

    fn failed(case: &str, output: &str) -> FailedCase {
        FailedCase {
            case: Case::parse(case).unwrap(),
            mark: String::new(),
            said: "exit code 1".into(),
            output: output.into(),
            explained: Vec::new(),
        }
    }

    #[test]
    fn states_that_differ_in_numbers_alone_are_one_group() {
        let mut groups = Groups::default();
        groups.add(&failed(
            "cache/9/1-3=0",
            "Traceback\n  row 17 is missing\n\n",
        ));
        groups.add(&failed("cache/7/1-5=0", "row 4 is missing"));
        groups.add(&failed("cache/8/1=0", "row 2 is missing"));
        groups.add(&failed("cache/5/1=0", ""));
        let found = groups.by_states();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].message, "row # is missing");
        assert_eq!(found[0].states, 3);
        assert_eq!(found[0].earliest.case.to_string(), "cache/7/1-5=0");
        assert_eq!(found[0].smallest.case.to_string(), "cache/8/1=0");
        assert_eq!(found[1].message, "exit code #");
        assert_eq!(groups.earliest().unwrap().case.to_string(), "cache/5/1=0");
    }

    #[test]
    fn a_panic_is_named_by_its_message() {
        let mut groups = Groups::default();
        let hint = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace";
        for text in ["row 3 is missing", "row 4 is missing", "the head is torn"] {
            let output = format!("thread 'main' panicked at src/main.rs:9:5:\n{text}\n{hint}\n");
            groups.add(&failed("prefix/1", &output));
        }
        groups.add(&failed("prefix/1", hint));
        groups.add(&failed("prefix/1", "note: row 5 is late"));
        let found = groups.by_states();
        let messages: Vec<_> = found.iter().map(|group| group.message.as_str()).collect();
        let wanted = [
            "row # is missing",
            "the head is torn",
            "exit code #",
            "note: row # is late",
        ];
        assert_eq!(messages, wanted);
    }

    #[test]
    fn messages_without_end_are_bounded() {
        let mut groups = Groups::default();
        for number in 0..100u8 {
            let word: String = (0..=number).map(|_| 'x').collect();
            groups.add(&failed("prefix/1", &word));
        }
        let found = groups.by_states();
        assert_eq!(found.len(), GROUPS_MAX + 1);
        assert_eq!((found[0].message.as_str(), found[0].states), (OTHERS, 60));
    }
}
