//! Command line of a suite: its environment variables, and the cases of all schemes.
//!
//! A case has a path (`scheme/cells/workload/...`). `FTLD_CASE=path` runs only the cases below that
//! path; `FTLD_SEED` sets the initial seed of all suites; `FTLD_LONG=1` selects acceptance length.
//! In the short form the sweeps of schemes other than the default are samples
//! ([`Verdicts::draws`]). `FTLD_SAMPLE=4` visits a quarter of the places of the power cuts, from a
//! fresh seed that is printed; `FTLD_SAMPLE_SEED` repeats the draw.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_battery::rig::Cells;
use ftld_battery::verdicts::{Budget, Length, Share, Verdicts};

/// Returns every scheme on every kind of cells.
pub fn matrix() -> impl Iterator<Item = (&'static Scheme, Cells)> {
    SCHEMES
        .iter()
        .flat_map(|scheme| Cells::ALL.map(|cells| (scheme, cells)))
}

/// Returns every scheme on the kinds of cells with long word lines.
pub fn long_word_lines() -> impl Iterator<Item = (&'static Scheme, Cells)> {
    let of = |scheme| Cells::LONG_WORD_LINES.map(|cells| (scheme, cells));
    SCHEMES.iter().flat_map(of)
}

/// Returns the initial seed: `FTLD_SEED`, else 1.
pub fn seed() -> u64 {
    std::env::var("FTLD_SEED").map_or(1, |text| text.parse().expect("FTLD_SEED is a number"))
}

/// Returns whether acceptance length is selected.
pub fn long() -> bool {
    std::env::var("FTLD_LONG").is_ok_and(|value| value == "1")
}

static CASE: std::sync::LazyLock<Option<String>> =
    std::sync::LazyLock::new(|| std::env::var("FTLD_CASE").ok());

/// Returns whether every case runs at acceptance length: then the documented number of cases runs.
pub fn is_acceptance() -> bool {
    long() && CASE.is_none()
}

/// In the short form all schemes but the default share the work of this number of whole sweeps.
const SHARED_SWEEPS: u64 = 3;

/// Returns the budget of a suite without samples.
fn whole_budget() -> Budget {
    Budget {
        seed: seed(),
        length: if long() { Length::Long } else { Length::Short },
        share: Share::WHOLE,
        case: CASE.clone(),
        ..Budget::default()
    }
}

/// Returns the budget of a scheme's cases. All cases of the default scheme run. The others' share
/// is so large that the time of a sweep is independent of the number of schemes. The seed selects
/// the cases. Acceptance and `FTLD_CASE` omit none.
pub fn budget(scheme: &Scheme) -> Budget {
    let others = SCHEMES.len() as u64 - 1;
    let share = if long() || scheme.name == SCHEMES[0].name {
        Share::WHOLE
    } else {
        Share {
            taken: SHARED_SWEEPS,
            of: others,
        }
    };
    Budget {
        share,
        ..whole_budget()
    }
}

/// `FTLD_SAMPLE=N` tests one of N places: N, and the seed of the draw.
static SAMPLE: std::sync::LazyLock<(u64, u64)> = std::sync::LazyLock::new(|| {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text:?} is no number")),
        )
    };
    let of = number("FTLD_SAMPLE").unwrap_or(1).max(1);
    if of == 1 || long() || CASE.is_some() {
        return (1, 0);
    }
    let seed = number("FTLD_SAMPLE_SEED").unwrap_or_else(crate::fresh_seed);
    crate::announce(&format!("sample: FTLD_SAMPLE={of} FTLD_SAMPLE_SEED={seed}"));
    (of, seed)
});

/// Creates empty verdicts as [`verdicts`] does, on the share of the places that `FTLD_SAMPLE` sets.
pub fn sampled_verdicts(suite: &str, scheme: &Scheme) -> Verdicts {
    let (of, sample) = *SAMPLE;
    let mut budget = budget(scheme);
    budget.share.of *= of;
    budget.sample = sample;
    verdicts_on(budget, suite)
}

/// Returns whether `FTLD_CASE` selects this case, one below it, or all.
pub fn wanted(path: &str) -> bool {
    whole_budget().wants(path)
}

fn verdicts_on(budget: Budget, suite: &str) -> Verdicts {
    let long = if long() { "FTLD_LONG=1 " } else { "" };
    let repeat = format!(
        "{long}FTLD_SEED={} FTLD_CASE={{case}} cargo test -p ftld-tests --test suites {suite}::",
        budget.seed
    );
    Verdicts::new(budget, repeat)
}

/// Creates empty verdicts on a scheme, for a test in `tests/tests/suites/<suite>.rs`.
pub fn verdicts(suite: &str, scheme: &Scheme) -> Verdicts {
    verdicts_on(budget(scheme), suite)
}

/// Creates empty verdicts on all schemes, without samples.
pub fn verdicts_of_all(suite: &str) -> Verdicts {
    verdicts_on(whole_budget(), suite)
}
