//! What caches of translation tables are made of.

mod lists;
mod page_lru;

pub(crate) use lists::Lists;
pub(crate) use page_lru::PageLru;
