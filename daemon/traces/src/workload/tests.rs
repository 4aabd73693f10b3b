//! Guarantees of a workload, measured on its requests.

use super::usr_2;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const MIB: u64 = 1 << 20;

fn workload(text: &str) -> Workload {
    Workload::parse(text).expect("a generator").unwrap()
}

fn requests(text: &str, device: u64, seed: u64) -> Vec<Record> {
    workload(text).begin(device, seed).unwrap().collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For all options: counts are exact, requests stay in their span and on their grain, shares
    /// are met, equal seeds give equal requests.
    #[test]
    fn requests_are_what_was_asked_for(
        generator in prop::sample::select(vec!["uniform", "hotcold", "zipf", "sequential", "mixed"]),
        read in 0u32..=100,
        kib in prop::sample::select(vec![1u64, 4, 12, 64]),
        span_mib in 1u64..200,
        seed: u64,
    ) {
        let text = format!("{generator}:requests=20K,read={read}%,size={kib}KiB,span={span_mib}MiB,rate=250");
        let all = requests(&text, 200 * MIB, seed);
        prop_assert_eq!(all.len(), 20_000);
        let grain = 1 << (kib * 1024).trailing_zeros();
        for record in &all {
            prop_assert!(record.offset_bytes + record.length_bytes <= span_mib * MIB);
            prop_assert_eq!((record.length_bytes, record.offset_bytes % grain), (kib * 1024, 0));
        }
        let reads = mean(all.iter().map(|record| f64::from(u8::from(record.op == Op::Read))));
        // Five standard deviations.
        prop_assert!((reads - read as f64 / 100.0).abs() <= 5.0 * 0.5 / 20_000f64.sqrt());
        let seconds = all.last().unwrap().time_ns as f64 / 1e9;
        prop_assert!((seconds * 250.0 / 20_000.0 - 1.0).abs() < 5.0 / 20_000f64.sqrt());
        prop_assert!(all.is_sorted_by_key(|record| record.time_ns));
        prop_assert_eq!(&all, &requests(&text, 200 * MIB, seed));
        prop_assert!(read == 0 && generator == "sequential" || all != requests(&text, 200 * MIB, seed ^ 1));
    }

    /// Mean lengths are met, including those of mixtures.
    #[test]
    fn lengths_have_their_mean(mean_bytes in 600u64..60_000, share in 1u32..99, seed: u64) {
        let all = requests(&format!("uniform:requests=40K,size=mean:{mean_bytes}/{share}+128KiB/{}", 100 - share), 500 * MIB, seed);
        let of = |fixed: bool| all.iter().filter(move |r| (r.length_bytes == 128 << 10 && r.offset_bytes % (128 << 10) == 0) == fixed);
        let (fixed, drawn) = (of(true).count() as f64, of(false).map(|r| r.length_bytes as f64));
        prop_assert!((fixed / 40_000.0 - (100 - share) as f64 / 100.0).abs() < 5.0 * 0.5 / 200.0);
        let (count, found) = (40_000.0 - fixed, mean(drawn));
        prop_assert!((found / mean_bytes as f64 - 1.0).abs() < 5.0 / count.sqrt() + 0.002, "{found} {mean_bytes}");
        prop_assert!(all.iter().all(|record| record.length_bytes.is_multiple_of(512) && record.offset_bytes.is_multiple_of(512)));
    }

    #[test]
    fn hot_addresses_get_their_share(hot in 1u32..99, access in 1u32..99, seed: u64) {
        let all = requests(&format!("hotcold:requests=20K,hot={hot}%,access={access}%"), 100 * MIB, seed);
        let edge = MIB * hot as u64;
        let found = mean(all.iter().map(|record| f64::from(u8::from(record.offset_bytes < edge))));
        prop_assert!((found - access as f64 / 100.0).abs() < 5.0 * 0.5 / 20_000f64.sqrt() + 1e-4, "{found}");
    }

    /// The most popular ranks have the share given by Zipf's law.
    #[test]
    fn popularity_follows_zipfs_law(theta in 0.5f64..1.5, seed: u64) {
        let (slots, drawn) = (2_560u32, 50_000);
        let all = requests(&format!("zipf:requests={drawn},theta={theta}"), slots as u64 * 4096, seed);
        let mut counts = HashMap::new();
        all.iter().for_each(|record| *counts.entry(record.offset_bytes).or_insert(0u32) += 1);
        let mut counts: Vec<_> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let weight = |rank: u32| f64::from(rank).powf(-theta);
        let sum: f64 = (1..=slots).map(weight).sum();
        let (top, expected) = (counts[0] as f64 / drawn as f64, weight(1) / sum);
        prop_assert!((top - expected).abs() < 6.0 * (expected / drawn as f64).sqrt() + 0.003, "{top} {expected}");
        let (found, law) = (counts[..100].iter().sum::<u32>() as f64 / drawn as f64, (1..=100).map(weight).sum::<f64>() / sum);
        prop_assert!((found - law).abs() < 0.02, "{found} {law}");
    }
}

