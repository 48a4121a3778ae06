//! A change of the server's policy meets opens whose close has not run yet.

use super::super::Halt;
use super::super::grant::Needs;
use super::*;

/// Neither its own rights nor the share's let it write, or make a link, which takes the share's alone.
fn is_powerless(bench: &mut Bench, id: OpenId) -> bool {
    let written = bench.service.check_write(id, 0, 1);
    let open = bench.service.opens.get(id).expect("its close has not run");
    let linked = open.grant().check(Needs::Any(rights::FILE_ALL));
    matches!(written, Err(Halt::Status(NtStatus::ACCESS_DENIED))) && linked.is_err()
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

#[test]
fn an_open_that_was_taken_from_its_client_gets_nothing_back_before_it_is_closed() {
    let mut bench = Bench::new();
    let open = bench.create(open_if(1, "file")).expect("an open").open;
    assert!(!is_powerless(&mut bench, open));
    bench.service.revoke(open);
    assert!(is_powerless(&mut bench, open));
    bench.service.review_all(&mut amend);
    assert!(is_powerless(&mut bench, open));
    bench.settle();
    assert_eq!(bench.service.open_count(), 0);
}

#[test]
fn an_open_that_is_being_closed_loses_its_rights_like_any_other() {
    let mut bench = Bench::new();
    let open = bench.create(open_if(1, "file")).expect("an open").open;
    bench.service.close_unasked(open);
    bench.service.review_all(&mut |_| Ruling::Close);
    assert!(is_powerless(&mut bench, open));
    bench.settle();
    assert_eq!(bench.service.open_count(), 0);
}
