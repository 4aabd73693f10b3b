//! The crate from outside, in one program.

mod faults;
mod host;
mod host_faults;
mod image;
mod rules;
