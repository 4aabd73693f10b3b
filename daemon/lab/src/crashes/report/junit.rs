//! The report as JUnit XML: one test case for all states that passed, one for each failed state, and
//! an error if states are missing.

use super::{About, Report, name};
use ftld_kit::failure::Failure;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite, XmlString};
use std::time::Duration;

/// Returns the XML.
///
/// # Errors
/// A text cannot be in XML.
pub(in crate::crashes) fn junit(report: &Report, about: &About<'_>) -> Result<String, Failure> {
    let mut suite = TestSuite::new(format!("ftld crashes {}", report.recording));
    suite.set_time(Duration::from_secs_f64(report.seconds));
    let passed = report.checked - report.failed;
    let all = format!(
        "{} states of model {} at every {}",
        passed,
        name(&report.model),
        name(&report.at)
    );
    let mut good = TestCase::new(all, TestCaseStatus::success());
    good.set_classname("ftld.crashes");
    good.set_system_out(super::text(report, about));
    suite.add_test_case(good);
    if let Some(why) = report.incomplete() {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(why);
        let mut case = TestCase::new("all states are checked", status);
        case.set_classname("ftld.crashes");
        suite.add_test_case(case);
    }
    for failed in report.shortest.iter().chain(&report.cases) {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        let mut description = about.explain(&failed.case).join("\n");
        description += &format!(
            "\nlast mark before the cut: {}\n{}",
            failed.mark,
            report.command(&failed.case)
        );
        status
            .set_message(XmlString::new(&failed.said))
            .set_description(XmlString::new(description));
        let mut case = TestCase::new(failed.case.to_string(), status);
        case.set_classname("ftld.crashes");
        case.set_system_out(XmlString::new(&failed.output));
        suite.add_test_case(case);
    }
    let mut all = quick_junit::Report::new("ftld crashes");
    all.add_test_suite(suite);
    all.to_string()
        .map_err(|error| Failure::failed(format!("JUnit: {error}")))
}
