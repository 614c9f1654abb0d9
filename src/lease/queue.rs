//! Keeps the waiters for one lock in this process, and tells which one is next.

use std::collections::BTreeMap;

/// A waiter's place in the order of arrival. A smaller number came earlier.
pub type Arrival = u64;

/// The waiters of one lock, in the order in which they arrived.
#[derive(Debug)]
pub struct Queue<Id> {
    waiting: BTreeMap<Arrival, Id>,
}

impl<Id> Default for Queue<Id> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new() }
    }
}

impl<Id: Copy> Queue<Id> {
    /// Adds `id` at the place of its arrival. Changes nothing if it is there already.
    pub fn join(&mut self, arrival: Arrival, id: Id) {
        self.waiting.insert(arrival, id);
    }

    /// Removes the waiter that arrived at `arrival`.
    pub fn leave(&mut self, arrival: Arrival) {
        self.waiting.remove(&arrival);
    }

    /// Returns the waiter that is next.
    pub fn head(&self) -> Option<Id> {
        self.waiting.first_key_value().map(|(_, id)| *id)
    }

    /// Returns all waiters in their order.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.waiting.values().copied()
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_ordered_by_arrival_and_not_by_joining() {
        let mut queue = Queue::default();
        queue.join(2, 'b');
        queue.join(3, 'c');
        queue.join(1, 'a');
        assert_eq!(queue.head(), Some('a'));
        assert!(queue.ids().eq(['a', 'b', 'c']));
        queue.leave(2);
        queue.leave(1);
        assert_eq!((queue.head(), queue.len()), (Some('c'), 1));
        queue.leave(3);
        assert!(queue.is_empty());
    }
}
