//! Synthetic workloads, with names like traces: `GENERATOR` or `GENERATOR:key=value,…`.
//!
//! The seed determines all randomness: equal text, device size and seed give equal requests.

mod addresses;
mod gaps;
mod sizes;
mod spec;
mod stand_in;
#[cfg(test)]
mod tests;
pub mod usr_2;

use crate::convert::{to_f64, to_u64, whole};
pub use gaps::Gaps;
pub use spec::{COMMON, GENERATORS, Generator, Key};

use crate::error::ValueError;
use crate::record::{Op, Record};
use addresses::Addresses;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};
use rand_pcg::Pcg64;
use sizes::{Size, Sizes};

/// Parsed workload, not yet started.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name of its generator.
    pub generator: &'static str,
    shape: Shape,
    requests: u64,
    read: f64,
    sizes: Sizes,
    align: Option<u64>,
    span: Option<u64>,
    rate: f64,
}

/// Address distributions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Uniform,
    HotCold { hot: f64, access: f64 },
    Zipf { theta: f64 },
    Sequential,
    Mixed { sequential: f64 },
    Usr2(usr_2::Order),
}

/// Iterator over a workload's requests.
pub struct Requests {
    total: u64,
    done: u64,
    time_ns: f64,
    gap_ns: Exp<f64>,
    rng: Pcg64,
    kind: Kind,
}

enum Kind {
    Drawn {
        read: f64,
        sizes: Sizes,
        addresses: Addresses,
    },
    Listed(std::vec::IntoIter<usr_2::Request>),
}

impl Workload {
    /// Parses a workload; returns `None` if the text does not begin with a generator's name, so
    /// that it is something else.
    pub fn parse(text: &str) -> Option<Result<Workload, ValueError>> {
        spec::parse(text)
    }

    /// Returns the mean number of requests per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the requests for a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// The device is too small for the workload, or its options are inconsistent.
    pub fn begin(&self, device_bytes: u64, seed: u64) -> Result<Requests, ValueError> {
        let span = self.span.unwrap_or(device_bytes);
        if span > device_bytes {
            return Err(ValueError::Misfit(format!(
                "span of {span} bytes is more than the device of {device_bytes} bytes has"
            )));
        }
        let mut rng = Pcg64::seed_from_u64(seed);
        let (kind, total) = match self.shape {
            Shape::Usr2(order) => {
                let mut below = |bound| rng.random_range(0..bound);
                let list = usr_2::on_device(span, order, &mut below)?;
                let total = to_u64(list.len());
                (Kind::Listed(list.into_iter()), total)
            }
            shape => {
                let addresses = Addresses::new(shape, span, self.align, self.sizes.largest())?;
                (
                    Kind::Drawn {
                        read: self.read,
                        sizes: self.sizes.clone(),
                        addresses,
                    },
                    self.requests,
                )
            }
        };
        assert!(total > 0, "workload {} has no requests", self.generator);
        let gap_ns = gaps::exponential(self.rate)?;
        Ok(Requests {
            total,
            done: 0,
            time_ns: 0.0,
            gap_ns,
            rng,
            kind,
        })
    }
}

impl Requests {
    /// Returns the share of the requests generated so far, 0 to 1.
    pub fn progress(&self) -> f64 {
        to_f64(self.done) / to_f64(self.total.max(1))
    }

    /// Returns the number of requests generated so far.
    pub fn done(&self) -> u64 {
        self.done
    }
}

impl Iterator for Requests {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.done == self.total {
            return None;
        }
        let (op, offset_bytes, length_bytes) = match &mut self.kind {
            Kind::Listed(list) => list.next().map(|request| request.extent())?,
            Kind::Drawn {
                read,
                sizes,
                addresses,
            } => {
                let op = if self.rng.random_bool(*read) {
                    Op::Read
                } else {
                    Op::Write
                };
                let Size { bytes, grain } = sizes.draw(&mut self.rng);
                (op, addresses.draw(bytes, grain, &mut self.rng), bytes)
            }
        };
        let time_ns = whole(self.time_ns);
        self.time_ns += self.gap_ns.sample(&mut self.rng);
        self.done += 1;
        assert!(self.done <= self.total, "more requests than there are");
        Some(Record {
            time_ns,
            op,
            device: 0,
            offset_bytes,
            length_bytes,
        })
    }
}
