//! HTTP client of backends and key sources. Knows URLs, headers and bytes, but neither keys nor configuration.
//!
//! One [`Client`] speaks HTTP/1.1 to one origin. It follows no redirects, uses no proxy, asks for no compression, and
//! accepts only answers that it can prove complete.

mod answer;
mod connect;
mod error;
mod headers;
mod identity;
mod send;
mod trust;
mod url;

pub use self::answer::ClientResponse;
pub use self::error::ClientError;
pub use self::headers::{HeaderError, header_lines, header_map};
pub use self::identity::{ClientIdentity, IdentityError};
pub use self::send::Client;
pub use self::trust::{Trust, TrustError};
pub use self::url::{Origin, Url, UrlError, UrlTemplate};
