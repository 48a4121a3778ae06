//! Computes the capacity of a pool from given nodes and drives, before the pool exists: the arithmetic of `cenote plan`.
//!
//! The same rules as placement's: copies lie in different fault domains of the strictest level that has enough of them, and the reserve is
//! the size of the largest drives.

use crate::domain::DomainName;
use crate::{FaultDomain, Level, default_reserve_disks};
use std::collections::BTreeMap;
use types::DiskId;

/// A drive as it is planned: its place, and the data that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDisk {
    /// Place of the drive.
    pub domain: FaultDomain,
    /// Without label, journal and checksums.
    pub data_bytes: u64,
}

/// The space that a mirror leaves of the planned drives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// The level at which copies are apart.
    pub level: Level,
    /// Domains of that level.
    pub domains: u32,
    /// Of all drives.
    pub raw_bytes: u64,
    /// Kept free, so that lost copies are made anew at once.
    pub reserve_bytes: u64,
    /// Number of drives whose size is kept free, the largest first.
    pub reserve_disks: u32,
    /// For data, beside the reserve.
    pub usable_bytes: u64,
    /// On no drive that still has a partner in another domain: the largest domains are larger than the others together can mirror.
    pub stranded_bytes: u64,
    /// The loss of the largest domain can be repaired into what is left, with all usable bytes written.
    pub repairs_largest_domain: bool,
}

impl Capacity {
    /// Usable bytes of the raw ones, 0 to 1.
    pub fn efficiency(&self) -> f64 {
        if self.raw_bytes == 0 { 0.0 } else { self.usable_bytes as f64 / self.raw_bytes as f64 }
    }
}

/// The capacity of a mirror of `copies`; `None` if there are too few drives for it. `reserve_disks`: drives' worth of space that is kept
/// free; if it is left out, as pools are made: one for each node, at most four, none with fewer than three drives.
pub fn capacity(disks: &[PlannedDisk], copies: u8, reserve_disks: Option<u32>) -> Option<Capacity> {
    let copies = copies.max(1);
    let (level, domains) = Level::STRICTEST_FIRST
        .into_iter()
        .map(|level| (level, domain_bytes(disks, level)))
        .find(|(_, domains)| domains.len() >= usize::from(copies))?;
    let places: Vec<FaultDomain> = disks.iter().map(|disk| disk.domain.clone()).collect();
    let reserve_disks = reserve_disks.unwrap_or_else(|| default_reserve_disks(&places));
    let mut largest: Vec<u64> = disks.iter().map(|disk| disk.data_bytes).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let reserve_bytes: u64 = largest.iter().take(reserve_disks as usize).sum();
    let raw_bytes: u64 = largest.iter().sum();
    let room = mirrored_bytes(&domains, copies);
    let kept = raw_bytes.saturating_sub(reserve_bytes) / u64::from(copies);
    let usable_bytes = room.min(kept);
    let stranded = raw_bytes - room * u64::from(copies);
    let (largest_domain, others) = domains.split_last()?;
    // All copies that were on it find another place apart from their partners; with fewer domains than copies they wait.
    let repairs_largest_domain = *largest_domain > 0
        && others.len() >= usize::from(copies)
        && mirrored_bytes(others, copies) >= usable_bytes;
    Some(Capacity {
        level,
        domains: domains.len() as u32,
        raw_bytes,
        reserve_bytes,
        reserve_disks,
        usable_bytes,
        // Less than a byte of each copy is what division leaves.
        stranded_bytes: if stranded < u64::from(copies) { 0 } else { stranded },
        repairs_largest_domain,
    })
}

/// Bytes of each domain of a level, the least first.
fn domain_bytes(disks: &[PlannedDisk], level: Level) -> Vec<u64> {
    let mut domains: BTreeMap<DomainName<'_>, u64> = BTreeMap::new();
    for (number, disk) in disks.iter().enumerate() {
        let id = DiskId::from_bytes((number as u128).to_be_bytes());
        *domains.entry(disk.domain.name(id, level)).or_default() += disk.data_bytes;
    }
    let mut bytes: Vec<u64> = domains.into_values().collect();
    bytes.sort_unstable();
    bytes
}

