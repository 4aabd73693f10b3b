//! `ftld where`: current and dead copies of a running device's pages, and files that are on none.

use crate::host::{Host, page};
use ftld_nbd_client::{FLUSH, TRIM};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Answer for these bytes of the device.
fn places(host: &Host, range: &str) -> Value {
    host.json(&["where", "default", range, "--json"])
}

/// Numbers of a block and a page, as `ftld inspect --page` takes them.
fn named(place: &Value) -> String {
    format!("{}:{}", place[1], place[2])
}

#[test]
fn the_copies_of_a_page_are_those_that_inspect_finds_after_the_stop() {
    let host = Host::new();
    let daemon = host.serve(&["--scheme", "pagemap"]);
    let mut client = daemon.client();
    for round in 1..=3 {
        for number in 0..4u64 {
            let data = page(round * 16 + number as u8);
            assert_eq!(client.write(0, number * 4096, &data).error, 0);
        }
    }
    assert_eq!(client.ask(TRIM, 0, 4096, 4096).error, 0);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    let found = places(&host, "0+16KiB");
    let per = found["page_bytes"].as_u64().unwrap();
    let pages = found["pages"].as_array().unwrap();
    assert_eq!(pages.len() as u64, (16 << 10) / per);
    assert_eq!(found["truncated"], json!(false));
    for page in pages {
        let is_trimmed = page["lpn"].as_u64().unwrap() * per / 4096 == 1;
        assert_eq!(page["at"].is_null(), is_trimmed, "{page}");
        let dead = page["dead"].as_array().unwrap();
        assert_eq!(dead.len(), if is_trimmed { 3 } else { 2 }, "{page}");
    }
    let (code, text, _) = host.run(&["where", "default", "0+1"]);
    assert_eq!(code, 0);
    let first = &pages[0];
    let line = text.lines().nth(2).unwrap();
    for place in [&first["at"], &first["dead"][0], &first["dead"][1]] {
        assert!(line.contains(&named(place)), "{text}");
    }
    let block = first["at"][1].as_u64().unwrap();
    let (code, body) = daemon.get(&format!("/api/block?number={block}"));
    assert!(code.contains("200"), "{code} {body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let shown = &body["pages"][first["at"][2].as_u64().unwrap() as usize];
    assert_eq!(
        (&shown["lpn"], &shown["state"]),
        (&json!(0), &json!("valid"))
    );
    drop(client);
    host.run(&["stop", "default"]);
    assert_eq!(daemon.exit_code(), Some(0));
    // The flash pages have the bytes of the three rounds, newest first.
    let copies = [&first["at"], &first["dead"][0], &first["dead"][1]];
    for (place, round) in copies.into_iter().zip([3, 2, 1]) {
        let shown = host.json(&["inspect", "default", "--page", &named(place), "--json"]);
        let head: String = page(round * 16)[..32]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(shown["page"]["data_head"], json!(head), "{place}");
    }
    host.fails(&["where", "default", "0+1"], 3, &["not running"]);
}

/// Ends a thread when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn pages_are_found_while_they_are_overwritten() {
    for cache in [&[][..], &["--write-cache", "1MiB"]] {
        let host = Host::new();
        let daemon = host.serve(cache);
        let (mut client, end) = (daemon.client(), &AtomicBool::new(false));
        for number in 0..16u64 {
            assert_eq!(client.write(0, number * 4096, &page(1)).error, 0);
        }
        assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let mut written = 0u64;
                while !end.load(Relaxed) {
                    let at = written * 5 % 16 * 4096;
                    assert_eq!(client.write(0, at, &page(written as u8)).error, 0);
                    written += 1;
                }
                written
            });
            // The writer ends if an assertion fails, too.
            let ends = Ends(end);
            let (mut versions, mut newer) = (vec![0; (64 << 10) / 512], 0);
            for _ in 0..4 {
                let found = places(&host, "0+64KiB");
                let pages = found["pages"].as_array().unwrap();
                for (page, last) in pages.iter().zip(&mut versions) {
                    let Some(version) = page["version"].as_u64() else {
                        assert_eq!(page["unsure"], json!(true), "{page}");
                        continue;
                    };
                    assert!(version >= *last, "{page} after {last}");
                    let is_newer = version > *last || page["cached"] == json!(true);
                    newer += u32::from(*last > 0 && is_newer);
                    *last = version;
                }
            }
            drop(ends);
            assert!(writer.join().unwrap() > 0);
            assert!(newer > 64, "{cache:?}: {newer} pages seen in another state");
        });
    }
}

#[test]
fn a_file_that_is_on_no_device_is_refused_in_one_line() {
    let host = Host::new();
    let daemon = host.serve(&[]);
    let file = host.folder.path().join("file");
    std::fs::write(&file, [1; 9000]).unwrap();
    let [file, folder] = [&*file, host.folder.path()].map(|path| path.to_str().unwrap());
    // On a disk, on tmpfs or on an overlay, as the machine has it.
    host.fails(&["where", file], 1, &[file, " on "]);
    host.fails(&["where", folder], 2, &["is a folder"]);
    host.fails(&["where", "default"], 2, &["OFFSET+LENGTH"]);
    host.fails(&["where", "default", "5"], 2, &["\"5\"", "OFFSET+LENGTH"]);
    host.fails(&["where", "default", "0+1GiB"], 2, &["2097152 bytes"]);
    host.fails(&["where", "default", "7+0"], 2, &["not on this device"]);
    host.fails(
        &["where", file, "0+1"],
        2,
        &["ranges are those of an instance"],
    );
    host.fails(&["where", "none-such"], 1, &["none-such"]);
    let (code, _) = daemon.get("/api/where?extents=1+x");
    assert!(code.contains("400"), "{code}");
}
