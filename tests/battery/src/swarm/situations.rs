//! The classes of situation that runs count when they happen, and those that a full run must
//! contain.

/// Faults by kind. A run is compound if faults of two kinds happened in it. A kind has all classes
/// that one fault can cause, such as a dead die and the programs that fail on it.
pub const KINDS: &[(&str, &[&str])] = &[
    (
        "power cut",
        &[
            "power cut",
            "power off between operations",
            "power cut inside a mount",
            "operations in flight on other dies",
        ],
    ),
    (
        "kill",
        &["kill", "kill on a dirty cache", "kill after a mount"],
    ),
    (
        "host crash",
        &[
            "host crash",
            "host crash amid a mount",
            "host crash after a mount",
            "power cut, then host crash",
            "kill, then host crash",
        ],
    ),
    (
        "host's disk",
        &[
            "failed sync",
            "FLUSH failed",
            "ENOSPC",
            "EIO",
            "disk failed in a mount",
        ],
    ),
    (
        "failing operations",
        &[
            "program failure",
            "erase failure",
            "program failure in a mount",
            "erase failure in a mount",
            "dead die",
        ],
    ),
    (
        "wrong bits",
        &[
            "bits corrected",
            "wrong bits beyond the ECC",
            "lost OOB area",
            "retention",
            "read disturb",
        ],
    ),
    (
        "silent fault",
        &[
            "lost program",
            "misdirected program",
            "lost erase",
            "stale read",
        ],
    ),
];

/// The classes of all kinds of fault.
pub fn faults() -> Vec<&'static str> {
    KINDS
        .iter()
        .flat_map(|(_, classes)| classes.iter().copied())
        .collect()
}

/// Other situations: devices, background work, ends of life.
pub const OTHERS: &[&str] = &[
    "two kinds of fault",
    "image",
    "memory",
    "SLC",
    "MLC",
    "TLC",
    "QLC",
    "other pairing",
    "several dies",
    "planes together",
    "every bad block",
    "large device",
    "more than 100 mapping pages",
    "later trim bitmap chunk at mount",
    "clean stop",
    "power cut inside a clean stop",
    "host crash inside a clean stop",
    "program failure in a mount, then power cut",
    "three cuts at one logical page",
    "merge and erase without FLUSH, then power cut",
    "erase refused by the host",
    "scrub round of short sessions",
    "read counts after a kill",
    "clean mount",
    "mount by scan",
    "mount that programmed",
    "mount refused",
    "background sync",
    "batch",
    "batch cut",
    "batch not acknowledged",
    "batch refused by the host",
    "room given back",
    "several programs in flight",
    "programs and erases in flight",
    "program not started",
    "program torn: the first bytes",
    "program torn: some bits",
    "program torn: the data",
    "program torn: the spare bytes",
    "program unstable",
    "program complete, not acknowledged",
    "word line destroyed",
    "one page of the word line destroyed",
    "word line unstable",
    "erase not started",
    "erase left some pages",
    "erase left all pages but one",
    "erase left one page",
    "erase incomplete, all blank",
    "erase complete, not acknowledged",
    "wrong bits",
    "uncorrectable read",
    "read retry",
    "page unreadable",
    "mapping page lost in use",
    "read failed",
    "garbage collection",
    "checkpoint",
    "refresh",
    "wear move",
    "end of life",
];

/// Silent faults at a given rate: a plan has at most one of them.
const SILENT: &[&str] = &["misdirected program", "stale read"];

/// The reason why two faults cannot happen in one run, if there is one.
pub fn cannot_meet(one: &str, other: &str) -> Option<&'static str> {
    (SILENT.contains(&one) && SILENT.contains(&other))
        .then_some("a plan has one silent fault by chance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_listed_exactly_once() {
        let mut all: Vec<_> = faults().into_iter().chain(OTHERS.iter().copied()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(SILENT.iter().all(|class| faults().contains(class)));
    }
}
