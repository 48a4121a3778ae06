//! Streams of server-sent events.
//!
//! Promises: at most [`STREAMS_MAX`] streams; a stream holds one event that its reader has not taken, and shares its bytes with all others;
//! a reader that takes nothing for [`PATIENCE_EVENTS`] events loses its connection. A stream never begins with an event older than
//! [`FRESH_FOR`]: nothing is published while nobody reads, and the last event of an hour ago would pass for the present.

use api::Seat;
use axum::body::Bytes;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

/// A fourth of the connections that a listener of the API serves: the command line gets in beside them.
pub const STREAMS_MAX: usize = api::CONNECTIONS_MAX / 4;
/// Events, one a second, after which a reader that takes none loses its connection.
pub const PATIENCE_EVENTS: u32 = 20;
/// The interval between two events, and half of one for a machine that has much to do.
pub const FRESH_FOR: Duration = Duration::from_millis(1500);

struct Stream {
    sender: Sender<Bytes>,
    /// Seat of its connection, which is ended with it.
    seat: Option<Arc<Seat>>,
    untaken: u32,
}

#[derive(Default)]
struct Table {
    streams: Vec<Stream>,
    /// First event of a new stream while it is fresh, and when it was published.
    last: Option<(Instant, Bytes)>,
}

#[derive(Default)]
pub struct Streams(Mutex<Table>);

impl Streams {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream; `None`: there are [`STREAMS_MAX`].
    pub fn open(&self, seat: Option<Arc<Seat>>, now: Instant) -> Option<Events> {
        let table = &mut *self.table();
        table.streams.retain(|stream| !stream.sender.is_closed());
        if table.streams.len() >= STREAMS_MAX {
            return None;
        }
        let (sender, receiver) = channel(1);
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < FRESH_FOR;
        if let Some((_, last)) = table.last.as_ref().filter(|(at, _)| is_fresh(*at)) {
            let _ = sender.try_send(last.clone());
        }
        table.streams.push(Stream { sender, seat, untaken: 0 });
        Some(Events(receiver))
    }

    /// Somebody watches.
    pub fn are_read(&self) -> bool {
        self.table().streams.iter().any(|stream| !stream.sender.is_closed())
    }

    /// Gives an event, as JSON of one line, to all streams, except those whose reader has not taken the last.
    pub fn publish(&self, json: &str, now: Instant) {
        let event = Bytes::from(format!("data: {json}\n\n"));
        let table = &mut *self.table();
        table.streams.retain_mut(|stream| match stream.sender.try_send(event.clone()) {
            Ok(()) => {
                stream.untaken = 0;
                true
            }
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(_)) => {
                stream.untaken += 1;
                let is_patient = stream.untaken < PATIENCE_EVENTS;
                if !is_patient && let Some(seat) = &stream.seat {
                    seat.end();
                }
                is_patient
            }
        });
        table.last = Some((now, event));
    }
}

/// The body of an answer that lasts until its reader, or the server, ends it.
pub struct Events(Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| Some(Ok(Frame::data(event?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Instant {
        Instant::now()
    }

    fn taken(events: &mut Events) -> Option<String> {
        events.0.try_recv().ok().map(|event| String::from_utf8(event.to_vec()).unwrap())
    }

    #[test]
    fn a_stream_begins_with_the_last_event() {
        let streams = Streams::default();
        streams.publish("1", now());
        let mut events = streams.open(None, now()).unwrap();
        assert_eq!(taken(&mut events).unwrap(), "data: 1\n\n");
        streams.publish("2", now());
        assert_eq!(taken(&mut events).unwrap(), "data: 2\n\n");
    }

    #[test]
    fn a_stream_never_begins_with_an_event_that_was_published_long_ago() {
        let (streams, then) = (Streams::default(), now());
        streams.publish("1", then);
        let mut soon = streams.open(None, then + FRESH_FOR / 2).unwrap();
        assert_eq!(taken(&mut soon).unwrap(), "data: 1\n\n");
        let mut late = streams.open(None, then + Duration::from_secs(191)).unwrap();
        assert_eq!(taken(&mut late), None);
    }

    #[test]
    fn there_are_only_so_many_and_one_that_ends_makes_room() {
        let streams = Streams::default();
        let mut all: Vec<Events> = std::iter::from_fn(|| streams.open(None, now())).take(1000).collect();
        assert_eq!(all.len(), STREAMS_MAX);
        all.pop();
        assert!(streams.open(None, now()).is_some());
        drop(all);
        streams.publish("1", now());
        assert!(!streams.are_read());
    }

    #[test]
    fn a_reader_that_takes_nothing_holds_one_event_and_is_let_go_in_the_end() {
        let streams = Streams::default();
        let (mut slow, mut fast) = (streams.open(None, now()).unwrap(), streams.open(None, now()).unwrap());
        for number in 0..=PATIENCE_EVENTS {
            streams.publish(&number.to_string(), now());
            assert_eq!(taken(&mut fast).unwrap(), format!("data: {number}\n\n"));
        }
        assert_eq!(taken(&mut slow).unwrap(), "data: 0\n\n");
        assert!(slow.0.is_closed() && taken(&mut slow).is_none());
        assert!(streams.are_read());
    }
}
