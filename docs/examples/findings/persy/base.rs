//! Persy: an index of strings.

#[path = "../shared.rs"]
mod shared;

use persy::{ByteVec, Config, Persy, ValueMode};

fn main() {
    shared::main(
        |folder, transactions| {
            let path = format!("{folder}/base");
            Persy::create(&path).unwrap();
            let base = Persy::open(&path, Config::new()).unwrap();
            let mut transaction = base.begin().unwrap();
            transaction
                .create_index::<String, ByteVec>("index", ValueMode::Replace)
                .unwrap();
            transaction.prepare().unwrap().commit().unwrap();
            shared::report(0);
            for number in 1..=transactions {
                let mut transaction = base.begin().unwrap();
                for (key, value) in shared::pairs(number) {
                    transaction
                        .put(
                            "index",
                            String::from_utf8(key).unwrap(),
                            ByteVec::new(value),
                        )
                        .unwrap();
                }
                transaction.prepare().unwrap().commit().unwrap();
                shared::report(number);
            }
        },
        |folder| {
            let base = Persy::open(format!("{folder}/base"), Config::new())
                .map_err(|error| error.to_string())?;
            let found = base
                .range::<String, ByteVec, _>("index", ..)
                .map_err(|error| error.to_string())?;
            Ok(found
                .flat_map(|(key, values)| {
                    values.map(move |value| (key.clone().into_bytes(), value.to_vec()))
                })
                .collect())
        },
    );
}
