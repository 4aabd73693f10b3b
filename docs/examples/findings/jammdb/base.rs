//! jammdb: a bucket.

#[path = "../shared.rs"]
mod shared;

use jammdb::DB;

fn main() {
    shared::main(
        |folder, transactions| {
            let base = DB::open(format!("{folder}/base")).unwrap();
            for number in 1..=transactions {
                let transaction = base.tx(true).unwrap();
                let bucket = transaction.get_or_create_bucket("bucket").unwrap();
                for (key, value) in shared::pairs(number) {
                    bucket.put(key, value).unwrap();
                }
                drop(bucket);
                transaction.commit().unwrap();
                shared::report(number);
            }
        },
        |folder| {
            let base = DB::open(format!("{folder}/base")).map_err(|error| error.to_string())?;
            base.check().map_err(|error| error.to_string())?;
            let transaction = base.tx(false).map_err(|error| error.to_string())?;
            let bucket = transaction
                .get_bucket("bucket")
                .map_err(|error| error.to_string())?;
            Ok(bucket
                .kv_pairs()
                .map(|pair| (pair.key().to_vec(), pair.value().to_vec()))
                .collect())
        },
    );
}
