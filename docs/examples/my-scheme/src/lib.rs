//! A scheme to start from: its map (`map.rs`) and its policy (`policy.rs`).

mod map;
mod policy;

use ftl_core::author::{NewPolicy, PageMapScheme};
use ftl_core::schemes::Scheme;
use map::MyMap;
use policy::MyPolicy;

/// What people read of it; its name and parameters follow from `MyScheme`.
pub const SCHEME: Scheme = Scheme {
    title: "a scheme to start from",
    about: "What it decides, in two sentences.",
    paper: "unpublished",
    ram: "8 B per logical page",
    ..Scheme::of_page_map::<MyScheme>()
};

/// The name of the scheme, its map and its policies.
struct MyScheme;

impl PageMapScheme for MyScheme {
    const NAME: &'static str = "my-scheme";
    type Map = MyMap;
    const POLICIES: &'static [(&'static str, NewPolicy)] = &[("my_policy", MyPolicy::create)];
}
