//! The model of a configuration (MCAM): valid pages of each group's victims, and the write
//! amplification that follows, as a Markov chain; and the search for the best configuration (GCS).

use super::intervals::Distribution;

/// Largest number of groups in the chain.
pub(super) const GROUPS: usize = 6;
/// Largest size of the HOT group that the search tries, in blocks.
const HOT_MOST: u32 = 30;
/// Gain below which a larger HOT group is not worth it.
const HOT_GAIN: f64 = 0.05;
/// Sizes that the search tries for a group.
const STEPS: usize = 64;
/// Most rounds that try all sizes again.
const ROUNDS: u32 = 4;

/// The HOT group: its size in blocks, its share of the host's writes, the longest interval of its
/// pages in blocks' worth of writes, and the share of valid pages in its victims.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hot {
    pub(super) size: f64,
    pub(super) traffic: f64,
    pub(super) time: f64,
    pub(super) valid: f64,
}

/// The device: valid pages, and the blocks that have them, in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) used: f64,
    pub(super) blocks: f64,
}

/// A configuration, and what the model expects of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Configuration {
    pub(super) hot: Hot,
    /// Sizes of the groups but for the last one, which has the other blocks.
    pub(super) sizes: Vec<f64>,
    /// By group of the chain: share of valid pages in its victims.
    pub(super) valid: Vec<f64>,
    pub(super) amplification: f64,
}

/// Predicts a configuration. `None` if the last group has no room for its valid pages, or the
/// groups before it are longer than what was measured.
///
/// A group of `s` blocks that `f` blocks enter per block of host writes keeps a page for
/// `(s - 1/2) / f`: it is a queue. Of what enters, the versions that live so long leave it valid,
/// and enter the next group. All other valid pages are in the last group; it collects by valid
/// pages, for which Desnoyers' model of two classes stands in.
pub(super) fn predict(
    uid: &Distribution,
    space: Space,
    hot: Hot,
    sizes: &[f64],
) -> Option<Configuration> {
    let mut flow = 1.0 - hot.traffic + hot.traffic * hot.valid;
    let mut copies = hot.traffic * hot.valid;
    let mut alive = uid.survival(hot.time);
    let (mut time, mut valid) = (0.0, Vec::with_capacity(GROUPS));
    for size in sizes {
        time += (size - 0.5) / flow;
        if time >= uid.horizon() {
            return None;
        }
        let next = uid.survival(time).min(alive);
        let share = next / alive;
        if !(share > 0.0 && flow > 0.0) {
            return None;
        }
        valid.push(share);
        flow *= share;
        copies += flow;
        alive = next;
    }
    let begins = time.max(hot.time);
    let before = match sizes {
        // Of the pages younger than that, only the hot ones are elsewhere.
        [] => uid.valid_before(hot.time) - hot.time * uid.survival(hot.time),
        _ => uid.valid_before(begins),
    };
    let blocks = space.blocks - hot.size - sizes.iter().sum::<f64>();
    let used = space.used - before;
    if !(used > 0.0 && blocks > used) {
        return None;
    }
    let of_last = desnoyers(blocks / used, uid.hot_above(begins));
    valid.push(1.0 - 1.0 / of_last);
    copies += flow * (of_last - 1.0);
    Some(Configuration {
        hot,
        sizes: sizes.to_vec(),
        valid,
        amplification: 1.0 + copies,
    })
}

/// Returns the write amplification of a log of two classes under LRU cleaning: `spare` is blocks
/// over blocks of valid pages, `hot` and `pages` the shares of writes and of pages of one class.
///
/// Desnoyers: *Analytic Models of SSD Write Performance*, ACM TOS 10 (2014):
/// `A = 1 + r / (e^(r spare / (f A)) - 1) + (1 - r) / (e^((1 - r) spare / ((1 - f) A)) - 1)`.
pub(super) fn desnoyers(spare: f64, (hot, pages): (f64, f64)) -> f64 {
    let class = |share: f64, pages: f64, a: f64| match share > 1e-9 && pages > 1e-9 {
        true => share / (share * spare / (pages * a)).exp_m1(),
        // No writes copy all of these pages each time; no pages copy none.
        false => pages * a / spare,
    };
    let copied = |a: f64| class(hot, pages, a) + class(1.0 - hot, 1.0 - pages, a);
    let (mut low, mut high) = (1.0, 1_000.0);
    for _ in 0..48 {
        let a: f64 = (low + high) / 2.0;
        if 1.0 + copied(a) > a {
            low = a;
        } else {
            high = a;
        }
    }
    high
}

