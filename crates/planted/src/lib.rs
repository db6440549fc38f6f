//! The switch of the planted bugs, which the simulator (`crates/sim/canaries.sh`), the simulator of fleets (`crates/fleetsim/canaries.sh`) and the
//! model test of the event loops (`crates/driver/canaries.sh`) must find.
//!
//! No source of the product has a planted bug. The patches in `crates/sim/bugs`, `crates/fleetsim/bugs` (`fleet_…`) and `crates/driver/bugs` (`loop_…`) each
//! add one at a real decision; a canary run applies all of them to a copy of the sources and builds that once, with
//! `--cfg weir_bugs`. There `bug!("name")` is whether that bug is switched on; everywhere else it is a constant `false`.
#![forbid(unsafe_code)]

/// Every planted bug, in alphabetical order: `bug!` accepts no other name.
pub const BUGS: &[&str] = &[
    "answer_for_another",
    "asked_as_clients_left_it",
    "cancel_of_a_former_query",
    "crashed_standby_trusted",
    "drain_ends_transactions",
    "drained_and_kept",
    "fleet_double_take",
    "fleet_floor_at_once",
    "fleet_floor_by_takeover",
    "fleet_floor_despite_some",
    "fleet_floor_of_one_that_leaves",
    "fleet_floor_unproven",
    "fleet_given_while_open",
    "fleet_lease_without_end",
    "fleet_line_removed_while_withheld",
    "fleet_lost_watch_ignored",
    "fleet_number_before_swapped",
    "fleet_number_of_a_live_node",
    "fleet_pools_conflict_made",
    "fleet_pools_over_others",
    "fleet_reclaim_without_reports",
    "fleet_reclaimed_while_open",
    "fleet_release_lost",
    "fleet_removal_missed",
    "fleet_renewal_after_expiry",
    "fleet_session_goes_on",
    "fleet_slots_of_former_process",
    "fleet_unanswered_forgotten",
    "fleet_uncovered_reported",
    "fleet_usage_of_former_session",
    "fleet_used_before_swapped",
    "fleet_wanted_unwritten",
    "guarantee_unmet",
    "half_request_left",
    "input_left_behind",
    "kept_for_nothing",
    "key_ignores_settings",
    "limit_off_by_one",
    "loop_buffer_kept",
    "loop_cancel_missed",
    "loop_descriptor_kept",
    "loop_edge_lost",
    "loop_half_close_ignored",
    "loop_rest_dropped",
    "loop_short_send_whole",
    "loop_starved_forgotten",
    "loop_told_while_paused",
    "loop_write_error_ignored",
    "loop_wrong_slot",
    "names_left_behind",
    "notification_on_both",
    "old_primary_served",
    "others_write_unread",
    "own_server_lent",
    "own_write_unread",
    "parameters_of_another",
    "parse_cached_early",
    "paused_serves",
    "permit_lost",
    "quota_passed",
    "release_at_first_ready",
    "replay_overtakes",
    "reset_overtaken",
    "sequence_kept_for_ever",
    "sequence_value_of_another",
    "session_answer_for_another",
    "session_difference_unsent",
    "session_forgotten_by_takeover",
    "session_function_unasked",
    "session_kept_server_released",
    "session_name_not_given",
    "session_request_cut",
    "session_rollback_ignored",
    "session_setting_of_another",
    "session_startup_lost",
    "session_statement_of_another",
    "session_unknown_not_reset",
    "set_back_untold",
    "silent_primary_kept",
    "spoilt_plan_told",
    "standby_pipelined",
    "stray_reply_after_cancel",
    "suspended_for_ever",
    "unlistened_hears",
    "waiter_lost",
    "waits_when_gone",
];

/// Whether this planted bug is switched on; a constant `false` in product builds.
#[macro_export]
macro_rules! bug {
    ($name:literal) => {
        $crate::is_on(const { $crate::place($name) })
    };
}

/// The place of a bug in [`BUGS`]; meant for compile time, where an unknown name is an error.
///
/// # Panics
/// If there is no such bug.
#[must_use]
pub const fn place(name: &str) -> usize {
    let mut at = 0;
    while at < BUGS.len() {
        if is_same(BUGS[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("no planted bug has this name: add it to BUGS");
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(not(weir_bugs))]
mod switch {
    /// See [`crate::bug`].
    #[inline(always)]
    #[must_use]
    pub const fn is_on(_: usize) -> bool {
        false
    }

    /// Switches a bug on; false where it cannot be.
    #[must_use]
    pub fn switch_on(_: &str) -> bool {
        false
    }
}

#[cfg(weir_bugs)]
mod switch {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static ON: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// See [`crate::bug`].
    #[inline]
    #[must_use]
    pub fn is_on(place: usize) -> bool {
        ON.load(Ordering::Relaxed) == place
    }

    /// Switches a bug on; false where it cannot be.
    #[must_use]
    pub fn switch_on(name: &str) -> bool {
        let Some(place) = crate::BUGS.iter().position(|bug| *bug == name) else { return false };
        ON.store(place, Ordering::Relaxed);
        true
    }
}

pub use switch::{is_on, switch_on};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(BUGS.is_sorted());
        for (at, name) in BUGS.iter().enumerate() {
            assert_eq!(place(name), at);
        }
        assert!(!bug!("waiter_lost"));
    }
}
