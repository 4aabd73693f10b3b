//! The place of a panic in the code of a scheme's author: file and line.
//!
//! It is the innermost call in a file of the crate that is tested: cargo names these by a relative
//! path, and those of libraries by an absolute one.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Backtraces that are searched: each takes milliseconds, and only the first failures are shown.
const SEARCHED_MAX: u32 = 200;

static SEARCHED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Remembers the place of a panic of this thread; a hook.
pub(crate) fn note(panic: &PanicHookInfo<'_>) {
    let here = panic.location();
    let here = here.map(|at| format!("{}:{}:{}", at.file(), at.line(), at.column()));
    let own = here.filter(|place| is_own(place)).or_else(|| {
        let searches = SEARCHED.fetch_add(1, Relaxed) < SEARCHED_MAX;
        searches.then(|| of_calls(&Backtrace::force_capture().to_string()))?
    });
    LAST.set(own);
}

/// Returns the place of this thread's last panic, once.
pub(crate) fn take() -> Option<String> {
    LAST.take()
}

fn is_own(place: &str) -> bool {
    !place.starts_with('/') && !place.contains("/rustc/")
}

/// Returns the first own place in the text of a backtrace, whose lines `at FILE:LINE:COLUMN` are
/// the calls, the innermost first.
fn of_calls(calls: &str) -> Option<String> {
    let places = calls
        .lines()
        .filter_map(|line| line.trim().strip_prefix("at "));
    let own = places.filter_map(|place| place.strip_prefix("./"));
    own.map(str::to_owned).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_call_in_the_own_crate_is_the_place() {
        let calls = "   0: rust_begin_unwind\n             at /rustc/abc/library/std/src/panicking.rs:1:5\n   \
                     1: mine::policy::choose\n             at ./src/policy.rs:70:25\n   \
                     2: ftl_core::gc::run\n             at /home/one/ftld/ftl-core/src/gc/collector.rs:9:1\n";
        assert_eq!(of_calls(calls).as_deref(), Some("src/policy.rs:70:25"));
        assert_eq!(of_calls("   0: no file"), None);
        assert!(is_own("src/map.rs:3:1") && !is_own("/home/one/ftl-core/src/ftl.rs:3:1"));
    }
}
