//! Flash that wears out, ages and is read until bit errors occur. Data is refreshed in time, wear
//! is spread, and a device at its end of life stays readable.

use ftl_core::schemes::SCHEMES;
use ftld_battery::wear;
use ftld_tests::suite;

#[test]
fn a_worn_out_device_is_read_only_with_everything_readable_also_after_a_restart() {
    for (scheme, cells) in suite::matrix() {
        let mut verdicts = suite::verdicts("wear", scheme);
        wear::worn_out(scheme, cells, &mut verdicts);
        verdicts.notes().iter().for_each(|line| println!("{line}"));
        verdicts.assert_none_failed();
    }
}

#[test]
fn data_is_refreshed_before_it_becomes_uncorrectable() {
    for scheme in SCHEMES {
        let mut verdicts = suite::verdicts("wear", scheme);
        wear::retention_refresh(scheme, &mut verdicts);
        verdicts.notes().iter().for_each(|line| println!("{line}"));
        verdicts.assert_none_failed();
    }
}
