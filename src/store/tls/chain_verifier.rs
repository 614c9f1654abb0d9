//! Verifies the certificates of servers, and refuses those whose verification would take long.
//!
//! rustls searches the certificates that a server sends for a path to a trusted authority. If many
//! of them have the same name, it tries them in all orders: for 160 small certificates, that keeps
//! the engine's thread busy for 20 s. It also compares names with name constraints, in pairs. So
//! [`ChainVerifier`] counts the certificates and these pairs first.

use std::collections::HashSet;
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, OtherError, RootCertStore, SignatureScheme,
};

use super::certificate_names::{count_constraints, count_names};

/// The most certificates that a server may send in addition to its own. rustls follows at most six.
/// If this is larger, the search takes longer; if it is smaller, servers that also send
/// cross-signed authorities are refused.
const MOST_AUTHORITIES: usize = 8;
/// How many of these certificates may repeat the name of another. A cross-signed authority has two
/// certificates with one name. If this is larger, the search takes longer: each repeated name may
/// double the paths, and each path has up to seven signatures to check. If it is smaller, servers
/// that send both certificates are refused.
const MOST_SAME_NAMES: usize = 1;
/// The most bytes of all certificates together. If this is larger, each session ticket copies more;
/// if it is smaller, servers with hundreds of names are refused.
const MOST_BYTES: usize = 32 << 10;

/// The most comparisons of names with the name constraints of the certificates that a server sends.
/// rustls allows 250 000, which take up to 0.4 s in a build without optimization. If this is
/// larger, a handshake takes longer; if it is smaller, servers with hundreds of names are refused
/// if their authority has a hundred constraints.
const MOST_COMPARISONS: usize = 20_000;

/// Says why the client refuses the certificates of a server before it searches them.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChainExcess {
    /// The server sends too many certificates.
    #[error("it sends {0} certificates in addition to its own, and at most {MOST_AUTHORITIES} are allowed")]
    Authorities(usize),
    /// Too many certificates repeat the name of another.
    #[error(
        "{0} of the certificates that it sends repeat the name of another, and at most {MOST_SAME_NAMES} may"
    )]
    SameNames(usize),
    /// The certificates are too long.
    #[error("the certificates that it sends have {} kB, and at most {} kB are allowed", .0.div_ceil(1 << 10), MOST_BYTES >> 10)]
    Bytes(usize),
    /// Comparing the names in the certificates with the name constraints would take too long.
    #[error(
        "comparing the names in the certificates that it sends with their nameConstraints takes more than the \
         {MOST_COMPARISONS} steps that are allowed"
    )]
    Comparisons(usize),
}

impl ChainExcess {
    /// Returns the limit that `certificates` exceed: a server's own certificate, and `authorities`.
    fn of(own: &CertificateDer<'_>, authorities: &[CertificateDer<'_>]) -> Option<Self> {
        if authorities.len() > MOST_AUTHORITIES {
            return Some(Self::Authorities(authorities.len()));
        }
        let bytes = own.len() + authorities.iter().map(|authority| authority.len()).sum::<usize>();
        if bytes > MOST_BYTES {
            return Some(Self::Bytes(bytes));
        }
        // `RootCertStore` reads more kinds of certificates than the search, which skips those that
        // it can't read.
        let mut readable = RootCertStore::empty();
        readable.add_parsable_certificates(authorities.iter().cloned());
        let names: HashSet<&[u8]> =
            readable.roots.iter().map(|authority| authority.subject.as_ref()).collect();
        let same = readable.len() - names.len();
        if same > MOST_SAME_NAMES {
            return Some(Self::SameNames(same));
        }
        let constraints = readable.roots.iter().filter_map(|authority| authority.name_constraints.as_ref());
        let constraints: usize = constraints.map(|constraints| count_constraints(constraints)).sum();
        if constraints == 0 {
            return None;
        }
        // The name of a certificate's owner (subject) counts, too.
        let names = |certificate: &CertificateDer<'_>| count_names(certificate) + 1;
        let names = names(own) + authorities.iter().map(names).sum::<usize>();
        let comparisons = constraints.saturating_mul(names);
        (comparisons > MOST_COMPARISONS).then_some(Self::Comparisons(comparisons))
    }

    /// Returns the excess that caused `error`, if one did.
    pub fn in_error(error: &CertificateError) -> Option<&Self> {
        match error {
            CertificateError::Other(OtherError(reason)) => reason.downcast_ref(),
            _ => None,
        }
    }
}

/// Verifies the certificates of servers, unless they exceed a limit.
#[derive(Debug)]
pub struct ChainVerifier(Arc<WebPkiServerVerifier>);

impl ChainVerifier {
    /// Returns a verifier that lets `verifier` search for a path.
    pub fn around(verifier: Arc<WebPkiServerVerifier>) -> Self {
        Self(verifier)
    }
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        authorities: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(excess) = ChainExcess::of(own, authorities) {
            return Err(CertificateError::Other(OtherError(Arc::new(excess))).into());
        }
        self.0.verify_server_cert(own, authorities, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
#[path = "chain_verifier_tests.rs"]
mod tests;
