//! Finds how far the clock of a process in a time namespace differs from the host's clock.
//!
//! A time namespace adds an offset to the boot clock: a process in it reads the clock of the
//! initial namespace plus the offset (time_namespaces(7)). The offset of a nested namespace is
//! relative to the initial one, too. The kernel shows the offsets of the namespace in which the
//! *children* of a process will run. That is the process's own namespace, unless the process has
//! called unshare(2) and has not executed a program since.

use std::fs::{read_link, read_to_string};
use std::path::Path;
use std::sync::OnceLock;

use super::incomparable::Incomparable;

/// The name of the initial time namespace in the links of /proc: PROC_TIME_INIT_INO of
/// <linux/proc_ns.h>.
const INITIAL: &str = "time:[4026531834]";

/// Returns how many µs the boot clock of this process is ahead of the host's. Reads the offset
/// once: a process with several threads can't move to another time namespace (setns(2)).
pub fn boottime_offset() -> Result<i64, Incomparable> {
    static OFFSET: OnceLock<Result<i64, Incomparable>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let link =
            |name| read_link(Path::new("/proc/self/ns").join(name)).ok()?.into_os_string().into_string().ok();
        let (own, children) = (link("time"), link("time_for_children"));
        if own.is_none() {
            return without_link(Path::new("/proc/self/ns").is_dir());
        }
        offset_in(
            own.as_deref(),
            children.as_deref(),
            read_to_string("/proc/self/timens_offsets").ok().as_deref(),
        )
    })
}

/// Returns the result of [`boottime_offset`] if /proc has no link to the time namespace of this
/// process. If /proc lists other namespaces, the kernel has no time namespaces, and the offset is
/// 0. Otherwise /proc is not mounted, and the offset is unknown.
fn without_link(has_other_namespaces: bool) -> Result<i64, Incomparable> {
    if has_other_namespaces { Ok(0) } else { Err(Incomparable) }
}

/// Returns the result of [`boottime_offset`], given the names of the namespaces of the process and
/// of its children, and the offsets of the children's namespace.
fn offset_in(own: Option<&str>, children: Option<&str>, offsets: Option<&str>) -> Result<i64, Incomparable> {
    if own == Some(INITIAL) {
        return Ok(0);
    }
    if own.is_none() || children != own {
        return Err(Incomparable);
    }
    offsets.and_then(boottime_of).ok_or(Incomparable)
}

/// Returns the offset in a line `boottime SECONDS NANOSECONDS`, in µs. The nanoseconds are never
/// negative.
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
        assert_eq!(
            offset_in(Some(INITIAL), Some(INITIAL), OFFSETS),
            Ok(0),
            "the offset belongs to other children"
        );
        assert_eq!(offset_in(Some(INITIAL), OWN, OFFSETS), Ok(0), "the offset belongs to the children alone");
        assert_eq!(without_link(true), Ok(0), "a kernel without time namespaces");
        assert_eq!(without_link(false), Err(Incomparable), "without /proc");
    }

    #[test]
    fn an_unreadable_offset_is_an_error() {
        assert_eq!(offset_in(OWN, Some(INITIAL), OFFSETS), Err(Incomparable));
        assert_eq!(offset_in(OWN, None, OFFSETS), Err(Incomparable));
        for offsets in [None, Some(""), Some("monotonic 1 0"), Some("boottime"), Some("boottime 1 x")] {
            assert_eq!(offset_in(OWN, OWN, offsets), Err(Incomparable), "{offsets:?}");
        }
    }

    #[test]
    fn the_kernel_reports_the_offset_as_parsed_here() {
        let shown = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec;
        let host = crate::engine::clock::now().as_micros() / 1_000_000;
        let offset = boottime_offset().expect("tests run where instants can be compared") / 1_000_000;
        assert!(
            (shown - offset - host as i64).abs() <= 1,
            "{shown} s shown, {offset} s ahead, {host} s here"
        );
    }
}
