//! Makes listings from the answers to inspections. Pure.

use super::error::{StoreError, StoreErrorKind};
use super::list_filter::ListFilter;
use super::listing::Listing;
use super::reply::{Answer, Reply};
use super::request::Request;
use crate::lease::Key;

impl Listing {
    /// Adds the locks of `keys` that are held. `answers` are those to the [`inspections`] of
    /// `keys`, which have to be in order. Returns false if a lock does not fit: the listing has as
    /// many locks as the filter or [`MOST_LISTED`](super::listing::MOST_LISTED) allows.
    ///
    /// # Errors
    /// Returns the first error, except for keys that are not locks: those are left out.
    pub fn take(
        &mut self,
        filter: &ListFilter,
        keys: &[Key],
        answers: impl IntoIterator<Item = Answer>,
    ) -> Result<bool, StoreError> {
        for (key, answer) in keys.iter().zip(answers) {
            let info = match answer {
                Ok(Reply::Inspected(Some(info))) => info,
                Err(error) if error.kind != StoreErrorKind::WrongType => return Err(error),
                _ => continue,
            };
            if !self.add_in_memory(filter, key.clone(), info) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the requests that inspect `keys`.
pub fn inspections(keys: &[Key]) -> Vec<Request> {
    keys.iter().map(|key| Request::Inspect { key: key.clone() }).collect()
}

/// Returns the filters of the listings that `batch` asks for, with their places in it.
pub fn asked(batch: &[Request]) -> Vec<(usize, &ListFilter)> {
    let requests = batch.iter().enumerate();
    let listings = requests.filter_map(|(index, request)| match request {
        Request::List(filter) => Some((index, filter)),
        _ => None,
    });
    listings.collect()
}
