//! Sizes as people write and read them. Units are binary: K is 1024 bytes.

use serde::de::{self, Deserializer, Visitor};
use std::fmt;

/// Reads `8GiB`, `8G`, `1.5T`, `4096`.
///
/// # Errors
/// Why the text is not a size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        match text.get(digits.len()..).map(|unit| unit.trim().to_ascii_uppercase()).as_deref() {
            // Thousands are not meant by those who write them here, and are not given silently either.
            Some(unit @ ("KB" | "MB" | "GB" | "TB")) if !digits.is_empty() => {
                let prefix = unit.get(..1).unwrap_or_default();
                format!(
                    "'{text}' is not a size: units are powers of 1024: write {digits}{prefix}iB or {digits}{prefix}"
                )
            }
            _ => format!(
                "'{text}' is not a size: a number of bytes, or one with KiB, MiB, GiB or TiB, such as 8GiB"
            ),
        }
    };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let unit_bytes = 1_u64 << shift;
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let fraction = match fraction {
        "" => 0,
        digits if digits.len() <= 3 => {
            let value: u64 = digits.parse().map_err(|_| bad())?;
            value.checked_mul(unit_bytes).ok_or_else(bad)? / 10_u64.pow(digits.len() as u32)
        }
        _ => return Err(bad()),
    };
    whole.checked_mul(unit_bytes).and_then(|bytes| bytes.checked_add(fraction)).ok_or_else(bad)
}

/// Reads a number of bytes, or a text as [`parse_size`] does: for `#[serde(deserialize_with)]`.
///
/// # Errors
/// Those of the format, or why the text is not a size.
pub fn deserialize_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of bytes, or a size such as \"8GiB\"")
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse_size(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Size)
}

/// A size that bounds something, or the word that nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// No bound: `none`.
    None,
    /// Bound in bytes.
    At(u64),
}

impl Bound {
    /// Returns the bound in bytes; `None` without one.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::At(bytes) => Some(bytes),
        }
    }
}

/// Reads a size, or `none`.
///
/// # Errors
/// Why the text is neither.
pub fn parse_bound(text: &str) -> Result<Bound, String> {
    if text == "none" {
        return Ok(Bound::None);
    }
    parse_size(text).map(Bound::At).map_err(|error| format!("{error}, or none"))
}

/// Three digits or so, with a unit.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{bytes} B"),
        (_, value) if value < 10.0 => format!("{value:.2} {}", UNITS[unit]),
        (_, value) if value < 100.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// The two largest units of a duration.
pub fn show_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_in_every_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8GiB", 8 << 30),
            ("8g", 8 << 30),
            ("1.5T", 3 << 39),
            ("64MiB", 64 << 20),
            ("512 KiB", 512 << 10),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "-1", "8GB!", "1e9", "99999999T", "18446744073709551616", "1.2.3G", "1.12345G"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_of_a_thousand_are_refused_with_those_that_are_meant() {
        for (text, meant) in [("1GB", "1GiB or 1G"), ("1.5 tb", "1.5TiB or 1.5T"), ("20Kb", "20KiB or 20K")] {
            let why = parse_size(text).unwrap_err();
            assert!(why.contains(meant), "{why}");
        }
        for text in ["GB", "8GiBB", "many"] {
            let why = parse_size(text).unwrap_err();
            assert!(why.contains("8GiB") && !why.contains("1024"), "{why}");
        }
    }

    #[test]
    fn shown_sizes_have_three_digits_and_a_unit() {
        let shown: Vec<_> = [0, 1023, 1024, 1536, 15 << 20, 8 << 30, u64::MAX].map(show_size).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "15.0 MiB", "8.00 GiB", "16384 PiB"]);
    }
}
