//! Reports: the text layouts of DiskSpd 2.2 and 2.0.17.

mod distributions;
mod profile_text;
mod smb;
mod style;
mod text;

pub use profile_text::profile;
pub use text::{Report, text};

#[cfg(test)]
mod tests;
