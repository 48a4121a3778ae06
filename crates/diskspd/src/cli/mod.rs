//! The command line: single-token options before targets, read twice so that `-b` may come after what is counted in blocks.
//!
//! One table ([`options`]) gives the parser its letters, the usage text its lines and the man page its entries.

mod affinity;
mod line;
mod options;
mod parse;
mod smb;

#[cfg(test)]
mod tests;

pub use line::{Changes, CommandLine, Events, ReportStyle};
pub use options::{OPTIONS, OptionText, manual, usage};
pub use parse::parse;
pub use smb::{SmbOptions, SmbTransport};

/// Exit status for a command line that cannot be run (DiskSpd's ERROR_PARSE_CMD_LINE).
pub const EXIT_COMMAND_LINE: u8 = 3;
/// Exit status for a run that failed.
pub const EXIT_FAILED: u8 = 1;

/// The message for stderr before the exit status; some messages come in two lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLineError(pub String);
