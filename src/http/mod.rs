//! HTTP: own accept loop, routes of the three listeners, and the one place that maps errors to status codes.

mod activity;
mod connection;
mod listener;
mod serve;
mod stream;

pub use self::listener::{BindError, Bound, LocalAddr};
pub use self::serve::{ConnectionLimits, Drained, serve};
