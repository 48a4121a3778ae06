use crate::space_world::oracle::Register;
use crate::space_world::{Coverage, run};

fn run_all(seeds: std::ops::Range<u64>) -> Coverage {
    let mut total = Coverage::default();
    for seed in seeds {
        let report = run(seed);
        assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations);
        let coverage = report.coverage;
        total.acknowledged_writes += coverage.acknowledged_writes;
        total.reads += coverage.reads;
        total.crashes += coverage.crashes;
        total.openings += coverage.openings;
        total.expulsions += coverage.expulsions;
        total.joins += coverage.joins;
        total.fenced += coverage.fenced;
        total.reconciled_blocks += coverage.reconciled_blocks;
        total.repaired_blocks += coverage.repaired_blocks;
        total.hedged_reads += coverage.hedged_reads;
        total.resynced_regions += coverage.resynced_regions;
        total.built_regions += coverage.built_regions;
        total.discards += coverage.discards;
        total.no_space += coverage.no_space;
        total.added_disks += coverage.added_disks;
        total.all_away += coverage.all_away;
        total.dead_nodes += coverage.dead_nodes;
        total.large_losses += coverage.large_losses;
        total.retreats += coverage.retreats;
        total.freezes += coverage.freezes;
        total.passed_on += coverage.passed_on;
        total.strange_epochs += coverage.strange_epochs;
        total.refused_epochs += coverage.refused_epochs;
        total.retiring_away += coverage.retiring_away;
        total.gone_back += coverage.gone_back;
    }
    total
}

#[test]
fn a_few_seeds_pass_with_faults() {
    let total = run_all(0..8);
    assert!(
        total.acknowledged_writes > 0 && total.reads > 0 && total.expulsions > 0 && total.joins > 0,
        "{total:?}"
    );
}

#[test]
#[ignore = "takes a minute: cargo test -p cenote-sim -- --ignored"]
fn many_seeds_pass_and_every_kind_of_fault_really_happens() {
    let total = run_all(0..40);
    for (what, count) in [
        ("acknowledged writes", total.acknowledged_writes),
        ("reads", total.reads),
        ("crashes", total.crashes),
        ("takeovers", total.openings.saturating_sub(40)),
        ("expulsions", total.expulsions),
        ("joins", total.joins),
        ("fenced coordinators", total.fenced),
        ("reconciled blocks", total.reconciled_blocks),
        ("repaired blocks", total.repaired_blocks),
        ("hedged reads", total.hedged_reads),
        ("resynced regions", total.resynced_regions),
        ("built regions", total.built_regions),
        ("discards", total.discards),
        ("writes refused by a full pool", total.no_space),
        ("added disks", total.added_disks),
        ("times that all disks went", total.all_away),
        ("nodes taken for dead", total.dead_nodes),
        ("links that lost what is large", total.large_losses),
        ("nodes that fell silent", total.retreats),
        ("processes stopped for a while", total.freezes),
        ("openings left to another node", total.passed_on),
        ("epochs that no record gave", total.strange_epochs),
        ("requests refused for their epochs", total.refused_epochs),
        ("absences of a disk that is being retired", total.retiring_away),
        ("older images of disks", total.gone_back),
    ] {
        assert!(count > 0, "no {what} in 40 seeds: {total:?}");
    }
}

#[test]
fn a_seed_replays_bit_for_bit() {
    let (first, second) = (run(0), run(0));
    assert_eq!((first.trace, first.steps), (second.trace, second.steps));
    assert_eq!(first.coverage, second.coverage);
}

#[test]
fn a_client_that_is_answered_at_once_stays_one() {
    // A pool so tight that it refuses many writes at once.
    let report = run(518);
    assert!(report.violations.is_empty() && report.coverage.no_space > 0, "{report:?}");
    assert!(report.steps < 500_000, "{} steps", report.steps);
}

#[test]
fn the_oracle_accepts_one_register_and_refuses_going_back() {
    let mut fine = Register::default();
    fine.write_began(1, 10);
    fine.read(0, 11, 12);
    fine.read(1, 13, 14);
    fine.write_ended(1, 20);
    fine.write_began(2, 30);
    fine.read(2, 31, 40);
    assert!(fine.violations().is_empty());

    let mut back = fine.clone();
    back.read(1, 50, 51);
    assert!(!back.violations().is_empty(), "a value came back after a newer one was read");

    let mut lost = Register::default();
    lost.write_began(1, 10);
    lost.write_ended(1, 20);
    lost.read(0, 30, 31);
    assert!(!lost.violations().is_empty(), "an acknowledged write was lost");

    let mut early = Register::default();
    early.read(1, 1, 2);
    assert!(!early.violations().is_empty(), "a value was read that nobody wrote");
}

#[test]
fn an_unanswered_write_may_take_effect_late_or_never_but_once() {
    let mut register = Register::default();
    register.write_began(1, 10);
    register.write_began(2, 20);
    register.write_ended(2, 30);
    assert!(register.violations().is_empty());
    register.read(2, 40, 41);
    register.read(1, 50, 51);
    assert!(register.violations().is_empty());
    register.read(2, 60, 61);
    assert!(!register.violations().is_empty());
}

#[test]
fn a_seed_of_the_stack_replays_bit_for_bit() {
    use crate::stack::{Kind, Scenario, run_scenario};
    let scenario =
        Scenario { faults: vec![Kind::Hang], clients: 2, kills: 0, power_cuts: 1000, ..Scenario::of_seed(1) };
    let (first, second) = (run_scenario(1, scenario.clone()), run_scenario(1, scenario));
    assert_eq!((first.trace, first.turns, first.coverage), (second.trace, second.turns, second.coverage));
    assert!(first.coverage.writes > 0 && first.coverage.faults == 1, "{:?}", first.coverage);
}

#[test]
fn clients_keep_their_opens_over_every_interruption() {
    use crate::persistent_opens::run;
    let mut total = crate::persistent_opens::Coverage::default();
    for seed in 0..6 {
        let report = run(seed);
        assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations);
        let found = report.coverage;
        total.reclaims += found.reclaims;
        total.breaks += found.breaks;
        total.lost_sessions += found.lost_sessions;
        total.kills += found.kills + found.power_cuts;
        total.replayed_others += found.replayed_creates + found.replayed_locks + found.replayed_others;
    }
    let all = [total.reclaims, total.breaks, total.lost_sessions, total.kills, total.replayed_others];
    assert!(all.iter().all(|count| *count > 0), "{total:?}");
    let (first, second) = (run(1), run(1));
    assert_eq!((first.trace, first.coverage), (second.trace, second.coverage));
}

#[test]
fn kept_seeds_are_lines_that_can_be_read() {
    let lines = crate::KEPT_SEEDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert_eq!(crate::kept_seeds().len(), lines);
}
