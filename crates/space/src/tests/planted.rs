//! Tests that find each planted bug that seeds do not.

use super::{damage, faults, hedges, jobs, late_messages, nodes, real_stores, rollback};
use crate::planted::{Planted, plant};
use std::panic::catch_unwind;

fn finder(bug: Planted) -> fn() {
    match bug {
        Planted::AppendByLowestId => {
            damage::of_blocks_that_prove_themselves_the_newest_is_read_and_written_to_the_copy_that_lost_it
        }
        Planted::BelievedByLowestId => {
            real_stores::an_acknowledged_write_survives_a_power_cut_and_the_rot_of_one_disks_last_batch
        }
        Planted::ClaimWithoutFence => nodes::a_claim_on_the_volume_of_a_node_that_has_come_back_fails,
        Planted::NeverSpared => {
            crate::takeover::tests::a_node_is_spared_by_a_volume_that_living_ones_have_all_of
        }
        Planted::NextForgotten => {
            crate::takeover::tests::the_next_node_stays_named_among_those_that_may_answer_until_it_has_opened_the_volume
        }
        Planted::PassesOnAnothers => {
            crate::takeover::tests::a_volume_that_another_node_has_claimed_is_not_passed_on
        }
        Planted::WithdrawalUnfollowed => {
            crate::takeover::tests::a_node_that_lets_go_of_a_volume_looks_again_once
        }
        Planted::PermissionSkipped => {
            nodes::an_owner_serves_when_nobody_answers_any_more_of_all_that_the_record_names
        }
        Planted::CorruptExpelsDisk => {
            damage::a_disk_with_an_unreadable_block_stays_in_sync_and_the_block_is_counted_and_written_again
        }
        Planted::EpochsBelieved => nodes::a_node_that_names_an_epoch_of_no_record_keeps_no_owner_out,
        Planted::FullWhenAway => {
            damage::a_chunk_is_given_slabs_when_disks_that_were_away_for_a_while_are_back
        }
        Planted::FullWhileReturning => {
            jobs::a_write_waits_for_slabs_of_disks_that_are_being_brought_up_to_date
        }
        Planted::HedgeStaleCopy => hedges::a_late_read_is_never_asked_of_a_copy_in_the_making,
        Planted::UndoForgotten => {
            damage::a_disk_whose_file_cannot_grow_stays_and_a_fresh_write_is_undone_on_the_other_copy
        }
        Planted::HostExpelsDisk => damage::a_disk_whose_machine_is_short_of_memory_stays_and_is_asked_again,
        Planted::MinHoldersIgnored => {
            faults::a_volume_opens_without_a_disk_as_long_as_every_chunk_surely_has_another_copy
        }
        Planted::MoveFromOneCopy => {
            damage::a_move_takes_what_the_copy_that_stays_has_lost_from_the_one_that_is_given_up
        }
        Planted::OlderImageServed => {
            rollback::the_last_copy_of_something_is_not_served_from_a_disk_that_went_back_until_somebody_accepts_that
        }
        Planted::ProbedChunksGivenBack => {
            late_messages::a_chunk_is_given_back_only_when_no_disk_is_asked_about_it_any_more
        }
        Planted::PromisedLessAccepted => {
            rollback::a_disk_that_goes_back_between_two_starts_is_brought_up_to_date_from_the_beginning
        }
        Planted::ReadFailsWithRepair => {
            damage::a_read_is_answered_from_the_other_copy_although_the_corrupt_one_cannot_be_repaired
        }
        Planted::RebuildRetriesForEver => {
            damage::a_rebuild_goes_on_over_an_unreadable_block_of_the_last_copy_and_clients_write_meanwhile
        }
        Planted::RepairOnce => damage::a_repair_that_a_disk_away_made_fail_is_done_when_that_is_back,
        Planted::RescueOfMissed => {
            faults::a_block_of_a_disk_that_returns_is_not_believed_where_it_may_be_of_before
        }
        Planted::RetiringCountsAsOut => {
            jobs::no_chunk_begins_with_fewer_copies_since_a_disk_is_being_retired
        }
        Planted::RetiringStaysStale => {
            jobs::a_retiring_disk_that_was_away_for_a_moment_is_brought_up_to_date_until_it_is_empty
        }
        Planted::SettledEarly => faults::a_second_crash_finds_again_what_the_first_left_to_compare,
        Planted::SurplusUnverified => jobs::a_copy_too_many_is_given_up_only_when_those_that_remain_are_whole,
        other => panic!("the simulator of space finds {other:?}"),
    }
}

#[test]
fn each_bug_that_needs_faults_of_disks_is_found() {
    let missed: Vec<Planted> = Planted::OF_DISKS
        .into_iter()
        .filter(|bug| {
            plant(Some(*bug));
            let found = catch_unwind(finder(*bug)).is_err();
            plant(None);
            !found
        })
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
