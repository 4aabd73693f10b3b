//! The battery finds no failure in a correct scheme and one in a wrong one.

mod cached_map;
mod template;

use ftl_core::schemes::Scheme;
use ftld_battery::{Battery, Budget, Share, judge_within};

fn pagemap() -> &'static Scheme {
    Scheme::find("pagemap").expect("the reference scheme")
}

#[test]
fn correct_scheme_passes_every_case() {
    let budget = Budget {
        share: Share { taken: 1, of: 20 },
        ..Budget::default()
    };
    let score = judge_within(pagemap(), &budget);
    assert!(score.is_perfect(), "\n{score}");
    assert!(score.lines.iter().all(|line| line.cases > 0), "\n{score}");
}

/// Without protection of paired pages a FLUSH does not cover its pages.
#[test]
fn faulty_scheme_fails_and_its_first_failure_repeats() {
    let mut budget = Budget {
        share: Share { taken: 1, of: 20 },
        ..Budget::default()
    };
    budget.params.set("nand.pair_policy", "none");
    let verdicts = Battery::PowerCuts.run(pagemap(), &budget);
    let first = verdicts.first().expect("cuts lose flushed data").clone();
    assert!(
        verdicts.failures > 10,
        "only {} failures",
        verdicts.failures
    );
    assert!(first.repeat.contains(&first.case), "{first}");

    budget.case = Some(first.case.clone());
    let again = Battery::PowerCuts.run(pagemap(), &budget);
    assert_eq!(again.first(), Some(&first));
}
