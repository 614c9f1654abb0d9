//! The error of a clock that differs from the host's by an unknown offset.

/// The error of a process whose instants can't be compared with those of other processes of the
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process runs in a time namespace and can't read how far its clock differs from the host's clock, so it can't tell \
     when leases of other processes end; mount /proc, and start it with unshare --fork if you use unshare(1), or start it \
     outside of the time namespace"
)]
pub struct Incomparable;