#[test]
fn sequential_requests_follow_each_other_and_begin_again() {
    let all = requests("sequential:requests=300,size=1MiB", 100 * MIB, 7);
    assert!(
        all.iter()
            .enumerate()
            .all(|(i, record)| record.offset_bytes == i as u64 % 100 * MIB)
    );
    let mixed = requests("mixed:requests=10K,sequential=25%", 1 << 40, 7);
    let mut next = 0;
    let follows = mixed.iter().filter(|record| {
        let follows = record.offset_bytes == next;
        next += if follows { 4096 } else { 0 };
        follows
    });
    assert!((follows.count() as f64 / 2_500.0 - 1.0).abs() < 0.1);
}

/// Published values: records, share of writes, mean length; sectors written and share of pages in
/// whole blocks.
#[test]
fn stand_ins_have_the_published_statistics() {
    for (name, records, writes, kb) in [
        ("financial1", 1_333_747, 0.7856, 3.17),
        ("financial2", 3_699_194, 0.1765, 2.26),
        ("websearch", 4_261_709, 0.0002, 15.05),
        ("systemdisk1", 1_040_692, 0.7404, 42.65),
        ("systemdisk2", 2_636_016, 0.6196, 44.10),
        ("systemdisk3", 1_312_945, 0.5810, 36.72),
    ] {
        let mut all = workload(&format!("stand-in-{name}"))
            .begin(8 << 30, 1)
            .unwrap();
        assert_eq!(all.total, records, "{name}");
        let some: Vec<_> = all.by_ref().take(200_000).collect();
        let written = mean(some.iter().map(|r| f64::from(u8::from(r.op == Op::Write))));
        let length = mean(some.iter().map(|r| r.length_bytes as f64 / 1024.0));
        assert!(
            (written - writes).abs() < 0.006 && (length / kb - 1.0).abs() < 0.015,
            "{name}: {written} {length}"
        );
    }
    for (name, sectors, mean_sectors, whole) in [
        ("linuxpc", 107_111_668u64, 71.76, 0.50),
        ("postmark", 8_816_216, 6.68, 0.0),
        ("largefile", 60_149_736, 748.61, 0.72),
        ("fin1", 30_517_409, 7.44, 0.01),
        ("fin2", 3_810_800, 5.84, 0.06),
        ("4vms", 109_804_512, 35.39, 0.09),
    ] {
        let mut all = workload(&format!("stand-in-{name}"))
            .begin(80 << 30, 1)
            .unwrap();
        assert!(
            (all.total as f64 * mean_sectors / sectors as f64 - 1.0).abs() < 1e-3,
            "{name}"
        );
        let some: Vec<_> = all.by_ref().take(400_000).collect();
        assert!(some.iter().all(|record| record.op == Op::Write), "{name}");
        let length = mean(some.iter().map(|r| r.length_bytes as f64 / 512.0));
        let block = 128 << 10;
        let in_blocks = |r: &Record| {
            ((r.offset_bytes + r.length_bytes) / block)
                .saturating_sub(r.offset_bytes.div_ceil(block))
                * block
        };
        let found = some.iter().map(in_blocks).sum::<u64>() as f64
            / some.iter().map(|r| r.length_bytes).sum::<u64>() as f64;
        assert!(
            (length / mean_sectors - 1.0).abs() < 0.02,
            "{name}: {length}"
        );
        assert!(
            (found - whole).abs() < 0.015,
            "{name}: {found} of the pages in whole blocks"
        );
    }
}

