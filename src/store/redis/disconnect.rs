//! The errors of requests that were sent and not answered.

use super::address::RedisAddress;
use super::fault;
use super::link::Disconnect;
use crate::store::{StoreError, StoreErrorKind};

impl Disconnect {
    /// Returns the error of a request to the server at `address`.
    pub fn error(&self, address: &RedisAddress) -> StoreError {
        match self {
            Disconnect::TimedOut => {
                // Do not name the time: near the end of a lease, a request has less than the
                // time-out.
                let message = format!(
                    "{address} did not answer in time: is it frozen or overloaded, or is the network slow?"
                );
                StoreError::maybe_done(StoreErrorKind::TimedOut, message)
            }
            Disconnect::Torn => {
                let message = format!("{address} gave a slot away meanwhile, so the connection is renewed");
                StoreError::maybe_done(StoreErrorKind::Unreachable, message)
            }
            Disconnect::OutOfStep => fault::out_of_step(address),
            Disconnect::TooMuch(excess) => fault::too_much(address, *excess),
            Disconnect::Broken(error) => fault::broken(address, error, true),
        }
    }
}
