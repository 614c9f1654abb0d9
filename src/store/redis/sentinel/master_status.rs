//! Reads what a sentinel answers when the client asks about the master and about a failover. Pure.

use redis::Value;

use super::super::address::named_host;
use super::sentinel_reply::field;

/// Says how far a sentinel is with a failover that it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverStage {
    /// The sentinel leads no failover, or it has promoted a replica.
    None,
    /// The sentinel wants to lead a failover. It may not find a majority.
    Tried,
    /// The sentinel leads a failover and has not promoted a replica yet.
    Elected,
}

/// The answer of a sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterStatus {
    /// The host and port of the master.
    pub master: (String, u16),
    /// The epoch of the sentinel's configuration, if the sentinel names it.
    pub epoch: Option<u64>,
    pub stage: FailoverStage,
}

impl MasterStatus {
    /// Reads the replies to `SENTINEL get-master-addr-by-name` and `SENTINEL MASTER`. The latter
    /// may be missing, because a user may not have the right to it.
    pub fn read((host, port): (&str, u16), details: Option<&Value>) -> Self {
        let master = (named_host(host), port);
        let told = |name| details.and_then(|details| field(details, name)).unwrap_or_default();
        let is_in_failover = told("flags").split(',').any(|flag| flag == "failover_in_progress");
        // After the promotion, `SENTINEL MASTER` still describes the old master.
        let is_promoted = (told("ip"), told("port")) != (&*master.0, &*master.1.to_string());
        let stage = match told("failover-state") {
            _ if !is_in_failover || is_promoted => FailoverStage::None,
            "reconf_slaves" | "update_config" => FailoverStage::None,
            "select_slave" | "send_slaveof_noone" | "wait_promotion" => FailoverStage::Elected,
            _ => FailoverStage::Tried,
        };
        Self { master, epoch: told("config-epoch").parse().ok(), stage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(fields: &[(&str, &str)]) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        Value::Map(fields.iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    fn read(port: u16, fields: &[(&str, &str)]) -> MasterStatus {
        MasterStatus::read(("10.0.0.1", port), Some(&details(fields)))
    }

    fn in_state(state: &str) -> [(&'static str, &str); 5] {
        let flags = ("flags", "master,failover_in_progress,force_failover");
        [("ip", "10.0.0.1"), ("port", "7000"), flags, ("failover-state", state), ("config-epoch", "4")]
    }

    #[test]
    fn a_failover_counts_by_its_state() {
        assert_eq!(read(7000, &in_state("wait_start")).stage, FailoverStage::Tried);
        for state in ["select_slave", "send_slaveof_noone", "wait_promotion"] {
            assert_eq!(read(7000, &in_state(state)).stage, FailoverStage::Elected, "{state}");
        }
        // This sentinel does not name a state.
        assert_eq!(read(7000, &in_state("")).stage, FailoverStage::Tried);
        let quiet = [("port", "7000"), ("flags", "master"), ("config-epoch", "4")];
        assert_eq!(read(7000, &quiet).stage, FailoverStage::None);
    }

    #[test]
    fn after_the_promotion_the_sentinel_names_the_new_master() {
        let said = read(7001, &in_state("reconf_slaves"));
        assert_eq!(said.stage, FailoverStage::None);
        assert_eq!((said.master.1, said.epoch), (7001, Some(4)));
    }

    #[test]
    fn after_the_promotion_the_port_may_be_the_same() {
        // The sentinel changed its state between its two replies, before or after the first one.
        for state in ["wait_promotion", "reconf_slaves", "update_config"] {
            let said = MasterStatus::read(("10.0.0.2", 7000), Some(&details(&in_state(state))));
            assert_eq!(said.stage, FailoverStage::None, "{state}");
        }
        // Both replies are about the old master, which the client may still know as the master.
        for state in ["reconf_slaves", "update_config"] {
            assert_eq!(read(7000, &in_state(state)).stage, FailoverStage::None, "{state}");
        }
    }

    #[test]
    fn a_user_who_may_not_ask_for_more_learns_the_master() {
        let said = MasterStatus::read(("10.0.0.1", 7000), None);
        assert_eq!((said.stage, said.epoch), (FailoverStage::None, None));
        let odd = [("port", "7000"), ("flags", "master"), ("config-epoch", "many")];
        assert_eq!(read(7000, &odd).epoch, None);
    }
}
