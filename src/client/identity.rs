//! Our own certificate, for servers that ask for one.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// A certificate with its chain and its private key.
#[derive(Clone)]
pub struct ClientIdentity(Arc<CertifiedKey>);

/// Why two files are no identity. Shows nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The certificates are unusable.
    #[error("it holds no PEM certificate that can be read")]
    Certificate,
    /// The key is unusable.
    #[error("it holds no PEM private key that can be used")]
    Key,
    /// Both are usable, but not together.
    #[error("it holds the key of another certificate")]
    Mismatch,
}

impl ClientIdentity {
    /// Reads a PEM chain, our own certificate first, and its PEM key.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|_| IdentityError::Certificate)?;
        if chain.is_empty() {
            return Err(IdentityError::Certificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::Key)?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider).map(|pair| Self(Arc::new(pair))).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => IdentityError::Mismatch,
            rustls::Error::InvalidCertificate(_) => IdentityError::Certificate,
            _ => IdentityError::Key,
        })
    }

    /// The pair, for a TLS configuration.
    #[must_use]
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientIdentity({} certificates)", self.0.cert.len())
    }
}
