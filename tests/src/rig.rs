//! A scheme on a small chip, from one seed; and the command line that repeats a case.
//!
//! A case has a path (`scheme/cells/workload/...`). `FTLD_CASE=path` runs only the cases below that
//! path; `FTLD_SEED` sets the seed all suites start from; `FTLD_LONG=1` asks for acceptance length.
//! In the short form the sweeps of schemes other than the default are samples
//! ([`Verdicts::draws`]).

use ftl_core::schemes::{SCHEMES, Scheme, SchemeStore};
use ftl_core::{Ftl, FtlConfig, FtlError, Params, Start};
use nand_model::store::MemStore;
use nand_model::{Bad, BlockFacts, Bomb, Chip, Geometry, Pbn, Profile, SplitMix, Store};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Kind of cells: which rules the chip enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Rules of `slc-2k`: pages in any order, partial programs, nothing shared.
    Slc,
    /// Rules of `torture`: pages in order, once, in pairs.
    Mlc,
}

impl Cells {
    /// Both kinds.
    pub const ALL: [Cells; 2] = [Cells::Slc, Cells::Mlc];

    /// Name in the path of a case.
    pub const fn name(self) -> &'static str {
        match self {
            Cells::Slc => "slc",
            Cells::Mlc => "mlc",
        }
    }

    /// A chip of these cells with small pages and blocks, without a number of blocks yet.
    pub fn profile(self) -> Profile {
        let torture = *Profile::find("torture").expect("a built-in profile");
        let small = Geometry {
            page_bytes: 512,
            ..torture.geometry
        };
        let rules = match self {
            Cells::Mlc => torture,
            Cells::Slc => *Profile::find("slc-2k").expect("a built-in profile"),
        };
        Profile {
            geometry: small,
            endurance: torture.endurance,
            ..rules
        }
    }
}

/// Everything a run follows from.
#[derive(Clone)]
pub struct Rig {
    /// The scheme under test.
    pub scheme: &'static Scheme,
    /// The chip's rules.
    pub cells: Cells,
    /// The chip, with as many blocks as the scheme's layout asks for.
    pub profile: Profile,
    /// Size and parameters.
    pub config: FtlConfig,
    /// Seed of payloads, workloads and chances.
    pub seed: u64,
    /// What waits in some blocks in recorded runs.
    pub bombs: Vec<Bomb>,
    /// More of a case's path, when the rig differs from the usual.
    pub variant: String,
}

/// Over-provisioning of the suites: that of the default device.
pub const OVER_PROVISIONING: f64 = 0.07;

impl Rig {
    /// A device of `pages` logical pages, laid out as the scheme wants it, with default parameters.
    pub fn new(scheme: &'static Scheme, cells: Cells, pages: u32) -> Rig {
        Rig::with_params(scheme, cells, pages, Params::default())
    }

    /// The same with parameters; those that the scheme does not have are left out.
    pub fn with_params(scheme: &'static Scheme, cells: Cells, pages: u32, wanted: Params) -> Rig {
        Rig::on_profile(scheme, cells, cells.profile(), pages, wanted)
    }

    /// The same on a chip as it is sold.
    pub fn on_profile(
        scheme: &'static Scheme,
        cells: Cells,
        profile: Profile,
        pages: u32,
        wanted: Params,
    ) -> Rig {
        let mut params = Params::default();
        wanted
            .iter()
            .filter(|(key, _)| has_param(scheme, key))
            .for_each(|(key, value)| params.set(key, value));
        Rig::laid_out(
            scheme,
            cells,
            profile,
            pages,
            OVER_PROVISIONING,
            params,
            seed(),
        )
        .unwrap_or_else(|error| panic!("{} has no layout for {pages} pages: {error}", scheme.name))
    }

    /// A device on any chip, with any parameters and over-provisioning, from a seed of its own.
    ///
    /// # Errors
    /// The scheme's reason, where it cannot be laid out so.
    pub fn laid_out(
        scheme: &'static Scheme,
        cells: Cells,
        profile: Profile,
        pages: u32,
        over_provisioning: f64,
        params: Params,
        seed: u64,
    ) -> Result<Rig, String> {
        let bytes = pages as u64 * profile.geometry.page_bytes as u64;
        let layout = scheme
            .layout(&profile, bytes, over_provisioning, &params)
            .map_err(|error| error.to_string())?;
        let config = FtlConfig {
            logical_pages: layout.logical_pages,
            params,
        };
        let (bombs, variant) = (Vec::new(), String::new());
        Ok(Rig {
            scheme,
            cells,
            profile: layout.profile,
            config,
            seed,
            bombs,
            variant,
        })
    }

