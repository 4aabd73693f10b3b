//! Building blocks for caches of translation tables.

mod lists;
mod page_lru;

pub(crate) use lists::Lists;
pub(crate) use page_lru::PageLru;
