//! `ftld inject`, as its users meet it.

use crate::host::{Daemon, Host};
use ftld_nbd_client::{Client, EIO, EPERM, FLUSH, READ, TRIM, WRITE};
use nand_model::SplitMix;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// A flash page: the unit that is old or new after a cut, never a mixture.
const PAGE: usize = 1024;
/// Flash pages of the device of 2 MiB.
const PAGES: usize = 2048;
const ZEROS: u64 = 0;

/// Content of a page with this value.
fn content(page: usize, value: u64) -> Vec<u8> {
    let word = if value == ZEROS {
        [0; 16]
    } else {
        ((page as u128) << 64 | u128::from(value)).to_le_bytes()
    };
    word.repeat(PAGE / 16)
}

/// Permitted values of each page, oldest first: the value at the last completed FLUSH, then all
/// later ones.
struct Oracle(Vec<Vec<u64>>);

impl Oracle {
    fn new() -> Self {
        Oracle(vec![vec![ZEROS]; PAGES])
    }

    fn flushed(&mut self) {
        self.0
            .iter_mut()
            .for_each(|values| drop(values.drain(..values.len() - 1)));
    }

    /// Compares the device after a cut with the values that it may have. From then on it may have
    /// those alone that were found. Returns how many pages lost what was acknowledged.
    fn settle(&mut self, device: &[u8]) -> usize {
        let mut undone = 0;
        for (page, (found, values)) in device.chunks(PAGE).zip(&mut self.0).enumerate() {
            let seen = values
                .iter()
                .rposition(|value| found == content(page, *value));
            let seen = seen.unwrap_or_else(|| {
                panic!("page {page} holds none of {values:?}: {:?}", &found[..32])
            });
            undone += usize::from(seen + 1 < values.len());
            *values = vec![values[seen]];
        }
        undone
    }
}

/// Sends a request for one page to a server that may die. Returns the error, or none if the
/// connection is gone.
fn attempt(client: &mut Client, command: u16, flags: u16, page: usize, data: &[u8]) -> Option<u32> {
    let (at, length) = if command == FLUSH {
        (0, 0)
    } else {
        (page as u64 * PAGE as u64, PAGE as u32)
    };
    client.attempt(command, flags, at, length, data)
}

/// Writes, trims and flushes until the device fails; returns how many requests went well. With
/// `durable` no FLUSH is sent: each acknowledged request has to survive.
fn work(
    client: &mut Client,
    oracle: &mut Oracle,
    value: &mut u64,
    rng: &mut SplitMix,
    durable: bool,
) -> u64 {
    for done in 0.. {
        *value += 1;
        let page = rng.below(PAGES as u64) as usize;
        let (command, data) = match rng.below(12) {
            0 if !durable => (FLUSH, Vec::new()),
            1 => (TRIM, Vec::new()),
            _ => (WRITE, content(page, *value)),
        };
        match command {
            WRITE => oracle.0[page].push(*value),
            TRIM => oracle.0[page].push(ZEROS),
            _ => {}
        }
        match attempt(client, command, 0, page, &data) {
            Some(0) if command == FLUSH => oracle.flushed(),
            Some(0) if durable => {
                let values = &mut oracle.0[page];
                values.drain(..values.len() - 1);
            }
            Some(0) => {}
            failed => {
                assert!(matches!(failed, None | Some(EIO)), "{failed:?}");
                return done;
            }
        }
    }
    unreachable!("the loop ends with the device")
}

fn injected(daemon: &Daemon, kind: &str) -> f64 {
    daemon.metric(&format!(
        "ftld_faults_injected_total{{device=\"default\",kind=\"{kind}\"}}"
    ))
}

/// The device ends as after a power cut, and leaves an image in order.
fn ends_powerless(host: &Host, daemon: Daemon) {
    assert_eq!(daemon.exit_code(), Some(9));
    let log = host.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("ftld: ") && last.contains("power cut injected; restart to recover"),
        "{log}"
    );
    assert!(
        !host.folder.path().join("run/default").exists(),
        "the runtime folder is gone"
    );
    let (code, out, error) = host.run(&["check", "default"]);
    assert_eq!(code, 0, "{out}{error}");
}

