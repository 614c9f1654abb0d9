//! Reads the certificates and keys for TLS: the authorities that a client trusts, and its own
//! identity. Both are PEM texts.
//!
//! A server's certificate is always verified, and no setting switches that off: otherwise, an
//! attacker between client and server could grant locks. For a self-made certificate, users name
//! the authority that signed it.

mod certificate_names;
mod chain_verifier;
mod refusing_verifier;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use rustls_native_certs::load_native_certs;
use tokio::sync::{OnceCell, oneshot};
use tokio_rustls::rustls::client::{ClientConfig, ResolvesClientCert, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys, RootCertStore};

use super::own_thread::{self, Start};
use chain_verifier::ChainVerifier;
use refusing_verifier::RefusingVerifier;

pub use chain_verifier::ChainExcess;

/// The authorities that this machine trusts, once they have been read.
static SYSTEM: OnceCell<Arc<RootCertStore>> = OnceCell::const_new();
/// The provider needs only a C compiler to be built.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// The settings as texts. The store neither keeps nor shows them.
#[derive(Clone, Default)]
pub struct TlsTexts {
    /// Certificates of the authorities to trust, as PEM; each text has one or more. If it is empty,
    /// the client trusts the system's authorities.
    pub ca: Vec<String>,
    /// The client's own certificate, followed by those that lead to its authority, as PEM. Needs
    /// `key`.
    pub cert: Option<String>,
    /// The private key of `cert`, not encrypted: PEM of PKCS#8, PKCS#1 or SEC1.
    pub key: Option<String>,
    /// The name or IP address that the server's certificate must be made for. `None` stands for the
    /// host of the connection.
    pub servername: Option<String>,
}

/// The authorities to trust, and the client's own identity. The default trusts the system's
/// authorities, and has no identity.
///
/// Two values are equal if they were made from the same certificates, key and name. `Debug` shows
/// none of them.
#[derive(Clone, Default)]
pub struct Tls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The authorities to trust; `None` stands for the system's.
    roots: Option<Arc<RootCertStore>>,
    identity: Option<Arc<CertifiedKey>>,
    servername: Option<ServerName<'static>>,
    /// A keyed hash of these settings, which is valid in this process only.
    digest: u64,
    /// Made at the first use, because reading the system's authorities takes time.
    config: OnceCell<Arc<ClientConfig>>,
}

impl Tls {
    /// Reads the settings.
    ///
    /// # Errors
    /// Says which setting can't be used and why, without any part of a key.
    pub fn parse(texts: &TlsTexts) -> Result<Self, String> {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        if texts.ca.is_empty() && (&texts.cert, &texts.key, &texts.servername) == (&None, &None, &None) {
            return Ok(Self::default());
        }
        let mut authorities = Vec::new();
        for text in &texts.ca {
            authorities.extend(certificates("tls.ca", text)?);
        }
        let identity = match (&texts.cert, &texts.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((certificates("tls.cert", cert)?, private_key(key)?)),
            (Some(_), None) => return Err("tls.cert needs its private key as tls.key".into()),
            (None, Some(_)) => return Err("tls.key needs its certificate as tls.cert".into()),
        };
        let digest = {
            let known = identity.as_ref().map(|(chain, key)| (chain, key.secret_der()));
            KEY.hash_one((&authorities, known, &texts.servername))
        };
        let servername = texts.servername.clone().map(ServerName::try_from).transpose();
        Ok(Self(Arc::new(Inner {
            roots: if texts.ca.is_empty() { None } else { Some(Arc::new(roots(authorities)?)) },
            identity: identity.map(|(chain, key)| own(chain, key)).transpose()?,
            servername: servername.map_err(|_| "tls.servername must be a host name or an IP address")?,
            digest,
            config: OnceCell::new(),
        })))
    }

    /// Returns a number that is the same for two equal values. It is valid in this process only.
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// Returns true if the user named the authorities.
    pub fn has_own_authorities(&self) -> bool {
        self.0.roots.is_some()
    }

    /// Returns true if the client has a certificate of its own.
    pub fn has_identity(&self) -> bool {
        self.0.identity.is_some()
    }

