//! `cargo test -- --nocapture` judges the scheme: the score, and each contract that it broke.

#[test]
fn my_scheme_passes_every_battery() {
    assert!(ftld_battery::judge(&my_scheme::SCHEME).is_perfect());
}
