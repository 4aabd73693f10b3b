//! A recipe for `ftld crash-test`: fjall 3.1.13 (`build.sh fjall` makes the program; it needs Rust). A batch is reported once `persist`
//! returned.
//!
//! ```text
//! fjall run FOLDER BATCHES sync|no-sync
//! fjall check FOLDER                      does it open, with every reported batch?
//! ```

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use std::error::Error;

fn run(folder: &str, batches: u64, sync: bool) -> Result<(), Box<dyn Error>> {
    let base = Database::builder(format!("{folder}/base")).open()?;
    let things = base.keyspace("things", KeyspaceCreateOptions::default)?;
    for number in 1..=batches {
        let mut batch = base.batch();
        for part in 0..20 {
            let value = format!("{number}.{part};").repeat(40);
            batch.insert(&things, format!("{number:08}.{part:02}"), value);
        }
        batch.commit()?;
        base.persist(if sync {
            PersistMode::SyncAll
        } else {
            PersistMode::Buffer
        })?;
        println!("ACK {number}");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if answer.trim() != "OK" {
            return Err(answer.into());
        }
        // Files are written, too.
        if number % 4 == 0 {
            things.rotate_memtable_and_wait()?;
        }
    }
    // As after a power cut: nothing is closed.
    std::process::exit(0)
}

fn check(folder: &str, reported: u64) -> Result<(), Box<dyn Error>> {
    let base = Database::builder(format!("{folder}/base")).open()?;
    let things = base.keyspace("things", KeyspaceCreateOptions::default)?;
    let mut found = 0;
    for pair in things.iter() {
        let (key, _) = pair.into_inner()?;
        if *key != *format!("{:08}.{:02}", found / 20 + 1, found % 20).into_bytes() {
            return Err(format!("key {found} is missing").into());
        }
        found += 1;
    }
    if found % 20 != 0 || found / 20 < reported {
        return Err(format!("{found} keys, {reported} batches of 20 were reported").into());
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[1..] {
        ["run", folder, batches, how] => run(folder, batches.parse().unwrap(), how == "sync"),
        ["check", folder] => match std::env::var("FTLD_MARK").unwrap_or_default().parse() {
            Ok(reported) => check(folder, reported),
            Err(_) => Ok(()),
        },
        _ => std::process::exit(126),
    };
    if let Err(error) = done {
        println!("{error}");
        std::process::exit(1);
    }
}
