use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::{ExtendedKeyPurpose, OtherError};

use super::*;
use crate::store::Access;

/// Returns the message of a store with that password if a certificate is refused with `error`.
fn message(password: &str, error: CertificateError) -> String {
    let access = Access { password: Some(password.into()), ..Access::default() };
    let address = RedisAddress::parse("rediss://host", &access).unwrap();
    not_secure(&address, &TlsError::InvalidCertificate(error)).message.to_string()
}

/// Returns the error of a certificate that is made for `presented`.
fn for_names(presented: &[&str]) -> CertificateError {
    CertificateError::NotValidForNameContext {
        expected: ServerName::try_from("host").unwrap(),
        presented: presented.iter().map(|name| format!("DnsName({name:?})")).collect(),
    }
}

#[test]
fn no_text_or_number_of_a_refused_certificate_is_shown() {
    let other = |text: &str| {
        CertificateError::Other(OtherError(Arc::from(Box::<dyn Error + Send + Sync>::from(text))))
    };
    let numbers = vec![1, 3, 31_415_926];
    for error in [
        CertificateError::InvalidPurposeContext {
            required: ExtendedKeyPurpose::ServerAuth,
            presented: vec![ExtendedKeyPurpose::Other(numbers); 2_000],
        },
        CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: vec![31, 41, 59, 26],
            supported_algorithms: vec![],
        },
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![31, 41, 59, 26],
            public_key_algorithm_id: vec![31, 41, 59, 26],
        },
        other("31415926"),
        other(&"31415926\n".repeat(10_000)),
    ] {
        let message = message("S3cr3t-word", error);
        assert!(message.len() < 300, "{} bytes", message.len());
        assert!(!message.contains("31") && !message.contains("0x"), "{message}");
    }
}

#[test]
fn a_password_across_two_names_of_a_certificate_is_not_shown() {
    let shown = message("S3cr3t, w0rd", for_names(&["a", "S3cr3t", "w0rd", "b"]));
    assert!(shown.contains("for a text that contains the password, not for host"), "{shown}");
    let shown = message("S3cr3t-word", for_names(&["a", "b", "c", "d", "e", "f"]));
    assert!(shown.contains("for a, b, c, d, e, …, not for host"), "{shown}");
}

#[test]
fn a_password_with_quotation_marks_is_not_shown_as_a_name() {
    let shown = message("\"S3cr3t-word\"", for_names(&["\"S3cr3t-word\""]));
    assert!(shown.contains("for a text that contains the password"), "{shown}");
}

#[test]
fn no_long_number_of_days_is_shown() {
    let days = |days: u64| {
        let [time, not_before] = [0, days * DAY].map(|s| UnixTime::since_unix_epoch(Duration::from_secs(s)));
        message("S3cr3t-word", CertificateError::NotValidYetContext { time, not_before })
    };
    assert!(days(99_999).contains("but in 99999 days;"));
    assert!(days(123_456).contains("but in more than 99999 days;"));
}
