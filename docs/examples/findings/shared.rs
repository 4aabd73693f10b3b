//! What the Rust programs share: `base run FOLDER N`, `base check FOLDER`. Transaction N writes
//! three keys, and is reported (`ACK N`) once its commit returned.

use std::io::BufRead;

/// Keys of a transaction.
pub const PARTS: u64 = 3;
/// Keys and values, in the order of the keys.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

pub fn pairs(number: u64) -> Pairs {
    (0..PARTS)
        .map(|part| {
            (
                format!("{number:08}.{part}").into_bytes(),
                format!("{number}.{part};").repeat(100).into_bytes(),
            )
        })
        .collect()
}

/// Sets a mark, and waits for the answer.
pub fn report(number: u64) {
    println!("ACK {number}");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).unwrap();
    assert_eq!(answer.trim(), "OK");
}

/// Every transaction that is found is whole, and those that were reported are there.
fn verify(found: &Pairs, reported: u64) -> Result<(), String> {
    let count = found.len() as u64 / PARTS;
    if *found != (1..=count).flat_map(pairs).collect::<Pairs>() {
        return Err(format!(
            "a transaction is missing, or not whole: {} keys",
            found.len()
        ));
    }
    if count < reported {
        return Err(format!(
            "{count} of {reported} reported transactions are there"
        ));
    }
    Ok(())
}

/// `run` commits transactions in a folder; `read` opens what is left after the cut.
pub fn main(run: impl Fn(&str, u64), read: impl Fn(&str) -> Result<Pairs, String>) {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments[1].as_str() {
        "run" => run(&arguments[2], arguments[3].parse().unwrap()),
        "check" => {
            let reported = std::env::var("FTLD_MARK")
                .unwrap_or_default()
                .parse()
                .unwrap_or(0);
            if let Err(error) = read(&arguments[2]).and_then(|found| verify(&found, reported)) {
                println!("{error}");
                std::process::exit(1);
            }
        }
        _ => std::process::exit(126),
    }
}
