//! Metrics stay at the edges: the core keeps plain counters, a view of them is rendered when somebody asks.

pub mod http;
mod render;

pub use render::render;
