//! HTTP: own accept loop, routes of the three listeners, and the one place that maps errors to status codes.

mod activity;
mod admin;
mod answer;
mod at_once;
mod batch;
mod check;
mod connection;
mod context;
mod data;
mod failure;
mod health;
mod http2_frames;
mod key_request;
mod keys;
mod linger;
mod listener;
mod middleware;
mod observed;
mod options;
mod path;
mod problem;
mod reload;
mod seats;
mod serve;
mod status;
mod stream;
mod telemetry;
mod tokens;
mod unsent;

pub use self::admin::admin_router;
pub use self::at_once::AtOnce;
#[doc(hidden)]
pub use self::batch::{BatchFormat, try_batch};
pub use self::context::{HttpContext, HttpSettings, ServedKeyspace};
pub use self::data::data_service;
pub use self::listener::{BindError, Bound, LocalAddr};
pub use self::reload::{ConfigDesk, InForce, ReloadRequest, Reloaded};
pub use self::serve::{ConnectionLimits, Drained, serve, serve_at_once};
pub use self::telemetry::telemetry_router;
pub use self::tokens::{LiveTokens, Tokens};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
