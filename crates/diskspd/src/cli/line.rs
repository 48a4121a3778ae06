//! A command line that was read.

use super::SmbOptions;
use crate::profile::{Profile, ResultFormat};

/// Version of DiskSpd whose layout a text report has (`--report-style`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReportStyle {
    /// Layout of DiskSpd 2.2, the default.
    #[default]
    V2_2,
    /// Layout of DiskSpd 2.0.17.
    V2_0_17,
}

/// Names of the events that start and stop a run (`-y`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    /// Set when the load of a time span begins, its warm-up included (`-ys`).
    pub signal_start: Option<String>,
    /// Set after the run, also after one that failed (`-yf`).
    pub signal_finish: Option<String>,
    /// Waited for before the run (`-yr`).
    pub wait_start: Option<String>,
    /// Stops the run when it is set (`-yp`).
    pub stop: Option<String>,
    /// Set this one and quit.
    pub set: Option<String>,
    /// Begin at this time: milliseconds since 1970. Not an event, but it holds the start as one does.
    pub start_unix_ms: Option<u64>,
}

/// A whole command line. `profile` is what its options say; with `xml` they only change what the file says.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandLine {
    /// Print the usage text (`-?`).
    pub help: bool,
    /// Print the manual page.
    pub manual: bool,
    /// The run that the options describe.
    pub profile: Profile,
    /// Path of an XML profile to run instead (`-X`).
    pub xml: Option<String>,
    /// Values of `-W -d -C -z -R -v`, to change an XML profile with.
    pub changes: Changes,
    /// Names of the targets, in the order of the command line.
    pub targets: Vec<String>,
    /// Events that start and stop the run.
    pub events: Events,
    /// Layout of the text report.
    pub report_style: ReportStyle,
    /// Path of a file for the merged latency histogram (`--histogram`).
    pub histogram: Option<String>,
    /// A file that says how far the run is, for programs.
    pub progress_file: Option<String>,
    /// Targets whose data may be overwritten (`--yes-overwrite`).
    pub overwrite: Vec<String>,
    /// Options for targets on SMB shares.
    pub smb: SmbOptions,
}

/// Options that may stand beside `-X`, if they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// `-d`, if given.
    pub duration_s: Option<u32>,
    /// `-W`, if given.
    pub warm_up_s: Option<u32>,
    /// `-C`, if given.
    pub cool_down_s: Option<u32>,
    /// `-z`, if given.
    pub random_seed: Option<u32>,
    /// `-R`, if given.
    pub format: Option<ResultFormat>,
    /// Whether `-Rp` was given.
    pub profile_only: bool,
    /// Whether `-v` was given.
    pub verbose: bool,
    /// Whether `-vs` was given.
    pub verbose_statistics: bool,
}

impl Changes {
    /// Changes all time spans of a profile.
    pub fn apply(&self, profile: &mut Profile) {
        if let Some(format) = self.format {
            profile.format = format;
        }
        profile.profile_only |= self.profile_only;
        profile.verbose |= self.verbose;
        profile.verbose_statistics |= self.verbose_statistics;
        for span in &mut profile.time_spans {
            for (value, change) in [
                (&mut span.duration_s, self.duration_s),
                (&mut span.warm_up_s, self.warm_up_s),
                (&mut span.cool_down_s, self.cool_down_s),
                (&mut span.random_seed, self.random_seed),
            ] {
                if let Some(change) = change {
                    *value = change;
                }
            }
        }
    }
}
