//! Metrics are computed outside the core: the core has plain counters, and a scrape renders a view
//! of them.

pub(crate) mod catalog;
pub mod hosts;
pub mod http;
#[cfg(test)]
mod locked;
mod render;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use render::render;