/// Returns how many pages lost what was acknowledged and not flushed. With `durable` the device
/// announces no volatile cache.
fn cuts_in_a_row(scheme: &str, cuts: u64, durable: bool) -> usize {
    let host = Host::new();
    let (mut oracle, mut value, mut undone, mut done) = (Oracle::new(), 0, 0, 0);
    for seed in 0..cuts {
        let mut rng = SplitMix::new(seed);
        let announce = if durable { "none" } else { "volatile" };
        let daemon = host.serve(&["--scheme", scheme, "--write-cache-announce", announce]);
        let mut client = daemon.client();
        undone += oracle.settle(&client.read(0, (PAGES * PAGE) as u64).data);
        let (after, text) = (rng.below(2000), seed.to_string());
        let armed = host.json(&[
            "inject",
            "power-cut",
            "--after",
            &after.to_string(),
            "--seed",
            &text,
            "--json",
        ]);
        assert_eq!(
            (armed["after"].as_u64(), armed["seed"].as_u64()),
            (Some(after), Some(seed)),
            "{armed}"
        );
        assert_eq!(injected(&daemon, "power_cut"), 1.0);
        done += work(&mut client, &mut oracle, &mut value, &mut rng, durable);
        ends_powerless(&host, daemon);
    }
    let daemon = host.serve(&[]);
    undone += oracle.settle(&daemon.client().read(0, (PAGES * PAGE) as u64).data);
    println!("{scheme}: {cuts} cuts, {done} requests, {undone} unflushed pages undone");
    assert!(done > 50 * cuts, "only {done} requests");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    undone
}

#[test]
fn what_was_flushed_survives_cuts_in_a_row() {
    assert!(
        cuts_in_a_row("lazyftl", 8, false) + cuts_in_a_row("pagemap", 8, false) > 0,
        "the cuts struck nothing"
    );
}

#[test]
fn without_a_volatile_cache_what_was_acknowledged_survives_cuts() {
    for scheme in ["lazyftl", "pagemap"] {
        let undone = cuts_in_a_row(scheme, 4, true);
        assert!(
            undone <= 4,
            "{scheme}: {undone}, more than the request that each cut interrupts"
        );
    }
}

#[test]
fn power_can_fail_at_once_and_while_stopping() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let mut client = daemon.client();
    assert_eq!(client.write(0, 0, &content(0, 1)).error, 0);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    let (code, out, error) = host.run(&["inject", "power-cut"]);
    assert_eq!(
        (code, out.starts_with("default: power cut: device removed")),
        (0, true),
        "{out}{error}"
    );
    assert!(out.contains("(seed "), "{out}");
    assert!(matches!(
        attempt(&mut client, READ, 0, 0, &[]),
        None | Some(EIO)
    ));
    ends_powerless(&host, daemon);
    // The end of a daemon programs a checkpoint.
    let daemon = host.serve(&[]);
    let mut client = daemon.client();
    assert!(client.read(0, PAGE as u64).data == content(0, 1));
    assert_eq!(client.write(0, 0, &content(0, 2)).error, 0);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    host.json(&[
        "inject",
        "power-cut",
        "default",
        "--after",
        "0",
        "--program",
        "prefix",
        "--json",
    ]);
    daemon.signal(Signal::SIGTERM);
    ends_powerless(&host, daemon);
    assert!(host.serve(&[]).client().read(0, PAGE as u64).data == content(0, 2));
}

