//! Explains to users why connecting failed: the server can't be reached, the client does not trust
//! the server, or the server does not trust the client.

use std::io;

use tokio_rustls::rustls::{
    AlertDescription, CertificateError, Error as TlsError, InvalidMessage, OtherError,
};

use super::address::RedisAddress;
use super::fault::{self, MOST_SAID};
use crate::store::printable::printable;
use crate::store::{ChainExcess, StoreError, StoreErrorKind, Tls};

/// The most names of a certificate that messages show.
const MOST_NAMES: usize = 5;
/// The most characters of such a name that messages show.
const MOST_NAME: usize = 100;
/// Stands between two names.
const SEPARATOR: &str = ", ";
const UNUSABLE: &str = "its certificate can't be used; check it with openssl verify";
const DAY: u64 = 86_400;

/// Returns the error for a server that can't be reached because of `error`.
pub fn unreachable(address: &RedisAddress, error: &io::Error) -> StoreError {
    if let Some(said) = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>()) {
        return not_secure(address, said);
    }
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => (StoreErrorKind::Denied, "check the rights of the socket"),
        io::ErrorKind::ConnectionRefused => (StoreErrorKind::Unreachable, "is the server up?"),
        io::ErrorKind::NotFound => (StoreErrorKind::Unreachable, "is the server up, with this unix socket?"),
        io::ErrorKind::ResourceBusy => (
            StoreErrorKind::Unreachable,
            "allow more processes and threads to this user or container, or end some",
        ),
        _ => (StoreErrorKind::Unreachable, "check the host and the network"),
    };
    StoreError::not_done(kind, format!("{address} can't be reached ({error}): {advice}"))
}

/// Returns the error for a server that ended the connection during the TLS handshake.
pub fn broken_off(address: &RedisAddress, error: &io::Error) -> StoreError {
    let message = format!(
        "{address} can't be reached ({error}): it hung up instead of beginning TLS; does that port speak TLS, and is \
         the server up?"
    );
    StoreError::not_done(StoreErrorKind::Unreachable, message)
}

/// Returns the error for a server that does not speak TLS.
pub fn no_tls(address: &RedisAddress) -> StoreError {
    let message = format!(
        "{address} speaks no TLS: set tls-port there (in a cluster also tls-cluster yes, without which its nodes name \
         their plain ports), or write redis:// if the way to it needs no protection"
    );
    StoreError::not_done(StoreErrorKind::Unsupported, message)
}

/// Returns the error for a server that speaks only TLS.
pub fn wants_tls(address: &RedisAddress) -> StoreError {
    let message = format!(
        "{address} speaks TLS: write rediss:// instead of redis:// (rediss-sentinel:// for Sentinel, \
         rediss-cluster:// for a cluster)"
    );
    StoreError::not_done(StoreErrorKind::Unsupported, message)
}

/// Returns the error for a TLS handshake that failed with `error`.
fn not_secure(address: &RedisAddress, error: &TlsError) -> StoreError {
    let tls = address.tls.clone().unwrap_or_default();
    let (kind, why) = match error {
        TlsError::InvalidCertificate(error) => (StoreErrorKind::Untrusted, untrusted(address, &tls, error)),
        TlsError::NoCertificatesPresented => {
            (StoreErrorKind::Untrusted, "it shows no certificate".to_owned())
        }
        TlsError::AlertReceived(alert) => refused(&tls, *alert),
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => return no_tls(address),
        TlsError::PeerIncompatible(_) => {
            (StoreErrorKind::Unsupported, "TLS 1.2 or 1.3 is needed, with a modern cipher".into())
        }
        _ => {
            let text = error.to_string();
            let said = fault::without_secrets(address, &text, &printable(&text, MOST_SAID)).to_owned();
            (StoreErrorKind::Unsupported, format!("what it says is no TLS that we understand ({said})"))
        }
    };
    let what = match kind {
        StoreErrorKind::Untrusted => "can't be trusted",
        StoreErrorKind::Denied => "does not trust us",
        _ => "can't be reached over TLS",
    };
    StoreError::not_done(kind, format!("{address} {what}: {why}"))
}

