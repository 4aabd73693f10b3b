//! Transactions of redb, logged outside the device, and a check of them after the device failed.
//!
//! usage: redb_commits work DATABASE NOTES HEAD     until the device fails
//!        redb_commits check DATABASE               after it was mounted again
//!
//! Transaction `n` inserts keys derived from `n`, removes those of transaction `n - KEEP`, and sets
//! the head to `n`. `work` continues from HEAD, and writes the notes `begin 0 n` before a
//! transaction and `done 0 n` after its commit returned. `check` runs redb's file check, compares
//! every key with the head's expected content, and prints `head=N looked_at=COUNT`.
//!
//! `work` ends with exit code 3 and the error if redb reports one; its caller determines whether
//! the device failed before. Any other error gives exit code 1 and the reason.

use nand_model::SplitMix;
use redb::{Database, Durability, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// `(transaction, position)` to data.
const LEDGER: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("ledger");
const HEAD: TableDefinition<'_, (), u64> = TableDefinition::new("head");
/// Number of transactions with keys in the ledger.
const KEEP: u64 = 500;

/// Exit code of `work` after an error of redb.
const DATABASE_FAILED: i32 = 3;

/// Returns the data of a transaction, by position. Some values are larger than a page.
fn rows(transaction: u64) -> Vec<Vec<u8>> {
    let mut rng = SplitMix::new(transaction);
    let count = 1 + rng.below(4);
    (0..count)
        .map(|_| {
            let most = if rng.one_in(64) { 64 << 10 } else { 400 };
            let bytes = rng.below(most) as usize;
            (0..bytes.div_ceil(8))
                .flat_map(|_| rng.next_u64().to_le_bytes())
                .take(bytes)
                .collect()
        })
        .collect()
}

/// Result of a command.
type Outcome<T> = Result<T, Box<dyn Error>>;

fn commit(database: &Database, transaction: u64) -> Outcome<()> {
    let mut write = database.begin_write()?;
    write.set_durability(Durability::Immediate);
    {
        let mut ledger = write.open_table(LEDGER)?;
        for (position, data) in (0..).zip(rows(transaction)) {
            ledger.insert((transaction, position), &data[..])?;
        }
        if let Some(old) = transaction.checked_sub(KEEP) {
            ledger.retain_in((old, 0)..(old + 1, 0), |_, _| false)?;
        }
        write.open_table(HEAD)?.insert((), transaction)?;
    }
    Ok(write.commit()?)
}

fn work(path: &str, notes: &str, mut head: u64) -> Outcome<Infallible> {
    let mut notes = OpenOptions::new().create(true).append(true).open(notes)?;
    let database = Database::create(path)?;
    loop {
        head += 1;
        notes.write_all(format!("begin 0 {head}\n").as_bytes())?;
        commit(&database, head)?;
        notes.write_all(format!("done 0 {head}\n").as_bytes())?;
    }
}

fn check(path: &str) -> Outcome<String> {
    let wrong = |why: String| Box::<dyn Error>::from(why);
    let mut database = Database::open(path)?;
    if !database.check_integrity()? {
        return Err(wrong(
            "check_integrity had to repair the file after it was recovered".into(),
        ));
    }
    let read = database.begin_read()?;
    let head = read
        .open_table(HEAD)?
        .get(())?
        .map_or(0, |head| head.value());
    let mut found = BTreeMap::new();
    for entry in read.open_table(LEDGER)?.iter()? {
        let (key, data) = entry?;
        found.insert(key.value(), data.value().to_vec());
    }
    let kept = head.saturating_sub(KEEP - 1).max(1)..=head;
    let looked_at = kept.clone().count();
    for transaction in kept {
        for (position, data) in (0..).zip(rows(transaction)) {
            if found.remove(&(transaction, position)) != Some(data) {
                return Err(wrong(format!(
                    "transaction {transaction} of {head} is not whole"
                )));
            }
        }
    }
    match found.first_key_value() {
        None => Ok(format!("head={head} looked_at={looked_at}")),
        Some((key, _)) => Err(wrong(format!(
            "key {key:?} is not to be there, the head is {head}"
        ))),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["work", database, notes, head] => match head.parse() {
            Ok(head) => work(database, notes, head).map(|never| match never {}),
            Err(_) => Err(io::Error::other(format!("{head} is not a number")).into()),
        },
        ["check", database] => check(database),
        _ => Err(
            io::Error::other("usage: redb_commits work DATABASE NOTES HEAD | check DATABASE")
                .into(),
        ),
    };
    match outcome {
        Ok(line) => println!("{line}"),
        Err(why) => {
            println!("redb_commits: {why}");
            // Notes and arguments fail with an io::Error, redb with its own errors.
            let of_redb = words.first() == Some(&"work") && !why.is::<io::Error>();
            std::process::exit(if of_redb { DATABASE_FAILED } else { 1 });
        }
    }
}