#[test]
fn bad_blocks_retire_and_nothing_is_lost() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let mut client = daemon.client();
    host.fails(
        &["inject", "bad-block", "--block", "100000"],
        2,
        &["\"default\": no block 100000; the flash has 0 to"],
    );
    let picked = host.json(&[
        "inject",
        "bad-block",
        "--count",
        "3",
        "--seed",
        "5",
        "--json",
    ]);
    let blocks: Vec<_> = picked["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block.to_string())
        .collect();
    assert_eq!((blocks.len(), injected(&daemon, "bad_block")), (3, 3.0));
    host.fails(
        &["inject", "bad-block", "--block", &blocks[0]],
        1,
        &["fails at its next program or erase already"],
    );
    for value in 1..=8 {
        for page in 0..PAGES {
            assert_eq!(
                client
                    .write(0, (page * PAGE) as u64, &content(page, value))
                    .error,
                0
            );
        }
    }
    let status = || host.json(&["status", "--json"]);
    let count = |kind| status()["faults_injected"][kind].clone();
    assert_eq!(
        (count("bad_block"), count("bit_errors")),
        (3.into(), 0.into())
    );
    let failed = |fault| {
        daemon.metric(&format!(
            "ftld_nand_faults_injected_total{{device=\"default\",fault=\"{fault}\"}}"
        ))
    };
    let begun = std::time::Instant::now();
    while failed("program_fail") + failed("erase_fail") < 3.0 {
        assert!(begun.elapsed().as_secs() < 20, "the blocks do not fail");
    }
    while status()["wear"]["bad_grown"] != 3 {
        assert!(begun.elapsed().as_secs() < 20, "{}", status()["wear"]);
    }
    host.fails(
        &["inject", "bad-block", "--block", &blocks[0]],
        1,
        &["is bad already"],
    );
    let device = client.read(0, (PAGES * PAGE) as u64).data;
    assert!(
        device
            .chunks(PAGE)
            .enumerate()
            .all(|(page, found)| found == content(page, 8))
    );
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
}

/// Each shard has blocks of its own, numbered from 0 on; a fault names the shard.
#[test]
fn a_fault_of_a_device_with_shards_is_in_the_one_that_it_names() {
    let host = Host::new();
    let daemon = host.serve(&["--shards", "2", "--scheme", "pagemap"]);
    let mut client = daemon.client();
    let bad = ["inject", "bad-block", "--count", "1"];
    host.fails(&bad, 2, &["2 shards", "add --shard K, from 0 to 1"]);
    for (shard, part) in [("2", "no shard 2; the device has 0 to 1"), ("-1", "'-1'")] {
        host.fails(&[&bad[..], &["--shard", shard]].concat(), 2, &[part]);
    }
    // Blocks are numbered shard by shard.
    let image = host.json(&["inspect", "default", "--json"]);
    let blocks = image["geometry"]["blocks"].as_u64().unwrap();
    let [own, none] = [blocks + 3, 2 * blocks].map(|block| block.to_string());
    let bad = |block| ["inject", "bad-block", "--block", block];
    host.fails(
        &bad(&none),
        2,
        &[&format!("no block {none}; the flash has")],
    );
    let other = [&bad(&own)[..], &["--shard", "0"]].concat();
    host.fails(&other, 2, &[&format!("block {own} is in shard 1, not 0")]);
    assert_eq!(injected(&daemon, "bad_block"), 0.0);
    // A block may be bad from the factory; the next one is taken then.
    let tried = (blocks + 3..2 * blocks).find_map(|block| {
        let block = block.to_string();
        let (code, text, error) = host.run(&["inject", "bad-block", "--block", &block]);
        let is_bad = code == 1 && error.contains("is bad already");
        assert!(code == 0 || is_bad, "{error}");
        (code == 0).then_some((block, text))
    });
    let (own, text) = tried.expect("a good block");
    assert!(
        text.contains(&format!(
            "shard 1: at the next program or erase these blocks go bad: {own}\n"
        )),
        "{text}"
    );
    for value in 1..=8 {
        for page in 0..PAGES {
            let data = content(page, value);
            assert_eq!(client.write(0, (page * PAGE) as u64, &data).error, 0);
        }
    }
    let begun = Instant::now();
    let grown = || host.json(&["status", "--json"])["wear"]["bad_grown"].clone();
    while grown() != 1 {
        assert!(begun.elapsed().as_secs() < 20, "{}", grown());
    }
    let device = client.read(0, (PAGES * PAGE) as u64).data;
    let mut pages = device.chunks(PAGE).enumerate();
    assert!(pages.all(|(page, found)| found == content(page, 8)));
    let cut = host.json(&["inject", "power-cut", "--seed", "4", "--json"]);
    assert_eq!(cut["shards"].as_array().map(Vec::len), Some(2), "{cut}");
    ends_powerless(&host, daemon);
    let _again = host.serve_with(&[], &[("FTLD_LOG", "info")]);
    let log = host.log();
    for shard in 0..2 {
        let found = format!(": shard {shard} of 2: recovered after a power cut: ");
        assert_eq!(log.matches(&found).count(), 1, "{log}");
    }
}

