//! Tells which boot of the machine this is.

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::io;
use std::sync::OnceLock;

use uuid::Uuid;

/// The id that the system has told. It stays the same while the process lives. If the process gave
/// one store the id and another store nil, it would take its own leases for leases of an earlier
/// boot.
static KNOWN: OnceLock<Uuid> = OnceLock::new();

/// Returns the id of this boot; nil if the system does not tell it.
///
/// Only Linux has such an id, and some processes may not read it there (`ProcSubset=pid` of
/// systemd). [`super::row_lifetimes`] has rules for a nil boot: a lease of an earlier boot ends no
/// later than its ttl after the next look at it.
pub fn id() -> Uuid {
    learn().unwrap_or_default()
}

/// Returns whether both ids may name the same boot. A nil id may name any boot.
pub fn may_be_one(one: Uuid, other: Uuid) -> bool {
    one == other || one.is_nil() || other.is_nil()
}

/// Asks the system for the id until it has told it once. Before that, the result of [`id`] may
/// change.
///
/// # Errors
/// If the process or the system has too few descriptors or too little memory at the moment.
pub fn learn() -> std::io::Result<Uuid> {
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = settled(std::fs::read_to_string("/proc/sys/kernel/random/boot_id"))?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = Uuid::nil();
    Ok(*KNOWN.get_or_init(|| id))
}

/// Returns the id that was `read`. Returns nil if no later read can tell the id, either.
///
/// # Errors
/// If a later read may succeed.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn settled(read: io::Result<String>) -> io::Result<Uuid> {
    use rustix::io::Errno;

    match read {
        Ok(text) => Ok(Uuid::try_parse(text.trim()).unwrap_or_default()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
            _ => Ok(Uuid::nil()),
        },
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn linux_names_its_boot_and_always_the_same() {
        assert!(!id().is_nil());
        assert_eq!(id(), id());
    }

    #[test]
    fn a_lack_of_descriptors_says_nothing_about_the_boot() {
        for passing in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(settled(Err(passing.into())).is_err(), "{passing:?}");
        }
        for lasting in [Errno::NOENT, Errno::ACCESS, Errno::PERM] {
            assert_eq!(settled(Err(lasting.into())).unwrap(), Uuid::nil(), "{lasting:?}");
        }
        assert_eq!(settled(Ok("no id".into())).unwrap(), Uuid::nil());
        let id = Uuid::new_v4();
        assert_eq!(settled(Ok(format!("{id}\n"))).unwrap(), id);
    }
}
