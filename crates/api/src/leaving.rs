//! Answers being sent.
//!
//! An answer is made whole, and kept until its client has taken it. Promises: answers of more than
//! [`SMALL_BYTES`] keep at most [`KEPT_BYTES_MAX`] together, and those of one token at most half of the
//! rest; a client takes its answer part by part, so that a stalled client shows on its connection
//! ([`crate::seats`]). Streams, whose length is unknown, are passed on and keep nothing.

use crate::management::{ApiError, ErrorKind};
use crate::seats::{AtWork, Seat};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Frame, SizeHint};
use records::api_tokens::TokenHash;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

/// Longest answer that is not counted: all connections together keep a few MiB of them.
const SMALL_BYTES: u64 = 64 << 10;
/// Bytes of one part of an answer.
const PART_BYTES: usize = 64 << 10;
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// The extension of a response to a token's holder; `None`: the server's token file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GivenTo(pub Option<TokenHash>);

/// Bytes that the answers of a listener keep until they have left.
#[derive(Default)]
pub(crate) struct Leaving(Mutex<HashMap<Option<GivenTo>, u64>>);

/// Bytes that one answer keeps.
struct Share {
    of: Arc<Leaving>,
    given_to: Option<GivenTo>,
    bytes: u64,
}

impl Leaving {
    /// Counts an answer's bytes. `given_to`: `None` for a caller without a token. Returns `None` if there
    /// is no space for this length.
    fn keep(self: &Arc<Self>, given_to: Option<GivenTo>, bytes: u64) -> Option<Share> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = kept.get(&given_to).copied().unwrap_or_default();
        let of_others = kept.values().sum::<u64>() - own;
        if own + bytes > KEPT_BYTES_MAX.saturating_sub(of_others) / 2 {
            return None;
        }
        kept.insert(given_to, own + bytes);
        Some(Share { of: self.clone(), given_to, bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut kept = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = kept.get_mut(&self.given_to) {
            *own -= self.bytes;
            if *own == 0 {
                kept.remove(&self.given_to);
            }
        }
    }
}

/// An answer that leaves part by part.
struct Parts {
    body: Body,
    /// The rest of the body's last frame.
    rest: Bytes,
    work: Option<AtWork>,
    is_stream: bool,
    _share: Option<Share>,
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if !self.is_stream => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(PART_BYTES);
        if let Some(work) = &self.work {
            work.leaves(length, Instant::now());
        }
        let part = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(bytes) => SizeHint::with_exact(bytes + self.rest.len() as u64),
            None => self.body.size_hint(),
        }
    }
}

/// Carries out a request; the answer leaves within the module's bounds.
pub(crate) async fn in_parts(State(leaving): State<Arc<Leaving>>, request: Request, next: Next) -> Response {
    let work = request.extensions().get::<Arc<Seat>>().map(Seat::begin);
    let response = next.run(request).await;
    let length = response.body().size_hint().exact();
    let share = match length.filter(|bytes| *bytes > SMALL_BYTES) {
        Some(bytes) => {
            let given_to = response.extensions().get::<GivenTo>().copied();
            let Some(share) = leaving.keep(given_to, bytes) else {
                let why = "answers that were not taken keep all the memory there is for them: take these, or ask again in a minute";
                return ApiError::new(ErrorKind::Unavailable, why).into_response();
            };
            Some(share)
        }
        None => None,
    };
    let is_stream = length.is_none();
    response.map(|body| Body::new(Parts { body, rest: Bytes::new(), work, is_stream, _share: share }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_a_bounded_number_of_bytes_and_one_token_leaves_others_room() {
        let leaving = Arc::new(Leaving::default());
        let reader = Some(GivenTo(Some(TokenHash::of(b"reader"))));
        let administrator = Some(GivenTo(None));
        let bytes = KEPT_BYTES_MAX / 8;
        let mut kept: Vec<Share> = std::iter::from_fn(|| leaving.keep(reader, bytes)).collect();
        assert_eq!(kept.len(), 4, "half of all");
        kept.extend(std::iter::from_fn(|| leaving.keep(administrator, bytes)));
        assert_eq!(kept.len(), 6, "half of what is left");
        drop(kept);
        assert!(leaving.0.lock().unwrap().is_empty());
        assert!(leaving.keep(None, KEPT_BYTES_MAX / 2 + 1).is_none());
    }

    #[tokio::test]
    async fn a_long_answer_leaves_part_by_part_and_whole() {
        let whole = Bytes::from(vec![7; PART_BYTES * 2 + 9]);
        let mut parts = Parts {
            body: Body::from(whole.clone()),
            rest: Bytes::new(),
            work: None,
            is_stream: false,
            _share: None,
        };
        let mut lengths = Vec::new();
        while !parts.is_end_stream() {
            assert_eq!(parts.size_hint().exact(), Some((whole.len() - lengths.iter().sum::<usize>()) as u64));
            let frame = std::future::poll_fn(|context| Pin::new(&mut parts).poll_frame(context)).await;
            lengths.push(frame.unwrap().unwrap().into_data().unwrap().len());
        }
        assert_eq!(lengths, [PART_BYTES, PART_BYTES, 9]);
    }
}
