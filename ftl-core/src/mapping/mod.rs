//! Translation tables that live on flash: caching of their pages.

mod page_lru;

pub(crate) use page_lru::PageLru;