/// Says why the client does not trust the server's certificate.
fn untrusted(address: &RedisAddress, tls: &Tls, error: &CertificateError) -> String {
    if let Some(excess) = ChainExcess::in_error(error) {
        return format!("{excess}; let it send only those that lead to its authority");
    }
    match error {
        CertificateError::BadSignature => {
            "its certificate is not signed by the authority of that name that is trusted here; was that authority made again?".into()
        }
        CertificateError::UnknownIssuer if tls.has_own_authorities() => {
            "none of the authorities in tls.ca signed its certificate".into()
        }
        CertificateError::UnknownIssuer => "its certificate is of an unknown issuer, whom this system does not \
                                            trust; give the certificate of that authority as tls.ca"
            .into(),
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = span(time.as_secs().saturating_sub(not_after.as_secs()));
            format!("its certificate expired {ago} ago (or the clock here is wrong); renew it there")
        }
        CertificateError::Expired => "its certificate has expired; renew it there".into(),
        CertificateError::NotValidYetContext { time, not_before } => {
            let left = span(not_before.as_secs().saturating_sub(time.as_secs()));
            format!("its certificate is not valid yet, but in {left}; is the clock here right?")
        }
        CertificateError::NotValidYet => {
            "its certificate is not valid yet; is the clock here right?".into()
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "its certificate is made for another name: for {}, not for {}; connect to that, or give it as \
             tls.servername",
            names(address, presented),
            if address.hides_host { "the host".into() } else { expected.to_str() }
        ),
        CertificateError::Revoked => "its certificate was revoked".into(),
        // The error's own text is never shown: it repeats texts and numbers of the certificate.
        other => unusable(other).into(),
    }
}

/// Says why the client can't use the server's certificate, without any text of it.
fn unusable(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::BadEncoding => "its certificate is malformed; make a new one",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is made for another purpose (extendedKeyUsage), not for servers; make one with serverAuth"
        }
        CertificateError::UnhandledCriticalExtension => {
            "its certificate has a critical extension that the client does not know; make one without it"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate has a kind of key or signature that the client does not accept, such as SHA-1; make it \
             with RSA of at least 2048 bits or with P-256, and SHA-256"
        }
        CertificateError::Other(OtherError(reason)) => match format!("{reason:?}").as_str() {
            "CaUsedAsEndEntity" => {
                "its certificate is that of an authority itself (CA:TRUE), not one made for a server; make it one \
                 that is signed by that authority"
            }
            "NameConstraintViolation" => {
                "its authority may not make certificates for these names (nameConstraints); use another authority"
            }
            _ => UNUSABLE,
        },
        _ => UNUSABLE,
    }
}

/// Says why the server ended the TLS handshake.
fn refused(tls: &Tls, alert: AlertDescription) -> (StoreErrorKind, String) {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            (StoreErrorKind::Denied, "it wants a client certificate; give one as tls.cert and tls.key".into())
        }
        Alert::HandshakeFailure if !tls.has_identity() => (
            StoreErrorKind::Denied,
            "it broke off; most likely it wants a client certificate: give one as tls.cert and tls.key".into(),
        ),
        Alert::CertificateExpired if tls.has_identity() => {
            (StoreErrorKind::Denied, "our client certificate (tls.cert) has expired".into())
        }
        Alert::UnknownCA if tls.has_identity() => (
            StoreErrorKind::Denied,
            "our client certificate (tls.cert) was refused: it is not signed by an authority that the server \
             trusts (its tls-ca-cert-file)"
                .into(),
        ),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::AccessDenied
        | Alert::DecryptError
        | Alert::HandshakeFailure
            if tls.has_identity() =>
        {
            (StoreErrorKind::Denied, format!("our client certificate (tls.cert) was refused ({alert:?})"))
        }
        Alert::UnrecognisedName => {
            (StoreErrorKind::Untrusted, "it knows nobody of that name; check the host and tls.servername".into())
        }
        Alert::ProtocolVersion => (StoreErrorKind::Unsupported, "TLS 1.2 or 1.3 is needed".into()),
        other => (StoreErrorKind::Unsupported, format!("it broke off the handshake ({other:?})")),
    }
}

/// Returns the names that a certificate is made for, in plain form: `DnsName("a")` becomes a.
fn names(address: &RedisAddress, presented: &[String]) -> String {
    if presented.is_empty() {
        return "none (it has no subjectAltName)".into();
    }
    let plain = |name: &'_ String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        let inner = inner.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(inner);
        // The debug output has a backslash before each quotation mark and backslash.
        inner.replace("\\\"", "\"").replace("\\\\", "\\")
    };
    let plain: Vec<String> = presented.iter().take(MOST_NAMES).map(plain).collect();
    let mut shown = plain.iter().map(|name| printable(name, MOST_NAME)).collect::<Vec<_>>().join(SEPARATOR);
    if presented.len() > MOST_NAMES {
        shown.push_str(", …");
    }
    // Search the names together: the password may lie across two of them.
    fault::without_secrets(address, &plain.join(SEPARATOR), &shown).to_owned()
}

/// The largest number in a time span that messages show. A longer one may be the password.
const MOST_SHOWN: u64 = 99_999;

/// Returns a time in words, such as `2 days`.
fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        DAY.. => (seconds / DAY, "day"),
        3600.. => (seconds / 3600, "hour"),
        60.. => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    // The server chooses the date.
    if count > MOST_SHOWN {
        return format!("more than {MOST_SHOWN} {unit}s");
    }
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
#[path = "connect_error_tests.rs"]
mod tests;
