//! Trusted certificate authorities.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{CertificateError, RootCertStore};

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
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| TrustError::Unreadable(explain_pem(&error)))?;
            roots.add(certificate).map_err(|error| TrustError::Unreadable(explain_x509(&error)))?;
        }
        if roots.is_empty() { Err(TrustError::Empty) } else { Ok(Self(Arc::new(roots))) }
    }

    /// The authorities.
    #[must_use]
    pub fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

/// The crate's own text shows lines as lists of numbers.
fn explain_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("its last line, -----END {}-----, is missing", String::from_utf8_lossy(end_marker).escape_debug())
        }
        pem::Error::IllegalSectionStart { .. } => "its line -----BEGIN …----- is malformed".into(),
        pem::Error::Base64Decode(_) => "its lines are not base64".into(),
        other => other.to_string(),
    }
}

fn explain_x509(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => "its content is not X.509".into(),
        other => other.to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_readable() {
        for (pem, why) in [
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "its last line, -----END CERTIFICATE-----, is missing"),
            ("-----BEGIN CERTIFICATE--\nAAAA\n", "its line -----BEGIN …----- is malformed"),
            ("-----BEGIN CERTIFICATE-----\nA!A\n-----END CERTIFICATE-----\n", "its lines are not base64"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "its content is not X.509"),
        ] {
            assert_eq!(Trust::from_pem(pem.as_bytes()), Err(TrustError::Unreadable(why.into())), "{pem}");
        }
        assert_eq!(Trust::from_pem(b"hunter2"), Err(TrustError::Empty));
    }
}
