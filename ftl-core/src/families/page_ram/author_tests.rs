//! What a policy and a map of another crate see, and what happens if they break their contract.

use crate::addr::Lpn;
use crate::author::{
    Candidates, DataBlock, Device, FlatMap, HostWrite, InvalidPage, NewPolicy, PageCopy, PageMap,
    PageMapScheme, Policy, contract,
};
use crate::config::{FtlConfig, Params};
use crate::error::FtlError;
use crate::ftl::{Ftl, Start};
use crate::schemes::Scheme;
use crate::stats::RamPart;
use nand_model::store::MemStore;
use nand_model::{Chip, Pbn, Ppn, Profile, SplitMix};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the policies of this thread saw.
#[derive(Default)]
struct Seen {
    policies: u32,
    writes: u64,
    copies: u64,
    trimmed: u64,
    sealed: u64,
    /// By block: pages that became invalid or were relocated since it was erased.
    left: Vec<u32>,
    /// `left` of each sealed block when it was erased.
    left_at_erase: Vec<u32>,
    is_sealed: Vec<bool>,
    time: u64,
    victims: u64,
    hints: Vec<u64>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

fn seen<R>(look: impl FnOnce(&mut Seen) -> R) -> R {
    SEEN.with(|seen| look(&mut seen.borrow_mut()))
}

/// Two streams of the host by the parity of the page, one of copies. Its victim is greedy.
struct Observer;

impl Observer {
    fn create(device: &Device, _: &Params) -> Result<Box<dyn Policy>, FtlError> {
        seen(|seen| {
            seen.policies += 1;
            seen.left.resize(device.geometry.block_slots(), 0);
            seen.is_sealed.resize(device.geometry.block_slots(), false);
        });
        assert_eq!(device.logical_pages, PAGES);
        Ok(Box::new(Observer))
    }
}

impl Policy for Observer {
    fn streams(&self) -> (u32, u32) {
        (2, 1)
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        seen(|seen| {
            seen.writes += 1;
            seen.hints.push(write.hint);
            assert!(write.now > seen.time, "time passes with every write");
            seen.time = write.now;
        });
        assert_eq!(write.replaces.is_some(), write.lifespan.is_some());
        write.lpn.raw() % 2
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        if let Some(lpn) = copy.lpn {
            assert!(lpn.raw() < PAGES && copy.now >= copy.age);
            seen(|seen| {
                seen.copies += 1;
                seen.left[copy.block.index()] += 1;
            });
        }
        2
    }

    fn on_invalidate(&mut self, page: &InvalidPage) {
        assert!(page.lpn.raw() < PAGES && page.stream < 5);
        seen(|seen| {
            seen.left[page.block.index()] += 1;
            seen.trimmed += u64::from(page.is_trim);
        });
    }

    fn on_seal(&mut self, block: &DataBlock) {
        seen(|seen| {
            seen.sealed += 1;
            seen.is_sealed[block.block.index()] = true;
        });
    }

    fn on_erase(&mut self, block: Pbn) {
        seen(|seen| {
            let left = std::mem::take(&mut seen.left[block.index()]);
            if std::mem::take(&mut seen.is_sealed[block.index()]) {
                seen.left_at_erase.push(left);
            }
        });
    }

    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        seen(|seen| seen.victims += 1);
        candidates.best_of_all(|block| 1.0 - block.utilisation)
    }

    fn bytes(&self) -> (u64, u64) {
        (1_000, 5_000)
    }
}

struct Observed;

impl PageMapScheme for Observed {
    const NAME: &'static str = "observed";
    type Map = FlatMap;
    const POLICIES: &'static [(&'static str, NewPolicy)] = &[("observer", Observer::create)];
}

static OBSERVED: Scheme = Scheme::of_page_map::<Observed>();

const PAGES: u32 = 1_000;

