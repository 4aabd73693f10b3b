//! One page with tables and plots in one file: no script, no external resources.

use super::axis::{short, time};
use super::cells::{self, Cell};
use super::columns::{COLUMNS, Part};
use super::heat::{Grid, Heat};
use super::labels::Labels;
use super::outcome::Failed;
use super::{colours, conclusion, figures, knee, notes, reproduction, table};
use crate::replay::{Row, estimate};
use ftld_kit::convert::to_f64;
use ftld_kit::quote::escaped;
use ftld_kit::size::show_size;

const STYLE: &str = include_str!("page.css");

/// The heat maps of the overview.
const HEATS: [Heat<'static>; 2] = [
    Heat {
        title: "Write amplification",
        of: |row| row.write_amplification.total,
        show: short,
    },
    Heat {
        title: "p99.9 of the response times of writes",
        of: |row| Some(to_f64(row.response_ns.write.as_ref()?.p999) / 1e3),
        show: time,
    },
];

/// Returns the page of a comparison that this command printed.
pub(super) fn page(rows: &[&Row], failed: &[&Failed], command: &[String]) -> String {
    let labels = Labels::new(rows);
    let workloads = table::workloads(rows);
    let section_of = |workload: &str| {
        let number = workloads.iter().position(|known| *known == workload);
        format!("w{}", number.expect("a workload of these rows"))
    };
    let all = cells::cells(rows);
    let grid = Grid::new(&all, &labels);
    let of = |workload: &str| -> Vec<&Row> {
        let is_of = |row: &&&Row| row.job.workload == workload;
        rows.iter().filter(is_of).copied().collect()
    };
    let version = env!("CARGO_PKG_VERSION");
    let concluded = workloads
        .iter()
        .map(|name| conclusions(&section_of(name), &of(name), &labels));
    let mut body = format!(
        "<ul class=\"conclusions\">\n{}</ul>\n<p class=\"note\">{} Times are emulated. {} runs, ftld {version}. \
         <a href=\"#repeat\">How to repeat it</a></p>\n",
        concluded.collect::<String>(),
        escaped(&conclusion::basis(&all)),
        rows.len()
    );
    if let Some(warning) = notes::warnings(rows) {
        body += &format!("<p class=\"error\">{}</p>\n", escaped(&warning));
    }
    body.extend(HEATS.iter().map(|heat| grid.map(heat, &section_of)));
    for Failed { job, error, .. } in failed {
        let scheme = job.scheme.as_deref().unwrap_or("default");
        body += &format!(
            "<p class=\"error\">{} on {}: {}</p>\n",
            escaped(scheme),
            escaped(&job.workload),
            escaped(error)
        );
    }
    for workload in &workloads {
        body += &section(&section_of(workload), &of(workload), &labels);
    }
    body += &reproduction::section(command, rows);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>ftld compare</title><style>\n{STYLE}{}</style></head><body>\n<h1>ftld compare</h1>\n\
         {body}</body></html>\n",
        colours::rules()
    )
}

/// Returns the sentences that conclude about a workload.
fn conclusions(id: &str, rows: &[&Row], labels: &Labels) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let name = escaped(&labels.workload(first));
    let sentences = conclusion::sentences(&cells::cells(rows), labels).into_iter();
    let items = sentences.map(|(settings, sentence)| {
        let settings = match settings.is_empty() {
            true => String::new(),
            false => format!(", {}", escaped(&settings)),
        };
        format!("<li><a href=\"#{id}\">{name}</a>{settings}: {sentence}</li>\n")
    });
    items.collect()
}

fn section(id: &str, rows: &[&Row], all: &Labels) -> String {
    assert!(!rows.is_empty(), "a section without a run");
    let of = &cells::cells(rows)[..];
    let labels: Vec<_> = of.iter().map(|cell| all.of(cell.first())).collect();
    format!(
        "<section id=\"{id}\"><h2>{}</h2>\n<p class=\"note\">{}</p>\n{}{}{}{}</section>\n",
        escaped(&all.workload(rows[0])),
        escaped(&about(rows)),
        tables(of, all),
        explained(rows, of, all),
        reproduction::commands(of),
        figures::figures(of, &labels)
    )
}

