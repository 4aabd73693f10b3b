//! The schemes that follow a device's requests, in the status.

use crate::volume::{FlashSnapshot, HistogramView, HostView, Op};
use ftld_kit::convert::to_f64;
use serde::{Deserialize, Serialize};

/// A scheme that follows the requests without data, beside the device over the same requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shadow {
    /// Its name: the text that asked for it.
    pub name: String,
    /// Name of its scheme.
    pub scheme: String,
    /// Name of its flash device.
    pub profile: String,
    /// Flash beyond the size, in percent of the size.
    pub op_percent: f64,
    /// Parameters of the scheme that are not the default, as KEY=VALUE,KEY=VALUE.
    pub parameters: String,
    /// Requests executed.
    pub requests: u64,
    /// Requests that wait.
    pub behind: u64,
    /// Requests that it lacks, because it could not keep up, or has behind later ones.
    pub dropped: u64,
    /// Whether it has executed, or will execute, every request since it began.
    pub exact: bool,
    /// Why it no longer follows.
    pub failure: Option<String>,
    /// Least memory that it takes in this process, in bytes.
    pub memory_bytes: u64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Those of the device.
    pub live: Figures,
}

/// Figures of a scheme since a shadow began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Pages that the host wrote.
    pub host_pages_written: u64,
    /// Flash programs.
    pub programs: u64,
    /// Block erases.
    pub erases: u64,
    /// Programs per page written; `None` before the first write.
    pub write_amplification: Option<f64>,
    /// Bytes of the scheme's tables by the paper's count.
    pub ram_bytes: u64,
    /// 99 % of the reads took no longer on the emulated flash, ns; `None` without one.
    pub read_p99_ns: Option<f64>,
    /// The same of the writes.
    pub write_p99_ns: Option<f64>,
}

/// Counters of a device at one moment.
#[derive(Clone, Debug, Default)]
pub struct LiveCounters {
    host_pages_written: u64,
    programs: u64,
    erases: u64,
    ram_bytes: u64,
    reads: HistogramView,
    writes: HistogramView,
}

impl Figures {
    /// Returns figures with the ratio and the percentiles that follow from the counters.
    pub fn new(
        (host_pages_written, programs, erases): (u64, u64, u64),
        ram_bytes: u64,
        [reads, writes]: [&HistogramView; 2],
    ) -> Figures {
        let ratio = to_f64(programs) / to_f64(host_pages_written.max(1));
        Figures {
            host_pages_written,
            programs,
            erases,
            write_amplification: (host_pages_written > 0).then_some(ratio),
            ram_bytes,
            read_p99_ns: reads.quantile(0.99),
            write_p99_ns: writes.quantile(0.99),
        }
    }
}

impl LiveCounters {
    /// Returns the counters of a device.
    pub fn of(flash: &FlashSnapshot, host: &HostView) -> LiveCounters {
        let total = flash.counters.total();
        LiveCounters {
            host_pages_written: flash.scheme.host_pages_written,
            programs: total.programs,
            erases: total.erases,
            ram_bytes: flash.ram.iter().map(|entry| entry.paper_bytes).sum(),
            reads: host.of(Op::Read).emulated,
            writes: host.of(Op::Write).emulated,
        }
    }

    /// Returns the figures since an earlier moment.
    pub fn since(&self, before: &LiveCounters) -> Figures {
        let grown = |of: fn(&LiveCounters) -> u64| of(self).saturating_sub(of(before));
        Figures::new(
            (
                grown(|of| of.host_pages_written),
                grown(|of| of.programs),
                grown(|of| of.erases),
            ),
            self.ram_bytes,
            [
                &self.reads.since(&before.reads),
                &self.writes.since(&before.writes),
            ],
        )
    }
}