/// The most data of which each byte has `copies` copies in different domains: the largest n with sum(min(domain, n)) >= n * copies.
fn mirrored_bytes(domains: &[u64], copies: u8) -> u64 {
    let copies = u128::from(copies);
    let fits = |data: u64| {
        domains.iter().map(|bytes| u128::from(*bytes.min(&data))).sum::<u128>() >= u128::from(data) * copies
    };
    let (mut low, mut high) = (0, domains.iter().copied().fold(0, u64::saturating_add));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s2d::{S2dResiliency, efficiency_of};

    const TIB: u64 = 1 << 40;

    /// Nodes with drives of these TiB.
    fn nodes(drives: &[&[u64]]) -> Vec<PlannedDisk> {
        let mut disks = Vec::new();
        for (node, sizes) in drives.iter().enumerate() {
            let domain = FaultDomain { node: format!("node-{node}"), ..FaultDomain::default() };
            disks.extend(
                sizes.iter().map(|size| PlannedDisk { domain: domain.clone(), data_bytes: size * TIB }),
            );
        }
        disks
    }

    #[test]
    fn without_reserve_mirrors_are_as_efficient_as_published_for_2_to_16_servers() {
        for servers in 2..=16_u32 {
            let row: &[u64] = &[4, 4, 4, 4];
            let disks = nodes(&vec![row; servers as usize]);
            for (copies, resiliency) in [(2, S2dResiliency::TwoWayMirror), (3, S2dResiliency::ThreeWayMirror)]
            {
                let published = efficiency_of(resiliency, servers, 4, true);
                let ours = capacity(&disks, copies, Some(0)).unwrap();
                let Some(published) = published else {
                    assert_eq!(ours.level, Level::Disk, "two nodes cannot keep three copies apart");
                    continue;
                };
                assert_eq!((ours.level, ours.domains), (Level::Node, servers));
                assert!(
                    (ours.efficiency() - published.usable).abs() < 1e-6,
                    "{servers} servers, {copies} copies"
                );
            }
        }
    }

    #[test]
    fn the_reserve_is_a_drive_for_each_node_up_to_four() {
        let row: &[u64] = &[4, 4, 4, 4];
        for (servers, reserve) in [(1, 1), (2, 2), (4, 4), (8, 4)] {
            let found = capacity(&nodes(&vec![row; servers]), 2, None).unwrap();
            assert_eq!((found.reserve_disks, found.reserve_bytes), (reserve, u64::from(reserve) * 4 * TIB));
            let raw = servers as u64 * 16 * TIB;
            assert_eq!(found.usable_bytes, (raw - found.reserve_bytes) / 2);
        }
    }

    #[test]
    fn a_node_larger_than_all_others_strands_what_has_no_partner() {
        let found = capacity(&nodes(&[&[10, 10], &[4], &[4]]), 2, Some(0)).unwrap();
        assert_eq!((found.usable_bytes, found.stranded_bytes), (8 * TIB, 12 * TIB));
        let found = capacity(&nodes(&[&[8], &[4], &[4]]), 2, Some(0)).unwrap();
        assert_eq!((found.usable_bytes, found.stranded_bytes), (8 * TIB, 0));
    }

    #[test]
    fn a_lost_node_is_repaired_only_if_the_others_have_room_and_are_enough() {
        let row: &[u64] = &[4, 4, 4, 4];
        let repairs = |servers: usize, reserve| {
            capacity(&nodes(&vec![row; servers]), 2, Some(reserve)).unwrap().repairs_largest_domain
        };
        assert!(!repairs(2, 2), "there is no third node for a second copy");
        assert!(!repairs(4, 0), "without reserve nothing is free");
        assert!(repairs(4, 4), "the reserve is one of four nodes");
        assert!(!repairs(3, 3), "three drives of twelve are less than a node");
    }

    #[test]
    fn copies_without_enough_domains_are_no_capacity() {
        assert_eq!(capacity(&nodes(&[&[4]]), 2, None), None);
        assert_eq!(capacity(&[], 1, None), None);
        let one = capacity(&nodes(&[&[4, 4, 4]]), 2, None).unwrap();
        assert_eq!((one.level, one.reserve_disks, one.usable_bytes), (Level::Disk, 1, 4 * TIB));
    }

    #[test]
    fn sizes_near_the_end_of_numbers_do_not_overflow() {
        let disks = [u64::MAX / 2, u64::MAX / 2].map(|data_bytes| PlannedDisk {
            domain: FaultDomain { node: data_bytes.to_string(), ..FaultDomain::default() },
            data_bytes,
        });
        let found = capacity(&disks, 2, Some(0)).unwrap();
        assert_eq!((found.level, found.usable_bytes), (Level::Disk, u64::MAX / 2));
    }
}
