//! HTTP: the accept loop, the routes of the three listeners, and the only place that maps errors to status codes.
//!
//! The accept loop is our own, because `axum::serve` has no header timeout, no connection cap and no drain deadline.

mod accept_backoff;
mod activity;
mod admin;
mod admin_body;
mod answer;
mod batch;
mod check;
mod connection;
mod context;
mod data;
mod failure;
mod fast_path;
mod health;
mod http2_frames;
mod key_request;
mod keys;
mod limits;
mod lingering_close;
mod listener;
mod middleware;
mod options;
mod path;
mod pending_responses;
mod problem;
mod reload;
mod reload_handle;
mod serve;
mod server_state;
mod slot;
mod slots;
mod status;
mod stream;
mod telemetry;
mod tokens;
mod tracked_service;
mod tracked_stream;

pub use self::admin::admin_router;
#[doc(hidden)]
pub use self::batch::{BatchFormat, try_batch};
pub use self::context::{HttpContext, HttpSettings, ServedKeyspace};
pub use self::data::data_service;
pub use self::fast_path::FastResponder;
pub use self::limits::ConnectionLimits;
pub use self::listener::{BindError, BoundListener, LocalAddr};
pub use self::reload_handle::{ActiveConfig, ReloadHandle, ReloadReport, ReloadRequest};
pub use self::serve::{Drained, serve, serve_with_fast_path};
pub use self::telemetry::telemetry_router;
pub use self::tokens::{LiveTokens, Tokens};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
