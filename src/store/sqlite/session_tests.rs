use super::super::creation;
use super::*;
use crate::lease::{Fence, Key, Token, Ttl};
use crate::store::Request;

/// SQLite's values for NORMAL and FULL.
const USUAL: i32 = 1;
const DURABLE: i32 = 2;

fn synchronous(session: &Session) -> i32 {
    session.connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap()
}

/// Returns a session of a new database, and the directory of the database.
fn new_session() -> (Session, PathBuf) {
    let folder = std::env::temp_dir().join(format!("leasehold-session-{}", Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let (path, deadline) = (folder.join("locks.db"), clock::now() + Duration::from_secs(5));
    let place = Place::of(&path).unwrap();
    creation::create(&path, &place, deadline).unwrap();
    (Session::open(&path, &place, deadline).unwrap().unwrap(), folder)
}

#[test]
fn only_the_commit_of_a_detach_waits_for_the_disk() {
    let (mut session, folder) = new_session();
    assert_eq!(synchronous(&session), USUAL);
    for (durable, expected) in [(true, DURABLE), (false, USUAL)] {
        assert_eq!(session.durably(durable, |session| Ok(synchronous(session))).unwrap(), expected);
        let failed: Result<(), _> = session.durably(durable, |_| Err(Trouble::Moved));
        assert!(matches!(failed, Err(Trouble::Moved)));
        assert_eq!(synchronous(&session), USUAL, "also after an error");
    }
    let (key, token, ttl) = (Key::from("k"), Token::random(), Ttl::MIN);
    let detach = Request::Detach { key: key.clone(), token, ttl, fence: Fence(1), own_ttl: ttl };
    assert!(is_to_outlive(&detach));
    assert!(!is_to_outlive(&Request::Renew { key, token, ttl, fences: 0 }));
    drop(session);
    std::fs::remove_dir_all(folder).unwrap();
}
