//! Reads what a script says about a lock.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::pace::Pace;
use crate::lease::Fence;
use crate::store::{LeaseInfo, LockInfo, WaiterInfo};

/// The most bytes of a holder's name that the client keeps. A name has at most 255 bytes, and the
/// trace behind it 56. If this is larger, a false server can take more memory; if it is smaller,
/// real names are cut off.
const MOST_NAME: usize = 320;
/// How many leases or waiters the client reads before it looks at the clock. If this is larger,
/// other stores may wait for longer; if it is smaller, reading takes longer.
const STEP: usize = 16;

/// Reads the leases and the waiters of a lock. The header of the script describes them. Returns
/// `None` if no script returns such a value. A lock may have thousands of waiters, so other stores
/// have their turns in between, as `pace` says.
pub async fn read(value: Value, pace: &mut Pace<'_>) -> Option<LockInfo> {
    let Value::Array(parts) = value else { return None };
    let Ok([Value::Int(shared), Value::Array(leases), Value::Array(waiters)]) = <[Value; 3]>::try_from(parts)
    else {
        return None;
    };
    let mut leases = read_all(leases, lease, pace).await?;
    // A lease that is not taken up yet will get a larger fence than the others.
    leases.sort_by_key(|lease| lease.fence.unwrap_or(Fence::MAX));
    let waiters = read_all(waiters, waiter, pace).await?;
    Some(LockInfo { shared: shared == 1, leases, waiters })
}

/// Reads each of `values` with `read_one`. Returns `None` if `read_one` does for one of them.
async fn read_all<T>(
    values: Vec<Value>,
    read_one: impl Fn(&Value) -> Option<T>,
    pace: &mut Pace<'_>,
) -> Option<Vec<T>> {
    let mut all = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        all.push(read_one(&value)?);
        if index % STEP == STEP - 1 {
            pace.keep().await;
        }
    }
    Some(all)
}

fn lease(value: &Value) -> Option<LeaseInfo> {
    let Value::Array(parts) = value else { return None };
    let (left, fence, holder, mark) = match &parts[..] {
        [Value::Int(left)] => (*left, None, None, None),
        [Value::Int(left), Value::BulkString(holder), Value::Int(fence), Value::BulkString(mark)] => {
            let fence = u64::try_from(*fence).ok().filter(|&fence| fence > 0).map(Fence);
            (*left, fence, Some(name_in(holder)), mark_of(mark))
        }
        _ => return None,
    };
    Some(LeaseInfo { mark, holder, fence, remaining: remaining(left), servers: None })
}

/// Reads the name of a holder or a waiter. Cuts off a name that is longer than any client's.
fn name_in(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_NAME)]).into()
}

fn waiter(value: &Value) -> Option<WaiterInfo> {
    let Value::Array(parts) = value else { return None };
    let (age, most, holder) = match &parts[..] {
        // If the user lacks a right, a script may stop before it has noted the waiter's name.
        [Value::Int(age)] => (*age, "0".as_bytes(), "".into()),
        [Value::Int(age), Value::BulkString(most), Value::BulkString(holder)] => {
            (*age, &most[..], name_in(holder))
        }
        _ => return None,
    };
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    Some(WaiterInfo { holder, shared: most != b"0", age })
}

/// Reads a mark: the first 8 hexadecimal digits of a token.
pub fn mark_of(digits: &[u8]) -> Option<u32> {
    let digits = Some(digits).filter(|digits| digits.len() <= 8)?;
    u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Reads a reply to PTTL. −1 is a key that never expires, and −2 is a key that is gone.
pub fn remaining(left: i64) -> Option<Duration> {
    (left != -1).then(|| Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}
