//! Write amplification of every `gc.policy` with every `gc.placement`, under known loads; and of
//! the placements that choose the victims too.
//!
//!     cargo run --release -p ftld-tests --no-default-features --bin bench_waf [DEVICES]
//!
//! A page map of 131,072 pages with 7 % more flash, blocks of 128 pages. Every page is written
//! once, then DEVICES (10) drive writes warm up, then half as many are measured. Effective spare is
//! that of the test `write_amplification`.

use ftld_tests::amplification::{Load, Measured, physical_blocks};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const LOGICAL_BLOCKS: u32 = 1024;
const OVER_PROVISIONING: f64 = 0.07;
const POLICIES: [&str; 5] = ["greedy", "cost_benefit", "fifo", "d_choices", "cat"];
const PLACEMENTS: [&str; 5] = ["single", "copies_apart", "age", "sepbit", "mida"];
/// Placements that choose the victims.
const BOTH: [&str; 2] = ["midas", "mdc"];
const LOADS: [Load; 5] = [
    Load::Uniform,
    Load::Hot(0.8),
    Load::Hot(0.9),
    Load::Hot(0.95),
    Load::Zipf(0.99),
];

fn main() {
    let devices = std::env::args().nth(1).map_or(10, |text| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("bench_waf: {text:?} is no number of devices");
            std::process::exit(2);
        })
    });
    let rows: Vec<(&str, &str)> = POLICIES
        .iter()
        .flat_map(|policy| PLACEMENTS.map(|placement| (*policy, placement)))
        .chain(BOTH.map(|name| (name, name)))
        .collect();
    let cells = Mutex::new(vec![[0.0; LOADS.len()]; rows.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let cell = next.fetch_add(1, Ordering::Relaxed);
            let (row, column) = (cell / LOADS.len(), cell % LOADS.len());
            let Some((policy, placement)) = rows.get(row) else {
                break;
            };
            let params = [("gc.policy", *policy), ("gc.placement", *placement)];
            let load = LOADS[column];
            let physical = physical_blocks(LOGICAL_BLOCKS, OVER_PROVISIONING);
            let mut device = Measured::filled(LOGICAL_BLOCKS, physical, &params, load, 1);
            device.write_devices(devices);
            let amplification = device.write_devices(devices.div_ceil(2));
            cells.lock().expect("no cell panics")[row][column] = amplification;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    print!("| policy | placement |");
    LOADS.iter().for_each(|load| print!(" {} |", load.name()));
    println!("\n|---|---|{}", "---|".repeat(LOADS.len()));
    for ((policy, placement), cells) in rows
        .iter()
        .zip(cells.lock().expect("no cell panics").iter())
    {
        print!("| {policy} | {placement} |");
        cells.iter().for_each(|cell| print!(" {cell:.2} |"));
        println!();
    }
}
