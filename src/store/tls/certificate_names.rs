//! Counts the names in a certificate, and those in the name constraints of an authority. Pure.
//!
//! Reads only as much of the DER encoding as counting needs. If it can't read a certificate or the
//! constraints, it returns their length in bytes, which is more than the names in them.

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// The extensions of a certificate: `[3]`.
const EXTENSIONS: u8 = 0xa3;
/// The object identifier 2.5.29.17, subjectAltName.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Returns the number of names that `certificate` is made for.
pub fn count_names(certificate: &[u8]) -> usize {
    names_in(certificate).unwrap_or(certificate.len())
}

/// Returns the number of names in `constraints`, the content of the extension nameConstraints.
pub fn count_constraints(constraints: &[u8]) -> usize {
    let names_of = |(_, list)| Some(elements(list)?.len());
    let lists = elements(constraints).and_then(|lists| lists.into_iter().map(names_of).sum());
    lists.unwrap_or(constraints.len())
}

fn names_in(certificate: &[u8]) -> Option<usize> {
    let of_tag = |list: Vec<(u8, _)>, tag| list.into_iter().find(|(found, _)| *found == tag);
    let (_, signed) = of_tag(elements(certificate)?, SEQUENCE)?;
    let (_, content) = of_tag(elements(signed)?, SEQUENCE)?;
    let Some((_, extensions)) = of_tag(elements(content)?, EXTENSIONS) else { return Some(0) };
    let (_, extensions) = of_tag(elements(extensions)?, SEQUENCE)?;
    let mut count = 0;
    for (_, extension) in elements(extensions)? {
        let extension = elements(extension)?;
        if extension.first() == Some(&(OBJECT_IDENTIFIER, ALTERNATIVE_NAMES)) {
            let (_, value) = of_tag(extension, OCTET_STRING)?;
            let (_, names) = of_tag(elements(value)?, SEQUENCE)?;
            count += elements(names)?.len();
        }
    }
    Some(count)
}

/// Returns the tags and the contents of the elements that `bytes` consist of.
fn elements(mut bytes: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(element(&mut bytes)?);
    }
    Some(all)
}

/// Takes the first element from `rest`. Returns its tag and its content.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], after) = rest.split_first_chunk()?;
    let (length, after) = match first {
        0..=0x7f => (usize::from(first), after),
        // The length follows in 1 to 4 bytes.
        0x81..=0x84 => {
            let (length, after) = after.split_at_checked(usize::from(first - 0x80))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), after)
        }
        _ => return None,
    };
    let (content, after) = after.split_at_checked(length)?;
    *rest = after;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_counted() {
        for count in [0, 1, 3, 40, 500] {
            let names: Vec<String> = (0..count).map(|i| format!("node-{i}.example")).collect();
            let made = CertificateParams::new(names).unwrap();
            let made = made.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(count_names(made.der()), count);
            let cut = &made.der()[..made.der().len() - 1];
            assert_eq!(count_names(cut), cut.len(), "what can't be read counts by its length");
        }
    }

    #[test]
    fn the_names_of_constraints_are_counted() {
        let name = |letter| [SEQUENCE, 3, 0x82, 1, letter];
        let lists = [&[0xa0, 10][..], &name(b'a'), &name(b'b'), &[0xa1, 5], &name(b'c')].concat();
        assert_eq!(count_constraints(&lists), 3);
        assert_eq!(count_constraints(&lists[1..]), lists.len() - 1);
        assert_eq!(count_constraints(&[]), 0);
    }
}