/// Searches the best configuration. `hot`: the HOT group as it is, if the filter that fills it is
/// too inaccurate for the model.
pub(super) fn search(
    uid: &Distribution,
    space: Space,
    fixed: Option<Hot>,
) -> Option<Configuration> {
    let sized = |best: &mut Option<Configuration>, sizes: &[f64], gain: f64| {
        for size in 1..=HOT_MOST {
            let Some((time, traffic)) = uid.time_of_hot(f64::from(size)) else {
                break;
            };
            let hot = Hot {
                size: f64::from(size),
                traffic,
                time,
                valid: 0.0,
            };
            keep_better(best, predict(uid, space, hot, sizes), gain);
        }
    };
    let mut best = predict(uid, space, fixed.unwrap_or_default(), &[]);
    if fixed.is_none() {
        sized(&mut best, &[], HOT_GAIN);
    }
    let mut best = best?;
    // Phase 1: divide the last group, as long as there are groups.
    let mut longest = best.clone();
    while longest.sizes.len() + 1 < GROUPS {
        let at = longest.sizes.len();
        let mut found = None;
        try_sizes(uid, space, &longest, at, &mut found);
        let Some(found) = found else { break };
        longest = found;
        if longest.amplification < best.amplification {
            best = longest.clone();
        }
    }
    // Phase 2: set every size again, and try one more group.
    for _ in 0..ROUNDS {
        let before = best.amplification;
        let mut found = Some(best.clone());
        if fixed.is_none() {
            sized(&mut found, &best.sizes, 0.0);
        }
        for at in 0..GROUPS - 1 {
            let current = found.clone()?;
            if at > current.sizes.len() {
                break;
            }
            try_sizes(uid, space, &current, at, &mut found);
        }
        best = found?;
        if best.amplification >= before {
            break;
        }
    }
    Some(best)
}

fn keep_better(best: &mut Option<Configuration>, other: Option<Configuration>, gain: f64) {
    if let Some(other) = other {
        let limit = best
            .as_ref()
            .map_or(f64::INFINITY, |b| b.amplification - gain);
        if other.amplification < limit {
            *best = Some(other);
        }
    }
}

/// Tries sizes for the group `at` of a configuration, which may be a new one.
fn try_sizes(
    uid: &Distribution,
    space: Space,
    of: &Configuration,
    at: usize,
    best: &mut Option<Configuration>,
) {
    let mut sizes = of.sizes.clone();
    if at == sizes.len() {
        sizes.push(0.0);
    }
    sizes[at] = 0.0;
    let room = space.blocks - of.hot.size - sizes.iter().sum::<f64>();
    for step in 1..=STEPS {
        // Small sizes closer to each other.
        let share = step as f64 / STEPS as f64;
        let size = (room * share * share).round().max(step as f64);
        if size >= room {
            break;
        }
        sizes[at] = size;
        keep_better(best, predict(uid, space, of.hot, &sizes), 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1 of Lomet and Luo (arXiv 2005.00044) has the empty share of victims under uniform
    /// writes and cleaning by age: 1 / A.
    #[test]
    fn a_log_of_one_class_is_as_the_tables_of_age_based_cleaning() {
        for (fill, empty) in [
            (0.9, 0.19),
            (0.8, 0.375),
            (0.7, 0.53),
            (0.5, 0.80),
            (0.3, 0.96),
        ] {
            for classes in [(0.5, 0.5), (1.0, 1.0), (0.2, 0.2)] {
                let found = 1.0 / desnoyers(1.0 / fill, classes);
                assert!(
                    (found - empty).abs() < 0.006,
                    "{fill}: {found}, not {empty}"
                );
            }
        }
    }

    /// All versions live for 8 units but a quarter for 2. A first group of 5 blocks keeps pages for
    /// 4.5: what leaves it is 3/4 of what enters it. It has 0.25 x 2 + 0.75 x 4.5 valid blocks.
    #[test]
    fn a_group_keeps_the_pages_that_live_longer_than_it() {
        let uid = Distribution::new(&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0], 1.0);
        let space = Space {
            used: 6.5,
            blocks: 10.0,
        };
        let found = predict(&uid, space, Hot::default(), &[5.0]).unwrap();
        assert_eq!(found.valid[0], 0.75);
        // 6.5 - 3.875 = 2.625 valid blocks are in 5.
        let of_last = desnoyers(5.0 / 2.625, uid.hot_above(4.5));
        assert!((found.valid[1] - (1.0 - 1.0 / of_last)).abs() < 1e-9);
        let expected = 1.0 + 0.75 + 0.75 * (of_last - 1.0);
        assert!((found.amplification - expected).abs() < 1e-9);
        // 9 - 3.875 valid blocks do not fit into the last 5; and a group longer than the epoch.
        let full = Space { used: 9.0, ..space };
        assert_eq!(predict(&uid, full, Hot::default(), &[5.0]), None);
        let large = Space {
            used: 6.5,
            blocks: 100.0,
        };
        assert_eq!(predict(&uid, large, Hot::default(), &[12.0]), None);
    }

    /// Half of the updates have short intervals, half long ones: a first group that outlasts the
    /// short ones, or a HOT group, saves the copies of the others.
    #[test]
    fn the_search_divides_two_temperatures() {
        let mut weights = vec![0.0; 400];
        weights[4] = 50.0;
        (100..300).for_each(|i| weights[i] = 0.25);
        let uid = Distribution::new(&weights, 1.0);
        let used = uid.valid_before(300.0);
        let space = Space {
            used,
            blocks: 1.25 * used,
        };
        let plain = predict(&uid, space, Hot::default(), &[]).unwrap();
        let fixed = search(&uid, space, Some(Hot::default())).unwrap();
        let best = search(&uid, space, None).unwrap();
        assert!(!fixed.sizes.is_empty(), "{fixed:?}");
        assert!(
            fixed.amplification < 0.95 * plain.amplification,
            "{fixed:?}, {plain:?}"
        );
        assert!(
            best.amplification <= fixed.amplification + HOT_GAIN,
            "{best:?}"
        );
        assert!(best.hot.size > 0.0, "{best:?}");
        assert_eq!(best.valid.len(), best.sizes.len() + 1);
    }
}
