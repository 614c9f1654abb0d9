//! Says whether a store can grant leases now, according to the circuit breakers of its servers.

use super::StoreError;

/// Says whether a store can grant leases now. A store without a breaker is always [`Self::Usable`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Availability {
    /// The store can grant leases, as far as its breakers know.
    #[default]
    Usable,
    /// The store answers, but has refused several acquires in a row. Acquires are still sent.
    Refusing,
    /// The store can't be reached. Requests are not sent, and fail at once with this error. A probe
    /// finds out when the store is back.
    Away(StoreError),
}

impl Availability {
    /// Returns true for [`Self::Usable`].
    pub fn is_usable(&self) -> bool {
        *self == Self::Usable
    }

    /// Returns true for [`Self::Away`].
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }
}
