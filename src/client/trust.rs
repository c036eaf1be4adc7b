//! Trusted certificate authorities.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Configured certificate authorities, which replace the system's.
#[derive(Clone)]
pub struct Trust(Arc<RootCertStore>);

/// Why a file has no usable authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// No certificate in it.
    #[error("holds no PEM certificate")]
    Empty,
    /// Not PEM, or not X.509.
    #[error("holds a certificate that can't be read: {0}")]
    Unreadable(String),
}

impl Trust {
    /// Reads PEM certificates.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, TrustError> {
        let unreadable = |error: &dyn fmt::Display| TrustError::Unreadable(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.map_err(|error| unreadable(&error))?).map_err(|error| unreadable(&error))?;
        }
        if roots.is_empty() { Err(TrustError::Empty) } else { Ok(Self(Arc::new(roots))) }
    }

    /// The authorities.
    #[must_use]
    pub fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        self.0.roots == other.0.roots
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust({} certificates)", self.0.len())
    }
}