#[test]
fn bit_errors_are_corrected_or_an_error_and_never_wrong_data() {
    let host = Host::new();
    let daemon = host.serve(&["--scheme", "pagemap"]);
    let mut client = daemon.client();
    for page in 0..PAGES {
        assert_eq!(
            client
                .write(0, (page * PAGE) as u64, &content(page, 1))
                .error,
            0
        );
    }
    let corrected = || daemon.metric("ftld_ecc_corrected_bit_errors_total{device=\"default\"}");
    host.json(&[
        "inject",
        "bit-errors",
        "--count",
        "200",
        "--bits",
        "2",
        "--seed",
        "1",
        "--json",
    ]);
    let device = client.read(0, (PAGES * PAGE) as u64).data;
    assert!(
        device
            .chunks(PAGE)
            .enumerate()
            .all(|(page, found)| found == content(page, 1))
    );
    let begun = std::time::Instant::now();
    while corrected() < 2.0 {
        assert!(begun.elapsed().as_secs() < 20, "no bit was corrected");
    }
    let answer = host.json(&[
        "inject",
        "bit-errors",
        "--count",
        "200",
        "--seed",
        "2",
        "--json",
    ]);
    assert_eq!(
        (&answer["corrected"], injected(&daemon, "bit_errors")),
        (&false.into(), 400.0)
    );
    let read = |client: &mut Client| -> Vec<usize> {
        let page = |page: usize| (page, client.read((page * PAGE) as u64, PAGE as u64));
        let lost = (0..PAGES).map(page).filter(|(page, answer)| {
            assert!(
                answer.error == EIO || answer.data == content(*page, 1),
                "page {page}: {}",
                answer.error
            );
            answer.error == EIO
        });
        lost.map(|(page, _)| page).collect()
    };
    let lost = read(&mut client);
    assert!(lost.len() > 10 && lost.len() <= 200, "{lost:?}");
    // Lost pages stay lost after a restart, until they are written again.
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let daemon = host.serve(&[]);
    let mut client = daemon.client();
    assert_eq!(read(&mut client), lost);
    for page in &lost {
        assert_eq!(
            client
                .write(0, (page * PAGE) as u64, &content(*page, 1))
                .error,
            0
        );
    }
    assert!(read(&mut client).is_empty());
    host.json(&["inject", "bit-errors", "--factor", "1e6", "--json"]);
    assert!(
        !read(&mut client).is_empty(),
        "beyond what the part corrects"
    );
    host.json(&["inject", "bit-errors", "--factor", "0", "--json"]);
    assert!(read(&mut client).is_empty());
}

#[test]
fn what_cannot_be_injected_is_told_with_its_reason() {
    let host = Host::new();
    host.fails(&["inject", "power-cut"], 3, &["no instance is running"]);
    host.fails(
        &["inject", "power-cut", "nosuch"],
        3,
        &["\"nosuch\" is not running; `ftld list`"],
    );
    let daemon = host.serve(&[]);
    for (args, part) in [
        (&["--block", "9999", "--page", "0"][..], "no block 9999"),
        (&["--block", "0", "--page", "9999"], "no page 9999"),
        (&["--count", "1", "--bits", "0"], "--bits 0"),
        (&["--count", "4000000000"], "programmed pages"),
        (&["--factor", "2e9"], "--factor 2000000000"),
    ] {
        let (code, _, error) = host.run(&[&["inject", "bit-errors"], args].concat());
        assert!(
            code == 2 && error.contains(part),
            "{args:?}: {code} {error}"
        );
    }
    for args in [
        &["power-cut", "--after", "x"][..],
        &["power-cut", "--program", "prefix"],
        &["power-cut", "--after", "1", "--erase", "nosuch"],
        &["bad-block"],
        &["bad-block", "--block", "1", "--count", "1"],
        &["bit-errors"],
        &["bit-errors", "--block", "1"],
        &["fire"],
    ] {
        assert_eq!(host.run(&[&["inject"], args].concat()).0, 2, "{args:?}");
    }
    assert_eq!(
        daemon.client().write(0, 0, &content(0, 1)).error,
        0,
        "none of this did anything"
    );
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let looker = host.serve(&["--read-only"]);
    host.fails(
        &["inject", "power-cut"],
        1,
        &["--read-only and is not changed"],
    );
    assert_eq!(looker.client().write(0, 0, &content(0, 2)).error, EPERM);
}

