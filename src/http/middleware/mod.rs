//! The tower layers around the handlers. Each has one concern and knows no other layer.
//!
//! All their services are always ready, as [`serve`](super::serve()) requires. They reject inside `call` with a problem
//! document.

mod access;
mod admission;
mod body_limit;
mod body_rate;
mod buffered;
mod catch_panic;
mod count;
mod deadline;
mod hosts;
mod omit_body;
#[cfg(test)]
mod tests;

pub(super) use self::access::AccessPolicy;
pub(super) use self::admission::AdmissionLayer;
pub(super) use self::body_limit::BodyLimit;
pub(super) use self::body_rate::SlowBody;
pub(super) use self::buffered::{BufferedLayer, Reserved, SMALL};
pub(super) use self::catch_panic::{CatchPanicLayer, internal_error};
pub(super) use self::count::CountLayer;
pub(super) use self::deadline::DeadlineLayer;
pub(super) use self::hosts::Hosts;
pub(super) use self::omit_body::OmitBodyLayer;
