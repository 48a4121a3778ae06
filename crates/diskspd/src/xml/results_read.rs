//! Results read back: the counts that sums over many runs need.

use super::XmlError;
use super::tree::{self, Element};

/// Bytes of a results document at most: an hour of intervals of a second for each of 50 targets.
pub const RESULTS_BYTES_MAX: u64 = 128 << 20;
const ELEMENTS_MAX: usize = 4_000_000;

/// One time span of a results document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanSummary {
    pub seconds: f64,
    /// Load of the machine while it measured; `None` if it was not measured.
    pub cpu_percent: Option<f64>,
    /// By thread and target.
    pub targets: Vec<TargetSummary>,
    /// How SMB targets were reached, one for each session: `TCP` or `SMB Direct`.
    pub transports: Vec<String>,
}

/// One thread on one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetSummary {
    pub path: String,
    pub read_bytes: u64,
    pub read_count: u64,
    pub write_bytes: u64,
    pub write_count: u64,
}

/// Reads the time spans of output of `-Rxml`, this program's or DiskSpd's own.
///
/// # Errors
/// The fault in the document, or that it holds an error instead of results.
pub fn read_results(bytes: &[u8]) -> Result<Vec<SpanSummary>, XmlError> {
    let text = std::str::from_utf8(bytes).map_err(|_| XmlError("the results are not UTF-8".into()))?;
    let root = tree::parse_within(text, ELEMENTS_MAX)?;
    if root.name != "Results" {
        return Err(XmlError(format!("the document is of {}, not of Results", root.name)));
    }
    if let Some(error) = child(&root, "Error") {
        return Err(XmlError(format!("the run had no results: {}", error.text)));
    }
    children(&root, "TimeSpan").map(span).collect()
}

fn children<'a>(element: &'a Element, name: &'a str) -> impl Iterator<Item = &'a Element> {
    element.children.iter().filter(move |child| child.name == name)
}

fn child<'a>(element: &'a Element, name: &'a str) -> Option<&'a Element> {
    element.children.iter().find(|child| child.name == name)
}

fn number<T: std::str::FromStr>(element: &Element, name: &str) -> Result<T, XmlError> {
    let found = child(element, name).and_then(|found| found.text.parse().ok());
    found.ok_or_else(|| XmlError(format!("{} has no number {name}", element.name)))
}

fn span(element: &Element) -> Result<SpanSummary, XmlError> {
    let seconds: f64 = number(element, "TestTimeSeconds")?;
    if !(seconds.is_finite() && seconds >= 0.0) {
        return Err(XmlError(format!("a time span of {seconds} seconds")));
    }
    let average = child(element, "CpuUtilization").and_then(|cpu| child(cpu, "Average"));
    let cpu_percent = average.and_then(|average| number(average, "UsagePercent").ok());
    let mut targets = Vec::new();
    for target in children(element, "Thread").flat_map(|thread| children(thread, "Target")) {
        targets.push(TargetSummary {
            path: child(target, "Path").map(|path| path.text.clone()).unwrap_or_default(),
            read_bytes: number(target, "ReadBytes")?,
            read_count: number(target, "ReadCount")?,
            write_bytes: number(target, "WriteBytes")?,
            write_count: number(target, "WriteCount")?,
        });
    }
    let sessions = child(element, "Smb").into_iter().flat_map(|smb| children(smb, "Session"));
    let transports =
        sessions.filter_map(|session| child(session, "Transport")).map(|found| found.text.clone()).collect();
    Ok(SpanSummary { seconds, cpu_percent, targets, transports })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ReportStyle;
    use crate::profile::Profile;
    use crate::report::Report;
    use crate::statistics::{ProcessorUse, SmbUse, SpanResult, SystemInformation, TargetResult};

    #[test]
    fn what_was_written_is_read_again() {
        let mut target = TargetResult { path: "smb://a/b & c".into(), ..TargetResult::default() };
        (target.read.bytes, target.read.operations) = (8192, 2);
        (target.write.bytes, target.write.operations) = (4096, 1);
        let span = SpanResult {
            seconds: 10.01,
            processors: vec![ProcessorUse {
                user_percent: 20.0,
                kernel_percent: 5.5,
                idle_percent: 74.5,
                ..ProcessorUse::default()
            }],
            threads: vec![vec![target.clone()], vec![target]],
            smb_sessions: vec![SmbUse { is_rdma: true, ..SmbUse::default() }],
            ..SpanResult::default()
        };
        let profile = Profile { time_spans: vec![Default::default()], ..Profile::default() };
        let text = super::super::results(&Report {
            command_line: "diskspd",
            profile: &profile,
            system: &SystemInformation::default(),
            spans: &[span],
            style: ReportStyle::V2_2,
        });
        let read = read_results(text.as_bytes()).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].seconds, read[0].cpu_percent), (10.01, Some(25.5)));
        assert_eq!(read[0].targets.len(), 2);
        let one = &read[0].targets[1];
        assert_eq!((one.path.as_str(), one.read_count, one.write_bytes), ("smb://a/b & c", 2, 4096));
        assert_eq!(read[0].transports, ["SMB Direct"]);
    }

    #[test]
    fn documents_without_results_are_refused_with_the_reason() {
        let of = |text: &str| read_results(text.as_bytes()).unwrap_err().to_string();
        assert!(of("<Profile></Profile>").contains("Profile"));
        assert!(of("<Results><Error>interrupted</Error></Results>").contains("interrupted"));
        assert!(of("<Results><TimeSpan></TimeSpan></Results>").contains("TestTimeSeconds"));
        assert!(
            of("<Results><TimeSpan><TestTimeSeconds>NaN</TestTimeSeconds></TimeSpan></Results>")
                .contains("NaN")
        );
        assert!(read_results(b"<Results></Results>").unwrap().is_empty());
        assert!(read_results(b"\xff").is_err());
    }
}
