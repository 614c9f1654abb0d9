//! Tests the SQLite store.

use std::any::Any;
use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;
use leasehold::lease::Token;
use leasehold::store::sqlite::SqliteStore;
use rusqlite::Connection;

use crate::client::Client;
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
    fn open(&self) -> Client {
        Client::of(SqliteStore::open(self.path()))
    }

    /// Returns the number of rows of all tables, which have all data of a lock.
    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        let file = Connection::open(self.path()).unwrap();
        let number = |query: &str| file.query_row(query, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
        let mut names = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
        let tables = names.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
        let rows = tables.map(|table| number(&format!("SELECT count(*) FROM {table}"))).sum();
        Box::pin(std::future::ready(rows))
    }

    fn notices_have_fences(&self) -> bool {
        false
    }

    /// Blocks the file with a transaction of another program that does not end.
    fn stall(&self) -> Option<Box<dyn Any>> {
        let file = Connection::open(self.path()).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        Some(Box::new(file))
    }
}

crate::contract!(Sqlite::fresh());
