//! Tells whether a store can grant leases now, as the circuit breakers before its servers know it.

use super::StoreError;

/// Whether a store can grant leases now. A store without a breaker is always [`Self::Usable`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Availability {
    /// Nothing is known that speaks against it.
    #[default]
    Usable,
    /// It carries requests out, but has refused several acquires in a row. Acquires are still sent.
    Refusing,
    /// It can't be reached: requests fail at once with this error, and are not sent. A probe finds
    /// out that it is back.
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
