use super::super::cluster::ClusterAddress;
use super::*;
use crate::store::TlsTexts;

fn parse(url: &str) -> RedisAddress {
    RedisAddress::parse(url, &Access::default()).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn tcp(host: &str, port: u16) -> Endpoint<RedisAddress> {
    Endpoint::Tcp(host.into(), port)
}

#[test]
fn every_part_of_a_url_is_read() {
    let address = parse("redis://us%40er:p%2Fw@Example.org:7000/3");
    assert_eq!(address.endpoint, tcp("example.org", 7000));
    assert_eq!((address.username.as_deref(), address.password.as_deref()), (Some("us@er"), Some("p/w")));
    assert_eq!(address.database, 3);
    assert_eq!(parse("redis://localhost").endpoint, tcp("localhost", 6379));
    assert_eq!(parse("REDIS://localhost/").database, 0);
    assert_eq!(parse("redis://localhost?db=4").database, 4);
    assert_eq!(parse("redis://[::1]:7").endpoint, tcp("::1", 7));
    assert_eq!(parse("redis://[fe80::1%25eth0]").endpoint, tcp("fe80::1%eth0", 6379));
    assert_eq!(parse("redis://:p@ss@host").password.as_deref(), Some("p@ss"));
    assert_eq!(parse("redis://user:@host").password.as_deref(), Some(""));
    assert_eq!(parse("redis://:@host").password, None);
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_read() {
    let socket = parse("redis+unix:///run/redis%20one%402.sock?db=2&pass=x&user=y");
    assert_eq!(socket.endpoint, Endpoint::Unix("/run/redis one@2.sock".into()));
    assert_eq!(
        (socket.database, socket.username.as_deref(), socket.password.as_deref()),
        (2, Some("y"), Some("x"))
    );
    assert_eq!(parse("redis+unix://u:p@/a.sock").password.as_deref(), Some("p"));
    assert_eq!(socket.to_string(), "redis+unix://y@/run/redis one%402.sock?db=2");
    let odd = parse("redis+unix:///a%3Fdb%3D2%26%3A%2C%3B");
    assert_eq!(odd.to_string(), "redis+unix:///a%3Fdb%3D2%26%3A%2C%3B");
    assert_ne!(odd.identity(), parse("redis+unix:///a?db=2").identity());
}

#[test]
fn an_invalid_url_is_refused_and_its_secret_is_not_shown() {
    let long = format!("redis+unix:///{}.sock", "a".repeat(200));
    for (url, said) in [
        ("localhost:6379", "begins with redis://"),
        ("http://host", "begins with redis://"),
        ("rediss://:secret@", "names no host"),
        ("rediss://:secret@a..b", "can't be the name in a certificate"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://:secret@", "names no host"),
        ("redis://:secret@host:", "port"),
        ("redis://:secret@host:0", "port"),
        ("redis://:secret@host:99999", "port"),
        ("redis://:secret@host:+5", "port"),
        ("redis://:secret@host/x", "database"),
        ("redis://:secret@host/-1", "database"),
        ("redis://:secret@host/+1", "database"),
        ("redis://:secret@host/1/2", "database"),
        ("redis://:secret@host/99999999999", "database"),
        ("redis://:secret@host/1?db=2", "two databases"),
        (
            "redis://:secret@host?timeout=3",
            "unknown parameter \"timeout\": give storeTimeout in the options;",
        ),
        ("redis://host?Password=secret", "unknown parameter \"password\": write pass;"),
        ("redis://:secret@host?tls=1", "unknown parameter \"tls\": write rediss://"),
        ("redis://:secret@a,b,c", "write redis-cluster://a,b,c"),
        ("redis://:secret@a:1,b:2,c:3", "or a list of URLs for a quorum: [\"redis://a\""),
        ("redis://:x@a,secret:secret", "or a list of URLs for a quorum"),
        ("redis://host?pass=a&secret", "& in a password is %26"),
        ("redis://host?pass=a&secret=b", "& in a password is %26"),
        ("redis://host?secret", "unknown parameter;"),
        ("redis://:secret@host#x", "fragment"),
        ("redis://:sec#secret@host", "percent-encoded"),
        ("redis://:sec/secret@host", "percent-encoded"),
        ("redis://user:12/secret@host", "percent-encoded"),
        ("redis://:sec?secret@host", "percent-encoded"),
        ("redis://:%zzsecret@host", "two hex digits"),
        ("redis://:%FFsecret@host", "UTF-8"),
        ("redis://:%00secret@host", "NUL"),
        ("redis://::1", "brackets"),
        ("redis://[::1", "lacks its ]"),
        ("redis://[::x]", "do not contain an IPv6 address"),
        ("redis://ho st", "' '"),
        ("redis+unix://relative.sock", "three slashes"),
        ("redis+unix://", "absolute path"),
        ("redis+unix:///", "absolute path"),
        ("redis+unix:///a%00.sock", "absolute path"),
        ("redis+unix:///a.sock&pass=secret", "write ?"),
        ("redis+unix:///a.sock&password=secret", "write ?"),
        ("redis+unix:///a.sock;pass=secret", "write ?"),
        ("redis+unix:///a.sock,PassWord=secret", "write ?"),
        ("redis+unix:///a.sock%26pass=secret", "write ?"),
        ("redis+unix:///pwd=secret/a.sock", "write ?"),
        ("redis+unix:///a.sock?user=a;pass=secret", "write ?"),
        ("redis://:x@host?user=a;pass=secret", "write ?"),
        ("redis+unix:///:secret@/a.sock", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///user:secret@/a.sock", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///user:secret@a.sock", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///secret@host", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///a.sock:secret", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///a.sock&requirepass=secret", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///a.sock,password:secret", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///a.sock;secret", "write redis+unix://:PASSWORD@/path/to.sock"),
        ("redis+unix:///a.sock%253Fpass%253Dsecret", "write ?"),
        ("redis+unix:///a.sock%25253Fpass%25253Dsecret", "write ?"),
        ("redis+unix:///secret@/a.sock", "write redis+unix://:PASSWORD@/path/to.sock"),
        (&long, "longer"),
    ] {
        let error = RedisAddress::parse(url, &Access::default()).expect_err(url);
        assert!(error.contains(said), "{url}: {error}");
        assert!(!error.contains("secret"), "{url}: {error}");
    }
}

#[test]
fn a_password_in_the_place_of_the_user_is_not_shown() {
    for url in ["redis://secret@host", "redis://secret:@host"] {
        assert_eq!(parse(url).to_string(), "redis://***@host:6379");
    }
    assert_ne!(parse("redis://a@host").identity(), parse("redis://b@host").identity());
}

#[test]
fn two_logins_that_differ_are_refused_and_neither_is_shown() {
    let access = |username: Option<&str>, password: Option<&str>| Access {
        username: username.map(Into::into),
        password: password.map(Into::into),
        ..Access::default()
    };
    for (url, access, said) in [
        ("redis://a:secret@host", access(None, Some("hidden")), "\"password\""),
        ("redis://a:secret@host", access(None, Some("")), "\"password\""),
        ("redis://host?pass=secret", access(None, Some("hidden")), "\"password\""),
        ("redis+unix://:secret@/a.sock", access(None, Some("hidden")), "\"password\""),
        ("redis-sentinel://:secret@host/m", access(None, Some("hidden")), "\"password\""),
        ("redis://secret@host", access(Some("hidden"), None), "\"username\""),
        ("redis://:secret@host?pass=hidden", Access::default(), "?pass="),
        ("redis://secret@host?user=hidden", Access::default(), "?user="),
    ] {
        let error = RedisAddress::parse(url, &access).expect_err(url);
        assert!(error.contains(said), "{url}: {error}");
        assert!(!error.contains("secret") && !error.contains("hidden"), "{url}: {error}");
    }
    let login = |url, access| {
        let address = RedisAddress::parse(url, &access).unwrap();
        (address.username.unwrap_or_default(), address.password.unwrap_or_default())
    };
    let a = || ("a".to_owned(), "secret".to_owned());
    assert_eq!(login("redis://a:secret@host", access(Some("a"), Some("secret"))), a(), "the same twice");
    assert_eq!(login("redis://:secret@host?pass=secret", access(Some("a"), None)), a());
    assert_eq!(login("redis://a:@host", access(None, Some("secret"))), a());
    assert_eq!(login("redis://a@host", access(None, Some("secret"))), a());
}

#[test]
fn options_complete_the_url_and_change_the_identity() {
    let other = {
        let access =
            Access { username: Some("c".into()), password: Some("hidden".into()), ..Access::default() };
        RedisAddress::parse("redis://host/2", &access).unwrap()
    };
    assert_eq!((other.username.as_deref(), other.password.as_deref()), (Some("c"), Some("hidden")));
    assert_eq!(other.to_string(), "redis://c@host:6379/2");
    assert_eq!(parse("redis://a:secret@host/2").identity(), parse("redis://a:secret@host/2").identity());
    for url in
        ["redis://a:other@host/2", "redis://b:secret@host/2", "redis://a:secret@host", "redis://a:secret@h/2"]
    {
        assert_ne!(parse(url).identity(), parse("redis://a:secret@host/2").identity(), "{url}");
    }
    let shown = format!("{other} {other:?} {}", other.identity());
    assert!(!shown.contains("hidden") && !shown.contains("secret"), "{shown}");
}

#[test]
fn the_scheme_decides_on_tls_and_changes_the_identity() {
    let plain = parse("redis://:secret@host");
    let secure = parse("rediss://:secret@host");
    assert_eq!(secure.to_string(), "rediss://host:6379");
    assert_eq!((plain.tls.is_some(), secure.tls.is_some()), (false, true));
    assert_ne!(plain.identity(), secure.identity());
    let named = TlsTexts { servername: Some("other".into()), ..TlsTexts::default() };
    let access = |texts| Access { tls: Some(Tls::parse(&texts).unwrap()), ..Access::default() };
    let other = RedisAddress::parse("rediss://:secret@host", &access(named)).unwrap();
    assert_ne!(other.identity(), secure.identity());
    let default = RedisAddress::parse("rediss://:secret@host", &access(TlsTexts::default())).unwrap();
    assert_eq!(default.identity(), secure.identity());
    for (url, said) in [("redis://:secret@host", "rediss://"), ("redis+unix:///a.sock", "unix socket")] {
        let error = RedisAddress::parse(url, &access(TlsTexts::default())).expect_err(url);
        assert!(error.contains(said) && !error.contains("secret@"), "{error}");
    }
}

#[test]
fn a_host_that_a_server_names_does_not_show_the_password() {
    let address = parse("redis://:S3cr3t-word@redis-1");
    for host in ["S3cr3t-word", "a.S3cr3t-word.b", &format!("{}S3cr3t-word", "x".repeat(MOST_HOST - 6))] {
        let told = address.at(&named_host(host), 7);
        let shown = format!("{told} {told:?} {}", told.place());
        assert!(!shown.contains("S3c") && shown.contains(":7"), "{shown}");
    }
    assert_eq!(address.at("S3cr3t-word", 7).to_string(), "redis://***:7");
    assert_eq!(address.at("S3cr3t-word", 7).endpoint, tcp("S3cr3t-word", 7), "the client still connects");
    let escaped = parse("redis://:a%0Ab@host").at(&named_host("a\nb"), 7);
    assert_eq!(escaped.to_string(), "redis://***:7");
    assert_eq!(parse("redis://:b:12@host").at("b", 12).to_string(), "redis://***:12");
    // The URL already names that host, so the host may be shown.
    assert_eq!(parse("redis://:redis@redis").at("redis", 7).to_string(), "redis://redis:7");
    let access = Access { sentinel_password: Some("hunter2".into()), ..Access::default() };
    let address = RedisAddress::parse("redis-sentinel://:S3cr3t@redis-1/m", &access).unwrap();
    for host in ["hunter2", "S3cr3t"] {
        assert_eq!(address.at(host, 7).to_string(), "redis://***:7", "{host}");
    }
    assert_eq!(address.at("redis-1", 7).to_string(), "redis://redis-1:7");
}

#[test]
fn an_address_that_a_server_names_knows_all_secrets_of_the_store() {
    let access = Access { sentinel_password: Some("hunter2".into()), ..Access::default() };
    let address = RedisAddress::parse("redis-sentinel://:S3cr3t@one,two/m", &access).unwrap();
    let Endpoint::Master(sentinels) = &address.endpoint else { panic!("{address}") };
    let node = &sentinels.nodes[1];
    let master = address.at("three", 7);
    for text in ["ERR S3cr3t", "ERR hunter2"] {
        for known in [&address, &master, &master.at("four", 7), node, &node.at("five", 7)] {
            assert!(known.is_secret_in(text), "{known}: {text}");
        }
        assert!(master.clone().without_login().is_secret_in(text), "{text}");
    }
}

#[test]
fn a_password_that_only_the_escape_shows_is_found() {
    let address = parse("redis://:a%5Ctb@host");
    assert!(address.is_secret_in("ERR a\tb"));
    assert!(address.is_secret_in("ERR a\\tb"));
    assert!(!address.is_secret_in("ERR a b"));
    assert_eq!(address.at(&named_host("a\tb"), 7).to_string(), "redis://***:7");
}

#[test]
fn a_user_whose_name_is_a_password_is_hidden() {
    let with = |password: &str| Access { password: Some(password.into()), ..Access::default() };
    for (url, password) in [
        ("redis://hunter2@host", "hunter2"),
        ("redis://hunter2:hunter2@host", "hunter2"),
        ("redis://%68unter2@host", "hunter2"),
        ("redis-sentinel://hunter2@host/m", "hunter2"),
        ("redis://6379@host", "6379"),
    ] {
        let address = RedisAddress::parse(url, &with(password)).unwrap();
        let shown = format!("{address} {address:?} {}", address.identity());
        assert!(shown.contains("://***@host:") && !shown.contains("hunter2"), "{url}: {shown}");
        assert!(!shown.contains("6379@"), "{url}: {shown}");
    }
    let cluster = ClusterAddress::parse("redis-cluster://hunter2@a,b", &with("hunter2")).unwrap();
    assert_eq!(cluster.to_string(), "redis-cluster://***@a:6379,b:6379");
    let sentinel = Access { sentinel_password: Some("hunter2".into()), ..with("other") };
    let address = RedisAddress::parse("redis-sentinel://hunter2@host/m", &sentinel).unwrap();
    assert_eq!(address.to_string(), "redis-sentinel://***@host:26379/m");
    assert_eq!(parse("redis://hunter:hunter2@host").to_string(), "redis://hunter@host:6379");
}

#[test]
fn a_password_that_is_a_short_number_does_not_hide_the_numbers_of_messages() {
    for (password, text) in [("6379", "ERR no route to 10.0.0.2:6379"), ("1000", "maxmemory is 1000000")] {
        let address = parse(&format!("redis://:{password}@host"));
        assert!(!address.is_secret_in(text), "{text}");
        assert_eq!(address.at("10.0.0.2", 6379).to_string(), "redis://10.0.0.2:6379");
    }
    assert!(parse("redis://:100000@host").is_secret_in("maxmemory is 1000000"));
    assert!(parse("redis://:12ab@host").is_secret_in("ERR 12ab"));
}
