use redis::Value;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use super::super::slots::{MOST_MASTERS, SLOTS, WALKS};
use super::*;
use crate::store::Access;

fn place(number: usize) -> NodeAddress {
    NodeAddress { host: format!("host-{number}"), port: 7000 }
}

/// Returns the map of the largest cluster.
fn largest_map() -> SlotMap {
    let range = |number: usize| {
        let slots = SLOTS / MOST_MASTERS;
        let first = (number * slots) as i64;
        let host = Value::BulkString(place(number).host.into());
        let master = Value::Array(vec![host, Value::Int(7000)]);
        Value::Array(vec![Value::Int(first), Value::Int(first + slots as i64 - 1), master])
    };
    SlotMap::read(&Value::Array((0..MOST_MASTERS).map(range).collect()), &place(0)).unwrap()
}

/// A server may redirect each request of a large batch, and a cluster may have 1024 masters.
#[test]
fn the_slots_are_not_walked_for_each_redirect_and_each_node() {
    let address = ClusterAddress::parse("redis-cluster://seed", &Access::default()).unwrap();
    let nodes = Nodes::new(address);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        *nodes.map.borrow_mut() = largest_map();
        let mut waiting: Vec<_> = (0..100).map(|number| Box::pin(left(&nodes, number))).collect();
        for left in &mut waiting {
            assert!(futures_util::poll!(left).is_pending());
        }
        WALKS.set(0);
        for number in 0..1_000 {
            nodes.moved(number, place(usize::from(number)));
            nodes.moved(number, place(MOST_MASTERS + usize::from(number)));
            assert!(nodes.admits(&place(5_000)));
        }
        for number in 0..MOST_MASTERS {
            nodes.node(&place(number));
            nodes.node(&place(number));
        }
        nodes.news.notify_waiters();
        for left in &mut waiting {
            let has_left = futures_util::poll!(left).is_ready();
            assert!(!has_left);
        }
        assert!(WALKS.get() < 10, "{} walks", WALKS.get());
    });
}

async fn left(nodes: &Nodes, number: usize) {
    // The last masters keep their slots.
    nodes.left(&place(MOST_MASTERS - 1 - number)).await;
}
