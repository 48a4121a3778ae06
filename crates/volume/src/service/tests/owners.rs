//! Opens by owner, their number, and the end of many, at little cost to others.

use super::*;
use crate::service::turn::{OPERATION_STEPS, STEPS_PER_TURN};

fn durable(session: u64, number: u8) -> Create {
    let request = DurableRequest::Version2 { create_guid: [number; 16], timeout: None, persistent: false };
    Create {
        cache: CacheRequest::Oplock(OplockLevel::Batch),
        durable: Some(request),
        ..open_if(session, &format!("file{number}"))
    }
}

fn end(bench: &mut Bench, session: u64) {
    bench.call(Operation::EndSession { session: SessionId(session) }).unwrap();
}

fn by_other(session: u64, path: &str) -> Create {
    let create = open_if(session, path);
    Create { caller: Caller { token: user(2), ..create.caller }, ..create }
}

#[test]
fn a_user_has_no_more_opens_than_are_free_and_another_has_his_share() {
    let mut bench = Bench::with_opens(12);
    for _ in 0..6 {
        bench.create(open_if(1, "file")).unwrap();
    }
    assert_eq!(bench.create(open_if(2, "file")).unwrap_err(), NtStatus::TOO_MANY_OPENED_FILES);
    for _ in 0..3 {
        bench.create(by_other(3, "other")).unwrap();
    }
    assert_eq!(bench.create(by_other(3, "other")).unwrap_err(), NtStatus::TOO_MANY_OPENED_FILES);
}

#[test]
fn opens_whose_client_is_away_count_and_the_longest_away_gives_way_to_the_same_user() {
    let mut bench = Bench::with_opens(12);
    let mut opens = Vec::new();
    for number in 0..6 {
        opens.push(bench.create(durable(u64::from(number) + 1, number)).unwrap().open);
    }
    // The second client goes first.
    for session in [2, 1, 3, 4, 5, 6] {
        end(&mut bench, session);
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.service.open_count(), 6, "they wait for their clients");
    bench.told.clear();
    bench.create(open_if(7, "more")).unwrap();
    assert_eq!(bench.service.open_count(), 6);
    let closed = |event: &Event| matches!(event, Event::Closed { open } if *open == opens[1]);
    assert!(bench.told.iter().any(closed), "{:?}", bench.told);
    // Not at another user's cost.
    for _ in 0..3 {
        bench.create(by_other(8, "other")).unwrap();
    }
    assert_eq!(bench.create(by_other(8, "other")).unwrap_err(), NtStatus::TOO_MANY_OPENED_FILES);
}

#[test]
fn an_open_gives_way_once() {
    let mut bench = Bench::with_opens(12);
    let mut away = Vec::new();
    for number in 0..6 {
        away.push(bench.create(durable(u64::from(number) + 1, number)).unwrap().open);
    }
    for session in 1..7 {
        end(&mut bench, session);
        bench.pass(Duration::from_secs(1));
    }
    bench.told.clear();
    for more in 1..=6 {
        bench.create(open_if(7, "more")).unwrap();
        assert_eq!(bench.service.open_count(), 6, "{more} took the place of as many");
    }
    let closed = |event: &Event| match event {
        Event::Closed { open } => Some(*open),
        _ => None,
    };
    assert_eq!(bench.told.iter().filter_map(closed).collect::<Vec<_>>(), away);
    assert_eq!(bench.create(open_if(7, "more")).unwrap_err(), NtStatus::TOO_MANY_OPENED_FILES);
}

/// Two volumes of one server with at most this many opens that outlast their connections.
fn volumes_with_lasting(opens_max: usize) -> [Bench; 2] {
    let config = ServiceConfig { lasting: LastingOpens::new(opens_max), ..ServiceConfig::default() };
    [(); 2].map(|()| {
        let disk = space::memory::MemoryVirtualDisk::new(BlockCount(65_536), 4096, BlockCount(65_536));
        Bench::with(formatted(disk), config.clone())
    })
}

