//! Tables with an entry per variant of an enumeration; in JSON, objects by the variants' names.

use nand_model::Cause;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// An enumeration with a name for each variant.
pub(crate) trait Named {
    /// Returns the name of the variant with this number.
    fn name(number: usize) -> &'static str;
}

/// Implements [`Named`] by the names that `strum` gives the variants.
macro_rules! named {
    ($($kind:ty),*) => {$(
        impl crate::by_name::Named for $kind {
            fn name(number: usize) -> &'static str {
                <$kind as strum::VariantNames>::VARIANTS[number]
            }
        }
    )*};
}

pub(crate) use named;

impl Named for Cause {
    fn name(number: usize) -> &'static str {
        Cause::ALL[number].name()
    }
}

/// Writes and reads arrays in the order of `K`: `#[serde(with = "ByName::<K>")]`. A reader refuses
/// an object without one of the names, and ignores names that it does not know.
pub(crate) struct ByName<K>(PhantomData<K>);

impl<K: Named> ByName<K> {
    pub(crate) fn serialize<T: Serialize, const N: usize, S: Serializer>(
        values: &[T; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let named = values.iter().enumerate();
        to.collect_map(named.map(|(number, value)| (K::name(number), value)))
    }

    pub(crate) fn deserialize<'de, T, const N: usize, D>(from: D) -> Result<[T; N], D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let mut values = BTreeMap::<String, T>::deserialize(from)?;
        let value = |number| {
            let name = K::name(number);
            let missing = || D::Error::custom(format!("missing name `{name}`"));
            values.remove(name).ok_or_else(missing)
        };
        let found = (0..N).map(value).collect::<Result<Vec<T>, _>>()?;
        Ok(found
            .try_into()
            .unwrap_or_else(|_| unreachable!("N values")))
    }
}
