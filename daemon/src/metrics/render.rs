//! Renders a view as Prometheus text, family by family in the catalogue's order; pure except for
//! the process's own metrics.

use super::catalog::{CATALOG, Family, Kind, Sink};
use ftld_device::status::StatusSnapshot;
use ftld_device::volume::{BOUNDS_NS, HistogramView};
use ftld_kit::convert::to_f64;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};

/// Returns the metrics of an instance and of this process, in Prometheus' text format.
pub(crate) fn render(view: &StatusSnapshot) -> String {
    let mut families: Vec<MetricFamily> =
        CATALOG.iter().map(|family| collect(family, view)).collect();
    families.extend(ProcessCollector::for_self().collect());
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&families, &mut text)
        .expect("encoding into memory");
    String::from_utf8(text).expect("labels are UTF-8")
}

fn collect(family: &Family, view: &StatusSnapshot) -> MetricFamily {
    let mut collected = MetricFamily::default();
    collected.set_name(family.name.into());
    collected.set_help(family.help.into());
    collected.set_field_type(match family.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram => MetricType::HISTOGRAM,
    });
    let mut page = Page {
        family,
        device: &view.facts.name,
        collected,
    };
    family.source.fill(family.labels, view, &mut page);
    page.collected
}

/// Output of one family.
struct Page<'a> {
    family: &'a Family,
    device: &'a str,
    collected: MetricFamily,
}

impl Page<'_> {
    fn metric(&self, values: &[&str]) -> Metric {
        assert_eq!(
            values.len(),
            self.family.labels.len(),
            "{}: one value per label",
            self.family.name
        );
        debug_assert!(
            self.family
                .labels
                .iter()
                .zip(values)
                .all(|(label, value)| label.values.is_empty() || label.values.contains(value)),
            "{}: label values {values:?} are not in the catalogue",
            self.family.name
        );
        let pair = |name: &str, value: &str| {
            let mut pair = LabelPair::default();
            pair.set_name(name.into());
            pair.set_value(value.into());
            pair
        };
        let mut pairs = vec![pair("device", self.device)];
        pairs.extend(
            self.family
                .labels
                .iter()
                .zip(values)
                .map(|(label, value)| pair(label.name, value)),
        );
        let mut metric = Metric::default();
        metric.set_label(pairs);
        metric
    }
}

impl Sink for Page<'_> {
    fn value(&mut self, labels: &[&str], value: f64) {
        assert!(
            value.is_finite(),
            "{} with labels {labels:?} is {value}",
            self.family.name
        );
        let mut metric = self.metric(labels);
        match self.family.kind {
            Kind::Counter => {
                assert!(
                    value >= 0.0,
                    "counter {} with labels {labels:?} is {value}",
                    self.family.name
                );
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            Kind::Histogram => panic!("{}: a histogram has no single value", self.family.name),
        }
        self.collected.mut_metric().push(metric);
    }

    fn histogram(&mut self, labels: &[&str], view: &HistogramView) {
        let seconds = |ns: u64| to_f64(ns) / 1e9;
        self.classes(
            labels,
            &BOUNDS_NS.map(seconds),
            &view.counts,
            seconds(view.sum_ns),
        );
    }

    fn classes(&mut self, labels: &[&str], bounds: &[f64], counts: &[u64], sum: f64) {
        assert_eq!(self.family.kind, Kind::Histogram, "{}", self.family.name);
        assert_eq!(bounds.len() + 1, counts.len(), "{}", self.family.name);
        let mut below = 0;
        let bucket = |(bound, count): (&f64, &u64)| {
            below += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(below);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(bounds.iter().zip(counts).map(bucket).collect());
        histogram.set_sample_count(counts.iter().sum());
        histogram.set_sample_sum(sum);
        let mut metric = self.metric(labels);
        metric.set_histogram(histogram);
        self.collected.mut_metric().push(metric);
    }
}
