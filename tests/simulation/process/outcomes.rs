//! Receives the outcomes of operations, and checks that they make sense.

use leasehold::engine::command::{Command, Outcome, Settlement};
use leasehold::lease::{Instant, Ttl};

use super::{DetachedLease, Granted, Process};

impl Process {
    /// Receives outcomes as JavaScript would. Returns the grants among them.
    pub fn hear(&mut self, now: Instant, settled: Vec<Settlement>) -> Vec<Granted> {
        let (mut grants, mut of_worker) = (Vec::new(), Vec::new());
        for Settlement { op, outcome } in settled {
            let asked = self.asked.get_mut(&op.slot).expect("an operation of this process");
            assert!(!asked.ended, "an outcome after the last one: {outcome:?}");
            if self.campaign.owns(op.slot) {
                of_worker.push(outcome.clone());
            }
            match outcome {
                Outcome::Acquired(fence, token) => {
                    assert!(!asked.granted, "granted twice");
                    asked.granted = true;
                    asked.token = Some(token);
                    asked.fence = fence;
                    grants.push(Granted { slot: op.slot, fence, adopted: asked.adopted });
                }
                Outcome::Detached => {
                    assert!(asked.detaching, "detached without having been asked to");
                    asked.ended = true;
                    let token = asked.token.expect("it was granted");
                    self.core.command(now, Command::SeeTicket { env: op.env, token });
                    let ttl = Ttl::from_millis(500).expect("in range");
                    self.detached.push(DetachedLease {
                        key: asked.key.clone(),
                        token,
                        fence: asked.fence,
                        ttl,
                    });
                }
                Outcome::Renewed | Outcome::RenewFailed(_) | Outcome::AutoRenewed => assert!(asked.granted),
                Outcome::Adopted { .. } => assert!(asked.adopted.is_some() && !asked.granted),
                last => {
                    asked.ended = true;
                    self.has_lost |= matches!(last, Outcome::Lost(_));
                    if self.fail_fast.remove(&op.slot) && matches!(last, Outcome::Failed(_)) {
                        self.failed_fast += 1;
                    }
                    if asked.adopted.is_some() && !asked.granted {
                        self.adoption_outcomes.insert(op.slot, last);
                    }
                }
            }
        }
        // Forget operations that have ended. Another outcome of one would be a fault: it finds no
        // operation, and the test fails.
        self.asked.retain(|_, asked| !asked.ended);
        for outcome in of_worker {
            self.enqueue_for_worker(now, outcome);
        }
        grants
    }
}
