//! A view becomes Prometheus text; pure.
//!
//! Every series carries the label `device`, the instance's name; every label combination exists from the start, at 0. Base
//! units, prefix `ftld_`, `_total` on counters.

use crate::status::View;
use crate::volume::{BOUNDS_NS, ErrorClass, HistogramView, Op, WEAR_BOUNDS};
use nand_model::{Cause, OpCounts};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

/// The metrics of an instance in Prometheus' text format.
pub fn render(view: &View) -> String {
    let mut page = Page { view, families: Vec::new() };
    page.identity();
    page.host();
    page.nand();
    page.space();
    page.wear();
    page.scheme();
    let mut text = Vec::new();
    TextEncoder::new().encode(&page.families, &mut text).expect("encoding into memory");
    String::from_utf8(text).expect("labels are UTF-8")
}

type Labels<'a> = &'a [(&'a str, &'a str)];

struct Page<'a> {
    view: &'a View,
    families: Vec<MetricFamily>,
}

/// One family under construction.
struct Family<'p> {
    device: &'p str,
    family: MetricFamily,
}

impl Family<'_> {
    fn metric(&self, labels: Labels<'_>) -> Metric {
        let pair = |(name, value): (&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.into());
            pair.set_value(value.into());
            pair
        };
        let mut pairs = vec![pair(("device", self.device))];
        pairs.extend(labels.iter().map(|&label| pair(label)));
        let mut metric = Metric::default();
        metric.set_label(pairs);
        metric
    }

    fn value(&mut self, labels: Labels<'_>, value: f64) {
        let mut metric = self.metric(labels);
        if self.family.get_field_type() == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.family.mut_metric().push(metric);
    }

    fn histogram(&mut self, labels: Labels<'_>, view: &HistogramView) {
        let mut below = 0;
        let bucket = |(bound, count): (&u64, &u64)| {
            below += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(seconds(*bound));
            bucket.set_cumulative_count(below);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(BOUNDS_NS.iter().zip(&view.counts).map(bucket).collect());
        histogram.set_sample_count(view.count());
        histogram.set_sample_sum(seconds(view.sum_ns));
        let mut metric = self.metric(labels);
        metric.set_histogram(histogram);
        self.family.mut_metric().push(metric);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl<'a> Page<'a> {
    fn family(&mut self, kind: MetricType, name: &str, help: &str, fill: impl FnOnce(&mut Family<'_>)) {
        let mut family = MetricFamily::default();
        family.set_name(name.into());
        family.set_help(help.into());
        family.set_field_type(kind);
        let mut family = Family { device: &self.view.facts.name, family };
        fill(&mut family);
        self.families.push(family.family);
    }

    fn counter(&mut self, name: &str, help: &str, fill: impl FnOnce(&mut Family<'_>)) {
        self.family(MetricType::COUNTER, name, help, fill);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(MetricType::GAUGE, name, help, |family| family.value(&[], value));
    }

    fn identity(&mut self) {
        let facts = &self.view.facts;
        let info = [
            ("scheme", facts.scheme),
            ("transport", facts.transport),
            ("cell", facts.cell()),
            ("profile", facts.profile.name),
            ("version", env!("CARGO_PKG_VERSION")),
        ];
        self.family(MetricType::GAUGE, "ftld_device_info", "What the device is; always 1.", |f| f.value(&info, 1.0));
        self.gauge("ftld_device_capacity_bytes", "Bytes the host sees.", facts.size as f64);
        let raw = facts.geometry().data_bytes() as f64;
        self.gauge("ftld_nand_capacity_bytes", "Data bytes of the raw flash, bad blocks included.", raw);
        let refused = !self.view.read_only_reason().is_empty();
        self.gauge("ftld_device_read_only", "Whether writes are refused.", f64::from(u8::from(refused)));
        let started = facts.started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.gauge("ftld_device_start_time_seconds", "When the instance started, in Unix time.", started);
    }

    fn host(&mut self) {
        let host = &self.view.host;
        self.counter("ftld_host_ios_total", "Host requests that ended well.", |f| {
            Op::ALL.iter().for_each(|&op| f.value(&[("op", op.name())], host.of(op).completed as f64));
        });
        let bytes = [
            ("ftld_host_read_bytes_total", "Bytes the host read.", Op::Read),
            ("ftld_host_written_bytes_total", "Bytes the host wrote.", Op::Write),
            ("ftld_host_discarded_bytes_total", "Bytes the host trimmed.", Op::Trim),
        ];
        for (name, help, op) in bytes {
            self.counter(name, help, |f| f.value(&[], host.of(op).bytes as f64));
        }
        self.counter("ftld_host_unaligned_ios_total", "Host requests that touched a part of a flash page.", |f| {
            let ops = [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes];
            ops.iter().for_each(|&op| f.value(&[("op", op.name())], host.of(op).unaligned as f64));
        });
        self.counter("ftld_host_io_errors_total", "Host requests that failed.", |f| {
            for (op, class) in Op::ALL.iter().flat_map(|op| ErrorClass::ALL.iter().map(move |class| (op, class))) {
                let labels = [("op", op.name()), ("errno", class.name())];
                f.value(&labels, host.of(*op).errors[*class as usize] as f64);
            }
        });
        self.family(MetricType::GAUGE, "ftld_host_ios_in_flight", "Host requests under way.", |f| {
            Op::ALL.iter().for_each(|&op| f.value(&[("op", op.name())], host.of(op).in_flight as f64));
        });
        let wall = "Time a host request took, by the wall clock.";
        self.family(MetricType::HISTOGRAM, "ftld_host_io_duration_seconds", wall, |f| {
            Op::ALL.iter().for_each(|&op| f.histogram(&[("op", op.name())], &host.of(op).wall));
        });
        let emulated = "Time a host request took on the emulated flash.";
        self.family(MetricType::HISTOGRAM, "ftld_device_io_duration_seconds", emulated, |f| {
            Op::ALL.iter().for_each(|&op| f.histogram(&[("op", op.name())], &host.of(op).emulated));
        });
    }

    fn by_cause(&mut self, name: &str, help: &str, value: impl Fn(&OpCounts) -> f64) {
        let counters = &self.view.flash.counters;
        self.counter(name, help, |f| {
            Cause::ALL.iter().for_each(|&cause| f.value(&[("cause", cause.name())], value(counters.of(cause))));
        });
    }

    fn nand(&mut self) {
        let page = self.view.facts.geometry().page_bytes as f64;
        self.by_cause("ftld_nand_pages_read_total", "Flash pages read.", |ops| ops.reads as f64);
        self.by_cause("ftld_nand_partial_reads_total", "Short flash reads, such as of an OOB.", |ops| {
            ops.partial_reads as f64
        });
        self.by_cause("ftld_nand_pages_programmed_total", "Flash pages programmed.", |ops| ops.programs as f64);
        self.by_cause("ftld_nand_programmed_bytes_total", "Data bytes programmed.", |ops| ops.programs as f64 * page);
        self.by_cause("ftld_nand_erases_total", "Flash blocks erased.", |ops| ops.erases as f64);
        let counters = &self.view.flash.counters;
        self.counter("ftld_nand_busy_seconds_total", "Emulated time during which a die worked.", |f| {
            f.value(&[("kind", "read")], seconds(counters.read_busy_ns));
            f.value(&[("kind", "program")], seconds(counters.program_busy_ns));
            f.value(&[("kind", "erase")], seconds(counters.erase_busy_ns));
        });
        let fails = [
            ("ftld_nand_program_fails_total", "Programs that ended in a status failure.", counters.program_fails),
            ("ftld_nand_erase_fails_total", "Erases that ended in a status failure.", counters.erase_fails),
            ("ftld_ecc_uncorrectable_total", "Reads that the page check refused.", counters.uncorrectable_reads),
        ];
        for (name, help, count) in fails {
            self.counter(name, help, |f| f.value(&[], count as f64));
        }
    }

    fn space(&mut self) {
        let blocks = self.view.blocks();
        self.family(MetricType::GAUGE, "ftld_blocks", "Flash blocks by state; they add up to all blocks.", |f| {
            blocks.iter().for_each(|(state, count)| f.value(&[("state", state)], f64::from(*count)));
        });
        let scheme = &self.view.flash.scheme;
        let page = f64::from(self.view.facts.geometry().page_bytes);
        self.gauge(
            "ftld_logical_mapped_bytes",
            "Bytes of logical pages that hold data.",
            scheme.mapped_pages as f64 * page,
        );
        let reserve = f64::from(scheme.reserve_blocks);
        self.gauge("ftld_gc_reserve_blocks", "Erased blocks that collection never goes below.", reserve);
    }

    fn wear(&mut self) {
        let wear = &self.view.flash.wear;
        self.gauge("ftld_block_erases_min", "Fewest erases of a good block.", f64::from(wear.min));
        self.gauge("ftld_block_erases_avg", "Mean erases of the good blocks.", wear.mean);
        self.gauge("ftld_block_erases_max", "Most erases of a good block.", f64::from(wear.max));
        self.gauge("ftld_block_erases_stddev", "Standard deviation of the erases of good blocks.", wear.stddev);
        let rated = f64::from(self.view.facts.profile.endurance);
        self.gauge("ftld_block_erase_limit", "Rated erases of a block.", rated);
        self.family(MetricType::GAUGE, "ftld_bad_blocks", "Blocks that must not be used.", |f| {
            f.value(&[("origin", "factory")], f64::from(wear.bad_factory));
            f.value(&[("origin", "grown")], f64::from(wear.bad_grown));
        });
        let help = "Good blocks with at most this many erases; a state, not a histogram of events.";
        self.family(MetricType::GAUGE, "ftld_block_erase_distribution_blocks", help, |f| {
            let mut below = 0;
            for (i, count) in wear.distribution.iter().enumerate() {
                below += count;
                let bound = WEAR_BOUNDS.get(i).map_or("+Inf".into(), u32::to_string);
                f.value(&[("at_most", &bound)], below as f64);
            }
        });
    }

    fn scheme(&mut self) {
        let ram = &self.view.flash.ram;
        self.family(MetricType::GAUGE, "ftld_ram_bytes", "RAM of the scheme's tables as really allocated.", |f| {
            ram.iter().for_each(|entry| f.value(&[("part", entry.part)], entry.real_bytes as f64));
        });
        let scheme = &self.view.flash.scheme;
        self.counter("ftld_checkpoints_total", "Completed checkpoints.", |f| f.value(&[], scheme.checkpoints as f64));
        self.gauge("ftld_recovery_pages_scanned", "Pages the last mount looked at.", scheme.mount.pages_scanned as f64);
        self.gauge(
            "ftld_recovery_device_seconds",
            "Emulated time of the last mount.",
            seconds(scheme.mount.total_ns()),
        );
        self.families.retain(|family| !family.get_metric().is_empty());
    }
}
