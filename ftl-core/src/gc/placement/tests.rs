//! Every placement on one worked example.

use super::*;

fn named(name: &str) -> Box<dyn Placement> {
    let mut params = Params::default();
    params.set("gc.placement", name);
    from_params(&params, &[]).unwrap()
}

#[test]
fn copies_go_where_each_source_says() {
    assert_eq!(named("single").of_copy(9_000, 0), 0);
    assert_eq!(named("copies_apart").of_copy(9_000, 0), 1);
    // Powers of four of 4,096 pages: below 4,096, 16,384, 65,536, 262,144, 1,048,576, and above.
    let ages = [0, 4_095, 4_096, 16_384, 65_536, 262_144, 1 << 20, 1 << 40];
    let streams = ages.map(|age| named("age").of_copy(age, 0));
    assert_eq!(streams, [1, 1, 2, 3, 4, 5, 6, 6]);
    let moves = [0, 1, 2, 3, 4].map(|from| named("mida").of_copy(0, from));
    assert_eq!(moves, [1, 2, 3, 4, 4]);
}

#[test]
fn sepbit_parts_writes_by_the_mean_lifetime_of_its_first_class() {
    let mut sepbit = named("sepbit");
    // Before the first sample, a write that replaces a version is short-lived, and a new one is
    // not.
    assert_eq!(
        (
            sepbit.of_write(Lpn::new(0), Some(1 << 40)),
            sepbit.of_write(Lpn::new(0), None)
        ),
        (0, 1)
    );
    for lifetime in 0..16 {
        sepbit.collected(0, 1_000 + lifetime * 2);
        sepbit.collected(3, 1);
    }
    // The mean is 1,015.
    assert_eq!(
        (
            sepbit.of_write(Lpn::new(0), Some(1_014)),
            sepbit.of_write(Lpn::new(0), Some(1_015))
        ),
        (0, 1)
    );
    assert_eq!(sepbit.of_copy(1 << 40, 0), 2, "from the first class");
    let ages = [0, 4_059, 4_060, 16_239, 16_240];
    assert_eq!(ages.map(|age| sepbit.of_copy(age, 1)), [3, 3, 4, 4, 5]);
}

#[test]
fn a_placement_that_there_is_not_is_named() {
    let mut params = Params::default();
    params.set("gc.placement", "sepbits");
    let error = from_params(&params, &[]).err().unwrap().to_string();
    assert!(
        error.contains("sepbits") && error.contains("mida"),
        "{error}"
    );
}
