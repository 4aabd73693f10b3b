//! Fits a scheme into a given RAM: the parameters that take RAM share what the fixed tables leave.

use super::scheme::Scheme;
use crate::config::{FtlConfig, Params};
use crate::error::FtlError;
use crate::ftl::Start;
use crate::layout::Layout;
use crate::ram::RamParam;
use nand_model::Chip;
use nand_model::store::OobOnlyStore;

/// Precision of a fitted value: at most 1 part in this number below the largest that fits.
const PRECISION: u64 = 64;

impl Scheme {
    /// Returns the parameters with which the scheme allocates at most `ram_bytes` on this device.
    /// Parameters that take RAM and are not set get values: the least of all of them, then, in
    /// their order, as much as their share allows. Set ones stay.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the scheme needs more RAM; the message has the minimum that it
    /// needs.
    pub fn fit_ram(
        &self,
        layout: &Layout,
        params: &Params,
        ram_bytes: u64,
    ) -> Result<Params, FtlError> {
        let (mut fitted, open) = self.with_least(layout, params, ram_bytes)?;
        let mut used = self.ram_most(layout, &fitted)?;
        for param in open {
            let share = u128::from(ram_bytes - used) * u128::from(param.share_percent) / 100;
            let budget = used + u64::try_from(share).expect("a share is not larger than the whole");
            let value = self.largest_within(layout, &fitted, param, budget)?;
            fitted.set(param.key, &value.to_string());
            used = self.ram_most(layout, &fitted)?;
        }
        assert!(
            used <= ram_bytes,
            "scheme {} takes {used} bytes of RAM, {ram_bytes} are available",
            self.name
        );
        Ok(fitted)
    }

    /// Checks that the scheme fits into this RAM with the smallest values of its parameters.
    ///
    /// # Errors
    /// As [`Scheme::fit_ram`].
    pub fn check_ram(
        &self,
        layout: &Layout,
        params: &Params,
        ram_bytes: u64,
    ) -> Result<(), FtlError> {
        self.with_least(layout, params, ram_bytes).map(|_| ())
    }

    /// Returns the parameters, with the smallest values of those that take RAM and are not set; and
    /// a list of these.
    fn with_least(
        &self,
        layout: &Layout,
        params: &Params,
        ram_bytes: u64,
    ) -> Result<(Params, Vec<&'static RamParam>), FtlError> {
        params.only(self.all_params())?;
        let is_set = |key: &str| params.iter().any(|(set, _)| set == key);
        type Found = Vec<&'static RamParam>;
        let (set, open): (Found, Found) =
            self.ram_params.iter().partition(|param| is_set(param.key));
        let mut least = params.clone();
        for param in &open {
            let (value, _) = (param.range)(layout, params)?;
            least.set(param.key, &value.to_string());
        }
        let needed = self.ram_most(layout, &least)?;
        if needed > ram_bytes {
            let set: Vec<_> = set.iter().map(|param| param.key).collect();
            let with = if set.is_empty() {
                String::new()
            } else {
                format!(" with these values of {}", set.join(", "))
            };
            return Err(FtlError::Config(format!(
                "RAM of {ram_bytes} bytes: scheme {} needs at least {needed} bytes on this device{with}",
                self.name
            )));
        }
        Ok((least, open))
    }

    /// Returns the largest value of a parameter with which the scheme stays within `budget`.
    fn largest_within(
        &self,
        layout: &Layout,
        params: &Params,
        param: &RamParam,
        budget: u64,
    ) -> Result<u64, FtlError> {
        let fits = |value: u64| {
            let mut params = params.clone();
            params.set(param.key, &value.to_string());
            self.ram_most(layout, &params)
                .is_ok_and(|most| most <= budget)
        };
        let (mut low, mut high) = (param.range)(layout, params)?;
        if fits(high) {
            return Ok(high);
        }
        while high - low > 1 + low / PRECISION {
            let middle = low + (high - low) / 2;
            *(if fits(middle) { &mut low } else { &mut high }) = middle;
        }
        Ok(low)
    }

