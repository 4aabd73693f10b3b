//! Stand-in for MSR `usr_2` as used by LazyFTL's authors (Ma, Feng, Li, SIGMOD 2011). It is scaled
//! onto a device with 2 KiB pages and touches 75.9 % of it. The accesses per touched page have a
//! relative standard deviation of 193.6 %. No request is longer than 256 pages, most are shorter
//! than 32.
//!
//! Pages with the same number of accesses form extents of 256 pages, the length of the largest
//! request. The unpublished values are our choice: the popularity classes, and 80 % of the requests
//! as reads.

use crate::convert::{narrow, to_f64, to_u64, to_usize, whole};
use crate::error::ValueError;
use crate::record::Op;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::str::FromStr;

/// Name on the command line.
pub const NAME: &str = "stand-in-usr_2";
/// Page size of LazyFTL's device.
pub const PAGE_BYTES: u64 = 2048;
/// Pages of the largest request, and of an extent with uniform accesses.
pub const EXTENT: u32 = 256;
/// Published share of touched pages.
pub const TOUCHED: f64 = 0.759;
/// Published relative standard deviation of the accesses per touched page.
pub const RSD: f64 = 1.936;
/// Share of reads, in percent.
pub const READ_PERCENT: u64 = 80;
/// Share of the touched extents and accesses per page, hottest first; the rest is accessed
/// `COLD_ACCESSES` times.
const CLASSES: [(f64, u32); 2] = [(0.05, 43), (0.10, 8)];
const COLD_ACCESSES: u32 = 2;
/// Seed for the choice of the touched extents.
const LAYOUT: u64 = 2011;

/// Order of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All requests in random order.
    Scattered,
    /// Requests of one pass over an extent in sequence, passes in random order: whole blocks, the
    /// best case.
    Runs,
}

impl FromStr for Order {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Order, ValueError> {
        match text {
            "scattered" => Ok(Order::Scattered),
            "runs" => Ok(Order::Runs),
            _ => {
                let text = format!("order: {text:?} is neither scattered nor runs");
                Err(ValueError::Misfit(text))
            }
        }
    }
}

/// One request, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First page.
    pub first: u32,
    /// Number of pages.
    pub pages: u32,
    /// Whether the request is a read.
    pub read: bool,
}

impl Request {
    pub(super) fn extent(&self) -> (Op, u64, u64) {
        let op = if self.read { Op::Read } else { Op::Write };
        (
            op,
            u64::from(self.first) * PAGE_BYTES,
            u64::from(self.pages) * PAGE_BYTES,
        )
    }
}

/// Draws a random number below the bound.
pub type Below<'a> = &'a mut dyn FnMut(u64) -> u64;

/// Returns `part` of `of`, rounded.
pub fn share(part: f64, of: usize) -> usize {
    to_usize(whole((part * to_f64(to_u64(of))).round()))
}

/// Returns the requests for a device of `bytes` bytes. The touched extents and their access counts
/// are the same for every seed: they belong to the device.
pub(super) fn on_device(
    bytes: u64,
    order: Order,
    below: Below<'_>,
) -> Result<Vec<Request>, ValueError> {
    let extents = u32::try_from(bytes / PAGE_BYTES)
        .map_err(|_| ValueError::Misfit(format!("{bytes} bytes are more than 8 TiB")))?
        / EXTENT;
    if extents < 100 {
        return Err(ValueError::Misfit(format!(
            "{bytes} bytes are too few for its classes of popularity: need 50 MiB"
        )));
    }
    let mut extents: Vec<u32> = (0..extents).collect();
    let mut layout = Pcg64::seed_from_u64(LAYOUT);
    shuffle(&mut extents, &mut |bound| layout.random_range(0..bound));
    let touched = share(TOUCHED, extents.len());
    Ok(requests(&extents[..touched], order, below))
}

/// Generates the passes over the touched extents (by number, hottest first). The class determines
/// their count; each is split into requests.
pub fn requests(touched: &[u32], order: Order, below: Below<'_>) -> Vec<Request> {
    let mut passes = Vec::new();
    let mut next = 0;
    let sizes = CLASSES.map(|(part, accesses)| (share(part, touched.len()), accesses));
    for (count, accesses) in sizes.into_iter().chain([(touched.len(), COLD_ACCESSES)]) {
        let end = touched.len().min(next + count);
        touched[next..end]
            .iter()
            .for_each(|&extent| passes.extend((0..accesses).map(|_| extent)));
        next = end;
    }
    assert_eq!(
        next,
        touched.len(),
        "each touched extent has a number of accesses"
    );
    shuffle(&mut passes, below);
    let mut requests: Vec<Request> = passes
        .into_iter()
        .flat_map(|extent| cut(extent, below))
        .collect();
    if order == Order::Scattered {
        shuffle(&mut requests, below);
    }
    requests
}

/// Generates requests of 1 to 31 pages, one in 64 of up to 256, that cover the extent in order.
/// They are all reads or all writes.
fn cut(extent: u32, below: Below<'_>) -> Vec<Request> {
    let mut requests = Vec::new();
    let read = below(100) < READ_PERCENT;
    let mut done = 0;
    while done < EXTENT {
        let wanted = 1 + if below(64) == 0 {
            below(u64::from(EXTENT))
        } else {
            below(31)
        };
        let pages = narrow(wanted).min(EXTENT - done);
        requests.push(Request {
            first: extent * EXTENT + done,
            pages,
            read,
        });
        assert!(pages > 0, "a request of no pages");
        done += pages;
    }
    assert_eq!(done, EXTENT, "requests cover their extent");
    requests
}

/// Shuffles the items.
pub fn shuffle<T>(items: &mut [T], below: Below<'_>) {
    for i in (1..items.len()).rev() {
        items.swap(i, to_usize(below(to_u64(i) + 1)));
    }
}
