//! A minute of refusals by few and by many.

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn one_source_gets_few_lines_a_minute_and_then_the_number_that_was_left_out() {
    let mut ledger = Ledger::default();
    let lines = (0..1000).filter(|_| ledger.note(address("192.0.2.7"))).count();
    assert_eq!(lines, SOURCE_LINES as usize);
    assert!(ledger.turn(0).is_empty(), "the minute goes on");
    let told = ledger.turn(1);
    assert_eq!(told, [LeftOut { source: "192.0.2.7".to_owned(), refusals: 990 }]);
    assert!(ledger.note(address("192.0.2.7")), "the next minute begins anew");
    assert!(ledger.turn(2).is_empty(), "nothing was left out");
}

#[test]
fn one_who_knocks_much_takes_no_line_from_another() {
    let mut ledger = Ledger::default();
    assert_eq!((0..1000).filter(|_| ledger.note(address("192.0.2.7"))).count(), SOURCE_LINES as usize);
    assert!(ledger.note(address("192.0.2.8")));
}

#[test]
fn many_sources_together_get_no_more_lines_and_no_more_memory_than_that() {
    let mut ledger = Ledger::default();
    let knocks = 100_000_u32;
    let lines = (0..knocks).filter(|at| ledger.note(IpAddr::V4((0x0a00_0000 + at % 5000).into()))).count();
    assert_eq!(lines, LINES as usize);
    assert_eq!(ledger.sources.len(), SOURCES);
    let told = ledger.turn(1);
    assert_eq!(told.len(), SOURCES + 1);
    let left_out: u64 = told.iter().map(|told| told.refusals).sum();
    assert_eq!(left_out + lines as u64, u64::from(knocks), "each is a line or counted");
}

#[test]
fn the_addresses_of_one_ipv6_network_are_one_source_and_a_mapped_one_is_that_of_ipv4() {
    let mut ledger = Ledger::default();
    let lines = (0..100_u128).filter(|at| ledger.note(IpAddr::V6((0x2001_0db8_u128 << 96 | at << 8).into())));
    assert_eq!(lines.count(), SOURCE_LINES as usize);
    assert_eq!((0..12).filter(|_| ledger.note(address("::ffff:192.0.2.7"))).count(), SOURCE_LINES as usize);
    let told: Vec<String> = ledger.turn(1).into_iter().map(|told| told.source).collect();
    assert_eq!(told, ["192.0.2.7", "2001:db8::/64"]);
}
