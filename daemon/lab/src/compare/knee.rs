//! The knee of a curve of response times over rates: the highest rate at which p99 is still near
//! that of the lowest one.
//!
//! Invariant: every lower rate of the comparison was sustained too, with a p99 as near.

use super::cells::Cell;
use super::labels::Labels;
use crate::replay::{Job, Row, estimate};
use ftld_kit::convert::to_f64;
use serde::Serialize;
use std::collections::HashMap;

/// Schema name of a [`Knee`].
pub(super) const KNEE_SCHEMA: &str = "ftld.knee/1";

/// Highest p99 up to the knee, in times of that at the lowest rate.
const FACTOR: f64 = 2.0;

/// A rate, and the response times of all its requests, as means over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Point {
    /// Requested rate per second.
    rate: f64,
    /// 99th percentile of all requests, ns.
    p99_ns: f64,
    /// Requests per second that were completed.
    completed_per_second: f64,
    /// Whether the load was sustained in every run.
    is_sustained: bool,
}

/// The knee of runs that differ in rate and seed alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Knee<'a> {
    schema: &'static str,
    /// The job of the first run at the lowest rate.
    job: &'a Job,
    #[serde(skip)]
    row: &'a Row,
    /// [`FACTOR`].
    factor: f64,
    /// The lowest rate.
    lowest: Point,
    /// The knee; `None` if the lowest rate was not sustained.
    knee: Option<Point>,
    /// The next rate, beyond the knee; `None` if the knee is beyond the highest rate.
    beyond: Option<Point>,
}

fn point(cell: &Cell<'_>) -> Option<Point> {
    let mean = |of| estimate(&cell.runs, of).map(|estimate| estimate.mean);
    let is_sustained = |row: &&Row| row.load.as_ref().is_some_and(|load| load.is_sustained);
    Some(Point {
        rate: cell.first().job.rate?,
        p99_ns: mean(|row| row.response_ns.all.as_ref().map(|all| to_f64(all.p99)))?,
        completed_per_second: mean(|row| row.load.as_ref()?.completed_per_second)?,
        is_sustained: cell.runs.iter().all(is_sustained),
    })
}

/// Returns the knee of every group of cells with several rates.
pub(super) fn knees<'a>(cells: &[Cell<'a>]) -> Vec<Knee<'a>> {
    let mut groups: Vec<Vec<(Point, &'a Row)>> = Vec::new();
    let mut known = HashMap::new();
    for cell in cells {
        let Some(point) = point(cell) else { continue };
        let job = Job {
            rate: None,
            seed: 0,
            ..cell.first().job.clone()
        };
        let number = *known.entry(job.line()).or_insert(groups.len());
        if number == groups.len() {
            groups.push(Vec::new());
        }
        groups[number].push((point, cell.first()));
    }
    groups.retain(|group| group.len() > 1);
    groups.into_iter().map(of).collect()
}

fn of(mut group: Vec<(Point, &Row)>) -> Knee<'_> {
    group.sort_by(|one, next| one.0.rate.total_cmp(&next.0.rate));
    let (lowest, row) = group[0];
    let is_near = |point: &Point| point.is_sustained && point.p99_ns <= FACTOR * lowest.p99_ns;
    let near = group.iter().take_while(|(point, _)| is_near(point)).count();
    Knee {
        schema: KNEE_SCHEMA,
        job: &row.job,
        row,
        factor: FACTOR,
        lowest,
        knee: near.checked_sub(1).map(|last| group[last].0),
        beyond: group.get(near).map(|(point, _)| *point),
    }
}

impl Knee<'_> {
    /// Returns the knee as one line of JSON.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).expect("a knee is plain data") + "\n"
    }

    /// Returns the knee as a sentence.
    pub(super) fn text(&self, labels: &Labels) -> String {
        let us = |ns: f64| format!("{:.1} us", ns / 1e3);
        let label = labels.of_rates(self.row);
        let (lowest, p99) = (self.lowest.rate, us(self.lowest.p99_ns));
        let limit = format!("{FACTOR} times the {p99} at {lowest} per second");
        match (self.knee, self.beyond) {
            (None, _) => format!(
                "No knee of {label}: {lowest} per second, the lowest rate, is not sustained; \
                 {:.1} are completed.",
                self.lowest.completed_per_second
            ),
            (Some(knee), None) => format!(
                "No knee of {label} up to {} per second: p99 is {}, not above {limit}.",
                knee.rate,
                us(knee.p99_ns)
            ),
            (Some(knee), Some(beyond)) => format!(
                "Knee of {label}: {} per second, with p99 {}; at {} per second {}.",
                knee.rate,
                us(knee.p99_ns),
                beyond.rate,
                match beyond.is_sustained {
                    true => format!("it is {}, above {limit}", us(beyond.p99_ns)),
                    false => format!(
                        "the load is not sustained: {:.1} are completed",
                        beyond.completed_per_second
                    ),
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay;

    #[test]
    fn the_knee_is_the_last_rate_before_the_first_that_is_slow() {
        let job = Job {
            workload: "uniform:requests=50,read=100%".into(),
            scheme: Some("pagemap".into()),
            size: Some("1MiB".into()),
            ..Job::default()
        };
        let row = replay::run(&job, &mut |_, _| ()).unwrap();
        let point = |rate: f64, p99_ns, is_sustained| {
            let completed_per_second = rate.min(500.0);
            let point = Point {
                rate,
                p99_ns,
                completed_per_second,
                is_sustained,
            };
            (point, &row)
        };
        let labels = Labels::new(&[&row]);
        let slow = [
            point(400.0, 250e3, true),
            point(100.0, 100e3, true),
            point(200.0, 199e3, true),
            point(300.0, 201e3, true),
            point(600.0, 120e3, false),
        ];
        let knee = of(slow.to_vec());
        assert_eq!(knee.knee.unwrap().rate, 200.0);
        assert_eq!(
            knee.text(&labels),
            "Knee of pagemap: 200 per second, with p99 199.0 us; at 300 per second it is 201.0 us, \
             above 2 times the 100.0 us at 100 per second."
        );
        let over = of(vec![slow[1], slow[4]]).text(&labels);
        assert!(
            over.ends_with("at 600 per second the load is not sustained: 500.0 are completed.")
        );
        let fast = of(vec![slow[1], slow[2]]).text(&labels);
        assert!(
            fast.starts_with("No knee of pagemap up to 200 per second"),
            "{fast}"
        );
        let never = of(vec![slow[4], point(700.0, 1.0, false)]);
        assert_eq!((never.knee, never.beyond.unwrap().rate), (None, 600.0));
        assert!(
            never
                .line()
                .starts_with("{\"schema\":\"ftld.knee/1\",\"job\":{")
        );
    }
}
