//! The process's connection to Redis: [`RedisLink`], how our keys there are called, and which server's data one talks to. Cache and delta log go over it.

mod clock;
mod identity;
mod link;
mod names;
mod place;
mod replicas;
mod session;
mod trouble;

pub use self::identity::{LogBirth, LogIdentity};
pub(crate) use self::link::Call;
pub use self::link::RedisLink;
pub(crate) use self::names::NamesByKey;
pub use self::replicas::Replicas;
pub use self::trouble::{LinkError, Unreplicated};
