//! sled: a batch, then `flush`.

#[path = "../shared.rs"]
mod shared;

fn main() {
    shared::main(
        |folder, transactions| {
            let base = sled::open(format!("{folder}/base")).unwrap();
            for number in 1..=transactions {
                let mut batch = sled::Batch::default();
                for (key, value) in shared::pairs(number) {
                    batch.insert(key, value);
                }
                base.apply_batch(batch).unwrap();
                base.flush().unwrap();
                shared::report(number);
            }
        },
        |folder| {
            let base = sled::open(format!("{folder}/base")).map_err(|error| error.to_string())?;
            base.iter()
                .map(|pair| {
                    pair.map(|(key, value)| (key.to_vec(), value.to_vec()))
                        .map_err(|error| error.to_string())
                })
                .collect()
        },
    );
}
