//! Who waits for one lock in this process, and who is next.

use std::collections::BTreeMap;

/// A waiter's place in the order of arrival. Smaller came earlier.
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
    /// Takes `id` in at the place that its arrival gives it. Harmless if it is there already.
    pub fn join(&mut self, arrival: Arrival, id: Id) {
        self.waiting.insert(arrival, id);
    }

    /// Takes out whoever arrived at `arrival`.
    pub fn leave(&mut self, arrival: Arrival) {
        self.waiting.remove(&arrival);
    }

    /// Who is next.
    pub fn head(&self) -> Option<Id> {
        self.waiting.first_key_value().map(|(_, id)| *id)
    }

    /// All of them, in their order.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.waiting.values().copied()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_arrival_not_of_joining() {
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