#[test]
fn a_user_whose_clients_are_away_keeps_one_share_over_all_volumes() {
    let mut volumes = volumes_with_lasting(12);
    for bench in &mut volumes {
        for number in 0..6 {
            bench.create(durable(u64::from(number) + 1, number)).unwrap();
        }
    }
    for session in 1..7 {
        for bench in &mut volumes {
            end(bench, session);
            bench.pass(Duration::from_secs(1));
        }
    }
    let left = |volumes: &[Bench; 2]| volumes.iter().map(|bench| bench.service.open_count()).sum::<usize>();
    assert_eq!(left(&volumes), 6, "half of all that there may be");
    // Another user's are kept, and none of the first one's is lost to them.
    let create = durable(7, 7);
    let other = Create { caller: Caller { token: user(2), ..create.caller }, ..create };
    volumes[1].create(other).unwrap();
    end(&mut volumes[1], 7);
    assert_eq!(left(&volumes), 7);
    volumes.iter_mut().for_each(|bench| bench.pass(Duration::from_secs(120)));
    assert_eq!(left(&volumes), 0, "they waited for their time and no longer");
    volumes[0].create(durable(1, 1)).unwrap();
    end(&mut volumes[0], 1);
    assert_eq!(left(&volumes), 1);
}

#[test]
fn a_session_that_ends_takes_its_own_opens_along_over_several_turns() {
    let mut bench = Bench::new();
    for _ in 0..2000 {
        bench.service.submit(
            OperationId(bench.next),
            Operation::Create(Box::new(open_if(1, "file"))),
            bench.now,
        );
        bench.next += 1;
    }
    bench.run_polls();
    bench.create(open_if(2, "file")).unwrap();
    assert_eq!(bench.service.open_count(), 2001);
    // All but 500 operations of the turn are used up already.
    bench.service.poll(&mut Vec::new());
    bench.service.agenda.turn.spend(STEPS_PER_TURN - 500 * OPERATION_STEPS);
    let end = Operation::EndSession { session: SessionId(1) };
    bench.service.submit(OperationId(bench.next), end, bench.now);
    bench.next += 1;
    let left = bench.service.open_count();
    assert!((1490..2000).contains(&left), "{left} are left after the turn");
    assert_eq!(bench.service.next_timeout(), Some(bench.now), "the rest is due");
    let mut events = Vec::new();
    for _ in 0..10 {
        bench.service.poll(&mut events);
    }
    assert_eq!(bench.service.open_count(), 1);
    assert_ne!(bench.service.next_timeout(), Some(bench.now));
}

#[test]
fn what_one_user_asks_for_holds_up_another_by_one_turn() {
    let mut bench = Bench::new();
    let mine = bench.create(open_if(1, "mine")).unwrap().open;
    bench.call(Operation::SetSparse { open: mine, sparse: true }).unwrap();
    bench.set(mine, SetInformation::EndOfFile(1 << 40)).unwrap();
    let other = bench.create(by_other(2, "other")).unwrap().open;
    bench.service.poll(&mut Vec::new());
    let ranges = vec![ByteRange { offset: 0, len_bytes: 4096 }; 15_000];
    let mut submit = |request| {
        bench.service.submit(OperationId(bench.next), request, bench.now);
        bench.next += 1;
        OperationId(bench.next - 1)
    };
    for _ in 0..8 {
        submit(Operation::Trim { open: mine, ranges: ranges.clone() });
    }
    let asked = submit(Operation::QueryInformation { open: other });
    let mut events = Vec::new();
    let is_answered = |event: &Event| matches!(event, Event::Done { operation, .. } if *operation == asked);
    let turns = (1..20).find(|_| {
        bench.service.poll(&mut events);
        events.iter().any(is_answered)
    });
    assert!(turns.is_some_and(|turns| turns <= 2), "{turns:?} turns");
}
