//! Random choices of an injection.
//!
//! Invariants: the same seed makes the same choices. A named outcome uses up a draw, so later
//! choices stay the same.

use ftld_kit::convert::{index, nanos, to_u64, to_usize};
use ftld_kit::failure::Failure;
use nand_model::SplitMix;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn fresh_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    SplitMix::new(nanos(now)).below(1 << 32)
}

/// Returns the entry of this name, or a random one.
pub(super) fn choose<T: Copy>(
    menu: &[(&'static str, T)],
    name: Option<&str>,
    rng: &mut SplitMix,
) -> Result<(&'static str, T), Failure> {
    let by_chance = to_usize(rng.below(to_u64(menu.len())));
    let Some(name) = name else {
        return Ok(menu[by_chance]);
    };
    menu.iter()
        .find(|entry| entry.0 == name)
        .copied()
        .ok_or_else(|| {
            let names: Vec<_> = menu.iter().map(|entry| entry.0).collect();
            Failure::usage(format!(
                "no outcome {name:?}; there are {}",
                names.join(", ")
            ))
        })
}

/// Draws `count` items at random.
pub(super) fn sample<T>(
    mut from: Vec<T>,
    count: u32,
    seed: u64,
    what: &str,
) -> Result<Vec<T>, Failure> {
    if count == 0 || index(count) > from.len() {
        return Err(Failure::usage(format!(
            "--count {count}: there are {} {what}",
            from.len()
        )));
    }
    let mut rng = SplitMix::new(seed);
    Ok((0..count)
        .map(|_| from.swap_remove(to_usize(rng.below(to_u64(from.len())))))
        .collect())
}
