//! Tells whether two addresses lead to the same server.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    if let Ok(address) = address.parse::<Ipv6Addr>() {
        return format!("{}{interface}", IpAddr::V6(address).to_canonical()).into();
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    ipv4(name).map_or(name.into(), |address| address.to_string().into())
}

/// Returns the IPv4 address that a host name spells, in any form that a resolver accepts: one to
/// four numbers, each decimal, octal or hexadecimal. The last number fills the remaining bytes.
///
/// Source: `inet_aton(3)`.
fn ipv4(name: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u32> = name.split('.').map(number).collect::<Option<_>>()?;
    let (&last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|&byte| byte > 255) {
        return None;
    }
    let room = 32 - 8 * first.len();
    if room < 32 && last >> room != 0 {
        return None;
    }
    let bits = first.iter().enumerate().fold(last, |bits, (i, byte)| bits | byte << (24 - 8 * i));
    Some(Ipv4Addr::from(bits))
}

fn number(text: &str) -> Option<u32> {
    // `from_str_radix` accepts a sign.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some("") => Some(0),
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(&text[1..], 8).ok(),
        None => text.parse().ok(),
    }
}
