use futures_util::FutureExt;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, GeneralSubtree, IsCa, Issuer, KeyPair, NameConstraints,
};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::*;
use crate::store::tls::{PROVIDER, Tls, TlsTexts};

/// An authority with a key of its own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(["redis.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Makes an authority of that name. `above` signs its certificate; without `above`, the authority
/// signs it.
fn authority(name: &str, above: Option<&Authority>) -> Authority {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let made = match above {
        Some(above) => params.signed_by(&key, &above.issuer),
        None => params.self_signed(&key),
    };
    let made = made.unwrap();
    Authority { certificate: made.der().clone(), pem: made.pem(), issuer: Issuer::new(params, key) }
}

/// Shakes hands with a server that has a certificate from `issuer`, and sends those of `others`
/// with it. Returns the client's error.
fn shake_hands(
    client: &Arc<ClientConfig>,
    issuer: &Authority,
    others: &[&Authority],
) -> Result<(), TlsError> {
    let key = KeyPair::generate().unwrap();
    let leaf = params("server").signed_by(&key, &issuer.issuer).unwrap();
    let chain = [leaf.der().clone()].into_iter().chain(others.iter().map(|other| other.certificate.clone()));
    let server = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let mut client =
        ClientConnection::new(client.clone(), ServerName::try_from("redis.example").unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() {
        let mut said = Vec::new();
        client.write_tls(&mut said).unwrap();
        let mut said = said.as_slice();
        while !said.is_empty() {
            server.read_tls(&mut said).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut said = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut said).unwrap();
        }
        let mut said = said.as_slice();
        while !said.is_empty() {
            client.read_tls(&mut said).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

/// Returns the configuration of a client that trusts `root`.
fn trusting(root: &Authority) -> Arc<ClientConfig> {
    let tls = Tls::parse(&TlsTexts { ca: vec![root.pem.clone()], ..TlsTexts::default() }).unwrap();
    tls.config().now_or_never().unwrap().unwrap()
}

/// Makes authorities of these names. Each one signs the next one, and no client trusts the first
/// one.
fn untrusted(names: &[String]) -> Vec<Authority> {
    let mut all: Vec<Authority> = Vec::new();
    for name in names {
        all.push(authority(name, all.last()));
    }
    all
}

/// Returns the client's error for a server that sends certificates of authorities with these names.
fn error_for(names: &[String]) -> TlsError {
    let authorities = untrusted(names);
    let client = trusting(&authority("root", None));
    shake_hands(&client, authorities.last().unwrap(), &authorities.iter().collect::<Vec<_>>())
        .expect_err("nobody trusts these authorities")
}

fn excess_in(error: &TlsError) -> Option<&ChainExcess> {
    match error {
        TlsError::InvalidCertificate(error) => ChainExcess::in_error(error),
        _ => None,
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("authority {i}")).collect()
}

const UNKNOWN: TlsError = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);

#[test]
fn certificates_that_lead_to_a_trusted_authority_are_trusted() {
    let root = authority("root", None);
    let cross = authority("between", Some(&authority("another root", None)));
    let between = authority("between", Some(&root));
    let issuer = authority("issuer", Some(&between));
    let client = trusting(&root);
    let sent = [&issuer, &cross, &between, &root];
    assert_eq!(shake_hands(&client, &issuer, &sent), Ok(()));
    assert_eq!(shake_hands(&client, &issuer, &sent[..2]), Err(UNKNOWN));
}

#[test]
fn too_many_certificates_are_refused() {
    assert_eq!(excess_in(&error_for(&numbered(MOST_AUTHORITIES))), None);
    let error = error_for(&numbered(MOST_AUTHORITIES + 1));
    assert_eq!(excess_in(&error), Some(&ChainExcess::Authorities(MOST_AUTHORITIES + 1)), "{error}");
}

#[test]
fn certificates_of_several_authorities_with_the_same_name_are_refused() {
    for (names, same) in [("aab", 0), ("aabb", 2), ("aaa", 2)] {
        let names: Vec<_> = names.chars().map(String::from).collect();
        let error = error_for(&names);
        let excess = (same > 0).then_some(ChainExcess::SameNames(same));
        assert_eq!(excess_in(&error), excess.as_ref(), "{names:?}: {error}");
    }
}

#[test]
fn long_certificates_are_refused() {
    let mut names = numbered(3);
    names[1] = "x".repeat(MOST_BYTES / 2);
    let error = error_for(&names);
    assert!(matches!(excess_in(&error), Some(ChainExcess::Bytes(MOST_BYTES..))), "{error}");
    names[1].truncate(MOST_BYTES / 4);
    assert_eq!(excess_in(&error_for(&names)), None);
}

/// Makes an authority with this number of name constraints, one of which permits `redis.example`.
fn constrained(above: &Authority, count: usize) -> Authority {
    let mut params = params("constrained");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = |i| GeneralSubtree::DnsName(format!("x{i}.example.com"));
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("redis.example".into())],
        excluded_subtrees: (1..count).map(name).collect(),
    });
    let key = KeyPair::generate().unwrap();
    let made = params.signed_by(&key, &above.issuer).unwrap();
    Authority { certificate: made.der().clone(), pem: made.pem(), issuer: Issuer::new(params, key) }
}

#[test]
fn names_that_take_long_to_compare_with_constraints_are_refused() {
    let root = authority("root", None);
    let authority = constrained(&root, 100);
    assert_eq!(shake_hands(&trusting(&root), &authority, &[&authority]), Ok(()));
    for (constraints, names) in [(0, 480), (1, 480), (150, 100), (200, 200)] {
        let authority =
            if constraints == 0 { self::authority("a", None) } else { constrained(&root, constraints) };
        let names_of_own = (0..names).map(|i| format!("node{i}.example.com")).collect::<Vec<_>>();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(names_of_own).unwrap().signed_by(&key, &authority.issuer).unwrap();
        // The authority's certificate has one name, and both certificates have subjects.
        let comparisons = constraints * (names + 3);
        let excess = (comparisons > MOST_COMPARISONS).then_some(ChainExcess::Comparisons(comparisons));
        assert_eq!(ChainExcess::of(own.der(), &[authority.certificate]), excess);
    }
}
