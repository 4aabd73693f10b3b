//! Options of the write cache, checked before anything is made.

use crate::options::DeviceOptions;
use crate::sys;
use crate::volume::write_cache::{
    CACHE_BYTES_MAX, CACHE_BYTES_MIN, CACHE_BYTES_STEP, CacheOptions, Model,
};
use ftld_kit::failure::Failure;
use ftld_kit::size::{parse_size, show_size};
use strum::VariantArray;

/// Units that a cache may have, in bytes.
const TEARS: [u32; 4] = [512, 1024, 2048, 4096];

impl DeviceOptions {
    /// Returns the options of the write cache; `None` for none.
    pub(super) fn write_cache(&self) -> Result<Option<CacheOptions>, Failure> {
        let Some(text) = &self.write_cache else {
            let given = [
                ("--cache-model", self.cache_model.is_some()),
                ("--cache-tear", self.cache_tear.is_some()),
                ("--cache-plp", self.cache_plp),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(Failure::usage(format!(
                    "{option} is about a write cache, and there is none; add --write-cache SIZE, or \
                     leave {option} out"
                ))),
                None => Ok(None),
            };
        };
        if self.read_only {
            return Err(Failure::usage(
                "--write-cache is for writes, and --read-only refuses them; leave one of the two out",
            ));
        }
        let model = self.cache_model()?;
        if self.cache_plp && self.cache_model.is_some() {
            return Err(Failure::usage(
                "--cache-plp loses nothing at a power cut, and --cache-model says what is lost; \
                 leave one of the two out",
            ));
        }
        if let Some(tear) = self.cache_tear.filter(|tear| !TEARS.contains(tear)) {
            return Err(Failure::usage(format!(
                "--cache-tear {tear} is none of 512, 1024, 2048, 4096"
            )));
        }
        Ok(Some(CacheOptions {
            bytes: cache_bytes(text, sys::memory_available())?,
            model,
            tear: self.cache_tear,
            protected: self.cache_plp,
        }))
    }

    /// Returns whether the device announces a volatile cache.
    pub(super) fn announces_cache(&self) -> Result<bool, Failure> {
        match self.write_cache_announce.as_deref() {
            None | Some("volatile") => Ok(true),
            Some("none") if self.write_cache.is_some() && !self.cache_plp => Err(Failure::usage(
                "--write-cache-announce none: a power cut loses what is in this --write-cache, so \
                 the device announces it; add --cache-plp, or leave one of the two out",
            )),
            Some("none") => Ok(false),
            Some(other) => Err(Failure::usage(format!(
                "--write-cache-announce {other:?} is neither volatile nor none"
            ))),
        }
    }

    fn cache_model(&self) -> Result<Model, Failure> {
        let Some(text) = &self.cache_model else {
            return Ok(Model::default());
        };
        text.parse().map_err(|_| {
            let names: Vec<_> = Model::VARIANTS.iter().map(|model| model.name()).collect();
            Failure::usage(format!(
                "--cache-model {text:?} is none of {}",
                names.join(", ")
            ))
        })
    }
}

/// Returns the bytes of a cache; at most half of the memory that the host has to spare.
pub(super) fn cache_bytes(text: &str, available: Option<u64>) -> Result<u64, Failure> {
    let wrong = |why: String| Failure::usage(format!("--write-cache {text}: {why}"));
    let bytes = parse_size(text).map_err(|why| Failure::usage(format!("--write-cache {why}")))?;
    if bytes < CACHE_BYTES_MIN {
        return Err(wrong(format!(
            "a write cache has at least {}; leave the option out for none",
            show_size(CACHE_BYTES_MIN)
        )));
    }
    if bytes > CACHE_BYTES_MAX {
        return Err(wrong(format!(
            "a write cache has at most {}; choose a smaller one",
            show_size(CACHE_BYTES_MAX)
        )));
    }
    if !bytes.is_multiple_of(CACHE_BYTES_STEP) {
        return Err(wrong(format!(
            "{bytes} bytes are not a multiple of 4 KiB; write for example {}",
            show_size(bytes.div_ceil(1 << 20) << 20)
        )));
    }
    match available.map(|available| available / 2) {
        Some(most) if bytes > most => Err(wrong(format!(
            "the cache is kept in memory, and half of what this host has to spare is {}; choose a \
             smaller one",
            show_size(most)
        ))),
        _ => Ok(bytes),
    }
}
