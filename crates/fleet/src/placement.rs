//! Where workers run: VMFleet's rule for those that are away from the owner of their volume (`Move-Fleet -DistributeVMPercent`).
//!
//! The last workers of each node move, each by another number of nodes than the one before it, so that those of one node are spread over
//! all others and every node has as many workers as before. With a larger share the workers that were away stay where they were.

/// Workers of each node that run elsewhere: rounded half to even as PowerShell does, and at least one
/// if the percentage is not 0.
pub fn away(workers: u32, alignment_percent: u32) -> u32 {
    let percent = 100_u32.saturating_sub(alignment_percent);
    if percent == 0 {
        return 0;
    }
    let share = f64::from(workers) * f64::from(percent) / 100.0;
    (share.round_ties_even() as u32).max(1)
}

/// The node, counted in a list of `nodes`, that runs a worker of the node at `home`. `worker` counts from 0 to `workers`.
pub fn runs_at(home: usize, worker: u32, workers: u32, away: u32, nodes: usize) -> usize {
    debug_assert!(worker < workers && home < nodes, "worker {worker} of {workers}, node {home} of {nodes}");
    let from_end = workers - 1 - worker;
    if from_end >= away || nodes < 2 {
        return home;
    }
    (home + 1 + from_end as usize % (nodes - 1)) % nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Workers that run at each node, in the order of their numbers; workers are lettered through.
    fn groups(nodes: usize, workers: u32, away: u32) -> Vec<String> {
        let mut groups = vec![String::new(); nodes];
        for worker in 0..workers {
            for home in 0..nodes {
                let letter = char::from(b'a' + (home as u32 * workers + worker) as u8);
                groups[runs_at(home, worker, workers, away, nodes)].push(letter);
            }
        }
        groups
    }

    #[test]
    fn the_groups_are_those_of_vmfleets_own_tests() {
        assert_eq!(groups(2, 5, 1), ["abcdj", "fghie"]);
        assert_eq!(groups(2, 5, 5), ["fghij", "abcde"]);
        assert_eq!(groups(3, 5, 1), ["abcdo", "fghie", "klmnj"]);
        assert_eq!(groups(3, 5, 2), ["abcio", "fghne", "klmdj"]);
        assert_eq!(groups(3, 5, 3), ["abmio", "fgcne", "klhdj"]);
        assert_eq!(groups(3, 5, 5), ["kgmio", "alcne", "fbhdj"]);
    }

    #[test]
    fn a_share_is_rounded_as_powershell_does_and_is_one_at_least() {
        assert_eq!(away(44, 100), 0);
        assert_eq!(away(44, 70), 13);
        assert_eq!((away(5, 50), away(7, 50)), (2, 4), "2.5 and 3.5 go to the even number");
        assert_eq!((away(1, 99), away(20, 0)), (1, 20));
    }

    proptest! {
        #[test]
        fn every_node_runs_as_many_as_before(nodes in 2_usize..17, workers in 1_u32..60, percent in 0_u32..101) {
            let away = away(workers, percent);
            let mut counts = vec![0; nodes];
            for home in 0..nodes {
                for worker in 0..workers {
                    let at = runs_at(home, worker, workers, away, nodes);
                    counts[at] += 1;
                    prop_assert_eq!(at != home, worker >= workers - away);
                }
            }
            prop_assert!(counts.iter().all(|count| *count == workers), "{:?}", counts);
        }
    }
}
