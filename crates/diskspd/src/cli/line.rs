//! A command line that was read.

use super::SmbOptions;
use crate::profile::{Profile, ResultFormat};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReportStyle {
    #[default]
    V2_2,
    V2_0_17,
}

/// Names of the events that start and stop a run (`-y`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    pub signal_start: Option<String>,
    pub signal_finish: Option<String>,
    pub wait_start: Option<String>,
    pub stop: Option<String>,
    /// Set this one and quit.
    pub set: Option<String>,
    /// Begin at this time: milliseconds since 1970. Not an event, but it holds the start as one does.
    pub start_unix_ms: Option<u64>,
}

/// A whole command line. `profile` is what its options say; with `xml` they only change what the file says.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandLine {
    pub help: bool,
    /// Print the manual page.
    pub manual: bool,
    pub profile: Profile,
    pub xml: Option<String>,
    /// Values of `-W -d -C -z -R -v`, to change an XML profile with.
    pub changes: Changes,
    pub targets: Vec<String>,
    pub events: Events,
    pub report_style: ReportStyle,
    pub histogram: Option<String>,
    /// A file that says how far the run is, for programs.
    pub progress_file: Option<String>,
    pub overwrite: Vec<String>,
    pub smb: SmbOptions,
}

/// Options that may stand beside `-X`, if they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub duration_s: Option<u32>,
    pub warm_up_s: Option<u32>,
    pub cool_down_s: Option<u32>,
    pub random_seed: Option<u32>,
    pub format: Option<ResultFormat>,
    pub profile_only: bool,
    pub verbose: bool,
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
