//! Reads the clock of all deadlines, and the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::lease::Instant;

pub use self::incomparable::Incomparable;

mod incomparable;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod namespace;

/// Returns an error if instants of this process can't be compared with those of other processes of
/// the host. A store that compares them calls this first.
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

/// Returns the time of the monotonic clock that also counts suspend. On Apple's systems and the
/// BSDs, that is the plain monotonic clock.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub fn now() -> Instant {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

#[cfg(unix)]
fn from_timespec(t: rustix::time::Timespec) -> Instant {
    Instant::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1_000)
}

/// Returns the time of the interrupt-time clock, which counts suspend ("QueryInterruptTimePrecise
/// function", Microsoft).
#[cfg(windows)]
pub fn now() -> Instant {
    let mut hundred_ns = 0u64;
    // SAFETY: the function only writes the one u64 that the pointer names.
    unsafe { windows_sys::Win32::System::WindowsProgramming::QueryInterruptTimePrecise(&mut hundred_ns) };
    Instant::from_micros(hundred_ns / 10)
}

/// Returns the microseconds since 1970 by the wall clock, which may jump.
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