#[test]
fn usr_2_touches_and_spreads_as_published() {
    for order in ["scattered", "runs"] {
        let device = 979 * MIB;
        let all = requests(&format!("{}:order={order}", usr_2::NAME), device, 5);
        let mut counts = vec![0u32; (device / usr_2::PAGE_BYTES) as usize];
        for record in &all {
            let first = (record.offset_bytes / usr_2::PAGE_BYTES) as usize;
            counts[first..][..(record.length_bytes / usr_2::PAGE_BYTES) as usize]
                .iter_mut()
                .for_each(|count| *count += 1);
        }
        let touched: Vec<_> = counts
            .iter()
            .filter(|count| **count > 0)
            .map(|count| f64::from(*count))
            .collect();
        let average = mean(touched.iter().copied());
        let spread = mean(touched.iter().map(|count| (count - average).powi(2))).sqrt() / average;
        assert!((touched.len() as f64 / counts.len() as f64 / usr_2::TOUCHED - 1.0).abs() < 0.01);
        assert!((spread / usr_2::RSD - 1.0).abs() < 0.01, "{spread}");
        assert!(
            all.iter()
                .all(|record| record.length_bytes <= 256 * usr_2::PAGE_BYTES)
        );
        let reads = mean(
            all.iter()
                .map(|record| f64::from(u8::from(record.op == Op::Read))),
        );
        assert!((reads - 0.8).abs() < 0.02, "{reads}");
    }
}

#[test]
fn what_is_meant_is_said() {
    assert!(Workload::parse("traces/uniform.csv").is_none());
    assert!(Workload::parse("uniforn").is_none());
    for (text, part) in [
        (
            "uniform:raed=3%",
            "workload uniform: no key \"raed\", did you mean \"read\"?; there are requests, read",
        ),
        ("uniform:theta=1", "no key \"theta\"; there are"),
        ("zipf:theta=-1", "theta: \"-1\" is not a positive number"),
        (
            "uniform:read=30",
            "read: \"30\" is not a share; write for example 30% or 0.3",
        ),
        ("uniform:size=big", "size: \"big\" is not a size"),
        ("uniform:size=0", "size: 0 B is not a length"),
        ("uniform:size=4KiB/0", "size: \"0\" is not a share"),
        (
            "uniform:size=4KiB/1e308+64KiB/1e308",
            "size: \"1e308\" is not a share",
        ),
        ("uniform:size=mean:1", "is not a mean length"),
        ("uniform:requests=many", "requests: \"many\" is not a count"),
        ("uniform:requests=0", "requests: \"0\" is not a count"),
        ("uniform:align=3", "align: not a power of two"),
        ("uniform:read", "\"read\" is not KEY=VALUE"),
        ("stand-in-usr_2:read=1%", "no key \"read\"; there are order"),
        (
            "stand-in-usr_2:order=up",
            "order: \"up\" is neither scattered nor runs",
        ),
    ] {
        let error = Workload::parse(text).unwrap().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    for (text, part) in [
        (
            "uniform:span=2MiB",
            "span of 2097152 bytes is more than the device",
        ),
        (
            "uniform:size=2MiB",
            "requests of up to 2097152 bytes in a span of 1048576",
        ),
        ("stand-in-usr_2", "too few for its classes"),
    ] {
        assert!(
            workload(text)
                .begin(MIB, 1)
                .err()
                .unwrap()
                .to_string()
                .contains(part)
        );
    }
}

#[test]
fn what_is_asked_for_wins_over_what_a_stand_in_fills_in() {
    assert_eq!(
        workload("stand-in-financial1:requests=1K")
            .begin(1 << 30, 1)
            .unwrap()
            .total,
        1_000
    );
    assert_eq!(workload("uniform:requests=1.5M").requests, 1_500_000);
    assert_eq!(workload("uniform").requests, 1_000_000);
    assert!(
        GENERATORS
            .iter()
            .all(|generator| workload(generator.name).generator == generator.name)
    );
}
