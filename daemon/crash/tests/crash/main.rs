//! `ftld-crash` as a store's author uses it: a log with and without a bug, then each promise of the
//! crate by itself.

mod disk;
mod errors;
mod log;
mod orders;
mod states;
