//! Sizes as people write and read them. Units are binary: K is 1024 bytes.

/// Reads `8GiB`, `8G`, `1.5T`, `4096`.
///
/// # Errors
/// Why the text is not a size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size: a number with K, M, G or T, such as 8GiB");
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

/// A size that bounds something, or the word that nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    None,
    At(u64),
}

impl Bound {
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
    fn shown_sizes_have_three_digits_and_a_unit() {
        let shown: Vec<_> = [0, 1023, 1024, 1536, 15 << 20, 8 << 30, u64::MAX].map(show_size).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "15.0 MiB", "8.00 GiB", "16384 PiB"]);
    }
}
