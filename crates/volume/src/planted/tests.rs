//! Each bug is found by a test of this crate, which passes without it.

use super::{Planted, plant};
use crate::fs::tests::{
    checkpoints, crash, damage, descriptors, outage, pieces, quotas, renames, reserve, room, withheld,
};
use crate::service::tests::{durability, refusals};
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn finder(bug: Planted) -> fn() {
    match bug {
        Planted::AllocatorReuseEarly => {
            withheld::blocks_of_a_removed_file_are_not_written_before_it_is_durably_gone
        }
        Planted::CheckpointReserveOff => reserve::everything_can_be_removed_from_a_full_pool,
        Planted::ChunksGivenBackOnce => room::all_chunks_that_deletions_leave_empty_go_back_to_the_pool,
        Planted::CloseBeforeFlush => {
            durability::a_close_that_overtakes_a_flush_waits_for_it_and_fails_as_it_does
        }
        Planted::DeletionNotDurable => {
            durability::a_name_that_was_removed_changed_or_added_is_so_for_good_once_its_handle_is_closed
        }
        Planted::DescriptorsKept => {
            descriptors::descriptors_that_are_made_and_deleted_for_ever_fill_no_volume
        }
        Planted::DiscardBeforeSuperblock | Planted::SuperblockBeforePages => {
            checkpoints::a_power_cut_at_any_moment_of_a_checkpoint_leaves_what_was_durable
        }
        Planted::GrowthNotDurable => {
            durability::growth_on_a_share_that_writes_through_is_durable_when_it_is_answered
        }
        Planted::JournalTailEarly => {
            withheld::the_journal_keeps_what_a_superblock_that_is_not_durable_makes_superfluous
        }
        Planted::MissStartsOver => {
            pieces::an_image_of_more_pieces_than_the_page_cache_holds_is_given_back_in_bounded_steps
        }
        Planted::NamesUncharged => quotas::names_are_bounded_by_their_owners_limit,
        Planted::NoRoomUntold => {
            reserve::a_volume_that_metadata_has_filled_tells_no_room_until_names_are_gone
        }
        Planted::PartsWithoutReserve => {
            reserve::blocks_that_are_given_back_one_by_one_on_a_full_pool_leave_room_for_checkpoints
        }
        Planted::TransactionUnbounded => {
            pieces::a_volume_that_lost_its_power_after_a_change_of_very_many_pieces_opens_with_all_of_it
        }
        Planted::OutageFailsVolume => outage::an_outage_at_any_moment_fails_nothing_and_loses_nothing,
        Planted::PointerUnchecked => damage::a_tree_page_whose_write_was_lost_is_read_from_the_other_copy,
        Planted::RefusedCreateStays => {
            refusals::a_create_that_is_refused_when_its_file_is_made_leaves_no_name
        }
        Planted::RenameBeforeData => {
            renames::a_file_renamed_over_another_is_the_old_one_or_the_new_one_whole_whenever_the_power_goes
        }
        Planted::ReplayStopsAtUnknown => {
            damage::an_unknown_change_in_the_journal_refuses_the_volume_untouched
        }
        Planted::SealOrderNotRaised => {
            crash::a_batch_that_a_power_cut_took_away_does_not_have_the_order_of_one_that_is_written_later
        }
        of_opens => panic!("{of_opens:?} is the simulator's to find"),
    }
}

/// Runs a bug's finder in this thread, which alone has the bug. Returns whether it is found.
fn is_found(bug: Planted) -> bool {
    let began = Instant::now();
    plant(Some(bug));
    let found = catch_unwind(finder(bug)).is_err();
    plant(None);
    let took = began.elapsed().as_secs_f32();
    println!("{} {bug:?} ({took:.1} s)", if found { "ok     " } else { "not ok " });
    found
}

#[test]
fn each_planted_bug_is_found() {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&bug) = Planted::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !is_found(bug) {
                        missed.lock().expect("no thread panics while it holds it").push(bug);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no thread panics while it holds it");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
