//! The process's connection to Redis: [`RedisLink`], the names of our keys there, and the identity of the server's
//! data. Cache and delta log use it.

mod call;
mod clock;
mod connection;
mod error;
mod files;
mod identity;
mod link;
mod link_log;
mod names;
mod place;
mod replicas;
mod secret;
mod session;
mod tls;

pub(crate) use self::call::Call;
pub(crate) use self::connection::{Connection, Dialer, ServerKind};
pub(crate) use self::error::ConnectError;
pub use self::error::{LinkError, Unreplicated};
pub use self::identity::{LogBirth, LogIdentity};
pub use self::link::RedisLink;
pub(crate) use self::names::NamesByKey;
pub use self::replicas::Replicas;
