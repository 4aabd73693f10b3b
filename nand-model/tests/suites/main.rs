//! The crate from outside, in one program.

mod faults;
mod image;
mod rules;