/// A new device of this scheme; its blocks have no page but those of data.
fn format(scheme: &Scheme, params: &[(&str, &str)]) -> Result<Box<dyn Ftl>, FtlError> {
    let profile = Profile::find("slc-2k").unwrap().with_blocks(30);
    let mut config = FtlConfig {
        logical_pages: PAGES,
        params: Params::default(),
    };
    let params = [("ckpt.interval", "0"), ("wear.policy", "none")]
        .iter()
        .chain(params);
    params.for_each(|(key, value)| config.params.set(key, value));
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    scheme.start(chip, &config, Start::Format)
}

/// Writes this many pages at random, most of them to a tenth of the device.
fn write(device: &mut dyn Ftl, count: u64) {
    let data = vec![1; device.chip().geometry().page_len()];
    let mut rng = SplitMix::new(7);
    for _ in 0..count {
        let range = if rng.one_in(4) { PAGES } else { PAGES / 10 };
        let lpn = Lpn::new(rng.below(range.into()) as u32);
        device.write(0, lpn, &data).unwrap();
    }
}

#[test]
fn every_page_of_an_erased_block_was_invalidated_or_copied_once() {
    seen(|seen| *seen = Seen::default());
    let mut device = format(&OBSERVED, &[]).unwrap();
    write(&mut *device, 20_000);
    let pages = device.chip().geometry().pages_per_block;
    let stats = device.stats();
    seen(|seen| {
        assert_eq!(seen.policies, 1, "one object for streams and victims");
        assert_eq!(seen.writes, 20_000);
        assert_eq!(seen.copies, stats.gc_pages_moved);
        assert!(
            seen.victims > 0 && seen.copies > 1_000,
            "{} copies",
            seen.copies
        );
        assert!(seen.left_at_erase.len() > 200 && seen.sealed > 200);
        assert!(seen.left_at_erase.iter().all(|left| *left == pages));
    });
    assert_eq!(device.check().unwrap(), Vec::<String>::new());
}

/// The hint of a write reaches the policy, and stays until the host sets another.
#[test]
fn a_policy_gets_the_hints_of_the_host() {
    seen(|seen| *seen = Seen::default());
    let mut device = format(&OBSERVED, &[]).unwrap();
    let data = vec![1; 2 * device.chip().geometry().page_len()];
    device.write(0, Lpn::new(0), &data).unwrap();
    device.set_write_hint(3);
    device.write(0, Lpn::new(5), &data).unwrap();
    assert_eq!(seen(|seen| std::mem::take(&mut seen.hints)), [0, 0, 3, 3]);
}

#[test]
fn a_trim_invalidates_the_mapped_pages_and_no_others() {
    seen(|seen| *seen = Seen::default());
    let mut device = format(&OBSERVED, &[]).unwrap();
    let data = vec![1; 8 * device.chip().geometry().page_len()];
    device.write(0, Lpn::new(16), &data).unwrap();
    device.trim(0, Lpn::new(10), 10).unwrap();
    device.trim(0, Lpn::new(10), 20).unwrap();
    assert_eq!(seen(|seen| (seen.writes, seen.trimmed)), (8, 8));
}

/// `mida` has one stream of the host and four of copies, so the observer's answers have no effect.
#[test]
fn a_policy_observes_every_page_beside_one_of_ftld() {
    for (params, chooses_victims) in [
        (
            [("gc.policy", "greedy"), ("gc.placement", "observer")],
            false,
        ),
        ([("gc.policy", "observer"), ("gc.placement", "mida")], true),
    ] {
        seen(|seen| *seen = Seen::default());
        let mut device = format(&OBSERVED, &params).unwrap();
        write(&mut *device, 5_000);
        seen(|seen| {
            assert_eq!((seen.policies, seen.writes), (1, 5_000));
            assert_eq!(seen.victims > 0, chooses_victims);
            assert_eq!(seen.copies, device.stats().gc_pages_moved);
        });
    }
}

