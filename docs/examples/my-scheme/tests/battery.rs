//! `cargo test -- --nocapture` prints a line for each battery, and how many cases passed.

#[test]
fn my_scheme_passes_every_battery() {
    let score = ftld_battery::judge(&my_scheme::SCHEME);
    assert!(score.is_perfect(), "\n{score}");
}
