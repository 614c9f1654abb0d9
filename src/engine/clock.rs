//! The clock behind every deadline, and the wall clock behind fences.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::lease::Instant;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod namespace;

/// The error of a process whose instants can't be compared with those of other processes of the
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process runs in a time namespace and can't read how far its clock differs from the host's clock, so it can't tell \
     when leases of other processes end; mount /proc, and start it with unshare --fork if you use unshare(1), or start it \
     outside of the time namespace"
)]
pub struct Incomparable;

/// Returns an error if instants of this process can't be compared with those of other processes of
/// the host. A store that compares them calls this first. Code that only measures time within this
/// process need not.
pub fn comparable() -> Result<(), Incomparable> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return namespace::boottime_offset().map(|_| ());
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Ok(())
}

/// Returns the time of the monotonic clock that also counts suspend.
///
/// A laptop lid or a paused virtual machine must not stretch a lease. On Linux the plain monotonic
/// clock stands still meanwhile, so this reads the boot clock. All processes of one host read the
/// same clock: this subtracts what the time namespace of the process adds to it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn now() -> Instant {
    let shown = from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime));
    let offset = namespace::boottime_offset().unwrap_or(0);
    Instant::from_micros(shown.as_micros().saturating_add_signed(-offset))
}

/// Now, on the monotonic clock that also counts suspend: on Apple's systems and the BSDs that is the
/// plain monotonic one.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub fn now() -> Instant {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

#[cfg(unix)]
fn from_timespec(t: rustix::time::Timespec) -> Instant {
    Instant::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1_000)
}

/// Now, on the interrupt-time clock, which counts suspend ("QueryInterruptTimePrecise function", Microsoft).
#[cfg(windows)]
pub fn now() -> Instant {
    let mut hundred_ns = 0u64;
    // SAFETY: the function only writes the one u64 that the pointer names.
    unsafe { windows_sys::Win32::System::WindowsProgramming::QueryInterruptTimePrecise(&mut hundred_ns) };
    Instant::from_micros(hundred_ns / 10)
}

/// Microseconds since 1970 by the wall clock. It may jump: only fences use it, and only upward.
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
