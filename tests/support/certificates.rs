//! Makes certificates, and the settings of servers that use them. Each test makes new ones, so that
//! none of them expires.

// Each test crate that includes this file uses another part of it.
#![allow(dead_code)]

use std::path::PathBuf;

use leasehold::lease::Token;
use leasehold::store::{Access, Tls, TlsTexts};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority that signs certificates.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = params_of(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// Returns a certificate for `names`, valid from the first day of one year to that of the
    /// other.
    pub fn sign(&self, names: &[&str], (from, to): (i32, i32)) -> Pair {
        let mut params = params_of(names);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Returns a certificate that signs itself, made for `name`, as short guides to self-signing
    /// make one.
    pub fn of_itself(name: &str) -> Pair {
        let mut params = params_of(&[name]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Returns a certificate for a server on loopback.
    pub fn server(&self) -> Pair {
        self.sign(&["127.0.0.1", "localhost"], (2020, 2100))
    }

    /// Returns the settings of a client that trusts this authority and has no certificate.
    pub fn trusted(&self) -> TlsTexts {
        TlsTexts { ca: vec![self.pem.clone()], ..TlsTexts::default() }
    }

    /// Returns the settings of a client that trusts this authority and has the certificate `own`.
    pub fn trusted_by(&self, own: &Pair) -> TlsTexts {
        TlsTexts { cert: Some(own.cert.clone()), key: Some(own.key.clone()), ..self.trusted() }
    }
}

/// Returns parameters for `names`, with a unique subject: a certificate whose subject is the name
/// of its issuer counts as self-signed.
fn params_of(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, Token::random().to_string());
    params
}

pub fn access(texts: &TlsTexts) -> Access {
    Access { tls: Some(Tls::parse(texts).unwrap()), ..Access::default() }
}

/// Files for a server. Dropping the value deletes them.
pub struct Files(PathBuf);

impl Files {
    /// Writes the files of a server that has the certificate `own` and trusts clients that
    /// `clients` signed.
    pub fn of(own: &Pair, clients: &Authority) -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-tls-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in [("cert", &own.cert), ("key", &own.key), ("ca", &clients.pem)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Returns the names and values of the server's configuration. `auth` says whether the server
    /// requires certificates of its clients.
    pub fn settings(&self, auth: &str) -> Vec<(&'static str, String)> {
        vec![
            ("tls-cert-file", self.path("cert")),
            ("tls-key-file", self.path("key")),
            ("tls-ca-cert-file", self.path("ca")),
            ("tls-auth-clients", auth.into()),
        ]
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
