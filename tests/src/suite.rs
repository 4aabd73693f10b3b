//! The command line of a suite: its environment variables, and the cases of all schemes.
//!
//! A case has a path (`scheme/cells/workload/...`). `FTLD_CASE=path` runs only the cases below that
//! path; `FTLD_SEED` sets the seed all suites start from; `FTLD_LONG=1` asks for acceptance length.
//! In the short form the sweeps of schemes other than the default are samples
//! ([`Verdicts::draws`]).

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_battery::rig::Cells;
use ftld_battery::verdicts::{Budget, Length, Share, Verdicts};

/// Every scheme on every kind of cells.
pub fn matrix() -> impl Iterator<Item = (&'static Scheme, Cells)> {
    SCHEMES
        .iter()
        .flat_map(|scheme| Cells::ALL.map(|cells| (scheme, cells)))
}

/// The seed everything starts from: `FTLD_SEED`, else 1.
pub fn seed() -> u64 {
    std::env::var("FTLD_SEED").map_or(1, |text| text.parse().expect("FTLD_SEED is a number"))
}

/// Whether acceptance length is asked for.
pub fn long() -> bool {
    std::env::var("FTLD_LONG").is_ok_and(|value| value == "1")
}

static CASE: std::sync::LazyLock<Option<String>> =
    std::sync::LazyLock::new(|| std::env::var("FTLD_CASE").ok());

/// Whether every case runs, at acceptance length: then there are as many as were promised.
pub fn is_acceptance() -> bool {
    long() && CASE.is_none()
}

/// In the short form all schemes but the default share the work of so many whole sweeps.
const SHARED_SWEEPS: u64 = 3;

/// What runs of the cases of a suite that has no samples.
fn whole_budget() -> Budget {
    Budget {
        seed: seed(),
        length: if long() { Length::Long } else { Length::Short },
        share: Share::WHOLE,
        case: CASE.clone(),
        ..Budget::default()
    }
}

/// What runs of a scheme's cases: all of the default scheme's; of the others' so large a share that
/// a sweep takes about as long however many schemes there are. The seed decides which. Acceptance
/// and `FTLD_CASE` leave nothing out.
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

/// Whether `FTLD_CASE` asks for this case, for all, or for one below it.
pub fn wanted(path: &str) -> bool {
    whole_budget().wants(path)
}

fn verdicts_on(budget: Budget, suite: &str) -> Verdicts {
    let long = if long() { "FTLD_LONG=1 " } else { "" };
    let repeat = format!(
        "{long}FTLD_SEED={} FTLD_CASE={{case}} cargo test -p ftld-tests --test {suite}",
        budget.seed
    );
    Verdicts::new(budget, repeat)
}

/// No verdicts yet on a scheme, of a test in `tests/tests/<suite>.rs`.
pub fn verdicts(suite: &str, scheme: &Scheme) -> Verdicts {
    verdicts_on(budget(scheme), suite)
}

/// No verdicts yet on all schemes; nothing is a sample.
pub fn verdicts_of_all(suite: &str) -> Verdicts {
    verdicts_on(whole_budget(), suite)
}
