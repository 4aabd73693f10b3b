//! How requests reach a volume from outside the process. A transport meets the rest of the daemon only through
//! [`crate::device::BlockDevice`].

pub mod nbd;
