//! Live page at `/` on the metrics port: one document that loads nothing else, and its JSON
//! requests.

pub(crate) mod api;
pub(crate) mod page;
