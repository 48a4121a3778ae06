//! Number of messages to handle before sending answers.
//!
//! If all messages are of one connection, the answers to a few of them are sent while the next are
//! handled: the client processes these meanwhile, and sends new requests. If all answers were sent at
//! once, client and server would work and sleep by turns. If several connections have messages, their
//! clients have work meanwhile, and answers sent together on one connection cost less. A group is
//! larger then, ends at another connection's messages, and is bounded so that its data stays in the
//! processor's cache.

/// Messages of one connection that are worked off together, at least.
const MESSAGES: usize = 8;
/// Messages in a group of several connections.
const MESSAGES_OF_SEVERAL: usize = 128;
/// A group is at least this part of the waiting events, so that they do not grow without bound when more come meanwhile.
const PART: usize = 4;

/// Returns the number of these events to handle. `sender`: the connection of an event's message; `None`
/// for other events.
pub(super) fn of<E, C: PartialEq>(events: &[E], sender: impl Fn(&E) -> Option<C>) -> usize {
    let alone = match events.first().map(&sender) {
        Some(Some(first)) => events.iter().all(|event| sender(event).as_ref() == Some(&first)),
        _ => false,
    };
    let group = if alone { MESSAGES } else { MESSAGES_OF_SEVERAL }.max(events.len() / PART);
    match events.get(group) {
        Some(_) if alone => group,
        Some(_) => {
            let last = sender(&events[group - 1]);
            group + events[group..].iter().take_while(|event| sender(event) == last).count()
        }
        None => events.len(),
    }
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
    fn messages_of_several_are_taken_to_the_end_of_one_connection() {
        let events: Vec<Option<u8>> = (0..8).flat_map(|connection| [Some(connection); 50]).collect();
        assert_eq!(group(&events), 150);
        assert_eq!(group(&events[150..]), 150);
        assert_eq!(group(&events[300..]), 100);
        let many: Vec<Option<u8>> = events.iter().cycle().take(4000).copied().collect();
        assert_eq!(group(&many), 1000);
        assert_eq!(group(&[&[Some(1)][..], &[None; 300]].concat()), 301);
    }

    #[test]
    fn what_is_little_is_taken_whole() {
        let mut events = vec![Some(1); 30];
        events.push(Some(2));
        assert_eq!(group(&events), 31);
        events[30] = None;
        assert_eq!(group(&events), 31);
        assert_eq!(group(&[None; 20]), 20);
    }
}
