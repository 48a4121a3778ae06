//! Reports: the text layout of DiskSpd 2.2.

mod profile_text;
mod smb;
mod text;

pub use profile_text::profile;
pub use text::{Report, text};

#[cfg(test)]
mod tests;
