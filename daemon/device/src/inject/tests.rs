use super::*;
use ftld_kit::failure::Exit;
use nand_model::{Cause, Pbn, Profile, store::MemStore};
use serde_json::{Value, json};
use strum::VariantArray;

fn chip() -> Chip {
    let profile = Profile::find("torture").unwrap().with_blocks(8);
    let mut chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    for page in 0..4 {
        let ppn = chip.geometry().page(Pbn::new(2), page);
        chip.program(0, ppn, &[7; 1024], &[1; 16], Cause::Host)
            .unwrap();
    }
    chip
}

fn refused(injection: Injection, exit: Exit, part: &str) {
    let failure = injection.apply(&mut chip(), 0).unwrap_err();
    assert!(
        failure.exit == exit && failure.message.contains(part),
        "{failure:?}"
    );
}

#[test]
fn kinds_are_in_numeric_order() {
    assert!(
        <Kind as VariantArray>::VARIANTS
            .iter()
            .enumerate()
            .all(|(i, kind)| *kind as usize == i)
    );
}

#[test]
fn requests_say_what_was_meant() {
    let cut = Injection::PowerCut(PowerCut {
        after: Some(3),
        seed: Some(9),
        ..PowerCut::default()
    });
    let text = serde_json::to_string(&cut).unwrap();
    assert_eq!(serde_json::from_str::<Injection>(&text).unwrap(), cut);
    assert_eq!(
        serde_json::from_str::<Injection>(r#"{"kind":"power-cut","after":3,"seed":9}"#).unwrap(),
        cut
    );
    assert!(serde_json::from_str::<Injection>(r#"{"kind":"power-cut","affter":3}"#).is_err());
}

#[test]
fn what_is_left_to_chance_repeats_from_its_seed() {
    let cut = |seed| PowerCut {
        after: Some(5),
        seed: Some(seed),
        ..PowerCut::default()
    };
    let outcomes: Vec<_> = (0..40)
        .map(|seed| cut(seed).apply(&mut chip()).unwrap().facts)
        .collect();
    assert!(
        outcomes
            .iter()
            .zip(0..)
            .all(|(seen, seed)| *seen == cut(seed).apply(&mut chip()).unwrap().facts)
    );
    for (key, menu) in [("program", 7), ("partner", 3), ("erase", 6)] {
        let seen: std::collections::BTreeSet<_> = outcomes
            .iter()
            .map(|facts| facts[key].as_str().unwrap())
            .collect();
        assert_eq!(seen.len(), menu, "{key}: {seen:?}");
    }
    let chosen = PowerCut {
        program: Some("prefix".into()),
        erase: Some("mixed".into()),
        ..cut(1)
    };
    let facts = chosen.apply(&mut chip()).unwrap().facts;
    assert_eq!(
        (facts["program"].as_str(), facts["erase"].as_str()),
        (Some("prefix"), Some("mixed"))
    );
    let blocks = |seed| {
        BadBlock {
            count: Some(5),
            seed: Some(seed),
            block: Vec::new(),
            shard: None,
        }
        .apply(&mut chip(), 0)
        .unwrap()
        .facts
    };
    assert_eq!(blocks(3), blocks(3));
    assert_ne!(blocks(3)["blocks"], blocks(4)["blocks"]);
}

#[test]
fn what_cannot_be_is_named() {
    let bad = |block: &[u32]| {
        Injection::BadBlock(BadBlock {
            block: block.to_vec(),
            ..BadBlock::default()
        })
    };
    refused(bad(&[8]), Exit::Usage, "no block 8; the flash has 0 to 7");
    let count = |count| {
        Injection::BadBlock(BadBlock {
            count: Some(count),
            ..BadBlock::default()
        })
    };
    refused(count(9), Exit::Usage, "there are 8 good blocks");
    refused(count(0), Exit::Usage, "--count 0");
    let page = |block, page, bits| {
        Injection::BitErrors(BitErrors {
            block: Some(block),
            page: Some(page),
            bits,
            ..BitErrors::default()
        })
    };
    refused(page(9, 0, None), Exit::Usage, "no block 9");
    refused(
        page(2, 4000, None),
        Exit::Usage,
        "no page 4000; a block has 0 to",
    );
    refused(page(3, 0, None), Exit::Failed, "is erased");
    refused(page(2, 0, Some(0)), Exit::Usage, "--bits 0");
    refused(
        Injection::BitErrors(BitErrors::default()),
        Exit::Usage,
        "need a page",
    );
    refused(
        Injection::BitErrors(BitErrors {
            factor: Some(f64::NAN),
            ..BitErrors::default()
        }),
        Exit::Usage,
        "--factor NaN",
    );
    let outcome = PowerCut {
        after: Some(1),
        erase: Some("gone".into()),
        ..PowerCut::default()
    };
    refused(
        Injection::PowerCut(outcome),
        Exit::Usage,
        "no outcome \"gone\"; there are not-started, mixed",
    );
    let mut chip = chip();
    assert_eq!(bad(&[1, 2]).apply(&mut chip, 0).unwrap().count, 2);
    assert!(
        bad(&[2])
            .apply(&mut chip, 0)
            .unwrap_err()
            .message
            .contains("block 2 fails at its next")
    );
    assert!(chip.erase(0, Pbn::new(1), Cause::Gc).is_err());
    assert!(
        bad(&[1])
            .apply(&mut chip, 0)
            .unwrap_err()
            .message
            .contains("block 1 is bad already")
    );
    assert_eq!(
        count(6).apply(&mut chip, 0).unwrap().count,
        6,
        "the six that are left"
    );
}

/// The shards that a fault is for, of a device with `count`, or the message.
fn places(injection: &Injection, count: usize) -> Result<Vec<usize>, String> {
    injection.shards(count, 8).map_err(|failure| {
        assert_eq!(failure.exit, Exit::Usage);
        failure.message
    })
}

#[test]
fn a_fault_of_blocks_is_in_their_shards_and_a_power_cut_is_one_of_all() {
    let blocks = |block: &[u32], shard| {
        Injection::BadBlock(BadBlock {
            block: block.to_vec(),
            shard,
            ..BadBlock::default()
        })
    };
    let bad = |shard| {
        Injection::BadBlock(BadBlock {
            count: Some(1),
            shard,
            ..BadBlock::default()
        })
    };
    let errors = |shard, factor| {
        Injection::BitErrors(BitErrors {
            count: Some(1),
            shard,
            factor,
            ..BitErrors::default()
        })
    };
    for of_blocks in [&bad as &dyn Fn(_) -> _, &|shard| errors(shard, None)] {
        assert_eq!(places(&of_blocks(None), 1), Ok(vec![0]));
        assert_eq!(places(&of_blocks(Some(0)), 1), Ok(vec![0]));
        assert_eq!(places(&of_blocks(Some(2)), 3), Ok(vec![2]));
        for (shard, count, part) in [
            (Some(1), 1, "no shard 1; the device has 0 to 0"),
            (Some(3), 3, "no shard 3; the device has 0 to 2"),
            (Some(u32::MAX), 16, "the device has 0 to 15"),
            (None, 3, "add --shard K, from 0 to 2"),
        ] {
            let message = places(&of_blocks(shard), count).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
    // Eight blocks a shard, numbered shard by shard.
    assert_eq!(places(&blocks(&[17, 0, 16], None), 3), Ok(vec![0, 2]));
    assert_eq!(places(&blocks(&[17], Some(2)), 3), Ok(vec![2]));
    for (injection, part) in [
        (blocks(&[24], None), "no block 24; the flash has 0 to 23"),
        (blocks(&[u32::MAX], None), "the flash has 0 to 23"),
        (
            blocks(&[17], Some(1)),
            "block 17 is in shard 2, not 1; leave --shard out",
        ),
    ] {
        let message = places(&injection, 3).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
    let Injection::BadBlock(own) = blocks(&[17, 0, 16], None).for_shard(1, 2, 8) else {
        panic!("another fault")
    };
    assert_eq!(own.block, [17, 16]);
    assert_eq!(places(&errors(None, Some(2.0)), 4), Ok(vec![0, 1, 2, 3]));
    assert_eq!(places(&errors(Some(1), Some(2.0)), 4), Ok(vec![1]));
    assert_eq!(
        places(&Injection::PowerCut(PowerCut::default()), 4),
        Ok(vec![0, 1, 2, 3])
    );
}

/// Shards whose power fails together do not leave the same outcome, and a seed repeats them all.
#[test]
fn each_shard_has_a_seed_of_its_own_and_the_answer_has_all() {
    let cut = Injection::PowerCut(PowerCut {
        after: Some(5),
        seed: Some(9),
        ..PowerCut::default()
    });
    let outcomes = |seed| -> Vec<_> {
        (0..16)
            .map(|shard| cut.for_shard(seed, shard, 8).apply(&mut chip(), 0).unwrap())
            .collect()
    };
    let facts =
        |all: &[Injected]| -> Vec<Value> { all.iter().map(|one| one.facts.clone()).collect() };
    let all = outcomes(cut.seed());
    assert_eq!(facts(&all), facts(&outcomes(9)));
    let seeds: std::collections::BTreeSet<_> = all.iter().map(|one| one.cut_seed).collect();
    assert_eq!(seeds.len(), 16);
    let of_each = facts(&all);
    let places: Vec<usize> = (0..16).collect();
    let sum = Injected::of_shards(all, &places, 16);
    assert_eq!((sum.count, sum.kind), (1, Kind::PowerCut), "one cut");
    for (shard, alone) in of_each.iter().enumerate() {
        let mut named = alone.clone();
        named["shard"] = shard.into();
        assert_eq!(sum.facts["shards"][shard], named);
    }
    let bad = Injection::BadBlock(BadBlock {
        block: vec![1, 2],
        ..BadBlock::default()
    });
    let one = || bad.apply(&mut chip(), 0).unwrap();
    let alone = Injected::of_shards(vec![one()], &[0], 1);
    assert_eq!((alone.text, alone.facts), (one().text, one().facts));
    let named = Injected::of_shards(vec![one()], &[2], 4);
    assert_eq!(
        (named.count, &named.facts["shards"][0]["shard"]),
        (2, &json!(2))
    );
    assert!(named.text.starts_with("shard 2: "), "{}", named.text);
}

/// Blocks are numbered shard by shard, in the fault and in its answer.
#[test]
fn the_numbers_of_blocks_count_the_shards_before() {
    let blocks = chip().geometry().blocks;
    let bad = |block| {
        Injection::BadBlock(BadBlock {
            block: vec![block],
            ..BadBlock::default()
        })
    };
    let mut second = chip();
    let answer = bad(blocks + 3).apply(&mut second, blocks).unwrap();
    assert_eq!(answer.facts["blocks"], json!([blocks + 3]));
    let faults = &second.faults().unwrap().block_faults;
    assert!(faults.iter().all(|fault| fault.block == Pbn::new(3)));
    let outside = bad(3).apply(&mut second, blocks).unwrap_err();
    let range = format!("the flash has {blocks} to {}", 2 * blocks - 1);
    assert!(outside.message.contains(&range), "{}", outside.message);
}
