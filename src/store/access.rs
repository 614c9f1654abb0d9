//! Keeps the settings that open a store in addition to its URL: credentials and trust.

use std::fmt;

use super::tls::Tls;

/// The settings that a client gives for its store in addition to the URL. `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The user. If the URL names a user, too, it must be the same.
    pub username: Option<String>,
    /// The password. If the URL has a password, too, it must be the same.
    pub password: Option<String>,
    /// For stores that are reached over TLS: the authorities to trust, and the client's own
    /// certificate.
    pub tls: Option<Tls>,
    /// The user at sentinels that require authentication.
    pub sentinel_username: Option<String>,
    /// The password at sentinels, for that user or for the default user.
    pub sentinel_password: Option<String>,
    /// The number of replicas that must have a lease before it counts; 0 is the default.
    pub min_replicas: u32,
}

impl Access {
    /// Returns the names of the settings that were given, as users know them. Stores that take none
    /// of them use the names in an error.
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
