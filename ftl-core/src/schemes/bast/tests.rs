//! What the sources give: what the three kinds of merge cost.

use crate::hybrid::tests::{Device, SLC, agrees_with_a_model};

const US: u64 = 1_000;

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("bast", &[]);
}
