//! Drives of a node, and how people write them.

use std::str::FromStr;
use types::size::parse_size;

/// Types of drives, by and large alike in speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveType {
    /// A disk that turns.
    Hdd,
    /// Flash behind SATA or SAS.
    Ssd,
    /// Flash behind PCI Express.
    Nvme,
}

/// Equal drives: how many, how large, of which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drives {
    /// Number of equal drives, 1 to 1000.
    pub count: u32,
    /// Size of each, 1 GiB to 1 PiB.
    pub size_bytes: u64,
    /// Type of the drives, by which speeds are estimated.
    pub drive: DriveType,
}

/// The drives of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveList(pub Vec<Drives>);

/// Drives of one word of the command line, and their size, at most.
const COUNT_MAX: u32 = 1000;
const SIZE_MAX: u64 = 1 << 50;

impl FromStr for DriveList {
    type Err = String;

    /// Reads `8x3.84TiB:nvme,2x800GiB`: COUNTxSIZE[:TYPE], flash behind SATA if no type is given.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(drives).collect::<Result<Vec<_>, _>>().map(Self)
    }
}

fn drive_type(word: &str) -> Option<DriveType> {
    let words = [("hdd", DriveType::Hdd), ("ssd", DriveType::Ssd), ("nvme", DriveType::Nvme)];
    words.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, drive)| drive)
}

fn drives(text: &str) -> Result<Drives, String> {
    let form = || format!("'{text}' is not COUNTxSIZE[:hdd|ssd|nvme], such as 8x4TiB:nvme");
    let (count, rest) = text.split_once('x').ok_or_else(form)?;
    let (size, drive) = match rest.split_once(':') {
        Some((size, kind)) => (size, drive_type(kind).ok_or_else(form)?),
        None => (rest, DriveType::Ssd),
    };
    let count = count.trim().parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    let count = count.ok_or_else(|| format!("'{text}': 1 to {COUNT_MAX} drives"))?;
    let size_bytes = parse_size(size)?;
    if !(1 << 30..=SIZE_MAX).contains(&size_bytes) {
        return Err(format!("'{text}': a drive has 1 GiB to 1 PiB"));
    }
    Ok(Drives { count, size_bytes, drive })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_read_by_count_size_and_type() {
        let list: DriveList = "8x3.84TiB:nvme,2x800GiB".parse().unwrap();
        assert_eq!(list.0[0].count, 8);
        assert_eq!(list.0[0].drive, DriveType::Nvme);
        assert_eq!(list.0[1], Drives { count: 2, size_bytes: 800 << 30, drive: DriveType::Ssd });
        for wrong in
            ["", "8", "0x4TiB", "2000x4TiB", "8x4TiB:tape", "8x4TB", "8x1MiB", "8x2000TiB", "8x4TiB,"]
        {
            assert!(wrong.parse::<DriveList>().is_err(), "{wrong}");
        }
    }
}
