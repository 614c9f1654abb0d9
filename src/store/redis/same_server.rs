//! Tells whether two addresses lead to the same server.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use super::address::RedisAddress;
use super::endpoint::Endpoint;

impl RedisAddress {
    /// Returns true if both addresses certainly lead to the same server, whatever the login, the
    /// database and the TLS settings are. Asks neither the network nor the file system, so two
    /// names of one host count as two servers.
    pub fn is_same_server(&self, other: &Self) -> bool {
        match (&self.endpoint, &other.endpoint) {
            (Endpoint::Tcp(host, port), Endpoint::Tcp(other, other_port)) => {
                port == other_port && same_form(host) == same_form(other)
            }
            (Endpoint::Unix(path), Endpoint::Unix(other)) => path == other,
            // A sentinel knows one master of a name.
            (Endpoint::Master(sentinels), Endpoint::Master(others)) => {
                let is_known = |node: &Self| others.nodes.iter().any(|other| node.is_same_server(other));
                sentinels.master == others.master && sentinels.nodes.iter().any(is_known)
            }
            _ => false,
        }
    }
}

/// Returns a text that is the same for all ways to write a host name or an IP address.
fn same_form(host: &str) -> Cow<'_, str> {
    // What follows a % names a network interface.
    let (address, interface) = host.split_at(host.find('%').unwrap_or(host.len()));
    match address.parse::<Ipv6Addr>() {
        Ok(address) => format!("{}{interface}", IpAddr::V6(address).to_canonical()).into(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).into(),
    }
}
