//! The template of an author's crate passes the batteries. `tests/template.sh` builds it as a crate
//! of its own.

use ftl_core::schemes::{self, Scheme};
use ftl_core::{FtlConfig, FtlError, Params, Start};
use ftld_battery::{Budget, Share, judge_within};
use nand_model::store::MemStore;
use nand_model::{Chip, Profile};

#[expect(unreachable_pub, reason = "the source of a crate of its own")]
#[path = "../../../../docs/examples/my-scheme/src/lib.rs"]
mod my_scheme;
use my_scheme::SCHEME;

#[test]
fn template_scheme_passes_every_case() {
    let budget = Budget {
        share: Share { taken: 1, of: 20 },
        ..Budget::default()
    };
    let score = judge_within(&SCHEME, &budget);
    assert!(score.is_perfect(), "\n{score}");
    assert!(score.lines.iter().all(|line| line.cases > 0), "\n{score}");
}

#[test]
fn template_scheme_is_added_once_beside_the_built_in_schemes() {
    assert!(Scheme::find("my-scheme").is_none());
    schemes::add(&SCHEME).unwrap();
    assert!(std::ptr::eq(Scheme::find("my-scheme").unwrap(), &SCHEME));
    assert_eq!(schemes::all().last().unwrap().name, "my-scheme");
    let again = schemes::add(&SCHEME).unwrap_err().to_string();
    assert!(again.contains("my-scheme"), "{again}");
}

/// Programs, reads and erases of a load that collects, under these parameters.
fn work(params: &[(&str, &str)]) -> Result<u64, FtlError> {
    let profile = Profile::find("torture").unwrap().with_blocks(40);
    let mut config = FtlConfig {
        logical_pages: 400,
        params: Params::default(),
    };
    params
        .iter()
        .for_each(|(key, value)| config.params.set(key, value));
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let mut device = SCHEME.start(chip, &config, Start::Format)?;
    let page = vec![1; profile.geometry.page_bytes as usize];
    let mut rng = nand_model::SplitMix::new(1);
    for _ in 0..4_000 {
        // Nine of ten writes go to a tenth of the pages.
        let hot = rng.below(10) > 0;
        let lpn = rng.below(if hot { 40 } else { 400 }) as u32;
        device.write(0, ftl_core::Lpn::new(lpn), &page)?;
    }
    Ok(device.chip().counters().total().programs)
}

#[test]
fn template_policies_are_defaults_and_built_in_policies_are_selectable() {
    let default = work(&[]).unwrap();
    let named = work(&[("gc.policy", "my_policy"), ("gc.placement", "my_policy")]);
    assert_eq!(named.unwrap(), default);
    assert_ne!(work(&[("gc.policy", "greedy")]).unwrap(), default);
    let wrong = work(&[("gc.policy", "my_policies")])
        .unwrap_err()
        .to_string();
    assert!(
        wrong.contains("my_policies") && wrong.contains("my_policy, greedy"),
        "{wrong}"
    );
}
