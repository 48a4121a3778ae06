//! Answers that end with their token.
//!
//! Promises: a stream whose token was deleted, or has expired, sends nothing from its next event on.

use crate::peer::Shared;
use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use records::api_tokens::TokenHash;
use records::clock::unix_now_s;
use std::pin::Pin;
use std::task::{Context, Poll};

/// See the module.
pub(crate) struct Revocable {
    body: Body,
    management: Shared,
    token: TokenHash,
}

impl Revocable {
    pub fn new(body: Body, management: Shared, token: TokenHash) -> Self {
        Self { body, management, token }
    }
}

impl hyper::body::Body for Revocable {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() {
            return frame;
        }
        let known = self.management.token_of(self.token);
        if known.is_some_and(|token| !token.is_expired(unix_now_s())) {
            return frame;
        }
        // An error cuts the connection: a reader does not take a part for the whole.
        Poll::Ready(Some(Err(axum::Error::new(std::io::Error::other("the token was revoked")))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
