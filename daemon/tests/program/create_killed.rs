//! `kill -9` while an image is being made: whatever the moment, the next start serves.

use crate::host::{Host, page};
use ftld_nbd_client::FLUSH;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

const CREATE: &[&str] = &["create", "--profile", "torture", "--size", "2MiB"];

/// Files of the image's folder that are not the image.
fn others(host: &Host) -> Vec<String> {
    let entries = fs::read_dir(host.folder.path().join("state"))
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name != "default.ftld").collect()
}

#[test]
fn whenever_the_maker_of_an_image_is_killed_the_next_start_serves() {
    const MOMENTS: u32 = 50;
    let whole = {
        let host = Host::new();
        let began = Instant::now();
        host.json(&[CREATE, &["--json"]].concat());
        began.elapsed()
    };
    let (mut unfinished, mut made) = (0, 0);
    for moment in 0..MOMENTS {
        let host = Host::new();
        let mut maker = host
            .command(CREATE)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * moment / MOMENTS);
        maker.kill().unwrap();
        maker.wait().unwrap();
        match host.image("default").exists() {
            true => made += 1,
            false => unfinished += u32::from(!others(&host).is_empty()),
        }
        let daemon = host.serve(&[]);
        let mut client = daemon.client();
        assert_eq!(client.write(0, 0, &page(1)).error, 0);
        assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    }
    println!(
        "{MOMENTS} kills within {whole:?}: {unfinished} left an unfinished image, {made} a finished one"
    );
}

#[test]
fn what_a_killed_maker_left_goes_with_a_later_start_and_what_is_being_made_stays() {
    let host = Host::new();
    let state = host.folder.path().join("state");
    fs::create_dir_all(&state).unwrap();
    let old = state.join(".default.ftld.new-1-1");
    let others_old = state.join(".else.ftld.new-1-1");
    let young = state.join(".default.ftld.new-2-2");
    let hours_ago = SystemTime::now() - Duration::from_secs(3 * 3600);
    for (path, changed) in [
        (&old, hours_ago),
        (&others_old, hours_ago),
        (&young, SystemTime::now()),
    ] {
        fs::write(path, "half an image").unwrap();
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(changed)
            .unwrap();
    }
    drop(host.serve(&[]));
    let there: Vec<_> = [&old, &others_old, &young]
        .into_iter()
        .map(|path: &std::path::PathBuf| path.exists())
        .collect();
    assert_eq!(there, [false, true, true]);
}

#[test]
fn of_two_makers_at_once_one_makes_the_image_and_the_other_is_told() {
    for _ in 0..5 {
        let host = Host::new();
        let makers: Vec<_> = (0..2)
            .map(|_| {
                host.command(CREATE)
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let ends: Vec<_> = makers
            .into_iter()
            .map(|maker| maker.wait_with_output().unwrap())
            .collect();
        let mut codes: Vec<_> = ends.iter().map(|end| end.status.code()).collect();
        codes.sort();
        assert_eq!(codes, [Some(0), Some(1)]);
        let told = ends
            .iter()
            .map(|end| String::from_utf8_lossy(&end.stderr))
            .collect::<String>();
        assert!(
            told.contains("file exists and is not overwritten"),
            "{told}"
        );
        assert_eq!(others(&host), Vec::<String>::new());
        let (code, out, error) = host.run(&["check", "default"]);
        assert_eq!(
            (code, out.contains("(clean shutdown")),
            (0, true),
            "{out}{error}"
        );
    }
}

#[test]
fn an_existing_file_is_never_replaced() {
    let host = Host::new();
    fs::create_dir_all(host.folder.path().join("state")).unwrap();
    let image = host.image("default");
    std::os::unix::fs::symlink("nowhere", &image).unwrap();
    host.fails(CREATE, 1, &["file exists and is not overwritten"]);
    assert_eq!(fs::read_link(&image).unwrap(), Path::new("nowhere"));
    assert_eq!(others(&host), Vec::<String>::new());
}
