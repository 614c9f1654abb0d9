//! By how much the clock of the process differs from that of the host, because the process runs in
//! a time namespace.
//!
//! A time namespace adds an offset to the boot clock: what a process in it reads is the clock of
//! the initial namespace plus the offset (time_namespaces(7)). The offset of a namespace within
//! another one is relative to the initial one, too. The kernel shows the offsets of the namespace
//! in which the *children* of a process will run, which is that of the process itself unless it has
//! called unshare(2) and not executed a program since.

use std::fs::{read_link, read_to_string};
use std::path::Path;
use std::sync::OnceLock;

use super::Incomparable;

/// The initial time namespace, as the links in /proc name it: PROC_TIME_INIT_INO of
/// <linux/proc_ns.h>.
const INITIAL: &str = "time:[4026531834]";

/// Returns how many µs the boot clock of this process is ahead of that of the host, and looks for
/// it once: nothing moves a process with several threads to another time namespace, as setns(2)
/// says.
pub fn boottime_offset() -> Result<i64, Incomparable> {
    static OFFSET: OnceLock<Result<i64, Incomparable>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let link =
            |name| read_link(Path::new("/proc/self/ns").join(name)).ok()?.into_os_string().into_string().ok();
        let (own, children) = (link("time"), link("time_for_children"));
        offset_in(
            own.as_deref(),
            children.as_deref(),
            read_to_string("/proc/self/timens_offsets").ok().as_deref(),
        )
    })
}

/// The same, from the names of the process's own namespace and of that of its children, and the
/// offsets of the latter.
fn offset_in(own: Option<&str>, children: Option<&str>, offsets: Option<&str>) -> Result<i64, Incomparable> {
    // A kernel without time namespaces. Without /proc nobody can tell, and what has no /proc mostly
    // has no namespace of its own.
    let Some(own) = own else { return Ok(0) };
    if own == INITIAL {
        return Ok(0);
    }
    if children != Some(own) {
        return Err(Incomparable);
    }
    offsets.and_then(boottime_of).ok_or(Incomparable)
}

/// The offset in a line `boottime SECONDS NANOSECONDS`, in µs. The nanoseconds are never negative.
fn boottime_of(offsets: &str) -> Option<i64> {
    offsets.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("boottime") {
            return None;
        }
        let (seconds, nanoseconds): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        seconds.checked_mul(1_000_000)?.checked_add(nanoseconds / 1_000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Option<&str> = Some("time:[4026532177]");
    const OFFSETS: Option<&str> = Some("monotonic         100         0\nboottime        -3600 500000000\n");

    #[test]
    fn the_offset_counts_outside_of_the_initial_namespace() {
        assert_eq!(offset_in(OWN, OWN, OFFSETS), Ok(-3_599_500_000));
        assert_eq!(offset_in(Some(INITIAL), Some(INITIAL), OFFSETS), Ok(0), "that is of other children");
        assert_eq!(offset_in(Some(INITIAL), OWN, OFFSETS), Ok(0), "that is of the children alone");
        assert_eq!(offset_in(None, None, None), Ok(0), "a kernel without time namespaces");
    }

    #[test]
    fn what_can_not_be_compared_is_told() {
        assert_eq!(offset_in(OWN, Some(INITIAL), OFFSETS), Err(Incomparable));
        assert_eq!(offset_in(OWN, None, OFFSETS), Err(Incomparable));
        for offsets in [None, Some(""), Some("monotonic 1 0"), Some("boottime"), Some("boottime 1 x")] {
            assert_eq!(offset_in(OWN, OWN, offsets), Err(Incomparable), "{offsets:?}");
        }
    }

    #[test]
    fn the_kernel_says_it_as_it_is_read_here() {
        let shown = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec;
        let host = crate::engine::clock::now().as_micros() / 1_000_000;
        let offset = boottime_offset().expect("tests run where instants can be compared") / 1_000_000;
        assert!(
            (shown - offset - host as i64).abs() <= 1,
            "{shown} s shown, {offset} s ahead, {host} s here"
        );
    }
}
