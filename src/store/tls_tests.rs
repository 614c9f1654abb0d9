use rcgen::{CertifiedKey as Made, generate_simple_self_signed};

use super::*;

fn pair() -> (String, String) {
    let Made { cert, signing_key } = generate_simple_self_signed(["redis.example".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

fn refused(texts: TlsTexts) -> String {
    let message = Tls::parse(&texts).expect_err("the settings must be refused");
    for secret in [texts.key, texts.cert].into_iter().flatten() {
        assert!(!secret.lines().any(|line| line.len() > 20 && message.contains(line)), "{message}");
    }
    message
}

#[test]
fn certificates_and_keys_are_read() {
    let (ca, _) = pair();
    let (cert, key) = pair();
    let texts = TlsTexts {
        // One text may have many certificates, and other lines between them.
        ca: vec![format!("# ours\n{ca}\n{ca}"), ca.clone()],
        cert: Some(cert),
        key: Some(key),
        servername: Some("redis.example".into()),
    };
    let tls = Tls::parse(&texts).unwrap();
    assert!(tls.has_own_authorities() && tls.has_identity());
    assert_eq!(tls.server_name("10.0.0.1").unwrap(), ServerName::try_from("redis.example").unwrap());
    let none = Tls::parse(&TlsTexts::default()).unwrap();
    assert!(!none.has_own_authorities() && !none.has_identity());
}

#[test]
fn the_name_is_that_of_the_host_unless_another_is_given() {
    let tls = Tls::default();
    for host in ["redis.example", "my_redis", "10.0.0.1", "::1"] {
        assert_eq!(tls.server_name(host).unwrap(), ServerName::try_from(host).unwrap());
    }
    assert_eq!(tls.server_name("fe80::1%eth0").unwrap(), ServerName::try_from("fe80::1").unwrap());
    let message = tls.server_name("a..b").unwrap_err();
    assert!(message.contains("tls.servername"), "{message}");
}

#[test]
fn wrong_settings_are_refused_with_an_error_that_does_not_show_the_key() {
    let (cert, key) = pair();
    let (_, other) = pair();
    let with = |cert: &str, key: &str| TlsTexts {
        cert: Some(cert.into()),
        key: Some(key.into()),
        ..TlsTexts::default()
    };
    let ca = |text: &str| TlsTexts { ca: vec![text.into()], ..TlsTexts::default() };
    let half = &key[..key.len() / 2];
    for (texts, said) in [
        (TlsTexts { cert: Some(cert.clone()), ..TlsTexts::default() }, "needs its private key as tls.key"),
        (TlsTexts { key: Some(key.clone()), ..TlsTexts::default() }, "needs its certificate as tls.cert"),
        (with(&cert, &other), "don't belong together"),
        (with(&cert, half), "tls.key is cut off"),
        (with(&cert, "/etc/redis.key"), "not the name of a file"),
        (with(&cert, &cert), "tls.key must be the text of a private key"),
        (with("/etc/redis.crt", &key), "tls.cert must be the text of a certificate"),
        (with(&cert[..cert.len() / 2], &key), "tls.cert has a certificate that is cut off"),
        (
            with(&cert, "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"),
            "no private key that can",
        ),
        (
            with(
                &cert,
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGVsbG8=\n-----END ENCRYPTED PRIVATE KEY-----\n",
            ),
            "is encrypted",
        ),
        (ca("/etc/ca.crt"), "tls.ca must be the text"),
        (ca(""), "tls.ca must be the text"),
        (ca(&key), "tls.ca must be the text"),
        (ca("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"), "malformed"),
        (TlsTexts { servername: Some("a b".into()), ..TlsTexts::default() }, "tls.servername"),
    ] {
        let error = refused(texts);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn different_settings_are_not_equal() {
    let (cert, key) = pair();
    let (other, other_key) = pair();
    let own = |cert: &str, key: &str| TlsTexts {
        cert: Some(cert.into()),
        key: Some(key.into()),
        ..TlsTexts::default()
    };
    let all = [
        TlsTexts::default(),
        TlsTexts { ca: vec![cert.clone()], ..TlsTexts::default() },
        TlsTexts { ca: vec![other.clone()], ..TlsTexts::default() },
        own(&cert, &key),
        own(&other, &other_key),
        TlsTexts { servername: Some("a".into()), ..TlsTexts::default() },
    ];
    let parsed: Vec<_> = all.iter().map(|texts| Tls::parse(texts).unwrap()).collect();
    for (i, one) in parsed.iter().enumerate() {
        assert_eq!(*one, Tls::parse(&all[i]).unwrap());
        assert!(parsed[i + 1..].iter().all(|other| other != one), "{i}");
    }
}

#[test]
fn without_room_for_a_thread_the_systems_authorities_are_read_all_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let roots = |start| runtime.block_on(system_roots(start)).map(|roots| roots.len());
    assert_eq!(roots(|_| Err(std::io::ErrorKind::WouldBlock.into())), roots(own_thread::start));
}
