//! NBD.

pub mod kernel;
pub mod netlink;
