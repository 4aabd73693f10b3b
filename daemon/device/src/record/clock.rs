//! The clock of moments: CLOCK_MONOTONIC, which all recordings of a boot share.

use ftld_traces::recording::Clock;
use rustix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |part: i64| u64::try_from(part).expect("a clock that begins at the boot");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// Returns the clock of a recording that begins now; `None` if the host does not name its boot.
pub(super) fn now() -> Option<Clock> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // Kernels before 5.6 have one time namespace.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let id = format!("{} {}", boot.trim(), namespace.display());
    Some(Clock {
        id: id.trim_end().into(),
        began_ns: monotonic_ns(),
    })
}