    /// Returns the upper bound of the bytes that the scheme allocates on this device, as a new
    /// device reports it.
    fn ram_most(&self, layout: &Layout, params: &Params) -> Result<u64, FtlError> {
        let chip = Chip::over(layout.profile, OobOnlyStore::new(layout.profile.geometry))?;
        let config = FtlConfig {
            logical_pages: layout.logical_pages,
            params: params.clone(),
        };
        let ftl = self.start(chip, &config, Start::Format)?;
        Ok(ftl.ram_report().iter().map(|entry| entry.most_bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;
    use nand_model::Profile;

    /// Every scheme fits into the least that its message names, and into more; with more RAM no
    /// parameter becomes smaller.
    #[test]
    fn every_scheme_fits_the_ram_it_names_or_takes() {
        let profile = Profile::default_profile();
        for scheme in SCHEMES {
            let params = Params::default();
            let layout = scheme.layout(profile, 64 << 20, 0.07, &params).unwrap();
            let error = scheme.fit_ram(&layout, &params, 1).unwrap_err().to_string();
            let least: u64 = error
                .split("at least ")
                .nth(1)
                .and_then(|rest| rest.split_once(' '))
                .and_then(|(number, _)| number.parse().ok())
                .unwrap_or_else(|| panic!("{error}"));
            assert!(scheme.fit_ram(&layout, &params, least - 1).is_err());
            let mut before: Option<Params> = None;
            for ram in [least, 2 * least, 16 * least] {
                let fitted = scheme.fit_ram(&layout, &params, ram).unwrap();
                assert!(scheme.ram_most(&layout, &fitted).unwrap() <= ram);
                for RamParam { key, .. } in scheme.ram_params {
                    let value = |params: &Params| params.get::<u64>(key, 0).unwrap();
                    let smaller = before.as_ref().map_or(0, value);
                    assert!(
                        value(&fitted) >= smaller && value(&fitted) > 0,
                        "{} {key}: {smaller} became {} with {ram} bytes",
                        scheme.name,
                        value(&fitted)
                    );
                }
                before = Some(fitted);
            }
        }
    }

    /// A bound that rises by steps, as of hash tables, does not starve the mapping cache.
    #[test]
    fn a_cache_of_entries_gets_its_share_of_little_ram() {
        let (scheme, params) = (Scheme::find("dftl").unwrap(), Params::default());
        let profile = Profile::default_profile();
        let layout = scheme.layout_on(profile, 128 << 20, 160 << 20, &params);
        let fitted = scheme.fit_ram(&layout.unwrap(), &params, 1 << 20).unwrap();
        let cache = fitted.get::<u32>("dftl.cache", 0).unwrap();
        assert!(cache >= 2048, "{cache} bytes of 1 MiB");
    }

    #[test]
    fn more_ram_than_there_is_does_not_overflow() {
        let (profile, params) = (Profile::default_profile(), Params::default());
        for scheme in SCHEMES {
            let layout = scheme.layout(profile, 64 << 20, 0.07, &params).unwrap();
            let fitted = scheme.fit_ram(&layout, &params, u64::MAX);
            assert!(fitted.is_ok(), "{}: {fitted:?}", scheme.name);
        }
    }

    #[test]
    fn a_set_parameter_stays_and_is_checked() {
        let scheme = Scheme::find("dftl").unwrap();
        let mut params = Params::default();
        params.set("dftl.cache", "65536");
        let layout = scheme
            .layout(Profile::default_profile(), 64 << 20, 0.07, &params)
            .unwrap();
        let error = scheme.fit_ram(&layout, &params, 100_000).unwrap_err();
        assert!(
            error.to_string().contains("values of dftl.cache"),
            "{error}"
        );
        let fitted = scheme.fit_ram(&layout, &params, 64 << 20).unwrap();
        assert_eq!(fitted.get("dftl.cache", 0), Ok(65_536));
    }
}
