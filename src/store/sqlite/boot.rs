//! Which run of the machine this is.

use uuid::Uuid;

/// The id of this boot; nil where the system does not tell one.
///
/// Only Linux has such an id. On other systems, [`super::peers`] has rules for a nil boot: a lease
/// of an earlier boot ends no later than its ttl after the next look at it.
pub fn id() -> Uuid {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        return Uuid::try_parse(text.trim()).unwrap_or(Uuid::nil());
    }
    Uuid::nil()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_names_its_boot_and_always_the_same() {
        assert!(!id().is_nil());
        assert_eq!(id(), id());
    }
}