    /// The same with one more parameter, where the scheme has it.
    pub fn set(mut self, key: &str, value: &str) -> Rig {
        if has_param(self.scheme, key) {
            self.config.params.set(key, value);
        }
        self
    }

    /// An erased chip.
    pub fn blank(&self) -> Chip<MemStore> {
        self.open(MemStore::new(self.profile.geometry))
    }

    /// Bad blocks that the data sheet allows: those that the layout added.
    pub fn spare_blocks(&self) -> u64 {
        let blocks = self.profile.geometry.blocks as u64;
        let allowed = |used: u64| {
            (used * self.profile.max_bad_permille as u64)
                .div_ceil(1000)
                .max(4)
        };
        (0..blocks)
            .find(|used| used + allowed(*used) >= blocks)
            .map_or(0, |used| blocks - used)
    }

    /// An erased chip that has as many bad blocks as its data sheet allows: the least room the
    /// scheme was promised.
    pub fn blank_at_end_of_life(&self) -> Chip<MemStore> {
        let spare = self.spare_blocks();
        let mut chip = self.open(MemStore::new(self.profile.geometry));
        let mut rng = SplitMix::new(self.seed);
        for _ in 0..spare {
            let good = |block: &Pbn| chip.bad(*block).is_none();
            let blocks: Vec<_> = self.profile.geometry.all_blocks().filter(good).collect();
            let block = blocks[rng.below(blocks.len() as u64) as usize];
            let facts = BlockFacts {
                bad: Some(Bad::Factory),
                ..BlockFacts::default()
            };
            chip.store_mut()
                .set_facts(block, facts)
                .expect("memory does not fail");
            chip = self.open(chip.into_store());
        }
        chip
    }

    /// A chip over a store.
    pub fn open<S: Store>(&self, store: S) -> Chip<S> {
        Chip::open(self.profile, store).expect("memory does not fail")
    }

    /// The scheme on a new device.
    pub fn format(&self) -> Box<dyn Ftl<MemStore>> {
        self.scheme
            .start(self.blank(), &self.config, Start::Format)
            .expect("a new device starts")
    }

    /// The scheme on what an earlier run left.
    pub fn mount<S: SchemeStore>(&self, chip: Chip<S>) -> Result<Box<dyn Ftl<S>>, FtlError> {
        self.scheme.start(chip, &self.config, Start::Mount)
    }

    /// The same, called `name` in a case's path, changed by `change`.
    pub fn variant(mut self, name: &str, change: impl FnOnce(&mut Rig)) -> Rig {
        self.variant = format!("/{name}");
        change(&mut self);
        self
    }

    /// First parts of a case's path.
    pub fn path(&self) -> String {
        format!("{}/{}{}", self.scheme.name, self.cells.name(), self.variant)
    }
}

/// Whether the scheme understands the parameter.
pub fn has_param(scheme: &Scheme, key: &str) -> bool {
    scheme.knows(key)
}

/// Every scheme on every kind of cells.
pub fn matrix() -> impl Iterator<Item = (&'static Scheme, Cells)> {
    SCHEMES
        .iter()
        .flat_map(|scheme| Cells::ALL.map(|cells| (scheme, cells)))
}

/// Does this with every item, on all processors. Results are in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, workers) = (
        AtomicUsize::new(0),
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return done;
            };
            done.push((index, each(item)));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The seed everything starts from: `FTLD_SEED`, else 1.
pub fn seed() -> u64 {
    std::env::var("FTLD_SEED").map_or(1, |text| text.parse().expect("FTLD_SEED is a number"))
}

/// Whether acceptance length is asked for.
pub fn long() -> bool {
    std::env::var("FTLD_LONG").is_ok_and(|value| value == "1")
}

static CASE: std::sync::LazyLock<Option<String>> =
    std::sync::LazyLock::new(|| std::env::var("FTLD_CASE").ok());

/// Whether every case runs, at acceptance length: then there are as many as were promised.
pub fn is_acceptance() -> bool {
    long() && CASE.is_none()
}

