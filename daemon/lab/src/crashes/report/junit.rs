//! The report as JUnit XML: one test case for all states that passed, one for each failed state,
//! and an error if states are missing.

use super::{About, Report, name};
use anstream::adapter::strip_str;
use ftld_kit::quote::escaped;

/// Returns the XML.
pub(in crate::crashes) fn junit(report: &Report, about: &About<'_>) -> String {
    let all = format!(
        "{} states of model {} at every {}",
        report.checked - report.failed,
        name(&report.model),
        name(&report.at)
    );
    let mut cases = case(&all, &output(&super::text(report, about)));
    let incomplete = report.incomplete();
    if let Some(why) = &incomplete {
        let error = format!("<error message=\"{}\"/>\n", text(why));
        cases += &case("all states are checked", &error);
    }
    let failed = report.shortest.iter().chain(&report.cases);
    let mut failures = 0;
    for failed in failed {
        let description = format!(
            "{}\nlast mark before the cut: {}\n{}",
            about.lines(failed).join("\n"),
            failed.mark,
            report.command(&failed.case)
        );
        let failure = format!(
            "<failure message=\"{}\">{}</failure>\n",
            text(&failed.said),
            text(&description)
        );
        cases += &case(
            &failed.case.to_string(),
            &(failure + &output(&failed.output)),
        );
        failures += 1;
    }
    let errors = usize::from(incomplete.is_some());
    let counts = format!(
        "tests=\"{}\" errors=\"{errors}\" failures=\"{failures}\"",
        1 + errors + failures
    );
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"ftld crashes\" {counts}>\n\
         <testsuite name=\"ftld crashes {}\" {counts} time=\"{:.3}\">\n\
         {cases}</testsuite>\n</testsuites>\n",
        text(&report.recording()),
        report.seconds
    )
}

fn case(name: &str, content: &str) -> String {
    format!(
        "<testcase name=\"{}\" classname=\"ftld.crashes\">\n{content}</testcase>\n",
        text(name)
    )
}

fn output(content: &str) -> String {
    format!("<system-out>{}</system-out>\n", text(content))
}

/// Returns the text without colours and without characters that XML 1.0 excludes, escaped.
fn text(content: &str) -> String {
    let plain = strip_str(content).to_string();
    let valid = |c: &char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..);
    escaped(&plain.chars().filter(valid).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_text_is_valid_in_an_attribute_and_in_an_element() {
        assert_eq!(
            text("\u{1b}[31mred\u{1b}[0m <a> & \"b\"\0\u{b}\u{FFFE}\n\u{1F600}"),
            "red &lt;a&gt; &amp; &quot;b&quot;\n\u{1F600}"
        );
    }
}
