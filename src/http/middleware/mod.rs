//! What surrounds the handlers, as tower layers: each knows one concern and no other layer.
//!
//! All of their services are always ready, as [`serve`](super::serve()) demands; they refuse inside `call`, by a problem document.

mod access;
mod body_limit;
mod body_rate;
mod buffered;
mod catch_panic;
mod count;
mod deadline;
mod host;
mod hosts;
mod omit_body;
#[cfg(test)]
mod tests;

pub(super) use self::access::{AccessPolicy, RequireLayer};
pub(super) use self::body_limit::BodyLimitLayer;
pub(super) use self::body_rate::SlowBody;
pub(super) use self::buffered::{BufferedLayer, Reserved, SMALL};
pub(super) use self::catch_panic::{CatchPanicLayer, internal_error};
pub(super) use self::count::CountLayer;
pub(super) use self::deadline::DeadlineLayer;
pub(super) use self::host::HostLayer;
pub(super) use self::hosts::Hosts;
pub(super) use self::omit_body::OmitBodyLayer;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::Response;
use bytes::Bytes;
use pin_project_lite::pin_project;

use super::problem::Problem;

pin_project! {
    /// Passes on, or answers by a problem without having asked the inner service.
    #[derive(Debug)]
    #[project = RefusableProj]
    pub(super) enum RefusableFuture<F> {
        /// Asked.
        Passed { #[pin] inner: F },
        /// Refused.
        Refused { problem: Option<Problem> },
    }
}

impl<F, B> Future for RefusableFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: From<Bytes>,
{
    type Output = F::Output;

    #[allow(clippy::expect_used, reason = "a future is not polled after it is ready")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            RefusableProj::Passed { inner } => Poll::Ready(ready!(inner.poll(cx))),
            RefusableProj::Refused { problem } => {
                Poll::Ready(Ok(problem.take().expect("polled after it was ready").response()))
            }
        }
    }
}
