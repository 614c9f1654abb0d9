//! The options of a client, as JavaScript hands them in.

use napi_derive::napi;

use crate::store::{Access, Tls, TlsTexts};

/// The argument of `openClient`. TypeScript has checked it, except the URLs and certificates.
#[napi(object)]
pub struct ClientOptions {
    /// The store's URL, or those of the nodes of a quorum.
    pub stores: Vec<String>,
    /// The user, if the URL names none.
    pub username: Option<String>,
    /// The password, if the URL has none.
    pub password: Option<String>,
    /// The TLS settings, for a store that is reached over TLS.
    pub tls: Option<TlsOptions>,
    /// The user at the sentinels.
    pub sentinel_username: Option<String>,
    /// The password at the sentinels.
    pub sentinel_password: Option<String>,
    /// How many replicas must have a lease before it counts.
    pub min_replicas: u32,
    /// The prefix of each key at the store.
    pub prefix: String,
    /// The client's name, which an inspection of a lock shows.
    pub name: String,
    /// How long the JavaScript thread may leave a question unanswered before renewal stops, in ms.
    /// May be `Infinity`.
    pub max_stall: f64,
    /// How long the store may take to answer a request, in ms.
    pub store_timeout: f64,
    /// How often in a row a lease is handed on within the process while others wait elsewhere.
    pub hand_offs: u32,
    /// The slot whose records report the state of the store's servers, until the client is closed.
    pub watch: u32,
}

/// The TLS settings. Certificates and keys are in PEM.
#[napi(object)]
pub struct TlsOptions {
    /// Authorities to trust instead of the system's.
    pub ca: Vec<String>,
    /// The client's certificate.
    pub cert: Option<String>,
    /// The key of that certificate.
    pub key: Option<String>,
    /// The name that the server's certificate must be made for.
    pub servername: Option<String>,
}

impl ClientOptions {
    /// Takes the user, the password and the certificates out of the options. Fails if a certificate
    /// or a key is malformed.
    pub fn access(&mut self) -> Result<Access, String> {
        let tls = self.tls.take().map(|TlsOptions { ca, cert, key, servername }| {
            Tls::parse(&TlsTexts { ca, cert, key, servername })
        });
        Ok(Access {
            username: self.username.take(),
            password: self.password.take(),
            tls: tls.transpose()?,
            sentinel_username: self.sentinel_username.take(),
            sentinel_password: self.sentinel_password.take(),
            min_replicas: self.min_replicas,
        })
    }
}
