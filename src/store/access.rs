//! What opens a store beside its URL: who we are there, and whom we trust.

use std::fmt;

use super::tls::Tls;

/// What a client was given for its store beside the URL. `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The user, if the URL names none, or this one.
    pub username: Option<String>,
    /// The password, if the URL has none, or this one.
    pub password: Option<String>,
    /// For stores that are reached over TLS: whom to trust, and who we are.
    pub tls: Option<Tls>,
    /// Who we are at sentinels, if they ask.
    pub sentinel_username: Option<String>,
    /// The password for that, or the one that all have to give.
    pub sentinel_password: Option<String>,
    /// How many replicas must have a lease before it counts; 0 is the default.
    pub min_replicas: u32,
}

impl Access {
    /// Which of these were given, by the names that users know, for stores that take none of them.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("username", self.username.is_some()),
            ("password", self.password.is_some()),
            ("tls", self.tls.is_some()),
            ("sentinelUsername", self.sentinel_username.is_some()),
            ("sentinelPassword", self.sentinel_password.is_some()),
            ("minReplicas", self.min_replicas > 0),
        ];
        all.into_iter().filter_map(|(name, given)| given.then_some(name))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.given()).finish()
    }
}
