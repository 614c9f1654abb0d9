//! Reads the URLs of Redis servers, also of those that sentinels name.

use super::address::{RedisAddress, split_scheme};
use super::sentinel::address::parse_sentinels;
use crate::store::Access;

impl RedisAddress {
    /// Reads the URL of a server, in one of these forms. `rediss` stands for TLS.
    ///
    /// - `redis://[user[:password]@]host[:port][/db]`, or `rediss://…`;
    /// - `redis+unix://[user[:password]@]/path/to.sock[?db=N]`;
    /// - `redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/MASTER[?db=N]`, or
    ///   `rediss-sentinel://…`. The hosts are sentinels. The login is the master's.
    ///
    /// The parameters `db`, `user` and `pass` may follow a `?` in every form. Special characters
    /// are percent-encoded. The user and the password may also be in `access`. If both name them,
    /// they must be the same.
    ///
    /// The port is 1 to 65535, default 6379, or 26379 for a sentinel. The database is 0 to 2^31 −
    /// 1, default 0.
    ///
    /// # Errors
    ///
    /// Returns a message for users, which contains no part of the password.
    pub fn parse(url: &str, access: &Access) -> Result<Self, String> {
        let (scheme, rest) = split_scheme(url)?;
        if let "redis-sentinel" | "rediss-sentinel" = &*scheme {
            return parse_sentinels(rest, scheme.starts_with("rediss"), access);
        }
        Self::parse_server(url, access)
    }
}