#[test]
fn faults_of_requests_hit_are_shown_and_end() {
    let host = Host::new();
    let daemon = host.serve(&["--name", "a"]);
    let mut client = daemon.client();
    let inject = |args: &[&str]| {
        let (code, out, error) = host.run(&[&["inject"], args].concat());
        assert_eq!(code, 0, "{args:?}: {error}");
        out
    };
    let hits = |kind| {
        daemon.metric(&format!(
            "ftld_faults_injected_total{{device=\"a\",kind=\"{kind}\"}}"
        ))
    };
    assert_eq!(client.write(0, 0, &content(0, 1)).error, 0);
    inject(&[
        "write-errors",
        "--offset",
        "1KiB",
        "--length",
        "1KiB",
        "--count",
        "1",
    ]);
    let (_, status, _) = host.run(&["status"]);
    assert!(
        status.contains("fault      writes and trims fail, bytes 1024 to 2047, 1 request"),
        "{status}"
    );
    assert_eq!(client.write(0, 0, &content(0, 2)).error, 0);
    assert_eq!(client.write(0, 1024, &content(1, 1)).error, EIO);
    assert_eq!(client.write(0, 1024, &content(1, 1)).error, 0);
    inject(&["read-errors", "a"]);
    assert_eq!(client.ask(READ, 0, 0, 1024).error, EIO);
    inject(&["clear", "a", "--kind", "read-errors"]);
    assert_eq!(client.read(0, 1024).data, content(0, 2));
    inject(&["flush-fails", "--then", "lost"]);
    assert_eq!(client.write(0, 0, &content(0, 3)).error, 0);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, EIO);
    assert_eq!(client.read(0, 1024).data, content(0, 2));
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    inject(&["slow", "--extra", "300ms", "--count", "1"]);
    let began = Instant::now();
    assert_eq!(client.write(0, 0, &content(0, 4)).error, 0);
    assert!(began.elapsed() >= Duration::from_millis(300));
    inject(&["slow", "--extra", "10s", "--for", "1ms"]);
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(client.write(0, 0, &content(0, 4)).error, 0);
    assert!(began.elapsed() < Duration::from_secs(10), "it has ended");
    for (kind, count) in [
        ("write_errors", 1.0),
        ("read_errors", 1.0),
        ("flush_fails", 1.0),
        ("slow", 1.0),
    ] {
        assert_eq!(hits(kind), count, "{kind}");
    }
    for (args, code, part) in [
        (&["clear"][..], 1, "no fault of requests to clear"),
        (
            &["clear", "--kind", "fire"],
            2,
            "[possible values: flush-fails",
        ),
        (&["slow"], 2, "--extra <TIME>"),
        (&["slow", "--extra", "50"], 2, "write 500us, 50ms"),
        (&["hang", "--for", "2h"], 2, "\"h\" is no unit of time"),
        (
            &["write-errors", "--offset", "2MiB"],
            2,
            "the device has 2097152 bytes",
        ),
        (
            &["flush-fails", "--then", "gone"],
            2,
            "[possible values: kept, lost]",
        ),
    ] {
        host.fails(&[&["inject"], args].concat(), code, &[part]);
    }
    inject(&["hang", "--for", "50m"]);
    let cookie = client.request(WRITE, 0, 0, 1024, &content(0, 5));
    while hits("hang") == 0.0 {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing hangs");
    }
    // A stop releases it.
    let (code, _, error) = host.run(&["stop", "a"]);
    assert_eq!((code, client.answer(cookie, 0).error), (0, 0), "{error}");
}