#[test]
fn the_ram_that_a_policy_reports_is_in_the_report() {
    let of = |params: &[(&str, &str)]| {
        let device = format(&OBSERVED, params).unwrap();
        let report = device.ram_report();
        let mut parts = report
            .iter()
            .filter(|entry| entry.part == RamPart::Placement);
        let part = parts.next().expect("the streams are a part");
        (part.paper_bytes, part.allocated_bytes)
    };
    let without = of(&[("gc.policy", "greedy"), ("gc.placement", "age")]);
    // The ages of 30 blocks, which the observer may read, have 8 B each.
    assert_eq!(of(&[]), (without.0 + 1_000, without.1 + 5_000 + 8 * 30));
}

/// Text of the panic or the error of a scheme that breaks its contract.
fn broken(scheme: &Scheme) -> String {
    let run = || -> Result<(), FtlError> {
        let mut device = format(scheme, &[])?;
        write(&mut *device, 4_000);
        Ok(())
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.expect_err("the contract is broken").to_string(),
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}

/// A map that is wrong about one page.
struct OffByOne(FlatMap);

impl PageMap for OffByOne {
    fn new(logical_pages: u32, params: &Params) -> Result<Self, FtlError> {
        FlatMap::new(logical_pages, params).map(OffByOne)
    }

    fn get(&self, lpn: Lpn) -> Option<Ppn> {
        let ppn = self.0.get(lpn)?;
        Some(if lpn.raw() == 17 {
            Ppn::new(ppn.raw() + 1)
        } else {
            ppn
        })
    }

    fn set(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        self.0.set(lpn, ppn);
    }

    fn bytes(&self) -> (u64, u64) {
        self.0.bytes()
    }
}

/// A policy that breaks one of its contracts.
struct Wrong(&'static str);

impl Policy for Wrong {
    fn streams(&self) -> (u32, u32) {
        (if self.0 == contract::STREAMS { 17 } else { 2 }, 2)
    }

    fn stream_of_write(&mut self, _: &HostWrite) -> u32 {
        if self.0 == contract::STREAM_OF_WRITE {
            2
        } else {
            0
        }
    }

    fn stream_of_copy(&mut self, _: &PageCopy) -> u32 {
        if self.0 == contract::STREAM_OF_COPY {
            1
        } else {
            3
        }
    }

    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        let mut others = (0..30)
            .map(Pbn::new)
            .filter(|block| !candidates.contains(*block));
        others.next().filter(|_| self.0 == contract::CHOOSE_VICTIM)
    }
}

struct WrongMap;

impl PageMapScheme for WrongMap {
    const NAME: &'static str = "wrong-map";
    type Map = OffByOne;
}

macro_rules! wrong_policy {
    ($name:ident, $contract:expr) => {
        struct $name;

        impl PageMapScheme for $name {
            const NAME: &'static str = "wrong-policy";
            type Map = FlatMap;
            const POLICIES: &'static [(&'static str, NewPolicy)] =
                &[("wrong", |_, _| Ok(Box::new(Wrong($contract))))];
        }
    };
}

wrong_policy!(WrongStreams, contract::STREAMS);
wrong_policy!(WrongWrite, contract::STREAM_OF_WRITE);
wrong_policy!(WrongCopy, contract::STREAM_OF_COPY);
wrong_policy!(WrongVictim, contract::CHOOSE_VICTIM);

#[test]
fn a_broken_contract_is_named_with_its_values() {
    let cases = [
        (
            Scheme::of_page_map::<WrongMap>(),
            contract::GET,
            "page 17 has ",
        ),
        (
            Scheme::of_page_map::<WrongStreams>(),
            contract::STREAMS,
            "wrong returned 17 and 2",
        ),
        (
            Scheme::of_page_map::<WrongWrite>(),
            contract::STREAM_OF_WRITE,
            "2 for page ",
        ),
        (
            Scheme::of_page_map::<WrongCopy>(),
            contract::STREAM_OF_COPY,
            "1 for a page of block ",
        ),
        (
            Scheme::of_page_map::<WrongVictim>(),
            contract::CHOOSE_VICTIM,
            "it chose block ",
        ),
    ];
    for (scheme, contract, values) in cases {
        let text = broken(&scheme);
        let expected = format!("{contract}: {values}");
        assert!(text.contains(&expected), "{expected}: {text}");
    }
}
