//! The state of etcd's members for displays: asked now if that takes a moment, else as of the last check.

use crate::engine::Engine;
use crate::failure::off_the_loop;
use crate::issues::Looked;
use etcd::members::{EtcdAlarm, MemberHealth};
use std::sync::Arc;
use std::time::Duration;

/// Timeouts of each member's answer for displays, and of all together. Beyond, the last check counts.
const ETCD_LOOK: Duration = Duration::from_millis(600);
const ETCD_LOOK_WHOLE: Duration = Duration::from_millis(900);

/// Answers of etcd's members.
pub(crate) struct Heard {
    /// The members' states, or why they are unknown.
    pub members: Result<Vec<MemberHealth>, String>,
    pub alarms: Vec<EtcdAlarm>,
    /// Says that the answers are older.
    pub remark: Option<String>,
}

/// Asks etcd's members for their state. If that takes long: returns that of the `last` check.
pub(crate) async fn hear(engine: Arc<dyn Engine>, last: Looked) -> Heard {
    let asking = off_the_loop(move || {
        let members = engine.members_within(ETCD_LOOK);
        Ok(Heard { members, alarms: engine.alarms(), remark: None })
    });
    if let Ok(Ok(heard)) = tokio::time::timeout(ETCD_LOOK_WHOLE, asking).await {
        return heard;
    }
    let Looked { alarms, etcd, at } = last;
    let late = || format!("they did not answer within {} ms", ETCD_LOOK_WHOLE.as_millis());
    let Some(at) = at.filter(|_| !etcd.is_empty()) else {
        return Heard { members: Err(late()), alarms, remark: None };
    };
    let remark = format!("etcd's members are as they were {} s ago: now {}", at.elapsed().as_secs(), late());
    Heard { members: Ok(etcd), alarms, remark: Some(remark) }
}