fn about(of: &[&Row]) -> String {
    let device = |row: &&Row| {
        let device = &row.device;
        format!(
            "{} for the host on {} of {}",
            show_size(device.size_bytes),
            show_size(device.raw_bytes),
            device.profile
        )
    };
    let mut devices: Vec<String> = Vec::new();
    for device in of.iter().map(device) {
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    let Row { job, requests, .. } = of[0];
    let trace = requests.format.is_some().then_some(&job.workload);
    let response_unit = serde_json::to_value(job.method.response_unit()).unwrap_or_default();
    format!(
        "{}{}. {} requests, {} pages read, {} written. {}Preconditioning {}{}, response unit {}.",
        trace.map_or(String::new(), |trace| format!("{trace}. ")),
        devices.join("; "),
        requests.completed,
        requests.pages_read,
        requests.pages_written,
        job.method
            .form
            .map_or(String::new(), |form| format!("Form {}. ", form.name())),
        job.method.precondition().name(),
        job.method.age.map_or(String::new(), |age| format!(
            ", {age} drive writes of random pages"
        )),
        response_unit.as_str().unwrap_or_default()
    )
}

/// Returns the sentences that explain the tables of a section.
fn explained(rows: &[&Row], cells: &[Cell<'_>], labels: &Labels) -> String {
    let mut notes = vec![
        notes::unsettled(rows, labels),
        notes::overloaded(rows, labels),
        notes::mean_beyond_p99(cells, labels),
        notes::over_provisioning(rows),
    ];
    if cells::is_repeated(cells) {
        notes.push("Means over the seeds, with the 95 % interval, also in the figures; curves are those of the first seed.".into());
    }
    notes.extend(knee::knees(cells).iter().map(|knee| knee.text(labels)));
    let items = notes.iter().filter(|note| !note.is_empty());
    let items: String = items
        .map(|note| format!("<li>{}</li>\n", escaped(note.trim())))
        .collect();
    match items.is_empty() {
        true => items,
        false => format!("<ul class=\"note\">\n{items}</ul>\n"),
    }
}

fn tables(of: &[Cell<'_>], labels: &Labels) -> String {
    let text: String = Part::ALL
        .iter()
        .map(|part| part_table(*part, of, labels))
        .collect();
    let mut ratios = String::new();
    for table::Ratios { title, mut lines } in table::ratios(of, labels) {
        let cells = lines.len() - 1;
        drop_empty_columns(&mut lines, cells);
        ratios += &rows(&title, &lines, &[]);
    }
    format!("<div class=\"tables\">\n{text}{ratios}</div>\n")
}

/// Returns a table of the cells; nothing if no cell has a value.
fn part_table(part: Part, of: &[Cell<'_>], labels: &Labels) -> String {
    let columns = COLUMNS.iter().filter(|column| column.part == part);
    let line = |label: String, cells: Vec<String>| std::iter::once(label).chain(cells).collect();
    let mut lines: Vec<Vec<String>> = vec![line(
        String::new(),
        columns.clone().map(|column| column.name.into()).collect(),
    )];
    lines.extend(of.iter().map(|cell| {
        let values = columns.clone();
        let values = values.map(|column| column.human(estimate(&cell.runs, column.of)));
        line(labels.of(cell.first()), values.collect())
    }));
    let bound = columns.map(|column| {
        let bound = estimate(&of[0].runs, column.bound);
        bound.map_or("-".into(), |bound| column.unit.of(bound.mean))
    });
    lines.push(line("optimum (bound)".into(), bound.collect()));
    drop_empty_columns(&mut lines, of.len());
    let mut bound = lines.pop().unwrap_or_default();
    if bound.iter().skip(1).all(|cell| cell == "-") {
        bound.clear();
    }
    match lines[0].len() {
        0 | 1 => String::new(),
        _ => rows(part.title(), &lines, &bound),
    }
}

/// Drops the columns in which no line of these cells has a value; the first line has the headings.
fn drop_empty_columns(lines: &mut [Vec<String>], cells: usize) {
    let cells = &lines[1..=cells];
    let is_used = |column: usize| cells.iter().any(|line| line[column] != "-");
    let used: Vec<bool> = (0..lines[0].len()).map(is_used).collect();
    for line in lines {
        let mut used = used.iter();
        line.retain(|_| used.next() == Some(&true));
    }
}

/// Returns a table: headings, lines, and the bound if there is one.
fn rows(title: &str, lines: &[Vec<String>], bound: &[String]) -> String {
    let cells = |tag: &str, cells: &[String]| {
        cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)))
            .collect::<String>()
    };
    let mut text = format!(
        "<div><p class=\"head\">{}</p><div class=\"scroll\"><table><tr>{}</tr>\n",
        escaped(title),
        cells("th", &lines[0])
    );
    for line in &lines[1..] {
        text += &format!("<tr>{}</tr>\n", cells("td", line));
    }
    if !bound.is_empty() {
        text += &format!("<tr class=\"bound\">{}</tr>", cells("td", bound));
    }
    text + "</table></div></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{self, Job};
    use std::collections::BTreeSet;

    /// Returns the row of a short run.
    fn row() -> Row {
        let job = Job {
            workload: "uniform:requests=300,read=30%".into(),
            scheme: Some("pagemap".into()),
            size: Some("1MiB".into()),
            ..Job::default()
        };
        replay::run(&job, &mut |_, _| ()).unwrap()
    }

    /// Returns rows of 10 workloads under 10 schemes with long labels. The value of a cell follows
    /// from its place, so that the best scheme of each workload is known.
    fn hundred() -> Vec<Row> {
        let made = row();
        let of = |place: u32| {
            let (workload, scheme) = (place / 10, place % 10);
            let mut row = made.clone();
            row.job.workload = format!(
                "/traces/<volume {workload}> & \"more\"/{}.csv.zst",
                "x".repeat(60)
            );
            row.job.scheme = Some(format!("scheme{scheme}"));
            row.scheme = format!("scheme{scheme}");
            row.job.set = vec![format!("gc.policy=a-policy-with-a-long-name-{scheme}")];
            let distance = (scheme + 10 - workload) % 10;
            row.write_amplification.total =
                Some(1.0 + f64::from(distance * distance * distance) / 6.5);
            row
        };
        (0..100).map(of).collect()
    }

    fn page_of(rows: &[Row]) -> String {
        page(
            &rows.iter().collect::<Vec<_>>(),
            &[],
            &["ftld".into(), "<x> y".into()],
        )
    }

    #[test]
    fn a_hundred_cells_have_a_number_a_link_and_one_best_per_row() {
        let page = page_of(&hundred());
        let maps: Vec<&str> = page.split("<table class=\"heat\">").skip(1).collect();
        assert_eq!(maps.len(), 2);
        let map = maps[0].split("</table>").next().unwrap();
        let rows: Vec<&str> = map.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 10);
        for (number, row) in rows.into_iter().enumerate() {
            let cells: Vec<&str> = row.split("<td ").skip(1).collect();
            let link = format!("<a href=\"#w{number}\">");
            assert!(cells.iter().all(|cell| cell.contains(&link)), "{row}");
            let best: Vec<usize> = (0..cells.len())
                .filter(|cell| cells[*cell].contains(" best\""))
                .collect();
            assert_eq!((cells.len(), best), (10, vec![number]));
            assert!(
                cells[number].contains(">1</a>") && cells[(number + 9) % 10].contains(">113</a>")
            );
            assert!(cells[number].contains("class=\"h0 best\""));
        }
        assert!(page.contains("(log axis)") && page.contains("share of each cause"));
        // The page opens with a sentence per workload, by the name of its trace.
        let opening = page.split("</ul>").next().unwrap();
        let items: Vec<&str> = opening.split("<li>").skip(1).collect();
        assert_eq!(items.len(), 10);
        let first = items[0].split("</li>").next().unwrap();
        assert!(
            first.contains("<b>scheme0</b> has the least write amplification, 1.000, scheme1 "),
            "{first}"
        );
        assert!(
            first.contains("scheme1 15 % more; no difference in p99 of writes, "),
            "{first}"
        );
        assert!(page.contains("One seed: there is no interval"));
    }

    #[test]
    fn a_page_is_one_file_without_script_whose_links_have_a_target() {
        let page = page_of(&hundred());
        for forbidden in [
            "<script", "src=", "@import", "url(", "http:", "https:", "<volume", "<x>",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let attributes = |name: &str| -> Vec<String> {
            let values = page.split(name).skip(1);
            values
                .map(|text| text.split('"').next().unwrap().to_owned())
                .collect()
        };
        let (ids, links) = (attributes(" id=\""), attributes("href=\""));
        let unique: BTreeSet<String> = ids.iter().map(|id| format!("#{id}")).collect();
        assert_eq!(unique.len(), ids.len(), "an id is used once");
        assert!(links.iter().all(|link| unique.contains(link)));
        for class in attributes("class=\"c-") {
            assert!(
                page.contains(&format!(".c-{class}{{")),
                "{class} has no colour"
            );
        }
        assert!(page.contains("<pre>ftld '&lt;x&gt; y'</pre>"));
    }

    #[test]
    fn values_of_one_magnitude_have_bars_and_seeds_have_intervals() {
        let mut rows: Vec<Row> = hundred().into_iter().take(2).collect();
        // A trace has the name of its file, and its path in the text below.
        for row in &mut rows {
            row.requests.format = Some("plain".into());
        }
        let page = page_of(&rows);
        assert!(page.contains("<h2>xxxx") && page.contains("more&quot;/xxxx"));
        assert!(!page.contains("share of each cause") && page.contains("class=\"frame\""));
        assert!(!page.contains("class=\"interval\"") && page.contains("<rect class=\"c-host\""));
        let mut again = rows[0].clone();
        again.job.seed = 2;
        again.write_amplification.total = Some(1.2);
        rows.push(again);
        let page = page_of(&rows);
        assert!(page.contains("class=\"interval\"") && page.contains(", 95 % interval "));
        assert!(page.contains("<div>1 to 2</div>"), "the seeds");
        // 1 and 1.2 against 1.154: the interval is wider than the difference.
        let sentence = "no difference in write amplification beyond the spread, 1.1 ± 1.3; ";
        assert!(page.contains(sentence), "{page}");
        assert!(page.contains("<td>1.1 ± 1.3</td>"), "as in the table");
    }
}
