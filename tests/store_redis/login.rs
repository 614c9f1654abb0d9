//! User, password and database number.

use leasehold::store::StoreErrorKind::{Denied, Unsupported};
use leasehold::store::redis::{RedisAddress, RedisStore};
use leasehold::store::{Request, Store};

use crate::redis_server::RedisServer;
use crate::support::*;

#[test]
fn the_right_password_lets_in_and_others_do_not() {
    run(async {
        let server = RedisServer::start(&["requirepass secret"]);
        assert_usable(&open(&server.url_with(":secret@"))).await;
        assert_usable(&open(&server.url_with("default:secret@"))).await;
        assert_usable(&open(&format!("{}/2", server.url_with(":secret@")))).await;
        for login in [":secret2@", ":secre@", ":@", "nobody:secret@", "default:secret2@"] {
            for database in ["", "/2"] {
                let url = format!("{}{database}", server.url_with(login));
                let said = assert_unusable(&url, Denied, TIMEOUT).await;
                assert!(said.contains(&server.url()) && said.contains("password"), "{said}");
            }
        }
    });
}

#[test]
fn no_password_where_one_is_needed_is_denied() {
    run(async {
        let server = RedisServer::start(&["requirepass secret"]);
        for url in [
            server.url(),
            format!("{}/3", server.url()),
            format!("redis+unix://{}", server.socket().display()),
            format!("redis+unix://{}?db=3", server.socket().display()),
        ] {
            assert_unusable(&url, Denied, TIMEOUT).await;
        }
    });
}

/// It is most likely the wrong server.
#[test]
fn a_password_where_none_is_needed_is_denied() {
    run(async {
        let server = RedisServer::start(&[]);
        assert_unusable(&server.url_with(":secret@"), Denied, TIMEOUT).await;
        assert_unusable(&server.url_with("user:secret@"), Denied, TIMEOUT).await;
    });
}

#[test]
fn a_password_may_have_every_character() {
    run(async {
        let server = RedisServer::start(&[]);
        let password = "secret @:/?#%\u{1f512}\"'\\ \r\n";
        let wrong = server.url_with(":secret@");
        server.tell(&["CONFIG", "SET", "requirepass", password]);
        let address = RedisAddress::parse(&wrong, None, Some(password)).unwrap();
        assert_usable(&RedisStore::new(address)).await;
        let escaped: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_usable(&open(&server.url_with(&format!(":{escaped}@")))).await;
        let socket = format!("redis+unix://{}?pass={escaped}", server.socket().display());
        assert_usable(&open(&socket)).await;
        assert_unusable(&wrong, Denied, TIMEOUT).await;
    });
}

#[test]
fn a_user_that_is_switched_off_is_denied_and_let_in_again() {
    run(async {
        let server = RedisServer::start(&[]);
        server.tell(&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"]);
        let store = open(&server.url_with("worker:secret@"));
        assert_usable(&store).await;
        server.tell(&["ACL", "SETUSER", "worker", "off"]);
        server.cut_connections();
        settle().await;
        assert_error(&attempt(&store, Request::Ping).await, Denied, false);
        assert_error(&attempt(&store, Request::Ping).await, Denied, false);
        server.tell(&["ACL", "SETUSER", "worker", "on"]);
        assert_usable(&store).await;
    });
}

#[test]
fn a_server_without_logins_is_not_told_to_repeat_the_password() {
    run(async {
        // It answers: unknown command 'AUTH', with args beginning with: 'secret'.
        let server = RedisServer::start(&["rename-command AUTH NOTAUTH"]);
        assert_unusable(&server.url_with(":secret@"), Denied, TIMEOUT).await;
    });
}

#[test]
fn a_database_that_does_not_exist_is_not_supported() {
    run(async {
        let server = RedisServer::start(&["databases 4"]);
        assert_usable(&open(&format!("{}/3", server.url()))).await;
        for number in ["4", "2147483647"] {
            let said = assert_unusable(&format!("{}/{number}", server.url()), Unsupported, TIMEOUT).await;
            assert!(said.contains(&format!("database {number}")), "{said}");
        }
    });
}

#[test]
fn a_closed_store_may_be_asked_again_and_leaves_no_connection() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        assert_usable(&store).await;
        assert_eq!(server.connections(), 1);
        store.clone().close().await;
        until(|| server.connections() == 0).await;
        assert_usable(&store).await;
    });
}
