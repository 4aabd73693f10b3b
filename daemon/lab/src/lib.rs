//! The experiments of `ftld`: [`replay`] runs a trace or a workload on a simulated device,
//! [`compare`] does so for several schemes, and [`crashes`] opens the states that a power cut of a
//! recorded run can leave.
//!
//! A simulation stores no data and runs on emulated time. If power fails, rows and states that
//! are complete are kept, and the command continues from them where it says so.

#![warn(clippy::missing_errors_doc)]

pub mod compare;
pub mod crashes;
pub mod replay;
pub mod statistics;