/// Whether `FTLD_CASE` asks for this case, for all, or for one below it.
pub fn wanted(path: &str) -> bool {
    let Some(case) = CASE.as_deref() else {
        return true;
    };
    let below = |path: &str, case: &str| path == case || path.starts_with(&format!("{case}/"));
    below(path, case) || below(case, path)
}

/// In the short form all schemes but the default share the work of so many whole sweeps.
const SHARED_SWEEPS: u64 = 3;

/// Whether the sample contains this place, whose path begins with a scheme: all of the default
/// scheme's; of the others' so large a share that a sweep takes about as long however many schemes
/// there are. The seed decides which. Acceptance and `FTLD_CASE` leave nothing out.
fn is_drawn(place: &str) -> bool {
    let others = SCHEMES.len() as u64 - 1;
    let whole = long() || CASE.is_some() || others <= SHARED_SWEEPS;
    let scheme = place.split('/').next().unwrap_or_default();
    whole || scheme == SCHEMES[0].name || {
        let name = crc32c::crc32c(place.as_bytes());
        SplitMix::new(seed() << 32 ^ u64::from(name)).below(others) < SHARED_SWEEPS
    }
}

/// Collects what went wrong in a suite's cases and how many there were.
#[derive(Debug)]
pub struct Verdicts {
    suite: &'static str,
    everything: bool,
    /// Places that sweeps came by.
    pub places: u64,
    /// Of these, those that were in the sample.
    pub drawn: u64,
    /// Cases that ran.
    pub cases: u64,
    /// Cases that failed.
    pub failures: u64,
    first: Vec<String>,
    enough: u64,
}

impl Verdicts {
    /// No verdicts yet of a test in `tests/tests/<suite>.rs`.
    pub fn new(suite: &'static str) -> Self {
        Verdicts {
            suite,
            everything: false,
            places: 0,
            drawn: 0,
            cases: 0,
            failures: 0,
            first: Vec::new(),
            enough: u64::MAX,
        }
    }

    /// The same, without sampling.
    pub fn of_everything(suite: &'static str) -> Self {
        Verdicts {
            everything: true,
            ..Verdicts::new(suite)
        }
    }

    /// The same, but one failure is enough: no case runs after it.
    pub fn until_first_failure(suite: &'static str) -> Self {
        Verdicts {
            enough: 1,
            ..Verdicts::new(suite)
        }
    }

    /// Whether no more cases will run.
    pub fn are_enough(&self) -> bool {
        self.failures >= self.enough
    }

    /// Whether a sweep looks at this place: one at which there are cases, or one that costs
    /// something to get to. Counts it.
    pub fn draws(&mut self, place: &str) -> bool {
        if self.are_enough() || !wanted(place) {
            return false;
        }
        let drawn = self.everything || is_drawn(place);
        self.places += 1;
        self.drawn += u64::from(drawn);
        drawn
    }

    /// What of the sweep ran, for a suite's report: "all 200 places", "a sample of 41 of 200
    /// places".
    pub fn sample(&self) -> String {
        match self.drawn {
            all if all == self.places => format!("all {all} places"),
            some => format!("a sample of {some} of {} places", self.places),
        }
    }

    /// Runs one case, unless `FTLD_CASE` asks for others. A panic is a failure of this case alone.
    pub fn case(&mut self, path: &str, run: impl FnOnce() -> Result<(), String>) {
        if self.are_enough() || !wanted(path) {
            return;
        }
        self.cases += 1;
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        });
        if let Err(why) = outcome {
            self.failures += 1;
            if self.first.len() < 8 {
                let (seed, suite, long) =
                    (seed(), self.suite, if long() { "FTLD_LONG=1 " } else { "" });
                self.first.push(format!(
                    "{path}: {why}\n    {long}FTLD_SEED={seed} FTLD_CASE={path} cargo test -p ftld-tests --test {suite}"
                ));
            }
        }
    }

    /// The first failure: its case, what happened, and the command line that repeats it.
    pub fn first(&self) -> Option<&str> {
        self.first.first().map(String::as_str)
    }

    /// Panics if any case failed, with the command line that repeats it.
    pub fn assert_none_failed(&self) {
        let list = self.first.join("\n");
        assert!(
            self.failures == 0,
            "{} of {} cases failed:\n{list}",
            self.failures,
            self.cases
        );
    }
}
