//! Values that runs give to the parameters of schemes.

use ftl_core::schemes::Scheme;

/// Stands for the least number that the scheme accepts.
pub(super) const LEAST: &str = "least";

/// Parameters, and values within their bounds. A parameter that is not listed here is listed in
/// [`FIXED`].
pub const PARAMETERS: &[(&str, &[&str])] = &[
    ("alloc.stripe", &["2", "3", "4", "8"]),
    ("asast.adapt", &["on", "off"]),
    ("asast.group", &["1", "2", "4"]),
    ("asast.logs", &["0", "1", "4"]),
    ("asast.victim", &["lru", "least_valid"]),
    ("bast.victim", &["lru", "least_valid"]),
    ("ckpt.interval", &["0", "40", "150", "400", "2000"]),
    ("dftl.cache", &["1024", "2048", "8192"]),
    ("dop.cache", &["1024", "2048", "8192"]),
    ("dop.ctpa", &["on", "off"]),
    ("dop.max_ext", &["2", "8", "30"]),
    ("dop.max_dirty", &["64", "100", "500"]),
    ("dop.original_share", &["auto", "0.25", "0.5"]),
    ("dop.ratio", &["2", "4", "8"]),
    ("fast.predict", &["fp", "lp", "cp", "np", "ebw"]),
    ("fast.sw_break", &["merge_then_rw", "keep_sw_then_rw"]),
    ("gc.choices", &["1", "3", "10"]),
    ("gc.free_threshold", &[LEAST, "5", "9", "14"]),
    (
        "gc.placement",
        &[
            "copies_apart",
            "single",
            "age",
            "sepbit",
            "mida",
            "midas",
            "mdc",
        ],
    ),
    (
        "gc.policy",
        &["greedy", "cost_benefit", "fifo", "d_choices", "cat"],
    ),
    ("gftl.extra", &["2", "16", "60"]),
    ("gftl.slice_always", &["true", "false"]),
    ("gftl.subtables", &["1", "2", "8"]),
    ("last.large_request", &["1024", "4096", "8192"]),
    ("last.sequential", &["1", "3", "8"]),
    ("lazy.age_window", &["8", "20", "100"]),
    ("lazy.buffer_blocks", &["4", "6", "12"]),
    ("lazy.cache_pages", &["1", "2", "14"]),
    ("leaftl.buffer", &["4096", "16384", "65536"]),
    ("leaftl.compact_after", &["1", "40", "256"]),
    ("leaftl.gamma", &["0", "1", "4", "16"]),
    ("learned.cache", &["1024", "2048", "8192"]),
    ("learned.groups", &["1", "2", "4"]),
    ("learned.pieces", &["0", "1", "3", "16"]),
    ("log.blocks", &["0", "4", "12"]),
    ("map.age_window", &["32", "60", "512"]),
    ("map.max_tombstones", &["8", "64", "1024"]),
    ("maro.age_weight", &["0", "1", "inf"]),
    ("maro.alpha", &["0", "0.5", "1"]),
    ("maro.cost_unit", &["us", "page_copy"]),
    ("mlam.alpha", &["0", "0.5", "1"]),
    ("mlam.buffer", &["4096", "16384", "65536"]),
    ("mlam.candidates", &["1", "4", "8"]),
    ("mlam.chips", &["1", "2", "4"]),
    ("mlam.flush", &["journal", "vsb"]),
    ("mlam.high", &["0.3", "0.5", "0.9"]),
    ("mlam.k_empty", &["0", "2", "auto"]),
    ("mlam.low", &["0.05", "0.1", "0.25"]),
    (
        "mlam.policy",
        &["mlam", "flush_all", "lru", "size", "lru_size"],
    ),
    ("mlam.smax", &["1", "1.25", "2"]),
    ("mnftl.idle_min_chain", &["0", "2", "3"]),
    ("mnftl.subtables", &["1", "2", "8"]),
    ("mnftl.victim", &["max_chain", "global_min"]),
    ("nftln.max_length", &["2", "4", "16"]),
    ("rose.cheap_merge", &["on", "off"]),
    ("rose.ebw", &["on", "off"]),
    ("rose.fpr", &["on", "off"]),
    ("rose.victim", &["maro", "rr", "cat", "last"]),
    ("scrub.hours", &["0", "1", "168"]),
    ("sftl.entries", &["4", "8", "16"]),
    ("sftl.k", &["1", "2"]),
    ("sftl.n", &["1", "2", "4"]),
    ("sftl.total", &["8", "40", "256"]),
    ("tpftl.cache", &["1024", "2048", "8192"]),
    ("tpftl.prefetch_threshold", &["0", "1", "3"]),
    ("lazy.valid_tracking", &["oob_mark", "ram_bitmap"]),
    ("wear.gap", &["1", "2", "6"]),
    ("wear.policy", &["none", "cold_to_worn"]),
];

/// Parameters that keep their defaults: other values weaken a guarantee, change emulated time
/// alone, or have power cuts of their own (`power_cuts::variants`).
const FIXED: &[&str] = &[
    "gc.pace",
    "leaftl.ack",
    "nand.pair_policy",
    "map.lookup",
    "mlam.ack",
    "timing.ram",
    "slc.victim",
    "slc.full",
];

/// Parameters of a scheme that the generator does not vary: runs keep their defaults.
pub fn unknown_parameters(scheme: &Scheme) -> Vec<&'static str> {
    let known =
        |key: &str| FIXED.contains(&key) || PARAMETERS.iter().any(|(listed, _)| *listed == key);
    let keys = scheme.all_params().map(|param| param.key);
    keys.filter(|key| !known(key)).collect()
}
