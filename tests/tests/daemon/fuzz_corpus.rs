//! Committed inputs of the fuzzers and mutations of them, without a fuzzer: `tests/fuzz/run.sh`
//! finds new ones.
//!
//! `tests/fuzz/corpus/TARGET/` contains the inputs kept by libFuzzer. Inputs that once failed are
//! named `regression-...` after the bug.

use ftld_tests::fuzz::{TARGETS, Target};
use ftld_tests::suite::{long, seed};
use nand_model::SplitMix;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Returns the number of mutations of a target's whole corpus.
fn mutations() -> u64 {
    if long() { 200_000 } else { 2_000 }
}

fn inputs(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target.name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn recorded_inputs_cause_no_failure() {
    for target in TARGETS {
        let inputs = inputs(target);
        assert!(
            inputs.len() >= 10,
            "{}: {} inputs",
            target.name,
            inputs.len()
        );
        let bytes: usize = inputs.iter().map(|(_, bytes)| bytes.len()).sum();
        println!("{}: {} inputs, {bytes} bytes", target.name, inputs.len());
        for (path, bytes) in &inputs {
            let held = catch_unwind(AssertUnwindSafe(|| (target.body)(bytes)));
            assert!(held.is_ok(), "{}: see the panic above", path.display());
        }
    }
}

#[test]
fn every_fuzz_target_has_a_binary_and_a_corpus_and_no_other_exists() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let names = |folder: &str| {
        let entries = std::fs::read_dir(fuzz.join(folder)).unwrap();
        let stem = |entry: std::fs::DirEntry| {
            entry
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        let mut names: Vec<_> = entries.map(|entry| stem(entry.unwrap())).collect();
        names.sort();
        names
    };
    let mut known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    known.sort();
    assert_eq!(names("targets"), known);
    assert_eq!(names("corpus"), known);
}

#[test]
fn mutated_inputs_cause_no_failure() {
    for target in TARGETS {
        let inputs: Vec<_> = inputs(target).into_iter().map(|(_, bytes)| bytes).collect();
        let mut rng = SplitMix::new(seed());
        for round in 0..mutations() {
            let bytes = mutated(&inputs, &mut rng);
            if catch_unwind(AssertUnwindSafe(|| (target.body)(&bytes))).is_err() {
                let path = std::env::temp_dir().join(format!(
                    "ftld-fuzz-{}-{}-{round}",
                    target.name,
                    seed()
                ));
                std::fs::write(&path, &bytes).unwrap();
                panic!(
                    "{}: see the panic above; the input is in {}",
                    target.name,
                    path.display()
                );
            }
        }
    }
}

/// Returns one input with a few bytes changed, moved, repeated, or copied from another.
fn mutated(inputs: &[Vec<u8>], rng: &mut SplitMix) -> Vec<u8> {
    let any = |rng: &mut SplitMix| &inputs[rng.below(inputs.len() as u64) as usize];
    let mut bytes = any(rng).clone();
    for _ in 0..1 + rng.below(8) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let left = bytes.len() - at;
        match rng.below(6) {
            0 => bytes.insert(at, rng.next_u64() as u8),
            1 if left > 0 => bytes[at] ^= 1 << rng.below(8),
            2 if left > 0 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][rng.below(5) as usize],
            3 => drop(bytes.splice(at.., any(rng).iter().skip(at).copied())),
            4 => drop(bytes.drain(at..at + left.min(rng.below(16) as usize))),
            _ => {
                let part = bytes[at..at + left.min(32)].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
    bytes
}
