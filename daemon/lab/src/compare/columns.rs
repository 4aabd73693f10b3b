//! The columns of the tables, with their units: one format for a terminal, one for the page.
//!
//! Invariant: a terminal and the page have the same columns in the same order.

use super::units::Unit;
use crate::replay::{Quantity, Response, Row};
use crate::statistics::Estimate;
use ftld_kit::convert::to_f64;

/// The table of the page that has a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Flash operations, wear and lookups.
    Cost,
    /// Response times of a closed loop.
    Response,
    /// Flash and RAM that the scheme needs.
    Needs,
    /// An open loop.
    Load,
}

impl Part {
    pub(super) const ALL: [Part; 4] = [Part::Cost, Part::Response, Part::Needs, Part::Load];

    /// Returns the title of the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Part::Cost => "Cost",
            Part::Response => "Response times",
            Part::Needs => "Flash and RAM",
            Part::Load => "Load, and all its requests",
        }
    }
}

/// A column.
pub(super) struct Column {
    /// Heading on a terminal.
    pub(super) head: &'static str,
    /// Heading on the page, where values have their units.
    pub(super) name: &'static str,
    /// The table of the page.
    pub(super) part: Part,
    pub(super) unit: Unit,
    /// The value of a row.
    pub(super) of: Quantity,
    /// The value of the bound.
    pub(super) bound: Quantity,
    /// Whether cells with several seeds show the interval.
    pub(super) has_interval: bool,
}

const fn column(
    part: Part,
    (head, name): (&'static str, &'static str),
    unit: Unit,
    of: Quantity,
) -> Column {
    Column {
        head,
        name,
        part,
        unit,
        of,
        bound: |_| None,
        has_interval: false,
    }
}

/// Returns a column of response times.
const fn times(part: Part, heads: (&'static str, &'static str), of: Quantity) -> Column {
    column(part, heads, Unit::Time, of).with_interval()
}

impl Column {
    const fn with_interval(mut self) -> Column {
        self.has_interval = true;
        self
    }

    const fn bounded(mut self, bound: Quantity) -> Column {
        self.bound = bound;
        self
    }

    /// Shows a value for a terminal.
    pub(super) fn plain(&self, value: Option<Estimate>) -> String {
        let Some(value) = value else {
            return "-".into();
        };
        let mean = self.unit.plain(value.mean);
        match value.half_width().filter(|_| self.has_interval) {
            Some(half) => format!("{mean} ±{}", self.unit.plain(half)),
            None => mean,
        }
    }

    /// Shows a value for the page.
    pub(super) fn human(&self, value: Option<Estimate>) -> String {
        let shown = |of: Estimate| {
            let single = Estimate { high: None, ..of };
            self.unit.human(if self.has_interval { of } else { single })
        };
        value.map_or("-".into(), shown)
    }
}

fn of(response: &Option<Response>, value: fn(&Response) -> f64) -> Option<f64> {
    response.as_ref().map(value)
}

/// Returns a value of all requests of an open loop.
fn open(row: &Row, value: fn(&Response) -> f64) -> Option<f64> {
    row.load.as_ref()?;
    of(&row.response_ns.all, value)
}

use Part::{Cost, Load, Needs, Response as Times};

/// Columns; those that a reader looks at first come first.
pub(super) const COLUMNS: &[Column] = &[
    column(Needs, ("OP %", "OP %"), Unit::Percent, |row| {
        Some(row.device.effective_op_percent)
    }),
    column(
        Cost,
        ("WAF", "write amplification"),
        Unit::Number(3),
        |row| row.write_amplification.total,
    )
    .with_interval()
    .bounded(|row| row.write_amplification.total.map(|_| 1.0)),
    column(Cost, ("taxes", "taxes"), Unit::Number(3), |row| {
        row.write_amplification.taxes
    }),
    times(Times, ("write mean us", "write mean"), |row| {
        of(&row.response_ns.write, |write| write.mean)
    })
    .bounded(|row| row.optimum.mean_write_ns),
    times(Times, ("p99", "write p99"), |row| {
        of(&row.response_ns.write, |write| to_f64(write.p99))
    }),
    times(Times, ("p99.9", "write p99.9"), |row| {
        of(&row.response_ns.write, |write| to_f64(write.p999))
    }),
    times(Times, ("max", "write max"), |row| {
        of(&row.response_ns.write, |write| to_f64(write.max))
    }),
    times(Times, ("read mean us", "read mean"), |row| {
        of(&row.response_ns.read, |read| read.mean)
    })
    .bounded(|row| row.optimum.mean_read_ns),
    times(Times, ("p99", "read p99"), |row| {
        of(&row.response_ns.read, |read| to_f64(read.p99))
    }),
    times(Times, ("p99.9", "read p99.9"), |row| {
        of(&row.response_ns.read, |read| to_f64(read.p999))
    }),
    times(Times, ("max", "read max"), |row| {
        of(&row.response_ns.read, |read| to_f64(read.max))
    }),
    column(Cost, ("flash time s", "flash time"), Unit::Seconds, |row| {
        Some(row.flash_busy_ns.total())
    })
    .bounded(|row| Some(row.optimum.work_ns)),
    column(Needs, ("used", "used"), Unit::Share, |row| {
        Some(row.collected.utilisation)
    }),
    column(Cost, ("copies", "copies"), Unit::Number(0), |row| {
        Some(to_f64(row.collected.copies))
    })
    .bounded(|_| Some(0.0)),
    column(
        Cost,
        ("erases/block", "erases/block"),
        Unit::Number(2),
        |row| Some(row.erases.mean),
    )
    .with_interval()
    .bounded(|row| Some(row.optimum.erases / f64::from(row.device.blocks))),
    column(Cost, ("stddev", "stddev"), Unit::Number(2), |row| {
        Some(row.erases.stddev)
    }),
    column(Cost, ("map hits", "map hits"), Unit::Number(3), |row| {
        row.map_cache.hit_ratio
    }),
    column(Needs, ("raw", "raw flash"), Unit::Bytes, |row| {
        Some(to_f64(row.device.raw_bytes))
    }),
    column(Needs, ("RAM paper", "RAM paper"), Unit::Bytes, |row| {
        Some(to_f64(row.ram.paper_bytes))
    }),
    column(Needs, ("RAM real", "RAM real"), Unit::Bytes, |row| {
        Some(to_f64(row.ram.allocated_bytes))
    }),
    column(Load, ("offered/s", "offered/s"), Unit::Number(1), |row| {
        row.load.as_ref()?.offered_per_second
    }),
    column(
        Load,
        ("completed/s", "completed/s"),
        Unit::Number(1),
        |row| row.load.as_ref()?.completed_per_second,
    ),
    times(Load, ("all mean us", "mean"), |row| {
        open(row, |all| all.mean)
    }),
    times(Load, ("p99", "p99"), |row| open(row, |all| to_f64(all.p99))),
    times(Load, ("p99.9", "p99.9"), |row| {
        open(row, |all| to_f64(all.p999))
    }),
    times(Load, ("max", "max"), |row| open(row, |all| to_f64(all.max))),
];
