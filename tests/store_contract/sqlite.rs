//! The embedded store.

use std::any::Any;
use std::path::PathBuf;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use leasehold::lease::Token;
use leasehold::store::Store;
use leasehold::store::sqlite::SqliteStore;
use rusqlite::Connection;

use crate::fixture::Fixture;

struct Sqlite(PathBuf);

impl Sqlite {
    fn fresh() -> Self {
        let directory = std::env::temp_dir().join(format!("leasehold-contract-{}", Token::random()));
        std::fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("locks.db")
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Fixture for Sqlite {
    fn open(&self) -> Rc<dyn Store> {
        SqliteStore::open(self.path())
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        let file = Connection::open(self.path()).unwrap();
        let count = file.query_row("SELECT count(*) FROM leases", [], |row| row.get::<_, u32>(0)).unwrap();
        Box::pin(std::future::ready(count as usize))
    }

    /// Somebody else's transaction that does not end.
    fn stall(&self) -> Option<Box<dyn Any>> {
        let file = Connection::open(self.path()).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        Some(Box::new(file))
    }
}

crate::contract!(Sqlite::fresh());
