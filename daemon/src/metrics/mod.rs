//! Metrics stay at the edges: the core keeps plain counters, a view of them is rendered when
//! somebody asks.

pub mod catalog;
pub mod hosts;
pub mod http;
mod render;
#[cfg(test)]
pub(crate) mod tests;

pub use render::render;
#[cfg(test)]
pub(crate) use tests::fresh as fresh_view;
