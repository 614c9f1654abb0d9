//! Changes samples at random.

use std::fs;
use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::directory;

/// The longest input, in bytes. If this is larger, a case takes longer.
const LONGEST: usize = 4 << 10;

/// The samples in the corpus of a target, sorted by their paths.
#[derive(Clone, Debug)]
pub struct Samples(Vec<(PathBuf, Vec<u8>)>);

impl Samples {
    /// Reads the corpus of `target`.
    pub fn of(target: &str) -> Self {
        let entries = fs::read_dir(directory(target)).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "the corpus of {target} has no sample");
        Self(paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect())
    }

    /// Returns the samples with their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&PathBuf, &[u8])> {
        self.0.iter().map(|(path, bytes)| (path, &bytes[..]))
    }
}

/// A change of some bytes. Each `Index` is a place in them.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, u8),
    Word(Index, &'static str),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    Cut(Index),
    /// Replaces the rest with the end of another sample.
    Splice(Index, Vec<u8>, Index),
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        let place = |index: Index| index.index(bytes.len() + 1);
        match self {
            Self::Set(index, byte) => {
                let at = place(index);
                bytes.splice(at..bytes.len().min(at + 1), [byte]);
            }
            Self::Insert(index, byte) => bytes.insert(place(index), byte),
            Self::Word(index, word) => {
                let at = place(index);
                bytes.splice(at..at, word.bytes());
            }
            Self::Remove(index, count) => {
                let at = place(index);
                bytes.drain(at..bytes.len().min(at + count));
            }
            Self::Repeat(index, count, times) => {
                let at = place(index);
                let part = bytes[at..bytes.len().min(at + count)].repeat(times);
                bytes.splice(at..at, part);
            }
            Self::Cut(index) => bytes.truncate(place(index)),
            Self::Splice(index, other, from) => {
                bytes.truncate(place(index));
                bytes.extend(&other[from.index(other.len() + 1)..]);
            }
        }
        bytes.truncate(LONGEST);
    }
}

/// Returns samples and `generated` bytes with up to six changes. Half of the inputs are samples,
/// and a seventh has no changes.
pub fn mutated(
    generated: BoxedStrategy<Vec<u8>>,
    samples: Samples,
    words: &'static [&'static str],
) -> impl Strategy<Value = Vec<u8>> {
    let texts: Vec<Vec<u8>> = samples.0.into_iter().map(|(_, bytes)| bytes).collect();
    let sample = proptest::sample::select(texts);
    let change = prop_oneof![
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        4 => (any::<Index>(), proptest::sample::select(words)).prop_map(|(at, word)| Change::Word(at, word)),
        3 => (any::<Index>(), 1..12_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (any::<Index>(), 1..12_usize, 1..24_usize)
            .prop_map(|(at, count, times)| Change::Repeat(at, count, times)),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => (any::<Index>(), sample.clone(), any::<Index>())
            .prop_map(|(at, other, from)| Change::Splice(at, other, from)),
    ];
    let base = prop_oneof![generated, sample];
    (base, vec(change, 0..7)).prop_map(|(mut bytes, changes)| {
        changes.into_iter().for_each(|change| change.apply(&mut bytes));
        bytes
    })
}
