//! `cenote token`.

use clap::{Subcommand, ValueEnum};
use std::time::Duration;

const MINUTE_S: u64 = 60;
const DAY_S: u64 = 24 * 3600;

/// The rights of a token's holder, each role with those of the ones before.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Role {
    /// Sees everything but secrets, and changes nothing
    Reader,
    /// Also changes disks, pools, volumes and shares, and ends sessions and jobs; deletes no data
    Operator,
    /// Also changes users, tokens and the cluster, and deletes data
    Administrator,
}

/// Subcommands of `cenote token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// List the tokens
    List,
    /// Make a token and print it; it is not shown again
    Create {
        /// The token's name, after its user or program; the audit log shows it
        name: String,
        /// The rights of the token's holder
        #[arg(long, value_enum)]
        role: Role,
        /// Time until the token expires, such as 90d, 12h or 30m [default: never]
        #[arg(long, value_name = "TIME", value_parser = read_period)]
        expires: Option<Duration>,
    },
    /// Delete a token: its holder is refused at once, at every server
    Delete {
        /// The token's name
        name: String,
    },
}

/// A number and the letter of its unit.
fn read_period(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a time such as 90d, 12h or 30m");
    let unit = text.chars().last().ok_or_else(bad)?;
    let unit_s = match unit {
        'm' => MINUTE_S,
        'h' => 60 * MINUTE_S,
        'd' => DAY_S,
        'w' => 7 * DAY_S,
        _ => return Err(bad()),
    };
    let count = text.strip_suffix(unit).unwrap_or_default();
    let count: u64 = count.parse().map_err(|_| bad())?;
    count.checked_mul(unit_s).filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_with_a_unit() {
        assert_eq!(read_period("90d"), Ok(Duration::from_secs(90 * DAY_S)));
        assert_eq!(read_period("2w"), Ok(Duration::from_secs(14 * DAY_S)));
        assert_eq!(read_period("30m"), Ok(Duration::from_secs(1800)));
        for bad in
            ["", "90", "d", "0d", "-1d", "1y", "5dd", "99999999999999999999d", "9999999999999999d\u{e9}"]
        {
            assert!(read_period(bad).is_err(), "{bad}");
        }
    }
}
