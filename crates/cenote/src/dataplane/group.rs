//! How much of what came is worked off before answers leave.
//!
//! Where all of it is of one connection, the answers to a few of its messages leave while the next are worked on: its client takes them
//! up meanwhile, and asks again. With all answers at once the two ends would work by turns, and sleep by turns. Where several
//! connections ask, their clients have work meanwhile, and answers that leave together cost less.

/// Messages of one connection that are worked off together, at least.
const MESSAGES: usize = 8;
/// And no less than this part of what waits: that does not grow without bound where more comes meanwhile.
const PART: usize = 4;

/// How many of these events to handle. `sender`: the connection whose message an event is; `None` where it is none.
pub(super) fn of<E, C: PartialEq>(events: &[E], sender: impl Fn(&E) -> Option<C>) -> usize {
    let alone = match events.first().map(&sender) {
        Some(Some(first)) => events.iter().all(|event| sender(event).as_ref() == Some(&first)),
        _ => false,
    };
    if alone { events.len().min(MESSAGES.max(events.len() / PART)) } else { events.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(senders: &[Option<u8>]) -> usize {
        of(senders, |sender| *sender)
    }

    #[test]
    fn messages_of_one_connection_are_taken_a_few_at_a_time() {
        assert_eq!(group(&[]), 0);
        assert_eq!(group(&[Some(1); 5]), 5);
        assert_eq!(group(&[Some(1); 30]), 8);
        assert_eq!(group(&[Some(1); 400]), 100);
    }

    #[test]
    fn what_comes_of_several_or_is_no_message_is_taken_whole() {
        let mut events = vec![Some(1); 30];
        events.push(Some(2));
        assert_eq!(group(&events), 31);
        events[30] = None;
        assert_eq!(group(&events), 31);
        assert_eq!(group(&[None; 20]), 20);
    }
}
