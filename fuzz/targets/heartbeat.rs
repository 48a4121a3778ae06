//! Heartbeats from outside: as bytes, and signed with the cluster's key by a peer that sends anything.
#![no_main]

use heartbeat::{
    Echo, Heartbeat, HeartbeatKey, Incarnation, Member, Membership, Options, Timing, VOTES_MAX, Vote, Ways,
};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;
use types::{Monotonic, NodeId};

static KEY: LazyLock<HeartbeatKey> = LazyLock::new(|| HeartbeatKey::derive(b"fuzz"));

/// Numbers out of the input, zero when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small numbers and those at the ends of the range: where conditions change.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=200 => small.into(),
            large => u64::MAX - u64::from(255 - large),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let _ = Heartbeat::parse(input, 7, &KEY);
    let mut input = Input(input);
    let options = Options {
        me: NodeId(1),
        incarnation: Incarnation(1),
        cluster: 7,
        key: KEY.clone(),
        timing: Timing::default(),
    };
    let mut now = Monotonic(1);
    let mut membership = Membership::new(options, now);
    let members =
        (2..5).map(|node| Member { node: NodeId(node), address: SocketAddr::from(([127, 0, 0, 1], 9)) });
    membership.set_members(&members.collect::<Vec<_>>(), now);
    while !input.0.is_empty() {
        now = now.after(Duration::from_millis(input.byte().into()));
        let heartbeat = Heartbeat {
            from: NodeId(input.byte() as u32 % 6),
            to: NodeId(1),
            incarnation: Incarnation(input.number()),
            stamp: input.number(),
            term: input.number(),
            may_answer: input.byte() & 1 == 1,
            asks: input.byte() & 1 == 1,
            needs_others: input.byte() & 1 == 1,
            turns: input.number(),
            still: Duration::from_millis(input.number()),
            applied: input.number(),
            echo: Some(Echo {
                incarnation: Incarnation(1),
                stamp: now.0.wrapping_sub(input.number()),
                term: input.number(),
            }),
            refused_term: input.number(),
            votes: (0..usize::from(input.byte()) % (VOTES_MAX + 1))
                .map(|_| Vote {
                    node: NodeId(input.byte() as u32 % 6),
                    incarnation: Incarnation(input.number()),
                    granted_ago: Duration::from_millis(input.number()),
                })
                .collect(),
            // Behind all others, so that older inputs of the corpus keep their meaning.
            ways: Ways { reach_most: input.byte() & 1 == 1, votes: input.byte() & 1 == 1 },
        };
        let bytes = heartbeat.encode(7, &KEY);
        assert!(Heartbeat::parse(&bytes, 7, &KEY).is_ok());
        let _ = membership.receive(&bytes, now);
        let mut out = Vec::new();
        membership.poll(now, &mut out);
        assert!(out.len() <= 3);
        let _ = (membership.lease(), membership.take_events());
        assert!(membership.next_timeout() >= now);
    }
});