    /// Returns the name that a server's certificate must be made for.
    ///
    /// # Errors
    /// Fails if a certificate can't contain `host`, and no other name was given.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        if let Some(name) = &self.0.servername {
            return Ok(name.clone());
        }
        // The part after % names a network interface of this machine.
        let host = host.split('%').next().unwrap_or_default();
        ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} can't be the name in a certificate; give that as tls.servername"))
    }

    /// Returns the configuration for a connection.
    ///
    /// # Errors
    /// Fails if this machine trusts no authority, and none was given.
    pub async fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let make = || async {
            let roots = match &self.0.roots {
                Some(roots) => roots.clone(),
                None => SYSTEM.get_or_try_init(|| system_roots(own_thread::start)).await?.clone(),
            };
            // By default, rustls uses this verifier alone.
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, PROVIDER.clone())
                .build()
                .map_err(|error| error.to_string())?;
            let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(ChainVerifier::around(verifier)));
            Ok(Arc::new(match &self.0.identity {
                None => builder.with_no_client_auth(),
                Some(own) => {
                    let resolver: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(own.clone()));
                    builder.with_client_cert_resolver(resolver)
                }
            }))
        };
        self.0.config.get_or_try_init(make).await.cloned()
    }

    /// Returns a configuration that trusts no server. A handshake with it shows whether the server
    /// speaks TLS, and never succeeds.
    ///
    /// # Errors
    /// Fails if the provider supports no version of TLS.
    pub fn config_that_trusts_nobody() -> Result<Arc<ClientConfig>, TlsError> {
        let schemes = PROVIDER.signature_verification_algorithms.supported_schemes();
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(RefusingVerifier { schemes }));
        Ok(Arc::new(builder.with_no_client_auth()))
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

async fn system_roots(start: Start) -> Result<Arc<RootCertStore>, String> {
    // Some systems have hundreds of files with authorities. A thread reads them, so that other
    // locks do not wait. If there is no room for a thread, other locks have to wait.
    let (sender, found) = oneshot::channel();
    let started = start(Box::new(move || drop(sender.send(load_native_certs()))));
    let found = match started {
        Ok(()) => found.await,
        Err(_) => Ok(load_native_certs()),
    };
    let found = found.map_err(|_| "reading the authorities that this system trusts failed".to_owned())?;
    let mut roots = RootCertStore::empty();
    // Most certificates that can't be read are old and unused. If a needed one is missing, the
    // connection fails with a clear error.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!(
            "this system trusts no certificate authority{why}; install its CA certificates (the package is mostly \
             called ca-certificates), or give the server's authority as tls.ca"
        ));
    }
    Ok(Arc::new(roots))
}

fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority)
            .map_err(|error| format!("tls.ca has a certificate that is malformed: {error}"))?;
    }
    Ok(roots)
}

/// Returns the certificates in `text`, at least one.
fn certificates(name: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Err(PemError::Base64Decode(_) | PemError::MissingSectionEnd { .. }) => {
            Err(format!("{name} has a certificate that is cut off or damaged"))
        }
        _ => Err(format!(
            "{name} must be the text of a certificate, with its -----BEGIN CERTIFICATE-----; not the name of a file"
        )),
    }
}

fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, String> {
    if text.contains("ENCRYPTED") {
        return Err("tls.key is encrypted: decrypt it before, as with `openssl pkey -in key.pem`".into());
    }
    // Do not pass on the parser's message, which may repeat parts of the key.
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        PemError::Base64Decode(_) | PemError::MissingSectionEnd { .. } => {
            "tls.key is cut off or damaged".to_owned()
        }
        _ => "tls.key must be the text of a private key, with its -----BEGIN PRIVATE KEY-----; not the name of a file"
            .to_owned(),
    })
}

fn own(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, String> {
    let own = CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|error| match error {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "tls.key is not the private key of tls.cert: the two don't belong together".to_owned()
        }
        TlsError::InvalidCertificate(error) => {
            format!("tls.cert has a certificate that is malformed: {error}")
        }
        _ => "tls.key is no private key that can be used: RSA of 2048 bits or more, ECDSA (P-256, P-384, P-521) or \
              Ed25519"
            .to_owned(),
    })?;
    Ok(Arc::new(own))
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
