//! A recipe for `ftld crash-test`: redb 4.6.0 (`build.sh redb` makes the program; it needs Rust). A batch is reported once its commit
//! returned.
//!
//! ```text
//! redb run FOLDER BATCHES sync|no-sync
//! redb check FOLDER                      does it open, whole, with every reported batch?
//! ```

use redb::{Database, Durability, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::error::Error;

const THINGS: TableDefinition<&str, &str> = TableDefinition::new("things");

fn run(folder: &str, batches: u64, sync: bool) -> Result<(), Box<dyn Error>> {
    let base = Database::create(format!("{folder}/base"))?;
    for number in 1..=batches {
        let mut write = base.begin_write()?;
        if !sync {
            write.set_durability(Durability::None)?;
        }
        let mut table = write.open_table(THINGS)?;
        for part in 0..20 {
            let value = format!("{number}.{part};").repeat(40);
            table.insert(format!("{number:08}.{part:02}").as_str(), value.as_str())?;
        }
        drop(table);
        write.commit()?;
        println!("ACK {number}");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if answer.trim() != "OK" {
            return Err(answer.into());
        }
    }
    // As after a power cut: nothing is closed.
    std::process::exit(0)
}

fn check(folder: &str, reported: u64) -> Result<(), Box<dyn Error>> {
    let mut base = Database::open(format!("{folder}/base"))?;
    if !base.check_integrity()? {
        return Err("it was not whole".into());
    }
    let read = base.begin_read()?;
    let found = read.open_table(THINGS)?.len()?;
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
