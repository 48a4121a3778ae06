//! A change of the server's policy meets opens whose close has not run yet.

use super::*;
use crate::service::grant::Needs;
use crate::service::io::check_write;
use crate::service::review::review;
use crate::service::suspend::Suspend;

/// Checks that neither its own rights nor the share's let it write, or make a link, which needs the
/// share's only.
fn is_powerless(bench: &mut Bench, id: OpenId) -> bool {
    let written = check_write(&mut bench.service.parts(), id, 0, 1);
    let open = bench.service.opens.get(id).expect("its close has not run");
    let linked = open.grant().check(Needs::Any(rights::FILE_ALL));
    matches!(written, Err(Suspend::Status(NtStatus::ACCESS_DENIED))) && linked.is_err()
}

fn amend(_: &Standing) -> Ruling {
    let caller = caller(1);
    Ruling::Amend(Terms {
        token: caller.token,
        share_access: caller.share_access,
        share: caller.share,
        standing: caller.standing,
    })
}

/// Reviews without letting any close run.
fn judge_all(bench: &mut Bench, judge: &mut dyn FnMut(&Standing) -> Ruling) {
    let Service { opens, replays, agenda, .. } = &mut bench.service;
    review(opens, replays, agenda, judge);
}

#[test]
fn an_open_that_was_taken_from_its_client_gets_nothing_back_before_it_is_closed() {
    let mut bench = Bench::new();
    let open = bench.create(open_if(1, "file")).expect("an open").open;
    assert!(!is_powerless(&mut bench, open));
    let service = &mut bench.service;
    service.opens.revoke(open, &mut service.agenda);
    assert!(is_powerless(&mut bench, open));
    judge_all(&mut bench, &mut amend);
    assert!(is_powerless(&mut bench, open));
    bench.run_polls();
    assert_eq!(bench.service.open_count(), 0);
}

#[test]
fn an_open_that_is_being_closed_loses_its_rights_like_any_other() {
    let mut bench = Bench::new();
    let open = bench.create(open_if(1, "file")).expect("an open").open;
    let service = &mut bench.service;
    service.opens.close_unasked(open, &mut service.agenda);
    judge_all(&mut bench, &mut |_| Ruling::Close);
    assert!(is_powerless(&mut bench, open));
    bench.run_polls();
    assert_eq!(bench.service.open_count(), 0);
}
