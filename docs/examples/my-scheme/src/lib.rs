//! A scheme to start from: a log whose cleaner weighs cost against benefit, hot and cold apart.
//!
//! The map is a table of one entry per logical page. The cleaner takes the block with the highest
//! `(1 - u) age / (1 + u)`, as the log-structured file system does (Rosenblum, Ousterhout, SOSP
//! 1991). Host writes go to one stream, relocated pages to another.

use ftl_core::author::{Candidates, NewPlacement, NewPolicy, PageMap, Placement, VictimPolicy};
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Lpn, Params};
use nand_model::{Pbn, Ppn};

/// What people read of it; name, parameters and the rest follow from the map.
pub const SCHEME: Scheme = Scheme {
    title: "a log with a cost-benefit cleaner and two streams",
    about: "Host writes are appended to one block, relocated pages to another; the cleaner weighs \
            the room that a block gives and for how long against what it costs.",
    paper: "Rosenblum, Ousterhout, SOSP 1991",
    ram: "8 B per logical page",
    ..Scheme::of_page_map::<MyMap>()
};

/// Where every logical page is.
pub struct MyMap(Vec<Option<Ppn>>);

impl PageMap for MyMap {
    const NAME: &'static str = "my-scheme";
    const POLICIES: &'static [(&'static str, NewPolicy)] = &[("my_rule", |_| Ok(Box::new(MyRule)))];
    const PLACEMENTS: &'static [(&'static str, NewPlacement)] =
        &[("my_streams", |_| Ok(Box::new(MyStreams)))];

    fn new(logical_pages: u32, _params: &Params) -> Result<Self, FtlError> {
        Ok(MyMap(vec![None; logical_pages as usize]))
    }

    fn get(&self, lpn: Lpn) -> Option<Ppn> {
        self.0[lpn.index()]
    }

    fn set(&mut self, lpn: Lpn, place: Option<Ppn>) {
        self.0[lpn.index()] = place;
    }

    fn bytes(&self) -> (u64, u64) {
        let bytes = size_of_val(&self.0[..]) as u64;
        (bytes, bytes)
    }
}

/// Which block is collected.
struct MyRule;

impl VictimPolicy for MyRule {
    fn choose(&mut self, candidates: &Candidates) -> Option<Pbn> {
        candidates.best(|block| (1.0 - block.utilisation) * block.age / (1.0 + block.utilisation))
    }
}

/// Which open block a page goes to: stream 0 takes what the host writes, stream 1 what is moved.
struct MyStreams;

impl Placement for MyStreams {
    fn streams(&self) -> (u32, u32) {
        (1, 1)
    }

    fn of_copy(&mut self, _age: u64, _from: u32) -> u32 {
        1
    }
}
