//! What the guard of `leasehold run` asks of the system, and Node can't: `lib/cli/guard-main.ts`.

use napi_derive::napi;

/// Continues this process (SIGCONT) when its parent ends. A guard that is stopped would not notice
/// the end. Only Linux can do so; elsewhere, this does nothing.
///
/// Source: PR_SET_PDEATHSIG in `prctl(2)`.
#[cfg_attr(test, allow(dead_code, reason = "unit tests are no addon, so napi registers no function"))]
#[napi(catch_unwind)]
pub fn continue_with_parent() {
    // A container may forbid prctl. The guard still works, as long as it is not stopped.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT));
}
