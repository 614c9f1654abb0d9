//! Checks each grant and each write. A second holder of a lock would be found here.

use leasehold::lease::{Fence, Mode};

use super::super::campaign::Write;
use super::super::process::Granted;
use super::World;

impl World {
    /// Checks a grant when its caller hears of it.
    pub(super) fn check_grant(&mut self, process: usize, granted: &Granted) {
        self.check_stranger(process, granted.slot);
        if let Some((ticket, fence)) = granted.adopted {
            assert!(self.adopted.insert(ticket), "a ticket was adopted twice");
            // If no node knows the fence any more, the adopter gets a larger one.
            let is_replaced = self.shape.lossy && granted.fence > fence;
            assert!(granted.fence == fence || is_replaced, "{fence:?} became {:?}", granted.fence);
        }
        self.check_holders(process, granted);
    }

    /// Checks that no other caller holds the lock, and that its fences grow.
    fn check_holders(&mut self, process: usize, granted: &Granted) {
        // The lease may have been lost or handed on before its caller hears of the grant.
        let ours = self.processes[process].asked.get(&granted.slot);
        let Some(ours) = ours.filter(|ours| ours.state.is_held(self.now)) else { return };
        let key = ours.key.clone();
        let mut sharers = 1;
        for (index, other) in self.processes.iter().enumerate() {
            for (slot, asked) in &other.asked {
                let same = index == process && *slot == granted.slot;
                if same || asked.key != key || !asked.state.is_held(self.now) {
                    continue;
                }
                assert!(
                    ours.mode.is_shared() && asked.mode.is_shared(),
                    "process {process} was given {key} while process {index} believes in its lease"
                );
                sharers += 1;
            }
        }
        if let Mode::Shared { most } = ours.mode {
            assert!(sharers <= most, "{sharers} share {key}, at most {most} should");
            return;
        }
        let last = self.fences.entry(key).or_insert(Fence(0));
        // An adopter keeps the fence of the lease. If there was a later lease, that fence is too
        // old.
        let is_next = granted.fence > *last || granted.adopted.is_some() && granted.fence == *last;
        assert!(is_next, "a fence went back: {:?} after {:?}", granted.fence, *last);
        *last = granted.fence;
    }

    /// Lets the worker of the process write to a storage that compares fences. The worker may be
    /// late, but never while it believes that it holds its lease.
    pub(super) fn write(&mut self, process: usize) {
        let Some(Write { fence, believes }) = self.processes[process].campaign.write(self.now) else {
            return;
        };
        assert!(fence >= self.storage || !believes, "{fence:?} is refused after {:?}", self.storage);
        self.storage = self.storage.max(fence);
    }
}
