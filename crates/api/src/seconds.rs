//! The counters of a server's last second: the same for every caller, so that all displays agree.
//!
//! Promises: a request costs the data plane nothing, since a task reads the counters each second and
//! notes them here.

use crate::activity::Activity;
use crate::model::Performance;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// Age from which a note counts as outdated.
const LASTS_FOR: Duration = Duration::from_millis(2500);
/// Time after a request for activity during which it is counted.
const WANTED_FOR: Duration = Duration::from_secs(5);

/// Totals at both ends of the last second; `uptime_us` is the time of each, by the server's own clock.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct LastSecond {
    /// Totals at the beginning of the second.
    pub before: Performance,
    /// Totals at its end.
    pub after: Performance,
    /// `null`: an earlier release does not report it.
    #[serde(default)]
    pub machine: Option<MachineSecond>,
}

/// Load of the server's machine in the last second; `null`: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MachineSecond {
    /// Load of all processors together.
    pub cpu_percent: Option<f64>,
    /// Memory in use: that which is not available without swapping.
    pub memory_used_bytes: Option<u64>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// Received by the machine's network devices.
    pub received_bytes_per_s: Option<f64>,
    /// Sent by the machine's network devices.
    pub sent_bytes_per_s: Option<f64>,
}

/// A server's last second, and the activity in it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ServerActivity {
    /// Totals and load of the second.
    #[serde(flatten)]
    pub second: LastSecond,
    /// Activity of the second. `null`: no request in the second before, so that it was not counted; or a
    /// server of an earlier release.
    #[serde(default)]
    pub activity: Option<Activity>,
}

/// Counters of the last second of all servers of the cluster that answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ClusterSecond {
    /// Sums of the totals at both ends, without machines.
    #[serde(flatten)]
    pub total: LastSecond,
    /// Empty: this is a single server, or the request asked for one server's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerSecond>,
}

/// Counters of the last second of one server of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServerSecond {
    /// Name of the server.
    pub server: String,
    /// Totals and load of the server.
    #[serde(flatten)]
    pub second: LastSecond,
}

impl LastSecond {
    /// Returns the totals from which to compute rates until `after`: the end of the last second seen, so
    /// that a missed second is included. If that is this same second, or one before a restart of the
    /// server: the second's own begin.
    pub fn since(&self, seen: Option<&Performance>) -> Performance {
        let seen = seen.filter(|seen| seen.uptime_us < self.after.uptime_us);
        seen.copied().unwrap_or(self.before)
    }
}

/// The last two readings of the server's counters.
#[derive(Default)]
pub struct Seconds(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    before: Option<Performance>,
    after: Option<(Instant, Performance)>,
    machine: Option<MachineSecond>,
    activity: Option<(Instant, Activity)>,
    asked: Option<Instant>,
}

impl Seconds {
    /// Notes the counters as of `now`.
    pub fn note(&self, performance: Performance, now: Instant) {
        let noted = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.before = noted.after.replace((now, performance)).map(|(_, before)| before);
    }

    /// Notes the machine's load meanwhile.
    pub fn note_machine(&self, machine: MachineSecond) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).machine = Some(machine);
    }

    /// Returns whether a recent request wants activity.
    pub fn is_activity_wanted(&self, now: Instant) -> bool {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner).asked;
        asked.is_some_and(|at| now.saturating_duration_since(at) < WANTED_FOR)
    }

    /// Notes the activity of the last second.
    pub fn note_activity(&self, activity: Activity, now: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).activity = Some((now, activity));
    }

    /// Returns the last second with its activity, and has it counted for a while from now on. `None`: as
    /// for [`Self::last`].
    pub fn last_activity(&self, now: Instant) -> Option<ServerActivity> {
        let second = self.last(now)?;
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.asked = Some(now);
        let fresh = noted.activity.as_ref().filter(|(at, _)| now.saturating_duration_since(*at) < LASTS_FOR);
        Some(ServerActivity { second, activity: fresh.map(|(_, activity)| activity.clone()) })
    }

    /// Returns the last second. `None`: fewer than two readings, or outdated ones.
    pub fn last(&self, now: Instant) -> Option<LastSecond> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, after) = noted.after?;
        (now.saturating_duration_since(at) < LASTS_FOR).then_some(LastSecond {
            before: noted.before?,
            after,
            machine: noted.machine,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime_us: u64) -> Performance {
        Performance { uptime_us, ..Performance::default() }
    }

    #[test]
    fn a_second_is_known_after_two_looks_and_for_a_while() {
        let (seconds, now) = (Seconds::default(), Instant::now());
        seconds.note(at(1), now);
        assert!(seconds.last(now).is_none());
        seconds.note(at(2), now);
        seconds.note(at(3), now);
        let last = seconds.last(now).unwrap();
        assert_eq!((last.before.uptime_us, last.after.uptime_us), (2, 3));
        assert!(seconds.last(now + LASTS_FOR).is_none());
    }

    #[test]
    fn what_a_second_was_made_of_is_counted_while_somebody_asks() {
        let (seconds, now) = (Seconds::default(), Instant::now());
        seconds.note(at(1), now);
        seconds.note(at(2), now);
        assert!(!seconds.is_activity_wanted(now));
        assert!(seconds.last_activity(now).unwrap().activity.is_none());
        assert!(seconds.is_activity_wanted(now));
        seconds.note_activity(Activity { rdma_bytes: 7, ..Activity::default() }, now);
        assert_eq!(seconds.last_activity(now).unwrap().activity.unwrap().rdma_bytes, 7);
        assert!(!seconds.is_activity_wanted(now + WANTED_FOR));
        // An earlier release reports the second alone.
        let told = serde_json::to_value(seconds.last(now).unwrap()).unwrap();
        let read: ServerActivity = serde_json::from_value(told).unwrap();
        assert_eq!((read.second.after.uptime_us, read.activity.is_none()), (2, true));
    }

    #[test]
    fn a_second_that_was_missed_is_not_left_out() {
        let last = LastSecond { before: at(20), after: at(30), machine: None };
        let since = |seen: Option<u64>| last.since(seen.map(at).as_ref()).uptime_us;
        assert_eq!([None, Some(20), Some(10)].map(since), [20, 20, 10]);
        assert_eq!(since(Some(30)), 20, "it is asked for once more");
        assert_eq!(since(Some(900)), 20, "the server was started anew");
    }
}
