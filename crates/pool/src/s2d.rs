//! Storage Spaces Direct's published rules: the share of the drives' capacity that each resiliency
//! leaves, by the number of servers.
//!
//! Source: Microsoft's "Fault tolerance and storage efficiency in Storage Spaces Direct" and "Nested resiliency". They are here to be
//! compared with; placement in this crate does not go by them.

/// S2D's resiliency types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S2dResiliency {
    TwoWayMirror,
    ThreeWayMirror,
    /// Discouraged by its documentation.
    SingleParity,
    DualParity,
    /// Two servers: two copies in each.
    NestedMirror,
    /// Two servers: parity in each, and a nested mirror of this many percent in front.
    NestedParity {
        mirror_percent: u32,
    },
    /// Three-way mirror in front of dual parity; this many percent are mirror.
    MirrorAcceleratedParity {
        mirror_percent: u32,
    },
}

/// Of how many symbols, how many are data, and the code's name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct S2dEfficiency {
    /// 0 to 1.
    pub usable: f64,
    /// Such as `RS 4+2`, `LRC (8,2,1)`, `3 copies`.
    pub code: &'static str,
    /// Drives, or servers, that may be lost at once.
    pub tolerates: u32,
}

/// Servers of a cluster at most.
pub const SERVERS_MAX: u32 = 16;

const fn efficiency(usable: f64, code: &'static str, tolerates: u32) -> S2dEfficiency {
    S2dEfficiency { usable, code, tolerates }
}

/// Returns the efficiency with this many servers; `None`: it takes more, or fewer. `drives`: capacity
/// drives of a server, on which nested parity depends.
pub fn efficiency_of(
    resiliency: S2dResiliency,
    servers: u32,
    drives: u32,
    is_all_flash: bool,
) -> Option<S2dEfficiency> {
    if servers > SERVERS_MAX {
        return None;
    }
    match resiliency {
        S2dResiliency::TwoWayMirror => (servers >= 2).then(|| efficiency(0.5, "2 copies", 1)),
        S2dResiliency::ThreeWayMirror => (servers >= 3).then(|| efficiency(1.0 / 3.0, "3 copies", 2)),
        S2dResiliency::SingleParity => (servers >= 3).then(|| efficiency(2.0 / 3.0, "RS 2+1", 1)),
        S2dResiliency::DualParity => dual_parity(servers, is_all_flash),
        S2dResiliency::NestedMirror => (servers == 2).then(|| efficiency(0.25, "2 x 2 copies", 2)),
        S2dResiliency::NestedParity { mirror_percent } => {
            // Parity over the drives of a server, seven at most, and everything twice.
            let columns = f64::from(drives.min(7));
            let parity = (columns - 1.0) / columns / 2.0;
            (servers == 2 && drives >= 4)
                .then(|| efficiency(mixed(mirror_percent, 0.25, parity), "nested mirror and parity", 2))
        }
        S2dResiliency::MirrorAcceleratedParity { mirror_percent } => {
            let parity = dual_parity(servers, is_all_flash)?;
            Some(efficiency(
                mixed(mirror_percent, 1.0 / 3.0, parity.usable),
                "3 copies in front of dual parity",
                2,
            ))
        }
    }
}

fn dual_parity(servers: u32, is_all_flash: bool) -> Option<S2dEfficiency> {
    let code = match (servers, is_all_flash) {
        (4..=6, _) => efficiency(0.5, "RS 2+2", 2),
        (7..=8, _) | (9..=11, false) => efficiency(4.0 / 6.0, "RS 4+2", 2),
        (9..=15, true) => efficiency(6.0 / 8.0, "RS 6+2", 2),
        (12..=16, false) => efficiency(8.0 / 11.0, "LRC (8,2,1)", 2),
        (16, true) => efficiency(12.0 / 15.0, "LRC (12,2,1)", 2),
        _ => return None,
    };
    Some(code)
}

/// Efficiency of data of which this many percent lie in one part and the rest in another.
fn mixed(first_percent: u32, first: f64, second: f64) -> f64 {
    let share = f64::from(first_percent.min(100)) / 100.0;
    1.0 / (share / first + (1.0 - share) / second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(resiliency: S2dResiliency, servers: u32, is_all_flash: bool) -> Option<f64> {
        let found = efficiency_of(resiliency, servers, 4, is_all_flash)?;
        Some((found.usable * 1000.0).round() / 10.0)
    }

    #[test]
    fn the_published_table_by_servers_comes_out() {
        for servers in 2..=16 {
            assert_eq!(percent(S2dResiliency::TwoWayMirror, servers, true), Some(50.0));
            let from_three = |value| (servers >= 3).then_some(value);
            assert_eq!(percent(S2dResiliency::ThreeWayMirror, servers, true), from_three(33.3));
            assert_eq!(percent(S2dResiliency::SingleParity, servers, true), from_three(66.7));
        }
        let table = |is_all_flash| {
            (2..=16).map(move |servers| percent(S2dResiliency::DualParity, servers, is_all_flash))
        };
        let hybrid: Vec<Option<f64>> = table(false).collect();
        let flash: Vec<Option<f64>> = table(true).collect();
        let of = |parts: &[(f64, usize)]| -> Vec<Option<f64>> {
            let values = parts.iter().flat_map(|(value, count)| std::iter::repeat_n(Some(*value), *count));
            [None, None].into_iter().chain(values).collect()
        };
        assert_eq!(hybrid, of(&[(50.0, 3), (66.7, 5), (72.7, 5)]));
        assert_eq!(flash, of(&[(50.0, 3), (66.7, 2), (75.0, 7), (80.0, 1)]));
        assert_eq!(percent(S2dResiliency::TwoWayMirror, 17, true), None);
    }

    #[test]
    fn the_published_table_of_nested_resiliency_comes_out() {
        let table = [
            (4, [35.7, 34.1, 32.6]),
            (5, [37.7, 35.7, 33.9]),
            (6, [39.1, 36.8, 34.7]),
            (7, [40.0, 37.5, 35.3]),
            (12, [40.0, 37.5, 35.3]),
        ];
        for (drives, row) in table {
            for (mirror_percent, published) in [10, 20, 30].into_iter().zip(row) {
                let found =
                    efficiency_of(S2dResiliency::NestedParity { mirror_percent }, 2, drives, true).unwrap();
                assert!(
                    (found.usable * 100.0 - published).abs() < 0.06,
                    "{drives} drives, {mirror_percent} %: {found:?}"
                );
            }
        }
        assert_eq!(percent(S2dResiliency::NestedMirror, 2, true), Some(25.0));
        assert_eq!(percent(S2dResiliency::NestedMirror, 3, true), None);
    }
}
