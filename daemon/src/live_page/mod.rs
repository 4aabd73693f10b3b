//! The live page at `/` on the metrics port: one document that loads nothing else, and the JSON
//! that it asks for.

pub(crate) mod api;
pub(crate) mod page;
