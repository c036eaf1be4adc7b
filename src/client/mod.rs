//! HTTP requests of ours: what backend and key source share. Knows URLs, headers and bytes, but neither keys nor configuration.
//!
//! One [`Client`] speaks HTTP/1.1 to one origin. It follows no redirects, uses no proxy, asks for no compression, and takes nothing for an answer
//! that it can't tell to be whole.

mod answer;
mod connect;
mod error;
mod headers;
mod pool;
mod trust;
mod url;

pub use self::answer::Answer;
pub use self::error::ClientError;
pub use self::headers::{HeaderError, header_lines, header_map};
pub use self::pool::Client;
pub use self::trust::{Trust, TrustError};
pub use self::url::{Origin, Url, UrlError, UrlTemplate};
